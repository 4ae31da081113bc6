//! The journal: emptied when it was replayed, or made anew.

use super::map_writer;
use super::repairer::{Done, Repairer};
use super::superblock::change_features;
use crate::image::{Error, Image};
use crate::issue::JournalIssue;
use crate::replay::Replayed;
use drystone_ext4_format::extent::{Extent, ExtentNode, NodePlace};
use drystone_ext4_format::features::{Compat, Incompat};
use drystone_ext4_format::inode::{Inode, InodeFlags, InodeTimestamp, ModeFileType};
use drystone_ext4_format::superblock::{
    JournalBackup, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, Superblock,
};
use drystone_ext4_format::{InodeNumber, LogicalBlock};
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

pub(super) fn repair(repairer: &mut Repairer<'_, '_>, issue: &JournalIssue) -> Result<Done, Error> {
    match issue {
        JournalIssue::NotEmpty => {
            repairer.edit_superblock(|superblock| superblock.set_needs_recovery(true))?;
            Ok(Some("the journal is replayed"))
        }
        JournalIssue::Stopped { .. } => {
            repairer.edit_journal(|superblock| superblock.set_error_number(0))
        }
        // The journal's superblock: other damage is left out when the log is replayed.
        JournalIssue::Corrupt(_) if repairer.is_journal_known()? => {
            match repairer.format_journal()? {
                Some(done) => Ok(Some(done)),
                None => move_away(repairer),
            }
        }
        JournalIssue::Hole { .. } | JournalIssue::Size { .. } => repair_map(repairer),
        _ => {
            if repairer.restore_journal_inode()? {
                return Ok(Some("the journal's inode was restored from the superblock"));
            }
            match repairer.format_journal()? {
                Some(done) => Ok(Some(done)),
                None => move_away(repairer),
            }
        }
    }
}

/// Makes a journal in other blocks, where the image has room for one; otherwise it goes without.
pub(super) fn move_away(repairer: &mut Repairer<'_, '_>) -> Result<Done, Error> {
    // Several blocks with two owners are one problem of the journal's.
    if !repairer.rebuilt_maps.insert(InodeNumber::JOURNAL.get()) {
        return Ok(Some("the journal was made anew"));
    }
    match repairer.make_journal()? {
        Some(done) => Ok(Some(done)),
        None => give_up(repairer),
    }
}

/// Restores the map of the journal's inode, or makes another journal: one with a hole, or one that is shorter
/// than the superblock has noted, is of no use.
pub(super) fn repair_map(repairer: &mut Repairer<'_, '_>) -> Result<Done, Error> {
    let is_restored = !repairer.rebuilt_maps.contains(&InodeNumber::JOURNAL.get())
        && repairer.restore_journal_inode()?;
    if is_restored {
        // Other problems of the old map go with it.
        repairer.rebuilt_maps.insert(InodeNumber::JOURNAL.get());
        return Ok(Some("the journal's inode was restored from the superblock"));
    }
    move_away(repairer)
}

/// Finds the journal again that the superblock doesn't name, or goes without.
pub(super) fn repair_missing(repairer: &mut Repairer<'_, '_>) -> Result<Done, Error> {
    if repairer.restore_journal_inode()? {
        return Ok(Some("the journal's inode was restored from the superblock"));
    }
    let found = repairer.checker.image.inode(InodeNumber::JOURNAL)?;
    let is_journal = found.is_some_and(|(inode, _)| {
        inode.is_regular() && inode.links_count > 0 && inode.has_block_mapping()
    });
    if is_journal && repairer.checker.image.superblock.journal_inode().is_none() {
        let journal = Some(InodeNumber::JOURNAL);
        return repairer.edit_superblock(|superblock| superblock.set_journal_inode(journal));
    }
    move_away(repairer)
}

/// Makes the image one without a journal.
pub(super) fn give_up(repairer: &mut Repairer<'_, '_>) -> Result<Done, Error> {
    let repaired = change_features(repairer, |features| {
        features.compat.remove(Compat::HAS_JOURNAL);
        features.incompat.remove(Incompat::RECOVER);
    })?;
    if repaired.is_none() {
        return Ok(None);
    }
    repairer.edit_superblock(|superblock| {
        superblock.set_journal_inode(None);
        superblock.set_journal_backup(None);
    })?;
    repairer.clear_inode(InodeNumber::JOURNAL)?;
    Ok(Some("the journal was given up"))
}

