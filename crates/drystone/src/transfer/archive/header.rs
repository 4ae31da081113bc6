//! What stands before the content of an entry: a ustar header, and before it the records of POSIX
//! (PAX) for all that has no place there.
//!
//! # Reference
//!
//! POSIX.1-2017, `pax`; `SCHILY.xattr.*`, `SCHILY.acl.*` and `GNU.sparse.*` as star and GNU tar
//! document them.

use super::acl;
use crate::transfer::facts::{ACCESS_ACL, DEFAULT_ACL, Facts, Xattrs, decimal_time};
use drystone_vfs::{FileType, Timestamp};
use std::io::Write;
use tar::{EntryType, Header};

/// Archives consist of blocks of this size.
pub(super) const BLOCK_BYTES: usize = 512;
/// The largest number in a field of 7 octal digits.
const SMALL_MAX: u64 = 0o7_777_777;
/// The largest number in a field of 11 octal digits.
const LARGE_MAX: u64 = 0o77_777_777_777;

/// What an entry is besides its facts.
pub(super) enum Kind<'k> {
    /// What the facts say; with the length of the content.
    Plain(u64),
    /// A file with holes, with the length of map and data together.
    Sparse(u64),
    /// A further name of a file whose first name is this.
    Link(&'k [u8]),
}

/// The type for the header; none if archives have none.
fn entry_type(file_type: FileType) -> Option<EntryType> {
    Some(match file_type {
        FileType::Regular => EntryType::Regular,
        FileType::Directory => EntryType::Directory,
        FileType::Symlink => EntryType::Symlink,
        FileType::CharacterDevice => EntryType::Char,
        FileType::BlockDevice => EntryType::Block,
        FileType::Fifo => EntryType::Fifo,
        FileType::Socket => return None,
    })
}

/// True if archives can hold this.
pub(super) fn is_archived(file_type: FileType) -> bool {
    entry_type(file_type).is_some()
}

/// The blocks before the content of the entry `name`.
pub(super) fn blocks(name: &[u8], facts: &Facts, xattrs: &Xattrs, kind: &Kind<'_>) -> Vec<u8> {
    let mut header = Header::new_ustar();
    let mut records = Records::default();
    let (entry_type, size, link) = match kind {
        Kind::Link(first) => (EntryType::Link, 0, *first),
        Kind::Plain(size) | Kind::Sparse(size) => {
            let entry_type = entry_type(facts.file_type).unwrap_or(EntryType::Regular);
            (entry_type, *size, facts.target.as_slice())
        }
    };
    header.set_entry_type(entry_type);
    header.set_mode(facts.permissions.into());
    header.set_size(records.number("size", size, LARGE_MAX));
    header.set_uid(records.number("uid", facts.user.into(), SMALL_MAX));
    header.set_gid(records.number("gid", facts.group.into(), SMALL_MAX));
    header.set_mtime(records.time("mtime", facts.modified));
    records.time("atime", facts.accessed);
    if matches!(facts.file_type, FileType::CharacterDevice | FileType::BlockDevice)
        && let Some(ustar) = header.as_ustar_mut()
    {
        ustar.set_device_major(facts.device.major);
        ustar.set_device_minor(facts.device.minor);
    }
    let old = header.as_old_mut();
    if let Kind::Sparse(_) = kind {
        // Whoever knows nothing of holes makes a file of this name, and loses nothing else by it.
        let base = name.rsplit(|&byte| byte == b'/').next().unwrap_or(name);
        let shown = [b"GNUSparseFile.0/", base].concat();
        put(&mut old.name, &shown);
        records.add(b"GNU.sparse.major", b"1");
        records.add(b"GNU.sparse.minor", b"0");
        records.add(b"GNU.sparse.name", name);
        records.add(b"GNU.sparse.realsize", facts.size.to_string().as_bytes());
    } else if !put(&mut old.name, name) {
        records.add(b"path", name);
    }
    if !put(&mut old.linkname, link) {
        records.add(b"linkpath", link);
    }
    // The first name has told everything else already.
    if !matches!(kind, Kind::Link(_)) {
        xattrs.iter().for_each(|(name, value)| records.xattr(name, value));
    }
    header.set_cksum();
    let mut blocks = records.into_blocks(name);
    blocks.extend_from_slice(header.as_bytes());
    blocks
}

/// A header whose content never comes: of records for all further entries, which would make no file.
pub(super) fn cut_off() -> [u8; BLOCK_BYTES] {
    let mut header = Header::new_ustar();
    header.set_entry_type(EntryType::XGlobalHeader);
    header.set_mode(0o644);
    header.set_size(BLOCK_BYTES as u64);
    for set in [Header::set_uid, Header::set_gid, Header::set_mtime] {
        set(&mut header, 0);
    }
    put(&mut header.as_old_mut().name, b"the archive is incomplete");
    header.set_cksum();
    *header.as_bytes()
}

