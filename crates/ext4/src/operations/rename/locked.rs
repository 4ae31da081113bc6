//! What a rename checks and changes once all its inodes are locked.

use super::{EntryPositions, Rename, Replaced};
use crate::alloc::with_space_retry;
use crate::error::Result;
use crate::inode::Inode;
use crate::operations::Engine;
use crate::operations::create::check_same_project;
use crate::operations::links;
use crate::operations::new_inode::NewInode;
use crate::{credits, dir, permission};
use drystone_ext4_format::inode::InodeFlags;
use drystone_jbd2::Handle;
use drystone_sync::Arc;
use drystone_vfs::{Access, DeviceNumber, Errno, NewNode, RenameFlags};

impl Rename<'_> {
    pub fn run(&self, fs: &Engine, spots: EntryPositions) -> Result<Replaced> {
        if let Some(target) = self.target
            && target.number == self.source.number
        {
            // Two names of one inode: POSIX says that nothing is done.
            return Ok(Replaced::Nothing);
        }
        self.check(fs)?;
        let whiteout = if self.flags.contains(RenameFlags::WHITEOUT) {
            let node = NewNode::CharacterDevice(DeviceNumber::default());
            let directory = self.from.directory;
            Some(NewInode::plan(fs, self.context, directory, &directory.summary(), &node, 0)?)
        } else {
            None
        };
        let whiteout = whiteout.as_ref();
        // Whiteouts that got no name. They are on the orphan record.
        let mut garbage = Vec::new();
        if let dir::EntrySearch::Absent(_) = spots.to {
            dir::forget_name(self.to.directory, self.to.name);
        }
        let mut spots = Some(spots);
        let done = with_space_retry(&fs.volume, || {
            // A first attempt may have split a leaf, so a second one searches again.
            let spots = match spots.take() {
                Some(spots) => spots,
                None => EntryPositions::find(fs, self.from, self.to)?,
            };
            let mut handle = fs.volume.start(credits::RENAME)?;
            let done = if self.is_exchange() {
                self.exchange(fs, &mut handle, spots)
            } else {
                self.replace(fs, &mut handle, spots, whiteout, &mut garbage)
            };
            fs.settle(handle, done)
        });
        for whiteout in garbage {
            fs.delete_or_leave(&whiteout);
        }
        done?;
        dir::remember(self.to.directory, self.to.name, self.source.number);
        if let Some(target) = self.target
            && self.is_exchange()
        {
            dir::remember(self.from.directory, self.from.name, target.number);
        }
        match self.target {
            Some(target) if !self.is_exchange() => Ok(Replaced::Inode(Arc::clone(target))),
            _ => Ok(Replaced::Nothing),
        }
    }

    /// Checks all rules, in the order in which Linux does.
    pub(super) fn check(&self, fs: &Engine) -> Result<()> {
        let Rename { from, to, source, .. } = self;
        let exchange = self.is_exchange();
        let changes_parent = self.changes_parent();
        let summary = from.directory.summary();
        permission::check_remove(fs, self.context, from.directory, &summary, source)?;
        let summary = to.directory.summary();
        match self.target {
            None => fs.check_may_add(self.context, to.directory, &summary)?,
            Some(target) => {
                permission::check_remove(fs, self.context, to.directory, &summary, target)?;
                if !exchange {
                    check_types(source, target)?;
                }
            }
        }
        fs.volume.check_writable()?;
        if [from, to].iter().any(|place| place.directory.flags().contains(InodeFlags::ENCRYPT)) {
            return Err(Errno::ENOKEY.into());
        }
        let other = self.target.filter(|_| exchange);
        if changes_parent {
            // Their `..` changes.
            for moved in [Some(*source), other].into_iter().flatten() {
                if moved.is_directory() {
                    permission::check(fs, self.context, moved, Access::WRITE)?;
                }
            }
        }
        // As on Linux, also if the names are in one directory.
        check_same_project(to.directory, source)?;
        if let Some(other) = other {
            check_same_project(from.directory, other)?;
        }
        match self.target {
            Some(target) if !exchange && target.is_directory() && !dir::is_empty(fs, target)? => {
                Err(Errno::ENOTEMPTY.into())
            }
            Some(_) if !exchange => Ok(()),
            // The parent that gets one more subdirectory.
            target if changes_parent => {
                let comes_back = target.is_some_and(|target| target.is_directory());
                match (source.is_directory(), comes_back) {
                    (true, false) => links::check_room(fs, to.directory),
                    (false, true) => links::check_room(fs, from.directory),
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn replace(
        &self,
        fs: &Engine,
        handle: &mut Handle<'_>,
        spots: EntryPositions,
        whiteout: Option<&NewInode>,
        garbage: &mut Vec<Arc<Inode>>,
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
                if let Some(whiteout) = whiteout.filter(|_| error.leaves_no_trace()) {
                    fs.orphans.abandon(fs, handle, &whiteout)?;
                    garbage.push(whiteout);
                }
                return Err(error);
            }
        };
        match &whiteout {
            Some(inode) => {
                dir::replace(fs, handle, from.directory, from.name, &old, inode)?;
            }
            None => dir::remove(fs, handle, from.directory, from.name, &old)?,
        }
        if source.is_directory() && self.changes_parent() {
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

    /// Gives the source its new name. Returns where the old name is after that.
    fn name_source(
        &self,
        fs: &Engine,
        handle: &mut Handle<'_>,
        spots: EntryPositions,
    ) -> Result<dir::FoundEntry> {
        let Rename { from, to, source, .. } = self;
        let has_moved = match spots.to {
            dir::EntrySearch::Found(found) => {
                dir::replace(fs, handle, to.directory, to.name, &found, source)?;
                false
            }
            dir::EntrySearch::Absent(vacancy) => {
                dir::add(fs, self.context, handle, to.directory, to.name, source, vacancy.as_ref())?
            }
        };
        let old = match spots.from {
            Some(old) if !has_moved => Some(old),
            _ => dir::entry_named(fs, from.directory, &from.directory.summary(), from.name)?,
        };
        Ok(old.ok_or(Errno::ENOENT)?)
    }

    fn exchange(&self, fs: &Engine, handle: &mut Handle<'_>, spots: EntryPositions) -> Result<()> {
        let Rename { from, to, source, .. } = self;
        let target = self.target.ok_or(Errno::ENOENT)?;
        let (Some(old), dir::EntrySearch::Found(new)) = (spots.from, spots.to) else {
            return Err(Errno::ENOENT.into());
        };
        dir::replace(fs, handle, to.directory, to.name, &new, source)?;
        dir::replace(fs, handle, from.directory, from.name, &old, target)?;
        let (mut gained, mut lost) = (0, 0);
        if self.changes_parent() {
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

    /// Stamps a directory whose names changed, and changes its count of subdirectories.
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

/// A directory may replace only a directory, and only a directory may replace one.
fn check_types(source: &Inode, target: &Inode) -> Result<()> {
    match (source.is_directory(), target.is_directory()) {
        (true, false) => Err(Errno::ENOTDIR.into()),
        (false, true) => Err(Errno::EISDIR.into()),
        _ => Ok(()),
    }
}
