//! Requests as values.

use super::{Layouts, Malformed, Opcode, request::*, set_valid};
use zerocopy::FromBytes;

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeChange {
    /// The time of the call.
    Now,
    /// Seconds and nanoseconds since 1970.
    At(i64, u32),
}

/// A request, with names and data borrowed from the message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Operations and fields are documented at their layouts.
pub enum Request<'a> {
    Lookup {
        name: &'a [u8],
    },
    Forget(ForgetIn),
    BatchForget {
        nodes: &'a [u8],
    },
    GetAttributes(GetAttributesIn),
    Statx(StatxIn),
    SetAttributes(SetAttributesIn),
    ReadLink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    MakeNode(MakeNodeIn, &'a [u8]),
    MakeDirectory(MakeDirectoryIn, &'a [u8]),
    Unlink {
        name: &'a [u8],
    },
    RemoveDirectory {
        name: &'a [u8],
    },
    Rename {
        new_parent: u64,
        flags: u32,
        name: &'a [u8],
        new_name: &'a [u8],
    },
    Link {
        node: u64,
        name: &'a [u8],
    },
    Open(OpenIn),
    Read(ReadIn),
    Write(WriteIn, &'a [u8]),
    Statistics,
    Release(ReleaseIn),
    Sync(SyncIn),
    SetXattr {
        flags: u32,
        own_flags: u32,
        name: &'a [u8],
        value: &'a [u8],
    },
    GetXattr {
        size: u32,
        name: &'a [u8],
    },
    ListXattrs {
        size: u32,
    },
    RemoveXattr {
        name: &'a [u8],
    },
    Flush(FlushIn),
    OpenDirectory(OpenIn),
    ReadDirectory(ReadIn),
    ReadDirectoryPlus(ReadIn),
    ReleaseDirectory(ReleaseIn),
    SyncDirectory(SyncIn),
    Access(AccessIn),
    Create(CreateIn, &'a [u8]),
    Temporary(CreateIn),
    Interrupt(InterruptIn),
    IoControl(IoControlIn, &'a [u8]),
    Fallocate(FallocateIn),
    Seek(SeekIn),
    CopyFileRange(CopyFileRangeIn),
    SyncFileSystem,
    Destroy,
    /// Known, but not supported by this server.
    Other(Opcode),
}

/// A message cut into its parts, not yet looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// The header.
    pub header: RequestHeader,
    /// The fixed part, and whatever may follow it in the same place.
    pub fixed: &'a [u8],
    /// The payload.
    pub payload: &'a [u8],
}

/// The header at the front of a message.
pub fn read_header(bytes: &[u8]) -> Result<RequestHeader, Malformed> {
    let header = RequestHeader::read_from_prefix(bytes);
    header.map(|(header, _)| header).map_err(|_| Malformed::Header { length: bytes.len() })
}

impl<'a> Message<'a> {
    /// Cuts a message as a read from the device gives it.
    pub fn from_device(bytes: &'a [u8], layouts: Layouts) -> Result<Message<'a>, Malformed> {
        let header = read_header(bytes)?;
        if header.length as usize != bytes.len() {
            return Err(Malformed::Length { length: bytes.len(), stated: header.length });
        }
        let body = &bytes[size_of::<RequestHeader>()..];
        let fixed = Opcode::from_code(header.operation)
            .map_or(0, |operation| layouts.fixed_length(operation));
        let (fixed, payload) = body.split_at_checked(fixed).unwrap_or((body, &[]));
        Ok(Message { header, fixed, payload })
    }

    /// The request.
    pub fn request(&self) -> Result<Request<'a>, Malformed> {
        let code = self.header.operation;
        let operation = Opcode::from_code(code).ok_or(Malformed::Operation { code })?;
        Body { operation, fixed: self.fixed, payload: self.payload }.decode()
    }
}

struct Body<'a> {
    operation: Opcode,
    fixed: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Body<'a> {
    fn decode(&mut self) -> Result<Request<'a>, Malformed> {
        Ok(match self.operation {
            Opcode::Lookup => Request::Lookup { name: self.name()? },
            Opcode::Forget => Request::Forget(self.fixed()?),
            Opcode::BatchForget => {
                let count = self.fixed::<BatchForgetIn>()?.count;
                let stated = u64::from(count) * size_of::<ForgetOne>() as u64;
                Request::BatchForget { nodes: self.data(stated)? }
            }
            Opcode::GetAttributes => Request::GetAttributes(self.fixed()?),
            Opcode::Attributes => Request::Statx(self.fixed()?),
            Opcode::SetAttributes => Request::SetAttributes(self.fixed()?),
            Opcode::ReadLink => Request::ReadLink,
            Opcode::Symlink => Request::Symlink { name: self.name()?, target: self.name()? },
            Opcode::MakeNode => Request::MakeNode(self.fixed()?, self.name()?),
            Opcode::MakeDirectory => Request::MakeDirectory(self.fixed()?, self.name()?),
            Opcode::Unlink => Request::Unlink { name: self.name()? },
            Opcode::RemoveDirectory => Request::RemoveDirectory { name: self.name()? },
            Opcode::Rename => {
                let RenameIn { new_parent } = self.fixed()?;
                self.rename(new_parent, 0)?
            }
            Opcode::Rename2 => {
                let Rename2In { new_parent, flags, .. } = self.fixed()?;
                self.rename(new_parent, flags)?
            }
            Opcode::Link => {
                Request::Link { node: self.fixed::<LinkIn>()?.node, name: self.name()? }
            }
            Opcode::Open => Request::Open(self.fixed()?),
            Opcode::Read => Request::Read(self.fixed()?),
            Opcode::Write => {
                let fixed: WriteIn = self.fixed()?;
                Request::Write(fixed, self.data(u64::from(fixed.size))?)
            }
            Opcode::Statistics => Request::Statistics,
            Opcode::Release => Request::Release(self.fixed()?),
            Opcode::Sync => Request::Sync(self.fixed()?),
            Opcode::SetXattr => {
                let SetXattrIn { size, flags } = self.fixed()?;
                let own_flags = self.fixed::<SetXattrExtendedIn>().map_or(0, |own| own.own_flags);
                let name = self.name()?;
                Request::SetXattr { flags, own_flags, name, value: self.data(u64::from(size))? }
            }
            Opcode::GetXattr => {
                Request::GetXattr { size: self.fixed::<GetXattrIn>()?.size, name: self.name()? }
            }
            Opcode::ListXattrs => Request::ListXattrs { size: self.fixed::<GetXattrIn>()?.size },
            Opcode::RemoveXattr => Request::RemoveXattr { name: self.name()? },
            Opcode::Flush => Request::Flush(self.fixed()?),
            Opcode::OpenDirectory => Request::OpenDirectory(self.fixed()?),
            Opcode::ReadDirectory => Request::ReadDirectory(self.fixed()?),
            Opcode::ReadDirectoryPlus => Request::ReadDirectoryPlus(self.fixed()?),
            Opcode::ReleaseDirectory => Request::ReleaseDirectory(self.fixed()?),
            Opcode::SyncDirectory => Request::SyncDirectory(self.fixed()?),
            Opcode::Access => Request::Access(self.fixed()?),
            Opcode::Create => Request::Create(self.fixed()?, self.name()?),
            Opcode::Temporary => Request::Temporary(self.fixed()?),
            Opcode::Interrupt => Request::Interrupt(self.fixed()?),
            Opcode::IoControl => {
                let fixed: IoControlIn = self.fixed()?;
                Request::IoControl(fixed, self.data(u64::from(fixed.in_size))?)
            }
            Opcode::Fallocate => Request::Fallocate(self.fixed()?),
            Opcode::Seek => Request::Seek(self.fixed()?),
            Opcode::CopyFileRange => Request::CopyFileRange(self.fixed()?),
            Opcode::SyncFileSystem => Request::SyncFileSystem,
            Opcode::Destroy => Request::Destroy,
            Opcode::Initialize
            | Opcode::GetLock
            | Opcode::SetLock
            | Opcode::SetLockWait
            | Opcode::BlockMap
            | Opcode::Poll
            | Opcode::NotifyReply
            | Opcode::SetUpMapping
            | Opcode::RemoveMapping => Request::Other(self.operation),
        })
    }

    fn rename(&mut self, new_parent: u64, flags: u32) -> Result<Request<'a>, Malformed> {
        let name = self.name()?;
        Ok(Request::Rename { new_parent, flags, name, new_name: self.name()? })
    }

    fn fixed<T: FromBytes>(&self) -> Result<T, Malformed> {
        let fixed = T::read_from_prefix(self.fixed);
        fixed
            .map(|(fixed, _)| fixed)
            .map_err(|_| Malformed::Fixed { operation: self.operation, length: self.fixed.len() })
    }

    /// Takes a name, which ends with a zero byte.
    fn name(&mut self) -> Result<&'a [u8], Malformed> {
        let malformed = Malformed::Name { operation: self.operation };
        let end = self.payload.iter().position(|byte| *byte == 0).ok_or(malformed)?;
        let (name, rest) = self.payload.split_at(end);
        self.payload = &rest[1..];
        Ok(name)
    }

    /// Takes data of a given length.
    fn data(&mut self, stated: u64) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(stated).unwrap_or(usize::MAX);
        let (data, rest) = self.payload.split_at_checked(length).ok_or(Malformed::Data {
            operation: self.operation,
            length: self.payload.len(),
            stated,
        })?;
        self.payload = rest;
        Ok(data)
    }
}

