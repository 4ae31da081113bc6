//! Blocks of the orphan file.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| drystone_fuzz::special::orphan_block(data));
