//! What attributes leave behind: inodes of values that nobody has any more, and all attributes of
//! an inode that is freed.

use super::change::{self, Change};
use super::stored::Stored;
use crate::engine::Engine;
use crate::error::Result;
use crate::inode::Inode;
use drystone_ext4_format::xattr::{AttributeName, AttributeSet, AttributeValue};
use drystone_sync::Arc;
use drystone_vfs::RequestContext;

/// Values in inodes that one handle lets go of.
const VALUES_PER_STEP: usize = 16;

/// Inodes of values that lost their last entry. They are on the orphan record, and freed when the
/// handle has stopped and the locks are released.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct Garbage {
    inodes: Vec<Arc<Inode>>,
}

impl Garbage {
    /// Adds an inode without names, which is on the orphan record.
    pub fn add(&mut self, inode: Arc<Inode>) {
        self.inodes.push(inode);
    }

    /// Frees the inodes. Called without locks and without a handle.
    pub fn dispose(self, fs: &Engine) -> Result<()> {
        for inode in &self.inodes {
            fs.delete_if_unused(inode)?;
        }
        Ok(())
    }
}

/// Lets go of the attribute block and of values in inodes, in handles of its own. The inode is on
/// the orphan record, so that a crash in between is finished at the next mount.
pub(crate) fn release_all(fs: &Engine, inode: &Arc<Inode>) -> Result<()> {
    if !super::has_any(&inode.fields()) {
        return Ok(());
    }
    loop {
        let mut garbage = Garbage::default();
        let done = {
            let _xattrs = inode.xattrs.write();
            let before = Stored::load(fs, inode)?;
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
            let change = Change { before: &before, after, new_value: None };
            let context = RequestContext::superuser();
            let released = change.apply(fs, &mut handle, inode, &context, &mut garbage);
            fs.settle(handle, released)?;
            done
        };
        garbage.dispose(fs)?;
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
