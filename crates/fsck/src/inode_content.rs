//! One inode in use: its fields, its map, and whether they agree.

use crate::checker::{Findings, InodePass};
use crate::claims::InodeClaims;
use crate::entries::ENCRYPTED_NAME_BYTES_MIN;
use crate::image::Error;
use crate::issue::{InodeIssue, Issue};
use crate::mapping::{self, MapEvent};
use crate::{inline, special, xattrs};
use drystone_ext4_format::error::InodeProblem;
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::features::{Compat, Features, Incompat, ReadOnlyCompat};
use drystone_ext4_format::inode::{BLOCK_AREA_BYTES, Inode, InodeFlags, ModeFileType};
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::{Corrupt, InodeNumber, LogicalBlock};

/// A symbolic link without a block, in messages.
pub(crate) const HOLDS_TARGET: &str = "a link that holds its target";

/// What the walk over a map found.
#[derive(Debug, Default)]
pub(crate) struct Mapped {
    /// The number after the last block of the file that is mapped.
    pub end: u64,
    /// The number after the last that is mapped and written.
    pub written_end: u64,
    /// Where the last extent starts that is written.
    pub last_written_start: Option<u64>,
    pub claims: InodeClaims,
    /// The place after the last block so far.
    physical_end: u64,
    fragmented: bool,
    broken: bool,
    /// The first extent.
    pub first: Option<Extent>,
}

/// Whether an inode maps blocks. Some reserved ones do without a mode.
pub(crate) fn maps_blocks(inode: &Inode, layout: &Layout) -> bool {
    inode.has_block_mapping() || is_reserved(inode.number, layout) && inode.mode == 0
}

/// Whether an inode serves the image itself; the root is a directory like others.
pub(crate) fn is_reserved(number: InodeNumber, layout: &Layout) -> bool {
    number < layout.first_inode() && number != InodeNumber::ROOT
}

/// Checks an inode in use and claims its blocks.
pub(crate) fn check(
    pass: &mut InodePass<'_, '_>,
    inode: &Inode,
    bytes: &[u8],
) -> Result<(), Error> {
    check_fields(pass, inode, bytes);
    let kind = ModeFileType::from_mode(inode.mode);
    let number = inode.number;
    let is_reserved = is_reserved(number, &pass.image.layout);
    if is_reserved {
        special::check_reserved(pass, inode);
    }
    if number == InodeNumber::ROOT && kind != Some(ModeFileType::Directory) {
        pass.reporter.report(Issue::Inode { inode: number, issue: InodeIssue::RootNotDirectory });
    }
    count_kind(pass, inode, kind, is_reserved);
    let mut mapped = Mapped::default();
    let has_attribute_block = xattrs::check(pass, inode, bytes)?;
    if number == InodeNumber::RESIZE && special::has_resize_inode(pass.image) {
        special::check_resize_inode(pass, inode, &mut mapped.claims)?;
    } else if maps_blocks(inode, &pass.image.layout) {
        walk(pass, inode, &mut mapped)?;
    }
    if has_attribute_block {
        mapped.claims.count += 1;
    }
    // A value in an inode of its own is charged to each inode that refers to it.
    let cluster_bytes =
        u64::from(pass.image.layout.blocks_per_cluster()) * pass.image.layout.block_size() as u64;
    let charged = &pass.found.attributes.charged;
    let values = charged.len() as u64;
    mapped.claims.count += charged.iter().map(|length| length.div_ceil(cluster_bytes)).sum::<u64>();
    check_sectors(pass, inode, &mapped);
    if inode.flags.contains(InodeFlags::INLINE_DATA) {
        inline::check(pass, inode, bytes);
    } else {
        check_size(pass, inode, &mapped)?;
    }
    if mapped.fragmented {
        pass.reporter.summarize(|summary| summary.fragmented += 1);
    }
    // These are not among the reserved inodes, but count as those do.
    let superblock = &pass.image.superblock;
    let hidden = [superblock.project_quota_inode(), superblock.orphan_file_inode()];
    if !is_reserved && !hidden.contains(&Some(number)) {
        pass.found.usage.add(inode, mapped.claims.count, values, &pass.image.layout);
    }
    Ok(())
}

