//! Network: links that stall, lose, throttle, half-close and reset.
