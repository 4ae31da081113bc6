//! Extended attributes in inodes and in blocks.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| drystone_fuzz::attributes::attributes(data));
