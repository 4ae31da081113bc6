//! All directories: their blocks, and the inodes their entries refer to.

use crate::block_set::BlockSet;
use crate::checker::Checker;
use crate::directory::{DirectoryContext, EntryVisitor, MappedBlock};
use crate::entries::{self, Names};
use crate::htree::{self, Index};
use crate::image::Error;
use crate::inline;
use crate::issue::{InodeIssue, Issue};
use crate::mapping::{self, MapEvent};
use crate::report::Pass;
use drystone_ext4_format::extent::Extent;
use drystone_ext4_format::inode::{Inode, InodeFlags};
use drystone_ext4_format::{InodeNumber, LogicalBlock};

/// Directories between two calls of the progress callback.
const STEP: usize = 256;

/// Checks all directories.
pub(crate) fn check(checker: &mut Checker<'_>) -> Result<(), Error> {
    let count = checker.directories.all.len();
    for position in 0..count {
        let number = InodeNumber::new(checker.directories.all[position].inode);
        check_one(checker, number)?;
        if position % STEP == STEP - 1 || position + 1 == count {
            checker.reporter.step(Pass::Directories, position as u64 + 1, count as u64);
        }
    }
    Ok(())
}

fn check_one(checker: &mut Checker<'_>, number: InodeNumber) -> Result<(), Error> {
    let Some((inode, bytes)) = checker.inode(number)? else { return Ok(()) };
    let context = DirectoryContext::new(&checker.image, inode);
    let mut names = Names::new(&checker.image, &context.layout);
    if context.inode.flags.contains(InodeFlags::INLINE_DATA) {
        inline::check_directory(checker, &context, &bytes, &mut names);
    } else {
        check_blocks(checker, &context, &mut names)?;
    }
    if names.may_repeat() {
        report_repeated(checker, &context, &bytes, &names)?;
    }
    Ok(())
}

fn check_blocks(
    checker: &mut Checker<'_>,
    context: &DirectoryContext,
    names: &mut Names,
) -> Result<(), Error> {
    let blocks = blocks_of(checker, &context.inode)?;
    let index = if context.inode.flags.contains(InodeFlags::INDEX) {
        htree::check(checker, context, &blocks)?
    } else {
        Index::default()
    };
    let mut buffer = checker.image.block_buffer();
    for block in &blocks {
        if index.is_node(block.logical) {
            if block.logical == LogicalBlock::FIRST {
                checker.image.read_blocks(block.physical, &mut buffer)?;
                entries::check_root(checker, context, &index, &buffer);
            }
            continue;
        }
        checker.image.read_blocks(block.physical, &mut buffer)?;
        if index.is_usable() && !index.leads_to(block.logical) {
            htree::report_unreferenced(checker, context, block.logical);
        }
        entries::check_block(checker, context, names, &index, block.logical, &buffer);
    }
    Ok(())
}

/// The blocks of a directory in order; what is missing or unwritten is reported.
fn blocks_of(checker: &mut Checker<'_>, inode: &Inode) -> Result<Vec<MappedBlock>, Error> {
    let Checker { image, reporter, visited, .. } = checker;
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
    Ok(blocks)
}

/// Calls back for each entry of a directory, whatever is wrong with it.
pub(crate) fn for_each_entry(
    checker: &Checker<'_>,
    context: &DirectoryContext,
    bytes: &[u8],
    visit: EntryVisitor<'_>,
) -> Result<(), Error> {
    if context.inode.flags.contains(InodeFlags::INLINE_DATA) {
        inline::for_each_entry(checker, context, bytes, visit);
        return Ok(());
    }
    let mut visited = BlockSet::new(checker.image.layout.blocks_count());
    let mut extents = Vec::new();
    mapping::walk(&checker.image, &context.inode, &mut visited, &mut |event| {
        if let MapEvent::Extent(extent) = event {
            extents.push(extent);
        }
    })?;
    let mut buffer = checker.image.block_buffer();
    for extent in extents.iter().filter(|extent| !extent.unwritten) {
        for offset in 0..extent.length {
            let logical = extent.logical.checked_add(offset);
            let physical = extent.physical.checked_add(u64::from(offset));
            let (Some(logical), Some(physical)) = (logical, physical) else { break };
            if !visited.insert(physical.get()) {
                continue;
            }
            checker.image.read_blocks(physical, &mut buffer)?;
            entries::for_each(&buffer, &context.layout, &mut |offset, name, inode| {
                visit(logical, offset, name, inode);
            });
        }
    }
    Ok(())
}

/// Looks at all names once more where hashes of names met, and reports those that are equal.
fn report_repeated(
    checker: &mut Checker<'_>,
    context: &DirectoryContext,
    bytes: &[u8],
    names: &Names,
) -> Result<(), Error> {
    let mut found = entries::Repeated::new(names);
    for_each_entry(checker, context, bytes, &mut |block, offset, name, _| {
        found.visit(block, offset, name);
    })?;
    for (block, offset, issue) in found.issues {
        let inode = context.inode.number;
        checker.reporter.report(Issue::Directory { inode, block, offset, issue });
    }
    Ok(())
}
