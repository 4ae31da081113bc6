//! All inodes, group by group: which are in use, and whether their fields hold.

use crate::checker::{Checker, Findings, InodePass, KeptInodes};
use crate::image::{Error, Image, TABLE_READ_BYTES};
use crate::inode_runs::InodeRun;
use crate::issue::{GroupIssue, InodeIssue, Issue};
use crate::report::{Pass, Reporter};
use crate::{inode_content, parallel, xattrs};
use drystone_ext4_format::GroupNumber;
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::checksum::Checksums;
use drystone_ext4_format::dir::EntryType;
use drystone_ext4_format::group::GroupFlags;
use drystone_ext4_format::inode::{Inode, InodeFlags};
use drystone_ext4_format::layout::Layout;
use drystone_sync::Arc;
use drystone_sync::atomic::{AtomicU32, Ordering};

/// Reads of a piece, which one thread examines. There are fewer where threads would have few pieces.
const READS_MAX: u64 = 8;
const PIECES_PER_THREAD: u64 = 8;

/// Pieces whose findings may be thrown away, as only damaged images make it necessary. The others are then examined
/// by one thread.
const DISCARDED_MAX: u32 = 16;

/// Some of the inodes of a group.
struct Piece {
    group: GroupNumber,
    first: u32,
    count: u32,
    /// Groups that are done with it.
    groups_done: u32,
}

impl Piece {
    fn run(&self, layout: &Layout) -> InodeRun {
        let before = self.group.get() * layout.inodes_per_group() + self.first;
        InodeRun { first: before + 1, last: before + self.count }
    }

    /// Whether what was found follows from the inodes and the blocks that they claim: not what reserved inodes are
    /// compared with, nor values in inodes of their own.
    fn can_be_kept(&self, found: &Findings) -> bool {
        (self.group, self.first) != (GroupNumber::FIRST, 0) && found.attributes.values.is_empty()
    }
}

/// Scans all inode tables.
pub(crate) fn scan(checker: &mut Checker<'_>) -> Result<(), Error> {
    let layout = checker.image.layout;
    let group_count = checker.group_count();
    let Checker { image, reporter, states, orphans, found, threads, kept, .. } = checker;
    let (image, states, orphans) = (&*image, &*states, &*orphans);
    let pieces = pieces(image, *threads);
    if let Some(kept) = kept {
        let runs: Vec<InodeRun> = pieces.iter().map(|piece| piece.run(&layout)).collect();
        kept.drop_changed(image, orphans, states, &found.claims, &runs);
        states.keep_only(&kept.runs());
    }
    // The reserved inodes are in use whatever they hold; the root decides for itself.
    for number in 1..layout.first_inode().get() {
        let inode = InodeNumber::new(number);
        if inode != InodeNumber::ROOT && !states.is_used(inode) {
            states.set_used(inode, EntryType::Unknown, 0, false);
        }
    }
    let reused: Option<Vec<bool>> = kept
        .as_ref()
        .map(|kept| pieces.iter().map(|piece| kept.inodes(piece.run(&layout)).is_some()).collect());
    let is_reused = |index: usize| reused.as_ref().is_some_and(|reused| reused[index]);
    let is_apart = *threads > 1 || kept.is_some();
    let (empty, now_seconds) = (found.part(&layout), reporter.now_seconds);
    let discarded = AtomicU32::new(0);
    let work = |index: usize| {
        if !is_apart || discarded.load(Ordering::Relaxed) >= DISCARDED_MAX {
            return None;
        }
        let (mut reporter, mut part) = (Reporter::of_part(now_seconds), empty.part(&layout));
        let (reporter_now, found) = (&mut reporter, &mut part);
        let mut pass = InodePass { image, orphans, states, reporter: reporter_now, found };
        let is_whole = scan_piece(&mut pass, &pieces[index], Findings::exceed_part).ok()?;
        Some((reporter.into_part()?, part)).filter(|_| is_whole)
    };
    parallel::in_order_unless(pieces.len(), *threads, is_reused, work, |index, part| {
        let piece = &pieces[index];
        let run = piece.run(&layout);
        let before = kept.as_ref().and_then(|kept| kept.inodes(run));
        match (part, before) {
            (None, Some(kept)) if !found.would_change(&kept.found) => {
                reporter.add_inodes(&kept.summary);
                found.add_part(&kept.found);
            }
            (Some(Some((report, mut part))), _) if !found.would_change(&part) => {
                found.add_part(&part);
                // Only an examination asks for the fixed metadata, which a kept part would hold in memory.
                part.claims.fixed = Arc::default();
                let summary = reporter.add_part(report);
                if let Some((kept, summary)) = kept.as_mut().zip(summary)
                    && piece.can_be_kept(&part)
                {
                    kept.keep_inodes(KeptInodes { run, found: part, summary });
                }
            }
            // Here it is examined with all that was found before, and reported one by one.
            (part, _) => {
                if part.is_some() {
                    discarded.fetch_add(1, Ordering::Relaxed);
                }
                let (reporter, found) = (&mut *reporter, &mut *found);
                let mut pass = InodePass { image, orphans, states, reporter, found };
                scan_piece(&mut pass, piece, |_| false)?;
                if let Some(kept) = kept {
                    kept.drop_inodes(run);
                }
            }
        }
        found.check_memory()?;
        reporter.step(Pass::Inodes, u64::from(pieces[index].groups_done), group_count);
        Ok::<(), Error>(())
    })?;
    reporter.step(Pass::Inodes, group_count, group_count);
    xattrs::claim_blocks(found);
    found.check_memory()?;
    // One that is in use was looked at.
    if !states.is_used(InodeNumber::ROOT) {
        let issue = InodeIssue::RootNotDirectory;
        reporter.report(Issue::Inode { inode: InodeNumber::ROOT, issue });
    }
    Ok(())
}

