//! Htree directories, with an index over the hashes of their names.
//!
//! A name lies in the leaf that the index gives for its hash. If the names of one hash don't fit
//! one leaf, it may also lie in the following leaves that are marked as a continuation.
//!
//! # Crash
//! A full leaf, and full index blocks above it, are split one block at a time; each step leaves a
//! complete index. So when a step fails, the steps before it stay.

mod path;
mod split;
mod walk;

pub(super) use split::plan_split;

pub(super) use path::{HtreeLeaf, HtreePath};
use walk::HtreeWalk;

use super::block::{Directory, EntryBlock};
use super::{EntrySearch, Vacancy};
use crate::content::SoughtName;
use crate::credits;
use crate::error::{Error, Result};
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::dir::{DirectoryBlockMut, NewEntry};
use drystone_ext4_format::hash::{HashVersion, NameHasher};
use drystone_ext4_format::htree::{IndexBlockMut, IndexEntry, IndexKind};
use drystone_jbd2::Handle;

/// Splits of an insertion that its credits cover; further ones extend the handle.
const STEPS_COVERED: usize = 2;

/// The hash function of the directory's names.
pub(super) fn hasher(directory: &Directory<'_>) -> Result<NameHasher> {
    let version = directory.root()?.look(|view| view.hash_version());
    Ok(hasher_named(directory, version))
}

fn hasher_named(directory: &Directory<'_>, version: Option<HashVersion>) -> NameHasher {
    // The check of the root admits known functions only.
    directory.fs.names.hasher_of(version.unwrap_or(HashVersion::HalfMd4))
}

/// Finds a name, or the leaf where it could be inserted.
pub(super) fn find(directory: &Directory<'_>, sought: &SoughtName<'_>) -> Result<EntrySearch> {
    if directory.layout.stores_hashes() {
        return find_everywhere(directory, sought);
    }
    let way = HtreeLeaf::to(directory, sought)?;
    let searched = directory.leaf(way.leaf)?.search(sought);
    if !way.continues || matches!(searched, EntrySearch::Found(_)) {
        return Ok(searched);
    }
    let mut path = HtreePath::to(directory, way.hash)?;
    while let Some(next) = path.peek()
        && next.continues()
        && next.hash_value() == way.hash
    {
        path.next(directory)?;
        if let Some(found) = directory.leaf(path.leaf(directory)?)?.find(sought) {
            return Ok(EntrySearch::Found(found));
        }
    }
    Ok(searched)
}

/// Finds a name whose hash several leaves may have, while leaves may be split.
pub(super) fn find_beside_splits(
    directory: &Directory<'_>,
    sought: &SoughtName<'_>,
) -> Result<EntrySearch> {
    let hash = sought.hash(hasher(directory)?).major;
    let mut found = None;
    visit_leaves(directory, hash, |leaf, _, next| {
        found = leaf.find(sought);
        let goes_on = next.is_some_and(|next| next.continues() && next.hash_value() == hash);
        Ok(found.is_none() && goes_on)
    })?;
    Ok(found.map_or(EntrySearch::Absent(None), EntrySearch::Found))
}

/// Where a name that is known to be absent could be inserted.
pub(super) fn vacancy(
    directory: &Directory<'_>,
    sought: &SoughtName<'_>,
    name: &[u8],
) -> Result<Option<Vacancy>> {
    let way = HtreeLeaf::to(directory, sought)?;
    Ok(Some(directory.leaf(way.leaf)?.vacancy(name)))
}

/// Finds a name whose hash can't be computed without the key.
fn find_everywhere(directory: &Directory<'_>, sought: &SoughtName<'_>) -> Result<EntrySearch> {
    let mut path = HtreePath::first(directory)?;
    loop {
        if let Some(found) = directory.leaf(path.leaf(directory)?)?.find(sought) {
            return Ok(EntrySearch::Found(found));
        }
        if path.next(directory)?.is_none() {
            return Ok(EntrySearch::Absent(None));
        }
    }
}

