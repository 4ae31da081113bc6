//! Linear and hashed directories.

use crate::image::{Image, place, tools_available};
use drystone_ext4_format::casefold::fold;
use drystone_ext4_format::dir::{
    self, DirectoryBlock, DirectoryBlockBuilder, DirectoryBlockMut, DirectoryLayout, Entry,
    NewEntry,
};
use drystone_ext4_format::hash::{HashVersion, NameHash, NameHasher};
use drystone_ext4_format::htree::{
    self, DirectoryPlan, IndexBlock, IndexBlockMut, IndexEntry, IndexKind, IndexLimits, LeafSplit,
    build_hashed, build_linear,
};
use drystone_ext4_format::{InodeNumber, LogicalBlock, PhysicalBlock};
use std::collections::BTreeSet;
use std::fs;

const FEATURE_SETS: [(&[&str], usize); 4] = [
    (&["-b", "1024", "-O", "metadata_csum"], 600),
    (&["-b", "4096", "-O", "^metadata_csum"], 1500),
    (&["-b", "4096", "-O", "metadata_csum"], 300),
    (&["-b", "65536", "-O", "metadata_csum", "-N", "4000"], 2500),
];

/// An image with `count` empty files in `/d`.
fn image(options: &[&str], count: usize) -> Image {
    Image::make(options, if options[1] == "65536" { "160M" } else { "24M" }, |tree| {
        fs::create_dir(tree.join("d")).unwrap();
        for number in 0..count {
            fs::write(tree.join(format!("d/file with the number {number}")), b"").unwrap();
        }
    })
}

fn hasher(image: &Image, version: HashVersion) -> NameHasher {
    NameHasher::new(version, image.superblock.hash_seed())
}

fn limits(blocks: &[PhysicalBlock]) -> IndexLimits {
    IndexLimits { directory_blocks: blocks.len() as u32, large_directory: false }
}

#[test]
fn linear_directories_are_read_and_rewritten() {
    if !tools_available() {
        return;
    }
    for (options, count) in FEATURE_SETS {
        let image = image(options, count);
        let (layout, inode) = (image.directory_layout("/d"), image.number("/d"));
        let mut names = BTreeSet::new();
        for (number, &block) in image.blocks("/d").iter().enumerate() {
            let mut bytes = image.block(block);
            dir::verify(&bytes, &layout, place(inode, number)).unwrap();
            let view = DirectoryBlock::check(&bytes, &layout, place(inode, number)).unwrap();
            if number == 0 {
                view.check_dots(place(inode, 0)).unwrap();
            }
            let live = view.entries().filter(|entry| !entry.is_dot());
            names.extend(live.map(|entry| entry.name.to_vec()));
            // Every second entry leaves and comes back.
            let mut moved: Vec<(usize, Vec<u8>)> = view
                .entries()
                .filter(|entry| !entry.is_dot())
                .step_by(2)
                .map(|entry| (entry.offset, entry.name.to_vec()))
                .collect();
            let copy = bytes.clone();
            let copy = DirectoryBlock::trusted(&copy, &layout);
            let mut edit = DirectoryBlockMut::trusted(&mut bytes, &layout);
            for (offset, _) in &moved {
                edit.remove(*offset).unwrap();
            }
            // Longest first, so that short names don't use up the large gaps.
            moved.sort_by_key(|(_, name)| std::cmp::Reverse(name.len()));
            for (_, name) in &moved {
                edit.insert(&NewEntry::from(copy.find(name).unwrap())).unwrap();
            }
            dir::seal(&mut bytes, &layout);
            image.write_block(block, &bytes);
        }
        assert_eq!(names.len(), count);
        image.judge();
    }
}

#[test]
fn hashed_directories_are_read() {
    if !tools_available() {
        return;
    }
    for (options, count) in FEATURE_SETS {
        let image = image(options, count).repair("-fyD");
        let (layout, inode) = (image.directory_layout("/d"), image.number("/d"));
        let blocks = image.blocks("/d");
        let mut root = image.block(blocks[0]);
        if !image.debugfs("stat /d").contains("Flags: 0x81000") {
            continue;
        }
        htree::verify(&root, IndexKind::Root, &layout, place(inode, 0)).unwrap();
        let checked = IndexBlock::check_root(&root, &layout, place(inode, 0), &limits(&blocks));
        let checked = checked.unwrap();
        assert_eq!(checked.levels(), Some(0));
        let hasher = hasher(&image, checked.hash_version().unwrap());
        let mut found = 0;
        for (position, index) in (0..).zip(checked.entries()) {
            let number = index.block.get() as usize;
            let leaf = image.block(blocks[number]);
            dir::verify(&leaf, &layout, place(inode, number)).unwrap();
            let leaf = DirectoryBlock::check(&leaf, &layout, place(inode, number)).unwrap();
            for entry in leaf.entries() {
                let hash = hasher.hash(entry.name).major;
                let at = checked.search(hash);
                assert!(at == position || checked.continues_after(at, hash));
                found += 1;
            }
        }
        assert_eq!(found, count);
        htree::seal(&mut root, IndexKind::Root, &layout);
        assert_eq!(root, image.block(blocks[0]));
    }
}

