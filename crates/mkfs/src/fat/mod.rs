//! Makes FAT32 file systems of a [`FileTree`], for EFI system partitions: laid out as a whole, then written once.
//!
//! The bytes depend on the tree and the options alone. Every directory and file is one run of clusters, in
//! the order of names. FAT holds only directories and files; modes, owners and attributes are left out, and
//! a file with several names has a copy for each. Times are in UTC. It is always FAT32, because firmware needn't
//! support anything else on a hard disk.
//!
//! No crate is used, because those that write FAT take their times from a clock or write entries in an order that
//! `fsck.fat` refuses.
//!
//! # Crash
//! The boot sector comes last; without it there is no file system.
//!
//! # Reference
//! Microsoft FAT Specification; UEFI Specification, 13.3 "File System Format".

mod geometry;
mod names;
mod raw;

use crate::build::BuildMonitor;
use crate::error::{Error, Result};
use crate::tree::{FileTree, NodeKind, Segment, TreeNodeId};
use drystone_blockdev::BlockDevice;
use geometry::{FIRST_CLUSTER, Geometry, SECTOR_BYTES, TABLES};
use names::{FatName, stored_names};
use raw::{BootSector, FatDirectoryEntry, InformationSector, long_name_entries};
use std::ops::Range;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32};

const ENTRY_BYTES: u64 = size_of::<FatDirectoryEntry>() as u64;
const FILE_BYTES_MAX: u64 = u32::MAX as u64;
const DIRECTORY_BYTES_MAX: u64 = 65_536 * ENTRY_BYTES;
const INFORMATION_SECTOR: u64 = 1;
const BACKUP_SECTOR: u64 = 6;
const END_OF_CHAIN: u32 = 0x0fff_ffff;
const MEDIA: u8 = 0xf8;
/// Bytes that are copied at once.
const PIECE_BYTES: u64 = 1 << 20;

/// The options of a FAT32 file system.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FatOptions {
    /// Its size in bytes, a multiple of 1 MiB; `None` for what the files need.
    pub size_bytes: Option<u64>,
    /// The label of the volume: upper case, padded with spaces.
    pub label: [u8; 11],
    /// Where it is on its disk, in bytes.
    pub disk_offset: u64,
}

drystone_options::setters! {
    FatOptions {
        size_bytes: impl Into<Option<u64>>,
        label: [u8; 11],
        disk_offset: u64,
    }
}

impl Default for FatOptions {
    /// As large as the files need, without a label, at the start of its disk.
    fn default() -> FatOptions {
        FatOptions { size_bytes: None, label: *b"NO NAME    ", disk_offset: 0 }
    }
}

/// A laid out FAT32.
pub struct FatBuilder<'t> {
    tree: &'t FileTree,
    options: FatOptions,
    geometry: Geometry,
    /// The root first; the entries of a directory are together.
    items: Vec<FatItem>,
}

/// A directory or file, with the place of its data.
struct FatItem {
    node: TreeNodeId,
    name: FatName,
    /// The index of its directory.
    parent: usize,
    bytes: u64,
    /// What is in it, if it is a directory.
    children: Option<Range<usize>>,
    /// 0 if it has none.
    first_cluster: u32,
    clusters: u64,
}

impl<'t> FatBuilder<'t> {
    /// Lays out a FAT32 of all that is in the tree.
    ///
    /// # Errors
    /// Something that FAT can't hold or name; [`Error::DoesNotFit`] for a fixed size that is too small.
    pub fn new(tree: &'t FileTree, options: FatOptions) -> Result<FatBuilder<'t>> {
        let mut items = collect(tree)?;
        let sizes = || items.iter().map(|item| item.bytes);
        let geometry = Geometry::for_content(sizes, options.size_bytes)?;
        let mut next = u64::from(FIRST_CLUSTER);
        for item in &mut items {
            item.clusters = item.bytes.div_ceil(geometry.cluster_bytes());
            // Below the number of clusters, which is checked next.
            item.first_cluster = if item.clusters == 0 { 0 } else { next as u32 };
            next += item.clusters;
        }
        if next - u64::from(FIRST_CLUSTER) > geometry.clusters {
            // Larger clusters hold less of small files.
            let problem = "the files don't fit into a FAT32 of this size; make it larger";
            return Err(Error::Option(problem.to_owned()));
        }
        Ok(FatBuilder { tree, options, geometry, items })
    }

    /// Bytes of the file system.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.geometry.size_bytes()
    }

    /// Directories and files, with the root.
    #[must_use]
    pub fn files(&self) -> u64 {
        self.items.len() as u64
    }

