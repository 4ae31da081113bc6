//! Images in a Ceph cluster, and what becomes of them when OSDs, clients and locks end. `./dev ceph test` makes the
//! cluster, which `CEPH_CONF` names, and runs these.
#![allow(clippy::unwrap_used, reason = "a test")]

use drystone_blockdev::{BlockDevice, DeviceError, OpenMode};
use drystone_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use drystone_sync::{Arc, clock, thread};
use drystone_testkit::judges::Scratch;
use drystone_volumes::{VolumeError, VolumeName, disk_content, open_as_named};
use rustix::process::{Pid, Signal};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const DISK_BYTES: usize = 32 << 20;
/// Tells a process of this test which image to hold.
const HELD_IMAGE: &str = "DRYSTONE_TEST_HELD_IMAGE";

type Opened = Result<Arc<dyn BlockDevice>, VolumeError>;

/// An image that goes away with this value.
struct Image(String);

impl Image {
    fn new(name: &str) -> Image {
        folder();
        let image = Image(format!("rbd/{name}"));
        image.remove();
        rbd(&["create", &image.0, "--size", &format!("{DISK_BYTES}B")]);
        image
    }

    fn remove(&self) {
        let _ = Command::new("rbd").args(["snap", "purge", "--no-progress", &self.0]).output();
        let _ = Command::new("rbd").args(["rm", "--no-progress", &self.0]).output();
    }

    fn open(&self, words: &str, mode: OpenMode) -> Opened {
        open(&format!("rbd:{}{words}", self.0), mode)
    }

    fn writer(&self, words: &str) -> Arc<dyn BlockDevice> {
        self.open(words, OpenMode::ReadWrite).unwrap()
    }

    /// All of it, as Ceph's own program sees it.
    fn exported(&self) -> Vec<u8> {
        let scratch = Scratch::new("rbd-export").unwrap();
        let path = scratch.join("image");
        rbd(&["export", "--no-progress", &self.0, path.to_str().unwrap()]);
        std::fs::read(path).unwrap()
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        self.remove();
    }
}

fn open(name: &str, mode: OpenMode) -> Opened {
    open_as_named(&VolumeName::find(Path::new(name)).unwrap(), mode)
}

