//! Copies of images that need more than others: with a dirty journal, and with hashes that nobody can compute.

use crate::image::{find, make};
use crate::secrets::Secrets;
use crate::verdict::{bytes_of, copies, e2fsck, problems};
use drystone::Image;
use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::dir::{DirectoryBlock, DirectoryLayout, EntryType, NewEntry};
use drystone_ext4_format::hash::{HashVersion, NameHash};
use drystone_ext4_format::htree::{DirectoryPlan, IndexBlock, IndexKind, build_hashed};
use drystone_ext4_format::inode::{FIELDS, Inode, InodeFlags};
use drystone_testkit::judges::{FeatureSet, Scratch, have};
use drystone_testkit::metadata_map::{BlockContent, MetadataMap};

/// What is in the log alone is in the copy, and the log isn't.
#[test]
fn a_dirty_journal_is_replayed() {
    if !have("mke2fs") {
        return;
    }
    for name in ["default", "modern-1k", "ext3-1k", "mmp-1k"] {
        let scratch = Scratch::new("scramble-dirty").unwrap();
        let mut secrets = Secrets::new(3);
        let base = make(&scratch, FeatureSet::by_name(name).unwrap(), &mut secrets);
        let device = drystone_sync::Arc::new(base);
        let image = Image::open_device(device.clone()).unwrap();
        for _ in 0..30 {
            image.fs().hard_link("/data", format!("/many/{}", secrets.text(40))).unwrap();
        }
        image.fs().sync().unwrap();
        // As a crash leaves it.
        let dirty = device.snapshot();
        image.close().unwrap();
        let (plain, scrambled, summary) = copies(&dirty, 5).unwrap();
        assert!(summary.scrambled.unwrap().replayed, "{name}");
        assert_eq!(secrets.find_in(&bytes_of(&scrambled)), None, "{name}");
        assert_eq!(problems(&scrambled), problems(&plain), "{name}");
        let (code, told) = e2fsck(&scrambled, &scratch.join("judged.img"));
        assert_eq!(code, 0, "{name}: {told:?}");
        let links = |device: &MemoryDevice| {
            let device = drystone_sync::Arc::new(device.snapshot());
            let image = Image::options().read_only(true).open_device(device).unwrap();
            let count = image.fs().walk("/").map(Result::unwrap).count();
            image.close().unwrap();
            count
        };
        assert_eq!(links(&scrambled), links(&dirty), "{name}");
    }
}

/// The entries of a directory that is encrypted and casefolded have their hashes with them.
#[test]
fn stored_hashes_become_others_of_the_same_leaf() {
    if !have("mke2fs") {
        return;
    }
    let arguments = "-t ext4 -b 1024 -O casefold,encrypt -E encoding=utf8";
    let set = FeatureSet { arguments, ..*FeatureSet::by_name("casefold-strict").unwrap() };
    let scratch = Scratch::new("scramble-stored").unwrap();
    let mut secrets = Secrets::new(9);
    let device = make(&scratch, &set, &mut secrets);
    let number = find(&device, "/many");
    let target = find(&device, "/data");
    let hashes = hash_by_hand(&device, number, target, &mut secrets);
    let (plain, scrambled, summary) = copies(&device, 5).unwrap();
    assert_eq!(summary.scrambled.unwrap().misplaced_names, 0);
    assert_eq!(secrets.find_in(&bytes_of(&scrambled)), None);
    let before = problems(&plain);
    assert!(!before.iter().any(|problem| problem.starts_with("index_")), "{before:?}");
    assert_eq!(problems(&scrambled), before);
    let judged = [&plain, &scrambled].map(|copy| e2fsck(copy, &scratch.join("judged.img")));
    assert_eq!(judged[1], judged[0]);
    let map = MetadataMap::of(scrambled);
    let mut entries = 0;
    for (&block, content) in &map.blocks {
        if !matches!(content, BlockContent::Directory(owner, _) if *owner == number) {
            continue;
        }
        let bytes = map.block(block);
        if let Some(kind) = IndexKind::of(&bytes) {
            let index = IndexBlock::trusted(&bytes, kind);
            let is_old = |hash: u32| hashes.iter().any(|old| old.major == hash & !1);
            assert!(!index.entries().any(|entry| entry.hash != 0 && is_old(entry.hash)), "{block}");
            continue;
        }
        for entry in DirectoryBlock::trusted(&bytes, &stored_layout(&map)).entries() {
            assert!(!hashes.contains(&entry.hash.unwrap()), "{block}: {entry:?}");
            entries += 1;
        }
    }
    assert_eq!(entries, hashes.len());
}

