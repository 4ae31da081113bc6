//! Superblock, descriptor, revoke and commit blocks of a journal.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| drystone_fuzz::journal::journal_blocks(data));
