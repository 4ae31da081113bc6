//! The ceiling of every FUSE server: a file system in memory that does as little as possible.
//!
//! `empty DIR [--transport auto|uring|device] [--threads-per-core N] [--entries N]` mounts it and
//! serves until it is unmounted. Names and types are kept, content isn't: reads give zeros.

use drystone_fuse::KernelCapabilities;
use drystone_fuse::attach::{self, MountOptions};
use drystone_fuse::session::{Answer, Rings, Service, Session, SessionOptions};
use drystone_fuse::wire::{
    AttributesOut, EntryHeader, EntryOut, ListingWriter, Message, NodeAttributes, OpenOut,
    ROOT_NODE, Request, RequestHeader, StatisticsOut, WriteOut, open_reply_flags, set_valid,
};
use drystone_sync::atomic::{AtomicU64, Ordering};
use drystone_sync::{Arc, LockClass, Mutex};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use zerocopy::{Immutable, IntoBytes};

const SHARDS: u64 = 64;
static NODES: LockClass = LockClass::new("nodes of the empty server", 10);

const ENOENT: i32 = 2;
const EEXIST: i32 = 17;
const ENOTEMPTY: i32 = 39;
const ENOSYS: i32 = 38;
const ENODATA: i32 = 61;
const DIRECTORY: u32 = 0o040_000;
const SYMLINK: u32 = 0o120_000;

/// A node, with its names if it is a directory.
#[derive(Default)]
struct Node {
    mode: u32,
    size: u64,
    /// The target of a symbolic link.
    target: Box<[u8]>,
    /// Gone with the kernel's last reference.
    is_removed: bool,
    names: HashMap<Box<[u8]>, u64>,
    /// The same in the order of a listing.
    order: BTreeMap<u64, Box<[u8]>>,
}

struct Empty {
    shards: Vec<Mutex<HashMap<u64, Node>>>,
    next: AtomicU64,
}

impl Empty {
    fn new() -> Empty {
        let shards = (0..SHARDS).map(|_| Mutex::new(&NODES, HashMap::new())).collect();
        let empty = Empty { shards, next: AtomicU64::new(ROOT_NODE + 1) };
        empty.shard(ROOT_NODE).lock().insert(ROOT_NODE, new_node(DIRECTORY | 0o777));
        empty
    }

    fn shard(&self, node: u64) -> &Mutex<HashMap<u64, Node>> {
        &self.shards[(node % SHARDS) as usize]
    }

    fn with<T>(&self, node: u64, work: impl FnOnce(&mut Node) -> T) -> Result<T, i32> {
        self.shard(node).lock().get_mut(&node).map(work).ok_or(ENOENT)
    }

    fn attributes(&self, node: u64) -> Result<NodeAttributes, i32> {
        self.with(node, |found| found.attributes(node))
    }

    fn entry(&self, node: u64) -> Result<EntryOut, i32> {
        Ok(EntryOut {
            node,
            name_valid: VALID,
            attributes_valid: VALID,
            attributes: self.attributes(node)?,
            ..EntryOut::default()
        })
    }

    fn child(&self, parent: u64, name: &[u8]) -> Result<u64, i32> {
        self.with(parent, |directory| directory.names.get(name).copied())?.ok_or(ENOENT)
    }

    fn add(&self, parent: u64, name: &[u8], node: u64) -> Result<(), i32> {
        self.with(parent, |directory| {
            if directory.names.contains_key(name) {
                return Err(EEXIST);
            }
            directory.names.insert(name.into(), node);
            directory.order.insert(node, name.into());
            Ok(())
        })?
    }

    fn make(&self, parent: u64, name: &[u8], mode: u32) -> Result<EntryOut, i32> {
        let node = self.next.fetch_add(1, Ordering::Relaxed);
        self.shard(node).lock().insert(node, new_node(mode));
        self.add(parent, name, node)?;
        self.entry(node)
    }

    fn take(&self, parent: u64, name: &[u8]) -> Result<u64, i32> {
        self.with(parent, |directory| {
            let node = directory.names.remove(name).ok_or(ENOENT)?;
            directory.order.remove(&node);
            Ok(node)
        })?
    }

