//! An image on an NBD server that is killed and started again while threads change files, and then for good: what was
//! synced is there, and the image is clean.
#![allow(clippy::unwrap_used, reason = "a test")]

use drystone::fsck::CheckOptions;
use drystone::{CreateOptions, Image, check_image};
use drystone_sync::atomic::{AtomicBool, Ordering};
use drystone_sync::thread;
use drystone_testkit::environment::number;
use drystone_testkit::judges::{Scratch, e2fsck_check};
use drystone_testkit::nbd::NbdServer;
use std::fs;
use std::path::Path;
use std::time::Duration;

const THREADS: usize = 3;
const IMAGE_BYTES: u64 = 64 << 20;

/// Kills in an ordinary run, and those after which the image is opened again.
const KILLS: u64 = 6;
const KILLS_PER_ROUND: u64 = 3;

#[test]
fn what_was_synced_survives_its_server() {
    let scratch = Scratch::new("nbd-engine").unwrap();
    let (disk, socket) = (scratch.join("disk"), scratch.join("socket"));
    fs::File::create(&disk).unwrap().set_len(IMAGE_BYTES).unwrap();
    // It keeps what isn't flushed in memory.
    let arguments = format!("--filter=cache file {} cache=writeback", disk.display());
    let mut server = NbdServer::nbdkit(socket.clone(), &arguments);
    let name = format!("nbd+unix:///?socket={}&reconnect=1", socket.display());
    drop(Image::create(&name, &CreateOptions::new(IMAGE_BYTES)).unwrap());
    let mut count = 0;
    for round in 0..number("DRYSTONE_KILLS").unwrap_or(KILLS) / KILLS_PER_ROUND {
        let image = Image::open(&name).unwrap();
        let is_over = AtomicBool::new(false);
        let synced: Vec<Vec<(String, Vec<u8>)>> = thread::scope(|scope| {
            let change = |number: usize| {
                let (image, is_over) = (&image, &is_over);
                move || change(image, &format!("/{round}-{number}"), is_over)
            };
            let threads: Vec<_> = (0..THREADS).map(|number| scope.spawn(change(number))).collect();
            for _ in 1..KILLS_PER_ROUND {
                thread::sleep(Duration::from_millis(100));
                server.kill();
                server = NbdServer::nbdkit(socket.clone(), &arguments);
            }
            thread::sleep(Duration::from_millis(100));
            server.kill();
            is_over.store(true, Ordering::Relaxed);
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        // It can't write any more.
        let _ = image.close();
        server = NbdServer::nbdkit(socket.clone(), &arguments);
        let synced = synced.concat();
        expect_synced(Path::new(&name), round, &synced);
        count += synced.len();
    }
    assert!(count > 0);
    drop(server);
    e2fsck_check(&disk).unwrap().expect_clean("e2fsck");
}

/// Makes, renames and removes files until the image fails; those that were synced and stay.
fn change(image: &Image, directory: &str, is_over: &AtomicBool) -> Vec<(String, Vec<u8>)> {
    let fs = image.fs();
    let mut synced = Vec::new();
    if fs.create_dir(directory).is_err() {
        return synced;
    }
    let mut random = fastrand::Rng::with_seed(directory.len() as u64);
    for number in 0.. {
        let (path, kept) = (format!("{directory}/{number}"), format!("{directory}/{number}-kept"));
        let content = vec![number as u8; random.usize(1..30_000)];
        let step = || -> drystone::Result<bool> {
            fs.write(&path, &content)?;
            if number % 3 == 1 {
                fs.remove_file(&path)?;
                return Ok(false);
            }
            fs.rename(&path, &kept)?;
            fs.open(&kept)?.sync_all()?;
            Ok(true)
        };
        match step() {
            Ok(true) => synced.push((kept, content)),
            Ok(false) => {}
            Err(_) if is_over.load(Ordering::Relaxed) => return synced,
            Err(error) => panic!("the server came back: {error}"),
        }
        if number % 100 == 99 {
            // The image has little room.
            for (path, _) in synced.drain(..) {
                fs.remove_file(path).ok();
            }
        }
    }
    synced
}

fn expect_synced(name: &Path, round: u64, synced: &[(String, Vec<u8>)]) {
    let report = check_image(name, &CheckOptions::default(), &mut |_| {}).unwrap();
    assert!(report.is_clean(), "{:?}", report.problems);
    let image = Image::open(name).unwrap();
    for (path, content) in synced {
        assert!(image.fs().read(path).unwrap() == *content, "{path}");
    }
    // The next round needs room.
    for number in 0..THREADS {
        let _ = image.fs().remove_dir_all(format!("/{round}-{number}"));
    }
    image.close().unwrap();
}
