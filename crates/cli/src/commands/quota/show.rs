//! Prints usage and limits.

use super::span;
use crate::failure::Outcome;
use crate::size;
use crate::terminal::Output;
use drystone::{QuotaEntry, QuotaKind, QuotaReport, SPACE_LIMIT_UNIT};
use serde::Serialize;
use std::io::Write;

/// A kind of owners, for programs.
#[derive(Serialize)]
struct QuotaKindJson {
    kind: String,
    space_grace_seconds: u32,
    inodes_grace_seconds: u32,
    owners: Vec<QuotaOwnerJson>,
}

/// An owner. A limit of 0 is none, a grace end of 0 means that no grace period runs.
#[derive(Serialize)]
struct QuotaOwnerJson {
    id: u32,
    space_bytes: u64,
    space_soft_bytes: u64,
    space_hard_bytes: u64,
    space_grace_end_seconds: u64,
    inodes: u64,
    inodes_soft: u64,
    inodes_hard: u64,
    inodes_grace_end_seconds: u64,
}

impl QuotaOwnerJson {
    fn new(entry: &QuotaEntry) -> QuotaOwnerJson {
        QuotaOwnerJson {
            id: entry.id,
            space_bytes: entry.space_bytes,
            space_soft_bytes: entry.space_soft_limit.saturating_mul(SPACE_LIMIT_UNIT),
            space_hard_bytes: entry.space_hard_limit.saturating_mul(SPACE_LIMIT_UNIT),
            space_grace_end_seconds: entry.space_grace_end_seconds,
            inodes: entry.inodes,
            inodes_soft: entry.inode_soft_limit,
            inodes_hard: entry.inode_hard_limit,
            inodes_grace_end_seconds: entry.inode_grace_end_seconds,
        }
    }
}

/// Prints all owners, or one.
pub fn reports(
    reports: &[QuotaReport],
    only: Option<(QuotaKind, u32)>,
    output: &mut Output<'_>,
) -> Outcome {
    let now = u64::try_from(drystone_sync::clock::wall().0).unwrap_or(0);
    let shown = reports.iter().filter(|report| only.is_none_or(|(kind, _)| kind == report.kind));
    for (number, report) in shown.enumerate() {
        let is_shown = |entry: &&QuotaEntry| only.is_none_or(|(_, id)| id == entry.id);
        let kind = QuotaKindJson {
            kind: report.kind.to_string(),
            space_grace_seconds: report.info.space_grace_seconds,
            inodes_grace_seconds: report.info.inode_grace_seconds,
            owners: report.entries.iter().filter(is_shown).map(QuotaOwnerJson::new).collect(),
        };
        if output.json {
            output.json(&kind)?;
            continue;
        }
        if number > 0 {
            writeln!(output)?;
        }
        table(&kind, now, output)?;
    }
    Ok(())
}

fn table(kind: &QuotaKindJson, now: u64, output: &mut Output<'_>) -> std::io::Result<()> {
    let grace = |seconds: u32| span::human(u64::from(seconds));
    let (space, inodes) = (grace(kind.space_grace_seconds), grace(kind.inodes_grace_seconds));
    writeln!(output, "Grace: {space} for space, {inodes} for inodes")?;
    let limit = |limit: u64, text: String| if limit == 0 { "-".to_string() } else { text };
    let space = |bytes: u64| size::human(bytes).trim().to_string();
    let left = |end: u64| match end {
        0 => "-".to_string(),
        end if end <= now => "over".to_string(),
        end => span::human(end - now),
    };
    writeln!(
        output,
        "{:<10} {:>8} {:>8} {:>8} {:>7} {:>10} {:>10} {:>10} {:>7}",
        kind.kind, "space", "soft", "hard", "grace", "inodes", "soft", "hard", "grace"
    )?;
    for owner in &kind.owners {
        writeln!(
            output,
            "{:<10} {:>8} {:>8} {:>8} {:>7} {:>10} {:>10} {:>10} {:>7}",
            owner.id,
            space(owner.space_bytes),
            limit(owner.space_soft_bytes, space(owner.space_soft_bytes)),
            limit(owner.space_hard_bytes, space(owner.space_hard_bytes)),
            left(owner.space_grace_end_seconds),
            owner.inodes,
            limit(owner.inodes_soft, owner.inodes_soft.to_string()),
            limit(owner.inodes_hard, owner.inodes_hard.to_string()),
            left(owner.inodes_grace_end_seconds),
        )?;
    }
    Ok(())
}
