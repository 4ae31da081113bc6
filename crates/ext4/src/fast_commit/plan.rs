//! What fast commits say, in order, put together by inode and by name.

use crate::error::Result;
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::fast_commit::{NameRecord, Record};
use drystone_ext4_format::inode::Inode as DiskInode;
use drystone_ext4_format::layout::Layout;
use drystone_jbd2::FastCommit;
use std::collections::{BTreeMap, BTreeSet};

/// All that is said.
#[derive(Debug, Default)]
pub(super) struct ReplayPlan {
    pub said: BTreeMap<InodeNumber, RecordedInode>,
    /// What happened to the names of each directory.
    pub names: BTreeMap<InodeNumber, BTreeMap<Vec<u8>, Vec<NameChange>>>,
}

/// What is said of an inode, from when its number began to stand for it.
#[derive(Debug, Default)]
pub(super) struct RecordedInode {
    /// The last of its records.
    pub image: Option<RecordedImage>,
    /// Where its blocks are: what comes later counts.
    pub ranges: Vec<RangeChange>,
}

/// An inode's record.
#[derive(Debug)]
pub(super) struct RecordedImage {
    pub disk: DiskInode,
    /// The bytes behind the fields, if they were recorded.
    pub rest: Option<Vec<u8>>,
}

/// What is said of some blocks of a file.
#[derive(Clone, Copy, Debug)]
pub(super) enum RangeChange {
    /// They are here.
    Add(Extent),
    /// There are none.
    Remove {
        /// The first.
        from: u64,
        /// The one behind the last.
        to: u64,
    },
}

/// What is said of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameChange {
    /// It stands for this inode.
    Add(InodeNumber),
    /// It no longer stands for this inode.
    Remove(InodeNumber),
}

impl ReplayPlan {
    pub fn read(commits: &[FastCommit], layout: &Layout) -> Result<ReplayPlan> {
        let mut plan = ReplayPlan::default();
        for commit in commits {
            plan.commit(commit, layout)?;
        }
        Ok(plan)
    }

    /// All that one fast commit says of an inode is of its last moment, so that it is of one inode
    /// even if the number had stood for another just before.
    fn commit(&mut self, commit: &FastCommit, layout: &Layout) -> Result<()> {
        let mut said: BTreeMap<InodeNumber, RecordedInode> = BTreeMap::new();
        for record in commit {
            match Record::check(record.tag, &record.value, layout)? {
                Record::AddRange { inode, extent } => {
                    said.entry(inode).or_default().ranges.push(RangeChange::Add(extent));
                }
                Record::RemoveRange { inode, from, length } => {
                    let (from, to) = (from.as_u64(), from.as_u64() + u64::from(length));
                    said.entry(inode).or_default().ranges.push(RangeChange::Remove { from, to });
                }
                Record::Inode { inode, bytes } => {
                    said.entry(inode).or_default().image =
                        Some(RecordedImage::read(inode, bytes, layout)?);
                }
                Record::Add(name) => self.name(&name, NameChange::Add(name.inode)),
                Record::Remove(name) => self.name(&name, NameChange::Remove(name.inode)),
            }
        }
        for (number, now) in said {
            let before = self.said.entry(number).or_default();
            if let Some(image) = now.image {
                let old = before.image.as_ref().map(|old| old.disk.generation);
                if old.is_some_and(|old| old != image.disk.generation) {
                    before.ranges.clear();
                }
                before.image = Some(image);
            }
            before.ranges.extend(now.ranges);
        }
        Ok(())
    }

    fn name(&mut self, record: &NameRecord<'_>, change: NameChange) {
        let names = self.names.entry(record.parent).or_default();
        names.entry(record.name.to_vec()).or_default().push(change);
    }

    /// The inodes that something is said of.
    pub fn numbers(&self) -> BTreeSet<InodeNumber> {
        let mut numbers: BTreeSet<InodeNumber> = self.said.keys().copied().collect();
        for (parent, names) in &self.names {
            numbers.insert(*parent);
            for change in names.values().flatten() {
                let (NameChange::Add(inode) | NameChange::Remove(inode)) = change;
                numbers.insert(*inode);
            }
        }
        numbers
    }
}

impl RecordedImage {
    fn read(number: InodeNumber, bytes: &[u8], layout: &Layout) -> Result<RecordedImage> {
        let mut whole = bytes.to_vec();
        whole.resize(layout.inode_size(), 0);
        // The checksum was made for all bytes of the record, of which these are a part.
        let disk = DiskInode::check_unsealed(&whole, number, layout)?;
        disk.file_type()?;
        let rest = (bytes.len() == whole.len()).then(|| whole[disk.attribute_area(layout)].into());
        Ok(RecordedImage { disk, rest })
    }
}
