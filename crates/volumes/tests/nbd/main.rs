//! Exports of nbdkit(1) and qemu-nbd(8).
#![allow(clippy::unwrap_used, reason = "a test")]

mod encrypted;
mod ended;
mod late;

use drystone_blockdev::{BlockDevice, DeviceError, OpenMode};
use drystone_sync::atomic::{AtomicBool, Ordering};
use drystone_sync::{Arc, clock, thread};
use drystone_testkit::environment::number;
use drystone_testkit::judges::Scratch;
use drystone_testkit::nbd::NbdServer;
use drystone_volumes::{VolumeError, VolumeName, open_as_named};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const DISK_BYTES: usize = 8 << 20;

fn open_server(server: &NbdServer, words: &str) -> Result<Arc<dyn BlockDevice>, VolumeError> {
    open(&server.socket, words, OpenMode::ReadWrite)
}

fn open(socket: &Path, words: &str, mode: OpenMode) -> Result<Arc<dyn BlockDevice>, VolumeError> {
    open_address(&format!("nbd+unix:///?socket={}{words}", socket.display()), mode)
}

fn open_address(name: &str, mode: OpenMode) -> Result<Arc<dyn BlockDevice>, VolumeError> {
    open_as_named(&VolumeName::find(Path::new(name)).unwrap(), mode)
}

/// Changes a device and what it should hold the same way.
fn change(device: &dyn BlockDevice, model: &mut [u8], seed: u64, steps: usize) {
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..steps {
        let offset = random.usize(..model.len() - 1);
        let length = random.usize(1..=(model.len() - offset).min(200_000));
        let range = offset..offset + length;
        match random.u8(..12) {
            0..5 => {
                model[range.clone()].fill(random.u8(..));
                device.write_at(offset as u64, &model[range]).unwrap();
            }
            5..7 => {
                model[range.clone()].fill(random.u8(..));
                device.write_durable_at(offset as u64, &model[range]).unwrap();
            }
            7..9 => {
                model[range].fill(0);
                device.zero_range(offset as u64, length as u64).unwrap();
            }
            9 => device.flush().unwrap(),
            _ => expect(device, &model[range], offset),
        }
    }
    expect(device, model, 0);
}

fn expect(device: &dyn BlockDevice, expected: &[u8], offset: usize) {
    let mut bytes = vec![0; expected.len()];
    device.read_at(offset as u64, &mut bytes).unwrap();
    assert!(bytes == expected, "{} bytes at {offset}", bytes.len());
}

#[test]
fn every_server_is_read_and_written() {
    let scratch = Scratch::new("nbd-servers").unwrap();
    let socket = scratch.join("socket");
    for arguments in [
        "memory 8M",
        "--no-sr memory 8M",
        "--filter=fua memory 8M fuamode=discard",
        "--filter=nozero memory 8M",
        "--filter=blocksize-policy memory 8M blocksize-minimum=4096 blocksize-preferred=4096 \
         blocksize-maximum=64K blocksize-error-policy=error",
        "--filter=multi-conn memory 8M multi-conn-mode=disable",
        "sparse-random 8M",
    ] {
        let server = NbdServer::nbdkit(socket.clone(), arguments);
        if arguments.starts_with("sparse-random") {
            let device = open(&socket, "", OpenMode::ReadOnly).unwrap();
            device.read_at(0, &mut vec![0; DISK_BYTES]).unwrap();
            continue;
        }
        let device = open_server(&server, "").unwrap();
        assert_eq!(device.size_bytes(), DISK_BYTES as u64);
        device.discard(1000, 100_000).unwrap();
        device.zero_range(0, DISK_BYTES as u64).unwrap();
        change(&*device, &mut vec![0; DISK_BYTES], 1, 150);
    }
    let image = scratch.join("image");
    for (format, arguments) in [("raw", "-f raw"), ("qcow2", "-f qcow2 -e 4 --discard=unmap")] {
        let mut create = Command::new("qemu-img");
        create.args(["create", "-q", "-f", format]).arg(&image).arg("8M");
        assert!(create.status().unwrap().success());
        let mut model = vec![0; DISK_BYTES];
        let server = NbdServer::qemu(socket.clone(), arguments, &image);
        let device = open_server(&server, "").unwrap();
        change(&*device, &mut model, 2, 150);
        device.flush().unwrap();
        drop((device, server));
        // What was flushed is in the file.
        let server = NbdServer::qemu(socket.clone(), arguments, &image);
        expect(&*open_server(&server, "").unwrap(), &model, 0);
    }
}

