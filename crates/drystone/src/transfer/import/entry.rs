//! Makes an entry of an archive: content, links, special files and attributes.

use super::places::{Missing, split};
use super::{Import, ImportedAttributes, ImportedDirectory};
use crate::replace::{beside, settle};
use crate::transfer::CopyProblem;
use crate::transfer::facts::{
    ACCESS_ACL, permissions_of_other_owner, permissions_without_acl, remove_inherited_acls,
    with_mapped_ids,
};
use crate::transfer::problem::{Cause, LostProperty};
use drystone_sources::input::Input;
use drystone_sources::tar::{DataRun, EntryKind, TarEntry};
use drystone_vfs::{
    Capabilities, DeviceNumber, Errno, FileType, InodeGuard, InodeNumber, NewNode, SetAttributes,
    SetTime, Timestamp, XattrMode,
};
use std::collections::btree_map::Entry as MapEntry;

/// Copied at a time.
const COPY_BYTES: u64 = 1 << 20;

impl Import<'_> {
    /// Puts an entry of the archive into the image.
    pub(super) fn unpack(&mut self, entry: TarEntry) -> drystone_vfs::Result<()> {
        let TarEntry { path, kind, mode, user, group, modified, attributes, .. } = entry;
        let modified = Timestamp { seconds: modified.seconds, nanoseconds: modified.nanoseconds };
        let (user, group) = self.options.owners.owners(user, group);
        let xattrs = with_mapped_ids(attributes, &self.options.owners);
        let attributes = ImportedAttributes { permissions: mode, user, group, modified, xattrs };
        let (above, name) = split(&path);
        let kind = match kind {
            EntryKind::Directory => return self.directory(path, attributes),
            _ if name.is_empty() => return Err(Errno::EISDIR.into()),
            EntryKind::HardLink(target) => return self.link(&target, above, name),
            other => other,
        };
        let parent = self.places.directory_at(above, Missing::AreMade)?;
        self.places.note_name(parent.inode(), name)?;
        let device = |&major, &minor| DeviceNumber { major, minor };
        let node = match &kind {
            EntryKind::Symlink(target) => NewNode::Symlink(target),
            EntryKind::CharacterDevice { major, minor } => {
                NewNode::CharacterDevice(device(major, minor))
            }
            EntryKind::BlockDevice { major, minor } => NewNode::BlockDevice(device(major, minor)),
            EntryKind::Fifo => NewNode::Fifo,
            // The others were taken above.
            EntryKind::File { .. } | EntryKind::Directory | EntryKind::HardLink(_) => {
                NewNode::Regular
            }
        };
        let file_type = node.file_type();
        let make = |name: &[u8]| self.places.make(parent.inode(), name, node);
        let (made_as, made) = beside(name, make)?;
        let completed = self.complete(made.inode(), file_type, &kind, &attributes, &path);
        let (file_system, context) = (self.places.file_system, self.places.context);
        settle(file_system, context, parent.inode(), &made_as, name, completed)?;
        match file_type {
            FileType::Regular => self.summary.files += 1,
            FileType::Symlink => self.summary.symlinks += 1,
            _ => self.summary.special += 1,
        }
        Ok(())
    }

    /// Gives a new inode its content and its attributes.
    fn complete(
        &mut self,
        inode: InodeNumber,
        file_type: FileType,
        kind: &EntryKind,
        attributes: &ImportedAttributes,
        path: &[u8],
    ) -> drystone_vfs::Result<()> {
        if let EntryKind::File { size, runs } = kind {
            self.write(inode, *size, runs)?;
        }
        self.finish(inode, file_type, true, attributes, path)?;
        if file_type == FileType::Regular {
            self.places.file_system.closed(inode);
        }
        Ok(())
    }

    /// Makes a directory, or takes the one that is there.
    fn directory(
        &mut self,
        path: Vec<u8>,
        attributes: ImportedAttributes,
    ) -> drystone_vfs::Result<()> {
        let (above, name) = split(&path);
        let mut is_new = false;
        if !name.is_empty() {
            let parent = self.places.directory_at(above, Missing::AreMade)?;
            self.places.note_name(parent.inode(), name)?;
            let found = self.places.look_up(parent.inode(), name)?;
            if found.is_none_or(|found| found.attributes().file_type != FileType::Directory) {
                self.places.new_directory(parent.inode(), name)?;
                is_new = true;
            }
        }
        match self.directories.entry(path) {
            MapEntry::Vacant(place) => {
                self.summary.directories += 1;
                place.insert(ImportedDirectory { is_new, attributes });
            }
            MapEntry::Occupied(mut earlier) => {
                let is_new = is_new || earlier.get().is_new;
                earlier.insert(ImportedDirectory { is_new, attributes });
            }
        }
        Ok(())
    }

    fn link(&mut self, target: &[u8], above: &[u8], name: &[u8]) -> drystone_vfs::Result<()> {
        let (target_above, target_name) = split(target);
        let holder = self.places.directory_at(target_above, Missing::AreErrors)?;
        self.places.note_name(holder.inode(), target_name)?;
        let missing = || {
            let target = self.full_path(target);
            let detail = format!("a hard link to '{}', which isn't there", target.display());
            drystone_vfs::Error::with_detail(Errno::ENOENT, detail)
        };
        let original = self.places.look_up(holder.inode(), target_name)?.ok_or_else(missing)?;
        if original.attributes().file_type == FileType::Directory {
            let detail =
                format!("a hard link to '{}', a directory", self.full_path(target).display());
            return Err(drystone_vfs::Error::with_detail(Errno::EPERM, detail));
        }
        let parent = self.places.directory_at(above, Missing::AreMade)?;
        self.places.note_name(parent.inode(), name)?;
        let there = self.places.look_up(parent.inode(), name)?;
        if there.is_none_or(|there| there.inode() != original.inode()) {
            let (file_system, context) = (self.places.file_system, self.places.context);
            let link = |name: &[u8]| {
                let linked = file_system.link(context, original.inode(), parent.inode(), name)?;
                Ok(InodeGuard::new(file_system, linked))
            };
            let (linked_as, _) = beside(name, link)?;
            settle(file_system, context, parent.inode(), &linked_as, name, Ok(()))?;
        }
        self.summary.hard_links += 1;
        Ok(())
    }

    fn write(
        &mut self,
        file: InodeNumber,
        size: u64,
        runs: &[DataRun],
    ) -> drystone_vfs::Result<()> {
        let (file_system, context) = (self.places.file_system, self.places.context);
        let mut buffer = Vec::new();
        for run in runs {
            let mut done = 0;
            while done < run.length {
                if self.monitor.is_cancelled() {
                    return Err(Errno::EINTR.into());
                }
                let length = (run.length - done).min(COPY_BYTES);
                buffer.resize(length as usize, 0);
                self.archive.input.read_at(run.position + done, &mut buffer).map_err(|error| {
                    let detail = format!("the archive can't be read: {error}");
                    drystone_vfs::Error::with_detail(Errno::EIO, detail)
                })?;
                file_system.write_all(context, file, run.offset + done, &buffer)?;
                done += length;
                self.summary.bytes += length;
                self.monitor.bytes(length);
            }
        }
        let end = runs.last().map_or(0, |run| run.offset + run.length);
        if end < size {
            let changes = SetAttributes { size: Some(size), ..SetAttributes::default() };
            file_system.set_attributes(context, file, &changes)?;
        }
        Ok(())
    }

    /// Gives an inode its attributes. The owner comes first: a new one takes file capabilities away.
    pub(super) fn finish(
        &mut self,
        inode: InodeNumber,
        file_type: FileType,
        is_new: bool,
        attributes: &ImportedAttributes,
        path: &[u8],
    ) -> drystone_vfs::Result<()> {
        let (file_system, context) = (self.places.file_system, self.places.context);
        let ImportedAttributes { mut permissions, user, group, .. } = *attributes;
        if self.options.keep_owners && context.has(Capabilities::CHOWN) {
            let (user, group) = (Some(user), Some(group));
            let changes = SetAttributes { user, group, ..SetAttributes::default() };
            file_system.set_attributes(context, inode, &changes)?;
        } else {
            let made = file_system.attributes(inode)?;
            let own = (made.user, made.group);
            permissions = permissions_of_other_owner(file_type, permissions, (user, group), own);
        }
        let xattrs = match self.options.keep_xattrs {
            true => &attributes.xattrs[..],
            false => &[],
        };
        if is_new {
            remove_inherited_acls(file_system, context, inode, file_type, xattrs)?;
        }
        let mut has_acl = false;
        for (name, value) in xattrs {
            match file_system.set_xattr(context, inode, name, value, XattrMode::Set) {
                Ok(()) => has_acl |= name == ACCESS_ACL,
                Err(error) => self.not_kept(LostProperty::Xattr(name.clone()), path, error)?,
            }
        }
        if !has_acl {
            permissions = permissions_without_acl(permissions, &attributes.xattrs);
        }
        let permissions = (file_type != FileType::Symlink).then_some(permissions);
        let modified = Some(SetTime::At(attributes.modified));
        let changes = SetAttributes { permissions, modified, ..SetAttributes::default() };
        file_system.set_attributes(context, inode, &changes)?;
        Ok(())
    }

    /// Reports what an entry lacks. Fails unless the entry is of use without it.
    fn not_kept(
        &mut self,
        lost: LostProperty,
        path: &[u8],
        error: drystone_vfs::Error,
    ) -> drystone_vfs::Result<()> {
        let cause = Cause::from(error.clone());
        let is_warning = cause.is_unsupported();
        if is_warning {
            self.summary.not_kept += 1;
        } else if cause.is_too_large() {
            self.summary.failed += 1;
        } else {
            return Err(error);
        }
        let problem = self.problem(lost.action(), path, error);
        self.monitor.problem(&CopyProblem { is_warning, ..problem });
        Ok(())
    }
}
