//! Reads attributes for `stat`, and changes them for `chmod`, `chown`, `utimes`, `truncate` and `chattr`.

use super::Operations;
use crate::error::Result;
use crate::inode::{Inode, Record};
use crate::permission::{self, CHANGEABLE};
use drystone_nilfs2_format::FileBlock;
use drystone_sync::Arc;
use drystone_vfs::permission::set_id_lost;
use drystone_vfs::{
    DeviceNumber, Errno, FileFlags, FileType, InodeAttributes, InodeNumber, RequestContext,
    SetAttributes, SetTime, Timestamp, mode,
};

/// Units of space in attributes, in bytes.
const SECTOR_BYTES: u64 = 512;

impl Operations<'_> {
    /// What is known of an inode.
    pub(crate) fn attributes_of(&self, inode: &Inode) -> InodeAttributes {
        let fields = inode.fields.lock();
        let record = &fields.record;
        let is_device =
            matches!(inode.file_type, FileType::CharacterDevice | FileType::BlockDevice);
        let (major, minor) = if is_device { record.device() } else { (0, 0) };
        let (mapped, new) = {
            let pages = inode.pages.lock();
            (if pages.is_all_cut() { 0 } else { record.sectors }, pages.new_blocks())
        };
        let modified = Timestamp {
            seconds: record.modification_time_s.cast_signed(),
            nanoseconds: record.modification_time_ns,
        };
        InodeAttributes {
            inode: InodeNumber(inode.number.0),
            generation: record.generation,
            file_type: inode.file_type,
            permissions: record.mode & mode::PERMISSIONS,
            links: u32::from(record.links_count),
            user: record.user,
            group: record.group,
            project: 0,
            size: record.size_bytes,
            sectors: mapped.saturating_add(new * self.volume.block_bytes() as u64 / SECTOR_BYTES),
            block_size: self.volume.block_bytes() as u32,
            device: DeviceNumber { major, minor },
            // Linux, too, shows the time of the last change when it has read an inode.
            accessed: fields.accessed.unwrap_or(modified),
            modified,
            changed: Timestamp {
                seconds: record.change_time_s.cast_signed(),
                nanoseconds: record.change_time_ns,
            },
            created: None,
            flags: permission::flags_of(record),
        }
    }

    pub(crate) fn do_set_attributes(
        &self,
        context: &RequestContext,
        number: InodeNumber,
        changes: &SetAttributes,
    ) -> Result<InodeAttributes> {
        if let Some(size) = changes.size {
            self.warm_truncation(number, size);
        }
        let _inside = self.enter()?;
        let inode = self.held(number)?;
        let _content = inode.content.write();
        self.set_attributes_inside(context, &inode, changes)?;
        Ok(self.attributes_of(&inode))
    }

    /// Reads the nodes that a truncation needs while other changes go on: the log writer waits for a change, and
    /// with it all others. An error shows again in the change.
    fn warm_truncation(&self, number: InodeNumber, size: u64) {
        if self.is_read_only {
            return;
        }
        if let Ok(inode) = self.held(number)
            && inode.file_type == FileType::Regular
            && size < inode.size()
        {
            let cut = FileBlock(size.div_ceil(self.volume.block_bytes() as u64));
            let _ = self.warm_cut(&inode, cut);
        }
    }

    /// Changes attributes of an inode whose content is locked exclusively, inside the gate.
    pub(super) fn set_attributes_inside(
        &self,
        context: &RequestContext,
        inode: &Arc<Inode>,
        changes: &SetAttributes,
    ) -> Result<()> {
        permission::check_set_attributes(context, inode, changes)?;
        if let Some(size) = changes.size {
            match inode.file_type {
                FileType::Regular => {}
                FileType::Directory => return Err(Errno::EISDIR.into()),
                _ => return Err(Errno::EINVAL.into()),
            }
            if i64::try_from(size).is_err() {
                return Err(Errno::EFBIG.into());
            }
        }
        if changes.project.is_some_and(|project| project != 0) {
            return Err(Errno::EOPNOTSUPP.into());
        }
        if let Some(size) = changes.size {
            self.set_size(context, inode, size)?;
        }
        let rest = SetAttributes { size: None, ..*changes };
        if rest == SetAttributes::default() {
            return Ok(());
        }
        let now = self.now();
        self.change(inode, |fields| {
            fields.needs_checkpoint = true;
            if let Some(time) = rest.accessed {
                fields.accessed = Some(time_at(time, now));
            }
            apply(context, &mut fields.record, inode.is_directory(), &rest, now);
        });
        Ok(())
    }

    /// Clears the rest of the block that a size is in, if there is one.
    pub(super) fn clear_behind(&self, inode: &Arc<Inode>, size: u64) -> Result<()> {
        let block_bytes = self.volume.block_bytes() as u64;
        let inside = (size % block_bytes) as usize;
        let last = FileBlock(size / block_bytes);
        if inside > 0 && inode.block(last, self.source())?.is_some() {
            self.edit_block(inode, last, |bytes| bytes[inside..].fill(0))?;
        }
        Ok(())
    }

    /// Cuts or extends a file whose content is locked exclusively.
    fn set_size(&self, context: &RequestContext, inode: &Arc<Inode>, size: u64) -> Result<()> {
        let block_bytes = self.volume.block_bytes() as u64;
        let old = inode.size();
        if size < old {
            let cut = FileBlock(size.div_ceil(block_bytes));
            self.warm_cut(inode, cut)?;
            self.clear_behind(inode, size)?;
            self.cut_off(inode, cut);
        }
        let now = self.now();
        self.change(inode, |fields| {
            fields.needs_checkpoint = true;
            fields.record.size_bytes = size;
            drop_privileges(context, &mut fields.record);
            stamp_content(&mut fields.record, now);
        });
        Ok(())
    }
}

