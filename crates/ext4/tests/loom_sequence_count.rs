//! All interleavings of a thread that changes words and one that reads them together.
//!
//! Run with `./dev loom`.
#![cfg(loom)]
#![allow(dead_code, clippy::unwrap_used, reason = "a test of one of the engine's modules")]

#[path = "../src/sequence_count.rs"]
mod sequence_count;

use drystone_sync::atomic::{AtomicU64, Ordering};
use drystone_sync::{Arc, model, thread};
use sequence_count::SequenceCount;

#[derive(Default)]
struct Pair {
    changes: SequenceCount,
    words: [AtomicU64; 2],
}

impl Pair {
    fn write(&self, value: u64) {
        self.changes.begin_change();
        self.words.iter().for_each(|word| word.store(value, Ordering::Relaxed));
        self.changes.end_change();
    }

    fn read(&self) -> Option<[u64; 2]> {
        let read = self.changes.read()?;
        let values = [0, 1].map(|index: usize| self.words[index].load(Ordering::Relaxed));
        read.holds().then_some(values)
    }
}

#[test]
fn words_that_are_read_together_were_there_at_once() {
    model(|| {
        let pair = Arc::new(Pair::default());
        let writer = {
            let pair = pair.clone();
            thread::spawn("writer", move || {
                pair.write(1);
                pair.write(2);
            })
        };
        if let Some([first, second]) = pair.read() {
            assert_eq!(first, second);
        }
        writer.unwrap().join().unwrap();
        assert_eq!(pair.read(), Some([2, 2]));
    });
}
