//! A user-space ext4 engine: journaled, crash-safe, many threads at once.
#![forbid(unsafe_code)]
