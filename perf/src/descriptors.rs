//! The limit of open files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises this process's limit to the hard one, which is returned; `None` where there is none. If the system refuses, what
/// does not fit fails by its own name.
pub fn raise() -> Option<u64> {
    let hard = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard });
    hard
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_to_the_hard_one() {
        let hard = raise();
        assert_eq!(getrlimit(Resource::Nofile).current, hard);
    }
}
