//! Makes and removes the file system's own files: journal, orphan file, quota files.

use crate::error::{Refusal, Result};
use crate::image::Image;
use crate::moves::Moves;
use crate::rewrite::{InodeNumbers, Rewriter};
use drystone_ext4_format::features::ReadOnlyCompat;
use drystone_ext4_format::inode::{Inode, InodeFlags, InodeTimestamp};
use drystone_ext4_format::orphan_file::{self, OrphanPlace};
use drystone_ext4_format::quota::{QuotaEntry, QuotaKind, build};
use drystone_ext4_format::superblock::JournalBackup;
use drystone_ext4_format::{GroupNumber, InodeNumber, PhysicalBlock};
use drystone_jbd2_format::{IncompatFeatures, NewJournal, format_journal_superblock};
use drystone_mkfs::{
    JOURNAL_BLOCKS_MAX, JOURNAL_BLOCKS_MIN, default_journal_blocks, fast_commit_blocks,
    with_fast_commits,
};
use drystone_ondisk::bitmap;
use std::collections::BTreeMap;
use std::ops::Range;

const FILE_MODE: u16 = 0o100_600;
/// Shorter holes are taken only if no longer ones are left.
const HOLE_CLUSTERS: usize = 256;
/// Bytes that are zeroed at once.
const ZERO_BYTES: u64 = 1 << 20;

/// Frees a file of the file system's own, with its inode.
fn free_file(image: &mut Image<'_>, number: InodeNumber) -> Result<()> {
    let (inode, bytes) = image.read_inode(number)?;
    let (moves, numbers) = (Moves::default(), InodeNumbers::default());
    let layout = image.layout;
    let blocks = Rewriter::new(image, layout, &moves, &numbers).all_blocks(&inode)?;
    for run in blocks {
        image.mark(run, false)?;
    }
    image.write_inode_bytes(number, &vec![0; bytes.len()])?;
    if number >= layout.first_inode() {
        let (group, bit) = layout.bit_of_inode(number)?;
        bitmap::clear(image.inode_bitmap(group)?, bit as usize);
    }
    Ok(())
}

/// Takes blocks from the group `goal` on, in few pieces.
fn take_runs(
    image: &mut Image<'_>,
    goal: u32,
    count: u64,
    what: &'static str,
) -> Result<Vec<Range<u64>>> {
    let layout = image.layout;
    let mut left = layout.clusters_for(count) as usize;
    let mut runs: Vec<Range<u64>> = Vec::new();
    for hole_min in [HOLE_CLUSTERS, 1] {
        for step in 0..layout.group_count() {
            let group = GroupNumber::new((goal + step) % layout.group_count());
            let end = layout.group_cluster_count(group) as usize;
            let bits = image.block_bitmap(group)?;
            let holes: Vec<_> = bitmap::zero_runs(bits, 0..end).collect();
            for hole in holes {
                if left == 0 || hole.len() < hole_min.min(left) {
                    continue;
                }
                let taken = hole.len().min(left);
                bitmap::set_range(bits, hole.start..hole.start + taken);
                left -= taken;
                let start = layout.block_of_bit(group, hole.start as u32).get();
                let blocks = (taken as u64) << layout.log_cluster_ratio();
                runs.push(start..(start + blocks).min(layout.blocks_count()));
            }
        }
    }
    if left > 0 {
        return Err(Refusal::NoSpace { what }.into());
    }
    // With clusters there may be more than was asked for.
    let mut rest = count;
    for run in &mut runs {
        run.end = run.end.min(run.start + rest);
        rest -= run.end - run.start;
    }
    Ok(runs)
}

/// Makes an inode that maps these blocks.
fn make_file(
    image: &mut Image<'_>,
    number: InodeNumber,
    runs: &[Range<u64>],
    size_bytes: u64,
    flags: InodeFlags,
    now: u64,
) -> Result<Inode> {
    let layout = image.layout;
    // Times of inodes are signed.
    let time = InodeTimestamp::from_seconds(now as i64);
    let mut inode = Inode::new(number, FILE_MODE, time, &layout);
    inode.size_bytes = size_bytes;
    inode.flags |= flags;
    let (moves, numbers) = (Moves::default(), InodeNumbers::default());
    Rewriter::new(image, layout, &moves, &numbers).map_runs(&mut inode, runs)?;
    image.write_inode(&inode, &mut vec![0; layout.inode_size()])?;
    Ok(inode)
}

