//! Block group descriptors.
