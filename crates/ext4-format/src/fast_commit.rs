//! Records of fast commits: what was done to files since the last full commit.
//!
//! The journal's format crate finds the records; [`FastCommitRecord::check`] says what one means.
//!
//! # Reference
//! "Fast commits" in the kernel's ext4 data structure pages. These pages only name the values.
//! Their layouts, and what Linux puts into them, were learned from areas that it has written: an
//! inode is its number and the bytes of its fields, or all its bytes if it holds inline data; link
//! counts already include every name that the same fast commit adds or removes.

use crate::dir::NAME_LENGTH_MAX;
use crate::error::{Corrupt, FastCommitProblem};
use crate::extent::Extent;
use crate::ids::{InodeNumber, LogicalBlock};
use crate::layout::{BASE_INODE_BYTES, Layout};

const TAG_ADD_RANGE: u16 = 1;
const TAG_REMOVE_RANGE: u16 = 2;
const TAG_CREATE: u16 = 3;
const TAG_LINK: u16 = 4;
const TAG_UNLINK: u16 = 5;
const TAG_INODE: u16 = 6;

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FastCommitRecord<'a> {
    /// Blocks of a file are here.
    AddRange {
        /// The file.
        inode: InodeNumber,
        /// Where.
        extent: Extent,
    },
    /// A file has no blocks in a range.
    RemoveRange {
        /// The file.
        inode: InodeNumber,
        /// First block of the file.
        from: LogicalBlock,
        /// Number of blocks.
        length: u32,
    },
    /// A directory has a name for an inode: its first (create) or one more (link).
    Add(NameRecord<'a>),
    /// A directory no longer has a name for an inode.
    Remove(NameRecord<'a>),
    /// An inode's bytes up to the end of its fields, or all of them.
    Inode {
        /// The inode.
        inode: InodeNumber,
        /// Its bytes: at least the first 128.
        bytes: &'a [u8],
    },
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameRecord<'a> {
    /// The directory.
    pub parent: InodeNumber,
    /// The inode that it names.
    pub inode: InodeNumber,
    /// The name.
    pub name: &'a [u8],
}

impl<'a> FastCommitRecord<'a> {
    /// Checks a record: its numbers must be of inodes and blocks that the image can have.
    ///
    /// # Errors
    /// [`Corrupt::FastCommit`].
    pub fn check(tag: u16, value: &'a [u8], layout: &Layout) -> Result<Self, Corrupt> {
        let fail = |problem| Corrupt::FastCommit { inode: InodeNumber::new(0), problem };
        let length = || fail(FastCommitProblem::Length { tag, bytes: value.len() });
        let numbers = value.chunks_exact(4).map(|bytes| {
            // Chunks of four.
            u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
        });
        let number = |place: usize| numbers.clone().nth(place).ok_or_else(length);
        match tag {
            TAG_ADD_RANGE => {
                let inode = file(number(0)?, layout)?;
                let entry = value.get(4..16).and_then(|bytes| bytes.try_into().ok());
                let extent = Extent::from_entry(&entry.ok_or_else(length)?);
                check_range(inode, extent.logical, extent.length)?;
                if !layout.contains_blocks(extent.physical, u64::from(extent.length)) {
                    let problem = FastCommitProblem::Range;
                    return Err(Corrupt::FastCommit { inode, problem });
                }
                Ok(Self::AddRange { inode, extent })
            }
            TAG_REMOVE_RANGE => {
                let inode = file(number(0)?, layout)?;
                let (from, length) = (LogicalBlock::new(number(1)?), number(2)?);
                check_range(inode, from, length)?;
                Ok(Self::RemoveRange { inode, from, length })
            }
            TAG_CREATE | TAG_LINK | TAG_UNLINK => {
                let parent = file(number(0)?, layout)?;
                let inode = file(number(1)?, layout)?;
                let name = value.get(8..).ok_or_else(length)?;
                let is_name = (1..=NAME_LENGTH_MAX).contains(&name.len())
                    && !name.contains(&b'/')
                    && !name.contains(&0)
                    && name != b"."
                    && name != b"..";
                if !is_name || inode == InodeNumber::ROOT {
                    return Err(Corrupt::FastCommit { inode, problem: FastCommitProblem::Name });
                }
                let record = NameRecord { parent, inode, name };
                Ok(if tag == TAG_UNLINK { Self::Remove(record) } else { Self::Add(record) })
            }
            TAG_INODE => {
                let inode = file(number(0)?, layout)?;
                let bytes = &value[4..];
                let range = usize::from(BASE_INODE_BYTES)..=layout.inode_size();
                if !range.contains(&bytes.len()) {
                    return Err(length());
                }
                Ok(Self::Inode { inode, bytes })
            }
            _ => Err(fail(FastCommitProblem::Tag(tag))),
        }
    }
}

/// The inode of a file: the root, or one that isn't reserved.
fn file(number: u32, layout: &Layout) -> Result<InodeNumber, Corrupt> {
    let inode = InodeNumber::new(number);
    let is_file = inode == InodeNumber::ROOT || inode >= layout.first_inode();
    if is_file && layout.contains_inode(inode) {
        Ok(inode)
    } else {
        Err(Corrupt::FastCommit { inode, problem: FastCommitProblem::Number })
    }
}

fn check_range(inode: InodeNumber, from: LogicalBlock, length: u32) -> Result<(), Corrupt> {
    // The largest number isn't used for a block.
    let end = from.checked_add(length);
    if length == 0 || end.is_none() {
        return Err(Corrupt::FastCommit { inode, problem: FastCommitProblem::Range });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
