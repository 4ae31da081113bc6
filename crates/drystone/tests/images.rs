//! How images are opened, used and closed through the library.
#![allow(clippy::unwrap_used, reason = "a test")]

use drystone::fs::FileTimes;
use drystone::{
    CreateOptions, ErrorCause, File, FileSystemKind, Fs, Image, Information, MemoryDevice,
    OpenOptions, Region, mkfs,
};
use drystone_blockdev::BlockDevice;
use drystone_sync::{Arc, thread};
use drystone_testkit::model::{Configuration, MemoryFileSystem};
use std::io::{Read, Seek, SeekFrom, Write};
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

/// Against the standard library: what one handle does, the other sees.
#[test]
fn clones_of_a_file_share_its_position() {
    let model = MemoryFileSystem::new(Configuration::default());
    let image = Image::in_memory(&CreateOptions::new(16 << 20)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let options = OpenOptions::new().read(true).write(true).create(true);
    for fs in [Fs::over(&model), image.fs()] {
        let file = fs.open_with("/file", options).unwrap();
        let found = use_clones(&file, &file.try_clone().unwrap());
        fs.remove_file("/file").unwrap();
        // It is open, and is so once more.
        let clone = file.try_clone().unwrap();
        assert_eq!(clone.path(), std::path::Path::new("/file"));
        drop(file);
        (&clone).seek(SeekFrom::Start(0)).unwrap();
        assert_eq!(std::io::read_to_string(&clone).unwrap(), found.0);
        let path = folder.path().join("file");
        let mut options = std::fs::File::options();
        let file = options.read(true).write(true).create(true).truncate(true).open(path).unwrap();
        assert_eq!(found, use_clones(&file, &file.try_clone().unwrap()));
    }
    assert_eq!(model.references(), 0);
    let fs = image.fs();
    fs.write("/file", "content").unwrap();
    let reader = fs.open("/file").unwrap().try_clone().unwrap();
    let refused = (&reader).write(b"x").unwrap_err();
    assert_eq!(refused.to_string(), "cannot write '/file': bad file descriptor");
    let appended = fs.open_with("/file", OpenOptions::new().append(true)).unwrap();
    let clone = appended.try_clone().unwrap();
    (&clone).write_all(b", more").unwrap();
    assert_eq!(fs.read("/file").unwrap(), b"content, more");
}

/// The content, and positions on the way.
fn use_clones<F>(first: &F, second: &F) -> (String, Vec<u64>)
where
    for<'f> &'f F: Read + Write + Seek,
{
    let mut positions = Vec::new();
    let (mut first, mut second) = (first, second);
    first.write_all(b"one, ").unwrap();
    positions.push(second.stream_position().unwrap());
    second.write_all(b"two, ").unwrap();
    first.write_all(b"three").unwrap();
    positions.push(first.seek(SeekFrom::Current(-8)).unwrap());
    let mut word = [0; 3];
    second.read_exact(&mut word).unwrap();
    positions.push(first.stream_position().unwrap());
    positions.extend(word.map(u64::from));
    second.seek(SeekFrom::Start(0)).unwrap();
    (std::io::read_to_string(first).unwrap(), positions)
}

/// A clone that is made while others read takes nothing from them.
#[test]
fn clones_are_made_while_the_file_is_read() {
    const BYTES: usize = 100_000;
    let image = Image::in_memory(&CreateOptions::new(16 << 20)).unwrap();
    let fs = image.fs();
    fs.write("/file", vec![1; BYTES]).unwrap();
    let file = fs.open("/file").unwrap();
    let read_all = |mut file: &File<'_>| {
        let (mut read, mut buffer) = (0, [0; 100]);
        loop {
            match file.read(&mut buffer).unwrap() {
                0 => return read,
                more => read += more,
            }
        }
    };
    let read: usize = thread::scope(|scope| {
        let own = scope.spawn(|| read_all(&file));
        let clones = [(); 3].map(|()| {
            scope.spawn(|| {
                let clone = file.try_clone().unwrap();
                read_all(&clone)
            })
        });
        let clones = clones.into_iter().map(|thread| thread.join().unwrap());
        clones.sum::<usize>() + own.join().unwrap()
    });
    assert_eq!(read, BYTES);
}

/// Otherwise the image would be copied into itself, and grow while it is read.
#[test]
fn a_tree_that_holds_the_image_is_copied_without_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a"), "b").unwrap();
    let name = folder.path().join("disk.img");
    let image = Image::create(&name, &CreateOptions::new(16 << 20)).unwrap();
    for fs in [image.fs(), image.shared_fs().with_umask(0)] {
        let summary = fs.copy_in(folder.path(), "/copy").unwrap();
        assert_eq!((summary.files, summary.not_kept), (1, 1));
        assert!(!fs.exists("/copy/disk.img").unwrap());
        fs.remove_dir_all("/copy").unwrap();
    }
    image.close().unwrap();
}
