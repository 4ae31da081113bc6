//! Volumes of NILFS2 with impossible numbers, under sums that hold.
//!
//! `DRYSTONE_HOSTILE_IMAGES` is how many volumes have words changed, `DRYSTONE_SEED` the first seed.

use super::commands::{every_command, harmless};
use crate::support::Fixture;
use drystone_nilfs2_format::geometry::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES};
use drystone_nilfs2_format::superblock;
use drystone_testkit::environment;
use fastrand::Rng;
use std::fs::File;
use std::os::unix::fs::FileExt;

const IMAGE_BYTES: u64 = 16 << 20;
/// Words that are changed in an image, at most.
const WORDS_MAX: usize = 12;

/// A volume with a tree and a few checkpoints.
fn made() -> Fixture {
    let fixture = Fixture::empty();
    let made = "mkfs disk.img --type nilfs2 --size 16M -b 1K --blocks-per-segment 64 -q";
    fixture.line(made).good();
    for number in 0..60 {
        fixture.put(&format!("source/d/{number}"), vec![number; 50 * usize::from(number)]);
    }
    fixture.put("source/a", vec![7; 300_000]);
    fixture.line("cp source/a source/d disk.img:/").good();
    fixture.line("rm disk.img:/d/7").good();
    std::fs::remove_dir_all(fixture.path("source")).unwrap();
    fixture
}

/// Changes words of the volume that aren't zero. Only the sum over a whole log covers them, and only
/// a recovery reads that.
fn change_words(image: &File, random: &mut Rng) {
    let mut bytes = vec![0; IMAGE_BYTES as usize];
    image.read_exact_at(&mut bytes, 0).unwrap();
    let used: Vec<usize> = (2 * SUPERBLOCK_OFFSET_BYTES as usize..bytes.len() - 8192)
        .step_by(8)
        .filter(|at| bytes[*at..at + 8] != [0; 8] && bytes[*at..at + 8] != [7; 8])
        .collect();
    for _ in 0..random.usize(1..=WORDS_MAX) {
        let at = used[random.usize(..used.len())];
        let old = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let new = match random.u8(..6) {
            0 => 0,
            1 => u64::MAX,
            2 => u64::MAX >> random.u8(1..40),
            3 => old.wrapping_add(1),
            4 => old ^ 1 << random.u8(..64),
            _ => random.u64(..IMAGE_BYTES / 1024),
        };
        image.write_all_at(&new.to_le_bytes(), at as u64).unwrap();
    }
}

#[test]
fn changed_words() {
    let images = environment::number("DRYSTONE_HOSTILE_IMAGES").unwrap_or(4);
    let first = environment::number("DRYSTONE_SEED").unwrap_or(1);
    for seed in first..first + images {
        let fixture = made();
        let image = File::options().read(true).write(true).open(fixture.path("disk.img")).unwrap();
        eprintln!("seed {seed}");
        change_words(&image, &mut Rng::with_seed(seed));
        every_command(&fixture);
    }
}

/// The superblock's numbers: where they are, and how many bytes they have.
const NUMBERS: [(&str, usize, usize); 19] = [
    ("log_block_size", 20, 4),
    ("nsegments", 24, 8),
    ("dev_size", 32, 8),
    ("first_data_block", 40, 8),
    ("blocks_per_segment", 48, 4),
    ("r_segments_percentage", 52, 4),
    ("last_cno", 56, 8),
    ("last_pseg", 64, 8),
    ("last_seq", 72, 8),
    ("free_blocks_count", 80, 8),
    ("mnt_count", 112, 2),
    ("first_ino", 140, 4),
    ("inode_size", 144, 2),
    ("dat_entry_size", 146, 2),
    ("checkpoint_size", 148, 2),
    ("segment_usage_size", 150, 2),
    ("c_interval", 248, 4),
    ("c_block_max", 252, 4),
    ("feature_compat_ro", 264, 8),
];

/// Each number of the superblock, wrong, in both copies. A volume that is refused isn't changed.
#[test]
fn numbers_of_the_superblock() {
    let fixture = made();
    let image = File::options().read(true).write(true).open(fixture.path("disk.img")).unwrap();
    let mut sound = vec![0; IMAGE_BYTES as usize];
    image.read_exact_at(&mut sound, 0).unwrap();
    let copies = [SUPERBLOCK_OFFSET_BYTES as usize, IMAGE_BYTES as usize - 4096];
    let mut refused = 0;
    for (field, offset, length) in NUMBERS {
        let most = u64::MAX >> (64 - 8 * length);
        for number in [0, most >> 1, most] {
            eprintln!("{field}: {number}");
            let mut bytes = sound.clone();
            for start in copies {
                let superblock = &mut bytes[start..start + SUPERBLOCK_BYTES];
                superblock[offset..offset + length]
                    .copy_from_slice(&number.to_le_bytes()[..length]);
                superblock::seal(superblock);
            }
            for line in [
                "info disk.img",
                "check disk.img",
                "ls -R disk.img",
                "cat disk.img:/a",
                "cp disk.img disk.img:/copy",
                "mkdir disk.img:/new",
                "resize disk.img +4M",
            ] {
                image.set_len(IMAGE_BYTES).unwrap();
                image.write_all_at(&bytes, 0).unwrap();
                let message = harmless(&fixture, line);
                assert!(!message.contains("ext2, ext3"), "{line}: {message}");
                let is_as_before = std::fs::read(fixture.path("disk.img")).unwrap() == bytes;
                let is_refused = message.contains("superblock") || message.contains("feature");
                refused += u32::from(is_refused);
                assert!(!is_refused || is_as_before, "{field} = {number}: {line}: {message}");
            }
        }
    } // All commands refuse most of the numbers.
    assert!(refused > 7 * 19, "{refused}");
}
