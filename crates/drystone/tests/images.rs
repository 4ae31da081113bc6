//! How images are opened, used and closed through the library.
#![allow(clippy::unwrap_used, reason = "a test")]

use drystone::fs::FileTimes;
use drystone::{
    CreateOptions, ErrorCause, File, FileSystemKind, Fs, Image, Information, MemoryDevice, Region,
    mkfs,
};
use drystone_blockdev::BlockDevice;
use drystone_sync::Arc;
use drystone_testkit::model::{Configuration, MemoryFileSystem};
use std::io::{Read, Write};
use std::time::{Duration, UNIX_EPOCH};

fn is_clean(name: &std::path::Path) -> bool {
    match Information::read(name).unwrap() {
        Information::Ext4(information) => information.state == ["clean"],
        Information::Nilfs2(information) => information.state == ["clean"],
    }
}

#[test]
fn dropping_an_image_closes_it() {
    let folder = tempfile::tempdir().unwrap();
    for kind in [FileSystemKind::Ext4, FileSystemKind::Nilfs2] {
        let name = folder.path().join(kind.name());
        let image = Image::create(&name, &CreateOptions::new(256 << 20).kind(kind)).unwrap();
        assert_eq!(image.kind(), kind);
        image.fs().write("/a", "b").unwrap();
        let again = Image::open(&name).unwrap_err();
        assert!(matches!(again.cause(), ErrorCause::InUse));
        assert_eq!((again.operation(), again.path()), (Some("open"), Some(&*name)));
        drop(image);
        assert!(is_clean(&name), "{kind}");
        assert_eq!(Image::open(&name).unwrap().fs().read("/a").unwrap(), b"b");
        let refused = Image::create(&name, &CreateOptions::new(256 << 20)).unwrap_err();
        assert!(matches!(refused.cause(), ErrorCause::HoldsData));
    }
}

#[test]
fn shared_handles_keep_an_image_open() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("a.img");
    let image = Image::create(&name, &CreateOptions::new(16 << 20)).unwrap();
    let fs = image.shared_fs();
    fn is_shared<T: Send + Sync + 'static>(_: &T) {}
    is_shared(&fs);
    let mut file = fs.create_new("/a").unwrap();
    is_shared::<File<'static>>(&file);
    drop(fs);
    let closed = image.close().unwrap_err();
    assert!(matches!(closed.cause(), ErrorCause::StillUsed));
    file.write_all(b"later").unwrap();
    drop(file);
    assert!(is_clean(&name));
    assert_eq!(Image::open(&name).unwrap().fs().read("/a").unwrap(), b"later");
}

#[test]
fn a_region_of_a_device_is_a_device() {
    let whole: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(32 << 20));
    let part = || Region::new(Arc::clone(&whole), 1 << 20, 16 << 20).unwrap();
    mkfs::make(&part(), &mkfs::MkfsOptions::new(16 << 20, [1; 16], [2; 4], 1), true).unwrap();
    let image = Image::open_device(Arc::new(part())).unwrap();
    image.fs().create_dir_all("/a/b/c").unwrap();
    image.close().unwrap();
    let image = Image::options().read_only(true).open_device(Arc::new(part())).unwrap();
    assert!(image.fs().metadata("/a/b/c").unwrap().is_dir());
    let refused = image.fs().remove_dir("/a/b/c").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    assert!(refused.to_string().starts_with("cannot remove '/a/b/c': "), "{refused}");
}

#[test]
fn handles_give_their_references_back() {
    let model = MemoryFileSystem::new(Configuration::default());
    let fs = Fs::over(&model);
    fs.create_dir_all("/d/e").unwrap();
    fs.symlink("../f", "/d/link").unwrap();
    fs.write("/f", "content").unwrap();
    fs.hard_link("/f", "/d/g").unwrap();
    fs.copy("/d/link", "/h").unwrap();
    let time = UNIX_EPOCH + Duration::from_secs(7);
    fs.set_times("/h", FileTimes::new().set_modified(time)).unwrap();
    assert_eq!(fs.metadata("/h").unwrap().modified().unwrap(), time);
    let mut text = String::new();
    fs.open("/h").unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "content");
    let paths: Vec<_> = fs.walk("/").map(|entry| entry.unwrap().into_path()).collect();
    assert_eq!(
        paths,
        ["/", "/d", "/d/e", "/d/g", "/d/link", "/f", "/h"].map(std::path::PathBuf::from)
    );
    assert_eq!(fs.canonicalize("/d/./e/../link").unwrap().to_str(), Some("/f"));
    fs.rename("/h", "/d/e/h").unwrap();
    for (path, kind) in [("/d/no", "NotFound"), ("/f/x", "NotADirectory"), ("/d", "IsADirectory")] {
        assert_eq!(format!("{:?}", fs.read(path).unwrap_err().kind()), kind);
    }
    let mut walk = fs.walk("/d");
    walk.next().unwrap().unwrap();
    drop(walk);
    let listed = fs.read_dir("/d").unwrap().next().unwrap().unwrap();
    assert!(listed.metadata().is_ok());
    drop(listed);
    fs.remove_dir_all("/d").unwrap();
    assert!(!fs.exists("/d").unwrap());
    let user = fs.as_user(1000, 1000, &[]);
    assert_eq!(user.write("/f", "").unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
    drop(fs);
    drop(user);
    assert_eq!(model.references(), 0);
}
