//! Logs that are damaged: what is sound before the damage is replayed, and nothing that a file may have taken.

use super::{inode_of, inodes_of, place_of};
use crate::patient::Patient;
use crate::repairing::{NOW_SECONDS, content, repair_all};
use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4_format::InodeNumber;
use drystone_ext4_format::extent::{ExtentNode, NodePlace};
use drystone_ext4_format::inode::{Inode, InodeFlags};
use drystone_ext4_format::superblock::mark_half_changed;
use drystone_fsck::{
    CheckOptions, Decision, Issue, JournalIssue, RepairOutcome, RepairReport, SuperblockIssue,
    check, repair,
};
use drystone_jbd2_format as jbd2;
use drystone_testkit::judges::{SMALL_IMAGES, Scratch, have};
use drystone_testkit::metadata_map::MetadataMap;

/// A log that is written block by block.
struct Log {
    device: MemoryDevice,
    size: usize,
    /// The first blocks of the journal.
    places: Vec<u64>,
    superblock: jbd2::Superblock,
    sequence: u32,
    /// Where the next block goes.
    next: usize,
}

impl Log {
    fn new(map: &MetadataMap, device: MemoryDevice) -> Self {
        let size = map.layout().block_size();
        let places = first_blocks(map, InodeNumber::JOURNAL);
        let mut bytes = vec![0; size];
        device.read_at(places[0] * size as u64, &mut bytes).unwrap();
        let mut superblock = jbd2::Superblock::check(&bytes).unwrap();
        let mut features = jbd2::IncompatFeatures::REVOKE;
        if map.layout().checksum_seed().is_some() {
            features |= jbd2::IncompatFeatures::CHECKSUM_V3;
        }
        superblock.set_features(superblock.compat(), features);
        let sequence = superblock.sequence();
        Self { device, size, places, superblock, sequence, next: 1 }
    }

    /// Appends a block; where it is on the device.
    fn push(&mut self, bytes: &[u8]) -> u64 {
        let offset = self.places[self.next] * self.size as u64;
        self.device.write_at(offset, bytes).unwrap();
        self.next += 1;
        offset
    }

    /// Appends a transaction with copies of blocks, filled with a byte each, and revocations. Where its blocks are on the
    /// device.
    fn transaction(&mut self, copies: &[(u64, u8)], revoked: &[u64]) -> Vec<u64> {
        let filled = copies.iter().map(|(block, byte)| (*block, vec![*byte; self.size]));
        self.transaction_of(&filled.collect::<Vec<_>>(), revoked)
    }

    /// The same with copies of any content.
    fn transaction_of(&mut self, copies: &[(u64, Vec<u8>)], revoked: &[u64]) -> Vec<u64> {
        let format = self.superblock.format();
        let mut places = Vec::new();
        if !copies.is_empty() {
            let mut descriptor = jbd2::DescriptorBuilder::new(&format, self.sequence);
            for (block, bytes) in copies {
                descriptor.push(*block, false, format.copy_checksum(self.sequence, bytes));
            }
            places.push(self.push(&descriptor.finish()));
            for (_, bytes) in copies {
                places.push(self.push(bytes));
            }
        }
        if !revoked.is_empty() {
            let mut revokes = jbd2::RevokeBuilder::new(&format, self.sequence);
            revoked.iter().for_each(|block| revokes.push(*block));
            places.push(self.push(&revokes.finish()));
        }
        let commit = jbd2::Commit { seconds: u64::from(u32::MAX), nanoseconds: 0 };
        let checksum = jbd2::TransactionChecksum::new();
        places.push(self.push(&jbd2::encode_commit(&format, self.sequence, commit, &checksum)));
        self.sequence += 1;
        places
    }

    /// Says that the log has to be replayed.
    fn finish(mut self, map: &MetadataMap) -> MemoryDevice {
        self.superblock.set_log(Some(1), self.superblock.sequence());
        let place = self.places[0] * self.size as u64;
        self.device.write_at(place, &self.superblock.to_bytes()).unwrap();
        let mut superblock = map.superblock.clone();
        superblock.set_needs_recovery(true);
        self.device.write_at(1024, &superblock.encode()).unwrap();
        self.device
    }
}

