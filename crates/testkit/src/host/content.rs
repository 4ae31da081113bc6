//! System calls on content.

use rustix::fd::BorrowedFd;
use rustix::fs::{
    FallocateFlags, OFlags, SeekFrom, fallocate, fcntl_getfl, fcntl_setfl, fdatasync, fstat, fsync,
    ftruncate, seek,
};
use rustix::io::{pread, pwrite, write};

use super::{HostExecutor, HostOutcome, describe};
use crate::digest::digest;
use crate::operations::{Action, RangeKind, SeekKind};

impl HostExecutor {
    pub(super) fn run_on_content(&self, action: &Action) -> HostOutcome {
        match action {
            Action::Read { target, offset, length } => {
                self.at_open(target, OFlags::RDONLY, |file| {
                    let mut buffer = vec![0xa5; *length as usize];
                    let count = pread(file, &mut buffer, *offset)?;
                    Ok(format!("{count} bytes {:016x}", digest(&buffer[..count])))
                })
            }
            Action::Write { target, offset, data } => {
                self.at_open(target, OFlags::WRONLY, |file| {
                    Ok(format!("{} bytes", pwrite(file, &data.bytes(), *offset)?))
                })
            }
            Action::Append { target, data } => {
                self.at_open(target, OFlags::WRONLY, |file| append(file, &data.bytes()))
            }
            Action::Truncate { target, size } => self.at_open(target, OFlags::WRONLY, |file| {
                ftruncate(file, *size)?;
                describe(file)
            }),
            Action::Range { target, kind, offset, length } => {
                self.at_open(target, OFlags::WRONLY, |file| {
                    fallocate(file, range_flags(*kind), *offset, *length)?;
                    describe(file)
                })
            }
            Action::Seek { target, kind, offset } => self.at_open(target, OFlags::RDONLY, |file| {
                let from = match kind {
                    SeekKind::Data => SeekFrom::Data(*offset),
                    SeekKind::Hole => SeekFrom::Hole(*offset),
                };
                seek(file, from).map(|found| found.to_string())
            }),
            Action::SyncFile { target } => {
                self.at_open(target, OFlags::RDONLY, |file| fsync(file).map(|()| String::new()))
            }
            Action::SyncData { target } => {
                self.at_open(target, OFlags::RDONLY, |file| fdatasync(file).map(|()| String::new()))
            }
            _ => unreachable!("not about content: {action}"),
        }
    }
}

/// Writes at the end, whatever the flags that the file was opened with.
fn append(file: BorrowedFd<'_>, data: &[u8]) -> HostOutcome {
    let flags = fcntl_getfl(file)?;
    fcntl_setfl(file, flags | OFlags::APPEND)?;
    let written = write(file, data);
    fcntl_setfl(file, flags)?;
    let count = written?;
    // What isn't a file has no size.
    let end = u64::try_from(fstat(file)?.st_size).unwrap_or_default();
    Ok(format!("{count} bytes up to {end}"))
}

fn range_flags(kind: RangeKind) -> FallocateFlags {
    match kind {
        RangeKind::Allocate => FallocateFlags::empty(),
        RangeKind::AllocateKeep => FallocateFlags::KEEP_SIZE,
        RangeKind::Punch => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        RangeKind::Zero => FallocateFlags::ZERO_RANGE,
        RangeKind::ZeroKeep => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
        RangeKind::Collapse => FallocateFlags::COLLAPSE_RANGE,
        RangeKind::Insert => FallocateFlags::INSERT_RANGE,
    }
}