/// A hashed directory that grows in memory, block by block, up to a given number of blocks.
struct Growing {
    layout: DirectoryLayout,
    hasher: NameHasher,
    fold: bool,
    blocks: Vec<Vec<u8>>,
    nodes: BTreeSet<usize>,
}

impl Growing {
    fn hash(&self, name: &[u8]) -> NameHash {
        match std::str::from_utf8(name) {
            Ok(text) if self.fold => self.hasher.hash(fold(text).as_bytes()),
            _ => self.hasher.hash(name),
        }
    }

    fn kind(&self, block: usize) -> IndexKind {
        if block == 0 { IndexKind::Root } else { IndexKind::Node }
    }

    fn push(&mut self) -> usize {
        self.blocks.push(vec![0; self.blocks[0].len()]);
        self.blocks.len() - 1
    }

    /// The index blocks on the way to a hash, with positions, and the leaf.
    fn path(&self, hash: u32) -> (Vec<(usize, u16)>, usize) {
        let mut path = Vec::new();
        let mut block = 0;
        let levels = IndexBlock::trusted(&self.blocks[0], IndexKind::Root).levels().unwrap();
        for _ in 0..=levels {
            let view = IndexBlock::trusted(&self.blocks[block], self.kind(block));
            let position = view.search(hash);
            path.push((block, position));
            block = view.get(position).unwrap().block.get() as usize;
        }
        (path, block)
    }

    fn insert(&mut self, entry: &NewEntry<'_>) {
        let hash = self.hash(entry.name).major;
        loop {
            let (_, leaf) = self.path(hash);
            let layout = self.layout;
            let mut block = DirectoryBlockMut::trusted(&mut self.blocks[leaf], &layout);
            if block.insert(entry).is_ok() {
                return;
            }
            self.split(hash);
        }
    }

    /// Splits the leaf of a hash, and first the full nodes above it.
    fn split(&mut self, hash: u32) {
        let layout = self.layout;
        let (path, leaf) = self.path(hash);
        let &(parent, position) = path.last().unwrap();
        if IndexBlock::trusted(&self.blocks[parent], self.kind(parent)).is_full() {
            let fresh = self.push();
            self.nodes.insert(fresh);
            let mut node = std::mem::take(&mut self.blocks[fresh]);
            let at = LogicalBlock::new(fresh as u32);
            if parent == 0 {
                let mut root = IndexBlockMut::trusted(&mut self.blocks[0], IndexKind::Root);
                root.raise_into(&mut node, &layout, at).unwrap();
            } else {
                let mut full = IndexBlockMut::trusted(&mut self.blocks[parent], IndexKind::Node);
                let hash = full.split_into(&mut node, &layout).unwrap();
                let (_, above) = path[0];
                let mut root = IndexBlockMut::trusted(&mut self.blocks[0], IndexKind::Root);
                root.insert_after(above, IndexEntry { hash, block: at }).unwrap();
            }
            self.blocks[fresh] = node;
            return;
        }
        let fresh = self.push();
        let mut full = std::mem::take(&mut self.blocks[leaf]);
        let source = DirectoryBlock::trusted(&full, &layout);
        let hash_of = |entry: &Entry<'_>| self.hash(entry.name);
        let place = place(InodeNumber::ROOT, leaf);
        let split = LeafSplit::plan(&source, place, hash_of).unwrap().unwrap();
        split.fill_upper(&full, &mut self.blocks[fresh]);
        split.keep_lower(&mut full);
        self.blocks[leaf] = full;
        let kind = self.kind(parent);
        let mut index = IndexBlockMut::trusted(&mut self.blocks[parent], kind);
        let block = LogicalBlock::new(fresh as u32);
        index.insert_after(position, IndexEntry { hash: split.hash, block }).unwrap();
    }

    fn seal(&mut self) {
        for (number, block) in self.blocks.iter_mut().enumerate() {
            if number == 0 {
                htree::seal(block, IndexKind::Root, &self.layout);
            } else if self.nodes.contains(&number) {
                htree::seal(block, IndexKind::Node, &self.layout);
            } else {
                dir::seal(block, &self.layout);
            }
        }
    }
}

