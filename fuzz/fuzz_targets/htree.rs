//! Index blocks of hashed directories.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| drystone_fuzz::directories::htree(data));
