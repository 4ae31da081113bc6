//! Targets of symbolic links: a short one is in the inode, a longer one in a block.

use super::blocks::write_blocks;
use super::read::read_mapped;
use crate::content::ContentStore;
use crate::error::Result;
use crate::inode::{Inode, inline};
use crate::mapping;
use drystone_ext4_format::error::InodeProblem;
use drystone_ext4_format::hash::NameHash;
use drystone_ext4_format::inode::{BLOCK_AREA_BYTES, InodeFlags};
use drystone_ext4_format::{Corrupt, nokey_name};
use drystone_jbd2::Handle;
use drystone_sync::Arc;
use drystone_vfs::{Errno, FileType, RequestContext};

/// Longest target that fits the inode, where a zero byte follows it.
const SHORT_LENGTH_MAX: usize = BLOCK_AREA_BYTES - 1;

/// Bytes of the length in front of an encrypted target.
const ENCRYPTED_LENGTH_BYTES: usize = 2;

/// Longest target of this image: with its zero byte it fills a block.
pub(crate) fn length_max(fs: &ContentStore) -> usize {
    drystone_vfs::PATH_LENGTH_MAX.min(fs.volume.block_size() - 1)
}

/// The length of a link's target, computed from the inode.
pub(crate) fn link_length(flags: InodeFlags, size_bytes: u64) -> u64 {
    if flags.contains(InodeFlags::ENCRYPT) {
        nokey_name::encoded_length(size_bytes.saturating_sub(ENCRYPTED_LENGTH_BYTES as u64))
    } else {
        size_bytes
    }
}

/// The target of a link.
pub(crate) fn read_link(fs: &ContentStore, inode: &Inode) -> Result<Vec<u8>> {
    if inode.file_type() != FileType::Symlink {
        return Err(Errno::EINVAL.into());
    }
    let _content = inode.content().read();
    let size = {
        let fields = inode.fields();
        if fields.disk.flags.contains(InodeFlags::ENCRYPT) {
            let area = fields.disk.is_fast_symlink().then_some(fields.disk.block_area);
            drop(fields);
            return read_encrypted(fs, inode, area);
        }
        if let Some(target) = fields.disk.fast_symlink_target() {
            return Ok(target.to_vec());
        }
        if fields.disk.flags.contains(InodeFlags::INLINE_DATA) {
            return inline::content(&fields);
        }
        fields.disk.size_bytes
    };
    if size > drystone_vfs::PATH_LENGTH_MAX as u64 {
        let problem = InodeProblem::Size { bytes: size };
        return Err(Corrupt::Inode { inode: inode.number, problem }.into());
    }
    let mut target = vec![0; size as usize];
    read_mapped(fs, inode, 0, &mut target)?;
    // Some writers count the zero byte in the size.
    let end = target.iter().position(|&byte| byte == 0).unwrap_or(target.len());
    target.truncate(end);
    Ok(target)
}

/// The no-key form of an encrypted target. Its length, in two bytes, and the ciphertext are in the
/// inode or in a block.
fn read_encrypted(
    fs: &ContentStore,
    inode: &Inode,
    area: Option<[u8; BLOCK_AREA_BYTES]>,
) -> Result<Vec<u8>> {
    let stored = match area {
        Some(area) => area.to_vec(),
        None => {
            let mut block = vec![0; fs.volume.block_size()];
            read_mapped(fs, inode, 0, &mut block)?;
            block
        }
    };
    let (length, rest) = stored.split_at(ENCRYPTED_LENGTH_BYTES);
    let length = usize::from(u16::from_le_bytes([length[0], length[1]]));
    let Some(ciphertext) = rest.get(..length).filter(|target| !target.is_empty()) else {
        let problem = InodeProblem::Size { bytes: length as u64 };
        return Err(Corrupt::Inode { inode: inode.number, problem }.into());
    };
    Ok(nokey_name::encode(NameHash::default(), ciphertext))
}

/// Stores the target of a new link.
pub(crate) fn write_link(
    fs: &ContentStore,
    context: &RequestContext,
    handle: &mut Handle<'_>,
    inode: &Arc<Inode>,
    target: &[u8],
) -> Result<()> {
    if target.len() <= SHORT_LENGTH_MAX {
        return inode.update(fs, handle, |fields| {
            fields.disk.flags -= InodeFlags::EXTENTS;
            fields.disk.block_area = [0; BLOCK_AREA_BYTES];
            fields.disk.block_area[..target.len()].copy_from_slice(target);
            fields.disk.size_bytes = target.len() as u64;
            Ok(())
        });
    }
    inode.update(fs, handle, |fields| {
        mapping::initialise_root(fs, &mut fields.disk);
        Ok(())
    })?;
    write_blocks(fs, context, handle, inode, target)?;
    inode.update(fs, handle, |fields| {
        fields.disk.size_bytes = target.len() as u64;
        Ok(())
    })
}
