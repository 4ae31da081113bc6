//! Renames: moves, replaces and exchanges names.
//!
//! # Locking
//! A rename that could close a cycle holds the lock of renames, so that only one is under way. Then all
//! directories that it involves are locked by number: both parents, the source and the target. Which
//! these are depends on the names, so it looks, locks, and looks again.

use super::Operations;
use super::attributes::{stamp_attributes, stamp_content};
use super::create::{NAME_BLOCKS, check_room};
use super::read::loop_at;
use crate::directory;
use crate::error::Result;
use crate::inode::{HashedName, Inode, KnownEntry};
use crate::permission;
use drystone_nilfs2_format::InodeNumber;
use drystone_sync::{Arc, RwLockWriteGuard};
use drystone_vfs::{Access, Errno, NAME_LENGTH_MAX, RenameFlags, RequestContext, check_name};

/// One end of a rename.
#[derive(Clone, Copy)]
struct RenameEnd<'a> {
    directory: &'a Arc<Inode>,
    name: HashedName<'a>,
}

impl Operations<'_> {
    pub(crate) fn do_rename(
        &self,
        context: &RequestContext,
        from: (drystone_vfs::InodeNumber, &[u8]),
        to: (drystone_vfs::InodeNumber, &[u8]),
        flags: RenameFlags,
    ) -> Result<()> {
        if flags.intersects(RenameFlags::EXCHANGE | RenameFlags::WHITEOUT) {
            return Err(Errno::EINVAL.into());
        }
        let _inside = self.enter_adding(NAME_BLOCKS)?;
        let old_parent = self.searchable(context, from.0)?;
        let new_parent = self.searchable(context, to.0)?;
        check_names(from.1, to.1, flags)?;
        let from = RenameEnd { directory: &old_parent, name: HashedName::new(from.1) };
        let to = RenameEnd { directory: &new_parent, name: HashedName::new(to.1) };
        let replaced = loop {
            if let Some(replaced) = self.try_rename(context, from, to, flags)? {
                break replaced;
            }
        };
        match replaced {
            Replaced::Inode(inode) => self.delete_if_unused(&inode),
            Replaced::Nothing => Ok(()),
        }
    }

    /// Looks, locks and renames; nothing if the names have changed between the look and the locks.
    fn try_rename(
        &self,
        context: &RequestContext,
        from: RenameEnd<'_>,
        to: RenameEnd<'_>,
        flags: RenameFlags,
    ) -> Result<Option<Replaced>> {
        let source = self.find_in(from.directory, from.name)?;
        let target = match self.find_in(to.directory, to.name) {
            Ok(target) => Some(target),
            Err(crate::Error::Errno(Errno::ENOENT)) => None,
            Err(error) => return Err(error),
        };
        if flags.contains(RenameFlags::NO_REPLACE) && target.is_some() {
            return Err(Errno::EEXIST.into());
        }
        let changes_parent = from.directory.number != to.directory.number;
        let involves_directory =
            source.is_directory() || target.as_ref().is_some_and(|target| target.is_directory());
        let _serial = (changes_parent && involves_directory).then(|| self.rename.lock());
        if source.is_directory() && self.is_ancestor(source.number, to.directory)? {
            return Err(Errno::EINVAL.into());
        }
        if let Some(target) = target.as_ref().filter(|target| target.is_directory())
            && self.is_ancestor(target.number, from.directory)?
        {
            return Err(Errno::ENOTEMPTY.into());
        }
        let mut directories = vec![from.directory, to.directory];
        directories.extend([Some(&source), target.as_ref()].into_iter().flatten());
        directories.retain(|inode| inode.is_directory());
        let _locks = lock_in_order(directories);
        let old = directory::find(from.directory, from.name, self.source())?;
        let new = directory::find(to.directory, to.name, self.source())?;
        let Some(old) = old else { return Ok(None) };
        let is_same_target = match (new, &target) {
            (Some(new), Some(target)) => self.leads_to(new, target)?,
            (new, target) => new.is_none() && target.is_none(),
        };
        if !is_same_target || !self.leads_to(old, &source)? {
            return Ok(None);
        }
        if target.as_ref().is_some_and(|target| target.number == source.number) {
            return Ok(Some(Replaced::Nothing));
        }
        self.check_rename(context, from, to, &source, target.as_ref())?;
        let mut files: Vec<&Arc<Inode>> =
            [Some(&source), target.as_ref()].into_iter().flatten().collect();
        files.retain(|inode| !inode.is_directory());
        let _content = lock_in_order(files);
        if let Some(target) = &target {
            // What deletes it fails before its name is gone.
            self.warm_deletion(target)?;
        }
        self.move_name(from, to, old, new, &source)?;
        Ok(Some(match &target {
            Some(target) => {
                self.drop_name(target);
                Replaced::Inode(Arc::clone(target))
            }
            None => Replaced::Nothing,
        }))
    }

    fn check_rename(
        &self,
        context: &RequestContext,
        from: RenameEnd<'_>,
        to: RenameEnd<'_>,
        source: &Inode,
        target: Option<&Arc<Inode>>,
    ) -> Result<()> {
        permission::check_remove(context, from.directory, source)?;
        match target {
            None => {
                permission::check_add(context, to.directory, &to.directory.fields.lock().record)?;
            }
            Some(target) => {
                permission::check_remove(context, to.directory, target)?;
                match (source.is_directory(), target.is_directory()) {
                    (true, false) => return Err(Errno::ENOTDIR.into()),
                    (false, true) => return Err(Errno::EISDIR.into()),
                    _ => {}
                }
            }
        }
        let changes_parent = from.directory.number != to.directory.number;
        if changes_parent && source.is_directory() {
            // Its `..` changes.
            permission::check(context, source, Access::WRITE)?;
        }
        match target {
            Some(target)
                if target.is_directory() && !directory::is_empty(target, self.source())? =>
            {
                Err(Errno::ENOTEMPTY.into())
            }
            None if changes_parent && source.is_directory() => {
                check_room(&to.directory.fields.lock().record)
            }
            _ => Ok(()),
        }
    }

    /// Everything is read before the first change. An error after that stops the log, so that no half of the
    /// rename is logged.
    fn move_name(
        &self,
        from: RenameEnd<'_>,
        to: RenameEnd<'_>,
        old: KnownEntry,
        new: Option<KnownEntry>,
        source: &Arc<Inode>,
    ) -> Result<()> {
        let changes_parent = from.directory.number != to.directory.number;
        let dot_dot = HashedName::new(b"..");
        directory::locate(from.directory, old, self.source())?;
        let dots = if source.is_directory() && changes_parent {
            let dots = directory::find(source, dot_dot, self.source())?;
            let dots = dots.ok_or_else(|| loop_at(source.number))?;
            directory::locate(source, dots, self.source())?;
            Some(dots)
        } else {
            None
        };
        match new {
            Some(new) => {
                let file_type = source.file_type;
                directory::replace(
                    self.engine,
                    to.directory,
                    to.name,
                    new,
                    source.number,
                    file_type,
                )?;
            }
            None => {
                directory::insert(
                    self.engine,
                    to.directory,
                    to.name,
                    source.number,
                    source.file_type,
                )?;
            }
        }
        let removed = directory::remove(self.engine, from.directory, from.name, old);
        let moved = removed.and_then(|()| match dots {
            Some(dots) => {
                let (parent, file_type) = (to.directory.number, to.directory.file_type);
                directory::replace(self.engine, source, dot_dot, dots, parent, file_type)
            }
            None => Ok(()),
        });
        moved.inspect_err(|error| self.requests.fail(error.clone()))?;
        let now = self.now();
        let is_directory = source.is_directory();
        self.change(from.directory, |fields| {
            fields.needs_checkpoint = true;
            // A directory that was replaced in the same parent goes, too.
            if is_directory && (changes_parent || new.is_some()) {
                fields.record.links_count = fields.record.links_count.saturating_sub(1).max(2);
            }
            stamp_content(&mut fields.record, now);
        });
        self.change(to.directory, |fields| {
            fields.needs_checkpoint = true;
            fields.record.links_count += u16::from(is_directory && changes_parent && new.is_none());
            stamp_content(&mut fields.record, now);
        });
        self.change(source, |fields| {
            fields.needs_checkpoint = true;
            stamp_attributes(&mut fields.record, now);
        });
        Ok(())
    }

    /// Whether `candidate` is `directory` or above it.
    fn is_ancestor(&self, candidate: InodeNumber, directory: &Arc<Inode>) -> Result<bool> {
        let dot_dot = HashedName::new(b"..");
        let mut here = Arc::clone(directory);
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
            here = {
                let _content = here.content.read();
                // Only one that has a name keeps its parent.
                if here.fields.lock().record.links_count == 0 {
                    return Err(Errno::ENOENT.into());
                }
                let dots = directory::find(&here, dot_dot, self.source())?;
                self.inode(dots.ok_or_else(|| loop_at(here.number))?.inode, 0)?
            };
        }
        Err(loop_at(directory.number))
    }
}

/// What a rename took the name of.
enum Replaced {
    Nothing,
    Inode(Arc<Inode>),
}

fn lock_in_order(mut inodes: Vec<&Arc<Inode>>) -> Vec<RwLockWriteGuard<'_, ()>> {
    inodes.sort_by_key(|inode| inode.number);
    inodes.dedup_by_key(|inode| inode.number);
    inodes.into_iter().map(|inode| inode.content.write()).collect()
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
