//! One image, damaged, repaired and judged.

use crate::faults::Faults;
use crate::repairing::{NOW_SECONDS, content, finds_nothing, repair_all, repaired, told};
use crate::untouched::{Extents, Untouched};
use drystone_blockdev::MemoryDevice;
use drystone_sync::{clock, thread};
use drystone_testkit::contents::ImageContents;
use drystone_testkit::judges::{Scratch, SmallImage, e2fsck_at, make_small_image, write_image};
use drystone_testkit::metadata_map::MetadataMap;
use fastrand::Rng;
use std::fs::{self, File};
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Seconds that a repair may take, with a check and a second repair: some hundred times what it does.
const REPAIR_SECONDS_MAX: u64 = 20;

/// What of a sound image is left.
#[derive(Clone, Debug, Default)]
pub struct Saved {
    pub names: u64,
    /// Files, links and special files with all that they held.
    pub files: u64,
    pub bytes: u64,
    /// Files and names that the damage has left alone, and the repair hasn't.
    pub untouched_lost: u64,
}

impl Saved {
    pub fn add(&mut self, other: &Self) {
        self.names += other.names;
        self.files += other.files;
        self.bytes += other.bytes;
        self.untouched_lost += other.untouched_lost;
    }
}

/// What became of an image.
pub enum Verdict {
    /// Clean for both, or left by both.
    Good,
    Failed(String),
}

/// An image that was damaged and repaired by both.
pub struct Treated {
    pub faults: Vec<String>,
    pub verdict: Verdict,
    pub sound: Saved,
    /// Nothing if it could not be made clean.
    pub ours: Option<Saved>,
    pub theirs: Option<Saved>,
}

impl Treated {
    /// Whether ours saved less than e2fsck.
    pub fn is_less(&self) -> bool {
        let ours = self.ours.clone().unwrap_or_default();
        let theirs = self.theirs.clone().unwrap_or_default();
        ours.names < theirs.names || ours.bytes < theirs.bytes
    }

    pub fn is_more(&self) -> bool {
        let ours = self.ours.clone().unwrap_or_default();
        let theirs = self.theirs.clone().unwrap_or_default();
        !self.is_less() && (ours.names > theirs.names || ours.bytes > theirs.bytes)
    }
}

/// A sound image.
pub struct Patient {
    pub map: MetadataMap,
    pub bytes: Vec<u8>,
    contents: ImageContents,
    extents: Extents,
    faults: Faults,
    /// Where the files that e2fsck works on lie, but for their endings.
    file: PathBuf,
}

impl Patient {
    pub fn new(scratch: &Scratch, set: &SmallImage, more_files: usize) -> Self {
        // With multi-mount protection e2fsck waits for others, each time.
        let arguments = set.arguments.replace(",mmp", "").leak();
        let SmallImage { name, size_mib, names, .. } = *set;
        let image =
            make_small_image(scratch, &SmallImage { name, arguments, size_mib, names }, more_files);
        let bytes = fs::read(&image).unwrap();
        let map = MetadataMap::of(MemoryDevice::from_bytes(&bytes));
        let contents = ImageContents::of(map.device.clone()).unwrap();
        assert!(contents.names.len() > more_files, "{}: {}", set.name, contents.names.len());
        let extents = Extents::new(&map, &contents);
        let faults = Faults::new(&map);
        Self { map, bytes, contents, extents, faults, file: scratch.join(set.name) }
    }

    /// Damages a copy of the image, repairs it, and has e2fsck repair another.
    pub fn treat(&self, seed: u64, is_told: bool) -> Treated {
        let mut random = Rng::with_seed(seed);
        let device = MemoryDevice::from_bytes(&self.bytes);
        let count = random.usize(1..6);
        let faults = (0..count).map(|_| self.faults.add(&self.map, &device, &mut random)).collect();
        self.judge(&content(&device), faults, is_told)
    }

