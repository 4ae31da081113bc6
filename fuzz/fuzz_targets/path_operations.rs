//! Any sequence of operations on paths of a sound image, which the checker finds sound after.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| drystone_fuzz::engine::path_operations(data));
