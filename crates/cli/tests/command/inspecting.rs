//! `inspect`, `which-inode` and `which-name`, beside what debugfs says.

use crate::support::{Fixture, tool};
use serde_json::Value;
use std::ffi::OsStr;
use std::io::{Seek, SeekFrom, Write};

fn debugfs(fixture: &Fixture, request: &str) -> String {
    let image = fixture.path("disk.img");
    tool("debugfs", &[OsStr::new("-R"), OsStr::new(request), image.as_os_str()]).stdout
}

/// An image with files of several extents, many names, and a link.
fn filled(options: &[&str]) -> Fixture {
    let fixture = Fixture::with(&[&["--size", "32M"], options].concat());
    for number in 0..120 {
        fixture.put(&format!("source/many/{number:0>50}"), vec![b'x'; 3000]);
    }
    fixture.put("source/big", vec![7; 700_000]);
    fixture.put("source/d/e/file", "content");
    std::fs::hard_link(fixture.path("source/d/e/file"), fixture.path("source/link")).unwrap();
    fixture.line("cp -r source/. disk.img:/").good();
    fixture
}

#[test]
fn owners_of_blocks_are_those_that_icheck_finds() {
    for options in [&[][..], &["-O", "^extent,^64bit,^metadata_csum,^metadata_csum_seed"]] {
        let fixture = filled(options);
        let count = fixture.line("info --json disk.img").json()["blocks"].as_u64().unwrap();
        let blocks: Vec<String> = (1..count).step_by(29).map(|block| block.to_string()).collect();
        let told = debugfs(&fixture, &format!("icheck {}", blocks.join(" ")));
        let lines =
            fixture.line(&format!("which-inode --json disk.img {}", blocks.join(" "))).json_lines();
        let mut owned = 0;
        for (line, ours) in told.lines().skip(1).zip(&lines) {
            let (block, inode) = line.split_once('\t').unwrap();
            assert_eq!(ours["block"].to_string(), block);
            let is_file =
                matches!(ours["use"].as_str().unwrap(), "data" | "map_node" | "attributes");
            let ours = is_file.then(|| ours["inode"].as_u64().unwrap());
            assert_eq!(ours, inode.parse().ok(), "{line}");
            owned += usize::from(ours.is_some());
        }
        assert!(owned > 20, "{told}");
    }
}

#[test]
fn names_of_inodes_are_those_that_ncheck_finds() {
    let fixture = filled(&[]);
    let inodes: Vec<String> = (11..140).chain(2040..2200).map(|inode| inode.to_string()).collect();
    let list = inodes.join(" ");
    let told = debugfs(&fixture, &format!("ncheck {list}"));
    let sorted = |text: String, gap: char| {
        let pairs = text.lines().filter_map(|line| line.split_once(gap));
        let pairs = pairs.filter(|(inode, _)| inode.parse::<u32>().is_ok());
        let mut pairs: Vec<_> =
            pairs.map(|(inode, name)| (inode.to_owned(), name.replace("//", "/"))).collect();
        pairs.sort();
        pairs
    };
    let ours = fixture.line(&format!("which-name disk.img {list}"));
    let (ours, told) = (sorted(ours.stdout, ' '), sorted(told, '\t'));
    assert_eq!(ours, told);
    assert!(ours.len() > 100 && ours.iter().any(|(_, name)| name == "/d/e/file"));
    assert!(fixture.line("which-name disk.img 8000").bad(1).contains("inode 8000 has no name"));
}

fn field(decoded: &Value, name: &str) -> Value {
    let fields = decoded["fields"].as_array().unwrap();
    fields.iter().find(|field| field["name"] == name).unwrap().clone()
}

