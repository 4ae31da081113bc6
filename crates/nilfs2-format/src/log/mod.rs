//! Logs (partial segments): what is written at once, with a summary that says which blocks it holds.
//!
//! A log is a header, one *finfo* for each file of which it has blocks, each followed by an item for
//! each block, then the blocks in the same order, and the super root as the last block if it ends a
//! checkpoint.
//!
//! # Reference
//! `struct nilfs_segment_summary`, `struct nilfs_finfo` and `struct nilfs_binfo_*` in
//! `nilfs2_ondisk.h`.

mod header;
mod summary;

pub use header::{HEADER_BYTES, LogFlags, LogHeader, data_sum, seal, summary_sum};
pub use summary::{FINFO_BYTES, Finfo, Section, SummaryItem, SummaryWriter, read_sections};
