//! Attributes: what `stat` shows, and `chmod`, `chown`, `utimes`, `truncate` and `chattr` change.

use super::Engine;
use crate::alloc::with_space_retry;
use crate::error::Result;
use crate::inode::time;
use crate::inode::{AttributeView, Fields, Inode};
use crate::quota::{self, Owners};
use crate::xattr::{self, ValueGarbage, acl};
use crate::{credits, dir, file, permission};
use drystone_ext4_format::features::{Incompat, ReadOnlyCompat};
use drystone_ext4_format::inode::{InodeFlags, InodeTimestamp};
use drystone_jbd2::Handle;
use drystone_sync::Arc;
use drystone_vfs::permission::set_id_lost;
use drystone_vfs::{
    DeviceNumber, Errno, FileType, InodeAttributes, InodeNumber, RequestContext, SetAttributes,
    SetTime, mode,
};

/// Flags that `lsattr` shows.
const VISIBLE: drystone_vfs::FileFlags = drystone_vfs::FileFlags::all();

/// What was seen of an inode at one time.
pub(crate) struct InodeSnapshot {
    number: drystone_ext4_format::InodeNumber,
    file_type: FileType,
    /// Blocks of data that wait for blocks on the device.
    blocks_waiting: u32,
    view: AttributeView,
}

impl InodeSnapshot {
    #[inline]
    pub fn of(inode: &Inode, view: AttributeView) -> InodeSnapshot {
        let blocks_waiting = if inode.is_written() { inode.delayed.count() } else { 0 };
        InodeSnapshot { number: inode.number, file_type: inode.file_type(), blocks_waiting, view }
    }

    /// Whether the attributes lack a device number, which only the fields have.
    pub fn is_device(&self) -> bool {
        matches!(self.file_type, FileType::CharacterDevice | FileType::BlockDevice)
    }
}

impl Engine {
    /// The attributes of an inode.
    pub(crate) fn attributes_of(&self, inode: &Inode) -> InodeAttributes {
        let seen = InodeSnapshot::of(inode, inode.view());
        let mut attributes = self.attributes_from(&seen);
        if seen.is_device() {
            let device = inode.fields().disk.device();
            attributes.device = device.map_or_else(DeviceNumber::default, |device| DeviceNumber {
                major: device.major,
                minor: device.minor,
            });
        }
        attributes
    }

    /// The attributes from a snapshot, without the number of a device.
    #[inline]
    pub(crate) fn attributes_from(&self, seen: &InodeSnapshot) -> InodeAttributes {
        let InodeSnapshot { number, file_type, view, .. } = seen;
        let waiting = u64::from(seen.blocks_waiting) * self.volume.layout().sectors_per_block();
        InodeAttributes {
            inode: InodeNumber(u64::from(number.get())),
            generation: view.generation(),
            file_type: *file_type,
            permissions: view.mode() & mode::PERMISSIONS,
            links: u32::from(view.links()),
            user: view.user(),
            group: view.group(),
            project: view.project(),
            size: match file_type {
                FileType::Symlink => file::link_length(view.flags(), view.size_bytes()),
                _ => view.size_bytes(),
            },
            sectors: view.sectors() + waiting,
            block_size: self.volume.block_size() as u32,
            device: DeviceNumber::default(),
            accessed: time::shown(view.accessed()),
            modified: time::shown(view.modified()),
            changed: time::shown(view.changed()),
            created: view.created().map(time::shown),
            flags: drystone_vfs::FileFlags::from_bits_truncate(view.flags().bits()) & VISIBLE,
        }
    }

    pub(crate) fn do_set_attributes(
        &self,
        context: &RequestContext,
        inode: &Arc<Inode>,
        changes: &SetAttributes,
    ) -> Result<InodeAttributes> {
        permission::check_set_attributes(self, context, inode, changes)?;
        self.volume.check_writable()?;
        if changes.size.is_some() || changes.user.is_some() || changes.group.is_some() {
            xattr::drop_capability(self, inode)?;
        }
        let mut garbage = ValueGarbage::default();
        let changed = self.set_attributes_locked(context, inode, changes, &mut garbage);
        garbage.dispose(self);
        changed?;
        Ok(self.attributes_of(inode))
    }

    fn set_attributes_locked(
        &self,
        context: &RequestContext,
        inode: &Arc<Inode>,
        changes: &SetAttributes,
        garbage: &mut ValueGarbage,
    ) -> Result<()> {
        if changes.size.is_some() && self.tails.is_full() {
            // Data of other files that can't be written is reported by their next sync.
            let _ = self.done(file::write_back_all(self));
        }
        let _content = inode.content().write();
        check_changes(self, inode, changes)?;
        if let Some(size) = changes.size {
            file::set_size(self, context, inode, size)?;
        }
        let rest = SetAttributes { size: None, ..*changes };
        if rest == SetAttributes::default() {
            return Ok(());
        }
        // A kernel that keeps times itself sends the time of a file's last unlink right after it.
        if only_times(&rest) && inode.update_unlinked(|fields| set_times(fields, &rest, self.now()))
        {
            return Ok(());
        }
        let owners = new_owners(inode, &rest);
        if self.quotas.is_any() && owners != quota::owners(inode) {
            // Blocks that are claimed for the old owners have to be used by them.
            file::flush(self, inode)?;
        }
        self.prepare_quota(owners)?;
        // An access list follows the mode, and usage must not change while its owner changes.
        let _xattrs = inode.xattrs.write();
        let value_inodes = || xattr::value_inodes(self, inode);
        self.quotas.check_owners(self, context, inode, owners, value_inodes)?;
        with_space_retry(&self.volume, || {
            let mut handle = self.volume.start(credits::SET_ATTRIBUTES)?;
            let changed =
                self.change_attributes(context, &mut handle, inode, &rest, owners, garbage);
            self.settle(handle, changed)
        })
    }

