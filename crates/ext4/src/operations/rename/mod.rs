//! Rename: move, replace, exchange.
//!
//! # Locking
//! Two renames at once, each giving a directory another parent, could make a directory its own ancestor.
//! So such renames hold the rename lock, and no other thread changes a parent meanwhile. Under this
//! lock, and before directories are locked, the rename walks up to look for a cycle. Then it locks all
//! its directories in the order of their numbers: both parents, and the source and the target if they
//! are directories. It looks the names up before that, and again under the locks. If source and target
//! are not directories, it locks the parents first and looks the names up once; of a hashed directory
//! that the file moves to, only the new name ([`dir::lock_leaf_with_room`]).
//!
//! # Crash
//! One handle. The step that may run out of space, adding the new name, comes first.

mod locked;

use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::operations::Engine;
use crate::{dir, file};
use drystone_ext4_format::inode::InodeFlags;
use drystone_ext4_format::{Corrupt, InodeNumber};
use drystone_sync::{Arc, RwLockReadGuard, RwLockWriteGuard};
use drystone_vfs::{Errno, NAME_LENGTH_MAX, RenameFlags, RequestContext, check_name};

/// A name in a locked directory.
struct RenameEnd<'a> {
    directory: &'a Arc<Inode>,
    name: &'a [u8],
}

/// Where two names are in their directories. Valid as long as no entry moves there.
struct EntryPositions {
    from: Option<dir::FoundEntry>,
    to: dir::EntrySearch,
}

impl EntryPositions {
    /// The place of the old name.
    fn find_old(
        fs: &Engine,
        from: &RenameEnd<'_>,
        to: &RenameEnd<'_>,
    ) -> Result<Option<dir::FoundEntry>> {
        from.directory.check_linked()?;
        to.directory.check_linked()?;
        dir::entry_named(fs, from.directory, &from.directory.summary(), from.name)
    }

    fn find(fs: &Engine, from: &RenameEnd<'_>, to: &RenameEnd<'_>) -> Result<EntryPositions> {
        let from = EntryPositions::find_old(fs, from, to)?;
        // Without the old name, the rename fails whatever the new one is.
        let to = match from {
            Some(_) => dir::entry_or_room(fs, to.directory, &to.directory.summary(), to.name)?,
            None => dir::EntrySearch::Absent(None),
        };
        Ok(EntryPositions { from, to })
    }

    /// What the new name stands for.
    fn target(&self) -> Option<InodeNumber> {
        match &self.to {
            dir::EntrySearch::Found(found) => Some(found.inode),
            dir::EntrySearch::Absent(_) => None,
        }
    }
}

/// The inodes and names of a rename.
struct Rename<'a> {
    context: &'a RequestContext,
    from: &'a RenameEnd<'a>,
    to: &'a RenameEnd<'a>,
    source: &'a Arc<Inode>,
    target: Option<&'a Arc<Inode>>,
    flags: RenameFlags,
}

/// The locked parents of a file that moves.
enum ParentLocks<'a> {
    Both {
        _both: [Option<RwLockWriteGuard<'a, ()>>; 2],
    },
    NewName {
        _leaf: dir::LeafLock<'a>,
        _new: RwLockReadGuard<'a, ()>,
        _old: RwLockWriteGuard<'a, ()>,
    },
}

/// An inode that has lost a name, perhaps its last.
enum Replaced {
    Nothing,
    Inode(Arc<Inode>),
}

impl Engine {
    pub(crate) fn do_rename(
        &self,
        context: &RequestContext,
        parent: drystone_vfs::InodeNumber,
        name: &[u8],
        new_parent: drystone_vfs::InodeNumber,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        if flags.contains(RenameFlags::EXCHANGE)
            && flags.intersects(RenameFlags::NO_REPLACE | RenameFlags::WHITEOUT)
        {
            return Err(Errno::EINVAL.into());
        }
        let old_directory = self.searchable(context, parent)?;
        let other = match new_parent == parent {
            true => None,
            false => Some(self.searchable(context, new_parent)?),
        };
        check_names(name, new_name, flags)?;
        let from = RenameEnd { directory: &old_directory, name };
        let to = RenameEnd { directory: other.as_ref().unwrap_or(&old_directory), name: new_name };
        let replaced = loop {
            match self.try_rename(context, &from, &to, flags)? {
                Some(replaced) => break replaced,
                // A name got another meaning before the directories were locked.
                None => continue,
            }
        };
        if let Replaced::Inode(inode) = replaced {
            self.delete_or_leave(&inode);
        }
        Ok(())
    }

