//! All directories: their blocks, and the inodes their entries refer to.

use crate::block_set::BlockSet;
use crate::checker::{
    Checker, Directories, DirectoryLink, DirectoryPass, Findings, PART_LINKS_MAX, Places,
};
use crate::directory::{DirectoryContext, EntryVisitor, MappedBlock};
use crate::encryption::EncryptionPolicies;
use crate::entries::{self, Names};
use crate::htree::{self, Index};
use crate::image::{Error, Image};
use crate::inode_states::InodeStates;
use crate::issue::{InodeIssue, Issue};
use crate::mapping::{self, MapEvent};
use crate::memory::Memory;
use crate::report::{Pass, Report, Reporter};
use crate::{inline, parallel};
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::inode::{Inode, InodeFlags};
use drystone_ext4_format::{InodeNumber, LogicalBlock};

/// Directories that one thread examines at a time, at most.
const PIECE_MAX: usize = 64;

/// Pieces for each thread at least, so that all have work to the end.
const PIECES_PER_THREAD: usize = 8;

/// What a part of the directories gives.
struct Part {
    report: Report,
    links: Vec<(usize, DirectoryLink)>,
}

/// What the passes over all parts read.
struct Inputs<'i> {
    image: &'i Image<'i>,
    states: &'i InodeStates,
    policies: &'i EncryptionPolicies,
    memory: &'i Memory,
}

impl Inputs<'_> {
    /// Examines some directories. `is_counted` says that their names were counted before.
    fn examine(
        &self,
        piece: &[u32],
        reporter: &mut Reporter<'_>,
        visited: &mut BlockSet,
        places: Places<'_>,
        is_counted: bool,
    ) -> Result<(), Error> {
        let Inputs { image, states, policies, memory } = *self;
        let mut pass = DirectoryPass {
            image,
            states,
            policies,
            reporter,
            memory,
            visited,
            places,
            is_counted,
        };
        piece.iter().try_for_each(|inode| check_one(&mut pass, *inode))
    }
}

/// Checks all directories.
pub(crate) fn check(checker: &mut Checker<'_>) -> Result<(), Error> {
    checker.start_visits();
    let Checker { image, reporter, states, found, threads, memory, .. } = checker;
    let Findings { visited, directories, policies, claims, .. } = found;
    let inputs = Inputs { image, states, policies, memory };
    let all: Vec<u32> = directories.all.iter().map(|directory| directory.inode).collect();
    let total = all.len() as u64;
    let mut done = 0;
    // A block may belong to two directories of a damaged image: it is read as one of the first. The inode for growth
    // has claimed what it should have, and not what it has as a directory.
    let has_shared = !claims.twice.is_empty() && reporter.report.errors > 0
        || directories.position(InodeNumber::RESIZE).is_some();
    if *threads == 1 || has_shared {
        for piece in all.chunks(PIECE_MAX) {
            inputs.examine(piece, reporter, visited, Places::Known(directories), false)?;
            done += piece.len() as u64;
            reporter.step(Pass::Directories, done, total);
        }
        return Ok(());
    }
    let piece = all.len() / (*threads * PIECES_PER_THREAD);
    let pieces: Vec<&[u32]> = all.chunks(piece.clamp(1, PIECE_MAX)).collect();
    let now_seconds = reporter.now_seconds;
    let work = |index: usize| {
        let (mut reporter, mut links) = (Reporter::of_part(now_seconds), Vec::new());
        let mut visited = BlockSet::new(inputs.image.layout.blocks_count());
        let places = Places::Kept(&mut links);
        inputs.examine(pieces[index], &mut reporter, &mut visited, places, false)?;
        let report = reporter.into_part().filter(|_| links.len() < PART_LINKS_MAX);
        Ok::<_, Error>(report.map(|report| Part { report, links }))
    };
    parallel::in_order(pieces.len(), *threads, work, |index, part| {
        match part {
            Ok(Some(part)) => part.give(directories, reporter),
            failed_or_large => {
                let places = Places::Known(directories);
                inputs.examine(pieces[index], reporter, visited, places, true)?;
                // Even if the device has read it now: not all names were counted.
                failed_or_large?;
            }
        }
        done += pieces[index].len() as u64;
        reporter.step(Pass::Directories, done, total);
        Ok(())
    })
}

impl Part {
    /// Reports the problems and places the directories, in the order in which they were found.
    fn give(self, directories: &mut Directories, reporter: &mut Reporter<'_>) {
        let mut links = self.links.into_iter().peekable();
        for (number, problem) in self.report.problems.into_iter().enumerate() {
            while let Some((_, link)) = links.next_if(|(before, _)| *before <= number) {
                link.place(directories, reporter);
            }
            reporter.report(problem.issue);
        }
        links.for_each(|(_, link)| link.place(directories, reporter));
    }
}

