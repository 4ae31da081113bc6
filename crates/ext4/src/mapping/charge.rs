//! Charges blocks to an inode: its sectors, and the usage of its owners.

use crate::content::ContentStore;
use crate::error::Result;
use crate::inode::Inode;
use drystone_ext4_format::layout::Layout;
use drystone_jbd2::Handle;

/// Blocks of nodes that a change allocated, less those it freed. A node takes a whole cluster.
#[derive(Default)]
pub(super) struct Charge {
    blocks: i64,
}

impl Charge {
    pub fn node_made(&mut self, layout: &Layout) {
        self.blocks += i64::from(layout.blocks_per_cluster());
    }

    pub fn node_freed(&mut self, layout: &Layout) {
        self.blocks -= i64::from(layout.blocks_per_cluster());
    }

    pub fn blocks(&self) -> i64 {
        self.blocks
    }
}

/// Adds `blocks`, which may be negative, to the use of the inode and its owners.
pub(crate) fn charge_blocks(
    fs: &ContentStore,
    handle: &mut Handle<'_>,
    inode: &Inode,
    blocks: i64,
) -> Result<()> {
    if blocks == 0 {
        return Ok(());
    }
    let sectors = blocks * fs.volume.layout().sectors_per_block() as i64;
    inode.update(fs, handle, |fields| {
        let disk = &mut fields.disk;
        // Saturates, because a wrong count in the image must not prevent the deletion of a file.
        disk.sectors = disk.sectors.saturating_add_signed(sectors);
        Ok(())
    })?;
    fs.quotas.space_changed(fs, handle, inode, sectors)
}
