//! Replays the changes of names, and counts the names of each inode.

use super::plan::NameChange;
use super::{NumberState, Replay, wrong};
use crate::error::Result;
use crate::inode::Inode;
use crate::operations::Engine;
use crate::operations::links;
use crate::{credits, dir};
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::error::FastCommitProblem;
use drystone_jbd2::Handle;
use std::collections::BTreeMap;

/// A name that changes, with its inode before and after.
struct NameCount {
    directory: InodeNumber,
    name: Vec<u8>,
    before: Option<InodeNumber>,
    /// The inode before was a directory.
    was_directory: bool,
    after: Option<InodeNumber>,
}

/// The names that change, and the inodes that lose and get them.
#[derive(Default)]
pub(super) struct CountedNames {
    changes: Vec<NameCount>,
    /// How many names each kept inode loses.
    lost: BTreeMap<InodeNumber, u32>,
    /// How many names each inode gets.
    gained: BTreeMap<InodeNumber, u32>,
    /// The directory in which an inode gets a name; the last one if there are several.
    parents: BTreeMap<InodeNumber, InodeNumber>,
    /// The final number of names of each kept inode that gets or loses any.
    counts: BTreeMap<InodeNumber, u16>,
}

impl CountedNames {
    /// Looks up the names before the replay, and applies their recorded changes.
    pub fn resolve(
        fs: &Engine,
        said: &BTreeMap<InodeNumber, BTreeMap<Vec<u8>, Vec<NameChange>>>,
        number_states: &BTreeMap<InodeNumber, NumberState>,
    ) -> Result<CountedNames> {
        let is_kept = |number: InodeNumber| number_states.get(&number) == Some(&NumberState::Kept);
        let mut names = CountedNames::default();
        for (number, said) in said {
            let directory = if is_kept(*number) { Some(fs.orphan_inode(*number)?) } else { None };
            if directory.as_ref().is_some_and(|directory| !directory.is_directory()) {
                return Err(wrong(*number, FastCommitProblem::NoDirectory));
            }
            for (name, said) in said {
                let before = match &directory {
                    Some(directory) => dir::entry_named(fs, directory, &directory.summary(), name)?
                        .map(|found| found.inode),
                    None => None,
                };
                let after = follow(before, said);
                if before == after && before.is_none_or(is_kept) {
                    continue;
                }
                let mut was_directory = false;
                if let Some(inode) = before {
                    was_directory = fs.orphan_inode(inode)?.is_directory();
                    if is_kept(inode) {
                        *names.lost.entry(inode).or_default() += 1;
                    }
                }
                if let Some(inode) = after {
                    *names.gained.entry(inode).or_default() += 1;
                    names.parents.insert(inode, *number);
                }
                let (directory, name) = (*number, name.clone());
                names.changes.push(NameCount { directory, name, before, was_directory, after });
            }
        }
        let moved = names.lost.keys().chain(names.gained.keys());
        for number in moved.copied().filter(|number| is_kept(*number)) {
            let count = names.count(&*fs.orphan_inode(number)?)?;
            names.counts.insert(number, count);
        }
        Ok(names)
    }

    /// The number of names that an inode gets.
    pub fn gained(&self, number: InodeNumber) -> u32 {
        self.gained.get(&number).copied().unwrap_or(0)
    }

    /// The directory in which an inode gets a name.
    pub fn parent(&self, number: InodeNumber) -> Option<InodeNumber> {
        self.parents.get(&number).copied()
    }

    /// The kept inodes that get or lose names, with their final number of names.
    pub fn counts(&self) -> &BTreeMap<InodeNumber, u16> {
        &self.counts
    }

