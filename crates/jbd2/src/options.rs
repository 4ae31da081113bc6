//! How a journal is to work.

use std::time::Duration;

/// How a journal is to work.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JournalOptions {
    /// A transaction with changes is committed after this time, even if nothing asks for it.
    pub commit_interval: Duration,
    /// Most blocks in a transaction. `None` is a quarter of the log, as in Linux, or less if the
    /// cache's budget is small.
    pub max_transaction_blocks: Option<u32>,
    /// Handles can't be started.
    pub read_only: bool,
    /// The file system has metadata checksums: the journal gets checksums of version 3.
    pub checksums: bool,
    /// The file system has 64-bit block numbers: the journal gets them too.
    pub wide_block_numbers: bool,
    /// How long a commit or checkpoint waits for room when the device's medium is full, before the
    /// journal stops.
    pub full_medium_wait: Duration,
}

drystone_options::setters! {
    JournalOptions {
        commit_interval: Duration,
        max_transaction_blocks: impl Into<Option<u32>>,
        read_only: bool,
        checksums: bool,
        wide_block_numbers: bool,
        full_medium_wait: Duration,
    }
}

impl Default for JournalOptions {
    fn default() -> Self {
        Self {
            commit_interval: Duration::from_secs(5),
            max_transaction_blocks: None,
            read_only: false,
            checksums: true,
            wide_block_numbers: true,
            full_medium_wait: Duration::ZERO,
        }
    }
}
