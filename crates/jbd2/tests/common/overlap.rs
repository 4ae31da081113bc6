//! Concurrent commits, checkpoints, revokes and reuse, in an order that a test chooses, one device
//! operation at a time.
//!
//! One thread changes the blocks of a [`Ledger`], one checkpoints, and the journal's thread commits.
//! Each of their writes and flushes waits until the test chooses it. After each of them a crash must
//! leave what the ledger says, both with all unflushed writes and with none.

use super::ledger::{Kind, Ledger, check};
use super::{BLOCK, USER_BLOCKS, area, format, options};
use drystone_blockdev::{
    BlockDevice, DeviceError, DeviceOperation, DeviceResult, MemoryDevice, Stepped, Waiting,
};
use drystone_cache::Cache;
use drystone_jbd2::{Journal, JournalResult};
use drystone_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use drystone_sync::{Arc, LockClass, Mutex, clock, thread, thread_local};
use std::cell::Cell;

static HOST: LockClass = LockClass::new("test host", 980);

/// A device that loses what wasn't flushed and, when a flush fails, what that flush was to make
/// durable. Then it fails forever.
#[derive(Debug)]
pub struct Host {
    visible: MemoryDevice,
    /// What was flushed, and what was written since.
    state: Mutex<(MemoryDevice, Vec<Written>)>,
    has_failed: AtomicBool,
}

/// The offset of a write, and its bytes.
type Written = (u64, Vec<u8>);

impl Host {
    fn new(content: MemoryDevice) -> Self {
        let durable = content.snapshot();
        let state = Mutex::new(&HOST, (durable, Vec::new()));
        Self { visible: content, state, has_failed: AtomicBool::new(false) }
    }

    fn fail_flush(&self) {
        self.has_failed.store(true, Ordering::SeqCst);
        self.state.lock().1.clear();
    }

    fn check(&self, operation: DeviceOperation) -> DeviceResult {
        if self.has_failed.load(Ordering::SeqCst) {
            let error = std::io::Error::other("a flush has failed");
            return Err(DeviceError::io(operation, 0, 0, error));
        }
        Ok(())
    }

    /// What a crash leaves: all that was flushed, and of the rest the sectors that `keep` chooses.
    fn crash(&self, mut keep: impl FnMut() -> bool) -> MemoryDevice {
        let state = self.state.lock();
        let image = state.0.snapshot();
        for (offset, data) in &state.1 {
            for (place, sector) in (*offset..).step_by(512).zip(data.chunks(512)) {
                if keep() {
                    image.write_at(place, sector).unwrap();
                }
            }
        }
        image
    }
}

impl BlockDevice for Host {
    fn size_bytes(&self) -> u64 {
        self.visible.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> DeviceResult {
        self.visible.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.check(DeviceOperation::Write)?;
        self.visible.write_at(offset, data)?;
        self.state.lock().1.push((offset, data.to_vec()));
        Ok(())
    }

    fn flush(&self) -> DeviceResult {
        self.check(DeviceOperation::Flush)?;
        let (durable, unflushed) = &mut *self.state.lock();
        unflushed.drain(..).try_for_each(|(offset, data)| durable.write_at(offset, &data))
    }

    fn write_durable_at(&self, offset: u64, data: &[u8]) -> DeviceResult {
        self.check(DeviceOperation::Write)?;
        self.visible.write_at(offset, data)?;
        let state = self.state.lock();
        let range = offset..offset + data.len() as u64;
        let overlaps =
            |(start, data): &Written| *start < range.end && range.start < start + data.len() as u64;
        assert!(!state.1.iter().any(overlaps), "an earlier write of the same bytes isn't flushed");
        state.0.write_at(offset, data)
    }
}

/// What the user does.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Waits until the block is free, if it is new.
    Set(usize, Kind),
    /// Commits and waits.
    Commit,
    /// Asks for a commit.
    Request,
}

pub struct Script<'a> {
    pub journal_blocks: u32,
    /// Done before anything is held.
    pub before: &'a [Step],
    pub steps: &'a [Step],
    pub checkpoints: usize,
}

const COMMIT: u32 = 0;
const USER: u32 = 1;
const CHECKPOINT: u32 = 2;

thread_local! {
    /// The journal's threads have no tag.
    static ACTOR: Cell<u32> = const { Cell::new(COMMIT) };
}

/// What a test does with an operation that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Done,
    Fails,
}

