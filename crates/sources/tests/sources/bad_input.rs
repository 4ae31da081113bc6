//! Archives that are damaged or can't be in an image are refused with the place of the error.

use crate::made::{Made, header, records_of, seal};
use crate::tars::context;
use drystone_mkfs::tree::{FileTree, NodeKind};
use drystone_sources::{Error, Opener, Source};
use std::os::unix::fs::FileExt;
use std::path::Path;

fn add(path: &Path) -> Result<FileTree, String> {
    let mut tree = FileTree::new();
    let mut context = context(path.parent().unwrap());
    let added = Source::parse(path.as_os_str()).add(&mut tree, &mut context);
    added.map(|()| tree).map_err(|error| error.to_string())
}

fn read(bytes: &[u8]) -> Result<FileTree, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar");
    std::fs::write(&path, bytes).unwrap();
    let shown = format!("{}: ", path.display());
    add(&path).map_err(|error| error.strip_prefix(&shown).unwrap_or(&error).to_owned())
}

fn error(bytes: &[u8]) -> String {
    read(bytes).map(|_| ()).expect_err("bad")
}

/// Changes a file's bytes, but neither its length nor its time.
pub fn change_unnoticed(path: &Path) {
    // Longer than a tick of the clock that stamps files.
    drystone_sync::thread::sleep(std::time::Duration::from_millis(20));
    let modified = std::fs::metadata(path).unwrap().modified().unwrap();
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(b"y", 1000).unwrap();
    file.set_modified(modified).unwrap();
}

/// Why a file's data can't be read.
pub fn read_error(tree: &FileTree, path: &str) -> String {
    let node = tree.node(tree.lookup(path.as_bytes()).unwrap());
    let segment = node.segments().next().unwrap();
    let mut bytes = vec![0; segment.length as usize];
    let read = tree.source(segment.source).read_at(segment.object, segment.offset, &mut bytes);
    read.expect_err("changed").to_string()
}

#[test]
fn an_archive_that_changes_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar");
    std::fs::write(&path, Made::default().file("file", &"x".repeat(3000)).end()).unwrap();
    let tree = add(&path).unwrap();
    change_unnoticed(&path);
    let error = read_error(&tree, "file");
    assert!(error.contains("a.tar") && error.contains("changed while"), "{error}");
}

/// An entry may have several extended headers, whose attributes are all in memory.
#[test]
fn extended_headers_have_one_limit_together() {
    let value = vec![b'x'; 40 << 20];
    let records = records_of(&[("comment", &value[..])]);
    let made = Made::default().entry("pax", b'x', "", &records).entry("pax", b'x', "", &records);
    let error = error(&made.file("a", "x").end());
    assert!(error.contains("an extended header"), "{error}");
}

/// What a global header says isn't kept for each entry.
#[test]
fn attributes_for_all_are_for_none() {
    let value = vec![b'x'; 10_000];
    let list = "u::rwx,g::r-x,o::---,m::rwx,u:1:rwx".as_bytes();
    let records = [
        ("RHT.security.selinux", &value[..]),
        ("SCHILY.acl.access", list),
        ("SCHILY.acl.default", list),
        ("SCHILY.xattr.user.a", &value),
        ("uname", b"somebody"),
    ];
    let mut made = Made::default().entry("pax", b'g', "", &records_of(&records));
    for number in 0..200 {
        let user = number.to_string();
        let name = format!("d{number}");
        made = made.pax(&[("uid", user.as_bytes())]).directory(&name);
    }
    let tree = read(&made.end()).unwrap();
    let sets = tree.attribute_sets();
    assert!(sets.len() >= 200);
    assert!(sets.iter().all(|set| set.xattrs.is_empty()));
}

