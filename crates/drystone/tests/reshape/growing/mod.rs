//! Images that grow while they are open.

mod crash;
mod matrix;
mod threads;

use crate::support::Sample;
use drystone::Image;
use drystone_testkit::operations::{Action, Actor, Executor, Operation, Profile, Word, generate};

const MIB: u64 = 1 << 20;

/// Does random things in a directory of their own, on an open image.
fn work(image: &Image, sample: &Sample, seed: u64, count: usize) {
    let mut executor = Executor::new(image.file_system());
    let base = format!("/work-{seed}");
    let profile = Profile {
        offset_max: 600_000,
        alignment: u64::from(sample.set.cluster_size),
        ..sample.set.with_fitting_xattrs(Profile::MIXED)
    };
    let action = Action::MakeDirectory { path: Word::from(&base[..]), mode: 0o777 };
    executor.apply(&Operation { actor: Actor(0), action });
    for operation in generate(seed, &profile, &base, count) {
        executor.apply(&operation);
    }
    executor.close_all();
}
