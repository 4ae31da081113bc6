//! Decodes the journal: its superblock, and the descriptor, commit and revoke blocks in the log, old ones too.

use super::{Builder, Decoded, Structure};
use crate::error::{InspectError, Result};
use crate::image::InspectedImage;
use crate::map::runs_of;
use drystone_ext4_format::PhysicalBlock;
use drystone_ext4_format::features::Compat;
use drystone_jbd2_format::{
    BlockHeader, BlockKind, Format, RawSuperblock, SUPERBLOCK_BYTES, Superblock,
    TransactionChecksum, check_commit, check_descriptor, check_revoke, kind_and_sequence,
};

/// Blocks that a name lists.
const LISTED_MAX: usize = 16;

pub(super) fn journal(image: &InspectedImage<'_>) -> Result<Decoded> {
    if !image.layout.features().compat.contains(Compat::HAS_JOURNAL) {
        return Err(InspectError::missing("it has no journal"));
    }
    let number = image.superblock.journal_inode();
    let number = number.ok_or_else(|| InspectError::missing("its journal is on another device"))?;
    let stored = image.inode(number)?;
    let runs = runs_of(image, &stored.inode)?;
    let blocks = runs.iter().flat_map(|run| {
        let first = run.physical.get();
        (0..run.length).map(move |by| (run.logical.get() + by, first + u64::from(by)))
    });
    let mut decoded: Option<Decoded> = None;
    let mut superblock = None;
    // A damaged map may name blocks any number of times.
    for (logical, block) in blocks.take(image.layout.blocks_count() as usize) {
        let bytes = image.read_block(PhysicalBlock::new(block))?;
        match &mut decoded {
            None => {
                let at = image.offset_of(PhysicalBlock::new(block));
                decoded = Some(head(number.get(), at, &bytes));
                superblock = Superblock::check(&bytes).ok();
            }
            Some(decoded) => {
                let Some(superblock) = &superblock else { break };
                let at = image.offset_of(PhysicalBlock::new(block));
                decoded.parts.extend(own_block(superblock, logical, at, &bytes));
            }
        }
    }
    decoded.ok_or_else(|| InspectError::missing("its journal has no blocks"))
}

/// The fields and verdicts of the journal's superblock.
pub(super) fn head(inode: u32, offset: u64, bytes: &[u8]) -> Decoded {
    let bytes = bytes.get(..SUPERBLOCK_BYTES).unwrap_or(bytes);
    let name = format!("journal in inode {inode}, superblock");
    let mut builder = Builder::new(name, offset, bytes).structure(Structure::Journal).big_endian();
    builder.table(0, BlockHeader::FIELDS, &|name, value| {
        (name == "magic").then(|| format!("{value:#x}"))
    });
    let others = RawSuperblock::FIELDS.iter().filter(|field| field.name != "header");
    for field in others.filter(|field| !matches!(field.name, "s_padding" | "s_users")) {
        builder.field(field.name, field.offset, field.length, &|_, _| None);
    }
    let mut decoded = builder.decoded;
    let checked = Superblock::check(bytes);
    let exists = checked.as_ref().map_or(true, |checked| checked.format().has_block_checksums());
    decoded.checksum(exists, checked.map(drop));
    decoded
}

/// A descriptor, commit or revoke block; `None` for a copy of a metadata block.
fn own_block(superblock: &Superblock, logical: u32, offset: u64, bytes: &[u8]) -> Option<Decoded> {
    let (kind, sequence) = kind_and_sequence(bytes)?;
    let format = superblock.format();
    let is_due =
        superblock.start().is_some() && sequence.wrapping_sub(superblock.sequence()) < u32::MAX / 2;
    let age = if is_due { "to be replayed" } else { "old" };
    let name = |what: &str| format!("log block {logical}, transaction {sequence}, {age}: {what}");
    let mut decoded = Decoded::new("", offset, bytes.len() as u64);
    let exists = format.has_block_checksums();
    match kind {
        BlockKind::Descriptor => {
            let checked = check_descriptor(&format, bytes, sequence, logical);
            let targets = checked.map(|tags| tags.map(|tag| tag.block).collect::<Vec<_>>());
            decoded.name =
                name(&listed("copies of blocks", targets.as_deref().unwrap_or_default()));
            decoded.checksum(exists, targets.map(drop));
        }
        BlockKind::Revoke => {
            let checked = check_revoke(&format, bytes, sequence, logical);
            let blocks = checked.map(Iterator::collect::<Vec<_>>);
            decoded.name = name(&listed("revokes blocks", blocks.as_deref().unwrap_or_default()));
            decoded.checksum(exists, blocks.map(drop));
        }
        BlockKind::Commit => commit(&format, bytes, sequence, logical, &name, &mut decoded),
        BlockKind::SuperblockV1 | BlockKind::SuperblockV2 => return None,
    }
    Some(decoded)
}

fn commit(
    format: &Format,
    bytes: &[u8],
    sequence: u32,
    logical: u32,
    name: &dyn Fn(&str) -> String,
    decoded: &mut Decoded,
) {
    // A checksum of the whole transaction, as old journals have it, isn't computed here.
    let exists = format.has_block_checksums();
    let checked = check_commit(format, bytes, sequence, logical, &TransactionChecksum::new());
    decoded.name = match &checked {
        Ok(commit) => name(&format!("commit at {} s since 1970", commit.seconds)),
        Err(_) => name("commit"),
    };
    if exists {
        decoded.checksum(true, checked.map(drop));
    }
}

fn listed(what: &str, blocks: &[u64]) -> String {
    let shown: Vec<String> = blocks.iter().take(LISTED_MAX).map(ToString::to_string).collect();
    let rest = match blocks.len().saturating_sub(LISTED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{what} {}{rest}", shown.join(" ")).trim_end().to_owned()
}
