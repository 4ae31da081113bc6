//! The block of multi-mount protection.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| drystone_fuzz::special::mmp(data));
