//! Turns features on and off.
//!
//! Some features only affect files that are written later. The others need files of the file system itself, or
//! change what is there: `checksums`, `width` and `maps` do that.

use super::checksums::{features_after, has_old_journal, set_features};
use super::files::{
    free_journal, free_orphan_file, free_quota_files, make_journal, make_orphan_file,
    make_quota_files,
};
use super::maps::{check_no_extents, convert_maps};
use super::width::{check_extra_fields, check_inode_size, enlarge_inodes, set_sixty_four_bit};
use super::{Tuned, Tuning};
use crate::error::{Refusal, Result};
use crate::image::Image;
use crate::progress::ReshapeProgress;
use drystone_ext4_format::features::{Compat, Features, Incompat, ReadOnlyCompat};
use drystone_ext4_format::hash::HashVersion;
use drystone_ext4_format::superblock::CREATOR_HURD;

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
        .union(Incompat::EXTENTS)
        .union(Incompat::SIXTY_FOUR_BIT),
    read_only_compat: ReadOnlyCompat::LARGE_FILE
        .union(ReadOnlyCompat::HUGE_FILE)
        .union(ReadOnlyCompat::DIR_NLINK)
        .union(ReadOnlyCompat::VERITY)
        .union(ReadOnlyCompat::QUOTA)
        .union(ReadOnlyCompat::PROJECT)
        .union(ReadOnlyCompat::EXTRA_ISIZE)
        .union(ReadOnlyCompat::METADATA_CSUM)
        .union(ReadOnlyCompat::GDT_CSUM),
};

/// Features that can be turned off.
const OFF: Features = Features {
    compat: Compat::HAS_JOURNAL.union(Compat::ORPHAN_FILE).union(Compat::STABLE_INODES),
    incompat: Incompat::CSUM_SEED.union(Incompat::SIXTY_FOUR_BIT).union(Incompat::EXTENTS),
    read_only_compat: ReadOnlyCompat::QUOTA
        .union(ReadOnlyCompat::PROJECT)
        .union(ReadOnlyCompat::METADATA_CSUM)
        .union(ReadOnlyCompat::GDT_CSUM),
};