/// The inodes that may be in use, in order.
fn pieces(image: &Image<'_>, threads: usize) -> Vec<Piece> {
    let layout = image.layout;
    let inodes: u64 = layout.groups().map(|group| u64::from(image.initialised_inodes(group))).sum();
    let inode_size = layout.inode_size() as u64;
    let per_read = TABLE_READ_BYTES as u64 / inode_size;
    let reads = inodes / per_read / (threads as u64 * PIECES_PER_THREAD);
    let per_piece = (reads.clamp(1, READS_MAX) * per_read) as u32;
    let mut pieces = Vec::new();
    for group in layout.groups() {
        let initialised = image.initialised_inodes(group);
        for first in (0..initialised).step_by(per_piece as usize) {
            let count = per_piece.min(initialised - first);
            let is_last = first + count == initialised;
            let groups_done = group.get() + u32::from(is_last);
            pieces.push(Piece { group, first, count, groups_done });
        }
    }
    pieces
}

/// Examines a piece until `has_enough`; whether it came to the end.
fn scan_piece(
    pass: &mut InodePass<'_, '_>,
    piece: &Piece,
    has_enough: impl Fn(&Findings) -> bool,
) -> Result<bool, Error> {
    let layout = pass.image.layout;
    let inode_size = layout.inode_size();
    let table = pass.image.groups[piece.group.index()].descriptor.inode_table;
    let start = table.get() << layout.log_block_size();
    let per_read = (TABLE_READ_BYTES / inode_size) as u32;
    let mut buffer = vec![0; TABLE_READ_BYTES];
    let end = piece.first + piece.count;
    for first in (piece.first..end).step_by(per_read as usize) {
        let bytes = &mut buffer[..per_read.min(end - first) as usize * inode_size];
        pass.image.device.read_at(start + u64::from(first) * inode_size as u64, bytes)?;
        for (bit, bytes) in (first..).zip(bytes.chunks_exact(inode_size)) {
            if let Some(inode) = layout.inode_of_bit(piece.group, bit) {
                check_one(pass, inode, bytes)?;
            }
            if has_enough(pass.found) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn check_one(pass: &mut InodePass<'_, '_>, number: InodeNumber, bytes: &[u8]) -> Result<(), Error> {
    let layout = pass.image.layout;
    let is_reserved = number < layout.first_inode() && number != InodeNumber::ROOT;
    // Most inodes of most images are free and were never used.
    if bytes.iter().all(|&byte| byte == 0) {
        return Ok(());
    }
    if let Err(corrupt) = Inode::check_checksum(bytes, number, &layout) {
        pass.reporter.report(corrupt);
    }
    let (inode, problem) = match Inode::read(bytes, number, &layout) {
        Ok(inode) => (inode, None),
        Err(problem) => match pass.image.parse_inode(bytes, number) {
            Ok(inode) => (inode, Some(problem)),
            Err(_) => return Ok(()),
        },
    };
    // Where an orphan list was, the time of deletion is the number of the next inode.
    let was_listed = (1..=layout.inodes_count()).contains(&inode.deletion_time);
    let is_free = inode.links_count == 0 && !is_reserved;
    if was_listed && (is_free || is_reserved) && !pass.orphans.contains(number) {
        let issue = InodeIssue::DeletionTime { seconds: inode.deletion_time };
        pass.reporter.report(Issue::Inode { inode: number, issue });
    }
    if is_free && !pass.orphans.contains(number) {
        if inode.mode != 0 && inode.deletion_time == 0 {
            pass.reporter.report(Issue::Inode { inode: number, issue: InodeIssue::NotDeleted });
        }
        return Ok(());
    }
    if let Some(problem) = problem {
        pass.reporter.report(problem);
    }
    let kind = EntryType::from_mode(inode.mode);
    let holds_value = inode.flags.contains(InodeFlags::EA_INODE);
    pass.states.set_used(number, kind, inode.links_count, holds_value);
    if inode.flags.contains(InodeFlags::IMAGIC) {
        pass.states.set_nameless(number);
    }
    inode_content::check(pass, &inode, bytes)
}

/// Reports inodes in use where the descriptor says that there are none: only the reserved ones are in use whatever
/// it says.
pub(crate) fn check_unused(checker: &mut Checker<'_>) {
    let layout = checker.image.layout;
    let holds_reserved = |group: &GroupNumber| {
        layout.inode_of_bit(*group, 0).is_some_and(|first| first < layout.first_inode())
    };
    if layout.checksums() == Checksums::None {
        return;
    }
    for group in layout.groups().take_while(holds_reserved) {
        let state = &checker.image.groups[group.index()];
        let unused = state.descriptor.unused_inodes_count.min(layout.inodes_per_group());
        let flagged = state.flags.contains(GroupFlags::INODE_UNINIT);
        let boundary = layout.inodes_per_group() - unused;
        let Some(last) = checker.states.used_in(group).last() else { continue };
        let bit = layout.bit_of_inode(last).map_or(0, |(_, bit)| bit);
        if flagged {
            let issue = GroupIssue::InodeInUninitialised { inode: last };
            checker.reporter.report(Issue::Group { group, issue });
        } else if bit >= boundary {
            let issue = GroupIssue::InodeAmongUnused { inode: last, unused };
            checker.reporter.report(Issue::Group { group, issue });
        }
    }
}
