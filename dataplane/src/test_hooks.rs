//! Faults that tests of this repository ask for. Only under the feature `test-hooks`; no release has it.

/// Panics here when a test wants it: `IOP_TEST_PANIC` names a file, and the first one to pass the point whose name the file
/// holds removes the file and panics.
///
/// # Panics
/// That is what it is for.
pub fn panic_point(point: &str) {
    static FILE: std::sync::OnceLock<Option<std::path::PathBuf>> = std::sync::OnceLock::new();
    let file = FILE.get_or_init(|| std::env::var_os("IOP_TEST_PANIC").map(Into::into));
    if let Some(file) = file
        && std::fs::read_to_string(file).is_ok_and(|wanted| wanted == point)
        && std::fs::remove_file(file).is_ok()
    {
        panic!("a test wants a panic at {point}");
    }
}