/// How long a journal is that nothing else is known of.
const fn usual_journal_blocks(image_blocks: u64) -> u32 {
    match image_blocks {
        0..32_768 => 1024,
        32_768..262_144 => 4096,
        262_144..524_288 => 8192,
        524_288..4_194_304 => 16_384,
        _ => 32_768,
    }
}

/// Linux refuses a shorter journal.
const JOURNAL_BLOCKS_MIN: u32 = 1024;

impl Repairer<'_, '_> {
    /// The journal's extents up to its first hole, at least one, and how many blocks it has there.
    fn journal_blocks(&self) -> Result<Option<(Vec<Extent>, u32)>, Error> {
        let Some(number) = self.checker.image.superblock.journal_inode() else { return Ok(None) };
        let Some((inode, _)) = self.checker.image.inode(number)? else { return Ok(None) };
        if !inode.is_regular() || !inode.has_block_mapping() {
            return Ok(None);
        }
        let mut extents = crate::mapping::extents_of(&self.checker.image, &inode)?;
        let mut end = 0;
        let mut goes_on = |extent: &Extent| {
            let follows = extent.logical.as_u64() == end;
            end = extent.logical_end();
            follows
        };
        extents.truncate(extents.iter().take_while(|extent| goes_on(extent)).count());
        let end = extents.last().map_or(0, Extent::logical_end);
        let layout = self.checker.image.layout;
        let blocks = end.min(inode.size_bytes >> layout.log_block_size());
        Ok((blocks > 0).then_some((extents, blocks.min(u64::from(u32::MAX)) as u32)))
    }

    /// Gives the journal's inode what the superblock has kept of it; whether that is something else.
    fn restore_journal_inode(&mut self) -> Result<bool, Error> {
        let number = InodeNumber::JOURNAL;
        let Some(backup) = self.checker.image.superblock.journal_backup() else { return Ok(false) };
        let Some((old, _)) = self.checker.image.inode(number)? else { return Ok(false) };
        let place = NodePlace::root(number);
        let has_extents = ExtentNode::reopen(&backup.block_area, place).is_ok();
        let is_same = old.flags.contains(InodeFlags::EXTENTS) == has_extents
            && old.block_area == backup.block_area
            && old.size_bytes == backup.size_bytes
            && old.links_count == 1
            && old.is_regular();
        if is_same && self.checker.image.superblock.journal_inode() == Some(number) {
            return Ok(false);
        }
        let repaired = self.edit_fields(number, |inode| {
            inode.mode = ModeFileType::Regular.mode_bits() | 0o600;
            inode.links_count = 1;
            inode.deletion_time = 0;
            inode.size_bytes = backup.size_bytes;
            inode.block_area = backup.block_area;
            inode.flags.remove(InodeFlags::INLINE_DATA);
            inode.flags.set(InodeFlags::EXTENTS, has_extents);
        })?;
        self.edit_superblock(|superblock| superblock.set_journal_inode(Some(number)))?;
        Ok(repaired.is_some())
    }

    /// Changes the journal's superblock, if there is one.
    fn edit_journal(&mut self, change: impl FnOnce(&mut jbd2::Superblock)) -> Result<Done, Error> {
        let Some((extents, _)) = self.journal_blocks()? else { return Ok(None) };
        if !self.is_alone(extents[0].physical) {
            return Ok(None);
        }
        let place = extents[0].physical.get() << self.checker.image.layout.log_block_size();
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
        let mut block = jbd2::format_journal_superblock(&jbd2::NewJournal {
            block_size_bytes: self.checker.image.layout.block_size() as u32,
            length_blocks,
            first_block: 1,
            uuid: self.checker.image.superblock.uuid(),
            users: Vec::new(),
            user_count: 1,
            incompat: jbd2::IncompatFeatures::empty(),
            fast_commit_blocks: 0,
        });
        // Far from the numbers that an older log in the same blocks is likely to have.
        if let Ok(mut superblock) = jbd2::Superblock::check(&block) {
            superblock.set_log(None, self.now);
            block[..jbd2::SUPERBLOCK_BYTES].copy_from_slice(&superblock.to_bytes());
        }
        Some(block)
    }