    /// Repairs a damaged copy of the image in both ways.
    pub fn judge(&self, damaged: &[u8], faults: Vec<String>, is_told: bool) -> Treated {
        // Several threads may have images of one set.
        let file = self.file.with_extension(format!("{:?}", thread::current().id()));
        let untouched = Untouched::new(&self.contents, &self.extents, &self.bytes, damaged);
        let theirs = self.their_repair(damaged, &file);
        let result = catch_unwind(AssertUnwindSafe(|| our_repair(damaged, &file, is_told)));
        let (ours, verdict) = match result {
            Err(_) => (None, Verdict::Failed("panicked".to_owned())),
            Ok(Err(why)) => (None, Verdict::Failed(why)),
            Ok(Ok(Some(contents))) => (Some(contents), Verdict::Good),
            Ok(Ok(None)) => (None, Verdict::Good),
        };
        let verdict = match (&verdict, &ours, &theirs) {
            (Verdict::Good, None, Some(_)) => {
                let report = repair_all(&MemoryDevice::from_bytes(damaged));
                Verdict::Failed(format!("only e2fsck repairs it:\n{}", told(&report)))
            }
            (Verdict::Good, Some(ours), _) => self.compare(ours, theirs.as_ref(), &untouched),
            _ => verdict,
        };
        let saved = |contents: Option<ImageContents>| {
            contents.map(|contents| self.saved(&contents, &untouched))
        };
        let sound = self.saved(&self.contents, &untouched);
        Treated { faults, verdict, sound, ours: saved(ours), theirs: saved(theirs) }
    }

    fn saved(&self, contents: &ImageContents, untouched: &Untouched<'_>) -> Saved {
        let sound = &self.contents;
        Saved {
            names: contents.names_kept(sound),
            files: contents.files_kept(sound),
            bytes: contents.bytes_kept(sound),
            untouched_lost: untouched.lost(contents).len() as u64,
        }
    }

    /// What the damage has left alone is there, and a file that e2fsck keeps whole is whole.
    fn compare(
        &self,
        ours: &ImageContents,
        theirs: Option<&ImageContents>,
        untouched: &Untouched<'_>,
    ) -> Verdict {
        let lost = untouched.lost(ours);
        if !lost.is_empty() {
            return Verdict::Failed(format!("untouched files are lost: {}", lost.join(" ")));
        }
        let Some(theirs) = theirs else { return Verdict::Good };
        let sound = &self.contents;
        let whole = |contents: &ImageContents, inode: u32| {
            contents.file_bytes_kept(sound, inode) == sound.file_bytes_kept(sound, inode)
        };
        let lost =
            sound.files.keys().filter(|inode| whole(theirs, **inode) && !whole(ours, **inode));
        let lost: Vec<_> = lost.collect();
        // What was damaged itself may be saved in several ways.
        match lost.len() {
            0..=2 => Verdict::Good,
            _ => Verdict::Failed(format!("e2fsck keeps files {lost:?} whole")),
        }
    }

    fn their_repair(&self, damaged: &[u8], file: &Path) -> Option<ImageContents> {
        write_image(&MemoryDevice::from_bytes(damaged), file).unwrap();
        let _ = e2fsck_at(NOW_SECONDS, "-fy", file).unwrap();
        let mut judged = e2fsck_at(NOW_SECONDS, "-fn", file).unwrap();
        if judged.code != 0 {
            // It leaves some for a second run.
            let _ = e2fsck_at(NOW_SECONDS, "-fy", file).unwrap();
            judged = e2fsck_at(NOW_SECONDS, "-fn", file).unwrap();
        }
        if judged.code != 0 {
            return None;
        }
        // It may have written far past the end.
        let mut bytes = vec![0; self.bytes.len()];
        File::open(file).unwrap().read_exact(&mut bytes).unwrap();
        let device = MemoryDevice::from_bytes(&bytes);
        catch_unwind(AssertUnwindSafe(|| ImageContents::of(device))).ok().flatten()
    }
}

fn our_repair(damaged: &[u8], file: &Path, is_told: bool) -> Result<Option<ImageContents>, String> {
    let begun = clock::now();
    let repaired = repaired(damaged, is_told)?;
    let seconds = begun.elapsed().as_secs();
    if seconds > REPAIR_SECONDS_MAX {
        return Err(format!("it takes {seconds} seconds"));
    }
    let Some(device) = repaired else { return Ok(None) };
    let told = || told(&repair_all(&MemoryDevice::from_bytes(damaged)));
    write_image(&device, file).unwrap();
    let theirs = e2fsck_at(NOW_SECONDS, "-fn", file).unwrap();
    if !finds_nothing(&theirs) {
        return Err(format!("not clean for e2fsck:\n{}\n{}", theirs.output, told()));
    }
    match ImageContents::of(device) {
        Some(contents) => Ok(Some(contents)),
        None => Err(format!("it can't be read:\n{}", told())),
    }
}
