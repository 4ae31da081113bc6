//! Checksums of block and inode bitmaps.
