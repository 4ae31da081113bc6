//! Whether every inode in use has the names that it counts, and every directory its place.

use crate::checker::Checker;
use crate::image::Error;
use crate::issue::{InodeIssue, Issue, SuperblockIssue};
use crate::report::Pass;
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::dir::EntryType;
use drystone_ext4_format::layout::LINKS_MAX;

/// What needs the feature `dir_nlink`, in messages.
pub(crate) const UNCOUNTED_LINKS: &str = "a directory of more than 65000 links";

/// Checks connections and counts.
pub(crate) fn check(checker: &mut Checker<'_>) -> Result<(), Error> {
    check_parents(checker);
    check_connections(checker);
    let layout = checker.image.layout;
    let nameless = checker.states.nameless();
    let mut has_uncounted = false;
    for group in layout.groups() {
        let inodes: Vec<InodeNumber> = checker.states.not_plain_in(group).collect();
        for inode in inodes {
            let is_ordinary = inode >= layout.first_inode() || inode == InodeNumber::ROOT;
            if is_ordinary && !nameless.contains(&inode.get()) {
                has_uncounted |= check_count(checker, inode);
            }
        }
    }
    if has_uncounted && !layout.has_unlimited_subdirectories() {
        let (feature, needed) = (UNCOUNTED_LINKS, "dir_nlink");
        checker.reporter.report(SuperblockIssue::FeatureNeeds { feature, needed });
    }
    checker.reporter.step(Pass::Links, 1, 1);
    Ok(())
}

fn check_parents(checker: &mut Checker<'_>) {
    let root = InodeNumber::ROOT.get();
    for directory in &checker.found.directories.all {
        let expected = if directory.inode == root { root } else { directory.parent };
        if expected == 0 || directory.dotdot == expected {
            continue;
        }
        let found = InodeNumber::new(directory.dotdot);
        let issue = InodeIssue::Parent { found, expected: InodeNumber::new(expected) };
        let inode = InodeNumber::new(directory.inode);
        checker.reporter.report(Issue::Inode { inode, issue });
    }
}

/// How far the way from a directory to the root is known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PathToRoot {
    Unknown,
    /// Met on the way that is being followed.
    Followed,
    Ends,
}

/// Reports directories in loops. Those without a parent are reported with the counts.
fn check_connections(checker: &mut Checker<'_>) {
    let directories = &checker.found.directories;
    let mut ways = vec![PathToRoot::Unknown; directories.all.len()];
    let mut loops = Vec::new();
    for start in 0..ways.len() {
        let mut followed = Vec::new();
        let mut at = Some(start);
        while let Some(position) = at {
            match ways[position] {
                PathToRoot::Ends => break,
                PathToRoot::Followed => {
                    loops.push(InodeNumber::new(directories.all[position].inode));
                    break;
                }
                PathToRoot::Unknown => {}
            }
            ways[position] = PathToRoot::Followed;
            followed.push(position);
            let parent = InodeNumber::new(directories.all[position].parent);
            at = directories.position(parent);
        }
        for position in followed {
            ways[position] = PathToRoot::Ends;
        }
    }
    for inode in loops {
        checker.reporter.report(Issue::Inode { inode, issue: InodeIssue::Unconnected });
    }
}

/// Checks the count of an inode. Returns whether it is a directory with more links than can be counted.
fn check_count(checker: &mut Checker<'_>, inode: InodeNumber) -> bool {
    let layout = checker.image.layout;
    let stored = checker.states.stored_links(inode);
    let counted = checker.states.names(inode);
    let is_directory = checker.states.kind(inode) == EntryType::Directory;
    let limit_reached = is_directory && counted > u32::from(LINKS_MAX);
    let mut report = |issue| checker.reporter.report(Issue::Inode { inode, issue });
    let is_nameless = if is_directory && inode != InodeNumber::ROOT {
        let found = checker.found.directories.position(inode);
        found.is_some_and(|position| checker.found.directories.all[position].parent == 0)
    } else {
        counted == 0
    };
    if is_nameless {
        // An orphan has none, and is not expected to.
        if stored > 0 {
            report(InodeIssue::Unattached);
        }
        return limit_reached;
    }
    if is_directory {
        // The count stops where it would overflow, and then stays.
        let is_unlimited = layout.has_unlimited_subdirectories();
        let position = checker.found.directories.position(inode);
        let is_indexed = position.is_some_and(|at| checker.found.directories.all[at].is_indexed);
        let may_be_uncounted = limit_reached || is_unlimited && is_indexed;
        let is_uncounted = stored == 1 && may_be_uncounted;
        if !is_uncounted && (u32::from(stored) != counted || limit_reached) {
            report(InodeIssue::Links { stored, counted });
        }
        return limit_reached;
    }
    if u32::from(stored) != counted {
        report(InodeIssue::Links { stored, counted });
    }
    let more = u64::from(counted) - 1;
    checker.reporter.summarize(|summary| summary.hard_links += more);
    limit_reached
}