    fn remove(&self, parent: u64, name: &[u8]) -> Result<usize, i32> {
        let node = self.child(parent, name)?;
        if self.with(node, |node| !node.names.is_empty())? {
            return Err(ENOTEMPTY);
        }
        self.take(parent, name)?;
        self.with(node, |node| node.is_removed = true).map(|()| 0)
    }

    fn answer(
        &self,
        header: &RequestHeader,
        fixed: &[u8],
        payload: &mut [u8],
        used: usize,
    ) -> Result<usize, i32> {
        let node = header.node;
        let message = Message { header: *header, fixed, payload: &payload[..used] };
        match message.request().map_err(|_| ENOSYS)? {
            Request::Lookup { name } => {
                let child = self.child(node, name)?;
                put(payload, &self.entry(child)?)
            }
            Request::GetAttributes(_) => put(payload, &self.attributes_out(node)?),
            Request::SetAttributes(changes) => {
                self.with(node, |node| {
                    node.size = changes.field(set_valid::SIZE, changes.size).unwrap_or(node.size);
                    let permissions = changes.field(set_valid::MODE, changes.mode & 0o7777);
                    node.mode = permissions.map_or(node.mode, |p| node.mode & !0o7777 | p);
                })?;
                put(payload, &self.attributes_out(node)?)
            }
            Request::MakeNode(fixed, name) => {
                let entry = self.make(node, name, fixed.mode)?;
                put(payload, &entry)
            }
            Request::MakeDirectory(fixed, name) => {
                let entry = self.make(node, name, DIRECTORY | fixed.mode & 0o7777)?;
                put(payload, &entry)
            }
            Request::Symlink { name, target } => {
                let entry = self.make(node, name, SYMLINK | 0o777)?;
                self.with(entry.node, |link| link.target = target.into())?;
                put(payload, &entry)
            }
            Request::ReadLink => self.with(node, |link| {
                payload[..link.target.len()].copy_from_slice(&link.target);
                link.target.len()
            }),
            Request::Create(fixed, name) => {
                let entry = self.make(node, name, fixed.mode)?;
                let length = put(payload, &entry)?;
                Ok(length + put(&mut payload[length..], &OPENED)?)
            }
            Request::Unlink { name } | Request::RemoveDirectory { name } => self.remove(node, name),
            Request::Rename { new_parent, name, new_name, .. } => {
                let moved = self.child(node, name)?;
                let _ = self.remove(new_parent, new_name);
                self.take(node, name)?;
                self.add(new_parent, new_name, moved).map(|()| 0)
            }
            Request::Link { node: linked, name } => {
                self.add(node, name, linked)?;
                let entry = self.entry(linked)?;
                put(payload, &entry)
            }
            Request::Open(_) => put(payload, &OPENED),
            Request::OpenDirectory(_) => Err(ENOSYS),
            Request::Read(fixed) => {
                let size = self.with(node, |node| node.size)?;
                let length = size.saturating_sub(fixed.offset).min(u64::from(fixed.size)) as usize;
                payload[..length].fill(0);
                Ok(length)
            }
            Request::Write(fixed, data) => {
                let end = fixed.offset + data.len() as u64;
                self.with(node, |node| node.size = node.size.max(end))?;
                put(payload, &WriteOut { size: fixed.size, padding: 0 })
            }
            Request::Fallocate(fixed) => {
                let end = fixed.offset + fixed.length;
                self.with(node, |node| node.size = node.size.max(end)).map(|()| 0)
            }
            Request::Statistics => put(
                payload,
                &StatisticsOut {
                    blocks: 1 << 30,
                    blocks_free: 1 << 29,
                    blocks_available: 1 << 29,
                    inodes: 1 << 30,
                    inodes_free: 1 << 29,
                    block_size: 4096,
                    fragment_size: 4096,
                    name_length_max: 255,
                    ..StatisticsOut::default()
                },
            ),
            Request::ReadDirectory(fixed) => {
                let room = (fixed.size as usize).min(payload.len());
                let mut listing = ListingWriter::new(&mut payload[..room]);
                self.list(node, fixed.offset, &mut listing)?;
                Ok(listing.used())
            }
            Request::GetXattr { .. } => Err(ENODATA),
            Request::Release(_)
            | Request::ReleaseDirectory(_)
            | Request::Sync(_)
            | Request::SyncDirectory(_)
            | Request::SyncFileSystem
            | Request::Access(_)
            | Request::Destroy => Ok(0),
            _ => Err(ENOSYS),
        }
    }

