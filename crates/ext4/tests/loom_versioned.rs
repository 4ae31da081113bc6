//! All interleavings of a thread that changes words and one that reads them together.
//!
//! Run with `./dev loom`.
#![cfg(loom)]
#![allow(dead_code, clippy::unwrap_used, reason = "a test of one of the engine's modules")]

#[path = "../src/inode/versioned.rs"]
mod versioned;

use drystone_sync::{Arc, model, thread};
use versioned::Versioned;

#[test]
fn words_that_are_read_together_were_there_at_once() {
    model(|| {
        let words = Arc::new(Versioned::new([0, 0]));
        let writer = {
            let words = words.clone();
            thread::spawn("writer", move || {
                words.write(&[1, 1]);
                words.write(&[2, 2]);
            })
        };
        if let Some([first, second]) = words.read() {
            assert_eq!(first, second);
        }
        writer.unwrap().join().unwrap();
        assert_eq!(words.read(), Some([2, 2]));
        assert_eq!(words.word(1), 2);
    });
}
