//! All attributes of one inode, read from their places to be changed.

use super::block;
use crate::content::ContentStore;
use crate::error::Result;
use crate::inode::{Fields, Inode};
use drystone_ext4_format::layout::Layout;
use drystone_ext4_format::xattr::{
    AttributePlace, AttributeSet, AttributeValue, AttributesBlock, Value, XattrView,
};
use drystone_ext4_format::{InodeNumber, PhysicalBlock};

/// The attributes of one inode.
#[derive(Clone, Debug)]
pub(super) struct StoredAttributes {
    /// Those in the inode's record.
    pub area: AttributeSet,
    /// Those in a block.
    pub in_block: AttributeSet,
    /// The number of the block.
    pub block: Option<PhysicalBlock>,
}

/// What attributes cost the owner of an inode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AttributeCost {
    /// Blocks, in whole clusters.
    pub blocks: i64,
    /// Inodes that hold values.
    pub inodes: i64,
}

impl StoredAttributes {
    /// Reads all attributes. The `xattrs` lock is held.
    pub fn load(fs: &ContentStore, inode: &Inode) -> Result<StoredAttributes> {
        let (area, block) = {
            let fields = inode.fields();
            (area_of(&fields)?, fields.disk.attribute_block)
        };
        let in_block = match block {
            None => AttributeSet::new(),
            Some(number) => {
                let buffer = block::load(fs, inode, number)?;
                let place = AttributePlace { inode: inode.number, block };
                let bytes = buffer.read();
                AttributeSet::read(&AttributesBlock::check(&bytes, place)?.attributes())
            }
        };
        Ok(StoredAttributes { area, in_block, block })
    }

    /// The entries whose values are in inodes: the inode and the value's length.
    pub fn value_inodes(&self) -> Vec<(InodeNumber, usize)> {
        let mut found = inodes_of(&self.area);
        found.extend(inodes_of(&self.in_block));
        found
    }

    /// What the attributes cost the inode's owner. A value in an inode counts for each inode that refers
    /// to it, shared or not.
    pub fn cost(&self, layout: &Layout) -> AttributeCost {
        let values = self.value_inodes();
        let cluster = i64::from(layout.blocks_per_cluster());
        let blocks_of = |&(_, length): &(InodeNumber, usize)| {
            let blocks = length.div_ceil(layout.block_size()) as u64;
            layout.clusters_for(blocks) as i64 * cluster
        };
        let own = if self.block.is_some() { cluster } else { 0 };
        AttributeCost {
            blocks: own + values.iter().map(blocks_of).sum::<i64>(),
            inodes: values.len() as i64,
        }
    }
}

/// The attributes in an inode's record.
fn area_of(fields: &Fields) -> Result<AttributeSet> {
    let place = AttributePlace { inode: fields.disk.number, block: None };
    Ok(AttributeSet::read(&XattrView::check_in_inode(&fields.xattr_area, place)?))
}

/// The inodes that hold values of a set, with the lengths of the values.
pub(super) fn inodes_of(set: &AttributeSet) -> Vec<(InodeNumber, usize)> {
    let value = |value: &AttributeValue| match value {
        AttributeValue::Inline(_) => None,
        AttributeValue::Inode { inode, length, .. } => Some((*inode, *length as usize)),
    };
    set.iter().filter_map(|(_, stored)| value(stored)).collect()
}

/// How many inodes hold values of this one's attributes. The `xattrs` lock is held.
pub(crate) fn value_inodes(fs: &ContentStore, inode: &Inode) -> Result<u64> {
    if !inode.fields().has_xattrs() {
        return Ok(0);
    }
    let mut count = 0;
    super::look(fs, inode, |attributes| -> Option<()> {
        count +=
            attributes.iter().filter(|entry| matches!(entry.value, Value::Inode { .. })).count()
                as u64;
        None
    })?;
    Ok(count)
}
