//! All interleavings of threads that take inodes from a core's run, replace it and drain it, and of
//! threads that set bits while others are taken.
//!
//! Run with `./dev loom`.
#![cfg(loom)]
#![allow(dead_code, clippy::unwrap_used, reason = "a test of two of the engine's modules")]

#[path = "../src/alloc/bits.rs"]
mod bits;
#[path = "../src/alloc/inodes/run.rs"]
mod run;

use bits::AtomicBits;
use drystone_ext4_format::InodeNumber;
use drystone_sync::{Arc, model, thread};
use run::{InodeRange, InodeRun};

fn inodes(first: u32, count: u32) -> InodeRange {
    InodeRange { first: InodeNumber::new(first), count }
}

fn numbers(run: Option<InodeRange>) -> Vec<u32> {
    run.map_or(Vec::new(), |run| (run.first.get()..run.first.get() + run.count).collect())
}

/// Two threads of a core, of which one puts in a new run when it finds none, and a drain.
#[test]
fn every_inode_is_given_out_or_back_once() {
    model(|| {
        let run = Arc::new(InodeRun::new());
        run.replace(Some(inodes(10, 2)));
        let taker = {
            let run = run.clone();
            thread::spawn("taker", move || {
                let first = run.take();
                let second = run.take();
                [first, second].into_iter().flatten().map(|inode| inode.get()).collect::<Vec<_>>()
            })
        };
        let filler = {
            let run = run.clone();
            thread::spawn("filler", move || match run.take() {
                Some(inode) => vec![inode.get()],
                None => numbers(run.replace(Some(inodes(20, 2)))),
            })
        };
        let mut all = numbers(run.replace(None));
        all.extend(taker.unwrap().join().unwrap());
        all.extend(filler.unwrap().join().unwrap());
        all.extend(numbers(run.replace(None)));
        all.sort_unstable();
        let expected: &[u32] = if all.len() > 2 { &[10, 11, 20, 21] } else { &[10, 11] };
        assert_eq!(all, expected);
    });
}

/// A commit that takes the set sees each bit once, although another thread sets and clears bits
/// meanwhile.
#[test]
fn every_bit_is_taken_once() {
    model(|| {
        let bits = Arc::new(AtomicBits::new(64));
        let setter = {
            let bits = bits.clone();
            thread::spawn("setter", move || {
                bits.set(3);
                bits.set(5);
                u32::from(bits.clear(3))
            })
        };
        let first = bits.take();
        let cleared = setter.unwrap().join().unwrap();
        let second = bits.take();
        let seen = |bit: u32| first.iter().chain(&second).filter(|&&taken| taken == bit).count();
        assert_eq!(seen(5), 1);
        assert_eq!(seen(3) + cleared as usize, 1);
    });
}
