//! What the superblock says about the journal.

use super::{Superblock, high, low};
use crate::features::Compat;
use drystone_ondisk::little_endian::U32;

/// A copy of the journal inode's map and size, to find the journal if that inode is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalBackup {
    /// The 60 bytes of the inode that map its blocks.
    pub block_area: [u8; 60],
    /// Size of the journal in bytes.
    pub size_bytes: u64,
}

impl Superblock {
    /// UUID of an external journal.
    #[must_use]
    pub const fn journal_uuid(&self) -> [u8; 16] {
        self.raw.journal_uuid
    }

    /// Sets [`journal_uuid`](Self::journal_uuid).
    pub fn set_journal_uuid(&mut self, uuid: [u8; 16]) {
        self.raw.journal_uuid = uuid;
    }

    /// Whether there is a journal, inside or outside.
    #[must_use]
    pub fn has_journal(&self) -> bool {
        self.features().compat.contains(Compat::HAS_JOURNAL)
    }

    /// The copy of the journal inode's map, if there is one.
    #[must_use]
    pub fn journal_backup(&self) -> Option<JournalBackup> {
        if self.raw.jnl_backup_type != 1 {
            return None;
        }
        let words = &self.raw.jnl_blocks;
        let mut block_area = [0; 60];
        for (bytes, word) in block_area.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.get().to_le_bytes());
        }
        let size_bytes = u64::from(words[15].get()) << 32 | u64::from(words[16].get());
        Some(JournalBackup { block_area, size_bytes })
    }

    /// Sets [`journal_backup`](Self::journal_backup).
    pub fn set_journal_backup(&mut self, backup: Option<&JournalBackup>) {
        let words = &mut self.raw.jnl_blocks;
        words.fill(U32::ZERO);
        self.raw.jnl_backup_type = u8::from(backup.is_some());
        let Some(backup) = backup else { return };
        for (bytes, word) in backup.block_area.as_chunks::<4>().0.iter().zip(&mut *words) {
            *word = U32::from_bytes(*bytes);
        }
        words[15].set(high(backup.size_bytes));
        words[16].set(low(backup.size_bytes));
    }
}