    /// One attempt. `None` if the names got another meaning meanwhile.
    fn try_rename(
        &self,
        context: &RequestContext,
        from: &RenameEnd<'_>,
        to: &RenameEnd<'_>,
        flags: RenameFlags,
    ) -> Result<Option<Replaced>> {
        if let Some(replaced) = self.rename_file(context, from, to, flags)? {
            return Ok(Some(replaced));
        }
        let source = self.find_in(from.directory, from.name)?;
        let target = match self.find_in(to.directory, to.name) {
            Ok(target) => Some(target),
            Err(Error::Errno(Errno::ENOENT)) => None,
            Err(error) => return Err(error),
        };
        check_target(flags, target.is_some())?;
        let rename = Rename { context, from, to, source: &source, target: target.as_ref(), flags };
        let rename_lock = rename.could_close_a_cycle().then(|| self.rename.lock());
        if rename_lock.is_some() {
            rename.check_no_cycle(self)?;
        }
        let _locks = lock_in_order(rename.directories());
        self.write_before_replacing(&source, target.as_ref(), flags)?;
        let _target = target
            .as_ref()
            .filter(|target| !target.is_directory())
            .map(|target| target.content().write());
        let spots = EntryPositions::find(self, from, to)?;
        // A number may be that of another inode by now.
        let is_stale = |inode: &Arc<Inode>| inode.is_dropped();
        if spots.from.as_ref().map(|found| found.inode) != Some(source.number)
            || spots.target() != target.as_ref().map(|target| target.number)
            || is_stale(&source)
            || target.as_ref().is_some_and(is_stale)
        {
            return Ok(None);
        }
        rename.run(self, spots).map(Some)
    }

    /// The usual case, in which one search under the locks is enough. `None` if the source or the target
    /// is a directory.
    fn rename_file(
        &self,
        context: &RequestContext,
        from: &RenameEnd<'_>,
        to: &RenameEnd<'_>,
        flags: RenameFlags,
    ) -> Result<Option<Replaced>> {
        let (_locks, spots) = self.lock_parents(context, from, to, flags)?;
        let source = self.inode(spots.from.as_ref().ok_or(Errno::ENOENT)?.inode)?;
        let target = spots.target().map(|number| self.inode(number)).transpose()?;
        check_target(flags, target.is_some())?;
        if source.is_directory() || target.as_ref().is_some_and(|target| target.is_directory()) {
            return Ok(None);
        }
        self.write_before_replacing(&source, target.as_ref(), flags)?;
        let _target = target.as_ref().map(|target| target.content().write());
        let rename = Rename { context, from, to, source: &source, target: target.as_ref(), flags };
        rename.run(self, spots).map(Some)
    }

    /// Locks both parents, or of the new one only the new name, and finds the names.
    fn lock_parents<'a>(
        &'a self,
        context: &RequestContext,
        from: &RenameEnd<'a>,
        to: &RenameEnd<'a>,
        flags: RenameFlags,
    ) -> Result<(ParentLocks<'a>, EntryPositions)> {
        let (old, new) = (from.directory, to.directory);
        if old.number != new.number
            && !flags.contains(RenameFlags::EXCHANGE)
            && new.flags().contains(InodeFlags::INDEX)
        {
            let first = (old.number < new.number).then(|| old.content().write());
            let shared = new.content().read();
            let old_content = first.unwrap_or_else(|| old.content().write());
            let is_there = EntryPositions::find_old(self, from, to)?.ok_or(Errno::ENOENT)?;
            let source = self.inode(is_there.inode)?;
            // A leaf is only split for a new name, and if nothing but space can be missing.
            let renamed = Rename { context, from, to, source: &source, target: None, flags };
            if !source.is_directory()
                && let Some((_, search, leaf)) =
                    dir::lock_leaf_with_room(self, context, new, to.name, |_| renamed.check(self))?
            {
                let locks = ParentLocks::NewName { _leaf: leaf, _new: shared, _old: old_content };
                return Ok((locks, EntryPositions { from: Some(is_there), to: search }));
            }
        }
        let locks = ParentLocks::Both { _both: lock_in_order([old, new]) };
        Ok((locks, EntryPositions::find(self, from, to)?))
    }

    /// Writes waiting data before its file replaces another, or each the other: a program that replaces a
    /// file expects the old or the new content after a crash, not an empty file.
    fn write_before_replacing(
        &self,
        source: &Arc<Inode>,
        target: Option<&Arc<Inode>>,
        flags: RenameFlags,
    ) -> Result<()> {
        let Some(target) = target else { return Ok(()) };
        let other = flags.contains(RenameFlags::EXCHANGE).then_some(target);
        for inode in [source].into_iter().chain(other) {
            if inode.delayed.is_any() {
                let _content = inode.content().write();
                file::flush(self, inode)?;
            }
        }
        Ok(())
    }

    /// True if `candidate` is `directory` or above it. The rename lock is held.
    fn is_ancestor(&self, candidate: InodeNumber, directory: &Arc<Inode>) -> Result<bool> {
        let mut here = Arc::clone(directory);
        // A damaged image may hold a cycle. Then the walk comes back to the directory that it passed
        // when the number of steps was last a power of two.
        let mut passed = None;
        for step in 1_u64.. {
            if passed == Some(here.number) {
                break;
            }
            if step.is_power_of_two() {
                passed = Some(here.number);
            }
            if here.number == candidate {
                return Ok(true);
            }
            if here.number == InodeNumber::ROOT {
                return Ok(false);
            }
            let parent = {
                let _content = here.content().read();
                // Only one that has a name keeps its parent.
                here.check_linked()?;
                self.inode(dir::parent(self, &here)?)?
            };
            parent.check_directory()?;
            here = parent;
        }
        Err(Corrupt::DirectoryLoop { inode: directory.number }.into())
    }
}

