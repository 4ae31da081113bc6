//! Data and directories in inodes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| drystone_fuzz::directories::inline_data(data));
