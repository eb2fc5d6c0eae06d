//! How a program is brought to its end: asked first, made to a while later. Pure, with time handed in.

use std::time::{Duration, Instant};

/// What its process group is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Push {
    /// SIGTERM: it may put away what it was at.
    Ask,
    /// SIGKILL.
    Kill,
}

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// Nobody wants it to end.
    #[default]
    Running,
    /// It has been asked, and is killed at this time.
    Asked(Instant),
    /// It has been killed, or has ended by itself: there is nothing more to send.
    Over,
}

impl Ending {
    /// It is to end within `grace`. What is to be sent now.
    pub fn want(&mut self, now: Instant, grace: Duration) -> Option<Push> {
        let due = now + grace;
        match self {
            Self::Running => {
                *self = Self::Asked(due);
                Some(Push::Ask)
            }
            Self::Asked(until) => {
                *until = due.min(*until);
                None
            }
            Self::Over => None,
        }
    }

    /// It has ended. What of its group is left is killed: it would be nobody's.
    pub fn ended(&mut self) -> Push {
        *self = Self::Over;
        Push::Kill
    }

    /// What is to be sent by now because of the time.
    pub fn at(&mut self, now: Instant) -> Option<Push> {
        match *self {
            Self::Asked(until) if now >= until => {
                *self = Self::Over;
                Some(Push::Kill)
            }
            _ => None,
        }
    }

    /// When [`Self::at`] is to be called.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        match *self {
            Self::Asked(until) => Some(until),
            Self::Running | Self::Over => None,
        }
    }

    /// Whether somebody wants it to end, or it has.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        *self != Self::Running
    }
}

#[cfg(test)]
mod tests {
    use dataplane::clock;

    use super::*;

    const GRACE: Duration = Duration::from_secs(2);

    // req: PRE-3
    #[test]
    fn it_is_asked_once_and_killed_once_when_its_grace_is_over() {
        let begun = clock::now();
        let mut ending = Ending::default();
        assert_eq!((ending.at(begun + GRACE), ending.due(), ending.is_wanted()), (None, None, false));
        assert_eq!(ending.want(begun, GRACE), Some(Push::Ask));
        assert_eq!(ending.want(begun + GRACE / 2, GRACE), None);
        assert_eq!(ending.due(), Some(begun + GRACE), "asking again gives no more time");
        assert_eq!(ending.at(begun + GRACE - Duration::from_nanos(1)), None);
        assert_eq!(ending.at(begun + GRACE), Some(Push::Kill));
        assert_eq!((ending.at(begun + 9 * GRACE), ending.want(begun + 9 * GRACE, GRACE)), (None, None));
    }

    #[test]
    fn a_shorter_grace_counts_and_what_has_ended_is_not_asked() {
        let begun = clock::now();
        let mut ending = Ending::default();
        ending.want(begun, GRACE);
        ending.want(begun, GRACE / 4);
        assert_eq!(ending.due(), Some(begun + GRACE / 4));
        assert_eq!(ending.ended(), Push::Kill);
        assert_eq!((ending.want(begun, GRACE), ending.at(begun + GRACE), ending.due()), (None, None, None));
    }
}