#[test]
fn what_a_server_refuses_is_told() {
    let scratch = Scratch::new("nbd-refused").unwrap();
    let socket = scratch.join("socket");
    let message =
        |result: Result<Arc<dyn BlockDevice>, VolumeError>| result.unwrap_err().to_string();
    let error = message(open(&socket, "", OpenMode::ReadOnly));
    assert!(error.contains("No such file"), "{error}");
    let server = NbdServer::nbdkit(socket.clone(), "-r memory 8M");
    assert!(message(open_server(&server, "")).contains("read-only"));
    open(&socket, "", OpenMode::ReadOnly).unwrap();
    drop(server);
    let trigger = scratch.join("trigger");
    let arguments = format!(
        "--filter=error memory 8M error=EIO error-rate=100% error-file={}",
        trigger.display()
    );
    let server = NbdServer::nbdkit(socket, &arguments);
    let device = open_server(&server, "").unwrap();
    device.write_at(0, &[1; 4096]).unwrap();
    std::fs::write(&trigger, "").unwrap();
    for _ in 0..2 {
        let error = device.write_at(0, &[2; 4096]).unwrap_err().to_string();
        assert!(error.contains("write of 4096 bytes at byte 0 failed"), "{error}");
        device.read_at(0, &mut [0; 512]).unwrap_err();
    }
    std::fs::remove_file(&trigger).unwrap();
    device.zero_range(0, DISK_BYTES as u64).unwrap();
    change(&*device, &mut vec![0; DISK_BYTES], 3, 20);
}

/// A server reports a failed write-back once: what a durable write learns, the next flush doesn't.
#[test]
fn a_refused_durable_write_is_the_last() {
    let scratch = Scratch::new("nbd-durable").unwrap();
    let trigger = scratch.join("trigger");
    let arguments = format!(
        "--filter=error memory 8M error=EIO error-rate=100% error-file={}",
        trigger.display()
    );
    let server = NbdServer::nbdkit(scratch.join("socket"), &arguments);
    let device = open_server(&server, "").unwrap();
    device.write_at(0, &[1; 4096]).unwrap();
    std::fs::write(&trigger, "").unwrap();
    device.write_durable_at(8192, &[2; 4096]).unwrap_err();
    std::fs::remove_file(&trigger).unwrap();
    device.flush().unwrap_err();
    device.write_at(0, &[3; 4096]).unwrap_err();
}

/// A full server has lost nothing yet: what waits for room tries again.
#[test]
fn a_durable_write_to_a_full_server_is_not_the_last() {
    let scratch = Scratch::new("nbd-full").unwrap();
    let trigger = scratch.join("trigger");
    let arguments = format!(
        "--filter=error memory 8M error=ENOSPC error-rate=100% error-file={}",
        trigger.display()
    );
    let server = NbdServer::nbdkit(scratch.join("socket"), &arguments);
    let device = open_server(&server, "").unwrap();
    std::fs::write(&trigger, "").unwrap();
    let error = device.write_durable_at(8192, &[2; 4096]).unwrap_err();
    assert!(matches!(error, DeviceError::NoSpace { .. }), "{error}");
    std::fs::remove_file(&trigger).unwrap();
    device.write_durable_at(8192, &[2; 4096]).unwrap();
    device.flush().unwrap();
    expect(&*device, &[2; 4096], 8192);
}

/// A server may promise several connections, and take two.
#[test]
fn a_server_with_few_connections_is_used() {
    let scratch = Scratch::new("nbd-few").unwrap();
    let image = scratch.join("image");
    std::fs::write(&image, vec![0; DISK_BYTES]).unwrap();
    let server = NbdServer::qemu(scratch.join("socket"), "-f raw -e 2", &image);
    let start = clock::now();
    let device = open_server(&server, "").unwrap();
    change(&*device, &mut vec![0; DISK_BYTES], 4, 20);
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
}

