//! A concurrent jbd2 journal: handles, commit, checkpoint, revoke, recovery.
#![forbid(unsafe_code)]
