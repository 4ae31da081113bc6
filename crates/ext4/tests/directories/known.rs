//! The dentry cache stays right while many threads look names up and change them.
//!
//! Each changing thread has names of its own in two shared directories, and looks them up after every
//! change: no other thread changes them, so it knows what it must find. Meanwhile looking threads look
//! up random names, so that they fill the cache at every moment of a change.

use super::subject::{Image, seed};
use drystone_blockdev::{FileDevice, OpenMode};
use drystone_ext4::{Ext4, MountOptions};
use drystone_sync::atomic::{AtomicBool, Ordering};
use drystone_sync::{Arc, thread};
use drystone_vfs::{Errno, FileSystem, InodeNumber, NewNode, RenameFlags, RequestContext};

const CHANGERS: u64 = 3;
const LOOKERS: u64 = 3;
const NAMES: usize = 6;
const CHANGES: usize = 1500;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) as usize % limit
    }
}

fn name(owner: u64, number: usize) -> Vec<u8> {
    format!("{owner}-{number}").into_bytes()
}

/// A thread's names and what each stands for.
struct Changer<'a> {
    fs: &'a Ext4,
    context: RequestContext,
    directories: [InodeNumber; 2],
    owner: u64,
    expected: [[Option<InodeNumber>; NAMES]; 2],
}

impl Changer<'_> {
    fn look(&self, directory: usize, number: usize) -> Option<InodeNumber> {
        let name = name(self.owner, number);
        match self.fs.lookup(&self.context, self.directories[directory], &name) {
            Ok(found) => {
                self.fs.forget(found.inode, 1);
                Some(found.inode)
            }
            Err(error) => {
                assert_eq!(error.errno, Errno::ENOENT);
                None
            }
        }
    }

    fn check(&self, place: (usize, usize), what: &str) {
        let (directory, number) = place;
        assert_eq!(self.look(directory, number), self.expected[directory][number], "after {what}");
    }

    fn change(&mut self, random: &mut Random) {
        let from = (random.below(2), random.below(NAMES));
        let to = (random.below(2), random.below(NAMES));
        let old = self.expected[from.0][from.1];
        let new = self.expected[to.0][to.1];
        let (old_name, new_name) = (name(self.owner, from.1), name(self.owner, to.1));
        let (old_parent, new_parent) = (self.directories[from.0], self.directories[to.0]);
        let what = match (old, random.below(4)) {
            (None, _) => {
                let node = NewNode::Regular;
                let made = self.fs.create(&self.context, old_parent, &old_name, node, 0o644);
                let made = made.unwrap().inode;
                self.expected[from.0][from.1] = Some(made);
                self.check(from, "create");
                self.fs.forget(made, 1);
                "create and forget"
            }
            (Some(_), 0) => {
                self.fs.unlink(&self.context, old_parent, &old_name).unwrap();
                self.expected[from.0][from.1] = None;
                "unlink"
            }
            (Some(inode), 1) if new.is_none() => {
                let found = self.fs.lookup(&self.context, old_parent, &old_name).unwrap();
                assert_eq!(found.inode, inode);
                self.fs.link(&self.context, inode, new_parent, &new_name).unwrap();
                self.fs.forget(inode, 2);
                self.expected[to.0][to.1] = old;
                "link"
            }
            (Some(_), 2) if new.is_some() => {
                let flags = RenameFlags::EXCHANGE;
                self.fs
                    .rename(&self.context, old_parent, &old_name, new_parent, &new_name, flags)
                    .unwrap();
                self.expected[to.0][to.1] = old;
                self.expected[from.0][from.1] = new;
                "exchange"
            }
            (Some(_), _) => {
                let flags = RenameFlags::empty();
                self.fs
                    .rename(&self.context, old_parent, &old_name, new_parent, &new_name, flags)
                    .unwrap();
                if old != new {
                    self.expected[from.0][from.1] = None;
                    self.expected[to.0][to.1] = old;
                }
                "rename"
            }
        };
        self.check(from, what);
        self.check(to, what);
    }
}

#[test]
fn names_are_never_stale() {
    let Some(image) = Image::new(&["-t", "ext4"], "32M") else { return };
    // With little memory, directories also take the cache's tables from each other.
    for memory_budget_bytes in [64 << 20, 1 << 20, 1 << 10] {
        let device = FileDevice::open(&image.path, OpenMode::ReadWrite).unwrap();
        let options = MountOptions::default().memory_budget_bytes(memory_budget_bytes);
        let fs = Ext4::open(Arc::new(device), options).unwrap();
        change_and_look(&fs, &format!("{memory_budget_bytes}"));
        fs.close().unwrap();
        image.check();
    }
}

fn change_and_look(fs: &Ext4, parent: &str) {
    let context = RequestContext::superuser();
    let directory = |parent, name: &str| {
        let made = fs.create(&context, parent, name.as_bytes(), NewNode::Directory, 0o755);
        made.unwrap().inode
    };
    let parent = directory(fs.root(), parent);
    let directories = [directory(parent, "a"), directory(parent, "b")];
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        for looker in 0..LOOKERS {
            let is_done = &is_done;
            scope.spawn(move || {
                let context = RequestContext::superuser();
                let mut random = Random(seed() ^ 77 ^ looker << 32);
                while !is_done.load(Ordering::Relaxed) {
                    let name = name(random.below(CHANGERS as usize) as u64, random.below(NAMES));
                    if let Ok(found) = fs.lookup(&context, directories[random.below(2)], &name) {
                        // A found inode lives as long as it is held.
                        assert_eq!(fs.attributes(found.inode).unwrap().inode, found.inode);
                        fs.forget(found.inode, 1);
                    }
                }
            });
        }
        let changers: Vec<_> = (0..CHANGERS)
            .map(|owner| {
                scope.spawn(move || {
                    let mut random = Random(seed() ^ owner << 32);
                    let context = RequestContext::superuser();
                    let expected = [[None; NAMES]; 2];
                    let mut changer = Changer { fs, context, directories, owner, expected };
                    for _ in 0..CHANGES {
                        changer.change(&mut random);
                    }
                })
            })
            .collect();
        let ended: Vec<_> = changers.into_iter().map(|changer| changer.join()).collect();
        is_done.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|changer| changer.unwrap());
    });
}
