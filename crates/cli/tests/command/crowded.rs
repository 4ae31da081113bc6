//! Several mounts on one directory: each command and signal reaches the server that it means.

use crate::mounting::Mounting;
use crate::support::tool;
use drystone_sync::thread;
use drystone_testkit::skip;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// The images of the mounts that run here, and what is known of them.
fn running(mounting: &Mounting) -> Vec<(String, serde_json::Value)> {
    let folder = mounting.fixture.path("").canonicalize().unwrap();
    let mounts = mounting.line("mounts --json").json_lines().into_iter();
    let mounts = mounts.filter_map(|mount| {
        let image = mount["image"].as_str()?.strip_prefix(folder.to_str()?)?;
        Some((image.trim_start_matches('/').to_owned(), mount))
    });
    let mut mounts: Vec<_> = mounts.collect();
    mounts.sort_by(|(a, _), (b, _)| a.cmp(b));
    mounts
}

/// Several mounts on `mnt`, each but the last in use and made to disappear.
struct Crowd {
    mounting: Mounting,
    files: Vec<File>,
}

impl Crowd {
    fn new(images: &[&str]) -> Option<Crowd> {
        let mounting = Mounting::new()?;
        let mut files = Vec::new();
        for (number, image) in images.iter().enumerate() {
            mounting.line(&format!("mkfs {image} --size 8M -q")).good();
            // Its root is root's.
            mounting.line(&format!("chmod 777 {image}:/")).good();
            if number > 0 {
                mounting.line("umount --lazy mnt").good();
            }
            mounting.line(&format!("mount {image} mnt")).good();
            files.push(File::create(mounting.path("open")).unwrap());
        }
        files.pop();
        Some(Crowd { mounting, files })
    }

