//! Fast commits made without Linux, also such as Linux would never write.

use crate::area;
use crate::recovery::{judge, open, recovers, recovers_after_crashes, tree};
use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4::Error;
use drystone_ext4_format::error::{BlockProblem, FastCommitProblem};
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::features::Features;
use drystone_ext4_format::group::GroupDescriptor;
use drystone_ext4_format::inode::{Inode, InodeFlags, InodeTimestamp};
use drystone_ext4_format::{Corrupt, GroupNumber, InodeNumber, LogicalBlock, PhysicalBlock};
use drystone_jbd2::{FastCommit, FastCommitRecord};
use drystone_mkfs::{JournalSize, MkfsOptions, default_features, make};
use drystone_sync::Arc;
use drystone_vfs::{FileSystem, NewNode, RequestContext};

const SIZE: u64 = 32 << 20;
const BLOCK: u64 = 4096;
/// A free block. The blocks after it are free as well.
const FREE: u64 = 6000;
const ROOT: u32 = 2;
/// Numbers of free inodes.
const NEW: u32 = 40;
const OTHER: u32 = 41;
const TIME: InodeTimestamp = InodeTimestamp { seconds: 1_700_000_000, nanoseconds: 5 };

const ADD: u16 = 1;
const CUT: u16 = 2;
const CREATE: u16 = 3;
const LINK: u16 = 4;
const UNLINK: u16 = 5;
const INODE: u16 = 6;

/// A closed image with some files, and their numbers.
struct Before {
    device: Arc<MemoryDevice>,
    /// A file of three blocks.
    file: u32,
    /// Another.
    other: u32,
    /// A directory without names.
    empty: u32,
    /// One with the name `below`.
    full: u32,
}

/// A closed image with these features beside the default ones.
fn before(features: &str) -> Before {
    let device = MemoryDevice::new(SIZE);
    let mut options = MkfsOptions::new(SIZE, [7; 16], [1, 2, 3, 4], 1_700_000_000);
    options.block_size = Some(4096);
    // Beside the fast commits, e2fsck demands 1024 blocks.
    options.journal_size = JournalSize::Bytes(8 << 20);
    let features = Features::parse(&format!("fast_commit,{features}")).unwrap();
    options.features = default_features().apply(&features);
    make(&device, &options, true).unwrap();
    for block in FREE..FREE + 4 {
        device.write_at(block * BLOCK, &[block as u8; BLOCK as usize]).unwrap();
    }
    let device = Arc::new(device);
    let fs = open(&device, false).unwrap();
    let context = RequestContext::superuser();
    let new = |parent, name: &str, node| {
        fs.create(&context, parent, name.as_bytes(), node, 0o755).unwrap().inode
    };
    let file = new(fs.root(), "file", NewNode::Regular);
    let other = new(fs.root(), "other", NewNode::Regular);
    for file in [file, other] {
        fs.write(&context, file, 0, &[7; 12_000]).unwrap();
    }
    let empty = new(fs.root(), "empty", NewNode::Directory);
    let full = new(fs.root(), "full", NewNode::Directory);
    new(full, "below", NewNode::Regular);
    fs.close().unwrap();
    let [file, other, empty, full] = [file, other, empty, full].map(|inode| inode.0 as u32);
    Before { device, file, other, empty, full }
}

impl Before {
    fn inode(&self, number: u32) -> Inode {
        let superblock = area::superblock(&*self.device);
        let layout = superblock.layout();
        let mut descriptor = vec![0; layout.descriptor_size()];
        self.device.read_at(BLOCK, &mut descriptor).unwrap();
        let descriptor = GroupDescriptor::check(&descriptor, GroupNumber::FIRST, layout).unwrap();
        let inode = InodeNumber::new(number);
        let (block, offset) = layout.inode_location(inode, descriptor.inode_table).unwrap();
        let mut record = vec![0; layout.inode_size()];
        self.device.read_at(block.get() * BLOCK + offset as u64, &mut record).unwrap();
        Inode::check(&record, inode, layout).unwrap()
    }

    fn record(&self, inode: &Inode) -> FastCommitRecord {
        let superblock = area::superblock(&*self.device);
        let layout = superblock.layout();
        let mut bytes = vec![0; layout.inode_size()];
        inode.encode_unsealed(&mut bytes, layout).unwrap();
        let fields = &bytes[..128 + usize::from(inode.extra_size)];
        record(INODE, &[&inode.number.get().to_le_bytes(), fields])
    }

    /// A new inode.
    fn made(&self, number: u32, mode: u16, size_bytes: u64) -> Inode {
        let superblock = area::superblock(&*self.device);
        let made = Inode::new(InodeNumber::new(number), mode, TIME, superblock.layout());
        Inode { size_bytes, generation: number, flags: InodeFlags::EXTENTS, ..made }
    }

