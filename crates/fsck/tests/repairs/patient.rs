//! One image, damaged, repaired and judged.

use drystone_blockdev::{BlockDevice, MemoryDevice, Overlay};
use drystone_fsck::{CheckOptions, Decision, Error, RepairReport, check, repair};
use drystone_testkit::contents::ImageContents;
use drystone_testkit::damage::{self, Damage};
use drystone_testkit::judges::{Scratch, SmallImage, e2fsck_at, make_small_image};
use drystone_testkit::metadata_map::{BlockContent, MetadataMap};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

/// Repairs happen at this time.
pub const NOW_SECONDS: u64 = 1_800_000_000;
/// Blocks that one wipe takes at most.
const WIPED_MAX: u64 = 12;

/// What of a sound image is left.
#[derive(Clone, Debug, Default)]
pub struct Saved {
    pub names: u64,
    pub bytes: u64,
}

impl Saved {
    pub fn add(&mut self, other: &Self) {
        self.names += other.names;
        self.bytes += other.bytes;
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

/// A sound image, and the file that e2fsck works on.
pub struct Patient {
    pub map: MetadataMap,
    pub bytes: Vec<u8>,
    contents: ImageContents,
    file: PathBuf,
    /// The metadata blocks of each kind.
    kinds: BTreeMap<String, Vec<u64>>,
}

pub fn mend(device: &dyn BlockDevice) -> Result<RepairReport, Error> {
    repair(device, NOW_SECONDS, &mut |_, _| Decision::Repair, &mut |_| {})
}

/// All bytes of a device.
pub fn content(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size_bytes() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
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
        let mut kinds: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for (block, content) in &map.blocks {
            kinds.entry(content.name()).or_default().push(*block);
        }
        let file = scratch.join(format!("{}-damaged", set.name));
        Self { map, bytes, contents, file, kinds }
    }

    /// Damages a copy of the image, repairs it, and has e2fsck repair another.
    pub fn treat(&self, seed: u64, is_told: bool) -> Treated {
        let mut random = Rng::with_seed(seed);
        let device = MemoryDevice::from_bytes(&self.bytes);
        let count = random.usize(1..6);
        let faults = (0..count).map(|_| self.damage(&device, &mut random)).collect();
        self.judge(&content(&device), faults, is_told)
    }

    /// Repairs a damaged copy of the image in both ways.
    pub fn judge(&self, damaged: &[u8], faults: Vec<String>, is_told: bool) -> Treated {
        let sound = self.saved(&self.contents);
        let theirs = self.their_repair(damaged);
        let result = catch_unwind(AssertUnwindSafe(|| self.our_repair(damaged, is_told)));
        let (ours, verdict) = match result {
            Err(_) => (None, Verdict::Failed("panicked".to_owned())),
            Ok(Err(why)) => (None, Verdict::Failed(why)),
            Ok(Ok(Some(contents))) => (Some(contents), Verdict::Good),
            Ok(Ok(None)) => (None, Verdict::Good),
        };
        let verdict = match (&verdict, &ours, &theirs) {
            (Verdict::Good, None, Some(_)) => {
                let report = mend(&MemoryDevice::from_bytes(damaged));
                Verdict::Failed(format!("only e2fsck repairs it:\n{}", told(&report)))
            }
            (Verdict::Good, Some(ours), Some(theirs)) => self.compare(ours, theirs),
            _ => verdict,
        };
        let saved = |contents: Option<ImageContents>| contents.map(|c| self.saved(&c));
        Treated { faults, verdict, sound, ours: saved(ours), theirs: saved(theirs) }
    }

    fn saved(&self, contents: &ImageContents) -> Saved {
        let sound = &self.contents;
        Saved { names: contents.names_kept(sound), bytes: contents.bytes_kept(sound) }
    }

    /// A file that e2fsck keeps whole is whole.
    fn compare(&self, ours: &ImageContents, theirs: &ImageContents) -> Verdict {
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

    fn our_repair(&self, damaged: &[u8], is_told: bool) -> Result<Option<ImageContents>, String> {
        let device = MemoryDevice::from_bytes(damaged);
        let repaired = mend(&device);
        if is_told {
            eprintln!("{}", told(&repaired));
        }
        let Ok(report) = repaired else { return Ok(None) };
        if !report.is_clean() {
            return Ok(None);
        }
        let options = CheckOptions { now_seconds: Some(NOW_SECONDS), ..CheckOptions::default() };
        let ours = check(&device, &options, &mut |_| {}).map_err(|error| error.to_string())?;
        if !ours.is_clean() {
            return Err(format!("not clean for us:\n{:?}\n{}", ours.problems, told(&Ok(report))));
        }
        let again = Overlay::new(&device);
        let second = mend(&again);
        if again.changed_bytes() > 0 {
            return Err(format!(
                "a second repair changes it:\n{}\nfirst:\n{}",
                told(&second),
                told(&Ok(report))
            ));
        }
        fs::write(&self.file, content(&device)).unwrap();
        let theirs = e2fsck_at(NOW_SECONDS, "-fn", &self.file).unwrap();
        // It would also make trees narrower, but a wide one is no error.
        let would_mend = |line: &str| line.ends_with("? no") && !line.ends_with("Optimize? no");
        if theirs.code != 0 || theirs.output.lines().any(would_mend) {
            return Err(format!("not clean for e2fsck:\n{}\n{}", theirs.output, told(&Ok(report))));
        }
        match ImageContents::of(device) {
            Some(contents) => Ok(Some(contents)),
            None => Err(format!("it can't be read:\n{}", told(&Ok(report)))),
        }
    }

    fn their_repair(&self, damaged: &[u8]) -> Option<ImageContents> {
        fs::write(&self.file, damaged).unwrap();
        let _ = e2fsck_at(NOW_SECONDS, "-fy", &self.file).unwrap();
        let mut judged = e2fsck_at(NOW_SECONDS, "-fn", &self.file).unwrap();
        if judged.code != 0 {
            // It leaves some for a second run.
            let _ = e2fsck_at(NOW_SECONDS, "-fy", &self.file).unwrap();
            judged = e2fsck_at(NOW_SECONDS, "-fn", &self.file).unwrap();
        }
        if judged.code != 0 {
            return None;
        }
        // It may have written far behind the end.
        let mut bytes = vec![0; self.bytes.len()];
        File::open(&self.file).unwrap().read_exact(&mut bytes).unwrap();
        let device = MemoryDevice::from_bytes(&bytes);
        catch_unwind(AssertUnwindSafe(|| ImageContents::of(device))).ok().flatten()
    }

    /// Damages one place; says how.
    fn damage(&self, device: &MemoryDevice, random: &mut Rng) -> String {
        let kinds: Vec<&Vec<u64>> = self.kinds.values().collect();
        // A superblock without a copy can be saved by nobody: it is hit less often than others.
        let pick = |random: &mut Rng| {
            let blocks = kinds[random.usize(..kinds.len())];
            let block = blocks[random.usize(..blocks.len())];
            let is_superblock = self.map.blocks[&block] == BlockContent::Superblock;
            (!is_superblock || random.u32(..4) == 0).then_some(block)
        };
        let block = pick(random).or_else(|| pick(random)).unwrap_or(self.kinds["InodeTable"][0]);
        let size = self.map.layout().block_size() as u64;
        let name = self.map.blocks[&block].name();
        let damages = [
            Damage::Fuzz,
            Damage::Fuzz,
            Damage::Fuzz,
            Damage::Point,
            Damage::Flip,
            Damage::Zero,
            Damage::Ones,
            Damage::Swap,
            Damage::Tear,
            Damage::Tear,
        ];
        if random.u32(..20) == 0 {
            let blocks = self.map.layout().blocks_count();
            let count = random.u64(1..WIPED_MAX).min(blocks - block);
            let garbage: Vec<u8> = match random.bool() {
                true => vec![0; (count * size) as usize],
                false => (0..count * size).map(|_| random.u8(..)).collect(),
            };
            device.write_at(block * size, &garbage).unwrap();
            return format!("{count} blocks from {name} {block} wiped");
        }
        let damage = damages[random.usize(..damages.len())];
        damage::apply(&self.map, device, block, damage, random);
        format!("{damage:?} {name} {block}")
    }
}

/// What a repair did, for people.
pub fn told(report: &Result<RepairReport, Error>) -> String {
    match report {
        Err(error) => error.to_string(),
        Ok(report) => {
            let lines = report.problems.iter().map(|problem| {
                let done = problem.done.unwrap_or("-");
                format!("  {} [{:?}: {done}]\n", problem.problem, problem.repair)
            });
            let lines: Vec<String> = lines.collect();
            let left = lines.len().saturating_sub(60);
            let head: String = lines.iter().take(40).cloned().collect();
            let tail: String = lines.iter().skip(40.max(left + 40)).cloned().collect();
            head + &tail
        }
    }
}
