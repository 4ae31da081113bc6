//! Adding names: of new inodes, and of inodes that have names already.
//!
//! # Locking
//! The name, as [`dir::lock_new_name`] locks it. A new directory changes its parent's link count, so it locks
//! all of the parent. A link locks its inode as well: whether the inode is on the orphan record is decided
//! under that lock.
//!
//! # Crash
//! Each operation is one handle. An inode that is made without a name is put on the orphan record in it.

use super::Engine;
use super::links;
use super::new_inode::NewInode;
use crate::alloc::with_space_retry;
use crate::error::Result;
use crate::inode::{Inode, InodeSummary};
use crate::{credits, dir, file, permission};
use drystone_ext4_format::inode::InodeFlags;
use drystone_jbd2::Handle;
use drystone_sync::Arc;
use drystone_vfs::{
    Capabilities, DeviceNumber, Entry, Errno, FileType, NewNode, PATH_LENGTH_MAX, RequestContext,
    check_name,
};

/// Where a new name goes.
struct NewName<'a> {
    directory: &'a Inode,
    name: &'a [u8],
    /// The room that a search has found for it.
    vacancy: Option<&'a dir::Vacancy>,
}

impl Engine {
    pub(crate) fn do_create(
        &self,
        context: &RequestContext,
        parent: drystone_vfs::InodeNumber,
        name: &[u8],
        node: NewNode<'_>,
        permissions: u16,
    ) -> Result<Entry> {
        check_name(name)?;
        if let NewNode::Symlink(target) = node {
            check_target(target)?;
        }
        let directory = self.searchable(context, parent)?;
        let is_directory = node.file_type() == FileType::Directory;
        // All that can fail without need for space comes before a leaf is split.
        let may_add = |summary: &InodeSummary| {
            self.check_may_add(context, &directory, summary)?;
            self.check_node(context, &node)?;
            if is_directory { links::check_room(self, &directory) } else { Ok(()) }
        };
        let locked = match is_directory {
            true => dir::lock_new_name_alone(self, &directory, name, may_add)?,
            false => dir::lock_new_name(self, context, &directory, name, may_add)?,
        };
        let vacancy = locked.vacancy()?;
        let summary = locked.summary;
        let plan = NewInode::plan(self, context, &directory, &summary, &node, permissions)?;
        let made = with_space_retry(&self.volume, || {
            let mut handle = self.volume.start(credits::CREATE)?;
            let inode = match plan.make(self, &mut handle, if is_directory { 2 } else { 1 }) {
                Ok(inode) => inode,
                Err(error) => return self.settle(handle, Err(error)),
            };
            let place = NewName { directory: &directory, name, vacancy };
            let filled = plan
                .apply_acls(self, &mut handle, &inode)
                .and_then(|()| self.fill(context, &mut handle, place, &inode, &node));
            self.finish_making(handle, inode, filled)
        });
        let inode = made.inspect_err(|_| dir::forget_name(&directory, name))?;
        dir::remember_added(&directory, &summary, name, inode.number);
        Ok(self.entry(&inode))
    }

    /// Gives a new inode its content and its name.
    fn fill(
        &self,
        context: &RequestContext,
        handle: &mut Handle<'_>,
        place: NewName<'_>,
        inode: &Arc<Inode>,
        node: &NewNode<'_>,
    ) -> Result<()> {
        let NewName { directory, name, vacancy } = place;
        match node {
            NewNode::Directory => dir::initialise(self, context, handle, inode, directory.number)?,
            NewNode::Symlink(target) => file::write_link(self, context, handle, inode, target)?,
            _ => {}
        }
        dir::add(self, context, handle, directory, name, inode, vacancy)?;
        if inode.is_directory() {
            directory.update(self, handle, |fields| {
                links::add_subdirectory(fields);
                Ok(())
            })?;
        }
        directory.stamp_names(self, handle)
    }

    /// Ends the handle of a new inode. If `made` failed and left no trace, the inode is recorded as an
    /// orphan and freed.
    fn finish_making(
        &self,
        mut handle: Handle<'_>,
        inode: Arc<Inode>,
        made: Result<()>,
    ) -> Result<Arc<Inode>> {
        match made {
            Err(error) if error.leaves_no_trace() => {
                let abandoned = self.orphans.abandon(self, &mut handle, &inode);
                self.settle(handle, abandoned)?;
                self.delete_or_leave(&inode);
                Err(error)
            }
            made => self.settle(handle, made.map(|()| inode)),
        }
    }