/// Puts text into a field; false if it had to be cut off.
fn put(field: &mut [u8], text: &[u8]) -> bool {
    let length = text.len().min(field.len());
    field[..length].copy_from_slice(&text[..length]);
    length == text.len()
}

/// Fills the last block up.
pub(super) fn padding(length: u64) -> usize {
    let over = (length % BLOCK_BYTES as u64) as usize;
    if over == 0 { 0 } else { BLOCK_BYTES - over }
}

/// Records of one entry: `LENGTH KEY=VALUE\n`, where the length counts itself.
#[derive(Default)]
struct Records(Vec<u8>);

impl Records {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        let rest = key.len() + value.len() + 3;
        let digits = |number: usize| number.to_string().len();
        let mut length = rest + digits(rest);
        // One digit more may take one digit more.
        length = rest + digits(length);
        self.0.extend_from_slice(length.to_string().as_bytes());
        self.0.push(b' ');
        self.0.extend_from_slice(key);
        self.0.push(b'=');
        self.0.extend_from_slice(value);
        self.0.push(b'\n');
    }

    /// What goes into a field that holds up to `max`, with a record if that is too little.
    fn number(&mut self, key: &str, number: u64, max: u64) -> u64 {
        if number > max {
            self.add(key.as_bytes(), number.to_string().as_bytes());
        }
        number.min(max)
    }

    /// The whole seconds for a field, with a record if they are not all of it.
    fn time(&mut self, key: &str, time: Timestamp) -> u64 {
        let seconds = u64::try_from(time.seconds).unwrap_or(0).min(LARGE_MAX);
        let is_whole = time.nanoseconds == 0 && i64::try_from(seconds) == Ok(time.seconds);
        // There is no field for other times than the first.
        if key != "mtime" || !is_whole {
            self.add(key.as_bytes(), decimal_time(time).as_bytes());
        }
        seconds
    }

    fn xattr(&mut self, name: &[u8], value: &[u8]) {
        let acl_key: Option<&[u8]> = match name {
            ACCESS_ACL => Some(b"SCHILY.acl.access"),
            DEFAULT_ACL => Some(b"SCHILY.acl.default"),
            _ => None,
        };
        if let Some(key) = acl_key
            && let Some(text) = acl::text(value)
        {
            return self.add(key, text.as_bytes());
        }
        let mut key = b"SCHILY.xattr.".to_vec();
        for &byte in name {
            // A key ends at the first of these.
            match byte {
                b'=' => key.extend_from_slice(b"%3D"),
                b'%' => key.extend_from_slice(b"%25"),
                _ => key.push(byte),
            }
        }
        self.add(&key, value);
    }

    /// The entry that carries the records; nothing if there are none.
    fn into_blocks(self, name: &[u8]) -> Vec<u8> {
        let Records(records) = self;
        if records.is_empty() {
            return Vec::new();
        }
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::XHeader);
        header.set_mode(0o644);
        header.set_size(records.len() as u64);
        for set in [Header::set_uid, Header::set_gid, Header::set_mtime] {
            set(&mut header, 0);
        }
        let name = name.strip_suffix(b"/").unwrap_or(name);
        let base = name.rsplit(|&byte| byte == b'/').next().unwrap_or(name);
        put(&mut header.as_old_mut().name, &[b"PaxHeaders.0/", base].concat());
        header.set_cksum();
        let mut blocks = header.as_bytes().to_vec();
        blocks.extend_from_slice(&records);
        blocks.resize(blocks.len() + padding(records.len() as u64), 0);
        blocks
    }
}

/// The map of a file with holes: how many pieces of data, then start and length of each, in blocks
/// of their own. A piece without length marks where the file ends.
pub(super) fn sparse_map(pieces: &[(u64, u64)], size: u64) -> Vec<u8> {
    let ends_in_hole = pieces.last().is_none_or(|&(_, end)| end < size);
    let count = pieces.len() + usize::from(ends_in_hole);
    let mut map = format!("{count}\n").into_bytes();
    let end = ends_in_hole.then_some((size, size));
    for (start, end) in pieces.iter().copied().chain(end) {
        // What is written to a vector arrives.
        let _ = write!(map, "{start}\n{}\n", end - start);
    }
    map.resize(map.len() + padding(map.len() as u64), 0);
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_count_themselves() {
        for length in 0..200 {
            let mut records = Records::default();
            records.add(b"k", &vec![b'v'; length]);
            let text = String::from_utf8(records.0).unwrap();
            let (count, _) = text.split_once(' ').unwrap();
            assert_eq!(count.parse::<usize>().unwrap(), text.len());
        }
    }

    #[test]
    fn maps_of_holes() {
        let map = sparse_map(&[(4096, 8192), (12288, 12289)], 12289);
        assert_eq!(map.len(), 512);
        assert!(map.starts_with(b"2\n4096\n4096\n12288\n1\n\0"));
        assert!(sparse_map(&[], 70000).starts_with(b"1\n70000\n0\n\0"));
        assert!(sparse_map(&[(0, 5)], 6).starts_with(b"2\n0\n5\n6\n0\n\0"));
    }
}
