//! Small images with single edits that repairs had no rule for until other people's images showed them.

use crate::repairing::{NOW_SECONDS, content, finds_nothing, repair_all, repaired, told};
use crate::targeted::place_of;
use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::inode::{Inode, InodeFlags};
use drystone_ext4_format::xattr::{AttributeName, AttributeSet, AttributeValue};
use drystone_fsck::{CheckOptions, check};
use drystone_testkit::contents::ImageContents;
use drystone_testkit::judges::{Scratch, e2fsck_at, have, run};
use drystone_testkit::metadata_map::MetadataMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// An image of 4 MiB with blocks of 1 KiB, made with these options of mke2fs, and debugfs' requests.
pub fn make(scratch: &Scratch, options: &str, requests: &str) -> PathBuf {
    let image = scratch.join("image");
    File::create(&image).unwrap().set_len(4 << 20).unwrap();
    let fixed = "-q -F -b 1024 -U 6f0f2ef4-6b3c-4b02-9a53-111111111111";
    let words = fixed.split(' ').chain(options.split(' ')).map(OsStr::new);
    let made = run("mke2fs", words.chain([image.as_os_str()])).unwrap();
    assert!(made.is_clean(), "{options}: {}", made.output);
    edit(scratch, &image, requests);
    image
}

fn edit(scratch: &Scratch, image: &Path, requests: &str) {
    let (script, small, large) =
        (scratch.join("requests"), scratch.join("small"), scratch.join("large"));
    fs::write(&small, vec![b's'; 900]).unwrap();
    fs::write(&large, vec![b'l'; 5 << 20]).unwrap();
    let requests = requests.replace("SMALL", &small.to_string_lossy());
    fs::write(&script, requests.replace("LARGE", &large.to_string_lossy())).unwrap();
    let arguments = [OsStr::new("-w"), OsStr::new("-f"), script.as_os_str(), image.as_os_str()];
    run("debugfs", arguments).unwrap();
}

/// Repairs an image until it is clean for both; its names.
pub fn repaired_contents(scratch: &Scratch, damaged: &[u8]) -> ImageContents {
    let report = || told(&repair_all(&MemoryDevice::from_bytes(damaged)));
    let repaired = repaired(damaged, false).unwrap_or_else(|why| panic!("{why}"));
    let device = repaired.unwrap_or_else(|| panic!("it is left:\n{}", report()));
    let file = scratch.join("repaired");
    fs::write(&file, content(&device)).unwrap();
    let judged = e2fsck_at(NOW_SECONDS, "-fn", &file).unwrap();
    assert!(finds_nothing(&judged), "{}\n{}", judged.output, report());
    ImageContents::of(device).unwrap()
}

