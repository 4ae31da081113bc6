//! The server is killed: what was synced is there, and the image is sound after its recovery.

use crate::support::{Mounted, make_image};
use drystone::{Image, OpenOptions};
use drystone_fuse::attach::{self, Unmount};
use drystone_fuse::{Mount, Operations, Options, Transport};
use drystone_sync::{Arc, LockClass, Mutex, thread};
use drystone_testkit::judges::e2fsck_check;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Tells the test below that it is the server: a folder with an image.
const FOLDER: &str = "DRYSTONE_TEST_SERVER_FOLDER";

/// What the worker was told to be durable. Taken alone.
static SYNCED: LockClass = LockClass::new("synced files of a test", 10);

/// Not a test but the server of one, in a process of its own that can be killed.
#[test]
fn server() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let image = Image::open(&folder.join("disk.img"), &OpenOptions::default()).unwrap();
    let operations = Operations::new(image.shared_file_system(), Options::default());
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
        let synced = Arc::new(Mutex::new(&SYNCED, Vec::new()));
        let worker = {
            let (directory, synced) = (directory.clone(), Arc::clone(&synced));
            let write = move || {
                let mut number = 0;
                while write_synced(&directory, number).is_ok() {
                    synced.lock().push(number);
                    number += 1;
                }
            };
            thread::spawn("worker", write).unwrap()
        };
        thread::sleep(Duration::from_millis(random.u64(100..400)));
        server.kill().unwrap();
        server.wait().unwrap();
        worker.join().unwrap();
        attach::unmount(&directory, Unmount::Lazily).unwrap();
        let synced: Vec<u32> = synced.lock().clone();
        assert!(!synced.is_empty(), "round {round}: nothing was synced");
        let mounted = Mounted::again(Transport::Device, &OpenOptions::default(), folder).unwrap();
        for number in &synced {
            let content = fs::read(mounted.path(&format!("synced {number}"))).unwrap();
            assert!(content == content_of(*number), "round {round}, file {number}");
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
