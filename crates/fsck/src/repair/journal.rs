//! The journal: emptied when it was replayed, or when what it holds can't be used.

use super::mender::{Mended, Mender};
use crate::image::{Error, Image};
use crate::issue::JournalIssue;
use crate::replay::Replayed;
use drystone_ext4_format::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, Superblock};
use drystone_jbd2_format as jbd2;

/// Empties the log that was replayed onto the image's own device, and says that nothing is to be replayed.
pub(super) fn finish_replay(image: &Image<'_>, replayed: &Replayed) -> Result<(), Error> {
    let mut block = image.read_block(replayed.superblock)?;
    if let Ok(mut superblock) = jbd2::Superblock::check(&block) {
        superblock.set_log(None, replayed.next_sequence);
        block[..jbd2::SUPERBLOCK_BYTES].copy_from_slice(&superblock.to_bytes());
        let offset = replayed.superblock.get() << image.layout.log_block_size();
        image.device.write_at(offset, &block)?;
    }
    // The superblock may have been in the log.
    let mut bytes = [0; SUPERBLOCK_BYTES];
    image.device.read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes)?;
    let mut superblock =
        Superblock::check_unsealed(&bytes).unwrap_or_else(|_| image.superblock.clone());
    superblock.set_needs_recovery(false);
    image.device.write_at(SUPERBLOCK_OFFSET_BYTES, &superblock.encode())?;
    Ok(())
}

pub(super) fn mend(mender: &mut Mender<'_, '_>, issue: &JournalIssue) -> Result<Mended, Error> {
    match issue {
        JournalIssue::NotEmpty => {
            mender.edit_superblock(|superblock| superblock.set_needs_recovery(true))?;
            Ok(Some("the journal is replayed"))
        }
        JournalIssue::Stopped { .. } => {
            mender.edit_journal(|superblock| superblock.set_error_number(0))
        }
        JournalIssue::Corrupt(_) | JournalIssue::Target { .. } => {
            let done = mender.edit_journal(|superblock| {
                let sequence = superblock.sequence().wrapping_add(SKIPPED_TRANSACTIONS);
                superblock.set_log(None, sequence);
            })?;
            match done {
                Some(_) => {
                    mender.edit_superblock(|superblock| superblock.set_needs_recovery(false))?;
                    Ok(Some("what the journal holds was dropped"))
                }
                None => mender.format_journal(),
            }
        }
        _ => mender.format_journal(),
    }
}

/// More than a log can hold, so that none of what was dropped is ever taken for new.
const SKIPPED_TRANSACTIONS: u32 = 1 << 20;

/// Linux refuses a shorter journal.
const JOURNAL_BLOCKS_MIN: u32 = 1024;

impl Mender<'_, '_> {
    fn journal_place(&self) -> Result<Option<(u64, u32)>, Error> {
        let Some(number) = self.checker.image.superblock.journal_inode() else { return Ok(None) };
        let Some((inode, _)) = self.checker.inode(number)? else { return Ok(None) };
        if !inode.is_regular() || !inode.has_block_mapping() {
            return Ok(None);
        }
        let extents = crate::mapping::extents_of(&self.checker.image, &inode)?;
        let mut end = 0;
        for extent in &extents {
            if extent.logical.as_u64() != end {
                break;
            }
            end = extent.logical_end();
        }
        let layout = self.checker.image.layout;
        let blocks = end.min(inode.size_bytes >> layout.log_block_size());
        let first = extents.first().filter(|_| blocks > 0);
        Ok(first.map(|first| {
            (
                first.physical.get() << layout.log_block_size(),
                blocks.min(u64::from(u32::MAX)) as u32,
            )
        }))
    }

    /// Changes the journal's superblock, if there is one.
    fn edit_journal(
        &mut self,
        change: impl FnOnce(&mut jbd2::Superblock),
    ) -> Result<Mended, Error> {
        let Some((place, _)) = self.journal_place()? else { return Ok(None) };
        let mut bytes = [0; jbd2::SUPERBLOCK_BYTES];
        self.device().read_at(place, &mut bytes)?;
        let Ok(mut superblock) = jbd2::Superblock::check(&bytes) else { return Ok(None) };
        change(&mut superblock);
        self.device().write_at(place, &superblock.to_bytes())?;
        Ok(Some("the journal's superblock was corrected"))
    }

    /// The first block of an empty journal of so many blocks.
    fn new_journal(&self, length_blocks: u32) -> Option<Box<[u8]>> {
        if length_blocks < JOURNAL_BLOCKS_MIN {
            return None;
        }
        Some(jbd2::format_journal_superblock(&jbd2::NewJournal {
            block_size_bytes: self.checker.image.layout.block_size() as u32,
            length_blocks,
            first_block: 1,
            uuid: self.checker.image.superblock.uuid(),
            users: Vec::new(),
            user_count: 1,
            incompat: jbd2::IncompatFeatures::empty(),
            fast_commit_blocks: 0,
        }))
    }

    /// Writes an empty journal over the blocks that the journal's inode has.
    fn format_journal(&mut self) -> Result<Mended, Error> {
        let Some((place, blocks)) = self.journal_place()? else { return Ok(None) };
        let Some(superblock) = self.new_journal(blocks) else { return Ok(None) };
        // A copy of a descriptor that is left could look like the first transaction.
        let block_size = self.checker.image.layout.block_size() as u64;
        let length = (superblock.len() as u64).max(block_size);
        self.device().zero_range(place, length)?;
        self.device().write_at(place, &superblock)?;
        self.edit_superblock(|superblock| superblock.set_needs_recovery(false))?;
        Ok(Some("the journal was made anew"))
    }
}
