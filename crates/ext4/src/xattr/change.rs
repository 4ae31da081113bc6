//! Changing the attributes of an inode: where a value goes, and the changes that take it there.
//!
//! # Crash
//! One handle. The steps that can run out of space come first. If one does, nothing has changed, except
//! that an inode made for the value is on the orphan record.

use super::garbage::ValueGarbage;
use super::stored::{StoredAttributes, inodes_of};
use super::{block, mismatch, value_inode};
use crate::alloc::Reach;
use crate::content::ContentStore;
use crate::credits as all_credits;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::mapping;
use crate::volume::Volume;
use drystone_ext4_format::features::{Compat, Incompat};
use drystone_ext4_format::xattr::{AttributeName, AttributeSet, AttributeValue};
use drystone_ext4_format::{InodeNumber, PhysicalBlock};
use drystone_jbd2::Handle;
use drystone_sync::Arc;
use drystone_vfs::{Capabilities, RequestContext};

/// Bytes of a block that no value can use: its header, the mark after the entries, and the shortest
/// entry.
const BLOCK_OVERHEAD: usize = 32 + 4 + 20;
/// The most values in inodes that one inode may get: one handle can change the references of so many.
const VALUE_INODES_MAX: usize = 64;
/// Credits to add or remove an entry of a value in an inode: the inode and its orphan record.
const VALUE_REFERENCE: u32 = all_credits::INODE + all_credits::ORPHAN;

/// A value to store under a name, or to remove.
pub(super) struct AttributeRequest<'a> {
    pub context: &'a RequestContext,
    pub name: &'a AttributeName,
    /// The new value; none removes the attribute.
    pub value: Option<&'a [u8]>,
    /// Whether the value may get an inode of its own.
    pub may_use_inode: bool,
}

/// Credits for storing a value of this length in an inode that has so many values in inodes: each of
/// these gets another reference if their entries were in a shared block, and one loses a reference.
pub(super) fn credits(volume: &Volume, value_length: usize, value_inodes: usize) -> u32 {
    let mut credits = all_credits::XATTR;
    if has_value_inodes(volume) {
        let blocks = value_length.div_ceil(volume.block_size()) as u32;
        credits += VALUE_REFERENCE + all_credits::INODE * value_inodes as u32;
        credits += all_credits::VALUE_INODE + blocks;
    }
    credits
}

/// Credits for dropping the references to so many values in inodes.
pub(super) fn release_credits(values: usize) -> u32 {
    all_credits::XATTR + VALUE_REFERENCE * values as u32
}

fn has_value_inodes(volume: &Volume) -> bool {
    volume.features.incompat.contains(Incompat::EA_INODE)
}

/// Whether a value is too large for any place but an inode of its own.
fn uses_inode(volume: &Volume, length: usize) -> bool {
    has_value_inodes(volume) && length > volume.block_size() - BLOCK_OVERHEAD
}

/// Stores or removes one attribute as part of a handle. The `xattrs` lock is held exclusively, or no
/// other thread can reach the inode yet. `before` are the attributes that it has.
pub(super) fn store(
    fs: &ContentStore,
    handle: &mut Handle<'_>,
    inode: &Inode,
    before: &StoredAttributes,
    wish: &AttributeRequest<'_>,
    garbage: &mut ValueGarbage,
) -> Result<()> {
    let mut after = before.clone();
    after.area.remove(wish.name);
    after.in_block.remove(wish.name);
    let mut new_value = None;
    if let Some(value) = wish.value {
        let room =
            AttributeRoom { area: inode.fields().xattr_area.len(), block: fs.volume.block_size() };
        let goes_beside = !wish.may_use_inode || !uses_inode(&fs.volume, value.len());
        let beside = AttributeValue::Inline(value.to_vec());
        if !(goes_beside && room.put(&mut after, wish.name, beside)) {
            let full = before.value_inodes().len() >= VALUE_INODES_MAX;
            if !wish.may_use_inode || !has_value_inodes(&fs.volume) || full {
                return Err(Error::NoSpace);
            }
            // Check that the entry fits before an inode is made.
            let reference = |inode, hash| {
                // Values are no longer than 64 KiB.
                AttributeValue::in_inode(wish.name, inode, value.len() as u32, hash)
            };
            if !room.put(&mut after.clone(), wish.name, reference(InodeNumber::ROOT, 0)) {
                return Err(Error::NoSpace);
            }
            let (made, hash) = value_inode::make(fs, handle, wish.context, inode, value, garbage)?;
            room.put(&mut after, wish.name, reference(made.number, hash));
            new_value = Some(made);
        }
    }
    let change = AttributeChange { before, after, new_value };
    change.apply(fs, handle, inode, wish.context, garbage)
}

