//! The same image, bit for bit, from a directory, a tar of it and a layout of that.

use crate::fixture::{self, Level, has};
use crate::tars::read;
use drystone_blockdev::{BlockDevice, Existing, FileDevice};
use drystone_mkfs::build::{Builder, Ext4BuildOptions};
use drystone_mkfs::tree::FileTree;
use drystone_testkit::judges::have;
use std::path::Path;
use std::process::Command;

fn build(mut tree: FileTree, threads: usize, path: &Path) -> Vec<u8> {
    let options = Ext4BuildOptions::default().threads(threads);
    let builder = Builder::new(&mut tree, &options).unwrap();
    let device = FileDevice::create(path, builder.size_bytes(), Existing::Overwrite).unwrap();
    builder.write(&device, true, &()).unwrap();
    device.flush().unwrap();
    drop(device);
    std::fs::read(path).unwrap()
}

#[test]
fn directories_and_tars_give_the_same_bytes() {
    if !has("tar") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("tree");
    std::fs::create_dir(&directory).unwrap();
    fixture::make(&directory, Level::Pax);
    fixture::make_sparse(&directory);
    let archive = folder.path().join("tree.tar");
    let arguments = ["--format=posix", "--xattrs", "--xattrs-include=*", "--acls", "-S", "-C"];
    let mut command = Command::new("tar");
    command.args(arguments).arg(&directory).arg("-cf").arg(&archive).arg(".");
    assert!(command.status().unwrap().success());
    let image = folder.path().join("image");
    let expected = build(read(&directory), 1, &image);
    if have("e2fsck") {
        let output = Command::new("e2fsck").arg("-fn").arg(&image).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    for (source, threads) in [(&directory, 8), (&archive, 1), (&archive, 8)] {
        let found = build(read(source), threads, &image);
        let differs = found.iter().zip(&expected).position(|(left, right)| left != right);
        assert_eq!((found.len(), differs), (expected.len(), None), "{}", source.display());
    }
}
