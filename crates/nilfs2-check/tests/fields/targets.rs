//! Every field of every structure, with its place in the image. The tables are written from the
//! description of the format, not from the declarations of the crate that is tested.

use crate::volume::{MapPlaces, Volume};
use drystone_nilfs2_format::InodeNumber;
use drystone_nilfs2_format::allocator::EntryLayout;
use drystone_nilfs2_format::cpfile;
use drystone_nilfs2_format::directory::entries;
use drystone_nilfs2_format::inode::Inode;
use drystone_nilfs2_format::sufile;
use drystone_nilfs2_format::{CheckpointNumber, FileBlock, SegmentNumber};

/// A field: its place in the image in bytes, its length, and `structure/field`.
#[derive(Clone, Debug)]
pub struct FieldTarget {
    pub at: usize,
    pub length: usize,
    pub label: String,
}

type Fields = &'static [(&'static str, usize, usize)];

const SUPERBLOCK: Fields = &[
    ("rev_level", 0, 4),
    ("minor_rev_level", 4, 2),
    ("magic", 6, 2),
    ("bytes", 8, 2),
    ("flags", 10, 2),
    ("crc_seed", 12, 4),
    ("log_block_size", 20, 4),
    ("nsegments", 24, 8),
    ("dev_size", 32, 8),
    ("first_data_block", 40, 8),
    ("blocks_per_segment", 48, 4),
    ("r_segments_percentage", 52, 4),
    ("last_cno", 56, 8),
    ("last_pseg", 64, 8),
    ("last_seq", 72, 8),
    ("free_blocks_count", 80, 8),
    ("ctime", 88, 8),
    ("mtime", 96, 8),
    ("wtime", 104, 8),
    ("mnt_count", 112, 2),
    ("max_mnt_count", 114, 2),
    ("state", 116, 2),
    ("errors", 118, 2),
    ("lastcheck", 120, 8),
    ("checkinterval", 128, 4),
    ("creator_os", 132, 4),
    ("def_resuid", 136, 2),
    ("def_resgid", 138, 2),
    ("first_ino", 140, 4),
    ("inode_size", 144, 2),
    ("dat_entry_size", 146, 2),
    ("checkpoint_size", 148, 2),
    ("segment_usage_size", 150, 2),
    ("uuid", 152, 8),
    ("volume_name", 168, 8),
    ("c_interval", 248, 4),
    ("c_block_max", 252, 4),
    ("feature_compat", 256, 8),
    ("feature_compat_ro", 264, 8),
    ("feature_incompat", 272, 8),
];
const LOG: Fields = &[
    ("magic", 8, 4),
    ("bytes", 12, 2),
    ("flags", 14, 2),
    ("seq", 16, 8),
    ("create", 24, 8),
    ("next", 32, 8),
    ("nblocks", 40, 4),
    ("nfinfo", 44, 4),
    ("sumbytes", 48, 4),
    ("cno", 56, 8),
    ("finfo[0].ino", 64, 8),
    ("finfo[0].cno", 72, 8),
    ("finfo[0].nblocks", 80, 4),
    ("finfo[0].ndatablk", 84, 4),
    ("item[0]", 88, 8),
];
const SUPER_ROOT: Fields = &[("bytes", 4, 2), ("flags", 6, 2), ("nongc_ctime", 8, 8)];
const INODE: Fields = &[
    ("blocks", 0, 8),
    ("size", 8, 8),
    ("ctime", 16, 8),
    ("mtime", 24, 8),
    ("ctime_nsec", 32, 4),
    ("mtime_nsec", 36, 4),
    ("uid", 40, 4),
    ("gid", 44, 4),
    ("mode", 48, 2),
    ("links_count", 50, 2),
    ("flags", 52, 4),
    ("xattr", 112, 8),
    ("generation", 120, 4),
];
const DIRECT: Fields = &[("flags", 0, 1), ("pointer[0]", 8, 8), ("pointer[1]", 16, 8)];
const ROOT: Fields = &[
    ("flags", 0, 1),
    ("level", 1, 1),
    ("nchildren", 2, 2),
    ("key[0]", 8, 8),
    ("pointer[0]", 32, 8),
];
const NODE: Fields =
    &[("flags", 0, 1), ("level", 1, 1), ("nchildren", 2, 2), ("key[0]", 16, 8), ("key[1]", 24, 8)];
