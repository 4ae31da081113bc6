//! The blocks of a jbd2 journal: layouts, checksums, checks.
#![forbid(unsafe_code)]
