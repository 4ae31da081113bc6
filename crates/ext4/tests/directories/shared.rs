//! Threads that change names of one directory at the same time.

use crate::subject::{Image, Subject, seed};
use drystone_ext4::Ext4;
use drystone_sync::atomic::{AtomicBool, AtomicI64, Ordering};
use drystone_sync::{Arc, thread};
use drystone_vfs::{Errno, FileSystem, InodeNumber, NewNode, RenameFlags, RequestContext};
use std::collections::BTreeMap;

const THREADS: u64 = 4;
const OPERATIONS: usize = 3000;
/// Names that stay: enough for a few leaves of 1 KiB.
const STAYING: u32 = 150;
/// Long names that stay in a directory whose leaves split, and that each thread adds there. A leaf has room for 9.
const LONG: u32 = 900;
/// Names that all threads add and remove.
const CONTESTED: usize = 6;

/// What the threads share.
struct Shared {
    fs: Ext4,
    directory: InodeNumber,
    /// Names that are there from the start, and stay.
    staying: u32,
    /// For each contested name, how often it was added less how often it was removed.
    counts: [AtomicI64; CONTESTED],
    is_done: AtomicBool,
}

impl Shared {
    /// Adds a name, of a new file or a link to `linked`. Whether it was new.
    fn add(&self, name: &str, linked: Option<InodeNumber>) -> bool {
        let (context, name) = (RequestContext::superuser(), name.as_bytes());
        let added = match linked {
            Some(inode) => self.fs.link(&context, inode, self.directory, name),
            None => self.fs.create(&context, self.directory, name, NewNode::Regular, 0o600),
        };
        match added {
            Ok(entry) => self.fs.forget(entry.inode, 1),
            Err(ref error) => assert_eq!(error.errno, Errno::EEXIST, "{error:?}"),
        }
        added.is_ok()
    }

    /// Adds a name by moving a new file into the directory.
    fn move_into(&self, thread: u64, name: &str) {
        let (context, root) = (RequestContext::superuser(), self.fs.root());
        let (old, name) = (format!("moved by {thread}").into_bytes(), name.as_bytes());
        let made = self.fs.create(&context, root, &old, NewNode::Regular, 0o600).unwrap();
        self.fs.forget(made.inode, 1);
        self.fs.rename(&context, root, &old, self.directory, name, RenameFlags::empty()).unwrap();
    }

    fn remove(&self, name: &str) -> bool {
        let removed = self.fs.unlink(&RequestContext::superuser(), self.directory, name.as_bytes());
        if let Err(error) = &removed {
            assert_eq!(error.errno, Errno::ENOENT, "{error:?}");
        }
        removed.is_ok()
    }

    fn has(&self, name: &str) -> bool {
        let found = self.fs.lookup(&RequestContext::superuser(), self.directory, name.as_bytes());
        match found {
            Ok(entry) => self.fs.forget(entry.inode, 1),
            Err(ref error) => assert_eq!(error.errno, Errno::ENOENT, "{error:?}"),
        }
        found.is_ok()
    }

    /// Adds and removes names of its own, whose outcomes it knows, and contested ones. Returns its own.
    fn change(&self, thread: u64, link: InodeNumber) -> BTreeMap<String, bool> {
        let mut random = fastrand::Rng::with_seed(seed() + thread);
        let mut own = BTreeMap::new();
        for step in 0..OPERATIONS {
            let linked = random.bool().then_some(link);
            if step % 10 == 0 {
                assert!(self.add(&format!("lasting {thread} {step}"), linked));
            }
            let name = format!("thread {thread}, name {:030}", random.u32(..100));
            let is_there = own.entry(name.clone()).or_insert(false);
            match random.u8(..10) {
                0..3 => {
                    assert_eq!(self.add(&name, linked), !*is_there, "{name}");
                    *is_there = true;
                }
                3..6 => {
                    assert_eq!(self.remove(&name), *is_there, "{name}");
                    *is_there = false;
                }
                6..8 => assert_eq!(self.has(&name), *is_there, "{name}"),
                kind => {
                    let number = random.usize(..CONTESTED);
                    let name = format!("contested {number}");
                    let count = &self.counts[number];
                    if kind == 8 && self.add(&name, linked) {
                        count.fetch_add(1, Ordering::Relaxed);
                    } else if kind == 9 && self.remove(&name) {
                        count.fetch_sub(1, Ordering::Relaxed);
                    }
                }
            }
        }
        own
    }

    /// Adds long names, which split leaves, and returns them. Short ones come and go.
    fn split(&self, thread: u64, link: InodeNumber) -> Vec<String> {
        let mut random = fastrand::Rng::with_seed(seed() + thread);
        let mut left = Vec::new();
        for number in 0..LONG {
            let name = format!("lasting {thread} {number:090}");
            match random.u8(..3) {
                0 => assert!(self.add(&name, None), "{name}"),
                1 => assert!(self.add(&name, Some(link)), "{name}"),
                _ => self.move_into(thread, &name),
            }
            left.push(name);
            let short = format!("short {thread} {number}");
            assert!(self.add(&short, Some(link)) && self.remove(&short), "{short}");
        }
        left
    }