/// Makes the choices. Operations are ordered by the thread that asks for them.
pub trait Chooser {
    /// Whether the next choice waits until all threads have come as far as they can.
    const WAITS: bool;
    /// Picks one of the waiting operations and what to do with it. At most one fails.
    fn choose(&mut self, waiting: &[Waiting]) -> (usize, Fate);
    /// Whether to check what a crash would leave.
    fn crashes(&mut self) -> bool;
    /// Whether a sector that wasn't flushed survives.
    fn keeps(&mut self) -> bool;
}

/// How long to wait for a journal to stop after one of its operations has failed.
const ABORT_NS_MAX: u64 = 10_000_000_000;

struct World {
    device: Arc<Stepped<Host>>,
    cache: Arc<Cache>,
    journal: Arc<Journal>,
    journal_blocks: u32,
    ledger: Ledger,
    /// The last operation that was waited for.
    acknowledged: AtomicU64,
    /// The newest transaction of which a commit was asked.
    requested: AtomicU64,
    /// The transaction that the user waits for, or 0.
    awaited: AtomicU64,
    has_user_ended: AtomicBool,
    has_checkpointer_ended: AtomicBool,
    /// Finished waits for revoked blocks.
    revoke_waits: AtomicU64,
}

impl World {
    fn new(journal_blocks: u32) -> Self {
        let memory = super::memory();
        format(&memory, journal_blocks, 1);
        let device = Arc::new(Stepped::new(Host::new(memory)));
        let cache = Arc::new(Cache::new(device.clone(), BLOCK, 512 * BLOCK));
        let journal = Journal::open(cache.clone(), area(journal_blocks), options()).unwrap();
        Self {
            device,
            cache,
            journal,
            journal_blocks,
            ledger: Ledger::new(),
            acknowledged: AtomicU64::new(0),
            requested: AtomicU64::new(0),
            awaited: AtomicU64::new(0),
            has_user_ended: AtomicBool::new(false),
            has_checkpointer_ended: AtomicBool::new(false),
            revoke_waits: AtomicU64::new(0),
        }
    }

    fn request(&self, tid: u64) {
        self.requested.fetch_max(tid, Ordering::SeqCst);
        self.journal.force_commit(tid);
    }

    fn wait(&self, tid: u64) -> JournalResult {
        // In this order; otherwise the commit would seem to have nothing to do.
        self.request(tid);
        self.awaited.store(tid, Ordering::SeqCst);
        let outcome = self.journal.wait(tid);
        self.awaited.store(0, Ordering::SeqCst);
        outcome
    }

    fn step(&self, step: Step) -> JournalResult {
        match step {
            Step::Set(block, kind) => {
                if let (Kind::Free, freed) = self.ledger.block(block)
                    && kind != Kind::Free
                {
                    self.wait(freed)?;
                }
                self.ledger.set(&self.device, &self.cache, &self.journal, block, kind)
            }
            Step::Commit => {
                let number = self.ledger.number();
                self.wait(self.journal.running_tid())?;
                self.acknowledged.store(number, Ordering::SeqCst);
                Ok(())
            }
            Step::Request => {
                self.request(self.journal.running_tid());
                Ok(())
            }
        }
    }

    /// Checks what a crash would leave now, with all and with some of what was written.
    fn crash(&self, chooser: &mut impl Chooser, is_last: bool) -> Result<(), String> {
        if !is_last && !chooser.crashes() {
            return Ok(());
        }
        // First what was waited for, then what may have been committed: both only grow.
        let waited = self.acknowledged.load(Ordering::SeqCst);
        let host = self.device.inner();
        let images = [
            (host.visible.snapshot(), "all is there"),
            (host.crash(|| false), "what wasn't flushed is lost"),
            (host.crash(|| chooser.keeps()), "a part of what wasn't flushed is lost"),
        ];
        let ends = self.ledger.ends();
        for (number, (image, what)) in images.into_iter().enumerate() {
            // What is visible after a failed flush isn't what a crash leaves.
            if number > 0 || !host.has_failed.load(Ordering::SeqCst) {
                check(image, self.journal_blocks, &ends, waited)
                    .map_err(|problem| format!("{what}: {problem}"))?;
            }
        }
        Ok(())
    }

