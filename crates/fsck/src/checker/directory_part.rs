//! What the pass over directories finds in a part of them.

use super::{Directories, DirectoryLink};
use crate::block_set::BlockSet;
use crate::claims::Claims;
use crate::inode_list::InodeList;
use crate::inode_states::InodeStates;
use crate::report::{Problem, Reporter};
use drystone_ext4_format::InodeNumber;
use std::ops::Range;

/// Links of directories that a part keeps. A sound image has two for each directory.
const LINKS_MAX: usize = 1 << 14;
/// Names that a part keeps.
const NAMES_MAX: usize = 1 << 20;

/// What entries name.
#[derive(Debug, Default)]
pub(crate) struct DirectoryNotes {
    /// Each link with the number of problems that were reported before it.
    links: Vec<(u32, DirectoryLink)>,
    /// Inodes, as often as they are named.
    names: Vec<u32>,
    /// Inodes whose names don't count, as they aren't in use, or not for that.
    uncounted: Vec<u32>,
    /// Whether the policies of inodes were compared.
    pub needs_policies: bool,
    /// Whether there was more than a part keeps: it is examined once more.
    pub are_exceeded: bool,
}

impl DirectoryNotes {
    pub fn add_link(&mut self, problems_before: u64, link: DirectoryLink) {
        self.are_exceeded |= self.links.len() == LINKS_MAX;
        if !self.are_exceeded {
            // A part with as many is examined once more.
            let problems_before = u32::try_from(problems_before).unwrap_or(u32::MAX);
            self.links.push((problems_before, link));
        }
    }

    pub fn add_name(&mut self, inode: InodeNumber) {
        self.are_exceeded |= self.names.len() == NAMES_MAX;
        if !self.are_exceeded {
            self.names.push(inode.get());
        }
    }

    pub fn add_uncounted(&mut self, inode: InodeNumber) {
        self.are_exceeded |= self.uncounted.len() == NAMES_MAX;
        if !self.are_exceeded {
            self.uncounted.push(inode.get());
        }
    }
}

/// What was found in some directories, and where.
#[derive(Debug)]
pub(crate) struct DirectoryPart {
    /// The directories.
    pub inodes: Box<[u32]>,
    /// The inodes whose names are counted.
    pub names: InodeList,
    /// The inodes whose names aren't.
    pub uncounted: InodeList,
    /// Whether the policies of inodes were compared.
    pub needs_policies: bool,
    problems: Box<[Problem]>,
    links: Box<[(u32, DirectoryLink)]>,
    /// What was read.
    clusters: Box<[Range<u64>]>,
}

impl DirectoryPart {
    pub fn new(
        inodes: &[u32],
        problems: Vec<Problem>,
        notes: DirectoryNotes,
        read: &BlockSet,
        claims: &Claims,
    ) -> Self {
        Self {
            inodes: inodes.into(),
            names: InodeList::new(notes.names),
            uncounted: InodeList::new(notes.uncounted),
            needs_policies: notes.needs_policies,
            problems: problems.into(),
            links: notes.links.into(),
            clusters: read.all_runs().map(|run| claims.clusters(run.start, run.end)).collect(),
        }
    }

    /// Whether it was read from one of these clusters.
    pub fn is_in_any(&self, clusters: &BlockSet) -> bool {
        !clusters.is_empty() && self.clusters.iter().any(|run| clusters.has_any(run.clone()))
    }

    /// Adds what was found to the findings of all directories, in the same order: reports the problems, counts the
    /// names and places the directories.
    pub fn add_to(
        &self,
        states: &InodeStates,
        directories: &mut Directories,
        reporter: &mut Reporter<'_>,
    ) {
        states.add_names(self.names.iter());
        let mut links = self.links.iter().peekable();
        for (number, problem) in (0..).zip(&self.problems) {
            while let Some((_, link)) = links.next_if(|(before, _)| *before <= number) {
                link.place(directories, reporter);
            }
            reporter.report(problem.issue.clone());
        }
        links.for_each(|(_, link)| link.place(directories, reporter));
    }

    /// Bytes that it takes, about.
    pub fn memory_bytes(&self) -> u64 {
        let lists = [
            size_of_val(&*self.inodes),
            self.names.memory_bytes(),
            self.uncounted.memory_bytes(),
            size_of_val(&*self.problems),
            size_of_val(&*self.links),
            size_of_val(&*self.clusters),
        ];
        (size_of::<Self>() + lists.iter().sum::<usize>()) as u64
    }
}
