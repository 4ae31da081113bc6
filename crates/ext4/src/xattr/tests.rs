//! Attributes against a model, in all kinds of images, judged by e2fsck.

use super::change_one;
use super::stored::StoredAttributes;
use crate::Ext4;
use crate::testing::TestImage;
use drystone_ext4_format::acl::{Acl, AclEntry, AclTag};
use drystone_ext4_format::xattr::AttributeName;
use drystone_vfs::{
    Errno, FileSystem, InodeNumber, NewNode, RequestContext, SetAttributes, XattrMode,
};
use std::collections::BTreeMap;

const KINDS: [&str; 9] = [
    "default",
    "default-1k",
    "ea-inode",
    "large-inodes-1k",
    "small-inodes-1k",
    "inline-data-1k",
    "quota-project",
    "bigalloc",
    "no-checksums",
];
const STEPS: usize = 500;
const FILES: usize = 8;
const SEEDS: u64 = 2;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

struct Tester {
    fs: Ext4,
    random: fastrand::Rng,
    context: RequestContext,
    files: BTreeMap<String, (InodeNumber, Model)>,
    refused: usize,
}

impl Tester {
    fn name(&mut self) -> Vec<u8> {
        let prefix = ["user.", "trusted.", "security."][self.random.usize(0..3)];
        let length = [1, 3, 20, 100][self.random.usize(0..4)];
        let mut name = prefix.as_bytes().to_vec();
        name.resize(prefix.len() + length, b'a' + self.random.u8(0..4));
        name
    }

    fn value(&mut self) -> Vec<u8> {
        let length_max = [0, 8, 60, 60, 300, 1200, 5000, 65_536][self.random.usize(0..8)];
        // Few different values, so that some inodes come to have equal attributes.
        let length =
            if self.random.bool() { length_max } else { self.random.usize(0..=length_max) };
        vec![self.random.u8(0..3); length]
    }

    fn file(&mut self) -> String {
        format!("f{}", self.random.usize(0..FILES))
    }

    fn step(&mut self) {
        let file = self.file();
        let Some((inode, _)) = self.files.get(&file) else {
            let made = if self.random.bool() { NewNode::Regular } else { NewNode::Directory };
            let root = self.fs.root();
            let entry = self.fs.create(&self.context, root, file.as_bytes(), made, 0o755);
            self.files.insert(file, (entry.expect("a new inode").inode, Model::new()));
            return;
        };
        let inode = *inode;
        match self.random.u8(0..20) {
            0 => self.remove_file(&file, inode),
            1 => {
                let changes = SetAttributes {
                    user: Some(self.random.u32(0..5)),
                    project: (self.random.bool() && self.has_projects())
                        .then(|| self.random.u32(0..3)),
                    ..SetAttributes::default()
                };
                self.fs.set_attributes(&self.context, inode, &changes).expect("a new owner");
            }
            2 => {
                let length = self.random.usize(1..200);
                // A directory can't be written to.
                let _ = self.fs.write(&self.context, inode, 0, &vec![7; length]);
            }
            3..=6 => {
                let name = self.name();
                let removed = self.fs.remove_xattr(&self.context, inode, &name);
                let expected = self.model(&file).remove(&name);
                assert_eq!(
                    removed.map_err(|error| error.errno),
                    expected.map(|_| ()).ok_or(Errno::ENODATA)
                );
            }
            7..=9 => self.copy(&file, inode),
            _ => {
                let (name, value) = (self.name(), self.value());
                self.set(&file, inode, name, value);
            }
        }
    }

    fn has_projects(&self) -> bool {
        use drystone_ext4_format::features::ReadOnlyCompat;
        self.fs.volume.features.read_only_compat.contains(ReadOnlyCompat::PROJECT)
    }

    fn model(&mut self, file: &str) -> &mut Model {
        &mut self.files.get_mut(file).expect("a file").1
    }

    fn set(&mut self, file: &str, inode: InodeNumber, name: Vec<u8>, value: Vec<u8>) {
        let set = self.fs.set_xattr(&self.context, inode, &name, &value, XattrMode::Set);
        match set {
            Ok(()) => {
                self.model(file).insert(name, value);
            }
            Err(error) => {
                assert_eq!(error.errno, Errno::ENOSPC, "{error}");
                self.refused += 1;
            }
        }
    }

    /// Gives a file the attributes of another one, so that they may share a block.
    fn copy(&mut self, file: &str, inode: InodeNumber) {
        let from = self.file();
        let Some((_, model)) = self.files.get(&from) else { return };
        for (name, value) in model.clone() {
            self.set(file, inode, name, value);
        }
    }

