//! Images made by the e2fsprogs tools, for tests.

use drystone_ext4_format::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES, Superblock};
use drystone_ext4_format::{GroupNumber, InodeNumber, PhysicalBlock, group, inode, layout};
use drystone_testkit::skip::{Prerequisite, skip};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// An image in a directory that is removed with it.
pub struct Image {
    directory: TempDir,
    file: File,
    pub superblock: Superblock,
}

impl Image {
    /// Makes an image; nothing, after a note of the skip, where there is no `mke2fs`.
    pub fn make(arguments: &str, size: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        let output = match Command::new("mke2fs")
            .args(["-q", "-F"])
            .args(arguments.split_whitespace())
            .arg(&path)
            .arg(size)
            .output()
        {
            Ok(output) => output,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                skip(Prerequisite::Program("mke2fs".into()), "an image");
                return None;
            }
            Err(error) => panic!("mke2fs: {error}"),
        };
        let messages = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "mke2fs {arguments}: {messages}");
        Some(Self::open(directory))
    }

    fn open(directory: TempDir) -> Self {
        let file = File::open(directory.path().join("image")).unwrap();
        let mut bytes = [0; SUPERBLOCK_BYTES];
        file.read_exact_at(&mut bytes, SUPERBLOCK_OFFSET_BYTES).unwrap();
        let superblock = Superblock::check(&bytes).unwrap();
        assert_eq!(superblock.encode(), bytes);
        Self { directory, file, superblock }
    }

    /// Runs commands of `debugfs` that change the image.
    pub fn change(self, commands: &[&str]) -> Self {
        let script = self.directory.path().join("script");
        std::fs::write(&script, commands.join("\n")).unwrap();
        self.tool("debugfs", &["-w", "-f", script.to_str().unwrap()]);
        let Self { directory, .. } = self;
        Self::open(directory)
    }

    /// The output of a tool on the image.
    pub fn tool(&self, name: &str, arguments: &[&str]) -> String {
        let output = Command::new(name).args(arguments).arg(self.path()).output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("image")
    }

    pub fn layout(&self) -> &layout::Layout {
        self.superblock.layout()
    }

    pub fn bytes(&self, block: PhysicalBlock, offset: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let start = block.get() * self.layout().block_size() as u64 + offset as u64;
        self.file.read_exact_at(&mut bytes, start).unwrap();
        bytes
    }

    pub fn block(&self, block: PhysicalBlock) -> Vec<u8> {
        self.bytes(block, 0, self.layout().block_size())
    }

    pub fn descriptor(&self, group: GroupNumber) -> group::GroupDescriptor {
        let (block, offset) = self.layout().descriptor_location(group).unwrap();
        let bytes = self.bytes(block, offset, self.layout().descriptor_size());
        let descriptor = group::GroupDescriptor::check(&bytes, group, self.layout()).unwrap();
        let mut again = vec![0; bytes.len()];
        descriptor.encode_into(&mut again, group, self.layout());
        assert_eq!(again, bytes, "group {group}");
        descriptor
    }

    pub fn inode_bytes(&self, number: InodeNumber) -> Vec<u8> {
        let group = self.layout().group_of_inode(number).unwrap();
        let table = self.descriptor(group).inode_table;
        let (block, offset) = self.layout().inode_location(number, table).unwrap();
        self.bytes(block, offset, self.layout().inode_size())
    }

    pub fn inode(&self, number: InodeNumber) -> inode::Inode {
        inode::Inode::check(&self.inode_bytes(number), number, self.layout()).unwrap()
    }
}
