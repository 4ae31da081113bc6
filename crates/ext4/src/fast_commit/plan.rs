//! The content of all fast commits, collected by inode and by name.

use crate::error::Result;
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::fast_commit::{FastCommitRecord, NameRecord};
use drystone_ext4_format::inode::Inode as DiskInode;
use drystone_ext4_format::layout::Layout;
use drystone_jbd2::FastCommit;
use std::collections::{BTreeMap, BTreeSet};

/// The collected records.
#[derive(Debug, Default)]
pub(super) struct ReplayPlan {
    pub said: BTreeMap<InodeNumber, RecordedInode>,
    /// The changes of names, by directory.
    pub names: BTreeMap<InodeNumber, BTreeMap<Vec<u8>, Vec<NameChange>>>,
}

/// The records of an inode, since its number has belonged to it.
#[derive(Debug, Default)]
pub(super) struct RecordedInode {
    /// The last record of the inode itself.
    pub image: Option<RecordedImage>,
    /// Changes of its mapping; later ones override earlier ones.
    pub ranges: Vec<RangeChange>,
}

/// An inode's record.
#[derive(Debug)]
pub(super) struct RecordedImage {
    pub disk: DiskInode,
    /// The attribute area after the fields, if it was recorded.
    pub rest: Option<Vec<u8>>,
}

/// A recorded change of a range of a file.
#[derive(Clone, Copy, Debug)]
pub(super) enum RangeChange {
    /// The range is mapped to this extent.
    Add(Extent),
    /// The range is a hole.
    Remove {
        /// The first.
        from: u64,
        /// The one after the last.
        to: u64,
    },
}

/// A recorded change of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameChange {
    /// It now refers to this inode.
    Add(InodeNumber),
    /// It no longer refers to this inode.
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

    /// All records of an inode number in one fast commit describe the state at that commit. So they
    /// describe one inode, even if the number belonged to another one shortly before.
    fn commit(&mut self, commit: &FastCommit, layout: &Layout) -> Result<()> {
        let mut said: BTreeMap<InodeNumber, RecordedInode> = BTreeMap::new();
        for record in commit {
            match FastCommitRecord::check(record.tag, &record.value, layout)? {
                FastCommitRecord::AddRange { inode, extent } => {
                    said.entry(inode).or_default().ranges.push(RangeChange::Add(extent));
                }
                FastCommitRecord::RemoveRange { inode, from, length } => {
                    let (from, to) = (from.as_u64(), from.as_u64() + u64::from(length));
                    said.entry(inode).or_default().ranges.push(RangeChange::Remove { from, to });
                }
                FastCommitRecord::Inode { inode, bytes } => {
                    said.entry(inode).or_default().image =
                        Some(RecordedImage::read(inode, bytes, layout)?);
                }
                FastCommitRecord::Add(name) => self.name(&name, NameChange::Add(name.inode)),
                FastCommitRecord::Remove(name) => self.name(&name, NameChange::Remove(name.inode)),
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

    /// All inode numbers in the records.
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
        // The checksum covers all bytes of the inode, of which the record may have only a part.
        let disk = DiskInode::check_unsealed(&whole, number, layout)?;
        disk.file_type()?;
        let rest = (bytes.len() == whole.len()).then(|| whole[disk.attribute_area(layout)].into());
        Ok(RecordedImage { disk, rest })
    }
}
