//! Manifests, and lists of sources.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| drystone_fuzz::sources::manifest(data));
