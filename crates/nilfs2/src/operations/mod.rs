//! Implements the calls of the `FileSystem` trait.
//!
//! # Locking
//! A change first passes the gate. Then it takes the rename lock if it needs it, the content locks of
//! directories in the order of inode numbers, and that of a file. A read doesn't pass the gate.

mod attributes;
mod create;
mod data;
mod read;
mod remove;
mod rename;

use crate::engine::Engine;
use std::ops::Deref;

/// The operations of an engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operations<'a> {
    engine: &'a Engine,
}

impl<'a> Operations<'a> {
    pub(crate) fn new(engine: &'a Engine) -> Self {
        Self { engine }
    }
}

impl Deref for Operations<'_> {
    type Target = Engine;

    fn deref(&self) -> &Engine {
        self.engine
    }
}
