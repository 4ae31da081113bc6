//! Policies: which variant of each mechanism a mount uses.
//!
//! Each mechanism has a variant that was published as the baseline, one that was published as its
//! improvement, and mostly one of our own, so that the cost of a lock or a search order can be measured.
//! A published value stands for the published algorithm and nothing else; everything around it is the
//! same for all values of its key. A policy is read in one place, the `mod.rs` of its mechanism.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

/// Declares a policy: its type, its key, its values from baseline to scalable.
macro_rules! policy {
    ($(#[$doc:meta])* $name:ident, $key:literal { $($(#[$value_doc:meta])* $value:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$value_doc])* $value,)*
        }

        impl $name {
            /// The key in a list of policies.
            pub const KEY: &'static str = $key;
            /// All values.
            pub const VALUES: &'static [$name] = &[$($name::$value,)*];

            /// The value's name in a list of policies.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $($name::$value => $text,)* }
            }
        }

        impl FromStr for $name {
            type Err = UnknownPolicy;

            fn from_str(text: &str) -> Result<$name, UnknownPolicy> {
                let found = $name::VALUES.iter().copied().find(|value| value.name() == text);
                found.ok_or_else(|| UnknownPolicy {
                    text: format!("{}={text}", $name::KEY),
                    known: $name::VALUES.iter().map(|value| value.name()).collect(),
                })
            }
        }
    };
}

policy! {
    /// Where an inode that must be cleaned up after a crash is recorded.
    OrphanPolicy, "orphans" {
        /// In the list that starts in the superblock, under one mutex.
        List = "list",
        /// In the orphan file, under one spinlock.
        FileLocked = "file-locked",
        /// In the orphan file, without a lock.
        File = "file",
        /// As `file`, with a slot that each thread keeps for the files it truncates.
        PerCore = "per-core",
        /// Nowhere: a crash leaks space. For benchmarks: no record can be faster.
        Unrecorded = "none",
    }
}

policy! {
    /// Where the search for a free inode of a file starts.
    InodeSearch, "inode-search" {
        /// In the first group of the image, at its first inode.
        First = "first",
        /// After the inode allocated last, or at the lowest one freed since.
        NextHint = "next-hint",
        /// In a run of free inodes that the core has set aside.
        PerCore = "per-core",
    }
}

policy! {
    /// How an inode that was found free is taken.
    InodeClaim, "inode-claim" {
        /// Under the group's lock. If another thread was faster, the search goes on without the lock.
        TestThenLock = "test-then-lock",
        /// Under the group's lock. If another thread was faster, the search goes on with the lock held.
        Relock = "relock",
    }
}

policy! {
    /// What a search for blocks does with a group that another thread has locked.
    GroupLock, "group-lock" {
        /// It waits.
        Wait = "wait",
        /// It goes to the next group. It waits only when no other group is left.
        Try = "try",
    }
}

policy! {
    /// Where the next blocks of a large file go when those after its last ones are taken.
    BlockGoal, "block-goal" {
        /// After the blocks that any large file got last.
        Global = "global",
        /// After those that this file got last.
        PerInode = "per-inode",
        /// After those that a file of the same residue class of inode numbers got last.
        Hashed = "hashed",
        /// After those that this file got last, and in a group that no other growing file has marked
        /// as its own.
        OwnGroup = "own-group",
    }
}

policy! {
    /// Which groups a search for blocks tries, in which order.
    GroupScan, "group-scan" {
        /// One after the other.
        Linear = "linear",
        /// Those that the group index says have what is wanted.
        SizeOrdered = "size-ordered",
        /// The same, with an index in which a group stays when it shrinks, until a search finds it too
        /// small.
        SizeLazy = "size-lazy",
    }
}

policy! {
    /// Which cached extents are dropped when there are too many.
    ExtentReclaim, "extent-reclaim" {
        /// Those of the inodes touched least recently, from a list of all inodes.
        LruSorted = "lru-sorted",
        /// The same, from a list of the inodes that have extents to drop.
        LruReclaimable = "lru-reclaimable",
        /// Those of the inodes that have extents to drop, in turn.
        RoundRobin = "round-robin",
    }
}

/// An entry in a list of policies that names no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown policy '{text}'; known: {}", known.join(", "))]
pub struct UnknownPolicy {
    text: String,
    known: Vec<&'static str>,
}

