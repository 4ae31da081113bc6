//! Handles, commits, checkpoints, revokes and aborts on a device in memory.
#![allow(clippy::unwrap_used)]

mod common;

use common::{BLOCK, Fixture, USER_BLOCKS, area, format, memory, options, read_block};
use drystone_blockdev::{BlockDevice, DeviceOperation, Effect, Fault, Faulty, MemoryDevice};
use drystone_cache::{Cache, Seal};
use drystone_jbd2::{
    CommitListener, Handle, Journal, JournalError, JournalOptions, needs_recovery, recover,
};
use drystone_jbd2_format::MAGIC;
use drystone_sync::atomic::{AtomicU64, Ordering};
use drystone_sync::{Arc, LockClass, Mutex, thread};

static TEST: LockClass = LockClass::new("test", 990);

#[test]
fn a_closed_journal_leaves_everything_at_home() {
    let fixture = Fixture::simple();
    fixture.set(3, 5);
    fixture.journal.close().unwrap();
    assert_eq!(fixture.home(3), 5);
    assert!(!needs_recovery(&fixture.device, &area(128), BLOCK as u32).unwrap());
    assert!(matches!(fixture.journal.start(1), Err(JournalError::Closed)));
    fixture.journal.close().unwrap();
}

#[test]
fn committed_changes_survive_a_crash_and_others_do_not() {
    let fixture = Fixture::simple();
    fixture.set(3, 5);
    fixture.journal.commit_and_wait().unwrap();
    fixture.set(3, 6);
    fixture.set(4, 6);
    assert_eq!(fixture.home(3), 0, "nothing is at home before a checkpoint");
    assert_eq!(fixture.journal.pinned_bytes(), BLOCK);
    let fixture = fixture.crash_and_recover();
    assert_eq!((fixture.home(3), fixture.home(4)), (5, 0));
    fixture.journal.close().unwrap();
}

#[test]
fn an_unrecovered_journal_is_refused() {
    let fixture = Fixture::simple();
    fixture.set(3, 5);
    fixture.journal.commit_and_wait().unwrap();
    let device = fixture.crash();
    let again = Fixture::open(device, 128, options());
    assert!(matches!(again, Err(JournalError::NeedsRecovery)));
}

#[test]
fn sequence_numbers_wrap() {
    let device: Arc<dyn BlockDevice> = Arc::new(memory());
    format(&device, 128, u32::MAX - 1);
    let mut fixture = Fixture::open(device, 128, options()).unwrap();
    for value in 1..8 {
        fixture.set(3, value);
        fixture.journal.commit_and_wait().unwrap();
    }
    fixture = fixture.crash_and_recover();
    assert_eq!(fixture.home(3), 7);
}

#[test]
fn a_copy_that_looks_like_a_journal_block_is_escaped() {
    let fixture = Fixture::simple();
    let mut handle = fixture.journal.start(1).unwrap();
    {
        let buffer = fixture.buffer(3);
        let mut bytes = handle.write(&buffer, None).unwrap();
        bytes.fill(9);
        bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
    }
    handle.stop().unwrap();
    fixture.journal.commit_and_wait().unwrap();
    let fixture = fixture.crash_and_recover();
    let bytes = read_block(&fixture.device, 3);
    assert_eq!(bytes[..4], MAGIC.to_be_bytes());
    assert_eq!(bytes[4..], [9; BLOCK - 4]);
}

