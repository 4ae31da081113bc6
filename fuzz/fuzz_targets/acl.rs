//! Access control lists in both their forms.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| drystone_fuzz::attributes::acl(data));
