//! Hashes of directory names.