const DAT_ENTRY: Fields = &[("blocknr", 0, 8), ("start", 8, 8), ("end", 16, 8)];
const CPFILE_HEADER: Fields = &[
    ("ncheckpoints", 0, 8),
    ("nsnapshots", 8, 8),
    ("snapshot_next", 16, 8),
    ("snapshot_prev", 24, 8),
];
const CHECKPOINT: Fields = &[
    ("flags", 0, 4),
    ("snapshot_next", 8, 8),
    ("snapshot_prev", 16, 8),
    ("cno", 24, 8),
    ("create", 32, 8),
    ("nblk_inc", 40, 8),
    ("inodes_count", 48, 8),
    ("blocks_count", 56, 8),
];
const SUFILE_HEADER: Fields = &[("ncleansegs", 0, 8), ("ndirtysegs", 8, 8), ("last_alloc", 16, 8)];
const USAGE: Fields = &[("lastmod", 0, 8), ("nblocks", 8, 4), ("flags", 12, 4)];
const ENTRY: Fields = &[
    ("ino", 0, 8),
    ("rec_len", 8, 2),
    ("name_len", 10, 1),
    ("file_type", 11, 1),
    ("name[0]", 12, 1),
];

/// Logs, entries of a directory, and inodes of one kind of which the fields are damaged.
const SAMPLES: usize = 4;

struct Targets<'a> {
    volume: &'a Volume,
    found: Vec<FieldTarget>,
}

/// All fields of an image.
pub fn all(volume: &Volume) -> Vec<FieldTarget> {
    let mut targets = Targets { volume, found: Vec::new() };
    let bs = volume.block_bytes();
    targets.add("first superblock", 1024, SUPERBLOCK);
    let second = volume.geometry.second_superblock_offset() as usize;
    targets.add("second superblock", second, SUPERBLOCK);
    let logs = &volume.logs;
    for log in logs.iter().step_by(logs.len().div_ceil(SAMPLES)) {
        targets.add("log", log.block as usize * bs, LOG);
    }
    // Its blocks live.
    let newest = volume.superblock.cursor().block.0;
    targets.add("newest log", newest as usize * bs, LOG);
    let root = volume.super_root_block as usize * bs;
    targets.add("super root", root, SUPER_ROOT);
    let files = &volume.super_root;
    for (name, at, number, inode) in [
        ("DAT", 16, InodeNumber::DAT, &files.dat),
        ("cpfile", 144, InodeNumber::CPFILE, &files.cpfile),
        ("sufile", 272, InodeNumber::SUFILE, &files.sufile),
    ] {
        targets.inode(&format!("inode of {name}"), root + at, inode);
        let places = volume.places(number, &inode.map, number == InodeNumber::DAT);
        targets.nodes(name, &places);
        match name {
            "DAT" => targets.entry_file(name, &places, 32),
            "cpfile" => targets.cpfile(&places),
            _ => targets.sufile(&places),
        }
    }
    targets.found
}

