//! Quota: what users, groups and projects use against what the quota files say.

use crate::checker::{Checker, QuotaUse};
use crate::image::Error;
use crate::issue::{Issue, QuotaIssue};
use crate::mapping;
use drystone_ext4_format::error::QuotaProblem;
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::features::ReadOnlyCompat;
use drystone_ext4_format::inode::Inode;
use drystone_ext4_format::quota::{
    BLOCK_LENGTH, QuotaBlock, QuotaBlocks, QuotaEntry, QuotaFile, QuotaKind,
};
use drystone_ext4_format::{Corrupt, InodeNumber, LogicalBlock};
use std::collections::BTreeMap;

/// The largest quota file; e2fsck takes a longer one for damaged.
const SIZE_BYTES_MAX: u64 = 1 << 31;

const KINDS: [QuotaKind; 3] = [QuotaKind::User, QuotaKind::Group, QuotaKind::Project];

/// The blocks of a quota file in the image.
struct Blocks<'a, 'i> {
    checker: &'a Checker<'i>,
    extents: Vec<Extent>,
    length: u32,
}

/// What can go wrong while a quota file is read.
enum ReadError {
    Corrupt(Corrupt),
    Other(Error),
}

impl From<Corrupt> for ReadError {
    fn from(corrupt: Corrupt) -> Self {
        Self::Corrupt(corrupt)
    }
}

impl QuotaBlocks for Blocks<'_, '_> {
    type Error = ReadError;

    fn length(&self) -> u32 {
        self.length
    }

    fn read(&mut self, block: u32) -> Result<QuotaBlock, ReadError> {
        let mut bytes = [0; BLOCK_LENGTH];
        let layout = &self.checker.image.layout;
        let per_block = (layout.block_size() / BLOCK_LENGTH) as u32;
        let logical = LogicalBlock::new(block / per_block);
        // What is not mapped or not written reads as zeros.
        if let Some(physical) = mapping::find_written(&self.extents, logical) {
            let start = physical.get() << layout.log_block_size();
            let offset = u64::from(block % per_block) * BLOCK_LENGTH as u64;
            let read = self.checker.image.device.read_at(start + offset, &mut bytes);
            read.map_err(|error| ReadError::Other(error.into()))?;
        }
        Ok(bytes)
    }

    fn write(&mut self, block: u32, _bytes: &QuotaBlock) -> Result<(), ReadError> {
        // Nothing that is called here writes.
        Err(Corrupt::Truncated {
            structure: "quota file",
            needed: block as usize,
            found: self.length as usize,
        }
        .into())
    }
}

/// The inode of a kind's file, unless somebody has put it elsewhere. That of projects may be any.
fn usual_inode(kind: QuotaKind) -> Option<InodeNumber> {
    match kind {
        QuotaKind::User => Some(InodeNumber::USER_QUOTA),
        QuotaKind::Group => Some(InodeNumber::GROUP_QUOTA),
        QuotaKind::Project => None,
    }
}

/// Compares all quota files.
pub(crate) fn check(checker: &mut Checker<'_>) -> Result<(), Error> {
    let features = checker.image.layout.features();
    if !features.read_only_compat.contains(ReadOnlyCompat::QUOTA) {
        return Ok(());
    }
    let usage = std::mem::take(&mut checker.found.usage);
    let superblock = &checker.image.superblock;
    // No quota file is what serves the image in another way, or the file of another kind.
    let mut taken: Vec<InodeNumber> =
        vec![InodeNumber::BAD_BLOCKS, InodeNumber::ROOT, InodeNumber::RESIZE, InodeNumber::JOURNAL];
    taken.extend(superblock.journal_inode());
    taken.extend(superblock.orphan_file_inode());
    let mut files = [
        (QuotaKind::User, superblock.user_quota_inode(), &usage.users),
        (QuotaKind::Group, superblock.group_quota_inode(), &usage.groups),
        (QuotaKind::Project, superblock.project_quota_inode(), &usage.projects),
    ];
    // Where two kinds name one inode, it is that of the kind that usually has it.
    files.sort_by_key(|(kind, inode, _)| *inode != usual_inode(*kind));
    for (kind, inode, used) in files {
        let Some(inode) = inode else { continue };
        if taken.contains(&inode) {
            let issue = QuotaIssue::Inode { inode };
            checker.reporter.report(Issue::Quota { kind, issue });
            continue;
        }
        taken.push(inode);
        check_file(checker, kind, inode, used)?;
    }
    checker.found.usage = usage;
    Ok(())
}

/// The entries of a quota file, or what is wrong with it, strictly or only on the way to them.
pub(crate) fn entries_of(
    checker: &Checker<'_>,
    kind: QuotaKind,
    inode: &Inode,
    is_strict: bool,
) -> Result<Result<Vec<QuotaEntry>, Corrupt>, Error> {
    let blocks = blocks_of(checker, inode)?;
    or_corrupt(QuotaFile::open(kind, blocks).and_then(|mut file| {
        if is_strict {
            file.check_strays()?;
        }
        file.entries()
    }))
}