/// The first blocks of a file, at most twelve; none if they are mapped by nodes.
fn first_blocks(map: &MetadataMap, number: InodeNumber) -> Vec<u64> {
    let inode = inode_of(map, number);
    if !inode.flags.contains(InodeFlags::EXTENTS) {
        let pointers = inode.block_area.as_chunks::<4>().0[..12].iter();
        return pointers.map(|bytes| u32::from_le_bytes(*bytes).into()).collect();
    }
    let root = ExtentNode::reopen(&inode.block_area, NodePlace::root(number)).unwrap();
    let extents = root.extents().filter(|_| root.is_leaf());
    extents.flat_map(|run| run.physical.get()..run.physical_end().get()).take(12).collect()
}

/// Three blocks of a file's content, which the logs have copies of.
fn blocks_of_a_file(map: &MetadataMap) -> [u64; 3] {
    let size = map.layout().block_size();
    let files = inodes_of(map, |inode| {
        inode.is_regular() && inode.has_block_mapping() && inode.size_bytes > 2 * size as u64
    });
    let files = files.into_iter().filter(|number| number.get() > 11);
    let mut blocks = files.filter_map(|file| first_blocks(map, file).first_chunk().copied());
    // Of content, not of the orphan file or of quota.
    blocks
        .find(|blocks: &[u64; 3]| blocks.map(|block| byte_at(&map.device, block, size)) == [7; 3])
        .unwrap()
}

fn byte_at(device: &MemoryDevice, block: u64, size: usize) -> u8 {
    let mut byte = [0];
    device.read_at(block * size as u64, &mut byte).unwrap();
    byte[0]
}

fn flip(device: &MemoryDevice, place: u64) {
    let mut byte = [0];
    device.read_at(place, &mut byte).unwrap();
    device.write_at(place, &[byte[0] ^ 1]).unwrap();
}

/// What became of each problem of the journal.
fn of_journal(report: &RepairReport) -> Vec<(RepairOutcome, Option<&'static str>)> {
    let is_of_journal = |problem: &&drystone_fsck::RepairedProblem| {
        matches!(problem.problem.issue, drystone_fsck::Issue::Journal(_))
    };
    let problems = report.problems.iter().filter(is_of_journal);
    problems.map(|problem| (problem.repair, problem.done)).collect()
}

/// Damages a log of the image of a set in a way, and repairs it. A repair of what is safe leaves it.
fn treat(
    name: &str,
    damage: impl Fn(&mut Log, [u64; 3]) -> u64,
    judge: impl Fn(&RepairReport, [u8; 3], [u8; 3]),
) {
    if !have("mke2fs") {
        return;
    }
    let scratch = Scratch::new("fsck-journal-damage").unwrap();
    let set = SMALL_IMAGES.iter().find(|set| set.name == name).unwrap();
    let patient = Patient::new(&scratch, set, 20);
    let map = &patient.map;
    let (size, blocks) = (map.layout().block_size(), blocks_of_a_file(map));
    let mut log = Log::new(map, MemoryDevice::from_bytes(&patient.bytes));
    let place = damage(&mut log, blocks);
    let device = log.finish(map);
    flip(&device, place);
    let bytes = content(&device);
    let before = blocks.map(|block| byte_at(&device, block, size));

    let checked = check(&device, &CheckOptions::default(), &mut |_| {}).unwrap();
    assert!(checked.errors > 0, "{name}");
    let options = CheckOptions::default();
    let choose: &mut drystone_fsck::Choose<'_> =
        &mut |_, is_safe| if is_safe { Decision::Repair } else { Decision::Leave };
    let safe = repair(&device, &options, NOW_SECONDS, choose, &mut |_| {}).unwrap();
    assert!(safe.errors > 0 && safe.repaired == 0, "{name}: {:?}", of_journal(&safe));
    assert_eq!(of_journal(&safe)[0].0, RepairOutcome::Declined, "{name}");
    assert!(content(&device) == bytes, "{name}: a repair of what is safe changes the image");

    let report = repair_all(&device).unwrap();
    assert!(report.is_clean(), "{name}: {:?}", of_journal(&report));
    judge(&report, before, blocks.map(|block| byte_at(&device, block, size)));
    assert!(check(&device, &options, &mut |_| {}).unwrap().is_clean(), "{name}");
}

