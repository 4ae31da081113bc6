//! Rename: move, replace, exchange.
//!
//! # Locking
//! A directory that gets another parent could become its own ancestor through two renames at once;
//! so such renames hold the rename lock, under which no directory changes its parent. The walk that
//! looks for a cycle is done then, before directories are locked. After that all directories that
//! take part are locked in the order of their numbers: both parents, the source and the target if
//! they are directories. What the names stand for is looked up before, and again under the locks; only
//! where no directory takes part the parents are locked at once.
//!
//! # Crash
//! One handle. The step that may run out of space, adding the new name, comes first.

use super::links;
use super::namespace::check_same_project;
use crate::alloc::with_space_retry;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::inode::{Inode, NewInode};
use crate::{credits, dir, file, permission};
use drystone_ext4_format::inode::InodeFlags;
use drystone_ext4_format::{Corrupt, InodeNumber};
use drystone_jbd2::Handle;
use drystone_sync::{Arc, RwLockWriteGuard};
use drystone_vfs::{
    Access, DeviceNumber, Errno, NAME_LENGTH_MAX, NewNode, RenameFlags, RequestContext, check_name,
};

/// A name in a locked directory.
struct Place<'a> {
    directory: &'a Arc<Inode>,
    name: &'a [u8],
}

/// Where two names are in their directories. Good as long as no entry moves there.
struct Spots {
    from: Option<dir::Found>,
    to: dir::Search,
}

impl Spots {
    fn find(fs: &Engine, from: &Place<'_>, to: &Place<'_>) -> Result<Spots> {
        let from = dir::find(fs, from.directory, from.name)?;
        // Without the one the other doesn't matter.
        let to = match from {
            Some(_) => dir::search(fs, to.directory, to.name)?,
            None => dir::Search::Absent(None),
        };
        Ok(Spots { from, to })
    }

    /// What the new name stands for.
    fn target(&self) -> Option<InodeNumber> {
        match &self.to {
            dir::Search::Found(found) => Some(found.inode),
            dir::Search::Absent(_) => None,
        }
    }
}

/// One rename under its locks.
struct Rename<'a> {
    context: &'a RequestContext,
    from: &'a Place<'a>,
    to: &'a Place<'a>,
    source: &'a Arc<Inode>,
    target: Option<&'a Arc<Inode>>,
    flags: RenameFlags,
}

impl Engine {
    pub(super) fn do_rename(
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
        let new_directory = self.searchable(context, new_parent)?;
        check_names(name, new_name, flags)?;
        let from = Place { directory: &old_directory, name };
        let to = Place { directory: &new_directory, name: new_name };
        let replaced = loop {
            match self.try_rename(context, &from, &to, flags)? {
                Some(replaced) => break replaced,
                // A name changed its meaning between the look and the locks.
                None => continue,
            }
        };
        match replaced {
            Replaced::Nothing => Ok(()),
            Replaced::Inode(inode) => self.delete_if_unused(&inode),
        }
    }

    /// One attempt; nothing if what the names stand for changed meanwhile.
    fn try_rename(
        &self,
        context: &RequestContext,
        from: &Place<'_>,
        to: &Place<'_>,
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
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        // A directory that is only in the way of a file is looked at too: which error a caller
        // gets depends on whether the file is below it.
        let has_directory =
            source.is_directory() || target.as_ref().is_some_and(|target| target.is_directory());
        let changes_parent = from.directory.number != to.directory.number;
        let needs_walk = changes_parent && has_directory;
        let _rename = needs_walk.then(|| self.rename.lock());
        if needs_walk {
            if source.is_directory() && self.is_ancestor(source.number, to.directory)? {
                return Err(Errno::EINVAL.into());
            }
            if let Some(target) = &target
                && target.is_directory()
                && self.is_ancestor(target.number, from.directory)?
            {
                let errno = if exchange { Errno::EINVAL } else { Errno::ENOTEMPTY };
                return Err(errno.into());
            }
        }
        let mut involved: Vec<&Arc<Inode>> = vec![from.directory, to.directory];
        if source.is_directory() {
            involved.push(&source);
        }
        if let Some(target) = &target
            && target.is_directory()
        {
            involved.push(target);
        }
        let _locks = lock_in_order(&mut involved);
        self.write_before_replacing(&source, target.as_ref())?;
        let _target = target
            .as_ref()
            .filter(|target| !target.is_directory())
            .map(|target| target.content.write());
        let spots = Spots::find(self, from, to)?;
        if spots.from.as_ref().map(|found| found.inode) != Some(source.number)
            || spots.target() != target.as_ref().map(|target| target.number)
        {
            return Ok(None);
        }
        let rename = Rename { context, from, to, source: &source, target: target.as_ref(), flags };
        rename.run(self, spots).map(Some)
    }

