//! Turns features on and off.
//!
//! Some features only affect files that are written later. The others need files of the file system itself, or
//! change the seed of checksums.

use super::files::{
    free_journal, free_orphan_file, free_quota_files, make_journal, make_orphan_file,
    make_quota_files,
};
use crate::error::{Refusal, Result};
use crate::image::Image;
use crate::moves::Moves;
use crate::rewrite::{InodeNumbers, Rewriter};
use drystone_ext4_format::checksum::{ChecksumSeed, Checksums};
use drystone_ext4_format::features::{Compat, FeatureChange, Features, Incompat, ReadOnlyCompat};
use drystone_ext4_format::mmp::Mmp;
use drystone_ext4_format::superblock::Superblock;
use std::collections::BTreeSet;

/// Features that can be turned on.
const ON: Features = Features {
    compat: Compat::EXT_ATTR
        .union(Compat::DIR_INDEX)
        .union(Compat::STABLE_INODES)
        .union(Compat::HAS_JOURNAL)
        .union(Compat::ORPHAN_FILE),
    incompat: Incompat::EA_INODE
        .union(Incompat::LARGE_DIR)
        .union(Incompat::CSUM_SEED)
        .union(Incompat::EXTENTS),
    read_only_compat: ReadOnlyCompat::LARGE_FILE
        .union(ReadOnlyCompat::HUGE_FILE)
        .union(ReadOnlyCompat::DIR_NLINK)
        .union(ReadOnlyCompat::VERITY)
        .union(ReadOnlyCompat::QUOTA)
        .union(ReadOnlyCompat::PROJECT),
};

/// Features that can be turned off.
const OFF: Features = Features {
    compat: Compat::HAS_JOURNAL.union(Compat::ORPHAN_FILE).union(Compat::STABLE_INODES),
    incompat: Incompat::CSUM_SEED,
    read_only_compat: ReadOnlyCompat::QUOTA.union(ReadOnlyCompat::PROJECT),
};

/// Changes features, and makes a journal of this size.
pub(super) fn change(
    image: &mut Image<'_>,
    change: &FeatureChange,
    journal_bytes: Option<u64>,
    now: u64,
) -> Result<()> {
    let before = image.superblock.features();
    let mut after = before.apply(change);
    if !after.compat.contains(Compat::HAS_JOURNAL) {
        // As in images that are made without one.
        after.compat -= Compat::ORPHAN_FILE;
    }
    if before.compat.contains(Compat::HAS_JOURNAL) && !after.compat.contains(Compat::HAS_JOURNAL) {
        after.compat -= Compat::FAST_COMMIT;
    }
    if !after.read_only_compat.contains(ReadOnlyCompat::QUOTA | ReadOnlyCompat::PROJECT) {
        free_quota_files(image, !after.read_only_compat.contains(ReadOnlyCompat::QUOTA))?;
    }
    check(image, before, after, journal_bytes)?;
    let lost = |feature| before.compat.contains(feature) && !after.compat.contains(feature);
    let gained = |feature| !before.compat.contains(feature) && after.compat.contains(feature);
    let has_journal = after.compat.contains(Compat::HAS_JOURNAL);
    let is_journal_new = gained(Compat::HAS_JOURNAL) || journal_bytes.is_some();
    if lost(Compat::HAS_JOURNAL) || is_journal_new && before.compat.contains(Compat::HAS_JOURNAL) {
        free_journal(image)?;
    }
    if lost(Compat::ORPHAN_FILE) {
        free_orphan_file(image)?;
    }
    set_features(image, after)?;
    if has_journal && is_journal_new {
        make_journal(image, journal_bytes, now)?;
    }
    if gained(Compat::ORPHAN_FILE) {
        make_orphan_file(image, now)?;
    }
    if after.read_only_compat.contains(ReadOnlyCompat::QUOTA) {
        make_quota_files(image, now)?;
    }
    Ok(())
}

