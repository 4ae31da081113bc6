//! Extended attributes of symbolic links, and of what they lead to.
#![allow(clippy::unwrap_used, reason = "a test")]

use drystone::vfs::Errno;
use drystone::{CreateOptions, Image, check_image, fsck};
use std::io::ErrorKind;

#[test]
fn a_link_has_attributes_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("disk.img");
    let image = Image::create(&name, &CreateOptions::new(16 << 20)).unwrap();
    let fs = image.fs();
    fs.create_dir("/d").unwrap();
    fs.write("/d/file", "").unwrap();
    fs.symlink("file", "/d/link").unwrap();
    // The directories on the way are found through links all the same.
    fs.symlink("d", "/way").unwrap();
    fs.set_xattr("/way/link", "trusted.a", b"of the file").unwrap();
    fs.set_lxattr("/way/link", "trusted.a", b"of the link").unwrap();
    fs.set_lxattr("/way/link", "security.b", b"").unwrap();
    assert_eq!(fs.xattr("/d/file", "trusted.a").unwrap().unwrap(), b"of the file");
    assert_eq!(fs.lxattr("/d/file", "trusted.a").unwrap().unwrap(), b"of the file");
    assert_eq!(fs.lxattr("/d/link", "trusted.a").unwrap().unwrap(), b"of the link");
    let mut names = fs.list_lxattrs("/d/link").unwrap();
    names.sort();
    assert_eq!(names, ["security.b", "trusted.a"]);
    assert_eq!(fs.list_xattrs("/d/link").unwrap(), ["trusted.a"]);
    fs.remove_lxattr("/d/link", "trusted.a").unwrap();
    assert_eq!(fs.lxattr("/d/link", "trusted.a").unwrap(), None);
    assert_eq!(fs.xattr("/d/link", "trusted.a").unwrap().unwrap(), b"of the file");
    image.close().unwrap();
    let report = check_image(&name, &fsck::CheckOptions::default(), &mut |_| {}).unwrap();
    assert!(report.is_clean(), "{:?}", report.problems);
}

#[test]
fn errors_are_those_of_linux() {
    let image = Image::in_memory(&CreateOptions::new(16 << 20)).unwrap();
    let fs = image.fs();
    fs.symlink("nothing", "/link").unwrap();
    let refused = fs.set_lxattr("/link", "user.a", b"x").unwrap_err();
    assert_eq!(refused.errno(), Errno::EPERM);
    assert_eq!(refused.to_string(), "cannot set an attribute of '/link': operation not permitted");
    let missing = fs.remove_lxattr("/link", "trusted.a").unwrap_err();
    assert_eq!(missing.errno(), Errno::ENODATA);
    assert_eq!(fs.xattr("/link", "trusted.a").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(fs.lxattr("/none", "trusted.a").unwrap_err().kind(), ErrorKind::NotFound);
}
