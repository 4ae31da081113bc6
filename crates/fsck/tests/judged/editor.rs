//! Images in which single fields are changed, by debugfs or by an edit of the bytes that repairs the
//! checksum, and what e2fsck and the checker say of them.

use crate::images;
use Change::{Directory, Journal, Requests};
use Chosen::{Logical, Node};
use drystone_blockdev::{BlockDevice, FileDevice, MemoryDevice, OpenMode};
use drystone_ext4_format::htree::IndexKind;
use drystone_ext4_format::inode::Inode;
use drystone_ext4_format::{InodeNumber, LogicalBlock};
use drystone_fsck::{Issue, IssueLocation};
use drystone_testkit::judges::{FeatureSet, Scratch, debugfs, e2fsck_check, run};
use drystone_testkit::metadata_map::{BlockContent, MetadataMap};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// Names in the directory `many`: with blocks of 1 KiB its index has two levels.
const NAMES: usize = 600;
/// The length of these names.
const NAME_LENGTH: usize = 240;

/// A block of a directory.
#[derive(Clone, Copy)]
pub enum Chosen {
    /// By its place in the directory.
    Logical(u32),
    /// The first node of the index below its root.
    Node,
}

/// Where a report must point.
#[derive(Clone, Copy)]
pub enum At {
    /// To no part of the image.
    Image,
    /// To an inode: a path, or a number in angle brackets.
    Inode(&'static str),
    /// To a block of a directory.
    Block(&'static str, Chosen),
    /// To a record of a directory, by its block and offset.
    Record(&'static str, u32, usize),
}

/// What is done to an image.
pub enum Change {
    /// What debugfs does, one request after the other.
    Requests(&'static str),
    /// Bytes of a block of a directory, from an offset on.
    Directory(&'static str, Chosen, usize, &'static [u8]),
    /// Words of the journal's superblock, by their offsets.
    Journal(&'static [(usize, u32)]),
}

/// What must be said of an image.
#[derive(Clone, Copy, Debug)]
pub enum Verdict<P> {
    /// Nothing, by both.
    Sound,
    /// That it is damaged, by both; and by the checker this kind at this place.
    Damaged(&'static str, P),
    /// This kind at this place by the checker, and nothing by e2fsck.
    Strict(&'static str, P),
}

impl<P> Verdict<P> {
    pub fn map<Q>(self, place: impl FnOnce(P) -> Q) -> Verdict<Q> {
        match self {
            Self::Sound => Verdict::Sound,
            Self::Damaged(kind, at) => Verdict::Damaged(kind, place(at)),
            Self::Strict(kind, at) => Verdict::Strict(kind, place(at)),
        }
    }
}

/// An image that was sound when it was opened.
pub struct Editor {
    path: PathBuf,
    pub map: MetadataMap,
}

impl Editor {
    pub fn open(path: &Path) -> Self {
        let map = MetadataMap::of(MemoryDevice::from_bytes(&fs::read(path).unwrap()));
        Self { path: path.to_owned(), map }
    }

    /// Changes a block and repairs its checksum.
    pub fn edit(&self, block: u64, change: impl FnOnce(&mut [u8])) {
        let content = self.map.blocks[&block];
        let mut bytes = self.map.block(block);
        change(&mut bytes);
        let device = FileDevice::open(&self.path, OpenMode::ReadWrite).unwrap();
        self.map.seal(&device, block, content, &mut bytes);
        device.write_at(block * bytes.len() as u64, &bytes).unwrap();
    }

    /// Changes the bytes of an inode.
    pub fn edit_inode(&self, number: InodeNumber, change: impl FnOnce(&mut [u8])) {
        let layout = self.map.layout();
        let (group, _) = layout.bit_of_inode(number).unwrap();
        let table = self.map.descriptor(group).inode_table;
        let (block, offset) = layout.inode_location(number, table).unwrap();
        self.edit(block.get(), |bytes| change(&mut bytes[offset..offset + layout.inode_size()]));
    }

    /// The inode of a path.
    pub fn inode(&self, path: &str) -> Inode {
        let number = inode_of(&self.path, path);
        Inode::read(&self.map.inode_bytes(number), number, self.map.layout()).unwrap()
    }

    /// Where a block of a directory lies, in its file and on the device.
    fn find(&self, path: &str, chosen: Chosen) -> (u32, u64) {
        let physical = |logical: u32| {
            let mapped = debugfs(&self.path, &format!("bmap {path} {logical}")).unwrap();
            mapped.output.split_whitespace().last().unwrap().parse().unwrap()
        };
        match chosen {
            Logical(logical) => (logical, physical(logical)),
            Node => {
                let is_node =
                    |block: u64| IndexKind::of(&self.map.block(block)) == Some(IndexKind::Node);
                let blocks = (1..).map(|logical| (logical, physical(logical)));
                blocks
                    .take_while(|(_, block)| *block != 0)
                    .find(|(_, block)| is_node(*block))
                    .unwrap()
            }
        }
    }

    /// Makes a change.
    pub fn change(&self, change: &Change) {
        match change {
            Requests(requests) => request(&self.path, requests),
            Directory(path, chosen, offset, bytes) => {
                let (_, block) = self.find(path, *chosen);
                self.edit(block, |block| block[*offset..][..bytes.len()].copy_from_slice(bytes));
            }
            Journal(fields) => {
                let is_head = |content: &BlockContent| *content == BlockContent::JournalSuperblock;
                let found = self.map.blocks.iter().find(|(_, content)| is_head(content));
                self.edit(*found.unwrap().0, |block| {
                    for (offset, value) in *fields {
                        block[*offset..][..4].copy_from_slice(&value.to_be_bytes());
                    }
                });
            }
        }
    }

    /// The place as the checker gives it.
    pub fn place(&self, at: At) -> IssueLocation {
        let none = IssueLocation::default();
        let inode = |path| Some(inode_of(&self.path, path));
        let logical = |logical| Some(LogicalBlock::new(logical));
        match at {
            At::Image => none,
            At::Inode(path) => IssueLocation { inode: inode(path), ..none },
            At::Block(path, chosen) => {
                let (block, _) = self.find(path, chosen);
                IssueLocation { inode: inode(path), logical_block: logical(block), ..none }
            }
            At::Record(path, block, offset) => IssueLocation {
                inode: inode(path),
                logical_block: logical(block),
                offset: Some(offset),
                ..none
            },
        }
    }
}

/// Does what debugfs is asked for, one request after the other.
pub fn request(image: &Path, requests: &str) {
    for request in requests.split("; ") {
        let arguments = ["-w", "-R", request].map(OsStr::new);
        run("debugfs", arguments.into_iter().chain([image.as_os_str()])).unwrap();
    }
}

/// The inode of a path, or of a number in angle brackets, as debugfs names it.
fn inode_of(image: &Path, path: &str) -> InodeNumber {
    let told = debugfs(image, &format!("stat {path}")).unwrap().output;
    let behind = told.split("Inode:").nth(1).unwrap_or_else(|| panic!("{path}: {told}"));
    InodeNumber::new(behind.split_whitespace().next().unwrap().parse().unwrap())
}

/// An image of a feature set, filled, indexed and clean.
pub fn make(scratch: &Scratch, set: &FeatureSet) -> PathBuf {
    let (tree, image) = (scratch.join("tree"), scratch.join(set.name));
    if !tree.exists() {
        fs::create_dir(&tree).unwrap();
        images::fill(&tree, 60);
        fs::create_dir(tree.join("many")).unwrap();
        for number in 0..NAMES {
            let name = format!("many/{number:0>NAME_LENGTH$}");
            fs::hard_link(tree.join("empty"), tree.join(name)).unwrap();
        }
        fs::create_dir(tree.join("locked")).unwrap();
        let name = tree.join("locked/sixteen or more bytes");
        let mode = rustix::fs::Mode::from_bits_truncate(0o644);
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, name, fifo, mode, 0).unwrap();
    }
    if !image.exists() {
        images::make(&image, set, Some(&tree)).expect_clean(set.name);
        run("e2fsck", [OsStr::new("-fyD"), image.as_os_str()]).unwrap();
        e2fsck_check(&image).unwrap().expect_clean(set.name);
        assert!(images::check_file(&image).is_clean(), "{}", set.name);
    }
    image
}

/// Asks both about an image.
pub fn judge(image: &Path, expected: Verdict<IssueLocation>) -> Result<(), String> {
    let report = images::check_file(image);
    let judgement = e2fsck_check(image).unwrap();
    // The exit code doesn't count everything that it would repair.
    let is_silent = judgement.is_clean() && !judgement.output.contains("? no\n");
    let is_told = |kind: &str, place: IssueLocation| {
        let is_it = |issue: &Issue| issue.code() == kind && issue.place() == place;
        !report.is_clean() && report.problems.iter().any(|problem| is_it(&problem.issue))
    };
    let fits = match expected {
        Verdict::Sound => is_silent && report.problems.is_empty(),
        Verdict::Damaged(kind, place) => !judgement.is_clean() && is_told(kind, place),
        Verdict::Strict(kind, place) => is_silent && is_told(kind, place),
    };
    let problems = images::problems(&report);
    fits.then_some(()).ok_or_else(|| format!("{expected:?}, found\n{problems}{}", judgement.output))
}
