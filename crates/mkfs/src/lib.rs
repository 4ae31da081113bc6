//! Makes ext4 images.
#![forbid(unsafe_code)]