pub(super) fn free_journal(image: &mut Image<'_>) -> Result<()> {
    if let Some(number) = image.superblock.journal_inode() {
        free_file(image, number)?;
    }
    image.superblock.set_journal_inode(None);
    image.superblock.set_journal_backup(None);
    Ok(())
}

pub(super) fn make_journal(image: &mut Image<'_>, bytes: Option<u64>, now: u64) -> Result<()> {
    let layout = image.layout;
    let blocks = layout.blocks_count();
    let length = match bytes {
        Some(bytes) => bytes >> layout.log_block_size(),
        None => default_journal_blocks(blocks),
    };
    let most = JOURNAL_BLOCKS_MAX.min(blocks / 2);
    if !(JOURNAL_BLOCKS_MIN..=most).contains(&length) {
        let problem =
            format!("a journal of {length} blocks: it takes {JOURNAL_BLOCKS_MIN} to {most}");
        return Err(Refusal::Value(problem).into());
    }
    let features = image.superblock.features();
    // Bounded above.
    let length = with_fast_commits(features, length as u32);
    // The middle of the device is the nearest to everything.
    let runs = take_runs(image, layout.group_count() / 2, u64::from(length), "the journal")?;
    for run in &runs {
        zero(image, run)?;
    }
    let size = u64::from(length) << layout.log_block_size();
    let inode = make_file(image, InodeNumber::JOURNAL, &runs, size, InodeFlags::empty(), now)?;
    let journal = NewJournal {
        block_size_bytes: layout.block_size() as u32,
        length_blocks: length,
        first_block: 1,
        uuid: image.superblock.uuid(),
        users: Vec::new(),
        user_count: 1,
        incompat: IncompatFeatures::empty(),
        fast_commit_blocks: fast_commit_blocks(features, length),
    };
    let first = runs.first().map_or(0, |run| run.start);
    image.write_block(PhysicalBlock::new(first), &format_journal_superblock(&journal))?;
    image.superblock.set_journal_inode(Some(inode.number));
    image.superblock.set_journal_backup(Some(&JournalBackup {
        block_area: inode.block_area,
        size_bytes: inode.size_bytes,
    }));
    Ok(())
}

/// Zeroes blocks that were free: recovery would take what an older journal has left there for its own.
fn zero(image: &Image<'_>, run: &Range<u64>) -> Result<()> {
    let shift = image.layout.log_block_size();
    let (mut at, end) = (run.start << shift, run.end << shift);
    let zeros = vec![0; ZERO_BYTES as usize];
    let mut bytes = zeros.clone();
    while at < end {
        let length = ZERO_BYTES.min(end - at) as usize;
        image.device.read_at(at, &mut bytes[..length])?;
        // Holes in a file stay holes.
        if bytes[..length] != zeros[..length] {
            image.device.write_at(at, &zeros[..length])?;
        }
        at += length as u64;
    }
    Ok(())
}

pub(super) fn free_orphan_file(image: &mut Image<'_>) -> Result<()> {
    if let Some(number) = image.superblock.orphan_file_inode() {
        free_file(image, number)?;
    }
    image.superblock.set_orphan_file_inode(None);
    Ok(())
}

fn new_inode(image: &mut Image<'_>) -> Result<InodeNumber> {
    for group in image.layout.groups() {
        if let Some(number) = image.take_inode(group)? {
            return Ok(number);
        }
    }
    Err(Refusal::NoSpace { what: "an inode" }.into())
}

pub(super) fn make_orphan_file(image: &mut Image<'_>, now: u64) -> Result<()> {
    let layout = image.layout;
    let number = new_inode(image)?;
    let length = u64::from(orphan_file::default_length(layout.blocks_count()));
    let runs = take_runs(image, 0, length, "the orphan file")?;
    let size = length << layout.log_block_size();
    let inode = make_file(image, number, &runs, size, InodeFlags::empty(), now)?;
    for block in runs.into_iter().flatten().map(PhysicalBlock::new) {
        let mut bytes = vec![0; layout.block_size()];
        orphan_file::init(&mut bytes);
        let place = OrphanPlace { inode: number, block, checksum: inode.seed(&layout) };
        orphan_file::seal(&mut bytes, &place);
        image.write_block(block, &bytes)?;
    }
    image.superblock.set_orphan_file_inode(Some(number));
    Ok(())
}