#[test]
fn full_transactions_and_a_full_log_make_handles_wait() {
    let fixture = Fixture::new(Arc::new(memory()), 64, options());
    let max = fixture.journal.max_credits();
    assert!(matches!(
        fixture.journal.start(max + 1),
        Err(JournalError::TransactionTooLarge { .. })
    ));
    let first = fixture.journal.running_tid();
    for round in 0..200_u32 {
        let mut handle = fixture.journal.start(max / 2 + 1).unwrap();
        for block in 0..4 {
            let buffer = fixture.buffer((u64::from(round) + block) % 40);
            handle.write(&buffer, None).unwrap().fill(round as u8);
        }
        handle.stop().unwrap();
    }
    assert!(fixture.journal.running_tid() > first + 10);
    let statistics = fixture.journal.statistics();
    assert!(statistics.full_waits > 0 && statistics.checkpoints > 0, "{statistics:?}");
    // In each loop one handle failed to start.
    assert!(statistics.handles_started >= 200);
    assert_eq!(statistics.write_accesses, 800);
    assert_eq!(statistics.credit_overruns, 0);
    fixture.journal.close().unwrap();
    assert_eq!(fixture.home(0), 199);
}

#[test]
fn credits_that_others_give_back_spare_a_commit() {
    let fixture = Fixture::new(Arc::new(memory()), 64, options());
    let credits = fixture.journal.max_credits() / 2 + 1;
    let first = fixture.journal.start(credits).unwrap();
    let tid = first.tid();
    thread::scope(|scope| {
        let second = scope.spawn(|| {
            let handle = fixture.journal.start(credits).unwrap();
            let tid = handle.tid();
            handle.stop().unwrap();
            tid
        });
        // The second thread has found no room.
        while fixture.journal.statistics().handles_started < 2 {
            thread::yield_now();
        }
        first.stop().unwrap();
        assert_eq!(second.join().unwrap(), tid);
    });
    let statistics = fixture.journal.statistics();
    assert_eq!((statistics.full_waits, statistics.commits), (0, 0));
    assert!(statistics.handles_started > 2, "{statistics:?}");
    assert_eq!(fixture.journal.running_tid(), tid);
}

#[test]
fn extending_until_the_transaction_is_full() {
    let fixture = Fixture::new(Arc::new(memory()), 64, options());
    let max = fixture.journal.max_credits();
    let mut handle = fixture.journal.start(1).unwrap();
    assert!(handle.extend(2));
    assert_eq!(handle.credits(), 3);
    assert!(!handle.extend(max));
    for block in 0..3 {
        handle.write(&fixture.buffer(block), None).unwrap().fill(1);
    }
    assert_eq!(handle.credits(), 0);
    let first = handle.tid();
    handle.stop().unwrap();
    let handle = fixture.journal.start(max).unwrap();
    assert!(handle.tid() > first);
    handle.stop().unwrap();
    fixture.journal.close().unwrap();
    assert_eq!(fixture.home(2), 1);
}

/// A listener that counts its calls in the block.
struct Counter(AtomicU64);

impl Seal for Counter {
    fn seal(&self, block: u64, bytes: &mut [u8], _: u64) {
        assert_eq!(block, 3);
        bytes[100] = self.0.fetch_add(1, Ordering::Relaxed) as u8 + 1;
    }
}

#[test]
fn a_block_is_sealed_once_for_each_transaction() {
    let fixture = Fixture::simple();
    let counter = Arc::new(Counter(AtomicU64::new(0)));
    let seal: Arc<dyn Seal> = counter.clone();
    for round in 1..4 {
        for _ in 0..5 {
            let mut handle = fixture.journal.start(1).unwrap();
            handle.write(&fixture.buffer(3), Some(&seal)).unwrap()[9] = round;
            handle.access(&fixture.buffer(3), Some(&seal)).unwrap();
            handle.stop().unwrap();
        }
        fixture.journal.commit_and_wait().unwrap();
        assert_eq!(counter.0.load(Ordering::Relaxed), u64::from(round));
    }
    fixture.journal.close().unwrap();
    assert_eq!(read_block(&fixture.device, 3)[100], 3);
}

struct Listener {
    cache: Arc<Cache>,
    told: Mutex<Vec<String>>,
}

impl CommitListener for Listener {
    fn before_commit(&self, tid: u64, handle: &mut Handle<'_>) {
        assert_eq!(handle.tid(), tid);
        handle.write(&self.cache.read(1).unwrap(), None).unwrap()[9] = tid as u8;
        self.told.lock().push(format!("before {tid}"));
    }