impl Targets<'_> {
    fn add(&mut self, structure: &str, at: usize, fields: Fields) {
        for (name, offset, length) in fields {
            let (at, length) = (at + offset, *length);
            self.found.push(FieldTarget { at, length, label: format!("{structure}/{name}") });
        }
    }

    fn inode(&mut self, structure: &str, at: usize, inode: &Inode) {
        self.add(structure, at, INODE);
        let map = if inode.map[0] & 1 == 0 { DIRECT } else { ROOT };
        let kind = inode.mode & Inode::TYPE_MASK;
        if [Inode::REGULAR, Inode::DIRECTORY, Inode::SYMLINK].contains(&kind) {
            self.add(&format!("map of {structure}"), at + 56, map);
        }
    }

    fn nodes(&mut self, name: &str, places: &MapPlaces) {
        let bs = self.volume.block_bytes();
        for node in places.nodes.iter().take(2) {
            let at = *node as usize * bs;
            self.add(&format!("node of {name}"), at, NODE);
            let pointers = at + 16 + 8 * ((bs - 16) / 16);
            self.add(&format!("node of {name}"), pointers, &[("pointer[0]", 0, 8)]);
        }
    }

    /// Counts, bitmaps and, of the DAT, entries.
    fn entry_file(&mut self, name: &str, places: &MapPlaces, entry_bytes: usize) {
        let bs = self.volume.block_bytes();
        let layout = EntryLayout::new(bs, entry_bytes);
        let place = |key: FileBlock| {
            let found = places.data.iter().find(|(found, _)| *found == key.0);
            found.map(|(_, place)| *place as usize * bs)
        };
        let descriptors = place(layout.descriptor(0).0).unwrap();
        self.add(name, descriptors, &[("free[0]", 0, 4), ("free[1]", 4, 4)]);
        let bitmap = place(layout.bitmap(0)).unwrap();
        self.add(name, bitmap, &[("bitmap[0]", 0, 1), ("bitmap[2]", 2, 1)]);
        self.add(name, bitmap + bs - 1, &[("bitmap[last]", 0, 1)]);
        if name == "DAT" {
            let bits = self.volume.block((bitmap / bs) as u64);
            let is_used = |number: &u64| bits[*number as usize / 8] >> (number % 8) & 1 == 1;
            for number in (1..bs as u64 * 8).filter(is_used).step_by(60) {
                let (key, at) = layout.entry(number);
                self.add("DAT entry", place(key).unwrap() + at, DAT_ENTRY);
            }
        }
    }

    fn cpfile(&mut self, places: &MapPlaces) {
        let bs = self.volume.block_bytes();
        let newest = self.volume.superblock.cursor().checkpoint.0;
        self.add("cpfile header", places.data[0].1 as usize * bs, CPFILE_HEADER);
        let mut ifile = None;
        for number in 1..=newest {
            let (key, at) = cpfile::place_of(CheckpointNumber(number), bs);
            let Some((_, place)) = places.data.iter().find(|(found, _)| *found == key.0) else {
                continue;
            };
            let bytes = self.volume.block(*place);
            let Ok(found) = cpfile::Checkpoint::check(&bytes[at..], CheckpointNumber(number), bs)
            else {
                continue;
            };
            let is_snapshot = found.flags.contains(cpfile::CheckpointFlags::SNAPSHOT);
            let at = *place as usize * bs + at;
            if key.0 > 0 && number % cpfile::entries_per_block(bs) == 0 {
                self.add("cpfile block", at, &[("valid_count", 4, 4)]);
            }
            let name = match (number == newest, is_snapshot) {
                (true, _) => "newest checkpoint",
                (_, true) => "snapshot",
                _ => "plain checkpoint",
            };
            self.add(name, at, CHECKPOINT);
            if number == newest {
                self.inode("inode of ifile", at + 64, &found.ifile);
                ifile = Some(found.ifile);
            }
        }
        let places = self.volume.places(InodeNumber::IFILE, &ifile.unwrap().map, false);
        self.nodes("ifile", &places);
        self.entry_file("ifile", &places, 128);
        self.files(&places);
    }

    fn sufile(&mut self, places: &MapPlaces) {
        let bs = self.volume.block_bytes();
        self.add("sufile header", places.data[0].1 as usize * bs, SUFILE_HEADER);
        for number in [0, 1, 2, 3, self.volume.geometry.segments() - 1] {
            let (key, at) = sufile::place_of(SegmentNumber(number), bs);
            let found = places.data.iter().find(|(found, _)| *found == key.0);
            if let Some((_, place)) = found {
                self.add("usage", *place as usize * bs + at, USAGE);
            }
        }
    }

    /// Some inodes of each kind, with what they lead to.
    fn files(&mut self, ifile: &MapPlaces) {
        let bs = self.volume.block_bytes();
        let layout = EntryLayout::new(bs, 128);
        let mut counts = std::collections::BTreeMap::new();
        for number in (2..layout.entries_per_group()).map(InodeNumber) {
            let (key, at) = layout.entry(number.0);
            let Some((_, place)) = ifile.data.iter().find(|(found, _)| *found == key.0) else {
                continue;
            };
            let inode = Inode::read(&self.volume.block(*place)[at..]).unwrap();
            let kind = inode.mode & Inode::TYPE_MASK;
            if inode.links_count == 0 || (3..12).contains(&number.0) {
                continue;
            }
            let has_tree = inode.map[0] & 1 == 1 && kind == Inode::REGULAR;
            let count: &mut usize = counts.entry((kind, has_tree)).or_default();
            *count += 1;
            if *count > SAMPLES {
                continue;
            }
            self.inode(&format!("inode {kind:o}"), *place as usize * bs + at, &inode);
            if kind == Inode::REGULAR || kind == Inode::DIRECTORY {
                let places = self.volume.places(number, &inode.map, false);
                self.nodes("a file", &places);
                for (key, place) in places.data.iter().filter(|_| kind == Inode::DIRECTORY) {
                    let bytes = self.volume.block(*place);
                    for entry in entries(&bytes, number, FileBlock(*key)).take(SAMPLES) {
                        let entry = entry.unwrap();
                        if entry.inode.0 != 0 {
                            self.add("entry", *place as usize * bs + entry.offset, ENTRY);
                        }
                    }
                }
            }
        }
    }
}