#[test]
fn nothing_goes_on_after_an_interrupt() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar");
    std::fs::write(&path, Made::default().file("file", "text").end()).unwrap();
    for source in [&path, folder.path()] {
        let mut context = context(folder.path());
        context.opener = Opener::new(folder.path()).cancelled_by(|| true);
        let added = Source::parse(source.as_os_str()).add(&mut FileTree::new(), &mut context);
        assert!(matches!(added, Err(Error::Cancelled)), "{added:?}");
    }
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let file = || Made::default().file("good", "text");
    let after_file = 1024;
    let many = "x".repeat(300);
    for (bytes, expected) in [
        (vec![0; 10240], ""),
        ([vec![0; 1024], vec![7; 1024]].concat(), "at byte 0: this isn't a tar header"),
        ([vec![0; 1 << 20], vec![7]].concat(), "at byte 0: this isn't a tar header"),
        (vec![], "at byte 0: the file is empty; an empty archive has an end"),
        (b"some text".to_vec(), "at byte 0: this isn't a tar header"),
        (vec![b'x'; 2048], "at byte 0: this isn't a tar header"),
        (
            file().file("../up", "").end(),
            "entry ../up at byte 1024: the name ../up has \"..\" in it",
        ),
        (
            file().entry("a", b'1', "x/../../b", b"").end(),
            "entry a at byte 1024: the name x/../../b",
        ),
        (file().pax(&[("path", many.as_bytes())]).file("a", "").end(), "entry xxxx"),
        (
            file().pax(&[("path", b"a\0b")]).file("a", "").end(),
            "entry a\\x00b at byte 1024: the name a\\x00b has a NUL in it",
        ),
        (
            file().entry("link", b'1', "gone", b"").end(),
            "entry link at byte 1024: a hard link to gone, which isn't there",
        ),
        (
            file().directory("d").entry("link", b'1', "d", b"").end(),
            "entry link at byte 1536: a hard link to the directory d",
        ),
        (
            file().file("good/below", "").end(),
            "entry good/below at byte 1024: lies under something that isn't a directory",
        ),
        (file().entry("/", b'0', "", b"").end()[..].to_vec(), ""),
        (
            file().entry("a", b'Z', "", b"").end(),
            "entry a at byte 1024: entry type Z is none that is known",
        ),
        (
            file().entry("a", b'2', "", b"").end(),
            "entry a at byte 1024: a symbolic link to 0 bytes",
        ),
        (file().pax(&[("path", b"a")]).end(), "at byte 1024: an extended header is not followed"),
        (
            file().entry("pax", b'x', "", b"no records").end(),
            "at byte 1024: the extended header is malformed 0 bytes from its start",
        ),
        (
            file().pax(&[("mtime", b"noon")]).file("a", "").end(),
            "at byte 1024: the extended header's record mtime has a value that can't be read",
        ),
        (
            file()
                .pax(&[("SCHILY.acl.access", b"user::rwx,user:no such one:r")])
                .file("a", "")
                .end(),
            "entry a at byte 1024: the access control list \"user::rwx,user:no such one:r\" has a name",
        ),
        (
            file().pax(&[("SCHILY.xattr.user.large", &[7; 70_000])]).file("a", "").end(),
            "entry a at byte 1024: the attribute user.large of 70000 bytes",
        ),
        (
            file()
                .pax(&[("GNU.sparse.size", b"5"), ("GNU.sparse.map", b"0,9")])
                .file("a", "")
                .end(),
            "entry a at byte 1024: the sparse file's map goes beyond the file's size",
        ),
        (
            file().pax(&[("GNU.sparse.size", b"4")]).file("a", "text").end(),
            "entry a at byte 1024: the sparse file's map has no place for some of the data",
        ),
        (
            file().pax(&[("GNU.sparse.major", b"7")]).file("a", "").end(),
            "entry a at byte 1024: the sparse file's map is in a format that is not known",
        ),
        (file().data(&[0; 512]).file("later", "").end(), "at byte 1024: a lone block of zeros"),
    ] {
        if expected.is_empty() {
            assert!(read(&bytes).is_ok());
            continue;
        }
        let error = error(&bytes);
        assert!(error.starts_with(expected), "{error:?}, not {expected:?}");
    }
    // A blank disk isn't an empty archive.
    assert!(read(&[0; 10_240]).is_ok());
    assert!(!error(&vec![0; 2 << 20]).is_empty());
    let mut damaged = file().file("other", "").end();
    damaged[after_file + 3] ^= 1;
    let text = error(&damaged);
    assert!(text.starts_with("at byte 1024: the header's checksum is 0o"), "{text}");
}