    fn committed(&self, tid: u64) {
        self.told.lock().push(format!("committed {tid}"));
    }

    fn aborted(&self, _: &JournalError) {
        self.told.lock().push("aborted".to_owned());
    }
}

#[test]
fn listeners_are_told_in_order_and_may_add_changes() {
    let fixture = Fixture::simple();
    let told = Mutex::new(&TEST, Vec::new());
    let listener = Arc::new(Listener { cache: fixture.cache.clone(), told });
    fixture.journal.add_listener(listener.clone());
    let mut handle = fixture.journal.start(1).unwrap();
    let tid = handle.tid();
    handle.write(&fixture.buffer(3), None).unwrap().fill(1);
    handle.stop().unwrap();
    fixture.journal.commit_and_wait().unwrap();
    // Without changes there is nothing to add to.
    fixture.journal.commit_and_wait().unwrap();
    fixture.journal.abort("test");
    let told = listener.told.lock().clone();
    let expected = [
        format!("before {tid}"),
        format!("committed {tid}"),
        format!("committed {}", tid + 1),
        "aborted".to_owned(),
    ];
    assert_eq!(told, expected);
    let fixture = fixture.crash_and_recover();
    assert_eq!(fixture.home(1), tid as u8);
}

#[test]
fn any_write_error_aborts_and_nothing_is_acknowledged() {
    for operation in [DeviceOperation::Write, DeviceOperation::Flush] {
        for nth in 0..6 {
            let device = Arc::new(Faulty::new(memory()));
            let fixture = Fixture::new(device.clone(), 128, options());
            fixture.set(3, 1);
            fixture.journal.commit_and_wait().unwrap();
            device.inject(
                Fault::of(operation, Effect::InputOutputError)
                    .when(drystone_blockdev::Trigger::Nth(nth)),
            );
            let mut acknowledged = 1;
            let mut failed = false;
            for value in 2..10 {
                let outcome = fixture
                    .journal
                    .start(1)
                    .and_then(|mut handle| {
                        handle.write(&fixture.buffer(3), None)?.fill(value);
                        handle.stop()
                    })
                    .and_then(|()| fixture.journal.commit_and_wait());
                match outcome {
                    Ok(()) => {
                        assert!(!failed, "an aborted journal acknowledges");
                        acknowledged = value;
                    }
                    Err(_) => failed = true,
                }
            }
            assert!(failed && fixture.journal.is_aborted());
            assert!(matches!(fixture.journal.start(1), Err(JournalError::Aborted(_))));
            assert!(matches!(fixture.journal.close(), Err(JournalError::Aborted(_))));
            device.repair();
            let fixture = fixture.crash_and_recover();
            assert!(fixture.home(3) >= acknowledged, "an acknowledged change is lost");
        }
    }
}

#[test]
fn without_a_log_commits_go_home() {
    let device: Arc<dyn BlockDevice> = Arc::new(memory());
    let cache = Arc::new(Cache::new(device.clone(), BLOCK, 512 * BLOCK));
    let journal = Journal::unlogged(cache.clone(), options()).unwrap();
    let mut handle = journal.start(3).unwrap();
    for block in [3, 4, 9] {
        handle.write(&cache.read(block).unwrap(), None).unwrap().fill(7);
    }
    handle.forget(4).unwrap();
    handle.stop().unwrap();
    journal.commit_and_wait().unwrap();
    assert_eq!(read_block(&device, 3)[0], 7);
    assert_eq!(read_block(&device, 4)[0], 0);
    assert_eq!(read_block(&device, 9)[0], 7);
    journal.close().unwrap();
}

#[test]
fn changes_are_committed_after_the_interval() {
    let interval = std::time::Duration::from_millis(20);
    let options = JournalOptions::default().commit_interval(interval);
    let fixture = Fixture::new(Arc::new(memory()), 128, options);
    let tid = fixture.set(3, 1);
    fixture.journal.wait(tid).unwrap();
    assert!(fixture.journal.is_committed(tid));
}

