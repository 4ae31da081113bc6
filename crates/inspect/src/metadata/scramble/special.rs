//! The file system's own files: the journal, the orphan file, quota files, and the block of multi-mount protection.

use super::fields::get;
use super::key::Purpose;
use super::records::count_nonzero;
use super::{Scrambler, Seeds};
use drystone_ext4_format::ids::QuotaKind;
use drystone_ext4_format::mmp::{self, RawMmp};
use drystone_ext4_format::orphan_file::{self, OrphanBlock, OrphanPlace, RawOrphanTail};
use drystone_ext4_format::quota::{
    BLOCK_LENGTH, RawDataBlockHeader, RawQuotaEntry, RawQuotaHeader, RawQuotaInfo, VERSION,
};
use drystone_ext4_format::{InodeNumber, PhysicalBlock};
use drystone_jbd2_format::{self as jbd2, RawSuperblock as RawJournalSuperblock};
use zerocopy::{FromBytes, IntoBytes};

/// A number that no transaction of a replayed log has had: how far the next one is after the first.
const SEQUENCE_DISTANCE: u32 = 1 << 20;

/// The high byte of a number of an entry in a quota file: text has something there.
const QUOTA_NUMBER_BITS: u32 = 56;

impl Scrambler<'_, '_> {
    /// Rewrites the first block of the journal. The log isn't copied: whatever it holds may be private. If it was replayed,
    /// it is empty; otherwise it begins where it did, but has no transaction.
    pub(super) fn journal_superblock(&self, bytes: &mut [u8]) {
        let old = bytes.to_vec();
        bytes.fill(0);
        let raw = RawJournalSuperblock::read_from_prefix(&old).map(|(raw, _)| raw);
        // With a wrong checksum, all but the checksum may be right.
        let mut sealed = old.clone();
        jbd2::seal_superblock(&mut sealed);
        let (true, Ok(mut raw)) = (jbd2::Superblock::check(&sealed).is_ok(), raw) else {
            self.add_unclear(count_nonzero(&old));
            return;
        };
        let is_right = jbd2::Superblock::check(&old).is_ok();
        if self.is_replayed {
            raw.s_start = 0.into();
            raw.s_sequence = raw.s_sequence.get().wrapping_add(SEQUENCE_DISTANCE).into();
        }
        let users = raw.s_nr_users.get();
        if users as usize > jbd2::USERS_MAX {
            raw.s_nr_users = (jbd2::USERS_MAX as u32 + 1).into();
        }
        raw.s_uuid = self.uuid(raw.s_uuid);
        raw.s_users = raw.s_users.map(|user| self.uuid(user));
        raw.s_dynsuper = 0.into();
        raw.s_max_transaction = 0.into();
        raw.s_max_trans_data = 0.into();
        raw.s_padding2 = [0; 3];
        raw.s_head = 0.into();
        raw.s_padding = [0.into(); 40];
        raw.s_checksum = 0.into();
        let Some(into) = bytes.get_mut(..size_of::<RawJournalSuperblock>()) else { return };
        into.copy_from_slice(raw.as_bytes());
        jbd2::seal_superblock(into);
        if !is_right && let Ok((raw, _)) = RawJournalSuperblock::mut_from_prefix(into) {
            raw.s_checksum = (!raw.s_checksum.get()).into();
        }
    }

    /// Rewrites a block of the orphan file.
    pub(super) fn orphan_block(
        &self,
        bytes: &mut [u8],
        inode: InodeNumber,
        block: PhysicalBlock,
        seeds: &Seeds,
    ) {
        let has_magic = RawOrphanTail::ref_from_suffix(bytes)
            .is_ok_and(|(_, tail)| tail.magic.get() == orphan_file::MAGIC);
        if !has_magic {
            self.add_unclear(count_nonzero(bytes));
            bytes.fill(0);
            return;
        }
        let place = |checksum| OrphanPlace { inode, block, checksum };
        let is_right = OrphanBlock::verify(bytes, &place(seeds.old)).is_ok();
        for slot in 0..orphan_file::slots_per_block(bytes.len()) {
            let number = InodeNumber::new(u32::MAX);
            if let Some(old) = orphan_file::set_slot(bytes, slot, Some(number)) {
                let is_possible = old <= self.image.layout.inodes_count();
                let kept = if is_possible { InodeNumber::new(old) } else { number };
                orphan_file::set_slot(bytes, slot, Some(kept));
            }
        }
        orphan_file::seal(bytes, &place(seeds.choose(is_right)));
    }