fn check(
    image: &Image<'_>,
    before: Features,
    after: Features,
    journal_bytes: Option<u64>,
) -> Result<(), Refusal> {
    let refuse = |text: String| Err(Refusal::Value(text));
    let (on, off) = (after.difference(before), before.difference(after));
    let (no_on, no_off) = (on.difference(ON), off.difference(OFF));
    let fast = Features { compat: Compat::FAST_COMMIT, ..Features::NONE };
    if no_on != Features::NONE {
        return refuse(format!("it can't get {no_on} once it is made"));
    }
    if no_off.difference(fast) != Features::NONE {
        return refuse(format!("it can't lose {no_off} once it is made"));
    }
    if off.compat.contains(Compat::STABLE_INODES) && after.incompat.contains(Incompat::ENCRYPT) {
        // As for tune2fs. What a file is encrypted with may be made of its number and the UUID.
        return refuse("it can't lose stable_inodes: encrypted files may depend on it".into());
    }
    let has = |feature| after.read_only_compat.contains(feature);
    let superblock = &image.superblock;
    if on.incompat.contains(Incompat::CSUM_SEED) && !after.has_metadata_checksums() {
        return refuse("metadata_csum_seed needs metadata_csum".into());
    }
    if on.read_only_compat.contains(ReadOnlyCompat::PROJECT)
        && (!has(ReadOnlyCompat::EXTRA_ISIZE) || image.layout.inode_size() == 128)
    {
        return refuse("project needs extra_isize and inodes of 256 bytes".into());
    }
    if has(ReadOnlyCompat::QUOTA)
        && (on.read_only_compat.intersects(ReadOnlyCompat::QUOTA | ReadOnlyCompat::PROJECT))
        && before.incompat.contains(Incompat::EA_INODE)
    {
        return refuse("usage can't be counted here where large attributes are (ea_inode)".into());
    }
    if journal_bytes.is_some() && !after.compat.contains(Compat::HAS_JOURNAL) {
        return refuse("a journal needs the feature has_journal".into());
    }
    let is_external = superblock.has_journal() && superblock.journal_inode().is_none();
    if is_external && (off.compat.contains(Compat::HAS_JOURNAL) || journal_bytes.is_some()) {
        return refuse("its journal is on another device".into());
    }
    Ok(())
}

/// Takes the superblock with other features. If the seed of checksums changes, all are computed anew.
fn set_features(image: &mut Image<'_>, features: Features) -> Result<()> {
    let before = image.layout.checksums();
    let mut geometry = image.superblock.geometry();
    if let (true, Checksums::All(seed)) = (features.incompat.contains(Incompat::CSUM_SEED), before)
    {
        geometry.checksum_seed = seed.get();
    }
    geometry.features = features;
    let superblock: Superblock = image.superblock.with_geometry(&geometry)?;
    let old = image.layout;
    if superblock.checksums() == before {
        image.set_superblock(superblock);
        return Ok(());
    }
    if features.incompat.contains(Incompat::EA_INODE) {
        let problem =
            "its seed of checksums can't change: large attributes depend on it (ea_inode)";
        return Err(Refusal::Value(problem.into()).into());
    }
    for group in old.groups() {
        let flags = image.groups[group.index()].flags;
        if !flags.contains(drystone_ext4_format::group::GroupFlags::BLOCK_UNINIT) {
            image.block_bitmap(group)?;
        }
        if !image.is_without_inodes(group) {
            image.inode_bitmap(group)?;
        }
    }
    let seed_before: Option<ChecksumSeed> = old.checksum_seed();
    image.set_superblock(superblock);
    if let Some(block) = image.mmp_block() {
        let mut bytes = image.read_block(block)?;
        let mmp = Mmp::check(&bytes, seed_before, block)?;
        mmp.encode(&mut bytes, image.layout.checksum_seed());
        image.write_block(block, &bytes)?;
    }
    let (moves, numbers) = (Moves::default(), InodeNumbers::new());
    let mut rewriter = Rewriter::new(image, old, &moves, &numbers);
    for group in old.groups() {
        rewriter.group(group, &BTreeSet::new())?;
    }
    rewriter.finish()
}
