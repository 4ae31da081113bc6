//! ioctl: flags (`lsattr`, `chattr`), projects and generations of inodes; the size of the image.
//!
//! Permissions are checked here, not left to the kernel, because older kernels pass such requests on
//! unchecked.
//!
//! # Reference
//! ioctl_iflags(2), ioctl_fsgetxattr(2); `include/uapi/linux/fs.h` for numbers and layouts;
//! `EXT4_IOC_RESIZE_FS` in the kernel's "ext4 General Information".

use super::{NodeId, Operations, Reply, RequestCaller};
use crate::CountedOperation;
use drystone_vfs::{
    Capabilities, Errno, FileFlags, InodeAttributes, RequestContext, Result, SetAttributes,
};

/// A request's number: direction, length of its argument, and what it is for.
const fn command(direction: u32, length: u32, group: u8, number: u8) -> u32 {
    direction << 30 | length << 16 | (group as u32) << 8 | number as u32
}

const WRITE: u32 = 1;
const READ: u32 = 2;
/// Declared with a C `long`, though what is passed is an `int`; 32-bit programs have 4 here.
const LONG: [u32; 2] = [8, 4];

/// Bytes of `struct fsxattr`.
const FSXATTR_BYTES: usize = 28;
const GET_FSXATTR: u32 = command(READ, FSXATTR_BYTES as u32, b'X', 31);
const SET_FSXATTR: u32 = command(WRITE, FSXATTR_BYTES as u32, b'X', 32);

/// `EXT4_IOC_RESIZE_FS`: the argument is the number of blocks.
const GROW: u32 = command(WRITE, 8, b'f', 16);

/// The requests, for programs of either width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Flags,
    SetFlags,
    Generation,
    Extended,
    SetExtended,
    Grow,
}

/// The reply to an ioctl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoctlReply {
    bytes: [u8; FSXATTR_BYTES],
    length: usize,
}

impl IoctlReply {
    fn new(data: &[u8]) -> IoctlReply {
        let mut bytes = [0; FSXATTR_BYTES];
        bytes[..data.len()].copy_from_slice(data);
        IoctlReply { bytes, length: data.len() }
    }

