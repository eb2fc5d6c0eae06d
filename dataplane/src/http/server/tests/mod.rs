mod faults;
mod harness;
mod keep_alive;
mod pending;
mod secure;
