//! Looks at entries, and changes what they say of themselves.
#![allow(
    unsafe_code,
    unsafe_op_in_unsafe_fn,
    clippy::missing_safety_doc,
    reason = "functions for C, as the crate's header says"
)]

use crate::arguments::{fill, input, path, put};
use crate::failure::{Failure, answer};
use crate::image::{CImage, session};
use crate::names::at;
use drystone::fs::Metadata;
use drystone::vfs::{Errno, SetAttributes, SetTime, Timestamp};
use std::ffi::{c_char, c_int, c_void};
use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

/// For drystone_chown and drystone_lchown: the owner or the group stays.
pub const DRYSTONE_KEEP: u32 = u32::MAX;

/// A time since 1970.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CTime {
    /// Whole seconds; negative before 1970.
    pub seconds: i64,
    /// 0 to 999999999, always forward.
    pub nanoseconds: u32,
}

/// What an entry is: stat.
#[repr(C)]
pub struct CStat {
    /// The number of the inode.
    pub inode: u64,
    /// Bytes of the content.
    pub size: u64,
    /// Space used, in units of 512 bytes.
    pub sectors: u64,
    /// Type and permissions, as in st_mode.
    pub mode: u32,
    /// Names.
    pub links: u32,
    /// The owner.
    pub user: u32,
    /// The group.
    pub group: u32,
    /// The driver of a device; 0 for anything else.
    pub major: u32,
    /// The number of a device for its driver.
    pub minor: u32,
    /// The best size for reading and writing.
    pub block_size: u32,
    /// Flags, as FS_IOC_GETFLAGS has them.
    pub flags: u32,
    /// Last read.
    pub accessed: CTime,
    /// Last change of content.
    pub modified: CTime,
    /// Last change of anything.
    pub changed: CTime,
    /// When it was made; zeros if that isn't recorded.
    pub created: CTime,
}

impl CStat {
    pub(crate) fn of(metadata: &Metadata) -> CStat {
        let found = metadata.attributes();
        CStat {
            inode: found.inode.0,
            size: found.size,
            sectors: found.sectors,
            mode: u32::from(found.mode()),
            links: found.links,
            user: found.user,
            group: found.group,
            major: found.device.major,
            minor: found.device.minor,
            block_size: found.block_size,
            flags: found.flags.bits(),
            accessed: time(found.accessed),
            modified: time(found.modified),
            changed: time(found.changed),
            created: found.created.map_or(CTime { seconds: 0, nanoseconds: 0 }, time),
        }
    }
}

fn time(time: Timestamp) -> CTime {
    CTime { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

/// Says what is at a path. Symbolic links are followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_stat(
    image: *mut CImage,
    path: *const c_char,
    stat: *mut CStat,
) -> c_int {
    at(image, path, |fs, path| put(stat, CStat::of(&fs.metadata(path)?)))
}

/// Says what is at a path. A symbolic link at its end isn't followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_lstat(
    image: *mut CImage,
    path: *const c_char,
    stat: *mut CStat,
) -> c_int {
    at(image, path, |fs, path| put(stat, CStat::of(&fs.symlink_metadata(path)?)))
}

/// Sets permissions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_chmod(
    image: *mut CImage,
    path: *const c_char,
    mode: u32,
) -> c_int {
    at(image, path, |fs, path| Ok(fs.set_permissions(path, Permissions::from_mode(mode))?))
}

/// Sets owner and group; DRYSTONE_KEEP leaves one. Symbolic links are followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_chown(
    image: *mut CImage,
    path: *const c_char,
    user: u32,
    group: u32,
) -> c_int {
    at(image, path, |fs, path| Ok(fs.chown(path, given(user), given(group))?))
}

/// As drystone_chown, of a symbolic link itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_lchown(
    image: *mut CImage,
    path: *const c_char,
    user: u32,
    group: u32,
) -> c_int {
    at(image, path, |fs, path| Ok(fs.lchown(path, given(user), given(group))?))
}

fn given(id: u32) -> Option<u32> {
    (id != DRYSTONE_KEEP).then_some(id)
}

/// Sets when it was last read and last changed; NULL leaves one. Symbolic links are followed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_utimens(
    image: *mut CImage,
    path: *const c_char,
    accessed: *const CTime,
    modified: *const CTime,
) -> c_int {
    at(image, path, |fs, path| {
        let (accessed, modified) = (set_time(accessed)?, set_time(modified)?);
        let changes = SetAttributes { accessed, modified, ..SetAttributes::default() };
        Ok(fs.set_attributes(path, &changes, true)?)
    })
}

unsafe fn set_time(time: *const CTime) -> Result<Option<SetTime>, Failure> {
    if time.is_null() {
        return Ok(None);
    }
    let CTime { seconds, nanoseconds } = *time;
    if nanoseconds >= 1_000_000_000 {
        return Err(Failure::new(Errno::EINVAL, "a second has 1000000000 nanoseconds"));
    }
    Ok(Some(SetTime::At(Timestamp { seconds, nanoseconds })))
}

/// Cuts a file off, or extends it by a hole.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_truncate(
    image: *mut CImage,
    path: *const c_char,
    size: u64,
) -> c_int {
    at(image, path, |fs, path| Ok(fs.truncate(path, size)?))
}

/// The value of an extended attribute, by its full name ("user.comment"). Returns its length; ENODATA if there
/// is none; ERANGE if the buffer is too small; with a size of 0 only the length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_getxattr(
    image: *mut CImage,
    file: *const c_char,
    name: *const c_char,
    buffer: *mut c_void,
    size: usize,
) -> i64 {
    answer(|| {
        let (file, name) = (path(file)?, path(name)?);
        let value = session(image)?.fs.xattr(file, name)?.ok_or_else(|| {
            let message = format!("'{}' has no attribute {}", file.display(), name.display());
            Failure::new(Errno::ENODATA, message)
        })?;
        fill(&value, false, buffer, size)
    })
}

/// Sets an extended attribute.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_setxattr(
    image: *mut CImage,
    file: *const c_char,
    name: *const c_char,
    value: *const c_void,
    size: usize,
) -> c_int {
    at(image, file, |fs, file| Ok(fs.set_xattr(file, path(name)?, input(value, size)?)?))
}

/// Removes an extended attribute.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_removexattr(
    image: *mut CImage,
    file: *const c_char,
    name: *const c_char,
) -> c_int {
    at(image, file, |fs, file| Ok(fs.remove_xattr(file, path(name)?)?))
}

/// The names of all extended attributes, with a 0 behind each. Returns how many bytes these are; the buffer
/// is as for drystone_getxattr.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn drystone_listxattr(
    image: *mut CImage,
    file: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> i64 {
    answer(|| {
        let mut list = Vec::new();
        for name in session(image)?.fs.list_xattrs(path(file)?)? {
            list.extend_from_slice(name.as_bytes());
            list.push(0);
        }
        fill(&list, false, buffer.cast(), size)
    })
}
