//! The server is killed: synced data is there, and the image is sound after recovery.

use crate::support::{Mounted, make_image};
use drystone::{Image, ImageOptions};
use drystone_fuse::attach::{self, Unmount};
use drystone_fuse::{Mount, Operations, ServingOptions, Transport};
use drystone_sync::{Arc, thread};
use drystone_testkit::judges::e2fsck_check;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Tells the test below that it is the server: a folder with an image.
const FOLDER: &str = "DRYSTONE_TEST_SERVER_FOLDER";

/// Not a test but the server of one, in a process of its own that can be killed.
#[test]
fn server() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let image = Image::open(folder.join("disk.img")).unwrap();
    let operations = Operations::new(image.shared_file_system(), ServingOptions::default());
    let mount = Mount::new(Arc::new(operations), &folder.join("mnt"), Transport::Best).unwrap();
    println!("\nready");
    mount.run().unwrap();
}

fn start(folder: &Path) -> Child {
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::server", "--nocapture", "--test-threads=1"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(server.stdout.take().unwrap()).lines();
    for line in lines {
        if line.unwrap() == "ready" {
            return server;
        }
    }
    let _ = server.kill();
    let _ = server.wait();
    panic!("the server did not start");
}

#[test]
fn what_was_synced_survives_a_kill() {
    if Mounted::new(Transport::Device).is_none() {
        return;
    }
    let mut random = fastrand::Rng::with_seed(4);
    for round in 0..3 {
        let folder = tempfile::tempdir().unwrap();
        make_image(&folder.path().join("disk.img"));
        let directory = folder.path().join("mnt");
        fs::create_dir(&directory).unwrap();
        let mut server = start(folder.path());
        // The worker reports what was synced, and goes on until the server is dead.
        let (mut synced, mut tell) = std::io::pipe().unwrap();
        let worker = {
            let directory = directory.clone();
            let write = move || {
                let mut number = 0_u32;
                while write_synced(&directory, number).is_ok() {
                    tell.write_all(&number.to_le_bytes()).unwrap();
                    number += 1;
                }
            };
            thread::spawn("worker", write).unwrap()
        };
        let before_the_kill = random.usize(1..60);
        let mut told = vec![0; before_the_kill * 4];
        synced.read_exact(&mut told).expect("the mount works until the kill");
        server.kill().unwrap();
        server.wait().unwrap();
        worker.join().unwrap();
        synced.read_to_end(&mut told).unwrap();
        attach::unmount(&directory, Unmount::Lazily).unwrap();
        let mounted = Mounted::again(Transport::Device, &ImageOptions::default(), folder).unwrap();
        for number in told.chunks(4).map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap())) {
            let content = fs::read(mounted.path(&format!("synced {number}"))).unwrap();
            assert!(content == content_of(number), "round {round}, file {number}");
        }
        let folder = mounted.finish();
        e2fsck_check(&folder.path().join("disk.img")).unwrap().expect_clean("after recovery");
    }
}

fn content_of(number: u32) -> Vec<u8> {
    number.to_le_bytes().repeat(2000)
}

/// One file that is synced, and others beside it that aren't.
fn write_synced(directory: &Path, number: u32) -> std::io::Result<()> {
    fs::write(directory.join(format!("other {number}")), [1; 5000])?;
    if number.is_multiple_of(3) {
        fs::remove_file(directory.join(format!("other {}", number / 2)))?;
        fs::write(directory.join(format!("other {}", number / 2)), "again")?;
    }
    let mut file = File::create(directory.join(format!("synced {number}")))?;
    file.write_all(&content_of(number))?;
    file.sync_all()?;
    File::open(directory)?.sync_all()
}