    pub(crate) fn do_create_unnamed(
        &self,
        context: &RequestContext,
        parent: drystone_vfs::InodeNumber,
        permissions: u16,
    ) -> Result<Entry> {
        let directory = self.held(parent)?;
        directory.check_directory()?;
        let _content = directory.content().read();
        directory.check_linked()?;
        let summary = directory.summary();
        self.check_may_add(context, &directory, &summary)?;
        let node = NewNode::Regular;
        let plan = NewInode::plan(self, context, &directory, &summary, &node, permissions)?;
        let inode = with_space_retry(&self.volume, || {
            let mut handle = self.volume.start(credits::CREATE)?;
            let inode = match plan.make(self, &mut handle, 0) {
                Ok(inode) => inode,
                Err(error) => return self.settle(handle, Err(error)),
            };
            let recorded = plan
                .apply_acls(self, &mut handle, &inode)
                .and_then(|()| self.orphans.add(self, &mut handle, &inode));
            inode.set_linkable(true);
            self.finish_making(handle, inode, recorded)
        })?;
        Ok(self.entry(&inode))
    }

    pub(crate) fn do_link(
        &self,
        context: &RequestContext,
        number: drystone_vfs::InodeNumber,
        parent: drystone_vfs::InodeNumber,
        name: &[u8],
    ) -> Result<Entry> {
        check_name(name)?;
        let directory = self.searchable(context, parent)?;
        let inode = self.held(number)?;
        // Before a leaf is split, too.
        let may_add = |summary: &InodeSummary| {
            self.check_may_add(context, &directory, summary)?;
            check_may_link(&directory, &inode)
        };
        let locked = dir::lock_new_name(self, context, &directory, name, may_add)?;
        let vacancy = locked.vacancy()?;
        let _content = inode.content().write();
        check_may_link(&directory, &inode)?;
        dir::forget_name(&directory, name);
        with_space_retry(&self.volume, || {
            let mut handle = self.volume.start(credits::CREATE)?;
            let place = NewName { directory: &directory, name, vacancy };
            let linked = self.add_name(context, &mut handle, place, &inode);
            self.settle(handle, linked)
        })?;
        inode.set_linkable(false);
        dir::remember(&directory, name, inode.number);
        Ok(self.entry(&inode))
    }

    fn add_name(
        &self,
        context: &RequestContext,
        handle: &mut Handle<'_>,
        place: NewName<'_>,
        inode: &Arc<Inode>,
    ) -> Result<()> {
        let NewName { directory, name, vacancy } = place;
        dir::add(self, context, handle, directory, name, inode, vacancy)?;
        if inode.fields().disk.links_count == 0 {
            self.orphans.remove(self, handle, inode)?;
        }
        let now = self.now();
        inode.update(self, handle, |fields| {
            fields.disk.links_count += 1;
            fields.disk.change_time = now;
            Ok(())
        })?;
        directory.stamp_names(self, handle)
    }

    /// Checks the type of a new inode. A whiteout needs no capability.
    fn check_node(&self, context: &RequestContext, node: &NewNode<'_>) -> Result<()> {
        match node {
            NewNode::CharacterDevice(device) if *device == DeviceNumber::default() => Ok(()),
            NewNode::CharacterDevice(_) | NewNode::BlockDevice(_)
                if !context.has(Capabilities::MAKE_NODE) =>
            {
                Err(Errno::EPERM.into())
            }
            NewNode::CharacterDevice(device) | NewNode::BlockDevice(device)
                if !device.is_valid() =>
            {
                Err(Errno::EINVAL.into())
            }
            NewNode::Symlink(target) if target.len() > file::link_length_max(self) => {
                Err(Errno::ENAMETOOLONG.into())
            }
            _ => Ok(()),
        }
    }

    /// Checks that `directory`, whose content lock is held, may get a new name.
    pub(super) fn check_may_add(
        &self,
        context: &RequestContext,
        directory: &Inode,
        summary: &InodeSummary,
    ) -> Result<()> {
        permission::check_add(self, context, directory, summary)?;
        self.volume.check_writable()?;
        if summary.flags.contains(InodeFlags::ENCRYPT) {
            return Err(Errno::ENOKEY.into());
        }
        Ok(())
    }
}

/// Checks the target of a new symbolic link.
fn check_target(target: &[u8]) -> Result<()> {
    match target {
        [] => Err(Errno::ENOENT.into()),
        _ if target.len() > PATH_LENGTH_MAX => Err(Errno::ENAMETOOLONG.into()),
        _ if target.contains(&0) => Err(Errno::EINVAL.into()),
        _ => Ok(()),
    }
}

