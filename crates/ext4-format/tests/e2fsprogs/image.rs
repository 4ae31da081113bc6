//! An image made by `mke2fs`, opened through `debugfs`, judged by `e2fsck`.

use drystone_ext4_format::dir::{DirectoryLayout, DirectoryPlace};
use drystone_ext4_format::inode::Inode;
use drystone_ext4_format::superblock::Superblock;
use drystone_ext4_format::{ChecksumSeed, InodeNumber, LogicalBlock, PhysicalBlock};
use drystone_testkit::judges::have;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// Whether the tools are there; otherwise the skip is noted.
pub fn tools_available() -> bool {
    ["mke2fs", "debugfs", "e2fsck"].into_iter().all(have)
}

pub struct Image {
    folder: TempDir,
    path: PathBuf,
    file: fs::File,
    pub superblock: Superblock,
}

impl Image {
    /// Makes an image whose root holds what `fill` puts into a folder.
    pub fn make(options: &[&str], size: &str, fill: impl FnOnce(&Path)) -> Self {
        let folder = TempDir::new().unwrap();
        let tree = folder.path().join("tree");
        fs::create_dir(&tree).unwrap();
        fill(&tree);
        let path = folder.path().join("image");
        let mut command = Command::new("mke2fs");
        command
            .args(["-q", "-F", "-t", "ext4", "-d"])
            .arg(&tree)
            .args(options)
            .arg(&path)
            .arg(size);
        succeed(command.output().unwrap());
        Self::open(folder, path)
    }

    fn open(folder: TempDir, path: PathBuf) -> Self {
        let file = fs::File::options().read(true).write(true).open(&path).unwrap();
        let mut bytes = [0; 1024];
        file.read_exact_at(&mut bytes, 1024).unwrap();
        let superblock = Superblock::check(&bytes).unwrap();
        Self { folder, path, file, superblock }
    }

    /// Lets `e2fsck` change the image as the options say.
    pub fn repair(self, options: &str) -> Self {
        let output = Command::new("e2fsck").arg(options).arg(&self.path).output().unwrap();
        assert!(matches!(output.status.code(), Some(0 | 1)), "{}", text(&output));
        Self::open(self.folder, self.path)
    }

    /// Panics unless `e2fsck` finds nothing.
    pub fn judge(&self) {
        succeed(Command::new("e2fsck").arg("-fn").arg(&self.path).output().unwrap());
    }

    /// Runs one command of `debugfs`.
    pub fn debugfs(&self, command: &str) -> String {
        let output =
            Command::new("debugfs").args(["-R", command]).arg(&self.path).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs commands of `debugfs` that change the image.
    pub fn edit(&self, commands: &str) {
        let script = self.folder.path().join("script");
        fs::write(&script, commands).unwrap();
        let mut command = Command::new("debugfs");
        command.args(["-w", "-f"]).arg(&script).arg(&self.path);
        succeed(command.output().unwrap());
    }

    pub fn block_size(&self) -> usize {
        self.superblock.layout().block_size()
    }

    pub fn seed(&self) -> Option<ChecksumSeed> {
        self.superblock.layout().checksum_seed()
    }

    pub fn block(&self, block: PhysicalBlock) -> Vec<u8> {
        let mut bytes = vec![0; self.block_size()];
        self.file.read_exact_at(&mut bytes, block.get() * self.block_size() as u64).unwrap();
        bytes
    }

    pub fn write_block(&self, block: PhysicalBlock, bytes: &[u8]) {
        self.file.write_all_at(bytes, block.get() * self.block_size() as u64).unwrap();
    }

    /// The blocks of a file, which has to be small enough for an extent tree without nodes.
    pub fn blocks(&self, path: &str) -> Vec<PhysicalBlock> {
        let listed = self.debugfs(&format!("blocks {path}"));
        listed.split_whitespace().map(|word| PhysicalBlock::new(word.parse().unwrap())).collect()
    }

    pub fn number(&self, path: &str) -> InodeNumber {
        let listed = self.debugfs(&format!("stat {path}"));
        InodeNumber::new(word_after(&listed, "Inode:").parse().unwrap())
    }

    /// Where an inode's bytes are, and those bytes.
    pub fn inode_bytes(&self, path: &str) -> (u64, Vec<u8>) {
        let listed = self.debugfs(&format!("imap {path}"));
        let block: u64 = word_after(&listed, "at block").trim_end_matches(',').parse().unwrap();
        let offset = word_after(&listed, "offset").trim_start_matches("0x");
        let at = block * self.block_size() as u64 + u64::from_str_radix(offset, 16).unwrap();
        let mut bytes = vec![0; self.superblock.layout().inode_size()];
        self.file.read_exact_at(&mut bytes, at).unwrap();
        (at, bytes)
    }

    pub fn write_bytes(&self, at: u64, bytes: &[u8]) {
        self.file.write_all_at(bytes, at).unwrap();
    }

    pub fn inode(&self, path: &str) -> Inode {
        let (_, bytes) = self.inode_bytes(path);
        Inode::check(&bytes, self.number(path), self.superblock.layout()).unwrap()
    }

    /// How the blocks of a directory are laid out.
    pub fn directory_layout(&self, path: &str) -> DirectoryLayout {
        let layout = self.superblock.layout();
        DirectoryLayout {
            file_type: true,
            checksum: self.inode(path).seed(layout),
            encrypted: false,
            casefolded: false,
            inode_last: InodeNumber::new(layout.inodes_count()),
        }
    }

    pub fn dumpe2fs(&self, field: &str) -> u64 {
        let output = Command::new("dumpe2fs").arg("-h").arg(&self.path).output().unwrap();
        word_after(&text(&output), field).parse().unwrap()
    }
}

pub fn place(inode: InodeNumber, block: usize) -> DirectoryPlace {
    DirectoryPlace { inode, block: LogicalBlock::new(block as u32) }
}

fn word_after<'a>(text: &'a str, label: &str) -> &'a str {
    let at = text.find(label).unwrap_or_else(|| panic!("no {label:?} in {text}"));
    text[at + label.len()..].split_whitespace().next().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn succeed(output: Output) {
    assert!(output.status.success(), "{}", text(&output));
}
