//! Writes what precedes the content of an entry: the PAX records for what a ustar header can't
//! hold, the ustar header, and the map of a file with holes (format 1.0).
//!
//! The content and its [`padding`] follow, in pieces if there are holes; two blocks of zeros end an
//! archive.

use super::entry::{DataRun, EntryKind, TarAttributes, Time};
use super::header::{BLOCK_BYTES, LARGE_MAX, RawTarHeader, SMALL_MAX, put_octal, put_text};
use super::pax::Records;
use super::{acl_text, sparse};
use drystone_ext4_format::acl::Acl;

/// An entry to be written.
#[derive(Clone, Debug)]
pub struct NewTarEntry<'e> {
    /// Its name, that of a directory with a slash at the end.
    pub name: &'e [u8],
    /// What it is. Where a file's data will be in the archive doesn't matter.
    pub kind: EntryKind,
    /// Permission bits, with set-user-id, set-group-id and sticky.
    pub mode: u16,
    /// Owner.
    pub user: u32,
    /// Owning group.
    pub group: u32,
    /// When the content changed.
    pub modified: Time,
    /// When it was last read.
    pub accessed: Time,
    /// Extended attributes by their full names, access control lists as `system.posix_acl_*`.
    pub attributes: &'e TarAttributes,
}

impl NewTarEntry<'_> {
    /// The bytes before the content.
    #[must_use]
    pub fn head(&self) -> Vec<u8> {
        let mut header = RawTarHeader::ustar(self.mode);
        let mut records = Records::default();
        let (letter, size, link, map) = match &self.kind {
            EntryKind::File { size, runs } if is_whole(runs, *size) => (b'0', *size, &[][..], None),
            EntryKind::File { size, runs } => {
                let map = sparse::to_data(runs, *size);
                let data_bytes: u64 = runs.iter().map(|run| run.length).sum();
                (b'0', map.len() as u64 + data_bytes, &[][..], Some((map, *size)))
            }
            EntryKind::HardLink(first) => (b'1', 0, &first[..], None),
            EntryKind::Symlink(target) => (b'2', 0, &target[..], None),
            EntryKind::CharacterDevice { .. } => (b'3', 0, &[][..], None),
            EntryKind::BlockDevice { .. } => (b'4', 0, &[][..], None),
            EntryKind::Directory => (b'5', 0, &[][..], None),
            EntryKind::Fifo => (b'6', 0, &[][..], None),
        };
        header.kind = letter;
        put_octal(&mut header.size, records.number(b"size", size, LARGE_MAX));
        put_octal(&mut header.user, records.number(b"uid", self.user.into(), SMALL_MAX));
        put_octal(&mut header.group, records.number(b"gid", self.group.into(), SMALL_MAX));
        put_octal(&mut header.modified, records.modified(self.modified));
        records.time(b"atime", self.accessed);
        if let EntryKind::CharacterDevice { major, minor }
        | EntryKind::BlockDevice { major, minor } = self.kind
        {
            let major = records.number(b"SCHILY.devmajor", major.into(), SMALL_MAX);
            let minor = records.number(b"SCHILY.devminor", minor.into(), SMALL_MAX);
            put_octal(&mut header.device_major, major);
            put_octal(&mut header.device_minor, minor);
        }
        if let Some((_, size)) = &map {
            // A program that doesn't support holes makes a file with this name, and loses nothing
            // else.
            put_text(&mut header.name, &[b"GNUSparseFile.0/", base_name(self.name)].concat());
            records.add(b"GNU.sparse.major", b"1");
            records.add(b"GNU.sparse.minor", b"0");
            records.add(b"GNU.sparse.name", self.name);
            records.add(b"GNU.sparse.realsize", size.to_string().as_bytes());
        } else if !put_text(&mut header.name, self.name) {
            records.add(b"path", self.name);
        }
        if !put_text(&mut header.link_name, link) {
            records.add(b"linkpath", link);
        }
        for (name, value) in self.attributes {
            add_attribute(&mut records, name, value);
        }
        let mut head = records.into_blocks(base_name(self.name));
        head.extend_from_slice(&header.into_block());
        head.extend(map.into_iter().flat_map(|(map, _)| map));
        head
    }
}

/// A global extended header whose content is missing, for an archive that is cut off: one that ends
/// between two entries would pass as complete, but not after this header. Programs make no file of
/// it.
#[must_use]
pub fn cut_off() -> [u8; BLOCK_BYTES as usize] {
    let mut header = RawTarHeader::ustar(0o644);
    header.kind = b'g';
    put_octal(&mut header.size, BLOCK_BYTES);
    put_text(&mut header.name, b"the archive is incomplete");
    header.into_block()
}