pub(super) fn is_empty(directory: &Directory<'_>) -> Result<bool> {
    let mut path = HtreePath::first(directory)?;
    loop {
        if !directory.leaf(path.leaf(directory)?)?.is_empty() {
            return Ok(false);
        }
        if path.next(directory)?.is_none() {
            return Ok(true);
        }
    }
}

pub(super) fn insert(
    directory: &mut Directory<'_>,
    handle: &mut Handle<'_>,
    sought: &SoughtName<'_>,
    entry: &NewEntry<'_>,
) -> Result<()> {
    let hasher = hasher(directory)?;
    let hash = sought.hash(hasher).major;
    for step in 0.. {
        let path = HtreePath::to(directory, hash)?;
        let leaf = directory.leaf(path.leaf(directory)?)?;
        let inserted = {
            let mut bytes = directory.write(handle, &leaf.buffer)?;
            DirectoryBlockMut::trusted(&mut bytes, &directory.layout).insert(entry)
        };
        if inserted.is_ok() {
            break;
        }
        if step >= STEPS_COVERED && !handle.extend(credits::DIRECTORY_SPLIT) {
            // The splits so far stay; the next transaction has credits for more.
            return Err(Error::CommitFirst);
        }
        split::make_room(directory, handle, &path, &leaf, hasher)?;
    }
    Ok(())
}

/// Splits the locked leaf for a name while other leaves may be split; false if the index block above the leaf may be
/// full.
pub(super) fn split_leaf(
    directory: &mut Directory<'_>,
    handle: &mut Handle<'_>,
    sought: &SoughtName<'_>,
) -> Result<bool> {
    let Some(index) = directory.inode.index_lock() else { return Ok(false) };
    let hasher = hasher(directory)?;
    let hash = sought.hash(hasher).major;
    let Some(reserved) = split::reserve(directory, index, hash)? else { return Ok(false) };
    let leaf = directory.leaf(reserved.leaf);
    let new =
        leaf.and_then(|leaf| split::move_upper(directory, handle, &reserved.parent, &leaf, hasher));
    // Whatever happened, the reservation ends.
    let mut index = index.write();
    index.end_reservation();
    split::insert_reserved(directory, handle, reserved, hash, new?)?;
    index.note_split();
    Ok(true)
}

/// Visits leaves from that where names of a hash start, as long as `visit` returns true. It gets the leaf, with its
/// names locked, the lowest hash that belongs to it, and the entry behind that of the leaf. The content lock is held
/// shared, so leaves may be split meanwhile: what moves to a new leaf was visited, or isn't yet.
pub(super) fn visit_leaves(
    directory: &Directory<'_>,
    hash: u32,
    mut visit: impl FnMut(&EntryBlock, u32, Option<IndexEntry>) -> Result<bool>,
) -> Result<()> {
    let Some(lock) = directory.inode.index_lock() else { return Ok(()) };
    let mut walk = {
        let index = lock.read();
        HtreeWalk::to(directory, &index, hash)?
    };
    loop {
        let number = walk.leaf;
        let _names = directory.fs.leaves.read(directory.inode.number, number);
        let (bound, next) = {
            let index = lock.read();
            if !walk.find_again(directory, &index)? {
                // The hash has moved to a new leaf.
                continue;
            }
            let here = (walk.path.lower_bound(), walk.path.peek());
            walk.go_on(directory)?;
            here
        };
        if !visit(&directory.leaf(number)?, bound, next)? || next.is_none() {
            return Ok(());
        }
    }
}

pub(super) fn set_parent(
    directory: &Directory<'_>,
    handle: &mut Handle<'_>,
    parent: InodeNumber,
) -> Result<()> {
    let root = directory.root()?;
    let mut bytes = directory.write(handle, &root.buffer)?;
    IndexBlockMut::trusted(&mut bytes, IndexKind::Root).set_parent(parent);
    Ok(())
}