#[test]
fn structures_are_decoded_with_their_places() {
    let fixture = filled(&[]);
    let block_size = fixture.line("info --json disk.img").json()["block_size"].as_u64().unwrap();
    let superblock = fixture.line("inspect --json disk.img superblock").json();
    assert_eq!(superblock["checksum"], "good");
    let inodes = field(&superblock, "inodes_count");
    assert_eq!((inodes["offset"].as_u64(), inodes["length"].as_u64()), (Some(1024), Some(4)));
    let told = debugfs(&fixture, "show_super_stats -h");
    assert!(told.contains(&format!("Inode count:              {}", inodes["value"])), "{told}");
    let number = debugfs(&fixture, "stat /big").split_whitespace().nth(1).unwrap().to_owned();
    let inode = fixture.line(&format!("inspect --json disk.img inode {number}")).json();
    let place = debugfs(&fixture, "imap /big");
    let offset = place.split("offset ").nth(1).unwrap().trim();
    let offset = u64::from_str_radix(offset.trim_start_matches("0x"), 16).unwrap();
    let block: u64 = place
        .split("located at block ")
        .nth(1)
        .unwrap()
        .split(',')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    assert_eq!(inode["offset"].as_u64().unwrap(), block * block_size + offset);
    assert_eq!(
        (&inode["checksum"], &field(&inode, "size_lo")["value"]),
        (&"good".into(), &700_000.into())
    );
    // Each extent, as debugfs has them.
    let extents = fixture.line("inspect disk.img extents /big").good();
    let told = debugfs(&fixture, "dump_extents /big");
    for line in told.lines().skip(1) {
        let numbers: Vec<&str> =
            line.split(|c: char| !c.is_ascii_digit()).filter(|n| !n.is_empty()).collect();
        let [.., first, last, from, to, _] = numbers[..] else { panic!("{line}") };
        let wanted = format!("blocks {first} to {last} at {from} to {to}:");
        assert!(extents.contains(&wanted), "{wanted}: {extents}");
    }
    // The names with their hashes.
    let tree = fixture.line("inspect disk.img htree /many").good();
    let told = debugfs(&fixture, "dx_hash -h half_md4 x");
    assert!(told.contains("Hash of x"), "{told}");
    let root = debugfs(&fixture, "htree_dump /many");
    let hashes = root.lines().filter_map(|line| line.split("Hash 0x").nth(1));
    let mut seen = 0;
    for hash in hashes.filter_map(|rest| rest.split([',', ' ']).next()) {
        assert!(tree.contains(hash), "{hash}: {tree}");
        seen += 1;
    }
    assert!(seen > 1, "{root}");
    assert!(!tree.contains("PROBLEM") && tree.contains("index root"), "{tree}");
    let journal = fixture.line("inspect --json disk.img journal").json();
    assert_eq!(field(&journal, "s_blocksize")["value"], block_size);
    assert!(!journal["parts"].as_array().unwrap().is_empty());
}

#[test]
fn damage_is_shown() {
    let fixture = filled(&[]);
    let image = fixture.path("disk.img");
    let flip = |at: u64| {
        let mut bytes = std::fs::read(&image).unwrap();
        bytes[at as usize] ^= 0x40;
        std::fs::write(&image, bytes).unwrap();
    };
    for part in ["superblock", "group 0", "inode 2", "htree /many", "journal"] {
        let line = format!("inspect --json disk.img {part}");
        let before = fixture.line(&line).json();
        assert_eq!(before["checksum"], "good", "{part}: {before}");
        let fields = before["fields"].as_array().unwrap();
        let quiet = ["mtime", "free_inodes_count", "atime", "reserved", "s_errno"];
        let field = fields.iter().find(|field| quiet.contains(&field["name"].as_str().unwrap()));
        let at = field.unwrap()["offset"].as_u64().unwrap();
        flip(at);
        let after = fixture.line(&line).json();
        assert_eq!(after["checksum"], "wrong", "{part}: {after}");
        flip(at);
    }
    // With a limit that is too large the checksum has no place, and isn't compared.
    let index = "inspect --json disk.img htree /many";
    let limit = field(&fixture.line(index).json(), "limit");
    let high_byte = limit["offset"].as_u64().unwrap() + 1;
    flip(high_byte);
    let after = fixture.line(index).json();
    assert_eq!(after["checksum"], "none", "{}", after["problems"]);
    assert!(!after["problems"].as_array().unwrap().is_empty());
    flip(high_byte);
    // Without a superblock, a copy is used.
    flip(1024 + 0x38);
    let told = fixture.line("inspect disk.img inode 2").good();
    assert!(told.contains("checksum good"), "{told}");
    let told = fixture.line("inspect disk.img superblock").good();
    assert!(told.contains("PROBLEM"), "{told}");
}