    /// What is copied to the caller.
    pub fn data(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// The flags of `fsx_xflags` and what they are in an inode.
const EXTENDED_FLAGS: [(u32, FileFlags); 8] = [
    (0x0000_0008, FileFlags::IMMUTABLE),
    (0x0000_0010, FileFlags::APPEND),
    (0x0000_0020, FileFlags::SYNC),
    (0x0000_0040, FileFlags::NO_ACCESS_TIME),
    (0x0000_0080, FileFlags::NO_DUMP),
    (0x0000_0200, FileFlags::PROJECT_INHERIT),
    (0x0000_8000, FileFlags::DIRECT_ACCESS),
    (0x0002_0000, FileFlags::VERITY),
];

/// Flags that keep content as it is.
const GUARDS: FileFlags = FileFlags::IMMUTABLE.union(FileFlags::APPEND);

/// Whether an ioctl changes what an inode records.
pub(crate) fn ioctl_sets_flags(number: u32) -> bool {
    matches!(decode(number), Some(Asked::SetFlags | Asked::SetExtended))
}

/// Whether an ioctl makes the image larger.
pub(crate) fn ioctl_grows(number: u32) -> bool {
    decode(number) == Some(Asked::Grow)
}

/// True if an ioctl makes a file immutable or append-only.
fn sets_guard(number: u32, input: &[u8]) -> bool {
    let Ok(flags) = word(input, 0) else { return false };
    match decode(number) {
        Some(Asked::SetFlags) => FileFlags::from_bits_retain(flags).intersects(GUARDS),
        Some(Asked::SetExtended) => EXTENDED_FLAGS
            .iter()
            .any(|(extended, flag)| flags & extended != 0 && GUARDS.contains(*flag)),
        _ => false,
    }
}

impl Operations {
    /// True if an ioctl makes a file immutable or append-only of which the kernel may hold gathered
    /// writes. A transport has the kernel write them first, because they would be refused afterwards.
    pub fn ioctl_needs_write_back(&self, node: NodeId, number: u32, input: &[u8]) -> bool {
        sets_guard(number, input) && self.may_be_unwritten(node)
    }

    /// Does what an ioctl asks. `input` is what the caller passed, `output_bytes_max` what it has
    /// room for. `ENOTTY` for what no file system knows.
    pub fn ioctl(
        &self,
        request: &RequestCaller,
        node: NodeId,
        number: u32,
        input: &[u8],
        output_bytes_max: usize,
    ) -> Reply<IoctlReply> {
        let done = self.do_ioctl(request, node, number, input);
        let reply = self.done(CountedOperation::Ioctl, done)?;
        if reply.length > output_bytes_max { Err(Errno::EINVAL) } else { Ok(reply) }
    }

    fn do_ioctl(
        &self,
        request: &RequestCaller,
        node: NodeId,
        number: u32,
        input: &[u8],
    ) -> Result<IoctlReply> {
        let asked = decode(number).ok_or(Errno::ENOTTY)?;
        let attributes = self.file_system.attributes(self.inode(node))?;
        match asked {
            Asked::Grow => self.grow(request, input),
            Asked::Flags => Ok(IoctlReply::new(&attributes.flags.bits().to_ne_bytes())),
            Asked::Generation => Ok(IoctlReply::new(&attributes.generation.to_ne_bytes())),
            Asked::Extended => Ok(IoctlReply::new(&extended(&attributes))),
            Asked::SetFlags => {
                let flags = FileFlags::from_bits(word(input, 0)?).ok_or(Errno::EOPNOTSUPP)?;
                let changes = SetAttributes { flags: Some(flags), ..SetAttributes::default() };
                self.change_flags(request, node, &attributes, &changes)
            }
            Asked::SetExtended => {
                let changes = extended_changes(&attributes, input)?;
                self.change_flags(request, node, &attributes, &changes)
            }
        }
    }

    /// Grows the image. Root may, and the user that serves the mount, who may write to the image anyway.
    fn grow(&self, request: &RequestCaller, input: &[u8]) -> Result<IoctlReply> {
        if ![0, rustix::process::geteuid().as_raw()].contains(&request.user) {
            return Err(Errno::EPERM.into());
        }
        let bytes = input.first_chunk().ok_or(Errno::EINVAL)?;
        let block_size = self.file_system.statistics()?.block_size;
        let size_bytes = u64::from_ne_bytes(*bytes).checked_mul(u64::from(block_size));
        self.file_system.grow(size_bytes.ok_or(Errno::EINVAL)?)?;
        Ok(IoctlReply::new(&[]))
    }

    fn change_flags(
        &self,
        request: &RequestCaller,
        node: NodeId,
        attributes: &InodeAttributes,
        changes: &SetAttributes,
    ) -> Result<IoctlReply> {
        // What was written before belongs into a file that gets a guard, but some of it was refused.
        let inode = self.inode(node);
        let added = changes.flags.unwrap_or_default() - attributes.flags;
        if added.intersects(GUARDS)
            && let Some(error) = self.refusals.of(inode)
        {
            return Err(error.into());
        }
        if *changes != SetAttributes::default() {
            self.file_system.set_attributes(&user_context(request), inode, changes)?;
            // The kernel doesn't know that an ioctl changes the attributes it caches. With a write-back cache
            // it still keeps a file's times.
            self.notices.outdate_attributes(node);
        }
        Ok(IoctlReply::new(&[]))
    }
}

/// Root may do everything; other callers may do what the owner of an inode may.
fn user_context(request: &RequestCaller) -> RequestContext {
    let is_root = request.user == 0;
    RequestContext {
        capabilities: if is_root { Capabilities::all() } else { Capabilities::empty() },
        ..RequestContext::user(request.user, request.group, Vec::new())
    }
}

fn decode(number: u32) -> Option<Asked> {
    for long in LONG {
        let asked = [
            (command(READ, long, b'f', 1), Asked::Flags),
            (command(WRITE, long, b'f', 2), Asked::SetFlags),
            (command(READ, long, b'v', 1), Asked::Generation),
        ];
        if let Some((_, asked)) = asked.into_iter().find(|(known, _)| *known == number) {
            return Some(asked);
        }
    }
    match number {
        GET_FSXATTR => Some(Asked::Extended),
        SET_FSXATTR => Some(Asked::SetExtended),
        GROW => Some(Asked::Grow),
        _ => None,
    }
}

fn word(input: &[u8], index: usize) -> Result<u32> {
    let bytes = input.get(index * 4..).and_then(|rest| rest.first_chunk());
    Ok(u32::from_ne_bytes(*bytes.ok_or(Errno::EINVAL)?))
}

/// `struct fsxattr`: flags, extent size, number of extents, project, size of copied extents, and
/// 8 bytes of padding.
fn extended(attributes: &InodeAttributes) -> [u8; FSXATTR_BYTES] {
    let flags = EXTENDED_FLAGS
        .iter()
        .filter(|(_, flag)| attributes.flags.contains(*flag))
        .fold(0, |flags, (extended, _)| flags | extended);
    let mut bytes = [0; FSXATTR_BYTES];
    bytes[..4].copy_from_slice(&flags.to_ne_bytes());
    bytes[12..16].copy_from_slice(&attributes.project.to_ne_bytes());
    bytes
}

/// What a `struct fsxattr` changes. Flags that it has no place for stay.
fn extended_changes(attributes: &InodeAttributes, input: &[u8]) -> Result<SetAttributes> {
    if input.len() < FSXATTR_BYTES {
        return Err(Errno::EINVAL.into());
    }
    let (wanted, extent_size, project) = (word(input, 0)?, word(input, 1)?, word(input, 3)?);
    let known = EXTENDED_FLAGS.iter().fold(0, |all, (extended, _)| all | extended);
    if wanted & !known != 0 || extent_size != 0 {
        return Err(Errno::EOPNOTSUPP.into());
    }
    let mut flags = attributes.flags;
    for (extended, flag) in EXTENDED_FLAGS {
        flags.set(flag, wanted & extended != 0);
    }
    let unchanged = SetAttributes::default();
    Ok(SetAttributes {
        flags: (flags != attributes.flags).then_some(flags),
        project: (project != attributes.project).then_some(project),
        ..unchanged
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ServingOptions;
    use drystone_testkit::model::MemoryFileSystem;

    #[test]
    fn numbers_are_those_of_the_kernel() {
        assert_eq!(decode(0x8008_6601), Some(Asked::Flags));
        assert_eq!(decode(0x8004_6601), Some(Asked::Flags));
        assert_eq!(decode(0x4008_6602), Some(Asked::SetFlags));
        assert_eq!(decode(0x8008_7601), Some(Asked::Generation));
        assert_eq!(decode(0x801c_581f), Some(Asked::Extended));
        assert_eq!(decode(0x401c_5820), Some(Asked::SetExtended));
        assert_eq!(decode(0x4008_6610), Some(Asked::Grow));
        assert_eq!(decode(0x5401), None);
    }

    #[test]
    fn guards_are_recognized() {
        let (set_flags, immutable, append) = (0x4008_6602, 0x10_u32, 0x20_u32);
        for (number, flags, guards) in [
            (set_flags, immutable, true),
            (set_flags, append | 0x40, true),
            (set_flags, 0x40, false),
            (0x8008_6601, immutable, false),
            (SET_FSXATTR, 0x8, true),
            (SET_FSXATTR, 0x10, true),
            (SET_FSXATTR, 0x20, false),
        ] {
            let input = [&flags.to_ne_bytes()[..], &[0; 24]].concat();
            assert_eq!(sets_guard(number, &input), guards, "{number:x} {flags:x}");
        }
        assert!(!sets_guard(set_flags, &[]));
    }

    #[test]
    fn only_the_owner_of_a_mount_may_grow_it() {
        let file_system = drystone_sync::Arc::new(MemoryFileSystem::default());
        let operations = Operations::new(file_system, ServingOptions::default());
        let ask = |user, input: &[u8]| {
            let request = RequestCaller { user, ..RequestCaller::default() };
            operations.ioctl(&request, NodeId::ROOT, GROW, input, 0)
        };
        let own = rustix::process::geteuid().as_raw();
        // This file system can't grow, which only those learn who might grow it.
        for user in [0, own] {
            assert_eq!(ask(user, &1_000_u64.to_ne_bytes()), Err(Errno::EOPNOTSUPP));
            assert_eq!(ask(user, &[0; 4]), Err(Errno::EINVAL));
            assert_eq!(ask(user, &u64::MAX.to_ne_bytes()), Err(Errno::EINVAL));
        }
        assert_eq!(ask(own + 1, &1_000_u64.to_ne_bytes()), Err(Errno::EPERM));
    }
}