#[test]
fn archives_that_end_early() {
    let whole = Made::default().file("one", "1").file("two", &"2".repeat(1000)).end();
    let data_end = 512 + 512 + 512 + 1000;
    for length in [1, 511, 512, 1025, 1535, 1537, data_end - 1] {
        let text = error(&whole[..length]);
        assert!(
            text.contains("bytes early") || text.contains("isn't a tar header"),
            "{length}: {text}"
        );
    }
    // Where only padding or the end is missing nothing is lost.
    for length in [513, 1023, 1024, data_end, data_end + 24, whole.len() - 512, whole.len()] {
        assert!(read(&whole[..length]).is_ok(), "{length}");
    }
    let text = error(&whole[..data_end - 10]);
    assert_eq!(text, "entry two at byte 1024: the archive ends here, 10 bytes early");
}

#[test]
fn compressed_data_that_are_damaged() {
    use std::io::Write;
    let tar = Made::default().file("a", &"some text ".repeat(10_000)).end();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&tar).unwrap();
    let gzip = gzip.finish().unwrap();
    let zstd = zstd::encode_all(&tar[..], 1).unwrap();
    let mut xz = lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::default()).unwrap();
    xz.write_all(&tar).unwrap();
    let xz = xz.finish().unwrap();
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    bzip2.write_all(&tar).unwrap();
    let bzip2 = bzip2.finish().unwrap();
    for (format, bytes) in [("gzip", gzip), ("zstd", zstd), ("xz", xz), ("bzip2", bzip2)] {
        assert!(read(&bytes).is_ok());
        let text = error(&bytes[..bytes.len() / 2]);
        assert!(text.starts_with(&format!("the {format} data can't be read after ")), "{text}");
    }
    let text = error(b"LZIP and so on");
    assert!(text.starts_with("compressed with lzip, which is not read: try lzip -dc "), "{text}");
}

#[test]
fn the_last_entry_of_a_name_wins() {
    let tar = Made::default()
        .file("a", "first")
        .entry("link", b'1', "a", b"")
        .file("./a", "second")
        .directory("d")
        .file("d/inside", "")
        .entry("d", b'2', "elsewhere", b"")
        .file("/absolute", "")
        .end();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tar");
    std::fs::write(&path, tar).unwrap();
    let tree = add(&path).unwrap();
    let lookup = |path: &str| tree.lookup(path.as_bytes()).unwrap();
    let text = |path: &str| crate::listing::content(&tree, lookup(path));
    assert_eq!((text("a"), text("link")), (b"second".to_vec(), b"first".to_vec()));
    assert_eq!(tree.node(lookup("link")).links(), 1);
    assert_eq!(tree.node(lookup("d")).kind(), NodeKind::Symlink(b"elsewhere"));
    assert!(matches!(tree.node(lookup("absolute")).kind(), NodeKind::File { size: 0 }));
}

#[test]
fn hard_links_with_and_without_data() {
    let plain = header(b"b", b'1', b"a", 5);
    let mut tar = Made::default().file("a", "hello");
    // Only the size, as old programs write it.
    tar.0.extend(plain);
    let tar = tar.file("c", "");
    // The data as well, as POSIX lets one.
    let mut tar = tar.end();
    tar.truncate(tar.len() - 1024);
    let tar = Made(tar).entry("d", b'1', "a", b"hello").file("e", "").end();
    let tree = read(&tar).unwrap();
    assert_eq!(tree.node(tree.lookup(b"a").unwrap()).links(), 3);
    assert!(tree.lookup(b"c").is_some() && tree.lookup(b"e").is_some());
}