/// NBD has no locks, but what one machine opens twice can be told apart there.
#[test]
fn an_export_is_not_written_twice() {
    let scratch = Scratch::new("nbd-twice").unwrap();
    let server = NbdServer::nbdkit(scratch.join("socket"), "memory 8M");
    let refused = |words: &str, mode| {
        let error = open(&server.socket, words, mode).unwrap_err().to_string();
        assert!(error.contains("nbd+unix") && error.contains("in use"), "{error}");
    };
    let opened = |words: &str, mode| open(&server.socket, words, mode).unwrap();
    let device = opened("", OpenMode::ReadWrite);
    refused("&timeout=9", OpenMode::ReadWrite);
    refused("", OpenMode::ReadOnly);
    // A look at what is on it disturbs nobody.
    let name = format!("nbd+unix:///?socket={}", server.socket.display());
    drystone_volumes::disk_content(&VolumeName::find(Path::new(&name)).unwrap()).unwrap();
    drop(device);
    let readers = [(); 2].map(|()| opened("", OpenMode::ReadOnly));
    refused("", OpenMode::ReadWrite);
    drop(readers);
    let _parts = ["@offset=0,size=1M", "@offset=1M"].map(|part| opened(part, OpenMode::ReadWrite));
    refused("@offset=4M", OpenMode::ReadWrite);
}

/// A server that is up before its export is given time, as one that isn't up yet.
#[test]
fn an_export_may_come_after_its_server() {
    let scratch = Scratch::new("nbd-late-export").unwrap();
    let (socket, image) = (scratch.join("socket"), scratch.join("image"));
    std::fs::write(&image, vec![0; DISK_BYTES]).unwrap();
    let mut server = NbdServer::qemu(socket.clone(), "-f raw -x disk", &image);
    let name = format!("nbd+unix:///disk?socket={}", socket.display());
    let name = VolumeName::find(Path::new(&name)).unwrap();
    let device = open_as_named(&name, OpenMode::ReadWrite).unwrap();
    device.write_at(0, &[1; 4096]).unwrap();
    server.kill();
    let other = NbdServer::qemu(socket.clone(), "-f raw -x other", &image);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut bytes = [0; 4096];
            device.read_at(0, &mut bytes).map(|()| bytes)
        });
        thread::sleep(Duration::from_millis(500));
        drop(other);
        let _server = NbdServer::qemu(socket.clone(), "-f raw -x disk", &image);
        assert_eq!(reader.join().unwrap().unwrap(), [1; 4096]);
    });
}

/// A server may take long to zero a range, and must not seem lost meanwhile.
#[test]
fn zeros_are_asked_for_in_pieces() {
    let scratch = Scratch::new("nbd-zeros").unwrap();
    let log = scratch.join("log");
    let arguments = format!("--filter=log memory 256M logfile={}", log.display());
    let server = NbdServer::nbdkit(scratch.join("socket"), &arguments);
    let device = open_server(&server, "").unwrap();
    device.zero_range(0, 256 << 20).unwrap();
    drop((device, server));
    let text = std::fs::read_to_string(log).unwrap();
    let count = |line: &str| {
        let count = line.split_once("count=0x")?.1.split(' ').next()?.to_owned();
        u64::from_str_radix(&count, 16).ok()
    };
    let zeros = text.lines().filter(|line| line.contains(" Zero ")).filter_map(count);
    let counts: Vec<u64> = zeros.collect();
    assert_eq!(counts.iter().sum::<u64>(), 256 << 20, "{text}");
    assert!(counts.iter().all(|count| *count <= 64 << 20), "{counts:?}");
}

/// A server may write all zeros before it answers a flush, which must be in time.
#[test]
fn zeros_are_flushed_before_they_are_many() {
    let scratch = Scratch::new("nbd-many-zeros").unwrap();
    let log = scratch.join("log");
    let arguments = format!("--filter=log memory 4G logfile={}", log.display());
    let server = NbdServer::nbdkit(scratch.join("socket"), &arguments);
    let device = open_server(&server, "").unwrap();
    device.zero_range(0, 4 << 30).unwrap();
    drop((device, server));
    let text = std::fs::read_to_string(log).unwrap();
    assert_eq!(text.lines().filter(|line| line.contains(" Flush ")).count(), 3, "{text}");
}

/// Requests go side by side, on one connection too.
#[test]
fn requests_do_not_wait_for_each_other() {
    let scratch = Scratch::new("nbd-delay").unwrap();
    let server = NbdServer::nbdkit(scratch.join("socket"), "--filter=delay memory 8M rdelay=500ms");
    let device = open_server(&server, "&connections=1").unwrap();
    let start = clock::now();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| device.read_at(0, &mut [0; 4096]).unwrap());
        }
    });
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
}
