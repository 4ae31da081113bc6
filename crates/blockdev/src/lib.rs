//! Block devices: files, memory, and wrappers that record, fail and delay.
#![forbid(unsafe_code)]
