//! Damage that was found in the image since the mount, and its note in the superblock, by which the next mount
//! and a checker know of it.
//!
//! # State
//! An operation that fails because of damage notes that itself. One that goes on without a damaged group
//! leaves the note to the next commit, so the transaction that does without the group has it. The first
//! damage of a mount is noted, and no other.
//!
//! # Crash
//! The note is part of a transaction. If the journal has stopped, there is none any more, and the error number
//! in the journal's own superblock tells the next mount.

use drystone_ext4_format::superblock::{ErrorPolicy, ErrorRecord, StateFlags, Superblock};
use drystone_sync::atomic::{AtomicU8, Ordering};
use drystone_sync::clock;
use drystone_vfs::Errno;

/// Why the journal stops.
pub(crate) const STOPS_FOR_DAMAGE: &str = "the image is damaged and asks to be read-only then";

/// No damage was found.
const NONE: u8 = 0;
/// The next commit notes damage.
const WAITING: u8 = 1;
/// Damage is noted.
const NOTED: u8 = 2;
/// The transaction that is closing notes damage, and the journal is to stop once that is durable.
const STOPPING: u8 = 3;
/// The journal's superblock says that damage has stopped the journal, or that couldn't be written.
const IN_JOURNAL: u8 = 4;

/// What is known of damage.
#[derive(Debug)]
pub(crate) struct FoundDamage {
    /// One of the states above.
    state: AtomicU8,
    /// What happens when damage is found; `None`: what the superblock says.
    policy: Option<ErrorPolicy>,
}

impl FoundDamage {
    /// No damage so far.
    pub fn new(policy: Option<ErrorPolicy>) -> FoundDamage {
        FoundDamage { state: AtomicU8::new(NONE), policy }
    }

    fn state(&self) -> u8 {
        self.state.load(Ordering::Relaxed)
    }

    /// Leaves the note to the next commit. May be called with any lock held.
    pub fn note_later(&self) {
        let _ = self.state.compare_exchange(NONE, WAITING, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Whether the next commit is to note damage.
    pub fn is_waiting(&self) -> bool {
        self.state() == WAITING
    }

    /// Whether damage is noted, if the journal runs.
    pub fn is_noted(&self) -> bool {
        matches!(self.state(), NOTED | STOPPING | IN_JOURNAL)
    }

    /// Nothing is noted, or not any more: the mount is read-only.
    pub fn note_nothing(&self) {
        self.state.store(NOTED, Ordering::Relaxed);
    }

    /// Whether the journal's superblock is to tell the next mount. True once.
    pub fn begin_note_in_journal(&self) -> bool {
        self.state.swap(IN_JOURNAL, Ordering::Relaxed) != IN_JOURNAL
    }

    /// Whether the superblock is to get the note. True once.
    pub fn begin_note(&self) -> bool {
        self.state.fetch_max(NOTED, Ordering::Relaxed) < NOTED
    }

    /// Puts the note into the superblock. Returns the policy to follow once that is durable.
    pub fn note(&self, superblock: &mut Superblock) -> ErrorPolicy {
        superblock.record_error(&ErrorRecord {
            time_seconds: u64::try_from(clock::wall().0).unwrap_or(0),
            inode: 0,
            block: 0,
            function: "drystone".to_owned(),
            line: 0,
            code: Errno::EUCLEAN.code() as u8,
        });
        superblock.set_state(superblock.state() | StateFlags::ERRORS);
        self.policy.unwrap_or_else(|| superblock.error_policy())
    }

    /// Lets the journal stop once the transaction that is closing is durable.
    pub fn stop_later(&self) {
        self.state.store(STOPPING, Ordering::Relaxed);
    }

    /// Whether the journal is to stop, now that the note is durable.
    pub fn stops_now(&self) -> bool {
        self.state() == STOPPING
    }
}

/// Whether a mount with this policy turns read-only.
pub(crate) fn turns_read_only(policy: ErrorPolicy) -> bool {
    matches!(policy, ErrorPolicy::ReadOnly | ErrorPolicy::Panic)
}
