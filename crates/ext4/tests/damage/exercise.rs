//! Use of a damaged image: everything is read, then a script of changes runs.

use crate::image::options;
use drystone_blockdev::BlockDevice;
use drystone_ext4::Ext4;
use drystone_ondisk::crc32c;
use drystone_sync::Arc;
use drystone_vfs::{
    Errno, Error, FallocateMode, FileSystem, FileType, InodeAttributes, InodeNumber, NewNode,
    RenameFlags, RequestContext, SeekFrom, SetAttributes, XattrMode,
};
use fastrand::Rng;
use std::collections::BTreeSet;

/// The results of reading everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Calls that failed because of damage.
    pub damages: u32,
    /// Over names, attributes and content, in an order that doesn't depend on where they are stored.
    pub digest: u32,
}

/// One name: its directory, the name, the attributes of its inode.
type Name = (InodeNumber, Vec<u8>, InodeAttributes);

/// Names that a script works on.
const NAMES_MAX: usize = 60;

/// The most reads of one file.
const READS_MAX: usize = 300;

/// Counts an error. An error about damage has to name the place.
fn judge(error: &Error, seen: &mut Seen) {
    if matches!(error.errno, Errno::EUCLEAN | Errno::EIO) {
        assert!(error.detail().is_some(), "an error that names no place: {error:?}");
    }
    seen.damages += 1;
}

fn take<T>(result: drystone_vfs::Result<T>, seen: &mut Seen) -> Option<T> {
    result.map_err(|error| judge(&error, seen)).ok()
}

/// Mounts the image; an error counts as a damage.
fn mount(device: Arc<dyn BlockDevice>, read_only: bool, seen: &mut Seen) -> Option<Ext4> {
    let opened = Ext4::open(device, options(read_only));
    opened
        .map_err(|error| {
            assert!(!error.to_string().is_empty());
            judge(&error.into(), seen);
        })
        .ok()
}

/// Reads everything through a read-only mount.
pub fn read_all(device: Arc<dyn BlockDevice>) -> Seen {
    let mut seen = Seen::default();
    let Some(fs) = mount(device, true, &mut seen) else { return seen };
    walk(&fs, &mut seen);
    if let Err(error) = fs.close() {
        judge(&error.into(), &mut seen);
    }
    seen
}

/// Reads everything through a writable mount, changes much, and closes.
pub fn change_all(device: Arc<dyn BlockDevice>, random: &mut Rng) {
    let mut seen = Seen::default();
    let Some(fs) = mount(device, false, &mut seen) else { return };
    let names = walk(&fs, &mut seen);
    for (parent, name, attributes) in &names {
        change(&fs, *parent, name, attributes, random, &mut seen);
    }
    let directories: Vec<InodeNumber> = names
        .iter()
        .filter(|(_, _, attributes)| attributes.file_type == FileType::Directory)
        .map(|(_, _, attributes)| attributes.inode)
        .chain([fs.root()])
        .collect();
    add(&fs, &directories, random, &mut seen);
    if let Err(error) = fs.close() {
        judge(&error.into(), &mut seen);
    }
}

/// Reads every name and everything of its inode. Returns some of the names.
fn walk(fs: &Ext4, seen: &mut Seen) -> Vec<Name> {
    let context = RequestContext::superuser();
    let mut names = Vec::new();
    let mut visited = BTreeSet::from([fs.root()]);
    let mut pending = vec![fs.root()];
    let statistics = take(fs.statistics(), seen);
    // No image has more entries than this.
    let image_bytes =
        statistics.map_or(0, |statistics| statistics.blocks * u64::from(statistics.block_size));
    let mut entries_left = (image_bytes / 8 + 1000).min(100_000);
    read_node(fs, fs.root(), FileType::Directory, seen);
    while let Some(directory) = pending.pop() {
        let mut found = list(fs, directory, &mut entries_left, seen);
        found.sort();
        for name in found {
            if name == b"." || name == b".." {
                continue;
            }
            let looked = fs.lookup(&context, directory, &name);
            let Some(attributes) = take(looked, seen) else { continue };
            if names.len() < NAMES_MAX {
                names.push((directory, name.clone(), attributes));
            }
            seen.digest = crc32c(seen.digest, &name);
            let facts = format!(
                "{:?} {:o} {} {} {} {:?}",
                attributes.file_type,
                attributes.permissions,
                attributes.links,
                attributes.size,
                attributes.user,
                attributes.modified,
            );
            seen.digest = crc32c(seen.digest, facts.as_bytes());
            if visited.insert(attributes.inode) {
                read_node(fs, attributes.inode, attributes.file_type, seen);
                if attributes.file_type == FileType::Directory {
                    pending.push(attributes.inode);
                }
            }
            fs.forget(attributes.inode, 1);
        }
    }
    names
}

/// The names in a directory, listed in pieces.
fn list(
    fs: &Ext4,
    directory: InodeNumber,
    entries_left: &mut u64,
    seen: &mut Seen,
) -> Vec<Vec<u8>> {
    let context = RequestContext::superuser();
    let mut names = Vec::new();
    let mut cookie = 0;
    loop {
        let mut count = 0;
        let before = cookie;
        let listed = fs.read_directory(&context, directory, cookie, &mut |entry| {
            if count == 40 {
                return false;
            }
            count += 1;
            cookie = entry.cookie;
            names.push(entry.name.to_vec());
            true
        });
        take(listed, seen);
        assert!(
            *entries_left >= count,
            "directory {directory:?}: more names than the image has room for"
        );
        *entries_left -= count;
        if count < 40 || before == cookie {
            return names;
        }
    }
}

