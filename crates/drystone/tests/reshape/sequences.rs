//! Random sequences of grow, shrink, tune, convert and write on images of every kind. The long form is a part of
//! `./dev stress`.

use crate::support::Sample;
use drystone::reshape::{NewSize, ReservedSpace, Tuning};
use drystone::{ChangeOptions, Features, resize_image, tune_image};
use drystone_testkit::environment::number;
use drystone_testkit::judges::FEATURE_SETS;

const MIB: u64 = 1 << 20;

/// Why a conversion may be refused.
const REFUSALS: [&str; 5] =
    ["too little", "exclude each other", "(ea_inode)", "inodes can't have", "64bit needs extent"];

/// Changes of each image, unless `DRYSTONE_CHANGES` says how many.
const CHANGES: u64 = 2;

#[test]
fn any_sequence_of_changes_keeps_every_file() {
    let seed = number("DRYSTONE_SEED").unwrap_or(1);
    let changes = number("DRYSTONE_CHANGES");
    // A few kinds on each ordinary run, all of them on a long one.
    let step = if changes.is_some() { 1 } else { 13 };
    for set in FEATURE_SETS.iter().skip(seed as usize % step).step_by(step) {
        // To be changed, it takes ten seconds to open.
        if set.mentions("mmp") {
            continue;
        }
        run(set.name, seed, changes.unwrap_or(CHANGES));
    }
}

fn run(name: &str, seed: u64, changes: u64) {
    let Some(sample) = Sample::new(name, 64) else { return };
    let mut random = fastrand::Rng::with_seed(seed);
    let options = ChangeOptions::default();
    let mut trail = vec![format!("seed {seed}")];
    sample.fill(seed, 40);
    for number in 0..changes {
        let before = sample.tree();
        let size = match random.u8(..5) {
            0 => NewSize::Minimum,
            1 => NewSize::More(random.u64(1..400) * MIB),
            2 => NewSize::Less(random.u64(1..40) * MIB),
            _ => NewSize::Exactly(random.u64(24..600) * MIB),
        };
        let resized = resize_image(&sample.path(), size, &options, &mut |_| {});
        trail.push(format!("{size:?}: {resized:?}"));
        let told = trail.join("\n");
        match resized {
            // There may be too little space, or inodes that can't move, and nothing else may be wrong.
            Err(error)
                if !["too little", "stable_inodes"]
                    .iter()
                    .any(|why| error.to_string().contains(why)) =>
            {
                panic!("{name}: {told}")
            }
            _ => sample.judge(&told, &before),
        }
        let percent = f64::from(random.u8(..20));
        let tuning =
            Tuning::default().uuid([random.u8(..); 16]).reserved(ReservedSpace::Percent(percent));
        let tuned = tune_image(&sample.path(), &tuning, &options, &mut |_| {});
        let is_refused = tuned.as_ref().is_err_and(|error| error.to_string().contains("UUID"));
        assert!(tuned.is_ok() || is_refused, "{name}: {told}\n{tuned:?}");
        sample.judge(&told, &before);
        let conversion = conversion(&mut random, &sample);
        let converted = tune_image(&sample.path(), &conversion, &options, &mut |_| {});
        trail.push(format!("{conversion:?}: {converted:?}"));
        let told = trail.join("\n");
        if let Err(error) = converted {
            let error = error.to_string();
            assert!(REFUSALS.iter().any(|why| error.contains(why)), "{name}: {told}");
        }
        sample.judge(&told, &before);
        sample.fill(seed * 1000 + number + 1, 20);
    }
}

fn conversion(random: &mut fastrand::Rng, sample: &Sample) -> Tuning {
    let lists = [
        "64bit",
        "^64bit",
        "metadata_csum",
        "^metadata_csum",
        "^metadata_csum,^uninit_bg",
        "uninit_bg",
        "^uninit_bg",
        "metadata_csum,metadata_csum_seed,64bit",
    ];
    let tuning = Tuning::default();
    match random.usize(..lists.len() + 2) {
        0 => tuning.convert_maps(true),
        1 => tuning.inode_size(2 * sample.field("Inode size").parse::<u16>().unwrap()),
        number => tuning.features(Features::parse(lists[number - 2]).unwrap()),
    }
}
