//! The interface between file systems and their users: no block, extent or transaction words.
#![forbid(unsafe_code)]