fn read_node(fs: &Ext4, inode: InodeNumber, file_type: FileType, seen: &mut Seen) {
    let context = RequestContext::superuser();
    take(fs.attributes(inode), seen);
    if let Some(mut names) = take(fs.list_xattrs(&context, inode), seen) {
        names.sort();
        for name in names {
            if let Some(value) = take(fs.xattr(&context, inode, &name), seen) {
                seen.digest = crc32c(crc32c(seen.digest, &name), &value);
            }
        }
    }
    match file_type {
        FileType::Symlink => {
            if let Some(target) = take(fs.read_link(inode), seen) {
                seen.digest = crc32c(seen.digest, &target);
            }
        }
        FileType::Regular => read_file(fs, inode, seen),
        _ => {}
    }
}

/// Reads the data of a file, wherever it is, in a bounded number of reads.
fn read_file(fs: &Ext4, inode: InodeNumber, seen: &mut Seen) {
    let mut bytes = vec![0; 4096];
    let mut offset = 0;
    for _ in 0..READS_MAX {
        let data = match fs.seek(inode, SeekFrom::Data(offset)) {
            Ok(data) => data,
            Err(error) if error.errno == Errno::ENXIO => break,
            Err(error) => {
                judge(&error, seen);
                break;
            }
        };
        assert!(data >= offset, "data before the offset that was asked for");
        offset = data;
        let Some(length) = take(fs.read(inode, offset, &mut bytes), seen) else { break };
        if length == 0 {
            break;
        }
        seen.digest = crc32c(crc32c(seen.digest, &offset.to_le_bytes()), &bytes[..length]);
        offset += length as u64;
    }
    for offset in [0, 5000, 1 << 40, i64::MAX as u64 - 10, u64::MAX - 4096, u64::MAX] {
        let _ = fs.read(inode, offset, &mut bytes);
        let _ = fs.seek(inode, SeekFrom::Hole(offset));
        let _ = fs.seek(inode, SeekFrom::Data(offset));
        let _ = fs.extents(inode, offset, u64::MAX - offset, 50);
    }
    let _ = fs.extents(inode, 0, u64::MAX, 1000);
}

/// Two random changes of a name or of its inode, and one of its attributes.
fn change(
    fs: &Ext4,
    parent: InodeNumber,
    name: &[u8],
    attributes: &InodeAttributes,
    random: &mut Rng,
    seen: &mut Seen,
) {
    let context = RequestContext::superuser();
    let Some(held) = take(fs.lookup(&context, parent, name), seen) else { return };
    let inode = held.inode;
    let size = attributes.size.min(1 << 40);
    let cut = |size| SetAttributes { size: Some(size), ..SetAttributes::default() };
    for _ in 0..2 {
        let done = match random.u32(..14) {
            0 => fs.write(&context, inode, random.u64(..size.max(1)), &[9; 3000]).map(drop),
            1 => fs.append(&context, inode, &[8; 2000]).map(drop),
            2 => fs.set_attributes(&context, inode, &cut(size / 2)).map(drop),
            3 => fs.set_attributes(&context, inode, &cut(0)).map(drop),
            4 => fs.set_xattr(&context, inode, b"user.new", &[1; 600], XattrMode::Set),
            5 => fs.remove_xattr(&context, inode, b"user.large"),
            6 => fs.unlink(&context, parent, name),
            7 => fs.remove_directory(&context, parent, name),
            8 => fs.rename(&context, parent, name, fs.root(), b"moved", RenameFlags::empty()),
            9 => fs
                .link(&context, inode, fs.root(), format!("link {}", random.u32(..)).as_bytes())
                .map(|entry| fs.forget(entry.inode, 1)),
            10 => fs.fallocate(&context, inode, FallocateMode::PunchHole, size / 3, size / 3 + 1),
            11 => fs.fallocate(&context, inode, FallocateMode::CollapseRange, 0, 16384),
            12 => fs.fallocate(&context, inode, FallocateMode::InsertRange, 0, 16384),
            _ => {
                let mode = FallocateMode::Allocate { keep_size: false };
                fs.fallocate(&context, inode, mode, size / 2, 40_000)
            }
        };
        take(done, seen);
    }
    let changes = SetAttributes {
        permissions: Some(0o640),
        user: Some(random.u32(..2000)),
        ..SetAttributes::default()
    };
    take(fs.set_attributes(&context, inode, &changes), seen);
    fs.forget(inode, 1);
}

/// Adds names of all kinds, and removes some of them.
fn add(fs: &Ext4, directories: &[InodeNumber], random: &mut Rng, seen: &mut Seen) {
    let context = RequestContext::superuser();
    let mut made = Vec::new();
    let long = [b'l'; 180];
    for number in 0..24 {
        let parent = *random.choice(directories).unwrap_or(&fs.root());
        let name = format!("added {number} {}", "n".repeat(random.usize(..200)));
        let node = match number % 4 {
            0 => NewNode::Directory,
            1 => NewNode::Symlink(&long),
            _ => NewNode::Regular,
        };
        let entry = fs.create(&context, parent, name.as_bytes(), node, 0o644);
        let Some(entry) = take(entry, seen) else { continue };
        if node == NewNode::Regular {
            take(fs.write(&context, entry.inode, 0, &vec![5; random.usize(..9000)]), seen);
            take(fs.set_xattr(&context, entry.inode, b"user.a", &[3; 200], XattrMode::Set), seen);
        }
        fs.forget(entry.inode, 1);
        made.push((parent, name));
    }
    take(fs.sync(), seen);
    for (parent, name) in made.iter().step_by(2) {
        let removed = match fs.unlink(&context, *parent, name.as_bytes()) {
            Err(error) if error.errno == Errno::EISDIR => {
                fs.remove_directory(&context, *parent, name.as_bytes())
            }
            other => other,
        };
        take(removed, seen);
    }
}