    /// The final number of names of a kept inode. A directory has one name before, whatever its
    /// link count.
    fn count(&self, inode: &Inode) -> Result<u16> {
        let (lost, gained) = (self.lost.get(&inode.number), self.gained(inode.number));
        let (lost, had) = (lost.copied().unwrap_or(0), u32::from(inode.links_count()));
        let had = if inode.is_directory() { had.min(1) } else { had };
        let count = (had + gained).checked_sub(lost).and_then(|count| u16::try_from(count).ok());
        match count {
            Some(count) if inode.is_directory() && count > 1 => {
                Err(wrong(inode.number, FastCommitProblem::DirectoryNames))
            }
            Some(count) if count <= links::LINKS_MAX => Ok(count),
            _ => Err(wrong(inode.number, FastCommitProblem::Links)),
        }
    }
}

/// The inode of a name after changes.
fn follow(before: Option<InodeNumber>, changes: &[NameChange]) -> Option<InodeNumber> {
    changes.iter().fold(before, |now, change| match *change {
        NameChange::Add(inode) => Some(inode),
        NameChange::Remove(inode) if now == Some(inode) => None,
        NameChange::Remove(_) => now,
    })
}

impl Replay<'_> {
    /// Removes all old names, then adds the new ones.
    pub(super) fn move_names(&self) -> Result<()> {
        for change in &self.names.changes {
            if change.before.is_some() {
                self.remove_name(change)?;
            }
        }
        for change in &self.names.changes {
            if let Some(inode) = change.after {
                self.add_name(change, inode)?;
            }
        }
        Ok(())
    }

    fn remove_name(&self, change: &NameCount) -> Result<()> {
        let fs = self.fs;
        let directory = fs.orphan_inode(change.directory)?;
        let _content = directory.content().write();
        let Some(found) = dir::entry_named(fs, &directory, &directory.summary(), &change.name)?
        else {
            return Ok(());
        };
        self.step(credits::UNLINK, |handle| {
            dir::remove(fs, handle, &directory, &change.name, &found)?;
            if change.was_directory {
                directory.update(fs, handle, |fields| {
                    links::remove_subdirectory(fields);
                    Ok(())
                })?;
            }
            self.stamp(handle, &directory)
        })
    }

    fn add_name(&self, change: &NameCount, number: InodeNumber) -> Result<()> {
        let fs = self.fs;
        let is_there = self.exists(change.directory) && self.exists(number);
        if !is_there {
            return Err(wrong(number, FastCommitProblem::Absent));
        }
        let directory = fs.orphan_inode(change.directory)?;
        if !directory.is_directory() {
            return Err(wrong(directory.number, FastCommitProblem::NoDirectory));
        }
        let inode = fs.orphan_inode(number)?;
        {
            let _content = directory.content().write();
            self.step(credits::CREATE, |handle| {
                dir::forget_name(&directory, &change.name);
                dir::add(fs, &self.context, handle, &directory, &change.name, &inode, None)?;
                if inode.is_directory() {
                    directory.update(fs, handle, |fields| {
                        links::add_subdirectory(fields);
                        Ok(())
                    })?;
                }
                self.stamp(handle, &directory)
            })?;
        }
        if inode.is_directory() {
            let _content = inode.content().write();
            if dir::parent(fs, &inode)? != directory.number {
                self.step(credits::UNLINK, |handle| {
                    dir::set_parent(fs, handle, &inode, directory.number)
                })?;
            }
        }
        Ok(())
    }

    /// Stamps a directory if no fast commit has recorded its times.
    fn stamp(&self, handle: &mut Handle<'_>, directory: &Inode) -> Result<()> {
        let is_told = self.said.get(&directory.number).is_some_and(|said| said.image.is_some());
        if is_told { Ok(()) } else { directory.stamp_names(self.fs, handle) }
    }

    /// Sets the link count of kept files to the number of their names. Deletes inodes without
    /// names.
    pub(super) fn count_names(&self) -> Result<()> {
        for (number, links) in self.names.counts() {
            let inode = self.fs.orphan_inode(*number)?;
            if *links == 0 {
                self.delete(&inode)?;
            } else if !inode.is_directory() && *links != inode.links_count() {
                self.step(credits::WRITE_RECORD, |handle| {
                    inode.update(self.fs, handle, |fields| {
                        fields.disk.links_count = *links;
                        Ok(())
                    })
                })?;
            }
        }
        Ok(())
    }
}
