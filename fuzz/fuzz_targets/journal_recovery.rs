//! Recovery from any log on a small device.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| drystone_fuzz::journal::journal_recovery(data));