/// Data may begin with zeros, as that of a disk image does, and may be an archive.
#[test]
fn data_of_hard_links_is_neither_an_end_nor_entries() {
    let inner = Made::default().file("inside", "").end();
    let zeros_first = [vec![0; 1024], vec![7; 1000]].concat();
    let all_zeros = vec![0; 3000];
    let target = || Made::default().file("a", "");
    let is_read = |made: Made| {
        let tree = read(&made.file("z", "").end()).unwrap();
        assert!(tree.lookup(b"z").is_some() && tree.lookup(b"inside").is_none());
        tree
    };
    for data in [&zeros_first, &all_zeros, &inner] {
        // An entry has as much data as its PAX record says.
        let size = data.len().to_string();
        let mut made = target().pax(&[("size", size.as_bytes())]);
        made.0.extend(header(b"b", b'1', b"a", 0));
        is_read(made.data(data));
        // A regular file whose name is a directory's.
        let tree = is_read(target().entry("d/", b'0', "", data));
        assert_eq!(tree.node(tree.lookup(b"d").unwrap()).kind(), NodeKind::Directory);
    }
    for data in [&zeros_first, &all_zeros] {
        is_read(target().entry("b", b'1', "a", data));
        is_read(target().pax(&[("mtime", b"1")]).entry("b", b'1', "a", data));
        assert!(read(&target().entry("b", b'1', "a", data).end()).is_ok());
    }
    // Only a size, before an entry with a PAX header.
    let mut made = target().pax(&[("mtime", b"1")]);
    made.0.extend(header(b"b", b'1', b"a", 600));
    let tree = is_read(made.pax(&[("path", b"long")]).file("short", ""));
    assert!(tree.lookup(b"long").is_some());
    // The same, at the end of the archive.
    for size in [5, 600, 3000, u64::from(u32::MAX)] {
        let mut made = target();
        made.0.extend(header(b"b", b'1', b"a", size));
        assert!(read(&made.end()).is_ok());
    }
}

/// A few hundred bytes of a compressed archive would make any number of directories.
#[test]
fn long_paths_need_their_directories() {
    let (deep, long) = ("d".repeat(200), "a/".repeat(3_000_000));
    let parents = |depth| vec![&deep[..]; depth].join("/");
    let entry = |made: Made, path: &str, kind| {
        made.pax(&[("path", path.as_bytes())]).entry("x", kind, "", b"")
    };
    for path in [long, format!("{}/f", parents(30))] {
        let text = error(&entry(Made::default(), &path, b'0').end());
        assert!(text.contains("in a directory that isn't there") && text.len() < 10_000, "{text}");
    }
    let listed = (1..=30).fold(Made::default(), |made, depth| entry(made, &parents(depth), b'5'));
    let path = format!("{}/f", parents(30));
    assert!(read(&entry(listed, &path, b'0').end()).unwrap().lookup(path.as_bytes()).is_some());
}

/// star's header of a sparse file isn't GNU tar's.
#[test]
fn sparse_files_of_star_are_refused() {
    let mut block = header(b"a", b'S', b"", 4096);
    let mut put =
        |at: usize, text: &str| block[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(356, "00004000000 00000010000 ");
    put(452, "00004010000 ");
    put(476, "00000000017 00000000017 ");
    put(508, "tar\0");
    seal(&mut block);
    let mut made = Made::default();
    made.0.extend(block);
    let text = error(&made.data(&[0; 4096]).directory("d").file("z", "").end());
    assert!(
        text.starts_with("entry a at byte 0: entry type S is a sparse file of another"),
        "{text}"
    );
}

/// A header may have been lost to a bad sector, or to a hole that an interrupted download left.
#[test]
fn a_zeroed_header_is_no_end() {
    let whole = Made::default().file("a", "first").file("b", "second").file("c", "third").end();
    for at in [0, 1024, 2048] {
        let mut damaged = whole.clone();
        damaged[at..at + 512].fill(0);
        let expected = match at {
            0 => "at byte 0: this isn't a tar header".to_owned(),
            _ => format!("at byte {at}: a lone block of zeros"),
        };
        let text = error(&damaged);
        assert!(text.starts_with(&expected), "{text:?}, not {expected:?}");
    }
    // An end that was cut, and what two blocks of zeros keep apart.
    let content_end = whole.len() - 1024;
    assert!(read(&whole[..content_end + 512]).is_ok());
    assert!(read(&whole[..content_end + 700]).is_ok());
    assert!(read(&[&whole[..], b"more"].concat()).is_ok());
    assert!(error(&[&whole[..content_end + 512], b"more"].concat()).contains("lone block"));
}
