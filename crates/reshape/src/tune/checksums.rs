//! Checksums that all metadata get, lose, or get from another seed.

use crate::error::{Refusal, Result};
use crate::image::Image;
use crate::moves::Moves;
use crate::progress::ReshapeProgress;
use crate::rewrite::{InodeNumbers, Rewriter};
use drystone_ext4_format::PhysicalBlock;
use drystone_ext4_format::checksum::{ChecksumSeed, Checksums};
use drystone_ext4_format::features::{FeatureChange, Features, Incompat, ReadOnlyCompat};
use drystone_ext4_format::group::GroupFlags;
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::mmp::Mmp;
use drystone_jbd2_format::{CompatFeatures, IncompatFeatures, SUPERBLOCK_BYTES, Superblock};

/// The features after a change. Those that tell of checksums exclude each other or depend on each other.
pub(super) fn features_after(
    before: Features,
    change: &FeatureChange,
) -> Result<Features, Refusal> {
    const ALL: ReadOnlyCompat = ReadOnlyCompat::METADATA_CSUM;
    const GROUPS: ReadOnlyCompat = ReadOnlyCompat::GDT_CSUM;
    let mut after = before.apply(change);
    let had_all = before.read_only_compat.contains(ALL);
    match (had_all, after.read_only_compat.contains(ALL)) {
        (true, true) if change.set.read_only_compat.contains(GROUPS) => {
            let problem = "uninit_bg and metadata_csum exclude each other: turn metadata_csum off";
            return Err(Refusal::Value(problem.into()));
        }
        (false, true) => after.read_only_compat -= GROUPS,
        (true, false) => {
            after.incompat -= Incompat::CSUM_SEED;
            // Without them, those of the descriptors are left.
            if !change.clear.read_only_compat.contains(GROUPS) {
                after.read_only_compat |= GROUPS;
            }
        }
        _ => {}
    }
    Ok(after)
}

/// Takes the superblock with other features, and computes all checksums that change with them.
pub(super) fn set_features(
    image: &mut Image<'_>,
    features: Features,
    progress: &mut dyn FnMut(ReshapeProgress),
) -> Result<()> {
    let old = image.layout;
    let mut geometry = image.superblock.geometry();
    let seed_before = seed_of_values(image);
    if features.incompat.contains(Incompat::CSUM_SEED)
        && !old.features().incompat.contains(Incompat::CSUM_SEED)
    {
        geometry.checksum_seed = seed_before.get();
    }
    geometry.features = features;
    let superblock = image.superblock.with_geometry(&geometry)?;
    let checksums = superblock.checksums();
    if checksums == old.checksums() {
        image.set_superblock(superblock);
        return Ok(());
    }
    let has_groups_before = image.has_group_checksums();
    match checksums {
        Checksums::None => initialise_groups(image)?,
        _ if has_groups_before => load_bitmaps(image)?,
        _ => {
            load_bitmaps(image)?;
            note_unused_inodes(image)?;
        }
    }
    image.set_superblock(superblock);
    if features.incompat.contains(Incompat::EA_INODE) && seed_of_values(image) != seed_before {
        let problem =
            "its seed of checksums can't change: large attributes depend on it (ea_inode)";
        return Err(Refusal::Value(problem.into()).into());
    }
    if old.checksum_seed() != image.layout.checksum_seed() {
        seal_all(image, &old, progress)?;
    }
    Ok(())
}

/// The seed that hashes of large attributes start from, whether or not metadata have checksums.
fn seed_of_values(image: &Image<'_>) -> ChecksumSeed {
    let uuid = image.superblock.uuid();
    image.layout.checksum_seed().unwrap_or_else(|| ChecksumSeed::from_uuid(&uuid))
}

/// Recomputes what is sealed with the seed, and gives directories the room for it or takes it away.
fn seal_all(
    image: &mut Image<'_>,
    old: &Layout,
    progress: &mut dyn FnMut(ReshapeProgress),
) -> Result<()> {
    if let Some(block) = image.mmp_block() {
        let mut bytes = image.read_block(block)?;
        let mmp = Mmp::check(&bytes, old.checksum_seed(), block)?;
        mmp.encode(&mut bytes, image.layout.checksum_seed());
        image.write_block(block, &bytes)?;
    }
    let (moves, numbers) = (Moves::default(), InodeNumbers::default());
    let total = u64::from(old.group_count());
    let mut rewriter = Rewriter::new(image, *old, &moves, &numbers);
    for group in old.groups() {
        rewriter.group(group)?;
        let done = u64::from(group.get()) + 1;
        progress(ReshapeProgress { step: "computing checksums", done, total });
    }
    rewriter.finish()?;
    let is_on = image.layout.checksum_seed().is_some();
    if old.checksum_seed().is_some() != is_on {
        set_journal_checksums(image, is_on)?;
    }
    Ok(())
}