    /// Ends the mounts that have disappeared.
    fn finish(self, images: &[&str]) {
        for mut file in self.files {
            file.write_all(b"written").unwrap();
        }
        for _ in 0..200 {
            if running(&self.mounting).is_empty() {
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
        for image in images {
            self.mounting.fixture.expect_sound_image(image);
            let content = self.mounting.line(&format!("cat {image}:/open")).good();
            assert_eq!(content, "written", "{image}");
        }
    }
}

#[test]
fn umount_and_remount_mean_the_mount_that_is_seen() {
    let Some(crowd) = Crowd::new(&["a.img", "b.img", "c.img", "d.img"]) else { return };
    let mounting = &crowd.mounting;
    let device = fs::metadata(mounting.fixture.path("mnt")).unwrap().dev();
    let is_seen = |status: &serde_json::Value| {
        status["device"]["minor"].as_u64() == Some(u64::from(rustix::fs::minor(device)))
    };
    assert!(running(mounting).iter().all(|(image, status)| is_seen(status) == (image == "d.img")));
    if skip::is_root("a change of a mount") {
        mounting.line("mount mnt -o remount,ro").good();
        let modes = running(mounting).into_iter().map(|(_, status)| status["mode"].clone());
        assert_eq!(modes.collect::<Vec<_>>(), ["rw", "rw", "rw", "ro"]);
    }
    // It would wait forever for one of the others.
    mounting.unmount().good();
    mounting.fixture.expect_sound_image("d.img");
    let images: Vec<_> = running(mounting).into_iter().map(|(image, _)| image).collect();
    assert_eq!(images, ["a.img", "b.img", "c.img"]);
    crowd.finish(&["a.img", "b.img", "c.img"]);
}

/// Paths are bytes.
#[test]
fn paths_that_are_no_text_are_mounted_and_unmounted() {
    let Some(mounting) = Mounting::new() else { return };
    let [image, directory] = [OsStr::from_bytes(b"i\xff"), OsStr::from_bytes(b"m\xfe n")];
    fs::rename(mounting.fixture.path("disk.img"), mounting.fixture.path(image)).unwrap();
    fs::create_dir(mounting.fixture.path(directory)).unwrap();
    let run = |words: &[&OsStr]| mounting.fixture.run(words);
    run(&["mount".as_ref(), image, directory]).good();
    let hosts = mounting.fixture.path(directory).join("etc/hosts");
    assert_eq!(fs::read(&hosts).unwrap(), b"etc/hosts");
    if skip::is_root("a change of a mount") {
        let words = ["mount".as_ref(), directory, "-o".as_ref(), "remount,ro".as_ref()];
        run(&words).good();
    }
    let mounts = mounting.line("mounts --json").json_lines();
    let bytes = directory.as_bytes();
    let is_it = |mount: &&serde_json::Value| {
        let found = mount["directory_bytes"].as_array().into_iter().flatten();
        found
            .rev()
            .zip(bytes.iter().rev())
            .filter(|(a, b)| a.as_u64() == Some(u64::from(**b)))
            .count()
            == bytes.len()
    };
    assert!(mounts.iter().any(|mount| is_it(&mount)));
    run(&["umount".as_ref(), directory]).good();
    assert!(!hosts.exists());
    // The server takes care of it on a signal, too.
    run(&["mount".as_ref(), image, directory]).good();
    let mounts = mounting.line("mounts --json").json_lines();
    let server = mounts.iter().find(is_it).unwrap()["process"].as_i64().unwrap();
    kill_process(Pid::from_raw(server as i32).unwrap(), Signal::TERM).unwrap();
    for _ in 0..200 {
        if !hosts.exists() {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    assert!(!hosts.exists());
}

/// It can't be unmounted, and may be in use.
#[test]
fn a_hidden_mount_survives_one_signal() {
    // fusermount3 mounts nothing over a directory that the user may not write.
    if !skip::is_root("a mount over another one") {
        return;
    }
    let Some(mounting) = Mounting::new() else { return };
    mounting.line("mkfs upper.img --size 8M -q").good();
    mounting.line("mount disk.img mnt").good();
    let mut file = File::create(mounting.path("open")).unwrap();
    let (_, lower) = running(&mounting).remove(0);
    let server = Pid::from_raw(lower["process"].as_i64().unwrap() as i32).unwrap();
    mounting.line("mount upper.img mnt").good();
    kill_process(server, Signal::TERM).unwrap();
    thread::sleep(Duration::from_millis(500));
    file.write_all(b"written").unwrap();
    file.sync_all().unwrap();
    kill_process(server, Signal::TERM).unwrap();
    for _ in 0..200 {
        if running(&mounting).len() < 2 {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    assert!(file.sync_all().is_err());
    mounting.line("umount mnt").good();
    mounting.line("umount --lazy mnt").good();
    assert!(
        tool("e2fsck", &["-fp".as_ref(), mounting.fixture.path("disk.img").as_os_str()]).code
            <= Some(1)
    );
    assert_eq!(mounting.line("cat disk.img:/open").good(), "written");
}

#[test]
fn a_signal_ends_only_the_mount_of_its_server() {
    let Some(mut crowd) = Crowd::new(&["a.img", "b.img"]) else { return };
    let mounting = &crowd.mounting;
    fs::write(mounting.path("file"), "b").unwrap();
    let (image, status) = running(mounting).remove(0);
    assert_eq!(image, "a.img");
    let server = Pid::from_raw(status["process"].as_i64().unwrap() as i32).unwrap();
    kill_process(server, Signal::TERM).unwrap();
    for _ in 0..200 {
        if running(mounting).len() < 2 {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    // Its files are taken away. Where the connection can't be ended alone the journal has to be replayed.
    assert!(crowd.files.remove(0).sync_all().is_err());
    let image = mounting.fixture.path("a.img");
    assert!(tool("e2fsck", &["-fp".as_ref(), image.as_os_str()]).code <= Some(1));
    mounting.fixture.expect_sound_image("a.img");
    mounting.line("stat a.img:/open").good();
    assert_eq!(fs::read_to_string(mounting.path("file")).unwrap(), "b");
    mounting.unmount().good();
    assert_eq!(mounting.line("cat b.img:/file").good(), "b");
    crowd.finish(&[]);
}
