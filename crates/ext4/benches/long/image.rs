//! Images in files, and files in images.

use drystone_blockdev::{Existing, FileDevice, OpenMode};
use drystone_ext4::{Ext4, MountOptions};
use drystone_mkfs::MkfsOptions;
use drystone_sync::Arc;
use drystone_vfs::{FileSystem, InodeNumber, NewNode, RequestContext};
use std::path::{Path, PathBuf};
use std::process::Command;

/// An image in a file, which is removed when this is dropped.
pub struct Image {
    path: PathBuf,
}

impl Image {
    /// A new image with mkfs's features.
    pub fn new(name: &str, size_bytes: u64, inodes: u32) -> Image {
        Image::make(name, size_bytes, inodes, None)
    }

    /// A new image with inodes of another size than mkfs's.
    pub fn with_inode_size(name: &str, size_bytes: u64, inodes: u32, inode_bytes: u16) -> Image {
        Image::make(name, size_bytes, inodes, Some(inode_bytes))
    }

    fn make(name: &str, size_bytes: u64, inodes: u32, inode_bytes: Option<u16>) -> Image {
        let shared = Path::new("/dev/shm");
        let directory = match std::env::var_os("DRYSTONE_BENCH_DIRECTORY") {
            Some(directory) => PathBuf::from(directory),
            None if shared.is_dir() => shared.to_owned(),
            None => std::env::temp_dir(),
        };
        let path = directory.join(format!("drystone-{name}-{}.img", std::process::id()));
        let device = FileDevice::create(&path, size_bytes, Existing::Overwrite)
            .expect("the directory for images is writable");
        let mut options = MkfsOptions::new(size_bytes, [7; 16], [1, 2, 3, 4], 1_700_000_000);
        options.inodes = Some(inodes);
        options.inode_size = inode_bytes;
        drystone_mkfs::make(&device, &options, true).expect("an image is made");
        Image { path }
    }

    pub fn open(&self) -> Ext4 {
        self.open_with(MountOptions::default())
    }

    pub fn open_with(&self, options: MountOptions) -> Ext4 {
        let device = FileDevice::open(&self.path, OpenMode::ReadWrite).expect("the image is there");
        Ext4::open(Arc::new(device), options).expect("a sound image opens")
    }

    /// Asks e2fsck.
    pub fn check(&self) -> Result<(), String> {
        let mut command = Command::new("e2fsck");
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/sbin:/sbin")).arg("-fn").arg(&self.path);
        match command.output() {
            Err(error) => println!("  not checked: e2fsck: {error}"),
            Ok(output) if output.status.success() => println!("  e2fsck -fn: clean"),
            Ok(output) => return Err(String::from_utf8_lossy(&output.stdout).into_owned()),
        }
        Ok(())
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Makes a directory.
pub fn directory(fs: &Ext4, parent: InodeNumber, name: &str) -> InodeNumber {
    let context = RequestContext::superuser();
    fs.create(&context, parent, name.as_bytes(), NewNode::Directory, 0o755)
        .expect("there is room")
        .inode
}

/// Makes an empty file and forgets it.
pub fn file(fs: &Ext4, context: &RequestContext, parent: InodeNumber, number: u64) {
    let mut name = [0; 16];
    let made = fs.create(context, parent, write_name(&mut name, number), NewNode::Regular, 0o644);
    fs.forget(made.expect("there is room").inode, 1);
}

/// The name of file number `number`, without allocating.
pub fn write_name(buffer: &mut [u8; 16], number: u64) -> &[u8] {
    buffer.copy_from_slice(b"file.00000000000");
    let (mut rest, mut place) = (number, buffer.len());
    while rest > 0 {
        place -= 1;
        buffer[place] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    buffer
}