/// Rebuilds the linear directory `/d` as a hashed one of exactly as many blocks as it has.
fn rebuild_hashed(image: &Image, version: HashVersion, fold: bool) -> Growing {
    let (layout, inode) = (image.directory_layout("/d"), image.number("/d"));
    let blocks = image.blocks("/d");
    let size = image.block_size();
    let mut root = vec![0; size];
    let first = LogicalBlock::new(1);
    htree::init_root(&mut root, &layout, inode, InodeNumber::ROOT, version, first);
    let mut leaf = vec![0; size];
    DirectoryBlockBuilder::new(&mut leaf, &layout).finish();
    let hasher = hasher(image, version);
    let mut growing =
        Growing { layout, hasher, fold, blocks: vec![root, leaf], nodes: BTreeSet::new() };
    let mut hashes = Vec::new();
    for (number, &block) in blocks.iter().enumerate() {
        let bytes = image.block(block);
        let view = DirectoryBlock::check(&bytes, &layout, place(inode, number)).unwrap();
        for entry in view.entries().filter(|entry| !entry.is_dot()) {
            hashes.push(growing.hash(entry.name).major);
            growing.insert(&NewEntry::from(entry));
        }
    }
    assert!(growing.blocks.len() <= blocks.len(), "{} > {}", growing.blocks.len(), blocks.len());
    for &hash in hashes.iter().cycle() {
        if growing.blocks.len() == blocks.len() {
            break;
        }
        let (_, leaf) = growing.path(hash);
        let view = DirectoryBlock::trusted(&growing.blocks[leaf], &layout);
        if view.entries().count() > 1 {
            growing.split(hash);
        }
    }
    growing.seal();
    let limits = limits(&blocks);
    IndexBlock::check_root(&growing.blocks[0], &layout, place(inode, 0), &limits).unwrap();
    for &node in &growing.nodes {
        IndexBlock::check_node(&growing.blocks[node], &layout, place(inode, node), &limits)
            .unwrap();
    }
    for (bytes, &block) in growing.blocks.iter().zip(&blocks) {
        image.write_block(block, bytes);
    }
    growing
}

#[test]
fn hashed_directories_are_built() {
    if !tools_available() {
        return;
    }
    for (options, count) in FEATURE_SETS {
        let image = image(options, count);
        let blocks = image.blocks("/d").len();
        image.edit(&("expand_dir /d\n".repeat(blocks + 2) + "set_inode_field /d flags 0x81000\n"));
        let version = image.superblock.hash_version().unwrap();
        rebuild_hashed(&image, version, false);
        image.judge();
        assert_eq!(image.debugfs("ls /d").matches("file with").count(), count);
    }
}

#[test]
fn hashed_directories_grow_a_level() {
    if !tools_available() {
        return;
    }
    for (options, version) in [
        (["-b", "1024", "-O", "metadata_csum"], HashVersion::Tea),
        (["-b", "1024", "-O", "^metadata_csum"], HashVersion::Legacy),
    ] {
        let image = image(&options, 3000);
        let blocks = image.blocks("/d").len();
        // More blocks than a root has entries; short of those that need a node of the tree.
        image
            .edit(&("expand_dir /d\n".repeat(240 - blocks) + "set_inode_field /d flags 0x81000\n"));
        let version = version.with_unsigned_chars(image.debugfs("stats").contains("unsigned"));
        let growing = rebuild_hashed(&image, version, false);
        assert!(growing.nodes.len() >= 2);
        image.judge();
    }
}

#[test]
fn casefolded_directories_are_hashed_by_the_folded_name() {
    if !tools_available() {
        return;
    }
    let options = ["-b", "1024", "-O", "casefold,metadata_csum", "-E", "encoding=utf8-12.1"];
    let image = Image::make(&options, "16M", |tree| {
        fs::create_dir(tree.join("d")).unwrap();
        for number in 0..200 {
            fs::write(tree.join(format!("d/Straße ÄÖÜ Ǆ {number}")), b"").unwrap();
        }
    });
    let blocks = image.blocks("/d").len();
    let flags = "set_inode_field /d flags 0x40081000\n";
    image.edit(&("expand_dir /d\n".repeat(blocks + 2) + flags));
    rebuild_hashed(&image, image.superblock.hash_version().unwrap(), true);
    image.judge();
}

#[test]
fn whole_directories_are_built() {
    if !tools_available() {
        return;
    }
    for (hashed, features) in
        [(true, "metadata_csum"), (false, "metadata_csum"), (true, "^metadata_csum")]
    {
        let options = ["-b", "1024", "-O", features];
        let image = image(&options, 3000);
        let (layout, inode) = (image.directory_layout("/d"), image.number("/d"));
        let blocks = image.blocks("/d");
        let bytes: Vec<_> = blocks.iter().map(|&block| image.block(block)).collect();
        let version = image.superblock.hash_version().unwrap();
        let hasher = hasher(&image, version);
        let mut entries: Vec<_> = bytes
            .iter()
            .flat_map(|bytes| DirectoryBlock::trusted(bytes, &layout).entries())
            .filter(|entry| !entry.is_dot())
            .map(|entry| (hasher.hash(entry.name), NewEntry::from(entry)))
            .collect();
        let plan = DirectoryPlan {
            own: inode,
            parent: InodeNumber::ROOT,
            layout: &layout,
            block_size: image.block_size(),
        };
        let built = if hashed {
            build_hashed(&plan, version, false, &mut entries).unwrap()
        } else {
            build_linear(&plan, entries.iter().map(|&(_, entry)| entry))
        };
        let missing = built.len() - blocks.len();
        let flags = if hashed { "set_inode_field /d flags 0x81000\n" } else { "" };
        image.edit(&("expand_dir /d\n".repeat(missing) + flags));
        for (bytes, &block) in built.iter().zip(&image.blocks("/d")) {
            image.write_block(block, bytes);
        }
        image.judge();
        assert_eq!(image.debugfs("ls /d").matches("file with").count(), 3000);
    }
}
