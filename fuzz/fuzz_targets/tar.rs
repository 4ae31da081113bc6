//! Tar archives, as sources of images.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| drystone_fuzz::sources::tar(data));