/// Frees the file of projects, or of all kinds.
pub(super) fn free_quota_files(image: &mut Image<'_>, is_all: bool) -> Result<()> {
    let features = image.superblock.features().read_only_compat;
    if !features.contains(ReadOnlyCompat::QUOTA) {
        return Ok(());
    }
    if let Some(number) = image.superblock.project_quota_inode() {
        free_file(image, number)?;
        image.superblock.set_project_quota_inode(None);
    }
    if is_all {
        for number in [image.superblock.user_quota_inode(), image.superblock.group_quota_inode()]
            .into_iter()
            .flatten()
        {
            free_file(image, number)?;
        }
        image.superblock.set_user_quota_inode(None);
        image.superblock.set_group_quota_inode(None);
    }
    Ok(())
}

/// Makes the quota files that are missing, with what everybody uses.
pub(super) fn make_quota_files(image: &mut Image<'_>, now: u64) -> Result<()> {
    let superblock = &image.superblock;
    let has_projects = superblock.features().read_only_compat.contains(ReadOnlyCompat::PROJECT);
    let mut kinds = Vec::new();
    if superblock.user_quota_inode().is_none() && superblock.group_quota_inode().is_none() {
        kinds.push((QuotaKind::User, Some(InodeNumber::USER_QUOTA)));
        kinds.push((QuotaKind::Group, Some(InodeNumber::GROUP_QUOTA)));
    }
    if has_projects && superblock.project_quota_inode().is_none() {
        kinds.push((QuotaKind::Project, None));
    }
    if kinds.is_empty() {
        return Ok(());
    }
    let usage = usage(image)?;
    for (kind, number) in kinds {
        let entries = usage.iter().filter(|((of, _), _)| *of == kind_index(kind)).map(
            |(&(_, id), &(space_bytes, inodes))| QuotaEntry {
                id,
                space_bytes,
                inodes,
                ..QuotaEntry::default()
            },
        );
        let content = build(kind, entries);
        let number = match number {
            Some(number) => number,
            None => new_inode(image)?,
        };
        let size = image.layout.block_size();
        let runs = take_runs(image, 0, content.len().div_ceil(size) as u64, "quota files")?;
        make_file(image, number, &runs, content.len() as u64, InodeFlags::IMMUTABLE, now)?;
        for (block, piece) in runs.into_iter().flatten().zip(content.chunks(size)) {
            let mut bytes = piece.to_vec();
            bytes.resize(size, 0);
            image.write_block(PhysicalBlock::new(block), &bytes)?;
        }
        match kind {
            QuotaKind::User => image.superblock.set_user_quota_inode(Some(number)),
            QuotaKind::Group => image.superblock.set_group_quota_inode(Some(number)),
            QuotaKind::Project => image.superblock.set_project_quota_inode(Some(number)),
        }
    }
    Ok(())
}

/// Bytes and inodes that everybody uses, by kind and number.
type Usage = BTreeMap<(u8, u32), (u64, u64)>;

fn kind_index(kind: QuotaKind) -> u8 {
    match kind {
        QuotaKind::User => 0,
        QuotaKind::Group => 1,
        QuotaKind::Project => 2,
    }
}

fn usage(image: &mut Image<'_>) -> Result<Usage> {
    let mut usage = Usage::new();
    let superblock = &image.superblock;
    let hidden = [superblock.project_quota_inode(), superblock.orphan_file_inode()];
    for group in image.layout.groups() {
        for number in image.used_inodes(group)? {
            let is_own = number < image.layout.first_inode() && number != InodeNumber::ROOT;
            if is_own || hidden.contains(&Some(number)) {
                continue;
            }
            let (inode, _) = image.read_inode(number)?;
            let ids = [inode.user, inode.group, inode.project.unwrap_or(0)];
            for (kind, id) in (0..).zip(ids) {
                let used = usage.entry((kind, id)).or_default();
                used.0 += inode.sectors * 512;
                used.1 += 1;
            }
        }
    }
    Ok(usage)
}