    fn attributes_out(&self, node: u64) -> Result<AttributesOut, i32> {
        let attributes = self.attributes(node)?;
        Ok(AttributesOut { valid: VALID, attributes, ..AttributesOut::default() })
    }

    fn list(&self, node: u64, after: u64, listing: &mut ListingWriter<'_>) -> Result<(), i32> {
        self.with(node, |directory| {
            for (child, name) in directory.order.range(after + 1..) {
                let header =
                    EntryHeader { inode: *child, cookie: *child, ..EntryHeader::default() };
                if !listing.push(None, header, name) {
                    break;
                }
            }
        })
    }
}

/// Seconds for which the kernel may cache entries and attributes: as in a real mount, there is one
/// writer.
const VALID: u64 = 3600;

const OPENED: OpenOut = OpenOut {
    handle: 0,
    flags: open_reply_flags::KEEP_CACHE | open_reply_flags::NO_FLUSH,
    padding: 0,
};

fn new_node(mode: u32) -> Node {
    Node { mode, ..Node::default() }
}

impl Node {
    fn attributes(&self, inode: u64) -> NodeAttributes {
        NodeAttributes {
            inode,
            size: self.size,
            sectors: self.size.div_ceil(512),
            mode: self.mode,
            links: 1,
            block_size: 4096,
            ..NodeAttributes::default()
        }
    }
}

fn put<T: IntoBytes + Immutable>(payload: &mut [u8], value: &T) -> Result<usize, i32> {
    payload[..size_of::<T>()].copy_from_slice(value.as_bytes());
    Ok(size_of::<T>())
}

impl Service for Empty {
    fn serve(
        &self,
        header: &RequestHeader,
        fixed: &[u8],
        payload: &mut [u8],
        used: usize,
    ) -> Answer {
        match self.answer(header, fixed, payload, used) {
            Ok(length) => Answer::Payload(length),
            Err(errno) => Answer::Error(errno),
        }
    }

    fn forget(&self, node: u64, _count: u64) {
        // The kernel gives back all its references at once, when it drops the inode.
        let mut shard = self.shard(node).lock();
        if shard.get(&node).is_some_and(|node| node.is_removed) {
            shard.remove(&node);
        }
    }

    fn needs_write_back(&self, _: &RequestHeader, _: &[u8], _: &[u8]) -> bool {
        false
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut options = SessionOptions::default();
    let mut target = None;
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--transport" => {
                options.rings = match value()?.as_str() {
                    "auto" => Rings::WhereOffered,
                    "uring" => Rings::Required,
                    "device" => Rings::Never,
                    other => return Err(format!("no transport {other}").into()),
                }
            }
            "--threads-per-core" => options.threads_per_core = value()?.parse()?,
            "--entries" => options.entries_per_ring = value()?.parse()?,
            "--device-threads" => options.device_threads = value()?.parse()?,
            _ => target = Some(PathBuf::from(argument)),
        }
    }
    let target = target.ok_or("usage: empty DIR [--transport auto|uring|device]")?;
    options.capabilities |= KernelCapabilities::NO_OPENDIR_SUPPORT
        | KernelCapabilities::WRITEBACK_CACHE
        | KernelCapabilities::ATOMIC_O_TRUNC;
    let mount = MountOptions::default().source("empty").subtype("empty");
    let device = attach::mount(&target, &mount)?;
    let session = Session::begin(device, options, Arc::new(Empty::new()))?;
    println!("ready: {}", if session.uses_rings() { "rings" } else { "device" });
    session.run();
    Ok(())
}
