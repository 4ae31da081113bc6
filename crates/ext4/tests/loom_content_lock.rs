//! All interleavings of readers, some with the lock of their core, and a writer of an inode's content.
//!
//! Run with `./dev loom`.
#![cfg(loom)]
#![allow(dead_code, clippy::unwrap_used, reason = "a test of one of the engine's modules")]

#[path = "../src/inode/content_lock.rs"]
mod content_lock;
#[path = "../src/lock_classes.rs"]
mod lock_classes;

use content_lock::{ContentLock, CoreReaders};
use drystone_sync::atomic::{AtomicU64, Ordering::Relaxed};
use drystone_sync::{Arc, RwLock, model, thread};

/// A lock, and two words that writers change together.
struct Locked {
    whole: RwLock<()>,
    readers: CoreReaders,
    words: [AtomicU64; 2],
}

impl Locked {
    fn new() -> Arc<Locked> {
        let whole = RwLock::new(&lock_classes::DIRECTORY, ());
        Arc::new(Locked { whole, readers: CoreReaders::default(), words: Default::default() })
    }

    fn lock(&self) -> ContentLock<'_> {
        ContentLock::new(&self.whole, Some(&self.readers))
    }

    /// The words, which readers find equal.
    fn read(&self) -> u64 {
        let _shared = self.lock().read();
        let word = self.words[0].load(Relaxed);
        assert_eq!(word, self.words[1].load(Relaxed));
        word
    }

    /// Lets readers use the locks of their cores, as a reader does after many uses.
    fn share(&self) {
        self.readers.share(&self.whole.read());
    }

    fn write(&self) {
        let _alone = self.lock().write();
        for word in &self.words {
            word.store(word.load(Relaxed) + 1, Relaxed);
        }
    }
}

#[test]
fn a_writer_waits_for_readers_of_all_cores() {
    model(|| {
        let locked = Locked::new();
        locked.share();
        let writer = {
            let locked = Arc::clone(&locked);
            thread::spawn("writer", move || locked.write()).unwrap()
        };
        let before = locked.read();
        assert!(before <= locked.read());
        writer.join().unwrap();
        assert_eq!(locked.read(), 1);
    });
}

#[test]
fn readers_begin_to_share_between_writers() {
    model(|| {
        let locked = Locked::new();
        let sharer = {
            let locked = Arc::clone(&locked);
            thread::spawn("sharer", move || {
                locked.share();
                locked.read()
            })
            .unwrap()
        };
        locked.write();
        assert_eq!(locked.read(), 1);
        locked.write();
        assert!(sharer.join().unwrap() <= 2);
        assert_eq!(locked.read(), 2);
    });
}
