//! Names of files, made without allocating for each.

use std::fmt::Write;

/// A name that is written again and again.
#[derive(Debug, Default)]
pub struct Name(String);

impl Name {
    /// `f` and a number.
    pub fn file(&mut self, number: u64) -> &str {
        self.write("f", number)
    }

    /// `d` and a number.
    pub fn directory(&mut self, number: u64) -> &str {
        self.write("d", number)
    }

    /// Anything and a number.
    pub fn write(&mut self, prefix: &str, number: u64) -> &str {
        self.0.clear();
        // Writing to a string can't fail.
        let _ = write!(self.0, "{prefix}{number}");
        &self.0
    }
}