/// The variants that a mount uses, one for each mechanism.
///
/// As text: `baseline`, `scalable`, or a list such as `baseline,orphans=file`; what a list leaves out is
/// as in `scalable`, or in the preset that the list begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    /// Where orphans are recorded; `None`: as with `per-core` if the image has an orphan file, else in
    /// the list.
    pub orphans: Option<OrphanPolicy>,
    /// Where the search for a free inode starts.
    pub inode_search: InodeSearch,
    /// How a free inode is taken.
    pub inode_claim: InodeClaim,
    /// What a search for blocks does with a group that another thread has locked.
    pub group_lock: GroupLock,
    /// Where the next blocks of a large file go.
    pub block_goal: BlockGoal,
    /// Which groups are tried for blocks.
    pub group_scan: GroupScan,
    /// Which cached extents are dropped.
    pub extent_reclaim: ExtentReclaim,
}

impl Policy {
    /// The published baselines.
    pub const BASELINE: Policy = Policy {
        orphans: Some(OrphanPolicy::List),
        inode_search: InodeSearch::First,
        inode_claim: InodeClaim::TestThenLock,
        group_lock: GroupLock::Wait,
        block_goal: BlockGoal::Global,
        group_scan: GroupScan::Linear,
        extent_reclaim: ExtentReclaim::LruSorted,
    };
    /// The variants that scale best.
    pub const SCALABLE: Policy = Policy {
        orphans: None,
        inode_search: InodeSearch::PerCore,
        inode_claim: InodeClaim::Relock,
        group_lock: GroupLock::Try,
        block_goal: BlockGoal::OwnGroup,
        group_scan: GroupScan::SizeLazy,
        extent_reclaim: ExtentReclaim::RoundRobin,
    };
    /// The keys of a list of policies.
    pub const KEYS: [&'static str; 7] = [
        OrphanPolicy::KEY,
        InodeSearch::KEY,
        InodeClaim::KEY,
        GroupLock::KEY,
        BlockGoal::KEY,
        GroupScan::KEY,
        ExtentReclaim::KEY,
    ];

    /// Both presets, and `scalable` with each other safe value of a key: the policies that tests go
    /// through.
    #[must_use]
    pub fn presets_and_flips() -> Vec<Policy> {
        let scalable = Policy::SCALABLE;
        let mut all = vec![Policy::BASELINE, scalable];
        // Without a record a crash leaks space.
        let safe = OrphanPolicy::VALUES.iter().filter(|value| **value != OrphanPolicy::Unrecorded);
        all.extend(safe.map(|&value| Policy { orphans: Some(value), ..scalable }));
        all.extend(InodeSearch::VALUES.iter().map(|&v| Policy { inode_search: v, ..scalable }));
        all.extend(InodeClaim::VALUES.iter().map(|&v| Policy { inode_claim: v, ..scalable }));
        all.extend(GroupLock::VALUES.iter().map(|&v| Policy { group_lock: v, ..scalable }));
        all.extend(BlockGoal::VALUES.iter().map(|&v| Policy { block_goal: v, ..scalable }));
        all.extend(GroupScan::VALUES.iter().map(|&v| Policy { group_scan: v, ..scalable }));
        let reclaim = ExtentReclaim::VALUES.iter();
        all.extend(reclaim.map(|&value| Policy { extent_reclaim: value, ..scalable }));
        let mut seen = HashSet::new();
        all.retain(|policy| seen.insert(*policy));
        all
    }

    /// The value's name for each key; `None` where the image decides.
    fn values(&self) -> [Option<&'static str>; 7] {
        [
            self.orphans.map(OrphanPolicy::name),
            Some(self.inode_search.name()),
            Some(self.inode_claim.name()),
            Some(self.group_lock.name()),
            Some(self.block_goal.name()),
            Some(self.group_scan.name()),
            Some(self.extent_reclaim.name()),
        ]
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), UnknownPolicy> {
        match key {
            OrphanPolicy::KEY => self.orphans = Some(value.parse()?),
            InodeSearch::KEY => self.inode_search = value.parse()?,
            InodeClaim::KEY => self.inode_claim = value.parse()?,
            GroupLock::KEY => self.group_lock = value.parse()?,
            BlockGoal::KEY => self.block_goal = value.parse()?,
            GroupScan::KEY => self.group_scan = value.parse()?,
            ExtentReclaim::KEY => self.extent_reclaim = value.parse()?,
            _ => return Err(unknown_key(&format!("{key}={value}"))),
        }
        Ok(())
    }
}

fn unknown_key(text: &str) -> UnknownPolicy {
    let known = ["baseline", "scalable"].into_iter().chain(Policy::KEYS).collect();
    UnknownPolicy { text: text.to_owned(), known }
}

