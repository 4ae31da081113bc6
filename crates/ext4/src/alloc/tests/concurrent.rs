//! Many threads at once.

use super::*;
use drystone_sync::{LockClass, Mutex};

#[test]
fn concurrent_frees_and_allocations_keep_the_bitmaps_right() {
    let Some(image) = image("-t ext4 -O ^has_journal -b 1024", 40_000) else { return };
    let allocator = open(&image);
    let before = allocator.groups.free_counts();
    let held = Mutex::new(&HELD, Vec::new());
    thread::scope(|scope| {
        for worker in 0..THREADS {
            let (allocator, held) = (&allocator, &held);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(worker);
                for _ in 0..2000 {
                    if random.u8(0..5) < 3 {
                        let length = random.u32(1..300);
                        let wish = request(random.u64(1..40_000), length);
                        match with_space_retry(&allocator.groups.volume, || {
                            allocate(allocator, &wish)
                        }) {
                            Ok(run) => held.lock().push(run),
                            Err(Error::NoSpace) => {}
                            Err(error) => panic!("{error}"),
                        }
                    } else {
                        let mut list = held.lock();
                        let count = list.len();
                        let run = (count > 0).then(|| list.swap_remove(random.usize(0..count)));
                        drop(list);
                        if let Some(run) = run {
                            free(allocator, run, BlockKind::Data).unwrap();
                        }
                    }
                }
            });
        }
    });
    let runs = held.into_inner();
    assert_disjoint(&allocator, &runs);
    let used: u64 = runs.iter().map(|run| u64::from(run.length)).sum();
    assert_eq!(allocator.groups.free_counts().blocks, before.blocks - used);
    free_all(&allocator, runs, 1);
    assert_eq!(allocator.groups.free_counts(), before);
    close(&allocator);
    image.check("after frees and allocations at once");
}

static HELD: LockClass = LockClass::new("test runs", 10);
