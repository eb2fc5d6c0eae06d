//! Configuration files: nothing makes the loader panic, and what loads comes back when it is shown.
#![no_main]

mod oracle;

libfuzzer_sys::fuzz_target!(|input: &[u8]| oracle::config(input));