/// The sizes of the two places, in bytes.
struct AttributeRoom {
    area: usize,
    block: usize,
}

impl AttributeRoom {
    /// Adds an attribute to the first place with room; false if there is none.
    fn put(
        &self,
        stored: &mut StoredAttributes,
        name: &AttributeName,
        value: AttributeValue,
    ) -> bool {
        // Values are aligned to words, so the end of an unaligned area is of no use.
        let area = self.area & !3;
        for (set, is_area) in [(&mut stored.area, true), (&mut stored.in_block, false)] {
            let previous = set.set(name.clone(), value.clone());
            debug_assert!(previous.is_none(), "the old value was taken out before");
            let fits = if is_area {
                set.length_in_inode() <= area
            } else {
                set.length_in_block() <= self.block
            };
            if fits {
                return true;
            }
            set.remove(name);
        }
        false
    }
}

/// A change of an inode's attributes.
pub(super) struct AttributeChange<'a> {
    pub before: &'a StoredAttributes,
    /// The sets as they will be. Their block is set by [`apply`](AttributeChange::apply).
    pub after: StoredAttributes,
    /// The inode that was made for the new value, with one reference.
    pub new_value: Option<Arc<Inode>>,
}

/// What happens to the block.
enum BlockPlan {
    Keep,
    /// The set goes to another block, or needs none.
    Move(Option<PhysicalBlock>),
}

