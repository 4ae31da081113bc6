//! Changes that the kernel makes on a mounted image: files of all kinds, and enough additions and
//! removals that directories, extents and free space show signs of age.

use drystone_testkit::judges::FeatureSet;
use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, Mode, XattrFlags};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

/// Makes all changes below `root`.
pub fn everything(root: &Path, set: &FeatureSet, names: usize) -> io::Result<()> {
    files(root, set)?;
    links(root)?;
    special_files(root)?;
    attributes(root, set)?;
    deep_directories(root)?;
    large_directory(root, names)?;
    comings_and_goings(root)
}

/// Bytes that differ from block to block.
fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..length).map(|_| random.u8(..)).collect()
}

/// Files: empty, tiny (fits an inode), fragmented, sparse, large, preallocated.
fn files(root: &Path, set: &FeatureSet) -> io::Result<()> {
    let directory = root.join("files");
    fs::create_dir(&directory)?;
    for length in [0, 1, 59, 60, 61, 100, 150, 1000, 1024, 4095, 4096, 4097, 70_000, 1_500_000] {
        fs::write(directory.join(format!("of-{length}")), bytes(length, length as usize))?;
    }
    let sparse = File::create(directory.join("sparse"))?;
    for at in [0, 50_000, 13 << 10, 5 << 20, 70 << 20, 900 << 20, 3 << 30] {
        sparse.write_all_at(&bytes(at, 3000), at)?;
    }
    sparse.set_len((3 << 30) + 12_345)?;
    // Two files that grow in turns lie in pieces.
    let turns = [0, 1].map(|index| File::create(directory.join(format!("turns-{index}"))));
    let [first, second] = turns;
    let (first, second) = (first?, second?);
    for turn in 0..40 {
        for file in [&first, &second] {
            file.write_all_at(&bytes(turn, 5000), turn * 20_000)?;
            file.sync_data()?;
        }
    }
    let cut = File::create(directory.join("cut"))?;
    cut.write_all_at(&bytes(3, 600_000), 0)?;
    cut.set_len(100_001)?;
    cut.set_len(200_000)?;
    if set.extents {
        let block = u64::from(set.cluster_size);
        let reserved = File::create(directory.join("reserved"))?;
        rustix::fs::fallocate(&reserved, FallocateFlags::empty(), 0, 40 * block)?;
        reserved.write_all_at(&bytes(4, 3000), 7 * block + 100)?;
        rustix::fs::fallocate(&reserved, FallocateFlags::KEEP_SIZE, 50 * block, 5 * block)?;
        let punched = File::create(directory.join("punched"))?;
        punched.write_all_at(&bytes(5, 12 * block as usize), 0)?;
        punched.sync_data()?;
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&punched, punch, block + 10, 3 * block)?;
        rustix::fs::fallocate(&punched, FallocateFlags::ZERO_RANGE, 6 * block + 5, 2 * block)?;
        rustix::fs::fallocate(&punched, FallocateFlags::COLLAPSE_RANGE, 9 * block, block)?;
        rustix::fs::fallocate(&punched, FallocateFlags::INSERT_RANGE, 2 * block, 2 * block)?;
    }
    Ok(())
}

/// Symbolic links of all lengths, and names of the same inode.
fn links(root: &Path) -> io::Result<()> {
    let directory = root.join("links");
    fs::create_dir(&directory)?;
    // The longest target fits a block of 1 KiB with its final NUL.
    for length in [1, 58, 59, 60, 61, 100, 155, 500, 1000, 1022] {
        symlink("t".repeat(length), directory.join(format!("of-{length}")))?;
    }
    let file = directory.join("file");
    fs::write(&file, "linked")?;
    for index in 0..20 {
        fs::hard_link(&file, directory.join(format!("hard-{index}")))?;
    }
    fs::hard_link(directory.join("of-100"), directory.join("hard-symlink"))
}

fn special_files(root: &Path) -> io::Result<()> {
    let directory = root.join("special");
    fs::create_dir(&directory)?;
    let device = rustix::fs::makedev;
    for (name, kind, number) in [
        ("fifo", FileType::Fifo, 0),
        ("socket", FileType::Socket, 0),
        ("character", FileType::CharacterDevice, device(5, 1)),
        ("character-wide", FileType::CharacterDevice, device(300, 70_000)),
        ("block", FileType::BlockDevice, device(8, 17)),
        ("block-wide", FileType::BlockDevice, device(4000, 1_000_000)),
    ] {
        rustix::fs::mknodat(CWD, directory.join(name), kind, Mode::from_raw_mode(0o640), number)?;
    }
    Ok(())
}

