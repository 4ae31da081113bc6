//! Superblocks and the arithmetic on their geometry.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| drystone_fuzz::formats::superblock(data));