/// Changes features and what belongs to them.
pub(super) fn change(
    image: &mut Image<'_>,
    tuning: &Tuning,
    now: u64,
    tuned: &mut Tuned,
    progress: &mut dyn FnMut(ReshapeProgress),
) -> Result<()> {
    let journal_bytes = tuning.journal_bytes;
    let before = image.superblock.features();
    let mut after = features_after(before, &tuning.features)?;
    if tuning.convert_maps {
        after.incompat |= Incompat::EXTENTS;
    }
    if !after.compat.contains(Compat::HAS_JOURNAL) {
        if after.difference(before).compat.contains(Compat::ORPHAN_FILE) {
            return Err(Refusal::Value("orphan_file needs the feature has_journal".into()).into());
        }
        // As in images that are made without one.
        after.compat -= Compat::ORPHAN_FILE;
    }
    if before.compat.contains(Compat::HAS_JOURNAL) && !after.compat.contains(Compat::HAS_JOURNAL) {
        after.compat -= Compat::FAST_COMMIT;
    }
    check(image, before, after, tuning)?;
    let is_wide = after.incompat.contains(Incompat::SIXTY_FOUR_BIT);
    set_sixty_four_bit(image, is_wide, tuned, progress)?;
    if let Some(bytes) = tuning.inode_size {
        enlarge_inodes(image, bytes, tuned, progress)?;
    }
    // A project's number is the last of the extra fields.
    let need_fields = ReadOnlyCompat::EXTRA_ISIZE | ReadOnlyCompat::PROJECT;
    let gained_fields = after.difference(before).read_only_compat & need_fields;
    if !gained_fields.is_empty() {
        check_extra_fields(image, gained_fields)?;
    }
    if tuning.convert_maps {
        convert_maps(image, tuned, progress)?;
    }
    if !after.read_only_compat.contains(ReadOnlyCompat::QUOTA | ReadOnlyCompat::PROJECT) {
        free_quota_files(image, !after.read_only_compat.contains(ReadOnlyCompat::QUOTA))?;
    }
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
    if gained(Compat::DIR_INDEX) && image.superblock.hash_seed() == [0; 4] {
        // It has never had an index. Names must not be known to collide in every image.
        let uuid = u128::from_le_bytes(image.superblock.uuid());
        let seed = [0, 32, 64, 96].map(|shift| (uuid >> shift) as u32);
        image.superblock.set_hash_seed(seed);
        if tuning.hash_version.is_none() {
            image.superblock.set_hash_version(HashVersion::HalfMd4);
        }
    }
    set_features(image, after, progress)?;
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

/// Fails for what neither Linux nor other tools take beside 64-bit block numbers and checksums.
fn check_wide(
    image: &mut Image<'_>,
    on: Features,
    off: Features,
    after: Features,
    journal_bytes: Option<u64>,
) -> Result<()> {
    let is_wide = after.incompat.contains(Incompat::SIXTY_FOUR_BIT);
    let is_changed =
        on.incompat.contains(Incompat::SIXTY_FOUR_BIT) || off.incompat.contains(Incompat::EXTENTS);
    if is_wide && is_changed && !after.incompat.contains(Incompat::EXTENTS) {
        return Err(Refusal::Value("64bit needs extent".into()).into());
    }
    let needs_new_journal = on.incompat.contains(Incompat::SIXTY_FOUR_BIT)
        || on.read_only_compat.contains(ReadOnlyCompat::METADATA_CSUM);
    let is_journal_kept = after.compat.contains(Compat::HAS_JOURNAL) && journal_bytes.is_none();
    if needs_new_journal && is_journal_kept && has_old_journal(image)? {
        let reason = "its journal is of the first version, which has neither checksums nor \
                      64-bit block numbers: replace it with --journal-size";
        return Err(Refusal::Value(reason.into()).into());
    }
    Ok(())
}

/// Fails for what would overwrite the fields that inodes of GNU Hurd have in place of others.
fn check_hurd(image: &Image<'_>, on: Features, tuning: &Tuning) -> Result<()> {
    let is_rewritten = tuning.inode_size.is_some()
        || on.incompat.intersects(Incompat::SIXTY_FOUR_BIT | Incompat::EA_INODE)
        || on.read_only_compat.contains(ReadOnlyCompat::METADATA_CSUM);
    if is_rewritten && image.superblock.creator_os() == CREATOR_HURD {
        let reason = "it was made for GNU Hurd, which has other fields in inodes";
        return Err(Refusal::Value(reason.into()).into());
    }
    Ok(())
}

fn check(image: &mut Image<'_>, before: Features, after: Features, tuning: &Tuning) -> Result<()> {
    let journal_bytes = tuning.journal_bytes;
    let inode_size = tuning.inode_size.map_or(image.layout.inode_size(), usize::from);
    let refuse = |text: String| Err(Refusal::Value(text).into());
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
        && (!has(ReadOnlyCompat::EXTRA_ISIZE) || inode_size == 128)
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
    let blocks = image.layout.blocks_count();
    if off.incompat.contains(Incompat::SIXTY_FOUR_BIT) && blocks > u64::from(u32::MAX) {
        return refuse(format!("it can't lose 64bit: it has {blocks} blocks"));
    }
    if let Some(bytes) = tuning.inode_size {
        check_inode_size(superblock, bytes)?;
    }
    if tuning.convert_maps && tuning.features.clear.incompat.contains(Incompat::EXTENTS) {
        return refuse("files can't get extents while extent is turned off".into());
    }
    if off.incompat.contains(Incompat::EXTENTS) {
        check_no_extents(image)?;
    }
    let is_external = superblock.has_journal() && superblock.journal_inode().is_none();
    if is_external && (off.compat.contains(Compat::HAS_JOURNAL) || journal_bytes.is_some()) {
        return refuse("its journal is on another device".into());
    }
    check_hurd(image, on, tuning)?;
    check_wide(image, on, off, after, journal_bytes)
}