fn check_one(pass: &mut DirectoryPass<'_, '_>, number: u32) -> Result<(), Error> {
    let Some((inode, bytes)) = pass.image.inode(InodeNumber::new(number))? else { return Ok(()) };
    let context = DirectoryContext::new(pass.image, inode);
    let mut names = Names::new(pass.image, &context.layout);
    if context.inode.flags.contains(InodeFlags::INLINE_DATA) {
        inline::check_directory(pass, &context, &bytes, &mut names);
    } else {
        check_blocks(pass, &context, &mut names)?;
    }
    if names.may_repeat() {
        report_repeated(pass, &context, &bytes, &names)?;
    }
    Ok(())
}

fn check_blocks(
    pass: &mut DirectoryPass<'_, '_>,
    context: &DirectoryContext,
    names: &mut Names,
) -> Result<(), Error> {
    let blocks = blocks_of(pass, &context.inode)?;
    let index = if context.inode.flags.contains(InodeFlags::INDEX) {
        htree::check(pass, context, &blocks)?
    } else {
        Index::default()
    };
    let mut buffer = pass.image.block_buffer();
    let mut memory = pass.memory.share();
    for block in &blocks {
        memory.grow_to(names.memory_bytes())?;
        if index.is_node(block.logical) {
            if block.logical == LogicalBlock::FIRST {
                pass.image.read_blocks(block.physical, &mut buffer)?;
                entries::check_root(pass, context, &index, &buffer);
            }
            continue;
        }
        pass.image.read_blocks(block.physical, &mut buffer)?;
        if index.is_usable() && !index.leads_to(block.logical) {
            htree::report_unreferenced(pass, context, block.logical);
        }
        entries::check_block(pass, context, names, &index, block.logical, &buffer);
    }
    Ok(())
}

/// The blocks of a directory in order; what is missing or unwritten is reported.
fn blocks_of(pass: &mut DirectoryPass<'_, '_>, inode: &Inode) -> Result<Vec<MappedBlock>, Error> {
    let DirectoryPass { image, reporter, visited, .. } = pass;
    let mut extents: Vec<Extent> = Vec::new();
    mapping::walk(image, inode, visited, &mut |event| {
        if let MapEvent::Extent(extent) = event {
            extents.push(extent);
        }
    })?;
    let mut blocks = Vec::new();
    let mut expected = 0;
    for extent in extents {
        let mut issue = |issue| reporter.report(Issue::Inode { inode: inode.number, issue });
        if extent.logical.as_u64() > expected {
            // Below the extent's start, which fits.
            issue(InodeIssue::DirectoryHole { logical: LogicalBlock::new(expected as u32) });
        }
        expected = extent.logical_end();
        if extent.unwritten {
            issue(InodeIssue::DirectoryUnwritten { logical: extent.logical });
            continue;
        }
        for offset in 0..extent.length {
            let logical = extent.logical.checked_add(offset);
            let physical = extent.physical.checked_add(u64::from(offset));
            // A block that belongs to several directories is read once; it was reported.
            if let (Some(logical), Some(physical)) = (logical, physical)
                && visited.insert(physical.get())
            {
                blocks.push(MappedBlock { logical, physical });
            }
        }
    }
    // Without memory every block would seem to be read before.
    visited.check_memory()?;
    Ok(blocks)
}

/// Calls back for each entry of a directory, whatever is wrong with it.
pub(crate) fn for_each_entry(
    image: &Image<'_>,
    context: &DirectoryContext,
    bytes: &[u8],
    visit: EntryVisitor<'_>,
) -> Result<(), Error> {
    if context.inode.flags.contains(InodeFlags::INLINE_DATA) {
        inline::for_each_entry(image, context, bytes, visit);
        return Ok(());
    }
    let mut visited = BlockSet::new(image.layout.blocks_count());
    let mut extents = Vec::new();
    mapping::walk(image, &context.inode, &mut visited, &mut |event| {
        if let MapEvent::Extent(extent) = event {
            extents.push(extent);
        }
    })?;
    let mut buffer = image.block_buffer();
    for extent in extents.iter().filter(|extent| !extent.unwritten) {
        for offset in 0..extent.length {
            let logical = extent.logical.checked_add(offset);
            let physical = extent.physical.checked_add(u64::from(offset));
            let (Some(logical), Some(physical)) = (logical, physical) else { break };
            if !visited.insert(physical.get()) {
                continue;
            }
            image.read_blocks(physical, &mut buffer)?;
            entries::for_each(&buffer, &context.layout, &mut |offset, name, inode| {
                visit(logical, offset, name, inode);
            });
        }
    }
    Ok(())
}

/// Looks at all names once more where hashes of names met, and reports those that are equal.
fn report_repeated(
    pass: &mut DirectoryPass<'_, '_>,
    context: &DirectoryContext,
    bytes: &[u8],
    names: &Names,
) -> Result<(), Error> {
    let mut found = entries::Repeated::new(names);
    for_each_entry(pass.image, context, bytes, &mut |block, offset, name, _| {
        found.visit(block, offset, name);
    })?;
    for (block, offset, issue) in found.issues {
        let inode = context.inode.number;
        pass.reporter.report(Issue::Directory { inode, block, offset, issue });
    }
    Ok(())
}
