//! Copies of sound images of all kinds.

use crate::image::{find, make};
use crate::secrets::Secrets;
use crate::verdict::{bytes_of, copies, e2fsck, problems};
use drystone::Image;
use drystone_blockdev::MemoryDevice;
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::hash::NameHasher;
use drystone_ext4_format::htree::{IndexBlock, IndexKind};
use drystone_testkit::environment::number;
use drystone_testkit::judges::{FEATURE_SETS, FeatureSet, Scratch, debugfs, have, write_image};
use drystone_testkit::metadata_map::{BlockContent, MetadataMap};

#[test]
fn copies_of_all_kinds_of_images_have_no_secrets() {
    if !have("mke2fs") {
        return;
    }
    let seed = number("DRYSTONE_SEED").unwrap_or(1);
    for set in FEATURE_SETS {
        eprintln!("{}: DRYSTONE_SEED={seed}", set.name);
        judge(set, seed);
    }
}

fn judge(set: &FeatureSet, seed: u64) {
    let scratch = Scratch::new("scramble").unwrap();
    let mut secrets = Secrets::new(seed);
    let device = make(&scratch, set, &mut secrets);
    let (plain, scrambled, summary) = copies(&device, seed).unwrap();
    let name = set.name;
    assert!(secrets.find_in(&bytes_of(&plain)).is_some(), "{name}: the secrets aren't found");
    let leak = secrets.find_in(&bytes_of(&scrambled));
    assert_eq!(leak, None, "{name}: a secret at {leak:x?}");
    let scramble = summary.scrambled.unwrap();
    assert_eq!((scramble.unclear_bytes, scramble.misplaced_names), (0, 0), "{name}");
    assert_eq!(problems(&scrambled), problems(&plain), "{name}");
    let judged = [&plain, &scrambled].map(|copy| e2fsck(copy, &scratch.join("judged.img")));
    assert_eq!(judged[1], judged[0], "{name}");
    assert_eq!(find(&scrambled, "/lost+found"), find(&device, "/lost+found"), "{name}");
    same_structure(&plain, &scrambled, name);
    no_old_hashes(&plain, &scrambled, name);
    listed(&plain, &scrambled, name);
    let image = scratch.join("dumped.img");
    write_image(&scrambled, &image).unwrap();
    write_image(&plain, &scratch.join("plain.img")).unwrap();
    for path in ["/", "/many", "/short", "/folded"] {
        let inode = find(&device, path);
        let dump =
            |image| dumped(&debugfs(image, &format!("htree_dump <{inode}>")).unwrap().output);
        let (found, expected) = (dump(&image), dump(&scratch.join("plain.img")));
        assert_eq!(found.1, expected.1, "{name} {path}: names");
        assert!(found == expected, "{name} {path}");
    }
}

/// What debugfs shows of an index but for hashes, and how many names it shows.
fn dumped(told: &str) -> (Vec<String>, usize) {
    let without_hashes = |line: &str| {
        let words = line.split([' ', ',']).filter(|word| !word.starts_with("0x"));
        words.collect::<Vec<_>>().join(" ")
    };
    let is_structure = |line: &&str| line.contains("Entry #") || line.contains("number of");
    let structure = told.lines().filter(is_structure).map(without_hashes).collect();
    let is_hash = |word: &&str| word.starts_with("0x") && word.get(10..11) == Some("-");
    (structure, told.split_whitespace().filter(is_hash).count())
}

/// Each block of metadata is of the same kind, and directories have the same records.
fn same_structure(plain: &MemoryDevice, scrambled: &MemoryDevice, name: &str) {
    let [plain, scrambled] = [plain, scrambled].map(|copy| MetadataMap::of(copy.snapshot()));
    let kinds = |map: &MetadataMap| -> Vec<(u64, String)> {
        // The log isn't copied.
        let kept = map.blocks.iter().filter(|(_, content)| **content != BlockContent::Log);
        kept.map(|(block, content)| (*block, content.name())).collect()
    };
    assert!(kinds(&plain) == kinds(&scrambled), "{name}");
    for (&block, content) in &plain.blocks {
        if matches!(content, BlockContent::Directory(..)) {
            assert_eq!(records(&plain, block), records(&scrambled, block), "{name}: {block}");
        }
    }
}