/// Loads all bitmaps that are initialised: their checksums change.
fn load_bitmaps(image: &mut Image<'_>) -> Result<()> {
    for group in image.layout.groups() {
        let flags = image.groups[group.index()].flags;
        if !image.has_group_checksums() || !flags.contains(GroupFlags::BLOCK_UNINIT) {
            image.block_bitmap(group)?;
        }
        if !image.is_without_inodes(group) {
            image.inode_bitmap(group)?;
        }
    }
    Ok(())
}

/// Initialises what isn't: without checksums of descriptors nothing tells.
fn initialise_groups(image: &mut Image<'_>) -> Result<()> {
    let per_group = image.layout.inodes_per_group();
    let size = image.layout.inode_size() as u64;
    for group in image.layout.groups() {
        image.block_bitmap(group)?;
        image.inode_bitmap(group)?;
        let is_without_inodes = image.is_without_inodes(group);
        let descriptor = &mut image.groups[group.index()];
        let unused = if is_without_inodes { per_group } else { descriptor.unused_inodes_count };
        let is_zeroed = descriptor.flags.contains(GroupFlags::INODE_ZEROED);
        descriptor.flags = GroupFlags::empty();
        descriptor.unused_inodes_count = 0;
        if !is_zeroed {
            let table = image.offset_of(image.groups[group.index()].inode_table);
            let start = table + u64::from(per_group - unused) * size;
            image.device.zero_range(start, u64::from(unused) * size)?;
        }
    }
    Ok(())
}

/// Notes how many inodes at the end of each table have never been in use. All of it is initialised.
fn note_unused_inodes(image: &mut Image<'_>) -> Result<()> {
    let (per_group, size) = (image.layout.inodes_per_group(), image.layout.inode_size());
    for group in image.layout.groups() {
        let table = image.read_inodes(group, 0..per_group)?;
        let is_empty = |inode: &[u8]| inode.iter().all(|&byte| byte == 0);
        let written = table.chunks_exact(size).rposition(|inode| !is_empty(inode));
        let last_used = image.used_inodes(group)?.last().copied();
        // Inodes of the file system may be in use and empty.
        let last_used = match last_used {
            Some(number) => image.layout.bit_of_inode(number)?.1 + 1,
            None => 0,
        };
        // Counts of a table, which fit.
        let used = written.map_or(0, |last| last as u32 + 1).max(last_used);
        let descriptor = &mut image.groups[group.index()];
        descriptor.flags = GroupFlags::INODE_ZEROED;
        descriptor.unused_inodes_count = per_group - used;
    }
    Ok(())
}

/// Whether the journal's superblock is of the first version, which has no features. Linux reads none of checksums and
/// of 64-bit block numbers from such a journal, and doesn't mount the image.
pub(super) fn has_old_journal(image: &mut Image<'_>) -> Result<bool> {
    Ok(journal_superblock(image)?.is_some_and(|(.., journal)| journal.is_version_1()))
}

/// The journal's first block, its bytes, and the superblock in it.
fn journal_superblock(
    image: &mut Image<'_>,
) -> Result<Option<(PhysicalBlock, Vec<u8>, Superblock)>> {
    let Some(number) = image.superblock.journal_inode() else { return Ok(None) };
    let (inode, _) = image.read_inode(number)?;
    let layout = image.layout;
    let (moves, numbers) = (Moves::default(), InodeNumbers::default());
    let runs = Rewriter::new(image, layout, &moves, &numbers).data_runs(&inode)?;
    let Some(first) = runs.first().map(|run| run.physical) else { return Ok(None) };
    let bytes = image.read_block(first)?;
    let Ok(journal) = Superblock::check(&bytes) else { return Err(Refusal::HasErrors.into()) };
    Ok(Some((first, bytes, journal)))
}

/// Gives the journal checksums of its third version, as Linux does when it mounts the image, or takes them away.
fn set_journal_checksums(image: &mut Image<'_>, is_on: bool) -> Result<()> {
    let Some((first, mut bytes, mut journal)) = journal_superblock(image)? else { return Ok(()) };
    // The image has been unmounted: nothing is in the log.
    if journal.start().is_some() || journal.is_version_1() {
        return Ok(());
    }
    let checksums = IncompatFeatures::CHECKSUM_V2 | IncompatFeatures::CHECKSUM_V3;
    let mut incompat = journal.incompat() - checksums;
    if is_on {
        incompat |= IncompatFeatures::CHECKSUM_V3;
    }
    journal.set_features(journal.compat() - CompatFeatures::CHECKSUM, incompat);
    bytes[..SUPERBLOCK_BYTES].copy_from_slice(&journal.to_bytes());
    image.write_block(first, &bytes)
}