    /// Whether every thread waits for a choice.
    fn is_settled(&self, waiting: &[Waiting]) -> bool {
        let of = |actor| waiting.iter().find(|waiting| waiting.tag == actor);
        let checkpoint = of(CHECKPOINT);
        let is_homing = checkpoint.is_some_and(|waiting| {
            waiting.operation == DeviceOperation::Flush
                || waiting.offset < USER_BLOCKS * BLOCK as u64
        });
        let revoke_waits = self.journal.statistics().revoke_waits;
        let waits_for_home = is_homing && revoke_waits > self.revoke_waits.load(Ordering::SeqCst);
        let is_committed = |tid| self.journal.is_committed(tid);
        // The commit first, since the user goes on when the commit has ended; and nothing has
        // changed since.
        let requested = self.requested.load(Ordering::SeqCst);
        let commit = of(COMMIT).is_some() || waits_for_home || is_committed(requested);
        let awaited = self.awaited.load(Ordering::SeqCst);
        let user = self.has_user_ended.load(Ordering::SeqCst)
            || of(USER).is_some()
            || awaited != 0 && !is_committed(awaited);
        commit
            && user
            && requested == self.requested.load(Ordering::SeqCst)
            && (checkpoint.is_some() || self.has_checkpointer_ended.load(Ordering::SeqCst))
    }

    /// The waiting operations once no thread can go on without a choice; none when all have ended.
    fn waiting(&self, waits: bool) -> Vec<Waiting> {
        let start = clock::now();
        loop {
            // In this order: a thread that has settled doesn't begin to wait.
            let waiting = self.device.waiting();
            let has_ended = self.has_user_ended.load(Ordering::SeqCst)
                && self.has_checkpointer_ended.load(Ordering::SeqCst);
            let is_settled = self.is_settled(&waiting) && waiting == self.device.waiting();
            if is_settled || !waits && (has_ended || !waiting.is_empty()) {
                let mut waiting = waiting;
                waiting.sort_unstable_by_key(|waiting| (waiting.tag, waiting.number));
                return waiting;
            }
            assert!(start.elapsed_ns() < 60_000_000_000, "nothing goes on: {waiting:?}");
            thread::yield_now();
        }
    }

    /// Lets the operations go on one by one. True if one of the journal's has failed.
    fn drive<C: Chooser>(&self, chooser: &mut C) -> Result<bool, String> {
        loop {
            let waiting = self.waiting(C::WAITS);
            let Some(_) = waiting.first() else { return Ok(false) };
            self.crash(chooser, false)?;
            let (index, fate) = chooser.choose(&waiting);
            let chosen = waiting[index];
            let is_flush = chosen.operation == DeviceOperation::Flush;
            match fate {
                Fate::Done => {
                    if chosen.tag == CHECKPOINT && is_flush {
                        let waits = self.journal.statistics().revoke_waits;
                        self.revoke_waits.store(waits, Ordering::SeqCst);
                    }
                    self.device.release(chosen.number);
                }
                Fate::Fails => {
                    if is_flush {
                        self.device.inner().fail_flush();
                    }
                    self.device.fail(chosen.number);
                    self.device.release_all();
                    return Ok(chosen.tag != USER);
                }
            }
        }
    }
}

/// Ends the hold even if the test fails; otherwise threads would wait forever.
struct ReleaseAll<'a>(&'a Stepped<Host>);

impl Drop for ReleaseAll<'_> {
    fn drop(&mut self) {
        self.0.release_all();
    }
}

/// Runs a script in the chosen order.
pub fn run(script: &Script<'_>, chooser: &mut impl Chooser) -> Result<(), String> {
    let world = World::new(script.journal_blocks);
    script.before.iter().for_each(|&step| world.step(step).unwrap());
    world.device.hold(|operation, _, _| (operation != DeviceOperation::Read).then(|| ACTOR.get()));
    let has_failed = thread::scope(|scope| {
        scope.spawn(|| {
            ACTOR.set(USER);
            let _ = script.steps.iter().try_for_each(|&step| world.step(step));
            world.has_user_ended.store(true, Ordering::SeqCst);
        });
        scope.spawn(|| {
            ACTOR.set(CHECKPOINT);
            let _ = (0..script.checkpoints).try_for_each(|_| world.journal.checkpoint_all());
            world.has_checkpointer_ended.store(true, Ordering::SeqCst);
        });
        let _release = ReleaseAll(&world.device);
        world.drive(chooser)
    })?;
    if has_failed {
        // Nothing waits for the commit thread here; it may only just learn of it.
        let start = clock::now();
        while !world.journal.is_aborted() && start.elapsed_ns() < ABORT_NS_MAX {
            thread::yield_now();
        }
    }
    if has_failed != world.journal.is_aborted() {
        return Err(format!("failed: {has_failed}, aborted: {}", world.journal.is_aborted()));
    }
    world.crash(chooser, true)?;
    let outcome = world.journal.close();
    if outcome.is_err() != has_failed {
        return Err(format!("failed: {has_failed}, closed: {outcome:?}"));
    }
    world.crash(chooser, true)
}
