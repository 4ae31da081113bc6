//! Seals: they compute the checksums of an inode's blocks when a commit freezes these.

use drystone_cache::Seal;
use drystone_ext4_format::dir::{self, DirectoryLayout};
use drystone_ext4_format::extent::{ExtentNodeMut, NodePlace};
use drystone_ext4_format::htree::{self, IndexKind};
use drystone_ext4_format::{InodeNumber, InodeSeed, PhysicalBlock};
use drystone_sync::Arc;

/// The seal of the blocks of a directory.
pub(super) fn directory(seed: InodeSeed) -> Arc<dyn Seal> {
    Arc::new(DirectorySeal { seed })
}

struct DirectorySeal {
    seed: InodeSeed,
}

impl Seal for DirectorySeal {
    fn seal(&self, _block: u64, bytes: &mut [u8], _: u64) {
        // Only the seed matters to a checksum.
        let layout = DirectoryLayout {
            file_type: true,
            checksum: Some(self.seed),
            encrypted: false,
            casefolded: false,
            inode_last: InodeNumber::new(u32::MAX),
        };
        match IndexKind::of(bytes) {
            Some(kind) => htree::seal(bytes, kind, &layout),
            None => dir::seal(bytes, &layout),
        }
    }
}

/// Computes the checksums of an inode's extent blocks when a commit freezes them.
struct ExtentSeal(InodeSeed);

impl Seal for ExtentSeal {
    fn seal(&self, block: u64, bytes: &mut [u8], _: u64) {
        let place = NodePlace::block(InodeNumber::new(0), PhysicalBlock::new(block));
        match ExtentNodeMut::reopen(bytes, place) {
            Ok(mut node) => node.seal(Some(self.0)),
            // Nodes are verified before they are changed, so this needs two owners of one block;
            // without its checksum the damage will be noticed.
            Err(error) => tracing::error!(%error, "an extent block can't be sealed"),
        }
    }
}

/// The seal of the blocks of an extent tree.
pub(super) fn extents(seed: InodeSeed) -> Arc<dyn Seal> {
    Arc::new(ExtentSeal(seed))
}
