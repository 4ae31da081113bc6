//! What was extracted, for programs.

use drystone::transfer::CopySummary;
use serde::Serialize;
use std::time::Duration;

#[derive(Serialize)]
pub struct ExtractSummaryJson {
    files: u64,
    hard_links: u64,
    directories: u64,
    symlinks: u64,
    special: u64,
    bytes: u64,
    failed: u64,
    not_made: u64,
    not_kept: u64,
    stopped: bool,
    seconds: f64,
}

impl ExtractSummaryJson {
    pub fn new(summary: &CopySummary, elapsed: Duration) -> ExtractSummaryJson {
        let CopySummary { files, hard_links, directories, symlinks, special, .. } = *summary;
        let CopySummary { bytes, failed, not_made, not_kept, is_stopped: stopped, .. } = *summary;
        let seconds = elapsed.as_secs_f64();
        ExtractSummaryJson {
            files,
            hard_links,
            directories,
            symlinks,
            special,
            bytes,
            failed,
            not_made,
            not_kept,
            stopped,
            seconds,
        }
    }
}