/// Offset, inode and length of each record, and of its name if that isn't short.
fn records(map: &MetadataMap, block: u64) -> Vec<(usize, usize, u32, usize)> {
    use drystone_ext4_format::dir::{DirectoryBlock, DirectoryLayout};
    let BlockContent::Directory(_, checksum) = map.blocks[&block] else { panic!("{block}") };
    let layout = DirectoryLayout {
        file_type: !map.superblock.features().incompat.is_empty(),
        checksum,
        encrypted: false,
        casefolded: false,
        inode_last: InodeNumber::new(u32::MAX),
    };
    let bytes = map.block(block);
    let entries = DirectoryBlock::trusted(&bytes, &layout).entries();
    let record = |entry: drystone_ext4_format::dir::Entry<'_>| {
        (entry.offset, entry.record_length, entry.inode.get(), entry.name.len().max(4))
    };
    entries.map(record).collect()
}

/// The hashes in the index blocks.
fn index_hashes(device: &MemoryDevice) -> Vec<u32> {
    let map = MetadataMap::of(device.snapshot());
    let mut hashes = Vec::new();
    for (&block, content) in &map.blocks {
        if matches!(content, BlockContent::Directory(..)) {
            let bytes = map.block(block);
            // With checksums all blocks can be told apart.
            let Some(kind) =
                IndexKind::of(&bytes).filter(|_| map.layout().checksum_seed().is_some())
            else {
                continue;
            };
            if kind == IndexKind::Root && bytes[29] != 8 {
                continue;
            }
            hashes.extend(IndexBlock::trusted(&bytes, kind).entries().map(|entry| entry.hash & !1));
        }
    }
    hashes.retain(|hash| *hash != 0);
    hashes
}

/// No hash in the copy leads to a name of the image.
fn no_old_hashes(plain: &MemoryDevice, scrambled: &MemoryDevice, name: &str) {
    let [old, new] = [plain, scrambled].map(index_hashes);
    assert_eq!(old.len(), new.len(), "{name}");
    let superblock = MetadataMap::of(plain.snapshot()).superblock;
    let version = superblock.hash_version().unwrap();
    let hasher = NameHasher::new(version, superblock.hash_seed());
    let device = drystone_sync::Arc::new(plain.snapshot());
    let image = Image::options().read_only(true).open_device(device).unwrap();
    let mut names = Vec::new();
    for entry in image.fs().walk("/") {
        let path = entry.unwrap().path().to_owned();
        names.extend(path.file_name().map(|name| name.as_encoded_bytes().to_vec()));
    }
    image.close().unwrap();
    let is_known = |hash: &u32| names.iter().any(|name| hasher.hash(name).major == *hash);
    let known = |hashes: &[u32]| hashes.iter().filter(|hash| is_known(hash)).count();
    if old.len() > 10 {
        // Hashes of folded names aren't among these.
        assert!(known(&old) > old.len() / 2, "{name}: {} of {}", known(&old), old.len());
    }
    assert_eq!(known(&new), 0, "{name}");
}

/// All files are listed, with all but their names as they were.
fn listed(plain: &MemoryDevice, scrambled: &MemoryDevice, name: &str) {
    let list = |device: &MemoryDevice| {
        let device = drystone_sync::Arc::new(device.snapshot());
        let image = Image::options().read_only(true).open_device(device).unwrap();
        let mut inodes = Vec::new();
        for entry in image.fs().walk("/") {
            let entry = entry.unwrap();
            let metadata = entry.metadata();
            inodes.push((metadata.ino(), metadata.len(), metadata.mode(), metadata.nlink()));
        }
        image.close().unwrap();
        inodes.sort_unstable();
        inodes
    };
    assert_eq!(list(plain), list(scrambled), "{name}");
}
