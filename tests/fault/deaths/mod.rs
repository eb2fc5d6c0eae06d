//! Deaths: SIGKILL of any process ends what ran with an error, and everything comes back by itself.