    /// Rewrites the block of multi-mount protection.
    pub(super) fn mmp_block(&self, bytes: &mut [u8], block: PhysicalBlock) {
        let old = bytes.to_vec();
        bytes.fill(0);
        let raw = RawMmp::read_from_prefix(&old).map(|(raw, _)| raw);
        let Some(mut raw) = raw.ok().filter(|raw| raw.magic.get() == mmp::MAGIC) else {
            self.add_unclear(count_nonzero(&old));
            return;
        };
        let checksum = self.image.layout.checksum_seed();
        // All that the check without a checksum finds has nothing to do with it.
        let is_right = mmp::Mmp::check(&old, checksum, block).is_ok()
            || mmp::Mmp::check(&old, None, block).is_err();
        let mut random = self.key.stream(Purpose::Text, block.get() | 1 << 63);
        random.text(&mut raw.node_name, None);
        random.text(&mut raw.device_name, Some(b'/'));
        raw.padding = 0.into();
        raw.unused = [0.into(); 226];
        raw.checksum = 0.into();
        let Some(into) = bytes.get_mut(..size_of::<RawMmp>()) else { return };
        into.copy_from_slice(raw.as_bytes());
        mmp::seal(
            into,
            if is_right { self.new.checksum_seed() } else { self.wrong.checksum_seed() },
        );
    }

    /// Checks a block of a quota file, from its first quota block on, and clears what can't be a part of one.
    pub(super) fn quota_block(&self, bytes: &mut [u8], first: u64, file_blocks: u64) {
        for (number, block) in (first..).zip(bytes.chunks_mut(BLOCK_LENGTH)) {
            let is_possible = match number {
                0 => is_quota_head(block),
                _ => is_quota_tree(block, file_blocks) || is_quota_data(block, file_blocks),
            };
            if is_possible && number == 0 {
                let used = size_of::<RawQuotaHeader>() + size_of::<RawQuotaInfo>();
                block[used..].fill(0);
            } else if !is_possible {
                self.add_unclear(count_nonzero(block));
                block.fill(0);
            }
        }
    }
}

fn is_quota_head(block: &[u8]) -> bool {
    let kinds = [QuotaKind::User, QuotaKind::Group, QuotaKind::Project];
    RawQuotaHeader::ref_from_prefix(block).is_ok_and(|(header, _)| {
        kinds.iter().any(|kind| kind.magic() == header.magic.get())
            && header.version.get() <= VERSION
    })
}

/// Whether it may be references to blocks of the file.
fn is_quota_tree(block: &[u8], file_blocks: u64) -> bool {
    let (references, _) = block.as_chunks();
    references.iter().all(|raw| u64::from(u32::from_le_bytes(*raw)) < file_blocks)
}

/// Whether it may be entries.
fn is_quota_data(block: &[u8], file_blocks: u64) -> bool {
    let Ok((header, entries)) = RawDataBlockHeader::ref_from_prefix(block) else { return false };
    let (entries, rest) =
        entries.split_at(entries.len() / size_of::<RawQuotaEntry>() * size_of::<RawQuotaEntry>());
    let is_entry = |raw: &[u8]| {
        let is_small = |name: &str| get(raw, RawQuotaEntry::FIELDS, name) >> QUOTA_NUMBER_BITS == 0;
        get(raw, RawQuotaEntry::FIELDS, "padding") == 0
            && RawQuotaEntry::FIELDS.iter().all(|field| is_small(field.name))
    };
    u64::from(header.next.get()) < file_blocks
        && u64::from(header.previous.get()) < file_blocks
        && header.padding.get() == 0
        && header.padding2.get() == 0
        && entries.chunks(size_of::<RawQuotaEntry>()).all(is_entry)
        && rest.iter().all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests {
    use super::super::fields::set;
    use super::*;

    #[test]
    fn text_is_no_quota_file() {
        let text = b"whoever reads this shouldn't; ".repeat(40);
        let block = &text[..BLOCK_LENGTH];
        assert!(!is_quota_head(block) && !is_quota_tree(block, 9) && !is_quota_data(block, 9));
        let mut entry = [0; BLOCK_LENGTH];
        let first = size_of::<RawDataBlockHeader>();
        set(&mut entry[first..], RawQuotaEntry::FIELDS, "id", 1000);
        set(&mut entry[first..], RawQuotaEntry::FIELDS, "space", 1 << 40);
        assert!(is_quota_data(&entry, 9) && !is_quota_tree(&entry, 9));
    }
}
