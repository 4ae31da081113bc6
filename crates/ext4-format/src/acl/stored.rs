//! The two forms of a list in bytes: ext4's packed one, where entries without an id take 4 bytes,
//! and that of the `system.posix_acl_*` attributes, where all take 8.

use super::{Acl, AclEntry, AclTag};
use crate::error::AclProblem;
use std::mem::{offset_of, size_of};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Version of the packed form.
pub const PACKED_VERSION: u32 = 1;

/// Version of the attribute form.
pub const ATTRIBUTE_VERSION: u32 = 2;

/// What the attribute form stores where an entry has no id.
pub(super) const NO_ID: u32 = u32::MAX;

/// An entry of the packed form without an id, and the head of one with an id.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawPackedEntry {
    /// The kind of the entry.
    pub tag: U16,
    /// Permission bits.
    pub permissions: U16,
}

/// An entry of the attribute form, and of the packed form with an id.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawEntry {
    /// The kind of the entry.
    pub tag: U16,
    /// Permission bits.
    pub permissions: U16,
    /// User or group id.
    pub id: U32,
}

const _: () = assert!(size_of::<RawPackedEntry>() == 4);
const _: () = assert!(size_of::<RawEntry>() == 8);
const _: () = assert!(offset_of!(RawEntry, id) == 4);

impl AclTag {
    pub(super) const fn to_raw(self) -> (u16, Option<u32>) {
        match self {
            Self::Owner => (0x01, None),
            Self::User(id) => (0x02, Some(id)),
            Self::OwningGroup => (0x04, None),
            Self::Group(id) => (0x08, Some(id)),
            Self::Mask => (0x10, None),
            Self::Other => (0x20, None),
        }
    }
}

impl Acl {
    /// Reads the form that ext4 stores. An empty value isn't a list.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_packed(bytes: &[u8]) -> Result<Self, AclProblem> {
        let malformed = AclProblem::Length { length: bytes.len() };
        let mut rest = header(bytes, PACKED_VERSION)?;
        let mut entries = Vec::new();
        while !rest.is_empty() {
            let (short, after) = RawPackedEntry::ref_from_prefix(rest).map_err(|_| malformed)?;
            let (raw, after) = if matches!(short.tag.get(), 0x02 | 0x08) {
                RawEntry::ref_from_prefix(rest)
                    .map(|(raw, after)| (*raw, after))
                    .map_err(|_| malformed)?
            } else {
                (
                    RawEntry { tag: short.tag, permissions: short.permissions, id: NO_ID.into() },
                    after,
                )
            };
            entries.push(decode(entries.len(), &raw)?);
            rest = after;
        }
        Self::new(entries)
    }

    /// The form that ext4 stores.
    #[must_use]
    pub fn to_packed(&self) -> Vec<u8> {
        let mut bytes = PACKED_VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            let (tag, id) = entry.tag.to_raw();
            let permissions = u16::from(entry.permissions).into();
            bytes.extend_from_slice(RawPackedEntry { tag: tag.into(), permissions }.as_bytes());
            if let Some(id) = id {
                bytes.extend_from_slice(&id.to_le_bytes());
            }
        }
        bytes
    }

    /// Reads the form of the `system.posix_acl_*` attributes.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_attribute(bytes: &[u8]) -> Result<Self, AclProblem> {
        let rest = header(bytes, ATTRIBUTE_VERSION)?;
        let malformed = AclProblem::Length { length: bytes.len() };
        let raw = <[RawEntry]>::ref_from_bytes(rest).map_err(|_| malformed)?;
        let entries: Result<_, _> =
            raw.iter().enumerate().map(|(position, entry)| decode(position, entry)).collect();
        Self::new(entries?)
    }

    /// The form of the `system.posix_acl_*` attributes.
    #[must_use]
    pub fn to_attribute(&self) -> Vec<u8> {
        let mut bytes = ATTRIBUTE_VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            let (tag, id) = entry.tag.to_raw();
            let raw = RawEntry {
                tag: tag.into(),
                permissions: u16::from(entry.permissions).into(),
                id: id.unwrap_or(NO_ID).into(),
            };
            bytes.extend_from_slice(raw.as_bytes());
        }
        bytes
    }
}

/// Checks the version and returns the entries' bytes.
fn header(bytes: &[u8], version: u32) -> Result<&[u8], AclProblem> {
    let malformed = AclProblem::Length { length: bytes.len() };
    let (stored, rest) = bytes.split_first_chunk::<4>().ok_or(malformed)?;
    match u32::from_le_bytes(*stored) {
        found if found != version => Err(AclProblem::Version { found }),
        _ => Ok(rest),
    }
}

fn decode(entry: usize, raw: &RawEntry) -> Result<AclEntry, AclProblem> {
    let id = raw.id.get();
    let tag = match raw.tag.get() {
        0x01 => AclTag::Owner,
        0x02 => AclTag::User(id),
        0x04 => AclTag::OwningGroup,
        0x08 => AclTag::Group(id),
        0x10 => AclTag::Mask,
        0x20 => AclTag::Other,
        tag => return Err(AclProblem::Tag { entry, tag }),
    };
    let permissions = raw.permissions.get();
    let bits =
        u8::try_from(permissions).map_err(|_| AclProblem::Permissions { entry, permissions })?;
    Ok(AclEntry { tag, permissions: bits })
}