/// Each image has errors, and the names that it must have in the end.
#[test]
fn edited_images_are_repaired() {
    if !have("debugfs") {
        return;
    }
    let scratch = Scratch::new("fsck-edited").unwrap();
    for (what, options, requests, names) in [
        (
            "one number for all quota files",
            "-t ext4 -O quota,project -I 256",
            "ssv usr_quota_inum 9999\nssv grp_quota_inum 9999\nssv prj_quota_inum 9999",
            &["/lost+found"][..],
        ),
        (
            "the journal for a quota file",
            "-t ext4 -O quota -J size=1",
            "ssv grp_quota_inum 8\nwrite SMALL /a",
            &["/a", "/lost+found"],
        ),
        ("a directory without a block", "-t ext2", "mkdir /d\nsif /d block[0] 0", &["/d"]),
        (
            "a directory with a block far past the end",
            "-t ext4 -O ^metadata_csum",
            "mkdir /d\nwrite SMALL /d/f\nsif /d block[0] 0x2f30a\nsif /d block[6] 0x40000000\n\
             sif /d block[7] 1\nsif /d block[8] 1900\nsetb 1900",
            &["/d/f"],
        ),
        (
            "no inode for lost+found",
            "-t ext2 -N 16",
            "rmdir /lost+found\nwrite SMALL /a\nwrite SMALL /b\nwrite SMALL /c\nwrite SMALL /d\n\
             write SMALL /e\nwrite SMALL /f\nunlink /f",
            &["/a", "/e", "/#16"],
        ),
        (
            "a root without links",
            "-t ext2",
            "write SMALL /a\nsif / links_count 0\nsif / dtime 1",
            &["/a", "/lost+found"],
        ),
        (
            "two owners of a block, and no room",
            "-t ext2",
            "write SMALL /a\nwrite SMALL /b\nsif /b block[1] 600\nsif /b blocks 4\n\
             sif /b size 2000\nwrite LARGE /c",
            &["/a", "/b", "/c"],
        ),
        (
            "a value that no attribute has",
            "-t ext4 -O ea_inode",
            "write SMALL /a\nsif /a flags 0x280000",
            &["/a"],
        ),
        ("features in revision 0", "-t ext2 -I 128", "write SMALL /a\nssv rev_level 0", &["/a"]),
        (
            "another revision than the inodes have",
            "-t ext4 -I 256",
            "write SMALL /a\nmkdir /d\nwrite SMALL /d/b\nssv rev_level 0",
            &["/a", "/d/b"],
        ),
        (
            "another revision, without checksums",
            "-t ext4 -I 256 -O ^metadata_csum",
            "write SMALL /a\nmkdir /d\nwrite SMALL /d/b\nssv rev_level 0",
            &["/a", "/d/b"],
        ),
        (
            "inline data without room",
            "-t ext4 -I 128 -O ^metadata_csum",
            "feature inline_data\nwrite SMALL /a\nsif /a flags 0x10000000\nsif /a block[0] 0",
            &["/a"],
        ),
    ] {
        let damaged = fs::read(make(&scratch, options, requests)).unwrap();
        let found =
            check(&MemoryDevice::from_bytes(&damaged), &CheckOptions::default(), &mut |_| {});
        assert!(!found.unwrap().is_clean(), "{what}");
        let contents = repaired_contents(&scratch, &damaged);
        for name in names {
            let found = contents.names.contains_key(name.as_bytes());
            assert!(found, "{what}: {name} isn't among {:?}", contents.names);
        }
    }
}

/// A journal that is a file with a name is sound.
#[test]
fn a_journal_may_have_a_name() {
    if !have("debugfs") {
        return;
    }
    let scratch = Scratch::new("fsck-file-journal").unwrap();
    let image = make(&scratch, "-t ext3 -J size=1", "dump <8> SMALL");
    let journal = scratch.join("journal");
    fs::copy(scratch.join("small"), &journal).unwrap();
    let requests = format!(
        "clri <8>\nwrite {} /journal\nssv journal_inum 12\nssv jnl_backup_type 0",
        journal.display()
    );
    edit(&scratch, &image, &requests);
    let contents = repaired_contents(&scratch, &fs::read(&image).unwrap());
    assert_eq!(contents.names.get(&b"/journal"[..]), Some(&12));
}

/// What no name may hold becomes dots: a slash anywhere, and what is no UTF-8 in a strict directory that
/// ignores case.
#[test]
fn impossible_names_are_changed() {
    if !have("debugfs") {
        return;
    }
    let scratch = Scratch::new("fsck-names").unwrap();
    for (options, flags, byte) in [
        ("-t ext4 -O ^metadata_csum", "0x80000", b'/'),
        ("-t ext4 -O casefold,^metadata_csum -E encoding_flags=strict", "0x40080000", 0xfe),
    ] {
        // The name that is damaged comes before the one that it looks like then.
        let requests =
            format!("mkdir /d\nwrite SMALL /d/aQQb\nwrite SMALL /d/a.Qb\nsif /d flags {flags}");
        let mut bytes = fs::read(make(&scratch, options, &requests)).unwrap();
        let at = bytes.windows(4).rposition(|four| four == b"aQQb").unwrap();
        bytes[at + 1] = byte;
        let contents = repaired_contents(&scratch, &bytes);
        let names: Vec<_> = contents.names.keys().map(|name| name.escape_ascii()).collect();
        assert_eq!(contents.names.get(&b"/d/a.Qb"[..]), Some(&14), "{names:?}");
        assert_eq!(contents.names.get(&b"/d/a.Qb~1"[..]), Some(&13), "{names:?}");
    }
}

