//! An image to work on.

use drystone_blockdev::MemoryDevice;
use drystone_ext4::{Ext4, MountOptions};
use drystone_mkfs::{JournalSize, MkfsOptions};
use drystone_sync::Arc;
use drystone_vfs::{FileSystem, InodeNumber, NewNode, RequestContext};
use std::time::Duration;

/// A mounted image, and the context of the operations.
pub struct Bench {
    pub fs: Ext4,
    pub context: RequestContext,
}

impl Bench {
    /// An empty image in memory with mkfs's features, and room for so many files.
    pub fn new(files: u32) -> Bench {
        let size_bytes = (1 << 30) + u64::from(files) * 4096;
        let device = Arc::new(MemoryDevice::new(size_bytes));
        let mut options = MkfsOptions::new(size_bytes, [7; 16], [1, 2, 3, 4], 1_700_000_000);
        options.inodes = Some(files + 65_536);
        // Only the benchmark of commits commits.
        options.journal_size = JournalSize::Bytes(256 << 20);
        drystone_mkfs::make(&*device, &options, true).expect("an image is made");
        let options = MountOptions::default()
            .commit_interval(Duration::from_secs(86_400))
            .memory_budget_bytes(1 << 30);
        let fs = Ext4::open(device, options).expect("a new image opens");
        Bench { fs, context: RequestContext::superuser() }
    }

    /// Makes a directory in the root.
    pub fn directory(&self, name: &[u8]) -> InodeNumber {
        self.fs
            .create(&self.context, self.fs.root(), name, NewNode::Directory, 0o755)
            .expect("a directory is made")
            .inode
    }

    /// Makes an empty file and forgets it, as `open` and `close` do.
    pub fn file(&self, parent: InodeNumber, name: &[u8]) -> InodeNumber {
        let inode = self
            .fs
            .create(&self.context, parent, name, NewNode::Regular, 0o644)
            .expect("a file is made")
            .inode;
        self.fs.forget(inode, 1);
        inode
    }

    /// Makes a file that stays open.
    pub fn open_file(&self, name: &[u8]) -> InodeNumber {
        self.fs
            .create(&self.context, self.fs.root(), name, NewNode::Regular, 0o644)
            .expect("a file is made")
            .inode
    }
}

/// Writes the name of file number `number` over the buffer, without allocating.
pub fn name(buffer: &mut [u8; 16], number: u64) -> &[u8] {
    buffer.copy_from_slice(b"file.00000000000");
    let (mut rest, mut place) = (number, buffer.len());
    while rest > 0 {
        place -= 1;
        buffer[place] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    buffer
}
