//! Slow readers: a client that reads nothing costs a window of memory, and nobody else any time.