/// Counts an inode among those of its type, and notes directories.
fn count_kind(
    pass: &mut InodePass<'_, '_>,
    inode: &Inode,
    kind: Option<ModeFileType>,
    is_reserved: bool,
) {
    let number = inode.number;
    match kind {
        None if !is_reserved => {
            let problem = InodeProblem::FileType { mode: inode.mode };
            pass.reporter.report(Corrupt::Inode { inode: number, problem });
        }
        Some(ModeFileType::Regular) if !is_reserved => {
            pass.reporter.summarize(|summary| summary.regular_files += 1);
        }
        Some(ModeFileType::Directory) => {
            pass.reporter.summarize(|summary| summary.directories += 1);
            if let Ok(group) = pass.image.layout.group_of_inode(number) {
                pass.found.directories.count(group);
            }
            // A removed directory that is still open keeps its dots, which count no more.
            if inode.links_count > 0 {
                let is_indexed = inode.flags.contains(InodeFlags::INDEX);
                let blocks = inode.size_bytes >> pass.image.layout.log_block_size();
                pass.found.directories.add(number, is_indexed, blocks);
            }
        }
        Some(ModeFileType::Symlink) => {
            pass.reporter.summarize(|summary| summary.symlinks += 1);
        }
        Some(_) if !is_reserved => {
            pass.reporter.summarize(|summary| summary.special_files += 1);
        }
        _ => {}
    }
}

fn check_fields(pass: &mut InodePass<'_, '_>, inode: &Inode, bytes: &[u8]) {
    let number = inode.number;
    let layout = pass.image.layout;
    let features = layout.features();
    let mut issues = Vec::new();
    // Those of reserved inodes are never read.
    let is_dated = inode.deletion_time != 0 && !is_reserved(number, &layout);
    if is_dated && !pass.orphans.contains(number) {
        issues.push(InodeIssue::DeletionTime { seconds: inode.deletion_time });
    }
    let u32_at = |at: usize| bytes.get(at..at + 4).map_or(0, le);
    let mut zero = |field, value: u64| {
        if value != 0 {
            issues.push(InodeIssue::Field { field, value });
        }
    };
    zero("i_faddr", u32_at(112));
    if !features.read_only_compat.contains(ReadOnlyCompat::HUGE_FILE) {
        zero("i_blocks_hi", u32_at(116) & 0xffff);
    }
    if !features.incompat.contains(Incompat::SIXTY_FOUR_BIT) {
        zero("i_file_acl_hi", u32_at(116) >> 16);
    }
    let kind = ModeFileType::from_mode(inode.mode);
    if kind == Some(ModeFileType::Directory) && !features.incompat.contains(Incompat::LARGE_DIR) {
        zero("i_size_high", u32_at(108));
    }
    if is_special(kind) {
        zero("i_size", inode.size_bytes);
    }
    check_flags(inode, features, kind, &mut issues);
    if inode.flags.contains(InodeFlags::EXTENTS) && inode.is_fast_symlink() {
        issues.push(InodeIssue::Flag { flag: "extents", what: HOLDS_TARGET });
    }
    let is_link = kind == Some(ModeFileType::Symlink);
    let is_fixed = inode.flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND);
    if is_fixed && (is_link || is_special(kind)) {
        issues.push(InodeIssue::FixedSpecial);
    }
    if inode.flags.contains(InodeFlags::INDEX | InodeFlags::INLINE_DATA) {
        issues.push(InodeIssue::Flag { flag: "index", what: "an inode with inline data" });
    }
    if inode.flags.contains(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA) {
        issues.push(InodeIssue::Flag { flag: "extents", what: "an inode with inline data" });
    }
    let has_pointers = inode.has_block_mapping()
        && !inode.flags.contains(InodeFlags::EXTENTS)
        && inode.block_area.iter().any(|&byte| byte != 0);
    let may_have_pointers = matches!(number, InodeNumber::BAD_BLOCKS | InodeNumber::RESIZE)
        || !features.read_only_compat.contains(ReadOnlyCompat::BIGALLOC);
    if has_pointers && !may_have_pointers {
        issues.push(InodeIssue::NeedsExtents);
    }
    if let Some(block) = inode.attribute_block
        && !features.compat.contains(Compat::EXT_ATTR)
    {
        issues.push(InodeIssue::Field { field: "i_file_acl", value: block.get() });
    }
    for issue in issues {
        pass.reporter.report(Issue::Inode { inode: number, issue });
    }
}