/// Takes away the set-id bits that a change of content does, unless the writer may keep them.
pub(super) fn drop_privileges(context: &RequestContext, record: &mut Record) {
    use drystone_vfs::Capabilities;
    if !context.has(Capabilities::SET_ID) {
        record.mode &= !set_id_lost(context, record.mode, record.group);
    }
}

/// Notes a change of content.
pub(super) fn stamp_content(record: &mut Record, now: Timestamp) {
    record.modification_time_s = now.seconds.cast_unsigned();
    record.modification_time_ns = now.nanoseconds;
    stamp_attributes(record, now);
}

/// Notes a change of attributes.
pub(super) fn stamp_attributes(record: &mut Record, now: Timestamp) {
    record.change_time_s = now.seconds.cast_unsigned();
    record.change_time_ns = now.nanoseconds;
}

fn time_at(time: SetTime, now: Timestamp) -> Timestamp {
    match time {
        SetTime::Now => now,
        SetTime::At(time) => time,
    }
}

fn apply(
    context: &RequestContext,
    record: &mut Record,
    is_directory: bool,
    changes: &SetAttributes,
    now: Timestamp,
) {
    if (changes.user.is_some() || changes.group.is_some()) && !is_directory {
        record.mode &= !set_id_lost(context, record.mode, record.group);
    }
    record.user = changes.user.unwrap_or(record.user);
    record.group = changes.group.unwrap_or(record.group);
    if let Some(permissions) = changes.permissions {
        let mut permissions = permissions & mode::PERMISSIONS;
        if !context.may_set_group_id(record.group) {
            permissions &= !mode::SET_GROUP_ID;
        }
        record.mode = record.mode & !mode::PERMISSIONS | permissions;
    }
    if let Some(flags) = changes.flags {
        let kept = FileFlags::from_bits_retain(record.flags) - CHANGEABLE;
        record.flags = (kept | (flags & CHANGEABLE)).bits();
    }
    if let Some(time) = changes.modified.map(|time| time_at(time, now)) {
        record.modification_time_s = time.seconds.cast_unsigned();
        record.modification_time_ns = time.nanoseconds;
    }
    stamp_attributes(record, changes.changed.unwrap_or(now));
}