#[test]
fn a_read_only_journal_starts_nothing() {
    let options = options().read_only(true);
    let fixture = Fixture::new(Arc::new(memory()), 128, options);
    assert!(matches!(fixture.journal.start(1), Err(JournalError::ReadOnly)));
    fixture.journal.commit_and_wait().unwrap();
    fixture.journal.close().unwrap();
}

/// Threads move units between accounts of one block each, with a tiny log, while commits,
/// checkpoints and evictions go on. After a crash no unit may be lost or created.
#[test]
fn many_threads_wrap_a_tiny_log() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 400;
    let fixture = Fixture::new(Arc::new(memory()), 48, options());
    // Guards the accounts: the order of buffers is the test's business.
    static ACCOUNTS: LockClass = LockClass::new("accounts", 150);
    let turns: Vec<_> = (0..USER_BLOCKS).map(|_| Mutex::new(&ACCOUNTS, ())).collect();
    let waited: Vec<_> = (0..THREADS).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (fixture, turns, waited) = (&fixture, &turns, &waited);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(number);
                for round in 1..=ROUNDS {
                    let account = random.u64(THREADS..USER_BLOCKS / 2) * 2;
                    let _turn = turns[account as usize].lock();
                    let mut handle = fixture.journal.start(3).unwrap();
                    add(fixture, &mut handle, account, -1);
                    add(fixture, &mut handle, account + 1, 1);
                    let own = fixture.buffer(number);
                    handle.write(&own, None).unwrap()[..8].copy_from_slice(&round.to_le_bytes());
                    handle.stop().unwrap();
                    if random.u8(..) < 20 {
                        fixture.journal.commit_and_wait().unwrap();
                        waited[number as usize].store(round, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let fixture = fixture.crash_and_recover();
    let value =
        |block| i64::from_le_bytes(read_block(&fixture.device, block)[..8].try_into().unwrap());
    for account in (THREADS * 2..USER_BLOCKS).step_by(2) {
        assert_eq!(value(account) + value(account + 1), 0, "account {account}");
    }
    for number in 0..THREADS {
        assert!(value(number) as u64 >= waited[number as usize].load(Ordering::Relaxed));
    }
}

fn add(fixture: &Fixture, handle: &mut Handle<'_>, block: u64, amount: i64) {
    let buffer = fixture.buffer(block);
    let mut bytes = handle.write(&buffer, None).unwrap();
    let value = i64::from_le_bytes(bytes[..8].try_into().unwrap()) + amount;
    bytes[..8].copy_from_slice(&value.to_le_bytes());
}

#[test]
fn an_external_journal() {
    let main: Arc<dyn BlockDevice> = Arc::new(memory());
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(128 * BLOCK as u64));
    let journal = drystone_jbd2_format::NewJournal {
        block_size_bytes: BLOCK as u32,
        length_blocks: 128,
        first_block: 3,
        uuid: [1; 16],
        users: vec![[2; 16]],
        user_count: 1,
        incompat: drystone_jbd2_format::IncompatFeatures::empty(),
        fast_commit_blocks: 0,
    };
    let superblock = drystone_jbd2_format::format_journal_superblock(&journal);
    device.write_at(2 * BLOCK as u64, &superblock).unwrap();
    let area = drystone_jbd2::JournalArea::external(device.clone(), 2);
    let cache = Arc::new(Cache::new(main.clone(), BLOCK, 512 * BLOCK));
    let journal = Journal::open(cache.clone(), area.clone(), options()).unwrap();
    let mut handle = journal.start(1).unwrap();
    handle.write(&cache.read(3).unwrap(), None).unwrap().fill(7);
    handle.stop().unwrap();
    journal.commit_and_wait().unwrap();
    drop(journal);
    assert_eq!(read_block(&main, 3)[0], 0);
    let report = recover(&main, &area, BLOCK as u32, 0).unwrap().report;
    assert_eq!(report.replayed_blocks, 1);
    assert_eq!(read_block(&main, 3)[0], 7);
}
