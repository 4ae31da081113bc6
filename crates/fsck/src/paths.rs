//! Paths to the inodes that problems are about.
//!
//! Names are not kept while directories are checked; where there are problems, the directories
//! are read once more for those of the inodes in question, and of the directories above.

use crate::checker::Checker;
use crate::directory::DirectoryContext;
use crate::image::{Error, Image};
use crate::inode_runs::{InodeRun, InodeRuns};
use crate::report::Problem;
use crate::{directories, entries};
use drystone_ext4_format::InodeNumber;
use drystone_sync::in_order;
use std::collections::{BTreeMap, BTreeSet};

/// Inodes whose paths are looked up.
const INODES_MAX: usize = 10_000;
/// Directories that a path may have, so that a loop ends.
const DEPTH_MAX: usize = 1000;
/// Directories that one thread reads at a time.
const PIECE: usize = 64;

/// For each inode, a directory that names it, and the name.
type Names = BTreeMap<u32, (u32, String)>;

/// Adds paths to problems.
pub(crate) fn resolve(checker: &Checker<'_>, problems: &mut [Problem]) -> Result<(), Error> {
    let wanted: BTreeSet<u32> = problems
        .iter()
        .filter_map(|problem| problem.issue.place().inode)
        .map(InodeNumber::get)
        .take(INODES_MAX)
        .collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let mut names = Names::new();
    let is_about_files = wanted
        .iter()
        .any(|inode| checker.found.directories.position(InodeNumber::new(*inode)).is_none());
    if is_about_files {
        let all: Vec<u32> = checker.found.directories.all.iter().map(|d| d.inode).collect();
        let all = match &checker.kept {
            Some(kept) => {
                let run = |&inode: &u32| InodeRun { first: inode, last: inode };
                kept.that_may_name(&all, &InodeRuns::new(wanted.iter().map(run).collect()))
            }
            None => all,
        };
        find_names(checker, &all, &wanted, &mut names)?;
    }
    // A directory's parent is known, so that only parents need to be read.
    let mut missing = wanted.clone();
    missing.extend(names.values().map(|(parent, _)| *parent));
    for _ in 0..DEPTH_MAX {
        let mut parents = BTreeSet::new();
        missing.retain(|inode| !names.contains_key(inode));
        for inode in &missing {
            if let Some(position) = checker.found.directories.position(InodeNumber::new(*inode)) {
                parents.insert(checker.found.directories.all[position].parent);
            }
        }
        parents.remove(&0);
        if parents.is_empty() {
            break;
        }
        let known = names.len();
        let among: Vec<u32> = parents.iter().copied().collect();
        find_names(checker, &among, &missing, &mut names)?;
        if names.len() == known {
            break;
        }
        missing = parents;
    }
    for problem in problems {
        problem.path = problem.issue.place().inode.and_then(|inode| path_of(inode, &names));
    }
    Ok(())
}

/// Looks in some directories for names of some inodes.
fn find_names(
    checker: &Checker<'_>,
    among: &[u32],
    wanted: &BTreeSet<u32>,
    names: &mut Names,
) -> Result<(), Error> {
    let image = &checker.image;
    let pieces: Vec<&[u32]> = among.chunks(PIECE).collect();
    let work = |piece: usize| {
        let mut found = Names::new();
        for own in pieces[piece] {
            visit_names(image, *own, &mut |name, target| {
                if wanted.contains(&target) {
                    found.entry(target).or_insert_with(|| (*own, entries::text(name)));
                }
            })?;
        }
        Ok::<_, Error>(found)
    };
    in_order("check", pieces.len(), checker.threads, work, |_, found| {
        for (target, name) in found? {
            names.entry(target).or_insert(name);
        }
        Ok(())
    })
}

/// Calls back for the names in a directory, if it is one.
fn visit_names(
    image: &Image<'_>,
    directory: u32,
    visit: &mut dyn FnMut(&[u8], u32),
) -> Result<(), Error> {
    let Some((inode, bytes)) = image.inode(InodeNumber::new(directory))? else { return Ok(()) };
    if !inode.is_directory() {
        return Ok(());
    }
    let context = DirectoryContext::new(image, inode);
    directories::for_each_entry(image, &context, &bytes, &mut |_, _, name, target| {
        if name != b"." && name != b".." {
            visit(name, target.get());
        }
    })
}

fn path_of(inode: InodeNumber, names: &Names) -> Option<String> {
    if inode == InodeNumber::ROOT {
        return Some("/".to_owned());
    }
    let mut parts = Vec::new();
    let mut at = inode.get();
    while at != InodeNumber::ROOT.get() {
        let (parent, name) = names.get(&at)?;
        parts.push(name.as_str());
        if parts.len() > DEPTH_MAX {
            return None;
        }
        at = *parent;
    }
    parts.reverse();
    Some(format!("/{}", parts.join("/")))
}
