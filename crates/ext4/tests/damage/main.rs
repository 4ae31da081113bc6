//! Damaged images: whatever a block holds, a call returns an error that names the place, or a correct
//! answer. It never panics, hangs or takes much more memory than the image.
//!
//! Every metadata block of small images gets flipped bits, is zeroed, filled with ones, swapped with
//! another block, and changed inside with its checksum computed again.
//!
//! `DRYSTONE_DAMAGE_ROUNDS=n` runs n rounds, `DRYSTONE_STRESS_SECONDS=n` goes on for n seconds with each
//! kind of image, `DRYSTONE_SEED=n` makes other damages, and `DRYSTONE_DAMAGE_CASE=text` runs only the
//! cases whose label contains the text. `DRYSTONE_DAMAGE_VERBOSE=1` prints each case before it runs.
#![allow(clippy::unwrap_used)]

mod crafted;
mod excess;
mod exercise;
mod image;
mod own_files;
mod targeted;
mod watch;

use drystone_blockdev::{BlockDevice, MemoryDevice, Overlay};
use drystone_sync::{Arc, clock};
use drystone_testkit::damage::{self, Damage};
use drystone_testkit::environment::number;
use drystone_testkit::metadata_map::{BlockContent, MetadataMap as Map};
use fastrand::Rng;
use image::Kind;
use std::time::Duration;
use watch::Watch;

/// The damages that a block gets in a round; few in a short run.
fn damages(content: BlockContent, round: u64, is_long: bool, random: &mut Rng) -> Vec<Damage> {
    let mut damages = vec![Damage::Fuzz, Damage::Point];
    if round > 0 {
        return damages;
    }
    let raw = [Damage::Flip, Damage::Zero, Damage::Ones, Damage::Swap];
    if !is_long {
        damages.push(*random.choice(&raw).unwrap());
        return damages;
    }
    match content {
        // There are many of these, and they differ little: each gets only one of the raw damages.
        BlockContent::Log | BlockContent::OrphanFile(..) | BlockContent::Quota => {
            damages.push(*random.choice(&raw).unwrap());
        }
        BlockContent::InodeTable(_) | BlockContent::Superblock | BlockContent::Descriptors => {
            damages.extend(raw);
            damages.extend([Damage::Fuzz; 5]);
        }
        _ => damages.extend(raw),
    }
    damages
}

/// Runs our checker, which has to end with a report or an error as well.
fn check(device: &dyn BlockDevice) {
    let options = drystone_fsck::CheckOptions::default().problems_max(1000);
    if let Err(error) = drystone_fsck::check(device, &options, &mut |_| {}) {
        assert!(!error.to_string().is_empty());
    }
}

/// Damages every block of an image of a kind in every way.
fn survives(kind: &Kind) {
    let watch = Watch::start();
    let Some(device) = image::make(kind) else { return };
    let map = Map::of(device);
    let base: Arc<MemoryDevice> = Arc::new(map.device.snapshot());
    let size = base.size_bytes() as usize;
    let overlay = || Arc::new(Overlay::new(Arc::clone(&base)));
    let sound = exercise::read_all(overlay());
    assert_eq!(sound.damages, 0, "{}: the sound image", kind.name);
    exercise::change_all(overlay(), &mut Rng::with_seed(1));
    let has_checksums = map.layout().checksum_seed().is_some();
    let wanted = std::env::var("DRYSTONE_DAMAGE_CASE").unwrap_or_default();
    let seed = number("DRYSTONE_SEED").unwrap_or(0x5eed);
    let mut cases = 0_u64;
    let started = clock::now();
    let seconds = number("DRYSTONE_STRESS_SECONDS");
    let duration_max = Duration::from_secs(seconds.unwrap_or(0));
    for round in 0.. {
        if round >= number("DRYSTONE_DAMAGE_ROUNDS").unwrap_or(1)
            && started.elapsed() >= duration_max
        {
            break;
        }
        for (&block, &content) in &map.blocks {
            if kind.dirty && !matches!(content, BlockContent::Log | BlockContent::JournalSuperblock)
            {
                continue;
            }
            let mut random = Rng::with_seed(seed ^ round << 32 ^ block);
            for (index, damage) in
                damages(content, round, seconds.is_some(), &mut random).into_iter().enumerate()
            {
                let case_seed = random.u64(..);
                let label = format!(
                    "{}/{}/block {block}/{damage:?} {round}.{index} (DRYSTONE_SEED={seed})",
                    kind.name,
                    content.name()
                );
                if !label.contains(&wanted) {
                    continue;
                }
                cases += 1;
                watch.case(&label, size, || {
                    let device = || {
                        let device = overlay();
                        let mut random = Rng::with_seed(case_seed);
                        damage::apply(&map, &*device, block, damage, &mut random);
                        device
                    };
                    let seen = exercise::read_all(device());
                    check(&*device());
                    let is_told = has_checksums && damage.is_evident() && !kind.dirty;
                    if is_told && seen.damages == 0 {
                        assert_eq!(seen.digest, sound.digest, "case {label}: a wrong answer");
                    }
                    let device = device();
                    exercise::change_all(device.clone(), &mut Rng::with_seed(case_seed));
                    exercise::read_all(device.clone());
                    check(&*device);
                });
            }
        }
    }
    eprintln!("{}: {cases} damages of {} blocks", kind.name, map.blocks.len());
}

macro_rules! kinds {
    ($($name:ident: $arguments:literal, $size_mib:literal, $dirty:literal;)*) => {
        $(
            #[test]
            fn $name() {
                let (arguments, size_mib, dirty) = ($arguments, $size_mib, $dirty);
                survives(&Kind { name: stringify!($name), arguments, size_mib, dirty });
            }
        )*
    };
}

kinds! {
    default_4k: "-t ext4 -b 4096 -N 64", 6, false;
    default_1k: "-t ext4 -b 1024 -N 64 -O orphan_file,metadata_csum_seed", 4, false;
    no_checksums: "-t ext4 -b 1024 -N 64 -O ^metadata_csum,^uninit_bg", 4, false;
    group_checksums: "-t ext4 -b 1024 -N 64 -O ^metadata_csum,uninit_bg,^64bit,^flex_bg -g 2048", 4, false;
    ext2: "-t ext2 -b 1024 -N 64 -I 128", 4, false;
    ext3: "-t ext3 -b 1024 -N 64", 4, false;
    bigalloc: "-t ext4 -b 1024 -N 64 -O bigalloc -C 16384", 8, false;
    inline_data: "-t ext4 -b 1024 -N 64 -I 256 -O inline_data,ea_inode", 4, false;
    inline_data_unchecked: "-t ext4 -b 1024 -N 64 -I 512 -O inline_data,^metadata_csum", 4, false;
    attribute_inodes: "-t ext4 -b 4096 -N 64 -O ea_inode,large_dir", 6, false;
    quotas: "-t ext4 -b 1024 -N 64 -O quota,project -E quotatype=usrquota:grpquota:prjquota", 4, false;
    meta_groups: "-t ext4 -b 1024 -N 64 -O meta_bg,^resize_inode,mmp -g 1024", 4, false;
    dirty_journal: "-t ext4 -b 1024 -N 64 -O orphan_file", 4, true;
    dirty_journal_unchecked: "-t ext3 -b 1024 -N 64", 4, true;
}