/// The zeros that fill up the last block of a content.
#[must_use]
pub fn padding(length: u64) -> &'static [u8] {
    let zeros = length.next_multiple_of(BLOCK_BYTES) - length;
    &[0; BLOCK_BYTES as usize][..zeros as usize]
}

/// Whether a file's data leaves no hole.
fn is_whole(runs: &[DataRun], size: u64) -> bool {
    size == 0 || matches!(runs, [DataRun { offset: 0, length, .. }] if *length == size)
}

fn add_attribute(records: &mut Records, name: &[u8], value: &[u8]) {
    let list_key: Option<&[u8]> = match name {
        acl_text::ACCESS => Some(b"SCHILY.acl.access"),
        acl_text::DEFAULT => Some(b"SCHILY.acl.default"),
        _ => None,
    };
    if let Some(key) = list_key
        && let Ok(list) = Acl::from_attribute(value)
    {
        return records.add(key, acl_text::format(&list).as_bytes());
    }
    records.attribute(name, value);
}

fn base_name(name: &[u8]) -> &[u8] {
    let name = name.strip_suffix(b"/").unwrap_or(name);
    name.rsplit(|&byte| byte == b'/').next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tar::TarReader;

    const NEVER: Time = Time { seconds: 0, nanoseconds: 0 };

    fn entry(name: &[u8], kind: EntryKind) -> NewTarEntry<'_> {
        NewTarEntry {
            name,
            kind,
            mode: 0o4711,
            user: 1,
            group: 2,
            modified: NEVER,
            accessed: NEVER,
            attributes: const { &Vec::new() },
        }
    }

    /// What is read of an archive with one entry and `content`.
    fn read(new: &NewTarEntry<'_>, content: &[u8]) -> crate::tar::TarEntry {
        let padding = padding(content.len() as u64);
        let archive = [&new.head()[..], content, padding, &[0; 1024]].concat();
        let mut reader = TarReader::new("archive", &archive);
        let entry = reader.next_entry().expect("valid").expect("an entry");
        assert_eq!(reader.next_entry().expect("valid"), None);
        entry
    }

    #[test]
    fn what_is_written_is_read() {
        let long = vec![b'n'; 120];
        let acl = Acl::from_mode(0o750).to_attribute();
        let attributes = vec![
            (b"system.posix_acl_default".to_vec(), acl),
            (b"user.a=b%3D".to_vec(), b"\0\n=".to_vec()),
        ];
        for kind in [
            EntryKind::Directory,
            EntryKind::Fifo,
            EntryKind::HardLink(long.clone()),
            EntryKind::Symlink([&long[..], b"/../", &long].concat()),
            EntryKind::CharacterDevice { major: 4095, minor: 1 << 19 },
            EntryKind::BlockDevice { major: u32::MAX, minor: 1 << 31 },
        ] {
            for name in [&b"short"[..], &long] {
                let new = NewTarEntry {
                    user: 1 << 30,
                    group: u32::MAX - 1,
                    modified: Time { seconds: -2, nanoseconds: 5 },
                    attributes: &attributes,
                    ..entry(name, kind.clone())
                };
                let read = read(&new, b"");
                assert_eq!((&read.path[..], &read.kind), (name, &kind));
                assert_eq!((read.mode, read.user, read.group), (0o4711, 1 << 30, u32::MAX - 1));
                assert_eq!((read.modified, &read.attributes), (new.modified, &attributes));
            }
        }
    }

    #[test]
    fn holes_are_read_where_they_were() {
        let run = |offset, length| DataRun { offset, length, position: 0 };
        for (size, runs, content) in [
            (0, vec![], 0),
            (700, vec![run(0, 700)], 700),
            (9000, vec![run(4096, 512), run(8192, 808)], 1320),
            (1 << 40, vec![], 0),
        ] {
            let new = entry(b"dir/file", EntryKind::File { size, runs: runs.clone() });
            let read = read(&new, &vec![7; content]);
            assert_eq!(read.path, b"dir/file");
            let EntryKind::File { size: size_read, runs: runs_read } = read.kind else {
                panic!("{:?}", read.kind)
            };
            let places = runs_read.iter().map(|found| run(found.offset, found.length));
            assert_eq!((size_read, places.collect::<Vec<_>>()), (size, runs));
        }
    }

    #[test]
    fn what_is_cut_off_is_no_archive() {
        let archive = [&entry(b"a", EntryKind::Fifo).head()[..], &cut_off()].concat();
        let mut reader = TarReader::new("archive", &archive);
        assert!(reader.next_entry().expect("valid").is_some());
        assert!(reader.next_entry().is_err());
    }
}