/// The layout of a directory that is encrypted and casefolded, without checksums.
fn stored_layout(map: &MetadataMap) -> DirectoryLayout {
    DirectoryLayout {
        file_type: true,
        checksum: None,
        encrypted: true,
        casefolded: true,
        inode_last: InodeNumber::new(map.layout().inodes_count()),
    }
}

/// Makes a directory of this many blocks again, with hashes as of a key that nobody has. Returns them.
fn hash_by_hand(
    device: &MemoryDevice,
    number: InodeNumber,
    target: InodeNumber,
    secrets: &mut Secrets,
) -> Vec<NameHash> {
    let map = MetadataMap::of(device.snapshot());
    let layout = map.layout();
    let mut bytes = map.inode_bytes(number);
    let inode = Inode::read(&bytes, number, layout).unwrap();
    let flags = inode.flags | InodeFlags::ENCRYPT | InodeFlags::CASEFOLD | InodeFlags::INDEX;
    let field = FIELDS.iter().find(|field| field.name == "flags").unwrap();
    bytes[field.offset..][..4].copy_from_slice(&flags.bits().to_le_bytes());
    Inode::seal(&mut bytes, number, layout);
    let table = map.descriptor(layout.group_of_inode(number).unwrap()).inode_table;
    let (block, offset) = layout.inode_location(number, table).unwrap();
    let size = layout.block_size() as u64;
    device.write_at(block.get() * size + offset as u64, &bytes).unwrap();

    let directory = DirectoryLayout { checksum: inode.seed(layout), ..stored_layout(&map) };
    let (own, parent) = (number, InodeNumber::ROOT);
    let plan = DirectoryPlan { own, parent, layout: &directory, block_size: size as usize };
    // In the order of the file.
    let places = blocks_of(&map, &inode);
    let mut random = fastrand::Rng::with_seed(4);
    let mut names: Vec<(NameHash, String)> = Vec::new();
    // Names at a time; one by one where several would fill a block too many.
    let mut step = 10;
    loop {
        let hash = NameHash { major: random.u32(..) & !1, minor: random.u32(..) };
        names.push((hash, secrets.text(16 + names.len() % 40)));
        let entry = |(hash, name): &(NameHash, String)| {
            let (inode, entry_type) = (target, EntryType::Regular);
            let name: &'static [u8] = name.clone().leak().as_bytes();
            (*hash, NewEntry { name, inode, entry_type, hash: Some(*hash) })
        };
        if !names.len().is_multiple_of(step) {
            continue;
        }
        let mut entries: Vec<_> = names.iter().map(entry).collect();
        let blocks = build_hashed(&plan, HashVersion::SipHash, false, &mut entries).unwrap();
        if blocks.len() < places.len() {
            continue;
        }
        if blocks.len() > places.len() && step > 1 {
            names.truncate(names.len() - step);
            step = 1;
            continue;
        }
        assert_eq!(blocks.len(), places.len());
        for (place, bytes) in places.iter().zip(&blocks) {
            device.write_at(place * size, bytes).unwrap();
        }
        return names.into_iter().map(|(hash, _)| hash).collect();
    }
}

/// The blocks of a file in their order.
fn blocks_of(map: &MetadataMap, inode: &Inode) -> Vec<u64> {
    use drystone::inspection::{InspectedImage, MapPart, walk_map};
    let image = InspectedImage::open(&map.device).unwrap();
    let mut blocks = Vec::new();
    walk_map(&image, inode, &mut |part| {
        if let MapPart::Run(run) = part {
            blocks.extend(run.physical.get()..run.physical_end().get());
        }
        Ok(())
    })
    .unwrap();
    blocks
}
