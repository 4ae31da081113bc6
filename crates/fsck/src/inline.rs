//! Inline data: files, links and directories that lie in their inode.

use crate::checker::{DirectoryPass, InodePass};
use crate::directory::{DirectoryContext, EntryVisitor};
use crate::entries::{self, At, Names};
use crate::image::Image;
use crate::issue::{AttributeIssue, DirectoryIssue, InodeIssue, Issue};
use drystone_ext4_format::LogicalBlock;
use drystone_ext4_format::inline::{HEAD_LENGTH, InlineData, InlineDirectory};
use drystone_ext4_format::inode::Inode;
use drystone_ext4_format::xattr::{AttributeName, AttributePlace, Value, XattrView};

/// The value of the attribute with what does not fit the block area.
fn rest_of<'a>(image: &Image<'_>, inode: &Inode, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let area = bytes.get(inode.attribute_area(&image.layout))?;
    let place = AttributePlace { inode: inode.number, block: None };
    let attributes = XattrView::check_in_inode(area, place).ok()?;
    let name = AttributeName::inline_data();
    match attributes.find(name.index, &name.suffix)?.value {
        Value::Inline(value) => Some(value),
        Value::Inode { .. } => None,
    }
}

/// Checks that an inode with inline data holds as much as its size says.
pub(crate) fn check(pass: &mut InodePass<'_, '_>, inode: &Inode, bytes: &[u8]) {
    let rest = rest_of(pass.image, inode, bytes);
    let (number, size) = (inode.number, inode.size_bytes);
    if rest.is_none() && inode.is_directory() {
        let issue = AttributeIssue::NoInlineData;
        pass.reporter.report(Issue::Attributes { inode: number, issue });
    }
    let mut issue = |issue| pass.reporter.report(Issue::Inode { inode: number, issue });
    if inode.is_directory() {
        let expected = (HEAD_LENGTH + rest.map_or(0, <[u8]>::len)) as u64;
        if size != expected {
            issue(InodeIssue::Size { stored: size, expected });
        }
        if rest.is_some() {
            return;
        }
    }
    match InlineData::check(&inode.block_area, rest, size, number) {
        Ok(data) if inode.is_symlink() => {
            // The byte after the target, if there is one, is zero as well.
            let mut target = data.to_vec();
            let stored = inode.block_area.iter().chain(rest.unwrap_or(&[]));
            target.extend(stored.skip(target.len()).take(1));
            let found = target.iter().position(|&byte| byte == 0).unwrap_or(target.len()) as u64;
            if found != size || size == 0 {
                issue(InodeIssue::Symlink { size, found });
            }
        }
        Ok(_) => {}
        Err(corrupt) => pass.reporter.report(corrupt),
    }
}

/// Checks the entries of an inline directory.
pub(crate) fn check_directory(
    pass: &mut DirectoryPass<'_, '_>,
    context: &DirectoryContext,
    bytes: &[u8],
    names: &mut Names,
) {
    let inode = &context.inode;
    let rest = rest_of(pass.image, inode, bytes).unwrap_or(&[]);
    let head = &inode.block_area;
    if let Err(corrupt) = InlineDirectory::check(head, rest, &context.layout, inode.number) {
        pass.reporter.report(corrupt);
    }
    let directory = InlineDirectory::trusted(head, rest, &context.layout);
    entries::add_implied_dots(pass, context, directory.parent());
    for entry in directory.entries() {
        let at = At { logical: LogicalBlock::FIRST, offset: entry.offset };
        if entry.is_dot() {
            let (block, offset) = (at.logical, at.offset);
            let issue = DirectoryIssue::Dot { name: entries::text(entry.name) };
            let inode = inode.number;
            pass.reporter.report(Issue::Directory { inode, block, offset, issue });
        }
        entries::check_entry(pass, context, names, at, &entry);
    }
}

/// Calls back for each entry of an inline directory.
pub(crate) fn for_each_entry(
    image: &Image<'_>,
    context: &DirectoryContext,
    bytes: &[u8],
    visit: EntryVisitor<'_>,
) {
    let rest = rest_of(image, &context.inode, bytes).unwrap_or(&[]);
    let directory = InlineDirectory::trusted(&context.inode.block_area, rest, &context.layout);
    for entry in directory.entries() {
        visit(LogicalBlock::FIRST, entry.offset, entry.name, entry.inode);
    }
}