    fn remove_file(&mut self, file: &str, inode: InodeNumber) {
        let root = self.fs.root();
        let removed = match self.fs.unlink(&self.context, root, file.as_bytes()) {
            Err(error) if error.errno == Errno::EISDIR => {
                self.fs.remove_directory(&self.context, root, file.as_bytes())
            }
            removed => removed,
        };
        removed.expect("a file less");
        self.fs.forget(inode, 1);
        self.files.remove(file);
    }

    fn compare(&self) {
        for (file, (inode, model)) in &self.files {
            let names = self.fs.list_xattrs(&self.context, *inode).expect("a list");
            let expected: Vec<_> = model.keys().cloned().collect();
            assert_eq!(names, expected, "names of {file}");
            for (name, value) in model {
                let found = self.fs.xattr(&self.context, *inode, name).expect("a value");
                assert!(found == *value, "{file}: {}", String::from_utf8_lossy(name));
            }
        }
    }
}

fn run(kind: &str, seed: u64) {
    let Some(image) = TestImage::new(kind, 16) else { return };
    let what = format!("kind {kind}, seed {seed}");
    eprintln!("{what}");
    let mut tester = Tester {
        fs: image.open(),
        random: fastrand::Rng::with_seed(seed),
        context: RequestContext::superuser(),
        files: BTreeMap::new(),
        refused: 0,
    };
    for _ in 0..2 {
        for step in 0..STEPS {
            tester.step();
            if step % 50 == 0 {
                tester.compare();
            }
        }
        let Tester { fs, random, files, .. } = tester;
        fs.close().expect("a clean end");
        image.check(&what);
        let fs = image.open();
        let root = fs.root();
        let context = RequestContext::superuser();
        let find = |(file, (_, model)): (String, (InodeNumber, Model))| {
            let entry = fs.lookup(&context, root, file.as_bytes()).expect("a file");
            (file, (entry.inode, model))
        };
        let files = files.into_iter().map(find).collect();
        tester = Tester { fs, random, context, files, refused: 0 };
        tester.compare();
    }
    tester.fs.close().expect("a clean end");
    image.check(&what);
}

#[test]
fn random_changes() {
    for kind in KINDS {
        for seed in 0..SEEDS {
            run(kind, seed);
        }
    }
}

#[test]
fn equal_attributes_share_a_block() {
    let Some(image) = TestImage::new("small-inodes-1k", 16) else { return };
    let fs = image.open();
    let context = RequestContext::superuser();
    let root = fs.root();
    let mut inodes = Vec::new();
    for number in 0..1100 {
        let name = format!("f{number}");
        let entry = fs.create(&context, root, name.as_bytes(), NewNode::Regular, 0o644);
        let inode = entry.expect("a file").inode;
        fs.set_xattr(&context, inode, b"user.a", b"value", XattrMode::Set).expect("an attribute");
        inodes.push(inode);
    }
    let block = |inode: InodeNumber| {
        let inode = fs.held(inode).expect("an inode");
        let block = inode.fields().disk.attribute_block;
        block.expect("a block")
    };
    assert_eq!(block(inodes[0]), block(inodes[1023]));
    assert_ne!(block(inodes[0]), block(inodes[1024]), "a block has 1024 users at most");
    fs.set_xattr(&context, inodes[5], b"user.a", b"other", XattrMode::Replace).expect("a change");
    assert_ne!(block(inodes[0]), block(inodes[5]));
    assert_eq!(fs.xattr(&context, inodes[0], b"user.a").expect("a value"), b"value");
    for (number, &inode) in inodes.iter().enumerate().take(1000) {
        fs.unlink(&context, root, format!("f{number}").as_bytes()).expect("a file less");
        fs.forget(inode, 1);
    }
    fs.close().expect("a clean end");
    image.check("shared blocks");
}

