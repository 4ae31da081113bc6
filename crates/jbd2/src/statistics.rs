//! What a journal has done so far.

/// Counts since the journal was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct JournalStatistics {
    /// Handles started.
    pub handles_started: u64,
    /// Write, create and access calls of handles.
    pub write_accesses: u64,
    /// Handles that used more credits than they asked for: bugs of the journal's user.
    pub credit_overruns: u64,
    /// Handle starts that had to wait for the next transaction.
    pub full_waits: u64,
    /// Handle starts that had to wait only for other handles to give back credits.
    pub credit_waits: u64,
    /// Calls that waited for a commit.
    pub commit_waits: u64,
    /// Transactions written.
    pub commits: u64,
    /// Blocks in them.
    pub committed_blocks: u64,
    /// Blocks in the largest.
    pub largest_commit_blocks: u64,
    /// Blocks written to the log: copies, descriptors, revokes, commit blocks.
    pub log_blocks: u64,
    /// Blocks revoked.
    pub revokes: u64,
    /// Revoked blocks that a commit had to wait for, because a checkpoint was writing them home.
    pub revoke_waits: u64,
    /// Longest commit, from closing the transaction to its being durable.
    pub longest_commit_us: u64,
    /// Time that all commits took.
    pub total_commit_us: u64,
    /// Longest time that handles could not start because a transaction was closing.
    pub longest_close_us: u64,
    /// Checkpoints that wrote something or freed log space.
    pub checkpoints: u64,
    /// Blocks that they wrote home.
    pub checkpointed_blocks: u64,
    /// Commits that had to wait for a checkpoint to free log space.
    pub log_full_waits: u64,
}
