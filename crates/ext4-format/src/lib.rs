//! Everything in an ext4 image: layouts, checksums, checks.
#![forbid(unsafe_code)]
