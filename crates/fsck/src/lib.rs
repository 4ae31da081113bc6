//! An independent checker of ext4 images.
#![forbid(unsafe_code)]
