//! Pinning a thread to a core.

use std::io;

/// Pins the calling thread to `cpu`.
///
/// # Errors
/// The core does not exist or is not in the process's allowed set.
pub(super) fn pin(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("cpu {cpu} is out of range")));
    }
    // SAFETY: an all-zero cpu_set_t is a valid empty set.
    #[expect(unsafe_code, reason = "no safe binding of sched_setaffinity in our crates")]
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `cpu` is below CPU_SETSIZE, checked above, so the bit is inside the set.
    #[expect(unsafe_code, reason = "as above")]
    unsafe {
        libc::CPU_SET(cpu, &mut set);
    }
    // SAFETY: pid 0 is the calling thread; the pointer and size describe a live local.
    #[expect(unsafe_code, reason = "as above")]
    let result = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) };
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    Err(io::Error::new(error.kind(), format!("cannot pin a shard to cpu {cpu}: {error}")))
}
