//! The mounts that there are: how to find them, and what their servers tell.

pub mod registry;
pub mod status;