impl Default for Policy {
    fn default() -> Policy {
        Policy::SCALABLE
    }
}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Policy, UnknownPolicy> {
        let mut policy = Policy::SCALABLE;
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                None if part == "baseline" => policy = Policy::BASELINE,
                None if part == "scalable" => policy = Policy::SCALABLE,
                Some((key, value)) => policy.set(key, value)?,
                None => return Err(unknown_key(part)),
            }
        }
        Ok(policy)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let differences = |preset: &Policy| {
            self.values().iter().zip(preset.values()).filter(|(own, other)| **own != *other).count()
        };
        // `baseline` sets `orphans`, and no text unsets it, so a policy without it starts from
        // `scalable`.
        let (name, preset) = if self.orphans.is_some()
            && differences(&Policy::BASELINE) < differences(&Policy::SCALABLE)
        {
            ("baseline", Policy::BASELINE)
        } else {
            ("scalable", Policy::SCALABLE)
        };
        f.write_str(name)?;
        for ((key, own), other) in Policy::KEYS.iter().zip(self.values()).zip(preset.values()) {
            if let Some(value) = own.filter(|_| own != other) {
                write!(f, ",{key}={value}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_policy_are_the_same() {
        for text in [
            "baseline",
            "scalable",
            "scalable,orphans=file-locked",
            "scalable,orphans=none",
            "scalable,inode-search=next-hint,group-lock=wait",
            "baseline,orphans=file,block-goal=per-inode,group-scan=size-ordered",
        ] {
            assert_eq!(text.parse::<Policy>().unwrap().to_string(), text);
        }
        let expected = Policy { orphans: Some(OrphanPolicy::List), ..Policy::SCALABLE };
        assert_eq!("orphans=list".parse(), Ok(expected));
        assert_eq!(
            "baseline,orphans=file".parse::<Policy>().unwrap().orphans,
            Some(OrphanPolicy::File)
        );
    }

    #[test]
    fn every_value_can_be_named() {
        fn check<T>(key: &str, values: &[T], name: fn(&T) -> &'static str) {
            assert!(Policy::KEYS.contains(&key));
            for value in values {
                let text = format!("{key}={}", name(value));
                let policy: Policy = text.parse().unwrap();
                assert!(policy.values().contains(&Some(name(value))), "{text}");
                assert_eq!(policy.to_string().parse(), Ok(policy), "{text}");
                let text = format!("baseline,{text}");
                let policy: Policy = text.parse().unwrap();
                assert_eq!(policy.to_string().parse(), Ok(policy), "{text}");
            }
        }
        check(OrphanPolicy::KEY, OrphanPolicy::VALUES, |value| value.name());
        check(InodeSearch::KEY, InodeSearch::VALUES, |value| value.name());
        check(InodeClaim::KEY, InodeClaim::VALUES, |value| value.name());
        check(GroupLock::KEY, GroupLock::VALUES, |value| value.name());
        check(BlockGoal::KEY, BlockGoal::VALUES, |value| value.name());
        check(GroupScan::KEY, GroupScan::VALUES, |value| value.name());
        check(ExtentReclaim::KEY, ExtentReclaim::VALUES, |value| value.name());
    }

    #[test]
    fn every_safe_value_is_among_the_flips() {
        let flips = Policy::presets_and_flips();
        assert_eq!(&flips[..2], [Policy::BASELINE, Policy::SCALABLE]);
        let named = |key: &str| {
            let differs = |policy: &&Policy| {
                let index = Policy::KEYS.iter().position(|known| *known == key).unwrap();
                policy.values()[index] != Policy::SCALABLE.values()[index]
            };
            flips[2..].iter().filter(differs).count()
        };
        // All values of a key but the one in the preset; for orphans it has none, and one is unsafe.
        assert_eq!(named(OrphanPolicy::KEY), OrphanPolicy::VALUES.len() - 1);
        assert_eq!(named(InodeSearch::KEY), InodeSearch::VALUES.len() - 1);
        assert_eq!(named(InodeClaim::KEY), InodeClaim::VALUES.len() - 1);
        assert_eq!(named(GroupLock::KEY), GroupLock::VALUES.len() - 1);
        assert_eq!(named(BlockGoal::KEY), BlockGoal::VALUES.len() - 1);
        assert_eq!(named(GroupScan::KEY), GroupScan::VALUES.len() - 1);
        assert_eq!(named(ExtentReclaim::KEY), ExtentReclaim::VALUES.len() - 1);
    }

    #[test]
    fn what_is_unknown_is_named() {
        let error = "orphans=heap".parse::<Policy>().unwrap_err().to_string();
        assert!(error.contains("orphans=heap") && error.contains("file-locked"), "{error}");
        assert!("fast".parse::<Policy>().is_err());
        assert!("speed=high".parse::<Policy>().is_err());
    }
}
