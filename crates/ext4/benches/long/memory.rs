//! Metadata stays within the memory budget, however many files are walked.

use crate::image::{Image, directory, file};
use crate::process::{cpu_ns, resident_bytes};
use drystone_ext4::{Ext4, MountOptions};
use drystone_vfs::{DirectoryEntry, FileSystem, InodeNumber, RequestContext};

const DIRECTORIES: u64 = 200;
const FILES: u64 = 10_000;
/// Memory is looked at after so many directories.
const LOOK_EVERY: u64 = 20;

/// The most memory seen.
#[derive(Default)]
struct Peak {
    base_bytes: u64,
    resident_bytes: u64,
    buffer_bytes: u64,
    inodes: u64,
}

impl Peak {
    fn look(&mut self, fs: &Ext4) {
        let used = resident_bytes().saturating_sub(self.base_bytes);
        self.resident_bytes = self.resident_bytes.max(used);
        let counted = fs.memory_use();
        self.buffer_bytes = self.buffer_bytes.max(counted.buffer_bytes);
        self.inodes = self.inodes.max(counted.inodes);
    }

    fn report(&self, what: &str) -> Result<(), String> {
        let mib = |bytes: u64| bytes >> 20;
        println!(
            "  {what}: {} MiB resident at most, {} MiB of buffers, {} inodes",
            mib(self.resident_bytes),
            mib(self.buffer_bytes),
            self.inodes
        );
        let budget = MountOptions::default().memory_budget_bytes as u64;
        if self.resident_bytes > budget {
            return Err(format!("{what}: more than the budget of {} MiB", mib(budget)));
        }
        Ok(())
    }
}

pub fn run() -> Result<(), String> {
    let image = Image::new("memory", 10 << 30, (DIRECTORIES * FILES) as u32 + 100_000);
    let context = RequestContext::superuser();
    let mut peak = Peak { base_bytes: resident_bytes(), ..Peak::default() };
    let fs = image.open();
    let start_ns = cpu_ns();
    for number in 0..DIRECTORIES {
        let parent = directory(&fs, fs.root(), &format!("d{number}"));
        for number in 0..FILES {
            file(&fs, &context, parent, number);
        }
        fs.forget(parent, 1);
        if number % LOOK_EVERY == 0 {
            peak.look(&fs);
        }
    }
    peak.look(&fs);
    let each = |start_ns| (cpu_ns() - start_ns) as f64 / 1000.0 / (DIRECTORIES * FILES) as f64;
    println!("  made: {:.2} us of CPU each", each(start_ns));
    let made = peak.report("making");
    fs.close().map_err(|error| error.to_string())?;
    drop(fs);

    let fs = image.open();
    let mut peak = Peak { base_bytes: peak.base_bytes, ..Peak::default() };
    let start_ns = cpu_ns();
    let found = walk(&fs, &context, &mut peak);
    println!("  walked: {:.2} us of CPU each", each(start_ns));
    let walked = peak.report("walking");
    fs.close().map_err(|error| error.to_string())?;
    if found != DIRECTORIES * FILES {
        return Err(format!("{found} files were found"));
    }
    image.check()?;
    made.and(walked)
}

/// Stats every file, as `find -ls` does.
fn walk(fs: &Ext4, context: &RequestContext, peak: &mut Peak) -> u64 {
    let mut found = 0;
    for number in 0..DIRECTORIES {
        let name = format!("d{number}");
        let parent = fs.lookup(context, fs.root(), name.as_bytes()).expect("it was made").inode;
        for name in names(fs, context, parent) {
            let entry = fs.lookup(context, parent, &name).expect("it was listed");
            fs.forget(entry.inode, 1);
            found += 1;
        }
        fs.forget(parent, 1);
        if number % LOOK_EVERY == 0 {
            peak.look(fs);
        }
    }
    peak.look(fs);
    found
}

fn names(fs: &Ext4, context: &RequestContext, directory: InodeNumber) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let visit = &mut |entry: &DirectoryEntry<'_>| {
        if entry.name != b"." && entry.name != b".." {
            names.push(entry.name.to_vec());
        }
        true
    };
    fs.read_directory(context, directory, 0, visit).expect("a sound directory");
    names
}