/// Checks that each flag is on an inode that it suits, in an image with its feature.
fn check_flags(
    inode: &Inode,
    features: Features,
    kind: Option<ModeFileType>,
    issues: &mut Vec<InodeIssue>,
) {
    let is_directory = kind == Some(ModeFileType::Directory);
    let is_regular = kind == Some(ModeFileType::Regular);
    let maps = kind.is_none() || !is_special(kind);
    let flags = [
        (InodeFlags::EXTENTS, "extents", features.incompat.contains(Incompat::EXTENTS), maps),
        (
            InodeFlags::INLINE_DATA,
            "inline_data",
            features.incompat.contains(Incompat::INLINE_DATA),
            maps,
        ),
        (InodeFlags::INDEX, "index", features.compat.contains(Compat::DIR_INDEX), is_directory),
        (
            InodeFlags::EA_INODE,
            "ea_inode",
            features.incompat.contains(Incompat::EA_INODE),
            is_regular,
        ),
        (
            InodeFlags::CASEFOLD,
            "casefold",
            features.incompat.contains(Incompat::CASEFOLD),
            is_directory,
        ),
        (InodeFlags::ENCRYPT, "encrypt", features.incompat.contains(Incompat::ENCRYPT), maps),
        (
            InodeFlags::VERITY,
            "verity",
            features.read_only_compat.contains(ReadOnlyCompat::VERITY),
            is_regular,
        ),
        (InodeFlags::IMAGIC, "imagic", features.compat.contains(Compat::IMAGIC_INODES), true),
    ];
    for (flag, name, has_feature, fits) in flags {
        if inode.flags.contains(flag) && !(has_feature && fits) {
            let what = if has_feature { "an inode of another kind" } else { "without its feature" };
            issues.push(InodeIssue::Flag { flag: name, what });
        }
    }
}

/// Whether it has no content: a device, a pipe or a socket.
fn is_special(kind: Option<ModeFileType>) -> bool {
    !matches!(
        kind,
        None | Some(ModeFileType::Regular | ModeFileType::Directory | ModeFileType::Symlink)
    )
}