    /// Bytes of the files.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.items.iter().filter(|item| item.children.is_none()).map(|item| item.bytes).sum()
    }

    /// Writes it with the serial number of its volume, and makes it durable.
    ///
    /// # Errors
    /// The device or a source fails, or `monitor` asks for an end.
    pub fn write(
        &self,
        device: &dyn BlockDevice,
        serial: u32,
        is_zeroed: bool,
        monitor: &dyn BuildMonitor,
    ) -> Result<()> {
        let geometry = &self.geometry;
        if !is_zeroed {
            device.zero_range(0, geometry.offset(FIRST_CLUSTER))?;
            device.flush()?;
        }
        let table = self.table();
        for number in 0..TABLES {
            let at = (geometry.reserved + number * geometry.table) * SECTOR_BYTES;
            device.write_at(at, &table)?;
        }
        let mut buffer = vec![0; PIECE_BYTES.max(geometry.cluster_bytes()) as usize];
        for item in &self.items {
            match &item.children {
                Some(children) => {
                    let mut bytes = self.directory(item, children.clone());
                    bytes.resize((item.clusters * geometry.cluster_bytes()) as usize, 0);
                    device.write_at(geometry.offset(item.first_cluster), &bytes)?;
                }
                None => self.copy(item, device, &mut buffer, monitor)?,
            }
            monitor.wrote(0, 1);
        }
        let (boot, information) = (self.boot_sector(serial), self.information_sector());
        for first in [BACKUP_SECTOR, 0] {
            let at = (first + INFORMATION_SECTOR) * SECTOR_BYTES;
            device.write_at(at, information.as_bytes())?;
            device.flush()?;
            device.write_at(first * SECTOR_BYTES, boot.as_bytes())?;
        }
        device.flush()?;
        Ok(())
    }

    /// The used part of the allocation table.
    fn table(&self) -> Vec<u8> {
        let mut table = vec![END_OF_CHAIN & !0xff | u32::from(MEDIA), END_OF_CHAIN];
        for item in self.items.iter().filter(|item| item.clusters > 0) {
            let last = item.first_cluster + (item.clusters - 1) as u32;
            table.extend(item.first_cluster + 1..=last);
            table.push(END_OF_CHAIN);
        }
        table.iter().flat_map(|entry| entry.to_le_bytes()).collect()
    }

    fn directory(&self, item: &FatItem, children: Range<usize>) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(item.bytes as usize);
        let modified = self.tree.node(item.node).modified();
        if item.node == TreeNodeId::ROOT {
            let label =
                FatDirectoryEntry::new(self.options.label, raw::VOLUME_LABEL, modified, 0, 0);
            bytes.extend_from_slice(label.as_bytes());
        } else {
            let parent = &self.items[item.parent];
            // The root is called 0 here.
            let above = if parent.node == TreeNodeId::ROOT { 0 } else { parent.first_cluster };
            let time = self.tree.node(parent.node).modified();
            let own = item.first_cluster;
            for (name, time, cluster) in
                [(b".          ", modified, own), (b"..         ", time, above)]
            {
                let entry = FatDirectoryEntry::new(*name, raw::DIRECTORY, time, cluster, 0);
                bytes.extend_from_slice(entry.as_bytes());
            }
        }
        for child in &self.items[children] {
            let modified = self.tree.node(child.node).modified();
            let (attributes, size) = match child.children {
                Some(_) => (raw::DIRECTORY, 0),
                // Checked when it was collected.
                None => (raw::ARCHIVE, child.bytes as u32),
            };
            for entry in long_name_entries(&child.name) {
                bytes.extend_from_slice(&entry);
            }
            let short = child.name.short;
            let entry =
                FatDirectoryEntry::new(short, attributes, modified, child.first_cluster, size);
            bytes.extend_from_slice(entry.as_bytes());
        }
        bytes
    }

    /// Copies the content of a file, and fills its last cluster with zeros.
    fn copy(
        &self,
        item: &FatItem,
        device: &dyn BlockDevice,
        buffer: &mut [u8],
        monitor: &dyn BuildMonitor,
    ) -> Result<()> {
        let node = self.tree.node(item.node);
        let mut segments: Vec<Segment> = node.segments().collect();
        segments.reverse();
        let (mut at, end) = (0, item.clusters * self.geometry.cluster_bytes());
        while at < end {
            if monitor.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let length = (end - at).min(buffer.len() as u64);
            let piece = &mut buffer[..length as usize];
            piece.fill(0);
            if let Some(bytes) = node.inline_bytes() {
                let rest = &bytes[bytes.len().min(at as usize)..];
                let length = rest.len().min(piece.len());
                piece[..length].copy_from_slice(&rest[..length]);
            }
            while let Some(segment) = segments.last_mut().filter(|next| next.logical < at + length)
            {
                let from = (segment.logical - at) as usize;
                let taken = segment.length.min(at + length - segment.logical);
                let target = &mut piece[from..from + taken as usize];
                self.tree.source(segment.source).read_at(segment.object, segment.offset, target)?;
                segment.logical += taken;
                segment.offset += taken;
                segment.length -= taken;
                if segment.length > 0 {
                    break;
                }
                segments.pop();
            }
            device.write_at(self.geometry.offset(item.first_cluster) + at, piece)?;
            monitor.wrote(length.min(item.bytes.saturating_sub(at)), 0);
            at += length;
        }
        Ok(())
    }

    fn boot_sector(&self, serial: u32) -> BootSector {
        let geometry = &self.geometry;
        let mut code = [0; 420];
        // The boot code only halts, in a loop: firmware reads files and never runs it.
        code[..3].copy_from_slice(&[0xf4, 0xeb, 0xfd]);
        let narrow = |sectors: u64| U16::new(sectors as u16);
        BootSector {
            jump: [0xeb, 0x58, 0x90],
            maker: *b"DRYSTONE",
            sector_bytes: narrow(SECTOR_BYTES),
            cluster_sectors: geometry.cluster_sectors as u8,
            reserved_sectors: narrow(geometry.reserved),
            tables: TABLES as u8,
            root_entries: U16::ZERO,
            sectors_16: U16::ZERO,
            media: MEDIA,
            table_sectors_16: U16::ZERO,
            track_sectors: U16::new(63),
            heads: U16::new(255),
            hidden_sectors: U32::new(
                u32::try_from(self.options.disk_offset / SECTOR_BYTES).unwrap_or(0),
            ),
            // At most SIZE_MAX.
            sectors: U32::new(geometry.sectors as u32),
            table_sectors: U32::new(geometry.table as u32),
            flags: U16::ZERO,
            version: U16::ZERO,
            root_cluster: U32::new(FIRST_CLUSTER),
            information_sector: narrow(INFORMATION_SECTOR),
            backup_sector: narrow(BACKUP_SECTOR),
            reserved: [0; 12],
            drive: 0x80,
            reserved_too: 0,
            extended_signature: 0x29,
            serial: U32::new(serial),
            label: self.options.label,
            kind: *b"FAT32   ",
            code,
            signature: [0x55, 0xaa],
        }
    }

    fn information_sector(&self) -> InformationSector {
        let used: u64 = self.items.iter().map(|item| item.clusters).sum();
        InformationSector {
            lead: *b"RRaA",
            reserved: [0; 480],
            signature: *b"rrAa",
            free_clusters: U32::new((self.geometry.clusters - used) as u32),
            next_free: U32::new(FIRST_CLUSTER + used as u32),
            reserved_too: [0; 12],
            trail: [0, 0, 0x55, 0xaa],
        }
    }
}

