//! All inodes, group by group: which are in use, and whether their fields hold.

use crate::checker::Checker;
use crate::image::Error;
use crate::inode_content;
use crate::issue::{GroupIssue, InodeIssue, Issue};
use crate::report::Pass;
use drystone_ext4_format::GroupNumber;
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::checksum::Checksums;
use drystone_ext4_format::dir::EntryType;
use drystone_ext4_format::group::GroupFlags;
use drystone_ext4_format::inode::{Inode, InodeFlags};

/// Tables are read in pieces of about this size.
const PIECE_BYTES: usize = 256 * 1024;

/// Scans all inode tables.
pub(crate) fn scan(checker: &mut Checker<'_>) -> Result<(), Error> {
    let layout = checker.image.layout;
    // The reserved inodes are in use whatever they hold; the root decides for itself.
    for number in 1..layout.first_inode().get() {
        let inode = InodeNumber::new(number);
        if inode != InodeNumber::ROOT {
            checker.states.set_used(inode, EntryType::Unknown, 0, false);
        }
    }
    for group in layout.groups() {
        scan_group(checker, group)?;
        checker.reporter.step(Pass::Inodes, u64::from(group.get()) + 1, checker.group_count());
    }
    // One that is in use was looked at.
    if !checker.states.is_used(InodeNumber::ROOT) {
        let issue = InodeIssue::RootNotDirectory;
        checker.reporter.report(Issue::Inode { inode: InodeNumber::ROOT, issue });
    }
    Ok(())
}

fn scan_group(checker: &mut Checker<'_>, group: GroupNumber) -> Result<(), Error> {
    let layout = checker.image.layout;
    let state = &checker.groups[group.index()];
    if !state.has_inode_table || state.flags.contains(GroupFlags::INODE_UNINIT) {
        return Ok(());
    }
    let counts_unused = layout.checksums() != Checksums::None;
    let unused = if counts_unused { state.descriptor.unused_inodes_count } else { 0 };
    let initialised = layout.inodes_per_group().saturating_sub(unused);
    let table = state.descriptor.inode_table;
    let inode_size = layout.inode_size();
    let per_piece = (PIECE_BYTES.max(layout.block_size()) / inode_size) as u32;
    let mut buffer = vec![0; per_piece as usize * inode_size];
    let mut first = 0;
    while first < initialised {
        let count = per_piece.min(initialised - first);
        let bytes = &mut buffer[..count as usize * inode_size];
        let start = table.get() << layout.log_block_size();
        checker.image.device.read_at(start + u64::from(first) * inode_size as u64, bytes)?;
        for (bit, bytes) in (first..).zip(bytes.chunks_exact(inode_size)) {
            if let Some(inode) = layout.inode_of_bit(group, bit) {
                check_one(checker, inode, bytes)?;
            }
        }
        first += count;
    }
    Ok(())
}

fn check_one(checker: &mut Checker<'_>, number: InodeNumber, bytes: &[u8]) -> Result<(), Error> {
    let layout = checker.image.layout;
    let is_reserved = number < layout.first_inode() && number != InodeNumber::ROOT;
    // Most inodes of most images are free and were never used.
    if bytes.iter().all(|&byte| byte == 0) {
        return Ok(());
    }
    if let Err(corrupt) = Inode::check_checksum(bytes, number, &layout) {
        checker.reporter.report(corrupt);
    }
    let Ok(inode) = checker.image.parse_inode(bytes, number) else { return Ok(()) };
    // Where an orphan list was, the time of deletion is the number of the next inode.
    let was_listed = (1..=layout.inodes_count()).contains(&inode.deletion_time);
    let is_free = inode.links_count == 0 && !is_reserved;
    if was_listed && (is_free || is_reserved) && !checker.orphans.contains(number) {
        let issue = InodeIssue::DeletionTime { seconds: inode.deletion_time };
        checker.reporter.report(Issue::Inode { inode: number, issue });
    }
    if is_free && !checker.orphans.contains(number) {
        if inode.mode != 0 && inode.deletion_time == 0 {
            checker.reporter.report(Issue::Inode { inode: number, issue: InodeIssue::NotDeleted });
        }
        return Ok(());
    }
    if let Err(corrupt) = Inode::read(bytes, number, &layout) {
        checker.reporter.report(corrupt);
    }
    let kind = EntryType::from_mode(inode.mode);
    let holds_value = inode.flags.contains(InodeFlags::EA_INODE);
    checker.states.set_used(number, kind, inode.links_count, holds_value);
    if inode.flags.contains(InodeFlags::IMAGIC) {
        checker.states.set_nameless(number);
    }
    inode_content::check(checker, &inode, bytes)
}

/// Reports inodes in use where the descriptor says that there are none.
pub(crate) fn check_unused(checker: &mut Checker<'_>, group: GroupNumber) {
    let layout = checker.image.layout;
    if layout.checksums() == Checksums::None {
        return;
    }
    let state = &checker.groups[group.index()];
    let unused = state.descriptor.unused_inodes_count.min(layout.inodes_per_group());
    let flagged = state.flags.contains(GroupFlags::INODE_UNINIT);
    let boundary = layout.inodes_per_group() - unused;
    let Some(last) = checker.states.used_in(group).last() else { return };
    let bit = layout.bit_of_inode(last).map_or(0, |(_, bit)| bit);
    if flagged {
        let issue = GroupIssue::InodeInUninitialised { inode: last };
        checker.reporter.report(Issue::Group { group, issue });
    } else if bit >= boundary {
        let issue = GroupIssue::InodeAmongUnused { inode: last, unused };
        checker.reporter.report(Issue::Group { group, issue });
    }
}
