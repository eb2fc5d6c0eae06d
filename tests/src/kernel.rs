//! What this kernel, or the sandbox around us, allows.

/// Whether a ring can be made here; containers often forbid it.
pub fn has_io_uring() -> bool {
    // struct io_uring_params (io_uring_setup(2)): 120 bytes, all zero asks for the defaults.
    let mut params = [0_u8; 120];
    // SAFETY: the kernel writes at most the size of io_uring_params to a live buffer of that size.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 4, params.as_mut_ptr()) };
    let Ok(fd) = i32::try_from(fd) else { return false };
    if fd < 0 {
        return false;
    }
    // SAFETY: the descriptor is ours and is used nowhere else.
    unsafe { libc::close(fd) };
    true
}