/// Lists directories and files, those of each directory together and sorted by name, and measures them.
fn collect(tree: &FileTree) -> Result<Vec<FatItem>> {
    let name = FatName { long: Vec::new(), short: [b' '; 11] };
    let item = |node, name, parent, bytes| FatItem {
        node,
        name,
        parent,
        bytes,
        children: None,
        first_cluster: 0,
        clusters: 0,
    };
    let mut items = vec![item(TreeNodeId::ROOT, name, 0, 0)];
    let mut at = 0;
    while let Some(directory) = items.get(at).map(|item| item.node) {
        if tree.parent(directory).is_none() {
            at += 1;
            continue;
        }
        let mut children: Vec<(&[u8], TreeNodeId)> = tree.children(directory).collect();
        children.sort_unstable_by_key(|&(name, _)| name);
        let refuse = |name: &[u8], problem: String| Error::File {
            path: tree.entry_path(directory, name),
            problem,
        };
        let names: Vec<&[u8]> = children.iter().map(|&(name, _)| name).collect();
        let stored = stored_names(&names)
            .map_err(|(index, problem)| refuse(names.get(index).unwrap_or(&&b"?"[..]), problem))?;
        // A label in the root, else itself and the directory above.
        let own = if directory == TreeNodeId::ROOT { 1 } else { 2 };
        let entries: u64 = own + stored.iter().map(FatName::entries).sum::<u64>();
        if entries * ENTRY_BYTES > DIRECTORY_BYTES_MAX {
            let path = tree.directory_path(directory);
            return Err(Error::File { path, problem: "too many names for FAT".to_owned() });
        }
        let first = items.len();
        for ((name, node), stored) in children.into_iter().zip(stored) {
            let bytes = match tree.node(node).kind() {
                NodeKind::Directory => 0,
                NodeKind::File { size } if size <= FILE_BYTES_MAX => size,
                NodeKind::File { .. } => {
                    return Err(refuse(name, "a file in FAT has less than 4 GiB".to_owned()));
                }
                _ => return Err(refuse(name, "FAT holds only directories and files".to_owned())),
            };
            items.push(item(node, stored, at, bytes));
        }
        items[at].bytes = entries * ENTRY_BYTES;
        items[at].children = Some(first..items.len());
        at += 1;
    }
    Ok(items)
}