/// A replay would drop the mark of an interrupted change, whose undo log may only be somewhere else.
#[test]
fn a_log_is_not_replayed_over_a_half_changed_image() {
    if !have("mke2fs") {
        return;
    }
    let scratch = Scratch::new("fsck-journal-marked").unwrap();
    let set = SMALL_IMAGES.iter().find(|set| set.name == "modern").unwrap();
    let patient = Patient::new(&scratch, set, 20);
    let [first, ..] = blocks_of_a_file(&patient.map);
    let mut log = Log::new(&patient.map, MemoryDevice::from_bytes(&patient.bytes));
    log.transaction(&[(first, b'S')], &[]);
    let device = log.finish(&patient.map);
    let mut start = [0; 4096];
    device.read_at(0, &mut start).unwrap();
    mark_half_changed(&mut start);
    device.write_at(0, &start).unwrap();
    let bytes = content(&device);

    let options = CheckOptions::default();
    let choose: &mut drystone_fsck::Choose<'_> =
        &mut |_, is_safe| if is_safe { Decision::Repair } else { Decision::Leave };
    let safe = repair(&device, &options, NOW_SECONDS, choose, &mut |_| {}).unwrap();
    let half_changed = Issue::Superblock(SuperblockIssue::HalfChanged);
    let outcome = |report: &RepairReport| {
        let mut problems = report.problems.iter();
        problems.find(|problem| problem.problem.issue == half_changed).map(|found| found.repair)
    };
    assert!(safe.errors > 0 && safe.repaired == 0, "{:?}", safe.problems);
    assert_eq!(outcome(&safe), Some(RepairOutcome::Declined));
    assert!(content(&device) == bytes, "the image was changed");

    let report = repair_all(&device).unwrap();
    assert!(report.is_clean() && outcome(&report) == Some(RepairOutcome::Repaired));
    assert_eq!(byte_at(&device, first, patient.map.layout().block_size()), b'S');
}

/// Mounts read descriptors before they replay: what heals one is no reason to call the image clean.
#[test]
fn a_damaged_descriptor_is_told_that_the_journal_heals() {
    if !have("mke2fs") {
        return;
    }
    let scratch = Scratch::new("fsck-journal-heals").unwrap();
    let set = SMALL_IMAGES.iter().find(|set| set.name == "modern").unwrap();
    let Patient { map, bytes, .. } = Patient::new(&scratch, set, 20);
    let block = map.layout().descriptor_block(0).unwrap().get();
    let place = block * map.layout().block_size() as u64;
    let mut log = Log::new(&map, MemoryDevice::from_bytes(&bytes));
    let mut sound = vec![0; log.size];
    log.device.read_at(place, &mut sound).unwrap();
    log.transaction_of(&[(block, sound)], &[]);
    let device = log.finish(&map);
    assert!(check(&device, &CheckOptions::default(), &mut |_| {}).unwrap().is_clean());
    flip(&device, place + 0x1e);
    let report = check(&device, &CheckOptions::default(), &mut |_| {}).unwrap();
    let is_told = |issue: &Issue| matches!(issue, Issue::Journal(JournalIssue::Heals(_)));
    assert!(report.errors == 1 && is_told(&report.problems[0].issue), "{:?}", report.problems);
    assert!(repair_all(&device).unwrap().is_clean());
    assert!(check(&device, &CheckOptions::default(), &mut |_| {}).unwrap().is_clean());
}

/// A log of blocks that are there twice would be longer than the device, without end.
#[test]
fn a_journal_has_no_block_twice() {
    let treated = super::treat("ext3", |map, device| {
        let pointers = place_of(map, InodeNumber::JOURNAL) + 40;
        let mut pointer = [0; 4];
        device.read_at(pointers + 4, &mut pointer).unwrap();
        device.write_at(pointers + 8, &pointer).unwrap();
        let report = check(device, &CheckOptions::default(), &mut |_| {}).unwrap();
        let unusable = Issue::Journal(JournalIssue::Inode { inode: InodeNumber::JOURNAL });
        assert!(report.problems.iter().any(|problem| problem.issue == unusable));
    });
    let Some(treated) = treated else { return };
    assert!(super::all_is_saved(&treated), "{:?}", treated.ours);
}

/// What a damaged superblock names as the journal's inode keeps its content if it is a file.
#[test]
fn no_file_is_taken_for_a_journal() {
    for has_backup in [true, false] {
        let treated = super::treat("modern", |map, device| {
            let size = map.layout().block_size() as u64;
            let is_large = |inode: &Inode| inode.is_regular() && inode.size_bytes > 2 * size;
            let mut files = inodes_of(map, |inode| is_large(inode) && inode.has_block_mapping());
            files.retain(|number| number.get() > 11);
            let mut superblock = map.superblock.clone();
            superblock.set_journal_inode(files.last().copied());
            if !has_backup {
                superblock.set_journal_backup(None);
            }
            device.write_at(1024, &superblock.encode()).unwrap();
        });
        let Some(treated) = treated else { return };
        assert!(super::all_is_saved(&treated), "{has_backup}: {:?}", treated.ours);
    }
}