    /// Zeroes blocks of a journal that is made: what they held before must never be taken for a transaction of its
    /// log.
    fn zero_journal(&self, extents: &[Extent]) -> Result<(), Error> {
        let shift = self.checker.image.layout.log_block_size();
        for extent in extents {
            let length = u64::from(extent.length) << shift;
            self.device().zero_range(extent.physical.get() << shift, length)?;
        }
        Ok(())
    }

    /// Makes an empty journal in free blocks, as long as the old one should have been.
    fn make_journal(&mut self) -> Result<Done, Error> {
        let layout = self.checker.image.layout;
        let number = InodeNumber::JOURNAL;
        let stored = self.checker.image.superblock.journal_backup();
        let stored = stored.map_or(0, |backup| backup.size_bytes >> layout.log_block_size());
        let usual = usual_journal_blocks(layout.blocks_count());
        let is_usual = (u64::from(JOURNAL_BLOCKS_MIN)..=u64::from(usual) * 2).contains(&stored);
        let length = if is_usual { stored as u32 } else { usual };
        let Some(superblock) = self.new_journal(length) else { return Ok(None) };
        let mut extents: Vec<Extent> = Vec::new();
        for logical in (0..length).map(LogicalBlock::new) {
            let Some(physical) = self.allocate_for(&extents, logical)? else { return Ok(None) };
            Extent::of_block(logical, physical).append_to(&mut extents);
        }
        let Some(first) = extents.first().map(|first| first.physical) else { return Ok(None) };
        let has_extents = layout.features().incompat.contains(Incompat::EXTENTS);
        let size_bytes = u64::from(length) << layout.log_block_size();
        let now = InodeTimestamp::from_seconds(i64::from(self.now));
        let mode = ModeFileType::Regular.mode_bits() | 0o600;
        let mut inode = Inode::new(number, mode, now, &layout);
        inode.links_count = 1;
        inode.size_bytes = size_bytes;
        inode.flags.set(InodeFlags::EXTENTS, has_extents);
        self.zero_journal(&extents)?;
        let area = map_writer::write(self, &inode, extents, Vec::new())?;
        let Some(area) = area else { return Ok(None) };
        inode.block_area = area;
        self.write_block(first, &superblock)?;
        let mut encoded = vec![0; layout.inode_size()];
        if inode.encode_into(&mut encoded, &layout).is_err() {
            return Ok(None);
        }
        self.edit_inode(number, |bytes| bytes.copy_from_slice(&encoded))?;
        self.edit_superblock(|superblock| {
            superblock.set_journal_inode(Some(number));
            superblock.set_journal_uuid([0; 16]);
            superblock.set_journal_backup(Some(&JournalBackup { block_area: area, size_bytes }));
            superblock.set_needs_recovery(false);
        })?;
        Ok(Some("the journal was made anew"))
    }

    /// Whether the inode that the superblock names as the journal's is one: a damaged superblock may name any file.
    fn is_journal_known(&self) -> Result<bool, Error> {
        let image = &self.checker.image;
        let Some(number) = image.superblock.journal_inode() else { return Ok(false) };
        let Some((inode, _)) = image.inode(number)? else { return Ok(false) };
        let backup = image.superblock.journal_backup();
        let is_backed_up = backup.is_some_and(|backup| backup.block_area == inode.block_area);
        Ok(number == InodeNumber::JOURNAL || is_backed_up)
    }

    /// Writes an empty journal over the blocks that the journal's inode has.
    fn format_journal(&mut self) -> Result<Done, Error> {
        if !self.is_journal_known()? {
            return Ok(None);
        }
        let Some((extents, blocks)) = self.journal_blocks()? else { return Ok(None) };
        if !extents.iter().all(|extent| self.are_alone(extent.physical, extent.length)) {
            return Ok(None);
        }
        let Some(superblock) = self.new_journal(blocks) else { return Ok(None) };
        self.zero_journal(&extents)?;
        self.write_block(extents[0].physical, &superblock)?;
        self.edit_superblock(|superblock| superblock.set_needs_recovery(false))?;
        Ok(Some("the journal was made anew"))
    }
}
