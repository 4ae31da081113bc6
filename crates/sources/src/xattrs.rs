//! Extended attributes of files of this machine.

use drystone_mkfs::tree::Xattr;
use rustix::io::Errno;
use std::os::fd::AsFd;

/// All extended attributes of what a path names, which may be a symbolic link, that this user may
/// see.
pub(crate) fn of_path(path: &[u8]) -> Result<Vec<Xattr>, Errno> {
    read(
        |names| rustix::fs::llistxattr(path, names),
        |name, value| rustix::fs::lgetxattr(path, name, value),
    )
}

/// The same of an open file.
pub(crate) fn of_file(file: impl AsFd) -> Result<Vec<Xattr>, Errno> {
    read(
        |names| rustix::fs::flistxattr(&file, names),
        |name, value| rustix::fs::fgetxattr(&file, name, value),
    )
}

fn read(
    list: impl Fn(&mut [u8]) -> Result<usize, Errno>,
    get: impl Fn(&[u8], &mut [u8]) -> Result<usize, Errno>,
) -> Result<Vec<Xattr>, Errno> {
    let mut names = [0; 1024];
    let list = match list(&mut names) {
        Ok(0) | Err(Errno::NOTSUP | Errno::NODATA) => return Ok(Vec::new()),
        Ok(length) => names[..length].to_vec(),
        Err(Errno::RANGE) => {
            // No list is longer than 64 KiB.
            let mut names = vec![0; 1 << 16];
            let length = list(&mut names)?;
            names.truncate(length);
            names
        }
        Err(errno) => return Err(errno),
    };
    let mut xattrs = Vec::new();
    for name in list.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        let mut small = [0; 256];
        let value = match get(name, &mut small) {
            Ok(length) => small[..length].to_vec(),
            Err(Errno::RANGE) => {
                // No value is longer than 64 KiB.
                let mut value = vec![0; 1 << 16];
                let length = get(name, &mut value)?;
                value.truncate(length);
                value
            }
            // It is gone, or may be listed but not read.
            Err(Errno::NODATA | Errno::NOTSUP) => continue,
            Err(errno) => return Err(errno),
        };
        xattrs.push(Xattr { name: name.to_vec(), value });
    }
    Ok(xattrs)
}