    /// The image with these fast commits.
    fn with(&self, commits: &[FastCommit]) -> Arc<MemoryDevice> {
        let dirty = self.device.snapshot();
        area::fill(&dirty, commits);
        Arc::new(dirty)
    }

    /// The damage that a mount finds in fast commits. Except for the journal, the image stays as it was.
    fn problem(&self, commits: &[FastCommit]) -> Corrupt {
        let dirty = self.with(commits);
        for read_only in [true, false] {
            match open(&dirty, read_only) {
                Err(Error::Corrupt(_)) => {}
                Err(other) => panic!("{other}"),
                Ok(_) => panic!("{commits:?} were replayed"),
            }
        }
        let Err(Error::Corrupt(corrupt)) = open(&dirty, false) else { panic!("not again") };
        area::empty(&dirty);
        let fs = open(&dirty, false).unwrap();
        let found = tree(&fs);
        fs.close().unwrap();
        let fs = open(&self.device, true).unwrap();
        assert_eq!(found, tree(&fs));
        corrupt
    }
}

fn record(tag: u16, parts: &[&[u8]]) -> FastCommitRecord {
    FastCommitRecord { tag, value: parts.concat().into() }
}

fn name(tag: u16, parent: u32, inode: u32, name: &str) -> FastCommitRecord {
    record(tag, &[&parent.to_le_bytes(), &inode.to_le_bytes(), name.as_bytes()])
}

fn add(inode: u32, logical: u32, length: u32, physical: u64) -> FastCommitRecord {
    let (logical, physical) = (LogicalBlock::new(logical), PhysicalBlock::new(physical));
    let extent = Extent { logical, length, physical, unwritten: false };
    record(ADD, &[&inode.to_le_bytes(), &extent.entry()])
}

fn cut(inode: u32, from: u32, length: u32) -> FastCommitRecord {
    record(CUT, &[&inode.to_le_bytes(), &from.to_le_bytes(), &length.to_le_bytes()])
}

/// Fast commits with records of all kinds.
fn work(before: &Before) -> Vec<FastCommit> {
    let new = before.record(&before.made(NEW, 0o100_640, 5000));
    let directory = before.record(&before.made(OTHER, 0o40_750, 4096));
    let changed = before.inode(before.file);
    let changed = Inode { mode: 0o100_600, user: 5, size_bytes: 8000, ..changed };
    // Its number now stands for another file.
    let again =
        Inode { generation: 99, size_bytes: 4096, ..before.made(before.other, 0o100_644, 0) };
    vec![
        vec![new.clone(), add(NEW, 0, 2, FREE), name(CREATE, ROOT, NEW, "new"), new.clone()],
        vec![
            directory,
            name(CREATE, ROOT, OTHER, "directory"),
            name(LINK, OTHER, NEW, "link"),
            name(UNLINK, ROOT, before.empty, "empty"),
            add(before.file, 1, 1, FREE + 2),
            cut(before.file, 2, u32::MAX - 2),
            before.record(&changed),
        ],
        vec![],
        vec![
            name(UNLINK, ROOT, before.other, "other"),
            before.record(&again),
            add(before.other, 0, 1, FREE + 3),
            name(CREATE, before.full, before.other, "again"),
            name(LINK, ROOT, before.file, "for a moment"),
            name(UNLINK, ROOT, before.file, "for a moment"),
        ],
    ]
}

#[test]
fn everything_is_replayed() {
    replays_everything("");
    // With usage counted for all kinds of owners.
    replays_everything("quota,project");
}

fn replays_everything(features: &str) {
    let before = before(features);
    let dirty = before.with(&work(&before));
    let recovered = Arc::new(dirty.snapshot());
    let fs = open(&recovered, false).unwrap();
    let expected = tree(&fs);
    let names: Vec<_> = expected.entries.keys().map(ToString::to_string).collect();
    let found = ["/", "/directory", "/directory/link", "/file", "/full", "/full/again"];
    assert_eq!(names[..6], found, "{names:?}");
    assert_eq!(names[6..], ["/full/below", "/new"]);
    let fact = |name: &str, fact: &str| {
        let entry = expected.entries.iter().find(|(path, _)| path.to_string() == name);
        entry.unwrap().1[fact].clone()
    };
    assert_eq!((fact("/new", "links"), fact("/new", "size")), ("2".into(), "5000".into()));
    assert_eq!((fact("/file", "links"), fact("/file", "size")), ("1".into(), "8000".into()));
    assert_eq!((fact("/file", "mode"), fact("/new", "mode")), ("0600".into(), "0640".into()));
    assert_eq!((fact("/", "links"), fact("/directory", "links")), ("4".into(), "2".into()));
    let context = RequestContext::superuser();
    let content = |parent, name: &str, at: u64| {
        let file = fs.lookup(&context, parent, name.as_bytes()).unwrap().inode;
        let mut byte = [0];
        assert_eq!(fs.read(file, at, &mut byte).unwrap(), 1);
        u64::from(byte[0])
    };
    assert_eq!(content(fs.root(), "new", 4096), (FREE + 1) % 256);
    assert_eq!(content(fs.root(), "file", 0), 7);
    assert_eq!(content(fs.root(), "file", 4096), (FREE + 2) % 256);
    let full = fs.lookup(&context, fs.root(), b"full").unwrap().inode;
    assert_eq!(content(full, "again", 0), (FREE + 3) % 256);
    fs.close().unwrap();
    recovers(&dirty, &expected, "made here");
    recovers_after_crashes(&dirty, &expected, "made here");
}

