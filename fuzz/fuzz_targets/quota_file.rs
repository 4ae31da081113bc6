//! Quota files as a whole.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| drystone_fuzz::special::quota_file(data));
