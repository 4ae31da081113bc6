//! Nodes of extent trees: checks, searches, changes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| drystone_fuzz::formats::extent_node(data));
