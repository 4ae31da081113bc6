//! A NILFS2 volume with changes at any place: checked, mounted, read, changed, checked again.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| drystone_fuzz::nilfs2::volume(data));