#[test]
fn what_can_not_be_is_refused() {
    let before = before("");
    let new = before.record(&before.made(NEW, 0o100_644, 5000));
    let create = name(CREATE, ROOT, NEW, "new");
    let made =
        |records: &[FastCommitRecord]| vec![[&[new.clone(), create.clone()], records].concat()];
    let own = area::superblock(&*before.device).orphan_file_inode().unwrap().get();
    let directory = before.record(&Inode { mode: 0o40_755, ..before.inode(before.file) });
    let attributes = before.made(NEW, 0o100_644, 0);
    let attributes = Inode { attribute_block: Some(PhysicalBlock::new(FREE)), ..attributes };
    let used = |block| FastCommitProblem::BlockInUse(PhysicalBlock::new(block));
    let cases = [
        (made(&[add(NEW, 0, 1, 6000), add(NEW, 9, 2, 5999)]), used(6000)),
        (vec![vec![name(LINK, ROOT, NEW, "new")]], FastCommitProblem::Absent),
        (vec![vec![name(LINK, NEW, before.file, "in nothing")]], FastCommitProblem::Absent),
        (vec![vec![name(LINK, before.file, NEW, "in a file")]], FastCommitProblem::NoDirectory),
        (vec![vec![name(UNLINK, ROOT, before.full, "full")]], FastCommitProblem::NotEmpty),
        (vec![vec![name(LINK, ROOT, before.full, "b")]], FastCommitProblem::DirectoryNames),
        (vec![vec![directory]], FastCommitProblem::Type),
        (vec![vec![before.record(&attributes), create.clone()]], FastCommitProblem::Attributes),
        // The file system's own inodes.
        (vec![vec![cut(own, 0, 1)]], FastCommitProblem::Number),
        (vec![vec![name(LINK, ROOT, own, "own")]], FastCommitProblem::Number),
        (vec![vec![name(LINK, own, before.file, "in its own")]], FastCommitProblem::Number),
        (made(&[record(7 << 4, &[])]), FastCommitProblem::Tag(7 << 4)),
    ];
    for (commits, expected) in &cases[..cases.len() - 1] {
        match before.problem(commits) {
            Corrupt::FastCommit { problem, .. } => assert_eq!(problem, *expected, "{commits:?}"),
            other => panic!("{other} of {commits:?}"),
        }
    }
    // A block of the inode table, which no file can have.
    let fixed = before.problem(&made(&[add(NEW, 0, 1, 40)]));
    assert!(matches!(fixed, Corrupt::Block { problem: BlockProblem::Fixed, .. }), "{fixed}");
}

/// Damage with a right checksum: an error or some tree, and never a panic.
#[test]
fn whatever_is_said_nothing_breaks() {
    for features in ["", "^extent", "bigalloc", "inline_data"] {
        let before = before(features);
        let replayed = (0..100).filter(|&seed| says_anything(&before, seed)).count();
        assert!(!features.is_empty() || replayed > 10, "{replayed} were replayed");
        judge(&*before.device, "before");
    }
}

/// Changes random records. Returns whether they are replayed.
fn says_anything(before: &Before, seed: u64) -> bool {
    let mut commits = work(before);
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..random.usize(1..4) {
        let commit = random.usize(0..commits.len());
        let commit = &mut commits[commit];
        if commit.is_empty() {
            continue;
        }
        let place = random.usize(0..commit.len());
        match random.u8(0..5) {
            0 => drop(commit.remove(place)),
            1 => commit.insert(place, commit[random.usize(0..commit.len())].clone()),
            2 => commit[place].tag = random.u16(1..7),
            _ => {
                let value = &mut commit[place].value;
                let byte = random.usize(0..value.len().min(40));
                let bit = 1 << random.u8(0..8);
                value[byte] = if random.bool() { random.u8(..) } else { value[byte] ^ bit };
            }
        }
    }
    let dirty = before.with(&commits);
    match open(&dirty, false) {
        Ok(fs) => {
            // The content may be wrong, but reading it must not panic.
            let _ =
                drystone_testkit::tree::TreeSnapshot::read(&fs, "/", &crate::recovery::options());
            let _ = fs.close();
            true
        }
        Err(Error::Corrupt(_) | Error::Errno(_) | Error::NoSpace) => false,
        Err(other) => panic!("seed {seed}: {other}"),
    }
}
