//! Decodes the superblock, and shows where its copies differ.

use super::{Builder, Decoded, Structure, meaning};
use crate::error::{InspectError, Result};
use crate::image::InspectedImage;
use drystone_blockdev::BlockDevice;
use drystone_ext4_format::FormatError;
use drystone_ext4_format::features::Features;
use drystone_ext4_format::superblock::{
    FIELDS, SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, Superblock,
};

/// Fields that the primary superblock changes without its copies.
const OWN: [&str; 22] = [
    "block_group_nr",
    "checksum",
    "free_blocks_count_lo",
    "free_blocks_count_hi",
    "free_inodes_count",
    "mtime",
    "mtime_hi",
    "wtime",
    "wtime_hi",
    "mnt_count",
    "state",
    "lastcheck",
    "lastcheck_hi",
    "last_mounted",
    "kbytes_written",
    "last_orphan",
    "overhead_clusters",
    "feature_incompat",
    "feature_ro_compat",
    "flags",
    "jnl_blocks",
    "jnl_backup_type",
];

/// How many copies are shown. A damaged superblock may claim any number of them.
const COPIES_MAX: usize = 1000;

/// The superblock, whether it is usable or not.
pub(super) fn superblock(device: &dyn BlockDevice) -> Result<Decoded> {
    if device.size_bytes() < SUPERBLOCK_OFFSET_BYTES + SUPERBLOCK_BYTES as u64 {
        return Err(InspectError::missing("it is too short for a superblock"));
    }
    let mut bytes = [0; SUPERBLOCK_BYTES];
    device.read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes)?;
    let mut decoded = fields("superblock", SUPERBLOCK_OFFSET_BYTES, &bytes);
    let Ok(image) = InspectedImage::open(device) else { return Ok(decoded) };
    if image.superblock_offset != SUPERBLOCK_OFFSET_BYTES {
        let offset = image.superblock_offset;
        decoded.problems.push(format!("it is unusable; the copy at byte {offset} isn't"));
    }
    let mut groups = image.layout.superblock_groups().skip(1);
    for group in groups.by_ref().take(COPIES_MAX) {
        let Some((block, offset)) = image.layout.superblock_location(group) else { continue };
        let place = image.offset_of(block) + offset as u64;
        let mut copy = [0; SUPERBLOCK_BYTES];
        image.read_lenient(place, &mut copy)?;
        let mut part = fields(&format!("copy in group {group}"), place, &copy);
        let own = &decoded.fields;
        part.fields.retain(|field| {
            let first = own.iter().find(|other| other.name == field.name);
            first.is_some_and(|first| first.value != field.value) && !OWN.contains(&&*field.name)
        });
        decoded.parts.push(part);
    }
    if groups.next().is_some() {
        decoded.problems.push(format!("it has more copies; {COPIES_MAX} are shown"));
    }
    Ok(decoded)
}

/// The fields and verdicts of the bytes of a superblock.
pub(super) fn fields(name: &str, offset: u64, bytes: &[u8]) -> Decoded {
    let mut builder = Builder::new(name, offset, bytes).structure(Structure::Superblock);
    builder.table(0, FIELDS, &meaning::of_superblock);
    let mut decoded = builder.decoded;
    let checked = match Superblock::check(bytes) {
        Err(FormatError::Corrupt(problem)) if problem.is_checksum() => Err(problem),
        // The others are told by the check without it.
        _ => Ok(()),
    };
    match Superblock::check_unsealed(bytes) {
        Ok(superblock) => {
            decoded.checksum(has_checksum(superblock.features()), checked);
        }
        Err(problem) => decoded.problems.push(problem.to_string()),
    }
    decoded
}

const fn has_checksum(features: Features) -> bool {
    features.has_metadata_checksums()
}