    /// The usual case, for which it is enough to look once, under the locks. Nothing if a directory
    /// takes part.
    fn rename_file(
        &self,
        context: &RequestContext,
        from: &Place<'_>,
        to: &Place<'_>,
        flags: RenameFlags,
    ) -> Result<Option<Replaced>> {
        let _locks = lock_in_order(&mut vec![from.directory, to.directory]);
        let spots = Spots::find(self, from, to)?;
        let source = self.inode(spots.from.as_ref().ok_or(Errno::ENOENT)?.inode)?;
        let target = spots.target().map(|number| self.inode(number)).transpose()?;
        check_target(flags, target.is_some())?;
        if source.is_directory() || target.as_ref().is_some_and(|target| target.is_directory()) {
            return Ok(None);
        }
        self.write_before_replacing(&source, target.as_ref())?;
        let _target = target.as_ref().map(|target| target.content.write());
        let rename = Rename { context, from, to, source: &source, target: target.as_ref(), flags };
        rename.run(self, spots).map(Some)
    }

    /// Gives data that waits its blocks before its file takes the place of another: who replaces a file
    /// wants the old or the new content after a crash, not an empty file.
    fn write_before_replacing(
        &self,
        source: &Arc<Inode>,
        target: Option<&Arc<Inode>>,
    ) -> Result<()> {
        if target.is_none() || !source.buffered.is_any() {
            return Ok(());
        }
        let _content = source.content.write();
        file::flush(self, source)
    }

    /// True if `candidate` is `directory` or above it. The rename lock is held.
    fn is_ancestor(&self, candidate: InodeNumber, directory: &Arc<Inode>) -> Result<bool> {
        let mut here = Arc::clone(directory);
        // A damaged image may hold a cycle: then some directory is met again that was passed when
        // the number of steps was last a power of two.
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
                let _content = here.content.read();
                dir::parent(self, &here)?
            };
            here = self.inode(parent)?;
            here.check_directory()?;
        }
        Err(Corrupt::DirectoryLoop { inode: directory.number }.into())
    }
}

/// What lost its last name, perhaps.
enum Replaced {
    Nothing,
    Inode(Arc<Inode>),
}