    /// Looks each name that stays up in the blocks, where no dentry is known.
    fn look_up_staying(&self, thread: u64) {
        let mut random = fastrand::Rng::with_seed(seed() + thread);
        let mut numbers: Vec<u32> = (0..self.staying).collect();
        random.shuffle(&mut numbers);
        for number in numbers {
            let name = staying_name(number);
            assert!(self.has(&name), "{name}");
            assert!(!self.has(&format!("{name}, not")), "{name}");
        }
    }

    /// Each name that stays is in each listing once. A name that was listed, and isn't removed, is found.
    fn list(&self) -> u32 {
        let mut listings = 0;
        while !self.is_done.load(Ordering::Relaxed) {
            let mut staying = 0;
            let visit = &mut |entry: &drystone_vfs::DirectoryEntry<'_>| {
                staying += u32::from(entry.name.starts_with(b"staying"));
                if entry.name.starts_with(b"lasting") {
                    let name = String::from_utf8_lossy(entry.name);
                    assert!(self.has(&name), "{name}");
                }
                true
            };
            self.fs.read_directory(&RequestContext::superuser(), self.directory, 0, visit).unwrap();
            assert_eq!(staying, self.staying);
            listings += 1;
        }
        listings
    }
}

/// A long name that is there from the start.
fn staying_name(number: u32) -> String {
    format!("staying {number:090}")
}

#[test]
fn leaves_split_while_their_names_are_used() {
    let Some(image) = Image::new(&["-t", "ext4", "-b", "1024"], "64M") else { return };
    {
        let fs = image.mount();
        let mut subject = Subject::new(&fs, None);
        for number in 0..LONG {
            subject.insert(staying_name(number).as_bytes(), subject.files[0]);
        }
        fs.close().unwrap();
    }
    let fs = image.mount();
    let context = RequestContext::superuser();
    let [directory, file] =
        [&b"d"[..], b"file 1"].map(|name| fs.lookup(&context, fs.root(), name).unwrap().inode);
    let (counts, is_done) = (Default::default(), AtomicBool::new(false));
    let shared = Arc::new(Shared { fs, directory, staying: LONG, counts, is_done });
    let lister = {
        let shared = Arc::clone(&shared);
        thread::spawn("lister", move || shared.list()).unwrap()
    };
    let splitters: Vec<_> = (0..THREADS)
        .map(|number| {
            let shared = Arc::clone(&shared);
            thread::spawn("splitter", move || shared.split(number, file)).unwrap()
        })
        .collect();
    shared.look_up_staying(THREADS);
    for name in splitters.into_iter().flat_map(|splitter| splitter.join().unwrap()) {
        assert!(shared.has(&name), "{name}");
    }
    shared.is_done.store(true, Ordering::Relaxed);
    assert!(lister.join().unwrap() > 0);
    shared.fs.close().unwrap();
    drop(shared);
    image.check();
}

#[test]
fn threads_change_names_of_one_hashed_directory() {
    let Some(image) = Image::new(&["-t", "ext4", "-b", "1024"], "32M") else { return };
    let fs = image.mount();
    let (directory, files) = {
        let mut subject = Subject::new(&fs, None);
        for number in 0..STAYING {
            let name = format!("staying {number:030}");
            subject.insert(name.as_bytes(), subject.files[0]);
        }
        (subject.directory, subject.files)
    };
    let shared = Arc::new(Shared {
        fs,
        directory,
        staying: STAYING,
        counts: Default::default(),
        is_done: AtomicBool::new(false),
    });
    let lister = {
        let shared = Arc::clone(&shared);
        thread::spawn("lister", move || shared.list()).unwrap()
    };
    let start = |number: u64| {
        let (shared, file) = (Arc::clone(&shared), files[number as usize % files.len()]);
        thread::spawn(format!("worker {number}"), move || shared.change(number, file)).unwrap()
    };
    let workers: Vec<_> = (0..THREADS).map(start).collect();
    let own: Vec<_> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
    shared.is_done.store(true, Ordering::Relaxed);
    assert!(lister.join().unwrap() > 0);
    for (name, is_there) in own {
        assert_eq!(shared.has(&name), is_there, "{name}");
    }
    for (number, count) in shared.counts.iter().enumerate() {
        let is_there = shared.has(&format!("contested {number}"));
        assert_eq!(count.load(Ordering::Relaxed), i64::from(is_there), "{number}");
    }
    shared.fs.close().unwrap();
    drop(shared);
    image.check();
}
