//! Runs the same operations in two directories.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::io::Errno;

use super::HostExecutor;
use crate::comparison::{Tolerance, shrink};
use crate::operations::{Action, Operation, Profile, generate};
use crate::tree::{TreeOptions, TreeSnapshot, diff};

/// Attempts to make a failing sequence short.
const SHRINK_ATTEMPTS_MAX: usize = 300;

/// Compares two directories, each on a file system of its own, under `count` operations from each
/// seed; panics on the first difference with the seed and the shortest operations that show it.
/// `left` is the one under test; `is_possible` leaves out operations that it can't do.
pub fn check_directories(
    seeds: std::ops::Range<u64>,
    profile: &Profile,
    count: usize,
    tolerance: Tolerance,
    is_possible: fn(&Action) -> bool,
    left: &Path,
    right: &Path,
) {
    let mut attempt = 0;
    for seed in seeds {
        let mut run = |operations: &[Operation]| {
            attempt += 1;
            let name = format!("{}-{seed}-{attempt}", profile.name);
            compare(&left.join(&name), &right.join(&name), operations, tolerance)
        };
        let mut operations = generate(seed, profile, "/", count);
        operations.retain(|operation| is_possible(&operation.action));
        let Err(first) = run(&operations) else { continue };
        let shortest =
            shrink(&operations, SHRINK_ATTEMPTS_MAX, |operations| run(operations).is_err());
        let difference = run(&shortest).err().unwrap_or(first);
        let lines: Vec<String> = shortest.iter().map(Operation::to_string).collect();
        panic!(
            "profile {}, seed {seed}, {count} operations: {difference}\n\
             The operations below show it:\n{}\n",
            profile.name,
            lines.join("\n")
        );
    }
}

/// Runs the operations in two new directories and compares each outcome, and the trees at the end.
fn compare(
    left: &Path,
    right: &Path,
    operations: &[Operation],
    tolerance: Tolerance,
) -> Result<(), String> {
    let new = |path: &Path| {
        fs::create_dir(path)
            .and_then(|()| fs::set_permissions(path, PermissionsExt::from_mode(0o755)))
    };
    let executors = [left, right].map(|path| new(path).and_then(|()| HostExecutor::new(path)));
    let [Ok(mut on_left), Ok(mut on_right)] = executors else {
        return Err(format!("can't begin: {executors:?}"));
    };
    for (index, operation) in operations.iter().enumerate() {
        let (a, b) = (on_left.apply(operation), on_right.apply(operation));
        // If there are several reasons to refuse, which error comes first depends on what the kernel
        // has cached of an inode. It doesn't know, for instance, that an inode is immutable.
        let both_refuse = a.is_err() && b.is_err() && [&a, &b].contains(&&Err(Errno::PERM));
        if a == b
            || both_refuse
            || tolerance.seek && matches!(operation.action, Action::Seek { .. })
        {
            continue;
        }
        return Err(format!("operation {index}: {operation}\n  left:  {a:?}\n  right: {b:?}"));
    }
    let trees = [left, right].map(|path| TreeSnapshot::from_host(path, &TreeOptions::default()));
    let [Ok(a), Ok(b)] = &trees else { return Err(format!("can't be walked: {trees:?}")) };
    let differences = diff(a, b);
    if differences.is_empty() {
        return Ok(());
    }
    Err(format!("trees differ:\n  {}", differences.join("\n  ")))
}
