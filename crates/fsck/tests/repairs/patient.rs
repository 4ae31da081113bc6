//! One image, damaged, repaired and judged.

use crate::repairing::{NOW_SECONDS, content, finds_nothing, repair_all, repaired, told};
use drystone_blockdev::{BlockDevice, MemoryDevice};
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
                let report = repair_all(&MemoryDevice::from_bytes(damaged));
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
        let Some(device) = repaired(damaged, is_told)? else { return Ok(None) };
        let told = || told(&repair_all(&MemoryDevice::from_bytes(damaged)));
        fs::write(&self.file, content(&device)).unwrap();
        let theirs = e2fsck_at(NOW_SECONDS, "-fn", &self.file).unwrap();
        if !finds_nothing(&theirs) {
            return Err(format!("not clean for e2fsck:\n{}\n{}", theirs.output, told()));
        }
        match ImageContents::of(device) {
            Some(contents) => Ok(Some(contents)),
            None => Err(format!("it can't be read:\n{}", told())),
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