/// The nodes of a `BatchForget`.
pub fn forgotten(nodes: &[u8]) -> impl Iterator<Item = ForgetOne> + '_ {
    nodes
        .chunks_exact(size_of::<ForgetOne>())
        .filter_map(|node| ForgetOne::read_from_bytes(node).ok())
}

impl SetAttributesIn {
    /// The field, if the bit that stands for it is set.
    pub fn field<T>(&self, bit: u32, value: T) -> Option<T> {
        (self.valid & bit != 0).then_some(value)
    }

    /// The change of the time of the last read.
    pub fn accessed_change(&self) -> Option<TimeChange> {
        self.time(
            set_valid::ACCESSED,
            set_valid::ACCESSED_NOW,
            TimeChange::At(self.accessed, self.accessed_nanoseconds),
        )
    }

    /// The change of the time of the last change of content.
    pub fn modified_change(&self) -> Option<TimeChange> {
        self.time(
            set_valid::MODIFIED,
            set_valid::MODIFIED_NOW,
            TimeChange::At(self.modified, self.modified_nanoseconds),
        )
    }

    fn time(&self, given: u32, now: u32, at: TimeChange) -> Option<TimeChange> {
        match self.valid {
            valid if valid & now != 0 => Some(TimeChange::Now),
            valid if valid & given != 0 => Some(at),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