impl AttributeChange<'_> {
    /// Makes the change: block and record, references, space, time.
    pub fn apply(
        mut self,
        fs: &ContentStore,
        handle: &mut Handle<'_>,
        inode: &Inode,
        context: &RequestContext,
        garbage: &mut ValueGarbage,
    ) -> Result<()> {
        let prepared = self.prepare(fs, handle, inode, context);
        let (plan, values) = match prepared {
            Ok(prepared) => prepared,
            Err(error) => {
                if let Some(made) = self.new_value.take() {
                    fs.orphans.abandon(fs, handle, &made)?;
                    garbage.add(made);
                }
                return Err(error);
            }
        };
        if let BlockPlan::Move(block) = plan {
            self.after.block = block;
        }
        self.change_references(fs, handle, inode, &plan, &values, garbage)?;
        self.change_inode(fs, handle, inode)?;
        let cost = self.after.cost(fs.volume.layout());
        let cost_before = self.before.cost(fs.volume.layout());
        mapping::charge_blocks(fs, handle, inode, cost.blocks - cost_before.blocks)?;
        fs.quotas.value_inodes_changed(fs, handle, inode, cost.inodes - cost_before.inodes)
    }

    /// The steps that can fail for want of space or because of damage.
    fn prepare(
        &self,
        fs: &ContentStore,
        handle: &mut Handle<'_>,
        inode: &Inode,
        context: &RequestContext,
    ) -> Result<(BlockPlan, Vec<Arc<Inode>>)> {
        // A damaged area may hold more than fits when it is packed again.
        if self.after.area.length_in_inode() > inode.fields().xattr_area.len() {
            return Err(Error::NoSpace);
        }
        self.check_quota(fs, inode, context)?;
        let mut values = Vec::new();
        for (number, length) in self.before.value_inodes() {
            let value = value_inode::find(fs, inode, number, length)?;
            values.push(value);
        }
        let (old, new) = (&self.before.in_block, &self.after.in_block);
        let block = self.before.block;
        if new == old && (block.is_none() || !new.is_empty()) {
            return Ok((BlockPlan::Keep, values));
        }
        if new.is_empty() {
            return Ok((BlockPlan::Move(None), values));
        }
        if let Some(shared) = block::share(fs, handle, inode, new)? {
            return Ok((BlockPlan::Move(Some(shared)), values));
        }
        if let Some(block) = block
            && block::rewrite(fs, handle, inode, block, new)?
        {
            return Ok((BlockPlan::Keep, values));
        }
        let is_privileged = context.has(Capabilities::ADMINISTER);
        let reach = if is_privileged { Reach::Privileged } else { Reach::Common };
        let fresh = block::allocate(fs, handle, inode, reach)?;
        block::fill(fs, handle, inode, fresh, new)?;
        // Its entries are new references to the values that the old block refers to as well.
        for (number, _) in inodes_of(new) {
            if let Some(value) = values.iter().find(|value| value.number == number) {
                value_inode::add_reference(fs, handle, value)?;
            }
        }
        Ok((BlockPlan::Move(Some(fresh)), values))
    }

    /// Fails with `EDQUOT` if the owner may not use the space and inodes that the attributes now take in
    /// addition.
    fn check_quota(
        &self,
        fs: &ContentStore,
        inode: &Inode,
        context: &RequestContext,
    ) -> Result<()> {
        if !fs.quotas.is_any() {
            return Ok(());
        }
        let layout = fs.volume.layout();
        let (before, after) = (self.before.cost(layout), self.after.cost(layout));
        let is_first = self.before.block.is_none() && !self.after.in_block.is_empty();
        let block = if is_first { i64::from(layout.blocks_per_cluster()) } else { 0 };
        let sectors = (after.blocks + block - before.blocks) * layout.sectors_per_block() as i64;
        fs.quotas.check_attributes(fs, context, inode, sectors, after.inodes - before.inodes)
    }

    /// Drops the references of entries that are gone.
    fn change_references(
        &self,
        fs: &ContentStore,
        handle: &mut Handle<'_>,
        inode: &Inode,
        plan: &BlockPlan,
        values: &[Arc<Inode>],
        garbage: &mut ValueGarbage,
    ) -> Result<()> {
        let mut gone = missing(&self.before.area, &self.after.area);
        match (plan, self.before.block) {
            (BlockPlan::Keep, _) => {
                gone.extend(missing(&self.before.in_block, &self.after.in_block))
            }
            (BlockPlan::Move(_), Some(block)) => {
                if block::release(fs, handle, inode, block)? {
                    gone.extend(inodes_of(&self.before.in_block).iter().map(|&(number, _)| number));
                }
            }
            (BlockPlan::Move(_), None) => {}
        }
        for number in gone {
            let value = values
                .iter()
                .find(|value| value.number == number)
                .ok_or_else(|| mismatch(inode.number, self.before.block, number))?;
            if value_inode::drop_reference(fs, handle, value)? {
                garbage.add(Arc::clone(value));
            }
        }
        Ok(())
    }

    /// Writes the area, the block's number and the time.
    fn change_inode(
        &self,
        fs: &ContentStore,
        handle: &mut Handle<'_>,
        inode: &Inode,
    ) -> Result<()> {
        if !self.after.in_block.is_empty() || !self.after.area.is_empty() {
            fs.volume.ensure_feature(
                handle,
                |superblock| superblock.features().compat.contains(Compat::EXT_ATTR),
                |superblock| superblock.set_extended_attributes(),
            )?;
        }
        let now = fs.now();
        inode.update(fs, handle, |fields| {
            self.after.area.encode_in_inode(&mut fields.xattr_area).map_err(|_| Error::NoSpace)?;
            fields.disk.attribute_block = self.after.block;
            fields.disk.change_time = now;
            Ok(())
        })
    }
}

/// The inodes of the values whose entries in `before` are missing in `after`: one for each entry.
fn missing(before: &AttributeSet, after: &AttributeSet) -> Vec<InodeNumber> {
    let mut kept: Vec<_> = inodes_of(after);
    let is_gone =
        |value: &(InodeNumber, usize)| match kept.iter().position(|candidate| candidate == value) {
            Some(position) => {
                kept.swap_remove(position);
                false
            }
            None => true,
        };
    let mut gone = inodes_of(before);
    gone.retain(is_gone);
    gone.into_iter().map(|(number, _)| number).collect()
}