fn message(opened: Opened) -> String {
    opened.unwrap_err().to_string()
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn rbd(arguments: &[&str]) -> String {
    run("rbd", arguments)
}

fn send(signal: Signal, process: u32) {
    let process = Pid::from_raw(process.try_into().unwrap()).unwrap();
    rustix::process::kill_process(process, signal).unwrap();
}

/// The folder of the cluster, which `./dev ceph` has made: no other cluster is touched.
fn folder() -> PathBuf {
    let configuration = std::env::var_os("CEPH_CONF").expect("./dev ceph test runs this");
    let folder = Path::new(&configuration).parent().unwrap().to_path_buf();
    assert!(folder.join("made-by-drystone").exists(), "./dev ceph test runs this");
    folder
}

fn osd() -> u32 {
    std::fs::read_to_string(folder().join("osd.0.pid")).unwrap().trim().parse().unwrap()
}

fn kill_osd() {
    let process = osd();
    send(Signal::KILL, process);
    while Path::new(&format!("/proc/{process}")).exists() {
        thread::sleep(Duration::from_millis(2));
    }
}

fn start_osd() {
    let mut command = Command::new("ceph-osd");
    command.args(["-i", "0"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    assert!(command.status().unwrap().success());
}

/// Another process that has the image open and writes it again and again, which ends with this value.
struct Holder {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Holder {
    fn of(name: &str) -> Holder {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "hold_an_image", "--nocapture"]);
        command.env(HELD_IMAGE, name).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let mut holder = Holder { child, said };
        holder.expect("held");
        holder
    }

    /// Waits for a line that begins so.
    fn expect(&mut self, start: &str) -> String {
        let mut line = String::new();
        while !line.starts_with(start) {
            line.clear();
            assert!(self.said.read_line(&mut line).unwrap() > 0, "it has ended");
        }
        line
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test: what a [`Holder`] runs.
#[test]
#[ignore = "needs ./dev ceph test"]
fn hold_an_image() {
    let Ok(name) = std::env::var(HELD_IMAGE) else { return };
    let device = open(&name, OpenMode::ReadWrite).unwrap();
    println!("\nheld");
    for number in 0.. {
        let written = device.write_durable_at(4096, &[number as u8; 4096]);
        if let Err(error) = written {
            println!("\nfailed: {error}");
            break;
        }
        thread::sleep(Duration::from_millis(1));
    }
    // For good.
    for _ in 0..3 {
        device.write_at(0, &[0xff; 4096]).unwrap_err();
        device.flush().unwrap_err();
        device.read_at(0, &mut [0; 512]).unwrap_err();
        thread::sleep(Duration::from_millis(300));
    }
    println!("\nended");
}

fn expect(device: &dyn BlockDevice, expected: &[u8], offset: usize) {
    let mut bytes = vec![0; expected.len()];
    device.read_at(offset as u64, &mut bytes).unwrap();
    let wrong = bytes.iter().zip(expected).position(|(found, expected)| found != expected);
    assert!(wrong.is_none(), "{} bytes at {offset}: wrong at {wrong:?}", bytes.len());
}

#[test]
#[ignore = "needs ./dev ceph test"]
fn images_are_read_and_written() {
    let image = Image::new("model");
    let device = image.writer("");
    assert_eq!(device.size_bytes(), DISK_BYTES as u64);
    let mut model = vec![0; DISK_BYTES];
    let mut random = fastrand::Rng::with_seed(1);
    for step in 0..1500 {
        // Near each other, so that changes under way overlap.
        let offset = random.usize(..2 << 20) + random.usize(..3) * (4 << 20);
        let length = random.usize(1..300_000);
        let range = offset..offset + length;
        match random.u8(..14) {
            0..5 => {
                model[range.clone()].fill(step as u8);
                device.write_at(offset as u64, &model[range]).unwrap();
            }
            5..7 => {
                model[range.clone()].fill(step as u8);
                device.write_durable_at(offset as u64, &model[range]).unwrap();
            }
            7..9 => {
                model[range].fill(0);
                device.zero_range(offset as u64, length as u64).unwrap();
            }
            9 => {
                device.discard(offset as u64, length as u64).unwrap();
                // Its bytes are old ones or zeros until they are written again.
                model[range.clone()].fill(step as u8);
                device.write_at(offset as u64, &model[range]).unwrap();
            }
            10 => device.flush().unwrap(),
            _ => expect(&*device, &model[range], offset),
        }
    }
    device.flush().unwrap();
    expect(&*device, &model, 0);
    assert!(image.exported() == model);
    drop(device);
    expect(&*image.open("", OpenMode::ReadOnly).unwrap(), &model, 0);
}

#[test]
#[ignore = "needs ./dev ceph test"]
fn what_cannot_be_opened_is_told() {
    let image = Image::new("refused");
    for (name, problem) in [
        ("rbd:rbd/none", "No such file"),
        ("rbd:none/image", "pool 'none'"),
        ("rbd:rbd/refused@none", "No such file"),
        ("rbd:rbd/refused?conf=/no/such/file", "/no/such/file"),
        ("rbd:image", "POOL/IMAGE"),
    ] {
        let error = message(open(name, OpenMode::ReadOnly));
        assert!(error.contains(problem), "{name}: {error}");
    }
    let device = image.writer("");
    device.write_at(0, &[1; 4096]).unwrap();
    device.flush().unwrap();
    rbd(&["snap", "create", "--no-progress", "rbd/refused@12"]);
    device.write_durable_at(0, &[2; 4096]).unwrap();
    let snapshot = image.open("@12", OpenMode::ReadOnly).unwrap();
    expect(&*snapshot, &[1; 4096], 0);
    assert!(matches!(snapshot.write_at(0, &[1]), Err(DeviceError::ReadOnly)));
    let refused = image.open("@12", OpenMode::ReadWrite);
    assert!(matches!(refused, Err(VolumeError::Device(DeviceError::ReadOnly))));
    drop(device);
    rbd(&["feature", "disable", "rbd/refused", "fast-diff", "object-map", "exclusive-lock"]);
    let error = message(image.open("", OpenMode::ReadWrite));
    assert!(error.contains("rbd feature enable"), "{error}");
    image.open("", OpenMode::ReadOnly).unwrap();
}

/// The owner of the lock is named at once, by this process and by others.
#[test]
#[ignore = "needs ./dev ceph test"]
fn a_second_writer_is_refused() {
    let image = Image::new("owned");
    let mut holder = Holder::of("rbd:rbd/owned");
    for mode in [OpenMode::ReadWrite, OpenMode::ReadOnly] {
        let start = clock::now();
        let error = message(image.open("", mode));
        assert!(error.contains("in use by client.") && error.contains("127.0.0.1"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    }
    // Whoever writes it, it may be looked at.
    disk_content(&VolumeName::find(Path::new("rbd:rbd/owned")).unwrap()).unwrap();
    // Ceph's own writer doesn't get the lock either.
    let bench = ["bench", "--io-type", "write", "--io-total", "4K", "rbd/owned"];
    let mut bench = Command::new("timeout").arg("5").arg("rbd").args(bench).spawn().unwrap();
    assert!(!bench.wait().unwrap().success());
    assert!(holder.child.try_wait().unwrap().is_none());
    holder.child.kill().unwrap();
    holder.child.wait().unwrap();
    // Its watch ends in half a minute. Until then it may be alive, for readers as well.
    let start = clock::now();
    image.open("", OpenMode::ReadOnly).unwrap();
    assert!(start.elapsed() > Duration::from_secs(10), "{:?}", start.elapsed());
    let device = image.writer("");
    assert!(start.elapsed() < Duration::from_secs(45), "{:?}", start.elapsed());
    device.write_durable_at(0, &[1; 4096]).unwrap();
}

/// A process that has stopped for longer than its watch lasts, and goes on when another one has the lock.
#[test]
#[ignore = "needs ./dev ceph test"]
fn the_old_owner_is_locked_out() {
    let image = Image::new("stopped");
    let mut holder = Holder::of("rbd:rbd/stopped");
    let owner = message(image.open("", OpenMode::ReadWrite));
    send(Signal::STOP, holder.child.id());
    let device = image.writer("");
    let model = vec![7; DISK_BYTES];
    device.write_at(0, &model).unwrap();
    device.flush().unwrap();
    send(Signal::CONT, holder.child.id());
    let said = holder.expect("failed");
    assert!(said.contains("blocklist"), "{said}");
    holder.expect("ended");
    // For good, as far as clusters remember: a year.
    let owner = owner.split([' ', ';']).find(|word| word.starts_with("127.0.0.1:")).unwrap();
    let listed = run("ceph", &["osd", "blocklist", "ls"]);
    let line = listed.lines().find(|line| line.starts_with(owner)).unwrap();
    let year = |text: &str| text.split('-').next().unwrap().parse::<i64>().unwrap();
    let this_year = 1970 + clock::wall().0 / 31_556_952;
    assert!(year(line.split_whitespace().nth(1).unwrap()) > this_year, "{line}");
    expect(&*device, &model, 0);
    device.write_durable_at(0, &[7; 4096]).unwrap();
    assert!(image.exported() == model);
}

/// A lock of `rbd lock add` is named, and its client isn't blocklisted.
#[test]
#[ignore = "needs ./dev ceph test"]
fn an_advisory_lock_is_respected() {
    let image = Image::new("advisory");
    let blocklist = || run("ceph", &["osd", "blocklist", "ls"]);
    let mut before = blocklist();
    for words in [&[][..], &["--shared", "tag"]] {
        rbd(&[&["lock", "add", "rbd/advisory", "mine"], words].concat());
        for mode in [OpenMode::ReadWrite, OpenMode::ReadOnly] {
            let error = message(image.open("", mode));
            assert!(error.contains("rbd lock remove POOL/IMAGE \"mine\" client."), "{error}");
        }
        assert_eq!(blocklist(), before);
        let client = rbd(&["lock", "list", "rbd/advisory"]);
        let client = client.split_whitespace().find(|word| word.starts_with("client.")).unwrap();
        rbd(&["lock", "remove", "rbd/advisory", "mine", client]);
        before = blocklist();
    }
}

#[test]
#[ignore = "needs ./dev ceph test"]
fn a_broken_lock_is_not_taken_again() {
    let image = Image::new("broken");
    let mut holder = Holder::of("rbd:rbd/broken");
    let listed = rbd(&["lock", "list", "rbd/broken"]);
    let words: Vec<&str> = listed.lines().last().unwrap().split_whitespace().collect();
    let identity = words[1..words.len() - 1].join(" ");
    rbd(&["lock", "remove", "rbd/broken", &identity, words[0]]);
    holder.expect("failed");
    holder.expect("ended");
    assert_eq!(rbd(&["lock", "list", "rbd/broken"]), "");
    image.writer("").write_durable_at(0, &[1; 4096]).unwrap();
}

/// The OSD is killed again and again while several threads write.
#[test]
#[ignore = "needs ./dev ceph test"]
fn an_osd_that_is_killed_loses_nothing() {
    let kills = std::env::var("DRYSTONE_TEST_KILLS").map_or(3, |kills| kills.parse().unwrap());
    let image = Image::new("killed");
    let device = image.writer("?timeout=120");
    let is_over = AtomicBool::new(false);
    let mut models: Vec<Vec<u8>> = vec![vec![0; DISK_BYTES / 4]; 4];
    thread::scope(|scope| {
        for (number, model) in models.iter_mut().enumerate() {
            let (device, is_over) = (&device, &is_over);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(number as u64);
                while !is_over.load(Ordering::Relaxed) {
                    let offset = random.usize(..model.len() - 50_000);
                    let range = offset..offset + random.usize(1..50_000);
                    model[range.clone()].fill(random.u8(..));
                    let at = number * DISK_BYTES / 4 + offset;
                    device.write_at(at as u64, &model[range.clone()]).unwrap();
                    expect(&**device, &model[range], at);
                    if random.u8(..10) == 0 {
                        device.flush().unwrap();
                    }
                }
            });
        }
        for _ in 0..kills {
            thread::sleep(Duration::from_millis(500));
            kill_osd();
            start_osd();
            // It takes seconds until it answers, longer than until the next kill.
            device.read_at(0, &mut [0; 512]).unwrap();
        }
        thread::sleep(Duration::from_millis(500));
        is_over.store(true, Ordering::Relaxed);
    });
    device.flush().unwrap();
    assert!(image.exported() == models.concat());
}

/// After the time limit there is an error, and for good.
#[test]
#[ignore = "needs ./dev ceph test"]
fn waiting_has_an_end() {
    let image = Image::new("limit");
    let device = image.writer("?timeout=3");
    device.write_durable_at(0, &[1; 4096]).unwrap();
    kill_osd();
    device.write_at(0, &[2; 4096]).unwrap();
    let start = clock::now();
    let error = device.flush().unwrap_err().to_string();
    assert!(error.contains("no answer of the cluster for 3 s"), "{error}");
    device.read_at(0, &mut [0; 512]).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    let start = clock::now();
    let error = message(image.open("?timeout=3", OpenMode::ReadOnly));
    assert!(error.contains("timed out"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    start_osd();
    device.flush().unwrap_err();
    device.write_at(0, &[3; 4096]).unwrap_err();
    drop(device);
    // It has locked itself out, so that the write under way is carried out before now or never.
    let device = image.writer("");
    let mut bytes = vec![0; 4096];
    device.read_at(0, &mut bytes).unwrap();
    assert!(bytes == [1; 4096] || bytes == [2; 4096]);
}

/// Where nothing is written, nothing is lost: a cluster that answers again is read again.
#[test]
#[ignore = "needs ./dev ceph test"]
fn a_reader_outlives_an_outage() {
    let image = Image::new("outage");
    let device = image.open("?timeout=3", OpenMode::ReadOnly).unwrap();
    kill_osd();
    device.read_at(0, &mut [0; 512]).unwrap_err();
    start_osd();
    let start = clock::now();
    while device.read_at(0, &mut [0; 512]).is_err() {
        assert!(start.elapsed() < Duration::from_secs(60), "it isn't read again");
    }
}

/// Requests wait in a full cluster, and go on when there is space again.
#[test]
#[ignore = "needs ./dev ceph test"]
fn a_full_cluster_is_waited_for() {
    let image = Image::new("full");
    let device = image.writer("?timeout=20");
    let set_ratios = |ratios: [&str; 3]| {
        for (name, ratio) in ["nearfull", "backfillfull", "full"].into_iter().zip(ratios) {
            run("ceph", &["osd", &format!("set-{name}-ratio"), ratio]);
        }
    };
    let (tiny, usual) = (["0.0001"; 3], ["0.85", "0.9", "0.95"]);
    let _usual_again = thread::at_end(|| set_ratios(usual));
    let is_full = || run("ceph", &["health", "detail"]).contains("full osd(s)");
    let wait_until = |wanted| {
        let start = clock::now();
        while is_full() != wanted {
            assert!(start.elapsed() < Duration::from_secs(60));
            thread::sleep(Duration::from_millis(200));
        }
    };
    device.write_durable_at(0, &[1; 4096]).unwrap();
    set_ratios(tiny);
    wait_until(true);
    // Until the OSD knows that it is full, it takes writes.
    let (begun, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                begun.fetch_add(1, Ordering::SeqCst);
                device.write_durable_at(4096, &[2; 4096]).unwrap();
            }
        });
        let waits = (0..20).any(|round| {
            thread::sleep(Duration::from_secs(3));
            begun.swap(0, Ordering::SeqCst) == 0 && round > 0
        });
        is_over.store(true, Ordering::SeqCst);
        set_ratios(usual);
        writer.join().unwrap();
        assert!(waits, "the OSD takes writes");
    });
    set_ratios(tiny);
    wait_until(true);
    let start = clock::now();
    let error = loop {
        match device.write_durable_at(4096, &[3; 4096]) {
            Err(error) => break error.to_string(),
            Ok(()) => thread::sleep(Duration::from_millis(100)),
        }
    };
    let took = start.elapsed();
    set_ratios(usual);
    assert!(error.contains("no answer of the cluster for 20 s"), "{error}");
    assert!(took < Duration::from_secs(50), "{took:?}");
    wait_until(false);
}

/// Random reads of 4 KiB by 16 threads, beside Ceph's own program.
#[test]
#[ignore = "needs ./dev ceph test"]
fn random_reads_are_fast() {
    const THREADS: u64 = 16;
    const READS: u64 = 32_768;
    let image = Image::new("fast");
    let device = image.writer("");
    device.write_at(0, &vec![1; DISK_BYTES]).unwrap();
    device.flush().unwrap();
    let start = clock::now();
    thread::scope(|scope| {
        for number in 0..THREADS {
            let device = &device;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(number);
                for _ in 0..READS / THREADS {
                    let block = random.u64(..DISK_BYTES as u64 / 4096);
                    device.read_at(block * 4096, &mut [0; 4096]).unwrap();
                }
            });
        }
    });
    let ours = READS as f64 / start.elapsed().as_secs_f64();
    drop(device);
    let total = (READS * 4096).to_string();
    let said = rbd(&[
        "bench",
        "--io-type",
        "read",
        "--io-pattern",
        "rand",
        "--io-size",
        "4096",
        "--io-threads",
        "16",
        "--io-total",
        &total,
        "--rbd-cache=false",
        &image.0,
    ]);
    let theirs = said.lines().last().unwrap().split("ops/sec: ").nth(1).unwrap();
    let theirs: f64 = theirs.split_whitespace().next().unwrap().parse().unwrap();
    println!("{ours:.0} reads a second, 'rbd bench' {theirs:.0}");
    assert!(ours >= 0.8 * theirs, "{ours:.0} reads a second, 'rbd bench' {theirs:.0}");
}
