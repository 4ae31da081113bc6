//! Freeing what attributes leave behind: inodes of values that no entry refers to, and all attributes of
//! an inode that is freed.

use super::change::{self, AttributeChange};
use super::garbage::ValueGarbage;
use super::stored::StoredAttributes;
use crate::content::ContentStore;
use crate::deletion;
use crate::error::{Error, Result};
use crate::inode::Inode;
use drystone_ext4_format::xattr::{AttributeName, AttributeSet, AttributeValue};
use drystone_sync::Arc;
use drystone_vfs::RequestContext;

/// Values in inodes that one handle removes.
const VALUES_PER_STEP: usize = 16;

impl ValueGarbage {
    /// Frees the inodes. The change that has left them is made, so one that can't be freed isn't its error:
    /// it stays on the orphan record. Called without locks and without a handle.
    pub fn dispose(self, fs: &ContentStore) {
        for inode in &self.inodes {
            if let Err(error) = fs.free_unused(inode, || delete_value(fs, inode)) {
                if let Error::Corrupt(_) = error {
                    fs.volume.damage.note_later();
                }
                tracing::error!(inode = %inode.number, %error, "an attribute's value could not be freed");
            }
        }
    }
}

/// Frees the inode of a value. Callers can't open it, so no data of it waits. It has no attributes:
/// [`find`](super::value_inode::find) refuses an inode that has, because a damaged image could lead from
/// value to value without end.
fn delete_value(fs: &ContentStore, inode: &Arc<Inode>) -> Result<()> {
    {
        let _content = inode.content().write();
        deletion::free_blocks(fs, inode)?;
    }
    deletion::free_bare_inode(fs, inode)
}

/// Releases the attribute block and values in inodes, in handles of its own. The inode is on the orphan
/// record, so after a crash in between the next mount finishes the work.
pub(crate) fn release_all(fs: &ContentStore, inode: &Arc<Inode>) -> Result<()> {
    if !inode.fields().has_xattrs() {
        return Ok(());
    }
    loop {
        let mut garbage = ValueGarbage::default();
        let done = {
            let _xattrs = inode.xattrs.write();
            let before = StoredAttributes::load(fs, inode)?;
            if before.block.is_none() && before.value_inodes().is_empty() {
                return Ok(());
            }
            let mut after = before.clone();
            let taken = take_values(&mut after.area, VALUES_PER_STEP);
            let left = VALUES_PER_STEP - taken;
            let taken = taken + take_values(&mut after.in_block, left);
            let done = after.value_inodes().is_empty();
            if done {
                after.in_block = AttributeSet::new();
            }
            let mut handle = fs.volume.start(change::release_credits(taken))?;
            let change = AttributeChange { before: &before, after, new_value: None };
            let context = RequestContext::superuser();
            let released = change.apply(fs, &mut handle, inode, &context, &mut garbage);
            fs.settle(handle, released)?;
            done
        };
        garbage.dispose(fs);
        if done {
            return Ok(());
        }
    }
}

/// Takes up to `count` values in inodes out of a set, and returns how many.
fn take_values(set: &mut AttributeSet, count: usize) -> usize {
    let names: Vec<AttributeName> = set
        .iter()
        .filter(|(_, value)| matches!(value, AttributeValue::Inode { .. }))
        .map(|(name, _)| name.clone())
        .take(count)
        .collect();
    for name in &names {
        set.remove(name);
    }
    names.len()
}
