//! Trees of this machine, and what a copy must keep of them.

use super::is_root;
use rustix::fs::{AtFlags, CWD, Mode, Timespec, Timestamps, XattrFlags};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// A tree with something of everything that the caller may make.
pub fn make_host_tree(root: &Path) {
    std::fs::create_dir(root).unwrap();
    for directory in 0..5 {
        let directory = root.join(format!("directory {directory}"));
        std::fs::create_dir(&directory).unwrap();
        for file in 0..150 {
            let content = vec![file as u8; file * 37];
            std::fs::write(directory.join(format!("file-{file}")), content).unwrap();
        }
    }
    let many_names = root.join("many-names");
    std::fs::write(&many_names, "the same").unwrap();
    for directory in 0..5 {
        for name in 0..20 {
            let path = root.join(format!("directory {directory}/link-{name}"));
            std::fs::hard_link(&many_names, path).unwrap();
        }
    }
    let sparse = std::fs::File::create(root.join("sparse")).unwrap();
    sparse.write_all_at(b"middle", 1 << 20).unwrap();
    sparse.set_len(5 << 20).unwrap();
    symlink("../nowhere", root.join("symlink")).unwrap();
    std::fs::write(root.join(OsString::from_vec(vec![0xff, b'\n', b'x'])), "odd").unwrap();
    let attributed = root.join("attributed");
    std::fs::write(&attributed, vec![1; 3 << 20]).unwrap();
    rustix::fs::setxattr(&attributed, "user.note", b"a\0b", XattrFlags::empty()).unwrap();
    rustix::fs::mknodat(CWD, root.join("fifo"), rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
    if is_root() {
        let device = rustix::fs::makedev(1, 3);
        let kind = rustix::fs::FileType::CharacterDevice;
        rustix::fs::mknodat(CWD, root.join("null"), kind, Mode::RWXU, device).unwrap();
        std::os::unix::fs::chown(&attributed, Some(1234), Some(5678)).unwrap();
        std::os::unix::fs::lchown(root.join("symlink"), Some(7), Some(8)).unwrap();
        // VFS_CAP_REVISION_2 with CAP_NET_RAW permitted and effective.
        let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        rustix::fs::setxattr(&attributed, "security.capability", &capability, XattrFlags::empty())
            .unwrap();
    }
    std::fs::set_permissions(&many_names, PermissionsExt::from_mode(0o4751)).unwrap();
    let time = |tv_nsec| Timespec { tv_sec: 1_000_000_000, tv_nsec };
    let times = Timestamps { last_access: time(1), last_modification: time(123_456_789) };
    for name in ["many-names", "symlink", "directory 3", "fifo"] {
        rustix::fs::utimensat(CWD, root.join(name), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

/// All that a copy keeps, by path; an inode with several names is named by its first.
pub type HostPicture = BTreeMap<PathBuf, String>;

pub fn picture_of_host(root: &Path) -> HostPicture {
    let mut picture = HostPicture::new();
    let mut first_names = BTreeMap::new();
    let mut waiting = vec![root.to_path_buf()];
    while let Some(path) = waiting.pop() {
        let stat = path.symlink_metadata().unwrap();
        let relative = path.strip_prefix(root).unwrap().to_path_buf();
        let mut content = Vec::new();
        if stat.is_dir() {
            let mut names: Vec<_> =
                path.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
            names.sort();
            waiting.extend(names.into_iter().rev());
        } else if stat.is_symlink() {
            content = std::fs::read_link(&path).unwrap().into_os_string().into_vec();
        } else if stat.is_file() {
            content = std::fs::read(&path).unwrap();
        }
        let first = first_names.entry(stat.ino()).or_insert_with(|| relative.clone()).clone();
        let mut names = vec![0; 4096];
        let length = rustix::fs::llistxattr(&path, &mut names).unwrap();
        let mut xattrs = BTreeMap::new();
        for name in names[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
            let mut value = vec![0; 4096];
            let length = rustix::fs::lgetxattr(&path, name, &mut value).unwrap();
            xattrs.insert(name.escape_ascii().to_string(), value[..length].to_vec());
        }
        picture.insert(
            relative,
            format!(
                "{:o} {}:{} {} {}.{:09} {first:?} {xattrs:?} {}",
                stat.mode(),
                stat.uid(),
                stat.gid(),
                stat.rdev(),
                stat.mtime(),
                stat.mtime_nsec(),
                digest(&content),
            ),
        );
    }
    picture
}

fn digest(content: &[u8]) -> String {
    let sum = content
        .iter()
        .fold(17_u64, |sum, &byte| sum.wrapping_mul(1_000_003).wrapping_add(byte.into()));
    format!("{} bytes {sum:x}", content.len())
}
