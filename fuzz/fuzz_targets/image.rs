//! An image with changes at any place: mounted, read, changed, checked.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| drystone_fuzz::engine::image(data));
