//! Endian integers, checksums and bitmaps shared by the on-disk formats.
#![forbid(unsafe_code)]