/// Everything but the data of files can be seen in a copy of the metadata.
#[test]
fn a_copy_of_the_metadata_is_sound_and_has_no_data() {
    let kinds: [&[&str]; 3] = [
        &[],
        &["-O", "^extent,^64bit,^metadata_csum,^metadata_csum_seed"],
        &["-b", "1K", "-O", "quota"],
    ];
    for options in kinds {
        let fixture = filled(options);
        let secret = "what nobody is to see ".repeat(1000);
        fixture.put("secret", secret.as_bytes());
        fixture.line("cp secret disk.img:/d").good();
        let target = "t".repeat(300);
        fixture.run(&["ln", "-s", &target, "disk.img:/slow"]).good();
        fixture.line("setfattr -n user.note --value there disk.img:/big").good();
        let tree = fixture.line("ls -lRai --json disk.img").good();
        for name in ["copy.img", "copy.qcow2"] {
            fixture.line(&format!("metadata disk.img {name}")).good();
            fixture.line(&format!("check {name}")).good();
            assert_eq!(
                fixture.line(&format!("ls -lRai --json {name}")).good(),
                tree,
                "{options:?}"
            );
            let slow = fixture.line(&format!("stat --json {name}:/slow")).json();
            assert_eq!(slow["target"]["name"], target.as_str());
            assert!(fixture.line(&format!("getfattr {name}:/big")).good().contains("user.note"));
            let bytes = std::fs::read(fixture.path(name)).unwrap();
            assert!(!bytes.windows(20).any(|bytes| bytes == &secret.as_bytes()[..20]), "{name}");
            let message = fixture.line(&format!("metadata disk.img {name}")).bad(1);
            assert!(message.contains(name) && message.contains("exists"), "{message}");
        }
        let image = fixture.path("copy.img");
        assert_eq!(tool("e2fsck", &[OsStr::new("-fn"), image.as_os_str()]).code, Some(0));
    }
}

/// A scrambled copy has the same files, but none of their names.
#[test]
fn a_scrambled_copy_has_no_names() {
    let fixture = filled(&["-L", "a private name"]);
    fixture.line("setfattr -n user.note --value nobody disk.img:/big").good();
    fixture.run(&["ln", "-s", "private/target", "disk.img:/slow"]).good();
    let told = fixture.line("metadata --scramble disk.img copy.img").good();
    assert!(told.starts_with("copy.img: ") && told.lines().count() == 1, "{told}");
    fixture.line("check copy.img").good();
    let list = |image: &str| {
        let lines = fixture.line(&format!("ls -lRai --json {image}")).good();
        lines.lines().count()
    };
    assert_eq!(list("copy.img"), list("disk.img"));
    let bytes = std::fs::read(fixture.path("copy.img")).unwrap();
    for text in ["private", "target", "nobody", "note", "slow\0"] {
        let is_there = bytes.windows(text.len()).any(|bytes| bytes == text.as_bytes());
        assert!(!is_there, "{text}");
    }
    assert_eq!(
        tool("e2fsck", &[OsStr::new("-fn"), fixture.path("copy.img").as_os_str()]).code,
        Some(0)
    );
    let json = fixture.line("metadata --scramble --json disk.img copy.qcow2").json();
    assert_eq!(json["scrambled"]["unclear_bytes"], 0);
    assert_eq!(json["scrambled"]["misplaced_names"], 0);
    assert_eq!(json["scrambled"]["replayed"], false);
    // What isn't clear is told: text in the place of an inode.
    let inode = fixture.line("inspect --json disk.img inode 12").json();
    let offset = inode["offset"].as_u64().unwrap();
    let mut image = std::fs::OpenOptions::new().write(true).open(fixture.path("disk.img")).unwrap();
    image.seek(SeekFrom::Start(offset)).unwrap();
    image.write_all(&b"a private text; ".repeat(16)).unwrap();
    let told = fixture.line("metadata --scramble disk.img unclear.img").good();
    assert!(told.contains("zeros because they may be text"), "{told}");
    let bytes = std::fs::read(fixture.path("unclear.img")).unwrap();
    assert!(!bytes.windows(7).any(|bytes| bytes == b"private"));
}