fn le(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Walks the map, claims what it maps and notes what the size must fit.
fn walk(pass: &mut InodePass<'_, '_>, inode: &Inode, mapped: &mut Mapped) -> Result<(), Error> {
    let layout = pass.image.layout;
    let ratio = layout.blocks_per_cluster();
    let InodePass { image, reporter, found, .. } = pass;
    let Findings { claims, visited, .. } = &mut **found;
    mapping::walk(image, inode, visited, &mut |event| match event {
        MapEvent::Extent(extent) => {
            let (logical, physical) = (extent.logical, extent.physical);
            let place = physical.get().saturating_sub(u64::from(layout.first_data_block()));
            if logical.as_u64() % u64::from(ratio) != place % u64::from(ratio) {
                let issue = InodeIssue::Misaligned { logical, physical };
                reporter.report(Issue::Inode { inode: inode.number, issue });
            }
            if mapped.claims.is_split(claims, &extent) {
                let issue = InodeIssue::SplitCluster { logical, physical };
                reporter.report(Issue::Inode { inode: inode.number, issue });
            }
            let clusters = mapped.claims.next(claims, &extent);
            // A copy that lies in a bad block is lost: mke2fs warns, and makes the image.
            let is_lost = inode.number == InodeNumber::BAD_BLOCKS
                && claims.is_in_copy(physical.get(), extent.physical_end().get());
            if !is_lost {
                claims.used.insert_range(clusters, &mut claims.twice);
            }
            if mapped.first.is_none() {
                mapped.first = Some(extent);
            } else if physical.get() != mapped.physical_end {
                mapped.fragmented = true;
            }
            mapped.physical_end = extent.physical_end().get();
            mapped.end = mapped.end.max(extent.logical_end());
            if !extent.unwritten {
                mapped.written_end = mapped.written_end.max(extent.logical_end());
                mapped.last_written_start = Some(extent.logical.as_u64());
            }
        }
        MapEvent::Misplaced(_) => {}
        MapEvent::Node(block) => {
            claims.claim_block(block);
            mapped.claims.count += 1;
        }
        MapEvent::Issue(issue) => {
            mapped.broken = true;
            reporter.report(issue);
        }
    })
}

fn check_sectors(pass: &mut InodePass<'_, '_>, inode: &Inode, mapped: &Mapped) {
    let layout = pass.image.layout;
    let blocks = mapped.claims.count.saturating_mul(u64::from(layout.blocks_per_cluster()));
    let counted = blocks.saturating_mul(layout.sectors_per_block());
    let stored = inode.sectors;
    if stored != counted {
        let issue = InodeIssue::Sectors { stored, counted };
        pass.reporter.report(Issue::Inode { inode: inode.number, issue });
    }
}

fn check_size(pass: &mut InodePass<'_, '_>, inode: &Inode, mapped: &Mapped) -> Result<(), Error> {
    let layout = pass.image.layout;
    let block_size = layout.block_size() as u64;
    let stored = inode.size_bytes;
    let mut issue = |issue| pass.reporter.report(Issue::Inode { inode: inode.number, issue });
    match ModeFileType::from_mode(inode.mode) {
        Some(ModeFileType::Directory) if inode.links_count > 0 => {
            let expected = mapped.end * block_size;
            if stored != expected && !mapped.broken {
                issue(InodeIssue::Size { stored, expected });
            }
        }
        // Reserved inodes have no mode, or are files.
        Some(ModeFileType::Regular) | None => {
            let limit = if inode.flags.contains(InodeFlags::EXTENTS) {
                u64::from(u32::MAX) * block_size
            } else {
                drystone_ext4_format::block_map::logical_end(&layout)
                    .min(u64::from(u32::MAX))
                    .saturating_mul(block_size)
            };
            if stored > limit {
                issue(InodeIssue::TooLarge { stored, limit });
            }
            if stored >> 31 != 0 && inode.is_regular() {
                pass.found.has_large_file = true;
            }
            // Being cut or deleted, followed by the hashes of its blocks, or never read as a file.
            let may_exceed = inode.flags.contains(InodeFlags::VERITY)
                || pass.orphans.contains(inode.number)
                || inode.number == InodeNumber::RESIZE;
            // One block may follow the last one of the file, but no extent of its own.
            let last = mapped.written_end.saturating_sub(1) * block_size;
            let is_behind = stored > 0
                && mapped.last_written_start.is_some_and(|start| start * block_size >= stored);
            let has_extents = inode.flags.contains(InodeFlags::EXTENTS);
            if (stored < last || has_extents && is_behind) && !may_exceed {
                let expected = mapped.written_end * block_size;
                pass.reporter.report(Issue::Inode {
                    inode: inode.number,
                    issue: InodeIssue::Size { stored, expected },
                });
            }
        }
        Some(ModeFileType::Symlink) => check_symlink(pass, inode, mapped)?,
        _ => {}
    }
    Ok(())
}

fn check_symlink(
    pass: &mut InodePass<'_, '_>,
    inode: &Inode,
    mapped: &Mapped,
) -> Result<(), Error> {
    let size = inode.size_bytes;
    let is_encrypted = inode.flags.contains(InodeFlags::ENCRYPT);
    let found = if let Some(target) = inode.fast_symlink_target() {
        // The byte after the target is zero as well.
        let end = target.len().min(BLOCK_AREA_BYTES - 1) + 1;
        match is_encrypted {
            true => encrypted_length(&inode.block_area),
            false => text_length(&inode.block_area[..end]),
        }
    } else {
        // Readers of a block map look at no other pointer than the first.
        let has_others = !inode.flags.contains(InodeFlags::EXTENTS)
            && inode.block_area[4..].iter().any(|&byte| byte != 0);
        match mapped.first {
            Some(first)
                if !has_others
                    && first.logical == LogicalBlock::FIRST
                    && !first.unwritten
                    && mapped.end == 1 =>
            {
                let block = pass.image.read_block(first.physical)?;
                match is_encrypted {
                    true => encrypted_length(&block),
                    false => target_length(&block).unwrap_or(0),
                }
            }
            _ => 0,
        }
    };
    if found != size || size == 0 {
        let issue = InodeIssue::Symlink { size, found };
        pass.reporter.report(Issue::Inode { inode: inode.number, issue });
    }
    Ok(())
}

/// The length of a target in a block; nothing if an inode would hold it, or it has no end.
pub(crate) fn target_length(block: &[u8]) -> Option<u64> {
    let length = text_length(block);
    (BLOCK_AREA_BYTES as u64..block.len() as u64).contains(&length).then_some(length)
}

/// The length of an encrypted target, with the two bytes in front that count its bytes; 0 if it can't be.
fn encrypted_length(bytes: &[u8]) -> u64 {
    let [low, high, ..] = bytes else { return 0 };
    let length = usize::from(u16::from_le_bytes([*low, *high]));
    let is_possible = length >= ENCRYPTED_NAME_BYTES_MIN && length + 2 < bytes.len();
    if is_possible { length as u64 + 2 } else { 0 }
}

/// Bytes up to the first zero.
pub(crate) fn text_length(bytes: &[u8]) -> u64 {
    bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len()) as u64
}
