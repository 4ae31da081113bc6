//! Blocks of entries: checks, searches, changes, splits.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| drystone_fuzz::directories::directory_block(data));
