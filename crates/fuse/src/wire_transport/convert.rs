//! Values of the interface in the protocol's layouts, and back.

use crate::operations::{EntryReply, NodeAttributes, encode_device};
use crate::wire::{
    self, AttributesOut, EntryOut, OpenOut, SetAttributesIn, StatxOut, StatxTime, TimeChange,
    open_reply_flags, set_valid, statx_mask,
};
use drystone_vfs::{FileType, InodeAttributes, SetAttributes, SetTime, Timestamp};

/// The type bits of a mode, as a listing shows them.
const TYPE_SHIFT: u32 = 12;

pub(super) fn type_number(file_type: Option<FileType>) -> u32 {
    file_type.map_or(0, |file_type| u32::from(file_type.mode_bits()) >> TYPE_SHIFT)
}

fn node_attributes(attributes: &InodeAttributes) -> wire::NodeAttributes {
    wire::NodeAttributes {
        inode: attributes.inode.0,
        size: attributes.size,
        sectors: attributes.sectors,
        accessed: attributes.accessed.seconds,
        modified: attributes.modified.seconds,
        changed: attributes.changed.seconds,
        accessed_nanoseconds: attributes.accessed.nanoseconds,
        modified_nanoseconds: attributes.modified.nanoseconds,
        changed_nanoseconds: attributes.changed.nanoseconds,
        mode: u32::from(attributes.mode()),
        links: attributes.links,
        user: attributes.user,
        group: attributes.group,
        device: encode_device(attributes.device),
        block_size: attributes.block_size,
        flags: 0,
    }
}

pub(super) fn attributes_out(found: &NodeAttributes) -> AttributesOut {
    AttributesOut {
        valid: found.timeout.as_secs(),
        valid_nanoseconds: found.timeout.subsec_nanos(),
        padding: 0,
        attributes: node_attributes(&found.attributes),
    }
}

pub(super) fn statx_out(found: &NodeAttributes) -> StatxOut {
    let NodeAttributes { attributes, timeout } = found;
    let time = |time: Timestamp| StatxTime {
        seconds: time.seconds,
        nanoseconds: time.nanoseconds,
        padding: 0,
    };
    let created = if attributes.created.is_some() { statx_mask::CREATED } else { 0 };
    StatxOut {
        valid: timeout.as_secs(),
        valid_nanoseconds: timeout.subsec_nanos(),
        mask: statx_mask::BASIC | created,
        block_size: attributes.block_size,
        links: attributes.links,
        user: attributes.user,
        group: attributes.group,
        mode: attributes.mode(),
        inode: attributes.inode.0,
        size: attributes.size,
        sectors: attributes.sectors,
        accessed: time(attributes.accessed),
        created: attributes.created.map_or(StatxTime::default(), time),
        changed: time(attributes.changed),
        modified: time(attributes.modified),
        device_major: attributes.device.major,
        device_minor: attributes.device.minor,
        ..StatxOut::default()
    }
}

pub(super) fn entry_out(entry: &EntryReply) -> EntryOut {
    let mut out = EntryOut {
        node: entry.node.0,
        generation: entry.generation,
        name_valid: entry.entry_timeout.as_secs(),
        name_valid_nanoseconds: entry.entry_timeout.subsec_nanos(),
        ..EntryOut::default()
    };
    if let Some(found) = &entry.attributes {
        let AttributesOut { valid, valid_nanoseconds, attributes, .. } = attributes_out(found);
        out.attributes_valid = valid;
        out.attributes_valid_nanoseconds = valid_nanoseconds;
        out.attributes = attributes;
    }
    out
}

pub(super) fn open_out(handle: u64) -> OpenOut {
    // Nothing else changes a file, so what the kernel has cached of it stays valid.
    OpenOut { handle, flags: open_reply_flags::KEEP_CACHE, padding: 0 }
}

pub(super) fn changes(asked: &SetAttributesIn) -> SetAttributes {
    let permissions = asked.mode as u16 & drystone_vfs::mode::PERMISSIONS;
    let changed = timestamp(asked.changed, asked.changed_nanoseconds);
    SetAttributes {
        permissions: asked.field(set_valid::MODE, permissions),
        user: asked.field(set_valid::USER, asked.user),
        group: asked.field(set_valid::GROUP, asked.group),
        size: asked.field(set_valid::SIZE, asked.size),
        accessed: asked.accessed_change().map(set_time),
        modified: asked.modified_change().map(set_time),
        changed: asked.field(set_valid::CHANGED, changed),
        ..SetAttributes::default()
    }
}

fn set_time(change: TimeChange) -> SetTime {
    match change {
        TimeChange::Now => SetTime::Now,
        TimeChange::At(seconds, nanoseconds) => SetTime::At(timestamp(seconds, nanoseconds)),
    }
}

fn timestamp(seconds: i64, nanoseconds: u32) -> Timestamp {
    Timestamp { seconds, nanoseconds: nanoseconds.min(999_999_999) }
}
