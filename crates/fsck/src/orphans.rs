//! Orphans: inodes that a mount will delete or cut. A list through the inodes, or a file.

use crate::checker::Checker;
use crate::image::Error;
use crate::issue::OrphanIssue;
use crate::mapping;
use drystone_ext4_format::error::OrphanFileProblem;
use drystone_ext4_format::features::{Compat, ReadOnlyCompat};
use drystone_ext4_format::orphan_file::{OrphanBlock, OrphanPlace};
use drystone_ext4_format::{Corrupt, InodeNumber};

/// Reads the list and the file.
pub(crate) fn load(checker: &mut Checker<'_>) -> Result<(), Error> {
    load_list(checker)?;
    load_file(checker)
}

fn load_list(checker: &mut Checker<'_>) -> Result<(), Error> {
    let layout = checker.image.layout;
    let mut next = checker.image.superblock.last_orphan();
    while let Some(number) = next {
        if !layout.contains_inode(number) || number < layout.first_inode() {
            checker.reporter.report(OrphanIssue::NoOrphan { inode: number });
            break;
        }
        if !checker.orphans.inodes.insert(number.get()) {
            checker.reporter.report(OrphanIssue::Twice { inode: number });
            break;
        }
        let Some((inode, _)) = checker.image.inode(number)? else { break };
        if inode.mode == 0 {
            checker.reporter.report(OrphanIssue::NoOrphan { inode: number });
        }
        next = InodeNumber::from_field(inode.deletion_time);
    }
    Ok(())
}

fn load_file(checker: &mut Checker<'_>) -> Result<(), Error> {
    let layout = checker.image.layout;
    let features = layout.features();
    if !features.compat.contains(Compat::ORPHAN_FILE) {
        return Ok(());
    }
    let Some(number) = checker.image.superblock.orphan_file_inode() else { return Ok(()) };
    let is_present = features.read_only_compat.contains(ReadOnlyCompat::ORPHAN_PRESENT);
    let found = if layout.contains_inode(number) { checker.image.inode(number)? } else { None };
    let Some((inode, _)) = found.filter(|(inode, _)| {
        inode.is_regular() && inode.has_block_mapping() && inode.links_count > 0
    }) else {
        checker.reporter.report(OrphanIssue::File { inode: number });
        return Ok(());
    };
    let last = InodeNumber::new(layout.inodes_count());
    let mut is_told = is_present;
    let mut expected = 0;
    for extent in mapping::extents_of(&checker.image, &inode)? {
        if extent.logical.as_u64() != expected {
            break;
        }
        expected = extent.logical_end();
        for offset in 0..u64::from(extent.length) {
            let Some(block) = extent.physical.checked_add(offset) else { break };
            let bytes = checker.image.read_block(block)?;
            let place = OrphanPlace { inode: number, block, checksum: inode.seed(&layout) };
            if let Err(corrupt) = OrphanBlock::verify(&bytes, &place) {
                checker.reporter.report(corrupt);
            }
            // Without checksums there is none.
            let stored = bytes.last_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
            if place.checksum.is_none() && stored != 0 {
                let problem = OrphanFileProblem::Checksum { stored, computed: 0 };
                checker.reporter.report(Corrupt::OrphanFile { inode: number, block, problem });
            }
            let slots = match OrphanBlock::check(&bytes, &place, last) {
                Ok(slots) => slots,
                Err(corrupt) => {
                    checker.reporter.report(corrupt);
                    continue;
                }
            };
            for (_, orphan) in slots.orphans() {
                if !is_told {
                    checker.reporter.report(OrphanIssue::NotEmpty { inode: orphan });
                    is_told = true;
                }
                if orphan < layout.first_inode() {
                    checker.reporter.report(OrphanIssue::NoOrphan { inode: orphan });
                } else if !checker.orphans.inodes.insert(orphan.get()) {
                    checker.reporter.report(OrphanIssue::Twice { inode: orphan });
                }
            }
        }
    }
    let blocks = inode.size_bytes >> layout.log_block_size();
    if expected != blocks || !inode.size_bytes.is_multiple_of(layout.block_size() as u64) {
        checker.reporter.report(OrphanIssue::File { inode: number });
    }
    Ok(())
}

/// Checks that orphans are in use, and whether there should be any.
pub(crate) fn check(checker: &mut Checker<'_>) {
    let count = checker.orphans.inodes.len() as u64;
    for number in std::mem::take(&mut checker.orphans.inodes) {
        let inode = InodeNumber::new(number);
        if !checker.states.is_used(inode) {
            checker.reporter.report(Corrupt::InodeFree { inode });
        }
        checker.orphans.inodes.insert(number);
    }
    checker.reporter.summarize(|summary| summary.orphans = count);
    if count > 0 && checker.counts_settled {
        checker.reporter.report(OrphanIssue::Left { count });
    }
    let features = checker.image.layout.features();
    let is_announced = features.read_only_compat.contains(ReadOnlyCompat::ORPHAN_PRESENT);
    if is_announced && count == 0 && checker.counts_settled {
        checker.reporter.report(OrphanIssue::Announced);
    }
}