/// Modes, owners, times and extended attributes.
fn attributes(root: &Path, set: &FeatureSet) -> io::Result<()> {
    let directory = root.join("attributes");
    fs::create_dir(&directory)?;
    for mode in [0, 0o1777, 0o2755, 0o4711, 0o7777] {
        let path = directory.join(format!("mode-{mode:o}"));
        fs::write(&path, "")?;
        fs::set_permissions(&path, PermissionsExt::from_mode(mode))?;
    }
    for owner in [1, 65_535, 65_536, 4_000_000_000] {
        let path = directory.join(format!("owner-{owner}"));
        fs::write(&path, "")?;
        std::os::unix::fs::chown(&path, Some(owner), Some(owner ^ 1))?;
    }
    for seconds in [-2_147_483_648_i64, -1, 0, 2_147_483_647, 2_147_483_648, 15_032_385_535] {
        let path = directory.join(format!("time-{seconds}"));
        fs::write(&path, "")?;
        let time = rustix::fs::Timespec { tv_sec: seconds, tv_nsec: 123_456_789 };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty())?;
    }
    let path = directory.join("xattrs");
    fs::write(&path, "")?;
    for name in ["user.short", "trusted.t", "security.s", "user.another"] {
        rustix::fs::setxattr(&path, name, name.as_bytes(), XattrFlags::empty())?;
    }
    rustix::fs::setxattr(&path, "user.empty", b"", XattrFlags::empty())?;
    rustix::fs::setxattr(&path, "user.long", &bytes(6, 500), XattrFlags::empty())?;
    // The same attributes share a block.
    for index in 0..10 {
        let path = directory.join(format!("shared-{index}"));
        fs::write(&path, "")?;
        rustix::fs::setxattr(&path, "user.same", &bytes(7, 600), XattrFlags::empty())?;
    }
    if set.arguments.contains("ea_inode") {
        for index in 0..3 {
            let path = directory.join(format!("inode-{index}"));
            fs::write(&path, "")?;
            rustix::fs::setxattr(&path, "user.large", &bytes(8, 30_000), XattrFlags::empty())?;
        }
    }
    access_control_lists(&directory)
}

/// A list in the format of the system call: version, then tag, permissions and id of each entry.
fn access_control_list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(permissions.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    list
}

fn access_control_lists(directory: &Path) -> io::Result<()> {
    const NOBODY: u32 = u32::MAX;
    let list = access_control_list(&[
        (0x01, 7, NOBODY),
        (0x02, 6, 1001),
        (0x02, 4, 70_000),
        (0x04, 5, NOBODY),
        (0x08, 7, 2000),
        (0x10, 7, NOBODY),
        (0x20, 1, NOBODY),
    ]);
    let path = directory.join("acl");
    fs::write(&path, "")?;
    rustix::fs::setxattr(&path, "system.posix_acl_access", &list, XattrFlags::empty())?;
    let path = directory.join("acl-directory");
    fs::create_dir(&path)?;
    rustix::fs::setxattr(&path, "system.posix_acl_default", &list, XattrFlags::empty())?;
    fs::write(path.join("inherits"), "")?;
    fs::create_dir(path.join("inherits-too"))
}

fn deep_directories(root: &Path) -> io::Result<()> {
    let mut directory = root.join("deep");
    fs::create_dir(&directory)?;
    for depth in 0..60 {
        directory.push(format!("directory-{depth}"));
        fs::create_dir(&directory)?;
        fs::write(directory.join("file"), format!("{depth}"))?;
    }
    Ok(())
}

/// Many names, some of them removed again; long ones in a directory of their own.
fn large_directory(root: &Path, names: usize) -> io::Result<()> {
    let directory = root.join("large");
    fs::create_dir(&directory)?;
    let target = root.join("large-target");
    fs::write(&target, "")?;
    for index in 0..names {
        fs::hard_link(&target, directory.join(format!("name-{index}")))?;
    }
    for index in (0..names).filter(|index| index % 7 == 3) {
        fs::remove_file(directory.join(format!("name-{index}")))?;
    }
    let directory = root.join("long-names");
    fs::create_dir(&directory)?;
    for index in 0..names / 20 {
        let name = format!("{index}-{}", "n".repeat(200 + index % 50));
        fs::hard_link(&target, directory.join(name))?;
    }
    Ok(())
}

/// Renames, replacements, deletions, a directory that has shrunk.
fn comings_and_goings(root: &Path) -> io::Result<()> {
    let directory = root.join("comings");
    fs::create_dir(&directory)?;
    let at = |index: u64| directory.join(format!("file-{index}"));
    for index in 0..120 {
        fs::write(at(index), bytes(index, 900 * (index as usize % 13)))?;
    }
    for index in (0..120).step_by(3) {
        fs::remove_file(at(index))?;
    }
    for index in (1..100).step_by(6) {
        fs::rename(at(index), at(index + 1))?;
    }
    for index in 200..240 {
        let mut file = OpenOptions::new().append(true).create(true).open(at(index))?;
        file.write_all(&bytes(index, 10_000))?;
    }
    fs::create_dir(directory.join("moved"))?;
    fs::write(directory.join("moved/file"), "moves along")?;
    fs::rename(directory.join("moved"), root.join("moved"))?;
    fs::create_dir_all(directory.join("gone/with/all"))?;
    fs::remove_dir_all(directory.join("gone"))
}
