//! The blocks of a jbd2 journal: layouts, checksums, checks.
//!
//! Pure functions over bytes: no I/O, no locks, no policy. Every layout is declared once, and
//! nothing read from a log is used before the `check` of its kind has accepted it.
//!
//! # Reference
//! "Journal (jbd2)" in the kernel's ext4 data structure pages.
#![forbid(unsafe_code)]

mod checksum;
mod commit;
mod descriptor;
mod error;
mod fast_commit;
mod features;
mod format;
mod header;
mod log_end;
mod revoke;
mod superblock;

pub use checksum::TransactionChecksum;
pub use commit::{Commit, check_commit, encode_commit};
pub use descriptor::{DescriptorBuilder, Tag, TagFlags, Tags, check_descriptor};
pub use error::Corrupt;
pub use fast_commit::{FastCommit, FastCommitRecord, FastCommitScan, encode_fast_commits};
pub use features::{CompatFeatures, IncompatFeatures};
pub use format::{ChecksumKind, Format};
pub use header::{BlockHeader, BlockKind, MAGIC, is_escape_needed, kind_and_sequence, kind_at};
pub use log_end::{is_proof_of_commit, may_be_left_over};
pub use revoke::{RevokeBuilder, check_revoke};
pub use superblock::{
    NewJournal, RawSuperblock, SUPERBLOCK_BYTES, Superblock, USERS_MAX, format_journal_superblock,
    seal_superblock,
};
