//! Metadata buffers by block number, with copy-on-write for a journal.
#![forbid(unsafe_code)]
