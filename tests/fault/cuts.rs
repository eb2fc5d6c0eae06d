//! Cuts: a client that leaves, in whatever phase, leaves nothing behind.
