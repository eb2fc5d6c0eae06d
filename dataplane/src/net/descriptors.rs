//! How many files and sockets the process may have open.

use std::io;

/// The process's limit of open descriptors (RLIMIT_NOFILE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// What it was when the process started.
    pub found: u64,
    /// What it is now.
    pub now: u64,
}

/// Raises the soft limit to the hard one: many systems start services with a soft limit of 1024, for the sake of programs
/// that use `select`, and leave it to every other one to ask for what it may have.
///
/// # Errors
/// The limit cannot be read or set.
pub fn raise_descriptors() -> io::Result<Descriptors> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live local of the type that the call fills in.
    #[expect(unsafe_code, reason = "no safe binding of getrlimit in our crates")]
    let got = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    let found = limit.rlim_cur;
    if found < limit.rlim_max {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: the pointer is to a live local, which the call only reads.
        #[expect(unsafe_code, reason = "as above")]
        let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
        if set != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(Descriptors { found, now: limit.rlim_cur })
}

/// No program that this process starts from now on gets a descriptor that is open in it now, but for its standard ones. What the
/// process opens itself is closed on exec anyway; whoever started it may have left it others.
///
/// # Errors
/// The kernel is older than 5.11.
pub fn pass_on_no_descriptors() -> io::Result<()> {
    const FIRST: libc::c_uint = 3;
    // SAFETY: the call sets a flag of descriptors; it takes no memory and closes nothing here.
    #[expect(unsafe_code, reason = "no safe binding of close_range in our crates")]
    let set =
        unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_is_raised_to_the_hard_one_and_stays_there() {
        let first = raise_descriptors().unwrap();
        assert!(first.now >= first.found);
        assert_eq!(raise_descriptors().unwrap(), Descriptors { found: first.now, now: first.now });
    }
}