/// A large file takes the gaps that small ones have left.
#[test]
fn fragments_of_files_and_free_space_are_counted() {
    let block_maps = "^extent,^64bit,^metadata_csum,^metadata_csum_seed";
    for options in [&["-m", "0"][..], &["-m", "0", "-O", block_maps]] {
        let fixture = filled(options);
        let information = || fixture.line("info --json --fragmentation disk.img").json();
        let before = information();
        let fragmentation = &before["fragmentation"];
        // A link isn't a file of its own.
        assert_eq!(fragmentation["files"]["count"], 122);
        assert!(fragmentation["files"]["fragments"].as_u64().unwrap() < 125, "{fragmentation}");
        let bytes = |value: &Value| {
            value["blocks_free"].as_u64().unwrap() * value["block_size"].as_u64().unwrap()
        };
        assert_eq!(fragmentation["free"]["bytes"], bytes(&before));
        // Larger together than what is kept free for delayed writes.
        for number in 0..100 {
            fixture.put(&format!("source/gaps/{number}"), vec![2; 40_000]);
        }
        fixture.line("cp -r source/gaps disk.img:/").good();
        let gaps = (0..100).step_by(2).map(|number| format!("disk.img:/gaps/{number}"));
        fixture.run(&[vec!["rm".to_owned()], gaps.collect()].concat()).good();
        let free = bytes(&information()) as usize;
        fixture.put("filling", vec![1; free - 900_000]);
        fixture.line("cp filling disk.img:/").good();
        let after = information();
        let worst = &after["fragmentation"]["most_fragmented"][0];
        assert_eq!(worst["path"], "/filling");
        assert!(worst["fragments"].as_u64().unwrap() > 10, "{worst}");
        assert_eq!(after["fragmentation"]["free"]["bytes"], bytes(&after));
        let told = fixture.line("info --fragmentation disk.img").good();
        assert!(told.contains("/filling") && told.contains("Free space"), "{told}");
    }
}

/// What isn't there, in the image or in its kind, is an error.
#[test]
fn what_is_not_there_is_named() {
    let fixture = filled(&[]);
    fixture.line("mkfs log.img --type nilfs2 --size 64M -B 64 -q").good();
    for (line, said) in [
        ("which-inode disk.img 999999999", "block 999999999 isn't part of the image"),
        ("which-name disk.img 0", "there is no inode 0"),
        ("which-name disk.img 999999999", "there is no inode 999999999"),
        ("info --fragmentation log.img", "NILFS2 has no report on fragmentation"),
        ("inspect log.img superblock", "NILFS2 has no inspection"),
        ("which-inode log.img 1", "NILFS2 has no inspection"),
        ("which-name log.img 2", "NILFS2 has no inspection"),
        ("metadata log.img copy.img", "NILFS2 has no copy of its metadata"),
        ("undelete log.img", "NILFS2 has no undelete"),
    ] {
        let message = fixture.line(line).bad(1);
        assert!(message.contains(said), "{line}: {message}");
    }
}

/// `info` shows what `tune` sets.
#[test]
fn settings_are_shown() {
    let fixture = Fixture::new();
    let words = "tune disk.img -r 100 -u 5 -g 6 -e remount-ro -o discard,^acl,journal_data -c 30 -i 6m \
                 --raid-stride 16 --raid-stripe 64 --extended-mount-options quota,commit=9";
    fixture.run(&words.split_whitespace().collect::<Vec<_>>()).good();
    let told = fixture.line("info disk.img").good();
    for line in [
        "Reserved blocks  100 (100 KiB) for user 5 and group 6",
        "on an error: remount read-only",
        "Next check       after 30 mounts, or after 180d",
        "Mount options    user_xattr,journal_data,discard,quota,commit=9",
        "RAID             stride of 16 blocks, stripe of 64",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
    let json = fixture.line("info --json disk.img").json();
    assert_eq!((&json["max_mount_count"], &json["reserved_user"]), (&30.into(), &5.into()));
    assert_eq!(json["check_interval_seconds"], 180 * 86_400);
    fixture.line("tune disk.img -c -1 -i 0").good();
    assert!(fixture.line("info disk.img").good().contains("Next check       never"));
    fixture.expect_sound();
}