/// The block has left memory when another file comes to share it, and is read again for that.
#[test]
fn a_block_that_left_memory_can_be_shared() {
    let Some(image) = TestImage::new("small-inodes-1k", 16) else { return };
    let context = RequestContext::superuser();
    let (name, value) = (b"user.a", b"value");
    let fs = image.open();
    let root = fs.root();
    let first = fs.create(&context, root, b"first", NewNode::Regular, 0o644).expect("a file");
    fs.set_xattr(&context, first.inode, name, value, XattrMode::Set).expect("an attribute");
    fs.close().expect("a clean end");

    let fs = image.open();
    let first = fs.lookup(&context, root, b"first").expect("a file").inode;
    let block =
        |inode: InodeNumber| fs.held(inode).expect("an inode").fields().disk.attribute_block;
    assert_eq!(fs.xattr(&context, first, name).expect("a value"), value);
    fs.volume.cache.invalidate(block(first).expect("a block").get());
    let second =
        fs.create(&context, root, b"second", NewNode::Regular, 0o644).expect("a file").inode;
    fs.set_xattr(&context, second, name, value, XattrMode::Set).expect("an attribute");
    assert_eq!(block(first), block(second));
    assert_eq!(fs.xattr(&context, first, name).expect("a value"), value);
    fs.close().expect("a clean end");
    image.check("a block that was read again");
}

/// Otherwise a damaged image could lead from value to value without end.
#[test]
fn values_have_no_attributes() {
    let Some(image) = TestImage::new("ea-inode", 16) else { return };
    let fs = image.open();
    let (context, root) = (RequestContext::superuser(), fs.root());
    let file = fs.create(&context, root, b"f", NewNode::Regular, 0o644).expect("a file").inode;
    let (name, value) = (b"user.a", [7; 5000]);
    fs.set_xattr(&context, file, name, &value, XattrMode::Set).expect("an attribute");
    let inode = fs.held(file).expect("an inode");
    let stored = StoredAttributes::load(&fs, &inode).expect("attributes");
    let [(number, _)] = stored.value_inodes()[..] else { panic!("one value in an inode") };
    let holder = fs.own_inode(number).expect("an inode");
    let parsed = AttributeName::parse(name).expect("a name");
    change_one(&fs, &context, &holder, &parsed, Some(&value), XattrMode::Set).expect("damage");

    let damaged = |found: drystone_vfs::Result<()>| {
        let error = found.expect_err("damage");
        assert_eq!(error.errno, Errno::EUCLEAN, "{error:?}");
    };
    damaged(fs.xattr(&context, file, name).map(drop));
    damaged(fs.remove_xattr(&context, file, name));
    drop(inode);
    fs.forget(file, 1);
    fs.unlink(&context, root, b"f").expect("the name goes");
    assert!(fs.own_inode(number).is_ok(), "nothing was freed");
}

fn list() -> Acl {
    let entry = |tag, permissions| AclEntry { tag, permissions };
    Acl::new(vec![
        entry(AclTag::Owner, 7),
        entry(AclTag::User(5), 6),
        entry(AclTag::OwningGroup, 5),
        entry(AclTag::Mask, 7),
        entry(AclTag::Other, 0),
    ])
    .expect("a valid list")
}

#[test]
fn lists_are_inherited_and_follow_the_mode() {
    for kind in ["default", "small-inodes-1k", "inline-data", "quota"] {
        let Some(image) = TestImage::new(kind, 16) else { return };
        let fs = image.open();
        let context = RequestContext { umask: 0o077, ..RequestContext::superuser() };
        let root = fs.root();
        let set = |inode, name: &[u8], list: &Acl| {
            fs.set_xattr(&context, inode, name, &list.to_attribute(), XattrMode::Set)
                .expect("a list");
        };
        set(root, b"system.posix_acl_default", &list());
        let made =
            |name: &[u8], node| fs.create(&context, root, name, node, 0o775).expect("an inode");
        let (file, directory) = (made(b"f", NewNode::Regular), made(b"d", NewNode::Directory));
        let link = made(b"l", NewNode::Symlink(b"f"));
        assert_eq!(file.permissions, 0o770);
        assert_eq!(link.permissions, 0o777);
        let get = |inode, name: &[u8]| fs.xattr(&context, inode, name);
        let access = b"system.posix_acl_access";
        assert_eq!(get(file.inode, access).expect("a list"), list().to_attribute());
        let default = get(directory.inode, b"system.posix_acl_default");
        assert_eq!(default.expect("a list"), list().to_attribute());
        let mode = SetAttributes { permissions: Some(0o640), ..SetAttributes::default() };
        fs.set_attributes(&context, file.inode, &mode).expect("a mode");
        let followed = get(file.inode, access).expect("a list");
        assert_eq!(followed, list().with_mode(0o640).to_attribute());
        // A list that says no more than a mode is not stored.
        set(file.inode, access, &Acl::from_mode(0o604));
        assert_eq!(get(file.inode, access).expect_err("no list").errno, Errno::ENODATA);
        assert_eq!(fs.attributes(file.inode).expect("attributes").permissions, 0o604);
        fs.close().expect("a clean end");
        image.check(kind);
    }
}