/// Sets the flag and the context of an encrypted inode, whose policy is named by `key`.
fn encrypt(map: &MetadataMap, number: InodeNumber, key: u8) {
    let layout = map.layout();
    let mut bytes = map.inode_bytes(number);
    let mut inode = Inode::read(&bytes, number, layout).unwrap();
    inode.flags.insert(InodeFlags::ENCRYPT);
    let mut context = vec![key; 28];
    context[0] = 1;
    // The nonce differs, as it does in all inodes.
    context[27] = number.get() as u8;
    let mut set = AttributeSet::default();
    let name = AttributeName { index: AttributeName::ENCRYPTION, suffix: b"c".to_vec() };
    set.set(name, AttributeValue::Inline(context));
    let area = inode.attribute_area(layout);
    inode.encode_into(&mut bytes, layout).unwrap();
    set.encode_in_inode(&mut bytes[area]).unwrap();
    Inode::seal(&mut bytes, number, layout);
    map.device.write_at(place_of(map, number), &bytes).unwrap();
}

/// An encrypted directory keeps what is encrypted by its own policy, and lost+found, if it is encrypted,
/// is replaced.
#[test]
fn encrypted_directories_keep_their_own() {
    if !have("debugfs") {
        return;
    }
    let scratch = Scratch::new("fsck-encrypted").unwrap();
    let names = ["one-of-its-own-policy", "of-another-policy-key", "not-encrypted-at-all"];
    let files = names.map(|name| format!("write SMALL /d/{name}\n")).concat();
    let image = make(&scratch, "-t ext4 -O encrypt -I 256", &format!("mkdir /d\n{files}"));
    let map = MetadataMap::of(MemoryDevice::from_bytes(&fs::read(image).unwrap()));
    let sound = ImageContents::of(map.device.clone()).unwrap();
    let number = |name: &str| InodeNumber::new(sound.names[name.as_bytes()]);
    for (name, key) in [
        ("/d", 5),
        ("/d/one-of-its-own-policy", 5),
        ("/d/of-another-policy-key", 6),
        ("/lost+found", 5),
    ] {
        encrypt(&map, number(name), key);
    }
    let contents = repaired_contents(&scratch, &content(&map.device));
    let path = |folder: &str, name: &str| {
        let inode = number(&format!("/d/{name}"));
        let name = if folder == "/d" { name.to_owned() } else { format!("#{inode}") };
        contents.names.contains_key(format!("{folder}/{name}").as_bytes())
    };
    assert!(path("/d", names[0]), "{:?}", contents.names);
    assert!(path("/lost+found", names[1]) && path("/lost+found", names[2]));
    assert_ne!(contents.names[&b"/lost+found"[..]], number("/lost+found").get());
}

/// An encrypted link has a length of its own in front of its target.
#[test]
fn encrypted_links_have_two_lengths() {
    if !have("debugfs") {
        return;
    }
    let scratch = Scratch::new("fsck-encrypted-links").unwrap();
    let target = "t".repeat(34);
    let requests = ["sound", "short", "cut"].map(|name| format!("symlink /{name} {target}\n"));
    let image = make(&scratch, "-t ext4 -O encrypt -I 256", &requests.concat());
    let map = MetadataMap::of(MemoryDevice::from_bytes(&fs::read(image).unwrap()));
    let sound = ImageContents::of(map.device.clone()).unwrap();
    for (name, length) in [("sound", 32u16), ("short", 16), ("cut", 3)] {
        let number = InodeNumber::new(sound.names[format!("/{name}").as_bytes()]);
        map.device.write_at(place_of(&map, number) + 40, &length.to_le_bytes()).unwrap();
        encrypt(&map, number, 5);
    }
    let contents = repaired_contents(&scratch, &content(&map.device));
    let size = |name: &[u8]| contents.names.get(name).map(|inode| contents.files[inode].size_bytes);
    assert_eq!(size(b"/sound"), Some(34));
    assert_eq!(size(b"/short"), Some(18));
    assert_eq!(size(b"/cut"), None);
}
