//! Group descriptors.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| drystone_fuzz::formats::group_descriptor(data));
