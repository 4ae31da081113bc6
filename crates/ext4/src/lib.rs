//! The ext4 engine.
#![forbid(unsafe_code)]