/// Checks that an inode may get another name, in `directory`. That lasts only if the inode's content lock is held.
fn check_may_link(directory: &Inode, inode: &Inode) -> Result<()> {
    if inode.is_directory() || inode.flags().intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND)
    {
        return Err(Errno::EPERM.into());
    }
    inode.check_linkable()?;
    if inode.links_count() >= links::LINKS_MAX {
        return Err(Errno::EMLINK.into());
    }
    check_same_project(directory, inode)
}

/// A tree whose space counts to one project takes no links to inodes of another.
pub(super) fn check_same_project(directory: &Inode, inode: &Inode) -> Result<()> {
    // An inode without room for the number has none.
    let project_of = |inode: &Inode| inode.view().project_if_any().unwrap_or(0);
    // Without a lock: many threads may look at one directory.
    if directory.flags().contains(InodeFlags::PROJECT_INHERIT)
        && project_of(inode) != project_of(directory)
    {
        return Err(Errno::EXDEV.into());
    }
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Ext4;
    use crate::error::Error;
    use crate::testing::TestImage;
    use drystone_blockdev::DeviceError;
    use drystone_vfs::FileSystem;

    const NAME: &[u8] = b"half";

    /// Creates a file that has its name when `error` ends the creation.
    fn create_and_fail(fs: &Ext4, error: Error) -> Result<Arc<Inode>> {
        let context = RequestContext::superuser();
        let node = NewNode::Regular;
        let directory = fs.held(fs.root())?;
        let _content = directory.content().write();
        let summary = directory.summary();
        let plan = NewInode::plan(fs, &context, &directory, &summary, &node, 0o644)?;
        let mut handle = fs.volume.start(credits::CREATE)?;
        let inode = plan.make(fs, &mut handle, 1)?;
        let place = NewName { directory: &directory, name: NAME, vacancy: None };
        fs.fill(&context, &mut handle, place, &inode, &node)?;
        fs.finish_making(handle, inode, Err(error))
    }

    /// The name can't be taken back, so it must not become durable, with its inode freed or not.
    #[test]
    fn a_create_that_failed_half_way_is_not_committed() {
        let Some(image) = TestImage::new("default", 16) else { return };
        let fs = image.open();
        let created = create_and_fail(&fs, DeviceError::ReadOnly.into());
        assert!(matches!(created, Err(Error::Device(_))), "{created:?}");
        assert!(fs.volume.journal.is_aborted());
        assert!(fs.sync().is_err());
        assert!(fs.close().is_err());
        drop(fs);
        let fs = image.open();
        let found = fs.lookup(&RequestContext::superuser(), fs.root(), NAME);
        assert_eq!(found.unwrap_err().errno, Errno::ENOENT);
        fs.close().unwrap();
        image.check("after a create that failed half way");
    }

    /// What is sure to fail splits no leaf, for which there may be no space.
    #[test]
    fn a_refused_name_gets_its_own_error_on_a_full_disk() {
        let Some(image) = TestImage::new("default", 16) else { return };
        let fs = image.open();
        let context = RequestContext::superuser();
        let make = |parent, name: &[u8], node| {
            fs.create(&context, parent, name, node, 0o777).map(|made| made.inode)
        };
        let directory = make(fs.root(), b"directory", NewNode::Directory).unwrap();
        let file = make(fs.root(), b"file", NewNode::Regular).unwrap();
        let link = |number: u32| {
            let name = format!("{number:0250}").into_bytes();
            let linked = fs.link(&context, file, directory, &name);
            linked.inspect(|_| fs.forget(file, 1)).map_err(|error| (name, error.errno))
        };
        for number in 0..1000 {
            link(number).unwrap();
        }
        crate::testing::fill(&fs);
        // The leaf of this name is full.
        let (name, errno) = (1000..).find_map(|number| link(number).err()).unwrap();
        assert_eq!(errno, Errno::ENOSPC);
        let errno = |made: drystone_vfs::Result<Entry>| made.unwrap_err().errno;
        let user = RequestContext::user(1000, 1000, Vec::new());
        let device = NewNode::BlockDevice(DeviceNumber { major: 8, minor: 1 });
        assert_eq!(errno(fs.create(&user, directory, &name, device, 0o600)), Errno::EPERM);
        let target = vec![b'x'; crate::file::link_length_max(&fs) + 1];
        if target.len() <= PATH_LENGTH_MAX {
            let node = NewNode::Symlink(&target);
            assert_eq!(errno(fs.create(&user, directory, &name, node, 0)), Errno::ENAMETOOLONG);
        }
        assert_eq!(errno(fs.link(&context, directory, directory, &name)), Errno::EPERM);
        for inode in [directory, file] {
            fs.forget(inode, 1);
        }
        fs.close().unwrap();
        image.check("after names that were refused");
    }
}
