//! The operations of the `FileSystem` trait.
//!
//! # Locking
//! A change passes the gate first, then takes the lock of renames if it needs it, the content locks of
//! directories by number, and that of a file. What only reads doesn't pass the gate.

mod attributes;
mod create;
mod data;
mod interface;
mod read;
mod remove;
mod rename;
