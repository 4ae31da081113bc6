//! All directories: their blocks, and the inodes their entries refer to.

use crate::block_set::BlockSet;
use crate::checker::{
    Checker, Directory, DirectoryNotes, DirectoryPart, DirectoryPass, Findings, Notes,
};
use crate::claims::Claims;
use crate::directory::{DirectoryContext, EntryVisitor, MappedBlock};
use crate::encryption::EncryptionPolicies;
use crate::entries::{self, Names};
use crate::htree::{self, Index};
use crate::image::{Error, Image};
use crate::inode_states::InodeStates;
use crate::issue::{InodeIssue, Issue};
use crate::mapping::{self, MapEvent};
use crate::memory::Memory;
use crate::report::{Pass, Reporter};
use crate::{inline, parallel};
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::inode::{Inode, InodeFlags};
use drystone_ext4_format::{InodeNumber, LogicalBlock};

/// Directories that one thread examines at a time, and their blocks, at most. One alone may be larger.
const PIECE_MAX: usize = 16;
const PIECE_BLOCKS_MAX: u32 = 16;

/// Pieces for each thread at least, so that all have work to the end.
const PIECES_PER_THREAD: usize = 8;

/// A piece ends after a directory whose number is a multiple of this, so that one that has another size changes few
/// pieces.
const PIECE_END: u32 = 8;

/// What the passes over all parts read.
struct Inputs<'i> {
    image: &'i Image<'i>,
    states: &'i InodeStates,
    policies: &'i EncryptionPolicies,
    claims: &'i Claims,
    memory: &'i Memory,
}

impl Inputs<'_> {
    /// Examines some directories.
    fn examine(
        &self,
        piece: &[u32],
        reporter: &mut Reporter<'_>,
        visited: &mut BlockSet,
        notes: Notes<'_>,
    ) -> Result<(), Error> {
        let Inputs { image, states, policies, memory, .. } = *self;
        let mut pass = DirectoryPass { image, states, policies, reporter, memory, visited, notes };
        piece.iter().try_for_each(|inode| check_one(&mut pass, *inode))
    }

    /// Examines some directories apart from the others; nothing if it fails, or finds more than a part keeps.
    fn examine_apart(&self, piece: &[u32], now_seconds: Option<u64>) -> Option<DirectoryPart> {
        let mut reporter = Reporter::of_part(now_seconds);
        let mut notes = DirectoryNotes::default();
        let mut read = BlockSet::new(self.image.layout.blocks_count());
        self.examine(piece, &mut reporter, &mut read, Notes::Later(&mut notes)).ok()?;
        let report = reporter.into_part().filter(|_| !notes.are_exceeded)?;
        Some(DirectoryPart::new(piece, report.problems, notes, &read, self.claims))
    }
}

/// Checks all directories.
pub(crate) fn check(checker: &mut Checker<'_>) -> Result<(), Error> {
    checker.start_visits();
    let Checker { image, reporter, states, found, threads, memory, kept, .. } = checker;
    let Findings { visited, directories, policies, claims, .. } = found;
    let inputs = Inputs { image, states, policies, claims, memory };
    let all: Vec<u32> = directories.all.iter().map(|directory| directory.inode).collect();
    let total = all.len() as u64;
    let mut done = 0;
    // The inode for growth has claimed what it should have, and not what it has as a directory.
    let are_claimed = directories.position(InodeNumber::RESIZE).is_none();
    if !are_claimed {
        *kept = None;
    }
    let is_apart = are_claimed && (*threads > 1 || kept.is_some());
    let pieces = pieces(&directories.all, &all, *threads);
    let reused = kept.as_mut().map(|kept| kept.reuse_directories(&pieces, states, &claims.twice));
    let is_reused = |index: usize| reused.as_ref().is_some_and(|reused| reused[index]);
    let now_seconds = reporter.now_seconds;
    let work =
        |index: usize| is_apart.then(|| inputs.examine_apart(pieces[index], now_seconds)).flatten();
    parallel::in_order_unless(pieces.len(), *threads, is_reused, work, |index, part| {
        let piece = pieces[index];
        match (part, kept.as_mut()) {
            (None, Some(kept)) => kept.directories(piece).add_to(states, directories, reporter),
            (Some(Some(part)), kept) if !part.is_in_any(&claims.twice) => {
                part.add_to(states, directories, reporter);
                if let Some(kept) = kept {
                    kept.keep_directories(part);
                }
            }
            // A block that belongs to two directories of a damaged image is read as one of the first.
            _ => inputs.examine(piece, reporter, visited, Notes::AtOnce(directories))?,
        }
        done += piece.len() as u64;
        reporter.step(Pass::Directories, done, total);
        Ok(())
    })
}

/// Neighbours that one thread examines at a time: `numbers` cut to pieces.
fn pieces<'n>(all: &[Directory], numbers: &'n [u32], threads: usize) -> Vec<&'n [u32]> {
    let length = (all.len() / (threads * PIECES_PER_THREAD)).clamp(1, PIECE_MAX);
    let mut pieces = Vec::new();
    let (mut start, mut blocks) = (0, 0u32);
    for (at, pair) in (1..).zip(all.windows(2)) {
        blocks = blocks.saturating_add(pair[0].blocks);
        let is_end = at - start == length
            || blocks.saturating_add(pair[1].blocks) > PIECE_BLOCKS_MAX
            || pair[0].inode.is_multiple_of(PIECE_END);
        if is_end {
            pieces.push(&numbers[start..at]);
            (start, blocks) = (at, 0);
        }
    }
    pieces.extend(Some(&numbers[start..]).filter(|rest| !rest.is_empty()));
    pieces
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
