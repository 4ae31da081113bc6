//! What was copied, for programs, and the exit code that follows from it.

use crate::failure::{Failure, Outcome};
use crate::global::Global;
use crate::terminal::print_line;
use drystone::transfer::CopySummary;
use serde::Serialize;

/// Copies all parts, prints the sum if JSON is wanted, and fails if anything was not copied.
pub fn conclude(parts: impl IntoIterator<Item = Outcome<CopySummary>>, global: &Global) -> Outcome {
    let mut sum = CopySummary::default();
    for part in parts {
        let part = part?;
        sum.files += part.files;
        sum.hard_links += part.hard_links;
        sum.directories += part.directories;
        sum.symlinks += part.symlinks;
        sum.special += part.special;
        sum.bytes += part.bytes;
        sum.failed += part.failed + part.not_made;
        sum.not_kept += part.not_kept;
        sum.is_stopped |= part.is_stopped;
    }
    if global.json {
        print_line(&serde_json::to_string(&CopySummaryJson::from(sum))?)?;
    }
    if sum.failed > 0 || sum.is_stopped { Err(Failure::Reported) } else { Ok(()) }
}

#[derive(Serialize)]
struct CopySummaryJson {
    files: u64,
    hard_links: u64,
    directories: u64,
    symlinks: u64,
    special: u64,
    bytes: u64,
    failed: u64,
    not_kept: u64,
    stopped: bool,
}

impl From<CopySummary> for CopySummaryJson {
    fn from(sum: CopySummary) -> CopySummaryJson {
        CopySummaryJson {
            files: sum.files,
            hard_links: sum.hard_links,
            directories: sum.directories,
            symlinks: sum.symlinks,
            special: sum.special,
            bytes: sum.bytes,
            failed: sum.failed,
            not_kept: sum.not_kept,
            stopped: sum.is_stopped,
        }
    }
}
