//! System calls on attributes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{
    Access, AtFlags, CWD, IFlags, Mode, OFlags, StatxFlags, Timespec, Timestamps, XattrFlags,
    accessat, chmod, chownat, getxattr, ioctl_getflags, ioctl_setflags, listxattr, removexattr,
    setxattr, statx, utimensat,
};
use rustix::process::{Gid, Uid};

use super::{HostExecutor, HostOutcome, describe, path_of};
use crate::digest::digest;
use crate::operations::{Action, COMPARED_FLAGS, Word, XattrKind};

/// The largest list of names and the largest value that the kernel returns.
const XATTR_BYTES_MAX: usize = 65_536;

impl HostExecutor {
    pub(super) fn run_on_attributes(&self, action: &Action) -> HostOutcome {
        match action {
            Action::Status { target } => self.at_inode(target, describe),
            Action::Access { target, bits } => self.at_inode(target, |file| {
                let access = Access::from_bits_truncate((*bits).into());
                accessat(CWD, path_of(file), access, AtFlags::EACCESS).map(|()| String::new())
            }),
            Action::SetXattr { target, name, value, kind } => self.at_inode(target, |file| {
                let flags = match kind {
                    XattrKind::Set => XattrFlags::empty(),
                    XattrKind::Create => XattrFlags::CREATE,
                    XattrKind::Replace => XattrFlags::REPLACE,
                };
                let name = OsStr::from_bytes(&name.0);
                setxattr(path_of(file), name, &value.bytes(), flags).map(|()| String::new())
            }),
            Action::GetXattr { target, name } => self.at_inode(target, |file| {
                let mut value = vec![0; XATTR_BYTES_MAX];
                let length = getxattr(path_of(file), OsStr::from_bytes(&name.0), &mut value[..])?;
                Ok(format!("{length} bytes {:016x}", digest(&value[..length])))
            }),
            Action::RemoveXattr { target, name } => self.at_inode(target, |file| {
                removexattr(path_of(file), OsStr::from_bytes(&name.0)).map(|()| String::new())
            }),
            Action::ListXattrs { target } => self.at_inode(target, |file| {
                let mut list = vec![0; XATTR_BYTES_MAX];
                let length = listxattr(path_of(file), &mut list[..])?;
                let mut names: Vec<Word> = list[..length]
                    .split(|byte| *byte == 0)
                    .filter(|name| !name.is_empty())
                    .map(|name| Word(name.to_vec()))
                    .collect();
                names.sort();
                Ok(names.iter().map(Word::to_string).collect::<Vec<_>>().join(" "))
            }),
            Action::ChangeMode { target, mode } => self.at_inode(target, |file| {
                chmod(path_of(file), Mode::from_raw_mode((*mode).into()))?;
                describe(file)
            }),
            Action::ChangeOwner { target, user, group } => self.at_inode(target, |file| {
                let (user, group) = (user.map(Uid::from_raw), group.map(Gid::from_raw));
                chownat(file, "", user, group, AtFlags::EMPTY_PATH)?;
                describe(file)
            }),
            Action::SetTimes { target, seconds, nanoseconds } => self.at_inode(target, |file| {
                let time = Timespec { tv_sec: *seconds, tv_nsec: (*nanoseconds).into() };
                let times = Timestamps { last_access: time, last_modification: time };
                utimensat(CWD, path_of(file), &times, AtFlags::empty())?;
                let seen = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
                Ok(format!("{:?} {:?}", seen.stx_mtime, seen.stx_atime))
            }),
            Action::SetFlags { target, flags } => self.at_open(target, OFlags::RDONLY, |file| {
                let compared = IFlags::from_bits_retain(COMPARED_FLAGS.bits());
                let asked = IFlags::from_bits_retain(*flags) & compared;
                // Flags about how an inode is stored must not change.
                let stored = ioctl_getflags(file)? - compared;
                ioctl_setflags(file, asked | stored)?;
                let flags = ioctl_getflags(file)? & compared;
                Ok(format!("{} flags {:#x}", describe(file)?, flags.bits()))
            }),
            _ => unreachable!("not about attributes: {action}"),
        }
    }
}
