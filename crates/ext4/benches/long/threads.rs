//! In two threads, each in its own directory, an operation costs as much CPU time as in one.

use crate::image::{Image, directory, file, write_name};
use crate::process::{thread_cpu_ns, wall_ns};
use drystone_ext4::Ext4;
use drystone_sync::thread;
use drystone_vfs::{FallocateMode, FileSystem, InodeNumber, RequestContext, SetAttributes};

const FILES: u64 = 10_000;
const ROUNDS: usize = 5;
/// How many times the CPU time in one thread an operation may take in two.
const COST_MAX: f64 = 1.2;

/// Runs one round of an operation in a directory.
type Operation = fn(&Ext4, &RequestContext, InodeNumber);

/// In this order, so that each finds what it works on.
const OPERATIONS: [(&str, Operation); 5] = [
    ("create", create),
    ("stat", stat),
    ("unlink", unlink),
    ("truncate-by-a-byte", truncate),
    ("fallocate-8k", fallocate),
];

pub fn run() -> Result<(), String> {
    let image = Image::new("threads", 2 << 30, 400_000);
    let fs = image.open();
    let directories: Vec<InodeNumber> =
        (0..2).map(|number| directory(&fs, fs.root(), &format!("d{number}"))).collect();
    let mut samples = vec![[Vec::new(), Vec::new()]; OPERATIONS.len()];
    let mut walls = vec![[Vec::new(), Vec::new()]; OPERATIONS.len()];
    for _ in 0..ROUNDS {
        for threads in 1..=directories.len() {
            for (place, (_, operation)) in OPERATIONS.iter().enumerate() {
                let start_ns = wall_ns();
                let cpu_ns = run_threads(&fs, &directories[..threads], *operation);
                let operations = FILES * threads as u64;
                walls[place][threads - 1].push((wall_ns() - start_ns) / operations);
                samples[place][threads - 1].push(cpu_ns / operations);
            }
        }
    }
    fs.close().map_err(|error| error.to_string())?;
    println!("  {:<20}{:>22}{:>22}{:>8}", "", "1 thread", "2 threads", "ratio");
    let mut missed = Vec::new();
    for (place, (name, _)) in OPERATIONS.iter().enumerate() {
        let [one, two] = &mut samples[place];
        let (one, two) = (median(one), median(two));
        let [wall_one, wall_two] = &mut walls[place];
        let rate = |ns: u64| 1_000_000 / ns.max(1);
        let ratio = two as f64 / one as f64;
        println!(
            "  {name:<20}{one:>6} ns, {:>6} k/s{two:>8} ns, {:>6} k/s{ratio:>8.2}",
            rate(median(wall_one)),
            rate(median(wall_two)),
        );
        if ratio > COST_MAX {
            missed.push(*name);
        }
    }
    image.check()?;
    if missed.is_empty() { Ok(()) } else { Err(format!("dearer in two threads: {missed:?}")) }
}

/// CPU time of all threads together.
fn run_threads(fs: &Ext4, directories: &[InodeNumber], operation: Operation) -> u64 {
    thread::scope(|scope| {
        let workers: Vec<_> = directories
            .iter()
            .map(|&directory| {
                scope.spawn(move || {
                    let context = RequestContext::superuser();
                    let start_ns = thread_cpu_ns();
                    operation(fs, &context, directory);
                    thread_cpu_ns() - start_ns
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker ends well")).sum()
    })
}

fn median(samples: &mut [u64]) -> u64 {
    samples.sort_unstable();
    samples[samples.len() / 2]
}

fn create(fs: &Ext4, context: &RequestContext, parent: InodeNumber) {
    for number in 0..FILES {
        file(fs, context, parent, number);
    }
}

fn stat(fs: &Ext4, context: &RequestContext, parent: InodeNumber) {
    let mut name = [0; 16];
    for number in 0..FILES {
        let entry = fs.lookup(context, parent, write_name(&mut name, number));
        fs.forget(entry.expect("it was made").inode, 1);
    }
}

fn unlink(fs: &Ext4, context: &RequestContext, parent: InodeNumber) {
    let mut name = [0; 16];
    for number in 0..FILES {
        fs.unlink(context, parent, write_name(&mut name, number)).expect("it was made");
    }
}

fn truncate(fs: &Ext4, context: &RequestContext, parent: InodeNumber) {
    let made = fs.create_unnamed(context, parent, 0o600).expect("there is room").inode;
    fs.write(context, made, 0, &[1; FILES as usize]).expect("there is room");
    for size in (0..FILES).rev() {
        let changes = SetAttributes { size: Some(size), ..SetAttributes::default() };
        fs.set_attributes(context, made, &changes).expect("the file is open");
    }
    fs.forget(made, 1);
}

fn fallocate(fs: &Ext4, context: &RequestContext, parent: InodeNumber) {
    const STEP_BYTES: u64 = 8 << 10;
    const STEPS: u64 = 128;
    let made = fs.create_unnamed(context, parent, 0o600).expect("there is room").inode;
    for number in 0..FILES {
        let mode = FallocateMode::Allocate { keep_size: false };
        let offset = number % STEPS * STEP_BYTES;
        fs.fallocate(context, made, mode, offset, STEP_BYTES).expect("there is room");
        if number % STEPS == STEPS - 1 {
            let changes = SetAttributes { size: Some(0), ..SetAttributes::default() };
            fs.set_attributes(context, made, &changes).expect("the file is open");
        }
    }
    fs.forget(made, 1);
}