/// Whether the file that the superblock names for a quota file may be one, though it is damaged so: a damaged
/// superblock may name any file.
pub(crate) fn may_be_one(
    checker: &Checker<'_>,
    kind: QuotaKind,
    inode: &Inode,
    corrupt: &Corrupt,
) -> bool {
    match usual_inode(kind) {
        Some(usual) => usual == inode.number,
        None => has_header(corrupt) || is_hidden(checker, inode),
    }
}

/// Whether a file that is damaged so begins as a quota file of its kind. One that is too short has no blocks.
fn has_header(corrupt: &Corrupt) -> bool {
    match corrupt {
        Corrupt::Quota { block: 0, problem, .. } => !matches!(
            problem,
            QuotaProblem::Magic { .. }
                | QuotaProblem::Version { .. }
                | QuotaProblem::Blocks { found: 0, .. }
        ),
        Corrupt::Quota { .. } => true,
        _ => false,
    }
}

/// Whether an inode has no name and is root's alone, as quota files are.
fn is_hidden(checker: &Checker<'_>, inode: &Inode) -> bool {
    const ALONE: u16 = 0o600;
    // What serves the image counts as named once.
    inode.mode & 0o777 == ALONE
        && (inode.user, inode.group) == (0, 0)
        && checker.states.names(inode.number) <= 1
}

/// The entries of a quota file that can be read, whatever is wrong with its head, and how many can't. The file of
/// another kind has none.
pub(crate) fn readable_entries_of(
    checker: &Checker<'_>,
    kind: QuotaKind,
    inode: &Inode,
) -> Result<(Vec<QuotaEntry>, u64), Error> {
    let opened = match QuotaFile::open(kind, blocks_of(checker, inode)?) {
        Err(ReadError::Corrupt(Corrupt::Quota {
            problem: QuotaProblem::Magic { found, .. },
            ..
        })) if KINDS.map(QuotaKind::magic).contains(&found) => return Ok(Default::default()),
        Err(ReadError::Corrupt(_)) => {
            QuotaFile::open_without_head(kind, blocks_of(checker, inode)?)
        }
        opened => opened,
    };
    let found = or_corrupt(opened.and_then(|mut file| file.readable_entries()))?;
    Ok(found.unwrap_or_default())
}

fn blocks_of<'a, 'i>(checker: &'a Checker<'i>, inode: &Inode) -> Result<Blocks<'a, 'i>, Error> {
    let extents = mapping::extents_of(&checker.image, inode)?;
    let length = inode.size_bytes.min(SIZE_BYTES_MAX) / BLOCK_LENGTH as u64;
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    Ok(Blocks { checker, extents, length })
}

fn or_corrupt<T>(read: Result<T, ReadError>) -> Result<Result<T, Corrupt>, Error> {
    match read {
        Ok(found) => Ok(Ok(found)),
        Err(ReadError::Corrupt(corrupt)) => Ok(Err(corrupt)),
        Err(ReadError::Other(error)) => Err(error),
    }
}

fn check_file(
    checker: &mut Checker<'_>,
    kind: QuotaKind,
    number: InodeNumber,
    used: &BTreeMap<u32, QuotaUse>,
) -> Result<(), Error> {
    let found = checker.image.inode(number)?;
    let Some((inode, _)) = found.filter(|(inode, _)| inode.has_block_mapping()) else {
        let issue = QuotaIssue::Inode { inode: number };
        checker.reporter.report(Issue::Quota { kind, issue });
        return Ok(());
    };
    let size_bytes = inode.size_bytes;
    if size_bytes > SIZE_BYTES_MAX {
        let issue = QuotaIssue::Size { inode: number, size_bytes };
        checker.reporter.report(Issue::Quota { kind, issue });
        return Ok(());
    }
    let entries = match entries_of(checker, kind, &inode, true)? {
        Ok(entries) => entries,
        Err(corrupt) => {
            let may_be_one = may_be_one(checker, kind, &inode, &corrupt);
            checker.reporter.report(corrupt);
            if may_be_one {
                let (_, count) = readable_entries_of(checker, kind, &inode)?;
                if count > 0 {
                    let issue = QuotaIssue::Lost { count };
                    checker.reporter.report(Issue::Quota { kind, issue });
                }
            }
            return Ok(());
        }
    };
    let stored: BTreeMap<u32, QuotaUse> = entries
        .into_iter()
        .map(|entry| (entry.id, QuotaUse { space_bytes: entry.space_bytes, inodes: entry.inodes }))
        .collect();
    let mut ids: Vec<u32> = stored.keys().chain(used.keys()).copied().collect();
    ids.sort_unstable();
    ids.dedup();
    for id in ids {
        let stored = stored.get(&id).copied().unwrap_or_default();
        let counted = used.get(&id).copied().unwrap_or_default();
        if stored != counted {
            let issue = QuotaIssue::Usage {
                id,
                space_stored: stored.space_bytes,
                inodes_stored: stored.inodes,
                space_counted: counted.space_bytes,
                inodes_counted: counted.inodes,
            };
            checker.reporter.report(Issue::Quota { kind, issue });
        }
    }
    Ok(())
}
