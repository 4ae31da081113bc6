//! Data stored in the inode itself.
