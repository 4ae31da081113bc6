//! The repair on many damaged images, beside e2fsck.

use crate::process;

/// The test that does it. An ordinary run of it takes few images.
const TEST: &str = "damaged_images_are_repaired_until_they_are_clean";

#[derive(clap::Args)]
pub struct Options {
    /// How many images.
    #[arg(long, default_value_t = 20_000)]
    images: u64,
    /// Repeats a run.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only the image of this number, with all that the repair did.
    #[arg(long)]
    case: Option<u64>,
}

pub fn run(options: &Options) -> anyhow::Result<()> {
    let mut cargo = process::cargo(["test", "--package", "drystone-fsck", "--test", "repairs"]);
    cargo.args(["--", "--exact", TEST, "--nocapture"]);
    cargo.env("DRYSTONE_DAMAGED_IMAGES", options.images.to_string());
    cargo.env("DRYSTONE_SEED", options.seed.to_string());
    if let Some(case) = options.case {
        cargo.env("DRYSTONE_DAMAGE_CASE", case.to_string());
    }
    process::run(&mut cargo)
}
