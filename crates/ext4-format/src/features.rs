//! Feature flags of the superblock.