impl Rename<'_> {
    fn run(&self, fs: &Engine, spots: Spots) -> Result<Replaced> {
        if let Some(target) = self.target
            && target.number == self.source.number
        {
            // Two names of one inode: POSIX asks for nothing to be done.
            return Ok(Replaced::Nothing);
        }
        self.check(fs)?;
        let whiteout = if self.flags.contains(RenameFlags::WHITEOUT) {
            let node = NewNode::CharacterDevice(DeviceNumber::default());
            let directory = self.from.directory;
            Some(NewInode::plan(fs, self.context, directory, &directory.standing(), &node, 0)?)
        } else {
            None
        };
        let whiteout = whiteout.as_ref();
        let mut spots = Some(spots);
        with_space_retry(&fs.volume, || {
            // A second attempt follows one that may have split a leaf.
            let spots = match spots.take() {
                Some(spots) => spots,
                None => Spots::find(fs, self.from, self.to)?,
            };
            let mut handle = fs.volume.start(credits::RENAME)?;
            let done = if self.flags.contains(RenameFlags::EXCHANGE) {
                self.exchange(fs, &mut handle, spots)
            } else {
                self.replace(fs, &mut handle, spots, whiteout)
            };
            fs.settle(handle, done)
        })?;
        dir::learn(self.to.directory, self.to.name, self.source.number);
        if let Some(target) = self.target
            && self.flags.contains(RenameFlags::EXCHANGE)
        {
            dir::learn(self.from.directory, self.from.name, target.number);
        }
        match self.target {
            Some(target) if !self.flags.contains(RenameFlags::EXCHANGE) => {
                Ok(Replaced::Inode(Arc::clone(target)))
            }
            _ => Ok(Replaced::Nothing),
        }
    }

    /// Everything that the rules forbid, in the order in which Linux finds it.
    fn check(&self, fs: &Engine) -> Result<()> {
        let Rename { from, to, source, .. } = self;
        let exchange = self.flags.contains(RenameFlags::EXCHANGE);
        let standing = from.directory.standing();
        permission::check_remove(fs, self.context, from.directory, &standing, source)?;
        let standing = to.directory.standing();
        match self.target {
            None => fs.check_may_add(self.context, to.directory, &standing)?,
            Some(target) => {
                permission::check_remove(fs, self.context, to.directory, &standing, target)?;
                if !exchange {
                    check_types(source, target)?;
                }
            }
        }
        fs.volume.check_writable()?;
        if [from, to].iter().any(|place| place.directory.flags().contains(InodeFlags::ENCRYPT)) {
            return Err(Errno::ENOKEY.into());
        }
        let changes_parent = from.directory.number != to.directory.number;
        if changes_parent {
            // Their `..` changes.
            let other = self.target.filter(|_| exchange);
            for moved in [Some(*source), other].into_iter().flatten() {
                if moved.is_directory() {
                    permission::check(fs, self.context, moved, Access::WRITE)?;
                }
            }
            check_same_project(to.directory, source)?;
            if let Some(other) = other {
                check_same_project(from.directory, other)?;
            }
        }
        match self.target {
            Some(target) if !exchange && target.is_directory() && !dir::is_empty(fs, target)? => {
                Err(Errno::ENOTEMPTY.into())
            }
            None if changes_parent && source.is_directory() => links::check_room(fs, to.directory),
            _ => Ok(()),
        }
    }

    fn replace(
        &self,
        fs: &Engine,
        handle: &mut Handle<'_>,
        spots: Spots,
        whiteout: Option<&NewInode>,
    ) -> Result<()> {
        let Rename { from, to, source, .. } = self;
        let plan = whiteout;
        let whiteout = plan.map(|plan| plan.make(fs, handle, 1)).transpose()?;
        let listed = match plan.zip(whiteout.as_ref()) {
            Some((plan, inode)) => plan.apply_acls(fs, handle, inode),
            None => Ok(()),
        };
        let named = listed.and_then(|()| self.name_source(fs, handle, spots));
        let old = match named {
            Ok(old) => old,
            Err(error) => {
                if let Some(whiteout) = &whiteout {
                    fs.abandon(handle, whiteout)?;
                }
                return Err(error);
            }
        };
        match &whiteout {
            Some(inode) => {
                dir::replace_found(fs, handle, from.directory, from.name, &old, inode)?;
            }
            None => dir::remove_found(fs, handle, from.directory, from.name, &old)?,
        }
        let changes_parent = from.directory.number != to.directory.number;
        if source.is_directory() && changes_parent {
            dir::set_parent(fs, handle, source, to.directory.number)?;
        }
        let gains = source.is_directory();
        let replaces = self.target.is_some_and(|target| target.is_directory());
        let less = gains.then_some(links::remove_subdirectory as fn(&mut _));
        self.touch(fs, handle, from.directory, less)?;
        let more = (gains && !replaces).then_some(links::add_subdirectory as fn(&mut _));
        self.touch(fs, handle, to.directory, more)?;
        self.touch_inode(fs, handle, source)?;
        match self.target {
            Some(target) => links::drop_name(fs, handle, target),
            None => Ok(()),
        }
    }

    /// Gives the source its new name; returns where the old one is then.
    fn name_source(
        &self,
        fs: &Engine,
        handle: &mut Handle<'_>,
        spots: Spots,
    ) -> Result<dir::Found> {
        let Rename { from, to, source, .. } = self;
        let has_moved = match spots.to {
            dir::Search::Found(found) => {
                dir::replace_found(fs, handle, to.directory, to.name, &found, source)?;
                false
            }
            dir::Search::Absent(vacancy) => {
                let (number, file_type) = (source.number, source.file_type());
                dir::begin_change(to.directory, to.name);
                dir::insert_at(fs, handle, to.directory, to.name, number, file_type, vacancy)?
            }
        };
        let old = match spots.from {
            Some(old) if !has_moved => Some(old),
            _ => dir::find(fs, from.directory, from.name)?,
        };
        Ok(old.ok_or(Errno::ENOENT)?)
    }

    fn exchange(&self, fs: &Engine, handle: &mut Handle<'_>, spots: Spots) -> Result<()> {
        let Rename { from, to, source, .. } = self;
        let target = self.target.ok_or(Errno::ENOENT)?;
        let (Some(old), dir::Search::Found(new)) = (spots.from, spots.to) else {
            return Err(Errno::ENOENT.into());
        };
        dir::replace_found(fs, handle, to.directory, to.name, &new, source)?;
        dir::replace_found(fs, handle, from.directory, from.name, &old, target)?;
        let (mut gained, mut lost) = (0, 0);
        if from.directory.number != to.directory.number {
            if source.is_directory() {
                dir::set_parent(fs, handle, source, to.directory.number)?;
                gained += 1;
            }
            if target.is_directory() {
                dir::set_parent(fs, handle, target, from.directory.number)?;
                lost += 1;
            }
        }
        let more = Some(links::add_subdirectory as fn(&mut _));
        let less = Some(links::remove_subdirectory as fn(&mut _));
        let (of_new, of_old) = match gained - lost {
            1 => (more, less),
            -1 => (less, more),
            _ => (None, None),
        };
        self.touch(fs, handle, to.directory, of_new)?;
        self.touch(fs, handle, from.directory, of_old)?;
        self.touch_inode(fs, handle, source)?;
        self.touch_inode(fs, handle, target)
    }

    /// Stamps a directory whose names changed, and counts its subdirectories.
    fn touch(
        &self,
        fs: &Engine,
        handle: &mut Handle<'_>,
        directory: &Inode,
        change: Option<fn(&mut crate::inode::Fields)>,
    ) -> Result<()> {
        if let Some(change) = change {
            directory.update(fs, handle, |fields| {
                change(fields);
                Ok(())
            })?;
        }
        directory.stamp_names(fs, handle)
    }

    /// Stamps an inode that has another name now.
    fn touch_inode(&self, fs: &Engine, handle: &mut Handle<'_>, inode: &Inode) -> Result<()> {
        let now = fs.now();
        inode.update(fs, handle, |fields| {
            fields.disk.change_time = now;
            Ok(())
        })
    }
}

/// What the flags ask of the new name.
fn check_target(flags: RenameFlags, is_there: bool) -> Result<()> {
    if flags.contains(RenameFlags::NO_REPLACE) && is_there {
        return Err(Errno::EEXIST.into());
    }
    if flags.contains(RenameFlags::EXCHANGE) && !is_there {
        return Err(Errno::ENOENT.into());
    }
    Ok(())
}

/// A directory takes the place of directories only, and nothing else takes theirs.
fn check_types(source: &Inode, target: &Inode) -> Result<()> {
    match (source.is_directory(), target.is_directory()) {
        (true, false) => Err(Errno::ENOTDIR.into()),
        (false, true) => Err(Errno::EISDIR.into()),
        _ => Ok(()),
    }
}

/// Locks directories exclusively, each once, in the order of their numbers.
fn lock_in_order<'a>(directories: &mut Vec<&'a Arc<Inode>>) -> Vec<RwLockWriteGuard<'a, ()>> {
    directories.sort_by_key(|inode| inode.number);
    directories.dedup_by_key(|inode| inode.number);
    directories.iter().map(|inode| inode.content.write()).collect()
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
