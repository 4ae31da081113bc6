//! Where the blocks of a quota file are: in memory, or wherever the caller keeps them.

use super::{BLOCK_LENGTH, QuotaBlock};
use crate::error::Corrupt;

/// The blocks of a quota file, wherever they are.
pub trait QuotaBlocks {
    /// The storage's error.
    type Error: From<Corrupt>;

    /// How many blocks the file's length has room for.
    fn length(&self) -> u32;

    /// Reads a block below [`length`](Self::length).
    ///
    /// # Errors
    /// Whatever the storage has to report.
    fn read(&mut self, block: u32) -> Result<QuotaBlock, Self::Error>;

    /// Writes a block; the one just past the end makes the file longer.
    ///
    /// # Errors
    /// Whatever the storage has to report.
    fn write(&mut self, block: u32, bytes: &QuotaBlock) -> Result<(), Self::Error>;
}

/// A quota file in memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemoryQuotaBlocks {
    blocks: Vec<QuotaBlock>,
}

impl MemoryQuotaBlocks {
    /// The whole blocks of a file's bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self { blocks: bytes.as_chunks::<BLOCK_LENGTH>().0.to_vec() }
    }

    /// The file's bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.blocks.concat()
    }
}

impl QuotaBlocks for MemoryQuotaBlocks {
    type Error = Corrupt;

    fn length(&self) -> u32 {
        u32::try_from(self.blocks.len()).unwrap_or(u32::MAX)
    }

    fn read(&mut self, block: u32) -> Result<QuotaBlock, Corrupt> {
        let truncated = Corrupt::Truncated {
            structure: "quota file",
            needed: (block as usize + 1) * BLOCK_LENGTH,
            found: self.blocks.len() * BLOCK_LENGTH,
        };
        self.blocks.get(block as usize).copied().ok_or(truncated)
    }

    fn write(&mut self, block: u32, bytes: &QuotaBlock) -> Result<(), Corrupt> {
        let at = block as usize;
        assert!(at <= self.blocks.len(), "a quota file grows block by block");
        match self.blocks.get_mut(at) {
            Some(place) => *place = *bytes,
            None => self.blocks.push(*bytes),
        }
        Ok(())
    }
}