/// What the old log holds behind the first transaction of a new one must not go on with it.
#[test]
fn a_journal_made_anew_has_nothing_of_the_old_one() {
    if !have("mke2fs") {
        return;
    }
    let scratch = Scratch::new("fsck-journal-anew").unwrap();
    for name in ["modern", "ext3"] {
        let set = SMALL_IMAGES.iter().find(|set| set.name == name).unwrap();
        let Patient { map, bytes, .. } = Patient::new(&scratch, set, 20);
        let (size, blocks) = (map.layout().block_size(), blocks_of_a_file(&map));
        let mut log = Log::new(&map, MemoryDevice::from_bytes(&bytes));
        let place = log.places[0] * size as u64;
        for block in blocks {
            log.transaction(&[(block, b'S')], &[]);
        }
        let device = log.finish(&map);
        assert_eq!(repair_all(&device).unwrap().summary.transactions_replayed, 3, "{name}");
        for block in blocks {
            device.write_at(block * size as u64, &vec![b'T'; size]).unwrap();
        }
        flip(&device, place);
        let report = repair_all(&device).unwrap();
        let made = (RepairOutcome::Repaired, Some("the journal was made anew"));
        assert_eq!(of_journal(&report), [made], "{name}");

        let mut log = Log::new(&map, device);
        log.transaction(&[(blocks[0], b'U')], &[]);
        let device = log.finish(&map);
        assert_eq!(repair_all(&device).unwrap().summary.transactions_replayed, 1, "{name}");
        let after = blocks.map(|block| byte_at(&device, block, size));
        assert_eq!(after, *b"UTT", "{name}");
    }
}

const DROPPED: &str = "what the journal holds was dropped";

/// The older copy of a block that was revoked must not be written: a file may have it by now.
#[test]
fn nothing_is_replayed_with_a_damaged_revoke_block() {
    for (name, offset) in [("modern", 900), ("modern", 16), ("ext3", 12)] {
        let log = |log: &mut Log, [first, second, _]: [u64; 3]| {
            log.transaction(&[(first, b'S')], &[]);
            log.transaction(&[(second, b'S')], &[first])[2] + offset
        };
        treat(name, log, |report, before, after| {
            assert_eq!(before, after, "{name} {offset}");
            assert_eq!(of_journal(report), [(RepairOutcome::Repaired, Some(DROPPED))], "{name}");
            assert_eq!(report.summary.transactions_replayed, 0);
        });
    }
}

#[test]
fn nothing_is_replayed_with_a_damaged_descriptor() {
    let log = |log: &mut Log, [first, second, third]: [u64; 3]| {
        log.transaction(&[(first, b'S')], &[]);
        let place = log.transaction(&[(second, b'S')], &[])[0];
        log.transaction(&[(third, b'S')], &[]);
        place + 20
    };
    treat("modern", log, |report, before, after| {
        assert_eq!(before, after);
        assert_eq!(of_journal(report), [(RepairOutcome::Repaired, Some(DROPPED))]);
    });
}

/// What the transactions behind the damage have revoked isn't written either.
#[test]
fn what_comes_before_a_damaged_commit_block_is_replayed() {
    let log = |log: &mut Log, [first, second, third]: [u64; 3]| {
        log.transaction(&[(first, b'S'), (third, b'S')], &[]);
        let place = log.transaction(&[(second, b'S')], &[])[2];
        log.transaction(&[(second, b'T')], &[third]);
        place + 20
    };
    treat("modern", log, |report, before, after| {
        assert_eq!(after, [b'S', before[1], before[2]]);
        let done = Some("its transaction and later ones were dropped");
        assert_eq!(of_journal(report), [(RepairOutcome::Repaired, done)]);
        assert_eq!(report.summary.transactions_replayed, 1);
    });
}

#[test]
fn a_damaged_copy_is_left_out_of_the_replay() {
    let log = |log: &mut Log, [first, second, third]: [u64; 3]| {
        log.transaction(&[(first, b'S')], &[]);
        let place = log.transaction(&[(second, b'S')], &[])[1];
        log.transaction(&[(third, b'S')], &[]);
        place + 20
    };
    treat("modern", log, |report, before, after| {
        assert_eq!(after, [b'S', before[1], b'S']);
        let done = Some("the rest of the journal was replayed");
        assert_eq!(of_journal(report), [(RepairOutcome::Repaired, done)]);
        assert_eq!(report.summary.transactions_replayed, 3);
    });
}
