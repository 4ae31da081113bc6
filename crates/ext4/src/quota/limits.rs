//! What limits allow, and when their grace periods run.
//!
//! A hard limit is never exceeded. A soft limit may be exceeded for a grace period, which begins when
//! usage goes above the limit and is over when usage comes back to it. Usage equal to a limit doesn't
//! exceed it.
//!
//! # Reference
//! quota(5), quotactl(2); what Linux does with the same calls.

use drystone_ext4_format::quota::{QuotaEntry, SPACE_LIMIT_UNIT};

/// What an id has, and may have, of one resource: bytes, or inodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct QuotaAccount {
    pub used: u64,
    /// 0 means no limit.
    hard: u64,
    /// 0 means no limit.
    soft: u64,
    /// When the grace period ends, in seconds since 1970; 0 if none runs.
    pub grace_end_seconds: u64,
}

impl QuotaAccount {
    pub fn space(entry: &QuotaEntry) -> QuotaAccount {
        QuotaAccount {
            used: entry.space_bytes,
            hard: entry.space_hard_limit.saturating_mul(SPACE_LIMIT_UNIT),
            soft: entry.space_soft_limit.saturating_mul(SPACE_LIMIT_UNIT),
            grace_end_seconds: entry.space_grace_end_seconds,
        }
    }

    pub fn inodes(entry: &QuotaEntry) -> QuotaAccount {
        QuotaAccount {
            used: entry.inodes,
            hard: entry.inode_hard_limit,
            soft: entry.inode_soft_limit,
            grace_end_seconds: entry.inode_grace_end_seconds,
        }
    }

    /// The same, with claimed space, and the grace period that this has begun.
    pub fn with_claim(mut self, claim: &SpaceClaim) -> QuotaAccount {
        self.used = self.used.saturating_add(claim.bytes);
        // A claim's grace period is over when used and claimed space together are within the limit.
        if self.grace_end_seconds == 0 && self.exceeds_soft() {
            self.grace_end_seconds = claim.grace_end_seconds;
        }
        self
    }

    /// The same, with a grace period that has begun before.
    pub fn with_grace(self, grace_end_seconds: u64) -> QuotaAccount {
        QuotaAccount { grace_end_seconds, ..self }
    }

    /// The same, with so much more in use.
    pub fn with(self, more: u64) -> QuotaAccount {
        QuotaAccount { used: self.used.saturating_add(more), ..self }
    }

    /// Whether so much may be used now. The clock is read only if that matters.
    pub fn is_allowed(&self, now_seconds: impl FnOnce() -> u64) -> bool {
        let exceeds_hard = self.hard != 0 && self.used > self.hard;
        let is_late = || {
            self.exceeds_soft()
                && self.grace_end_seconds != 0
                && now_seconds() >= self.grace_end_seconds
        };
        !exceeds_hard && !is_late()
    }

    /// When the grace period ends with so much in use. If it begins with that, it ends at `fresh`.
    pub fn grace_end_seconds(&self, fresh: impl FnOnce() -> u64) -> u64 {
        match self.grace_end_seconds {
            _ if !self.exceeds_soft() => 0,
            0 => fresh(),
            running => running,
        }
    }

    /// The lower one of the limits.
    pub fn limit(&self) -> Option<u64> {
        [self.soft, self.hard].into_iter().filter(|&limit| limit != 0).min()
    }

    fn exceeds_soft(&self) -> bool {
        self.soft != 0 && self.used > self.soft
    }
}

/// Space that waiting data will use.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SpaceClaim {
    pub bytes: u64,
    /// The end of the grace period that the claim has begun, or that the record had before used space
    /// alone came within the limit; 0 if there is none.
    pub grace_end_seconds: u64,
}

/// What an owner may have; 0 means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaLimits {
    /// Space that may be exceeded for the grace period, in units of 1 KiB.
    pub space_soft: u64,
    /// Space that may not be exceeded, in units of 1 KiB.
    pub space_hard: u64,
    /// Inodes that may be exceeded for the grace period.
    pub inodes_soft: u64,
    /// Inodes that may not be exceeded.
    pub inodes_hard: u64,
}

impl QuotaLimits {
    /// The limits of a record.
    #[must_use]
    pub fn of(entry: &QuotaEntry) -> QuotaLimits {
        QuotaLimits {
            space_soft: entry.space_soft_limit,
            space_hard: entry.space_hard_limit,
            inodes_soft: entry.inode_soft_limit,
            inodes_hard: entry.inode_hard_limit,
        }
    }

    pub(super) fn put(&self, entry: &mut QuotaEntry) {
        entry.space_soft_limit = self.space_soft;
        entry.space_hard_limit = self.space_hard;
        entry.inode_soft_limit = self.inodes_soft;
        entry.inode_hard_limit = self.inodes_hard;
    }
}
