//! Quota files: made anew from what was counted, with the limits that can be read.

use super::fields;
use super::maps;
use super::repairer::{Done, Repairer};
use crate::image::Error;
use crate::mapping;
use crate::quota::{entries_of, may_be_one, readable_entries_of};
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::quota::{QuotaEntry, QuotaKind, build};
use drystone_ext4_format::{InodeNumber, LogicalBlock};
use std::collections::BTreeMap;

pub(super) fn rebuild(repairer: &mut Repairer<'_, '_>, kind: QuotaKind) -> Result<Done, Error> {
    const DONE: Done = Some("the quota file was made anew, with the limits that can be read");
    let superblock = &repairer.checker.image.superblock;
    let (number, used) = match kind {
        QuotaKind::User => (superblock.user_quota_inode(), &repairer.checker.found.usage.users),
        QuotaKind::Group => (superblock.group_quota_inode(), &repairer.checker.found.usage.groups),
        QuotaKind::Project => {
            (superblock.project_quota_inode(), &repairer.checker.found.usage.projects)
        }
    };
    let Some(number) = number else { return Ok(None) };
    if !repairer.rebuilt_maps.insert(number.get()) {
        return Ok(DONE);
    }
    let Some((inode, _)) = repairer.checker.image.inode(number)? else { return Ok(None) };
    if !inode.has_block_mapping() {
        return Ok(None);
    }
    if let Err(corrupt) = entries_of(repairer.checker, kind, &inode, false)?
        && !may_be_one(repairer.checker, kind, &inode, &corrupt)
    {
        return give_up(repairer, kind);
    }
    let mut entries: BTreeMap<u32, QuotaEntry> = BTreeMap::new();
    let (readable, _) = readable_entries_of(repairer.checker, kind, &inode)?;
    for entry in readable {
        let unused = QuotaEntry { space_bytes: 0, inodes: 0, ..entry };
        entries.insert(entry.id, unused);
    }
    for (&id, used) in used {
        let entry = entries.entry(id).or_insert(QuotaEntry { id, ..QuotaEntry::default() });
        entry.space_bytes = used.space_bytes;
        entry.inodes = used.inodes;
    }
    let content = build(kind, entries.into_values());
    write_file(repairer, number, &content).map(|repaired| repaired.and(DONE))
}

/// Makes these bytes the content of a file, in the blocks that it has and new ones. Without room for all of them
/// nothing is written.
fn write_file(
    repairer: &mut Repairer<'_, '_>,
    number: InodeNumber,
    content: &[u8],
) -> Result<Done, Error> {
    let layout = repairer.checker.image.layout;
    let block_size = layout.block_size();
    let Some(mut pieces) = maps::take_apart(repairer, number)? else { return Ok(None) };
    let mut extents: Vec<Extent> = Vec::new();
    for logical in (0..content.len().div_ceil(block_size) as u32).map(LogicalBlock::new) {
        // A cluster of the file that was begun goes on.
        let is_begun = logical.as_u64() % u64::from(layout.blocks_per_cluster()) > 0;
        let found = mapping::find(&pieces.extents, logical).filter(|_| !is_begun);
        let new = match found {
            Some(block) => Some(block),
            None => repairer.allocate_for(&extents, logical)?,
        };
        let Some(physical) = new else { return Ok(None) };
        Extent::of_block(logical, physical).append_to(&mut extents);
    }
    pieces.extents.clone_from(&extents);
    if maps::store(repairer, pieces)?.is_none() {
        return Ok(None);
    }
    for (logical, bytes) in (0..).map(LogicalBlock::new).zip(content.chunks(block_size)) {
        // Each has its place by now.
        let Some(physical) = mapping::find(&extents, logical) else { break };
        let mut block = vec![0; block_size];
        block[..bytes.len()].copy_from_slice(bytes);
        repairer.write_block(physical, &block)?;
    }
    fields::set_size(repairer, number, content.len() as u64)
}

/// Keeps no quota of a kind any more.
pub(super) fn give_up(repairer: &mut Repairer<'_, '_>, kind: QuotaKind) -> Result<Done, Error> {
    repairer.edit_superblock(|superblock| match kind {
        QuotaKind::User => superblock.set_user_quota_inode(None),
        QuotaKind::Group => superblock.set_group_quota_inode(None),
        QuotaKind::Project => superblock.set_project_quota_inode(None),
    })?;
    Ok(Some("the quota file was given up"))
}

/// Whether the superblock takes an inode for the quota file of projects that holds something else.
pub(super) fn is_taken_for_one(
    repairer: &mut Repairer<'_, '_>,
    number: InodeNumber,
) -> Result<bool, Error> {
    if repairer.checker.image.superblock.project_quota_inode() != Some(number) {
        return Ok(false);
    }
    let Some((inode, _)) = repairer.checker.image.inode(number)? else { return Ok(true) };
    Ok(!inode.has_block_mapping()
        || entries_of(repairer.checker, QuotaKind::Project, &inode, false)?.is_err())
}

/// Keeps no quota any more in an inode.
pub(super) fn give_up_inode(
    repairer: &mut Repairer<'_, '_>,
    number: InodeNumber,
) -> Result<Done, Error> {
    let superblock = &repairer.checker.image.superblock;
    let files = [
        (QuotaKind::User, superblock.user_quota_inode()),
        (QuotaKind::Group, superblock.group_quota_inode()),
        (QuotaKind::Project, superblock.project_quota_inode()),
    ];
    // A damaged superblock may name it for several kinds.
    let mut done = None;
    for (kind, _) in files.into_iter().filter(|(_, inode)| *inode == Some(number)) {
        done = give_up(repairer, kind)?.or(done);
    }
    Ok(done)
}