impl<'a> Rename<'a> {
    fn is_exchange(&self) -> bool {
        self.flags.contains(RenameFlags::EXCHANGE)
    }

    fn changes_parent(&self) -> bool {
        self.from.directory.number != self.to.directory.number
    }

    /// The target if it is a directory.
    fn target_directory(&self) -> Option<&'a Arc<Inode>> {
        self.target.filter(|target| target.is_directory())
    }

    /// Whether a directory gets another parent. A directory that a file is to replace counts too: which
    /// error the caller gets depends on whether the file is below it.
    fn could_close_a_cycle(&self) -> bool {
        self.changes_parent() && (self.source.is_directory() || self.target_directory().is_some())
    }

    /// Fails if a directory would come to be below itself. The rename lock is held.
    fn check_no_cycle(&self, fs: &Engine) -> Result<()> {
        let source = self.source;
        if source.is_directory() && fs.is_ancestor(source.number, self.to.directory)? {
            return Err(Errno::EINVAL.into());
        }
        if let Some(target) = self.target_directory()
            && fs.is_ancestor(target.number, self.from.directory)?
        {
            let errno = if self.is_exchange() { Errno::EINVAL } else { Errno::ENOTEMPTY };
            return Err(errno.into());
        }
        Ok(())
    }

    /// The directories that have to be locked; some may be in it twice.
    fn directories(&self) -> [&'a Arc<Inode>; 4] {
        let (from, to) = (self.from.directory, self.to.directory);
        let source = if self.source.is_directory() { self.source } else { from };
        [from, to, source, self.target_directory().unwrap_or(to)]
    }
}

/// Checks what the flags demand of the new name.
fn check_target(flags: RenameFlags, is_there: bool) -> Result<()> {
    if flags.contains(RenameFlags::NO_REPLACE) && is_there {
        return Err(Errno::EEXIST.into());
    }
    if flags.contains(RenameFlags::EXCHANGE) && !is_there {
        return Err(Errno::ENOENT.into());
    }
    Ok(())
}

/// Locks directories exclusively, each once, in the order of their numbers.
fn lock_in_order<const N: usize>(
    mut directories: [&Arc<Inode>; N],
) -> [Option<RwLockWriteGuard<'_, ()>>; N] {
    directories.sort_unstable_by_key(|inode| inode.number);
    let mut locked = None;
    directories.map(|inode| {
        let is_new = locked.replace(inode.number) != Some(inode.number);
        is_new.then(|| inode.content().write())
    })
}

fn check_names(name: &[u8], new_name: &[u8], flags: RenameFlags) -> Result<()> {
    for name in [name, new_name] {
        if name.len() > NAME_LENGTH_MAX {
            return Err(Errno::ENAMETOOLONG.into());
        }
    }
    let is_dots = |name: &[u8]| matches!(name, b"." | b"..");
    if is_dots(name) {
        return Err(Errno::EBUSY.into());
    }
    if is_dots(new_name) {
        let keeps = flags.contains(RenameFlags::NO_REPLACE);
        return Err(if keeps { Errno::EEXIST } else { Errno::EBUSY }.into());
    }
    check_name(new_name)?;
    Ok(())
}