    fn change_attributes(
        &self,
        context: &RequestContext,
        handle: &mut Handle<'_>,
        inode: &Arc<Inode>,
        changes: &SetAttributes,
        owners: Owners,
        garbage: &mut ValueGarbage,
    ) -> Result<()> {
        // The one step that can run out of space comes first.
        if let Some(permissions) = changes.permissions {
            acl::change_mode(self, context, handle, inode, permissions, garbage)?;
        }
        let value_inodes = || xattr::value_inodes(self, inode);
        self.quotas.owners_changed(self, handle, inode, owners, value_inodes)?;
        if changes.flags.is_some() {
            dir::forget_all_names(inode);
        }
        let now = self.now();
        let owner_changes = changes.user.is_some() || changes.group.is_some();
        inode.update(self, handle, |fields| {
            if owner_changes && !inode.is_directory() {
                fields.disk.mode &= !set_id_lost(context, fields.disk.mode, fields.disk.group);
            }
            fields.disk.user = owners[0];
            fields.disk.group = owners[1];
            if fields.disk.project.is_some() {
                fields.disk.project = Some(owners[2]);
            }
            if let Some(permissions) = changes.permissions {
                let mut permissions = permissions & mode::PERMISSIONS;
                if !context.may_set_group_id(fields.disk.group) {
                    permissions &= !mode::SET_GROUP_ID;
                }
                fields.disk.mode = fields.disk.mode & !mode::PERMISSIONS | permissions;
            }
            set_times(fields, changes, now);
            if let Some(flags) = changes.flags {
                let kept = fields.disk.flags.bits() & !permission::CHANGEABLE.bits();
                let flags =
                    InodeFlags::from_bits_retain(kept | (flags & permission::CHANGEABLE).bits());
                fields.disk.flags = flags;
            }
            Ok(())
        })
    }
}

/// The owners that an inode will have.
fn new_owners(inode: &Inode, changes: &SetAttributes) -> Owners {
    let [user, group, project] = quota::owners(inode);
    [
        changes.user.unwrap_or(user),
        changes.group.unwrap_or(group),
        changes.project.unwrap_or(project),
    ]
}

fn set_times(fields: &mut Fields, changes: &SetAttributes, now: InodeTimestamp) {
    let at = |time: SetTime| match time {
        SetTime::Now => now,
        SetTime::At(time) => time::stored(time),
    };
    if let Some(time) = changes.accessed {
        fields.disk.access_time = at(time);
    }
    if let Some(time) = changes.modified {
        fields.disk.modification_time = at(time);
    }
    if let Some(time) = changes.created
        && fields.disk.creation_time.is_some()
    {
        fields.disk.creation_time = Some(time::stored(time));
    }
    fields.disk.change_time = changes.changed.map_or(now, time::stored);
}

/// True if nothing else is to be changed.
fn only_times(changes: &SetAttributes) -> bool {
    let SetAttributes { accessed, modified, changed, created, .. } = *changes;
    *changes == SetAttributes { accessed, modified, changed, created, ..SetAttributes::default() }
}

/// Fails for changes that no permission allows.
fn check_changes(fs: &Engine, inode: &Inode, changes: &SetAttributes) -> Result<()> {
    if changes.size.is_some() {
        match inode.file_type() {
            FileType::Regular => {}
            FileType::Directory => return Err(Errno::EISDIR.into()),
            _ => return Err(Errno::EINVAL.into()),
        }
    }
    if let Some(project) = changes.project {
        let stored = inode.fields().disk.project;
        let is_known = fs.volume.features.read_only_compat.contains(ReadOnlyCompat::PROJECT);
        if project != stored.unwrap_or(0) && !is_known {
            return Err(Errno::EOPNOTSUPP.into());
        }
        if project != 0 && stored.is_none() {
            return Err(Errno::EOVERFLOW.into());
        }
    }
    if let Some(flags) = changes.flags {
        // Data never goes through the journal here, so the flag that asks for it is refused.
        let journal_data = drystone_vfs::FileFlags::JOURNAL_DATA;
        if flags.contains(journal_data) && !inode.flags().contains(InodeFlags::JOURNAL_DATA) {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let casefold = flags.contains(drystone_vfs::FileFlags::CASEFOLD);
        if casefold != inode.flags().contains(InodeFlags::CASEFOLD) {
            if !fs.volume.features.incompat.contains(Incompat::CASEFOLD) {
                return Err(Errno::EOPNOTSUPP.into());
            }
            if !inode.is_directory() {
                return Err(Errno::ENOTDIR.into());
            }
            inode.check_linked()?;
            if !dir::is_empty(fs, inode)? {
                return Err(Errno::ENOTEMPTY.into());
            }
        }
    }
    Ok(())
}
