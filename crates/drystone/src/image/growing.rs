//! Images that grow while they are open: the engine's growth, planned by the code that resizes images.

use super::Image;
use crate::Result;
use drystone_blockdev::DeviceError;
use drystone_ext4::{Ext4, GrowthPlanner, PlannedGrowth};
use drystone_reshape::{Growth, NewSize, Refusal, ReshapeError, Resized, plan_growth};
use drystone_vfs::{Errno, FileSystem};

impl Image {
    /// What the image consists of now; none for NILFS2.
    pub fn shape(&self) -> Option<ImageShape> {
        self.open.engine().and_then(|engine| engine.ext4("block groups")).ok().map(shape_of)
    }

    /// Makes the image larger, while other threads use it. A regular file grows with it; a partition or a block
    /// device must be large enough. The image gets as much of the size as it can use.
    ///
    /// A crash leaves the old size, the new one, or the size after one of the steps.
    ///
    /// # Errors
    ///
    /// [`ErrorCause::Lacks`](crate::ErrorCause::Lacks) for NILFS2; `EINVAL` for a size that is smaller than that
    /// of the image, `ENOSPC` if the device can't be as large; the image can't be changed, is frozen or has
    /// errors, or can't be written.
    pub fn grow(&self, size: NewSize) -> Result<Resized> {
        self.run("grow", |engine| {
            let engine = engine.ext4("way to grow while it is open")?;
            let before = shape_of(engine);
            let size_before = before.blocks * u64::from(before.block_size);
            let size_bytes = match size {
                NewSize::Exactly(bytes) => bytes,
                NewSize::More(bytes) => size_before.saturating_add(bytes),
                // The engine refuses both.
                NewSize::Less(bytes) => size_before.saturating_sub(bytes),
                NewSize::Minimum => 0,
            };
            FileSystem::grow(engine, size_bytes)?;
            let after = shape_of(engine);
            Ok(Resized {
                block_size: after.block_size,
                blocks_before: before.blocks,
                blocks: after.blocks,
                groups: after.groups,
                inodes: after.inodes,
                ..Resized::default()
            })
        })
    }
}

/// What an image consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImageShape {
    /// Bytes in a block.
    pub block_size: u32,
    /// Blocks, metadata among them.
    pub blocks: u64,
    /// Block groups.
    pub groups: u32,
    /// Inodes, in use or not.
    pub inodes: u32,
}

fn shape_of(engine: &Ext4) -> ImageShape {
    let layout = engine.layout();
    ImageShape {
        // At most 64 KiB.
        block_size: layout.block_size() as u32,
        blocks: layout.blocks_count(),
        groups: layout.group_count(),
        inodes: layout.inodes_count(),
    }
}

/// Plans for the engine.
pub(super) const PLANNER: GrowthPlanner = GrowthPlanner {
    usable_blocks: |superblock, size_bytes| {
        drystone_reshape::usable_blocks(superblock, size_bytes).map_err(as_call)
    },
    plan: |device, superblock, size_bytes| {
        let planned = plan_growth(device, superblock, size_bytes).map_err(as_call)?;
        Ok(planned.map(|Growth { superblock, blocks, copies }| PlannedGrowth {
            superblock,
            blocks,
            copies,
        }))
    },
};

/// The error that a system call would give, with the reason.
fn as_call(error: ReshapeError) -> drystone_vfs::Error {
    let errno = match &error {
        ReshapeError::Device(DeviceError::NoSpace { .. })
        | ReshapeError::Refused(Refusal::NoSpace { .. } | Refusal::Truncated { .. }) => {
            Errno::ENOSPC
        }
        ReshapeError::Device(_) => Errno::EIO,
        ReshapeError::Format(_) | ReshapeError::Refused(Refusal::HasErrors) => Errno::EUCLEAN,
        _ => Errno::EINVAL,
    };
    drystone_vfs::Error::with_detail(errno, error.to_string())
}
