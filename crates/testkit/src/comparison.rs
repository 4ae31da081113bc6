//! Runs the same operations on two file systems, and shrinks a sequence that tells them apart.

use std::fmt;

use drystone_vfs::{Errno, FileSystem};

use crate::operations::{Action, Executor, Operation, Outcome, Profile, generate};
use crate::tree::{TreeOptions, TreeSnapshot, diff};

/// What two file systems may differ in.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tolerance {
    /// Where data and holes are.
    pub seek: bool,
    /// The comparison ends at the first full disk.
    pub full: bool,
}

/// The first disagreement of two file systems.
#[derive(Clone, Debug)]
pub struct Disagreement {
    /// The operation, by its place in the sequence; `None`: the trees at the end.
    pub index: Option<usize>,
    /// The operation and its outcome on both sides.
    pub report: String,
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.report)
    }
}

/// Does the operations on both file systems and compares each outcome, and the trees at the end.
pub fn compare(
    left: &dyn FileSystem,
    right: &dyn FileSystem,
    operations: &[Operation],
    tolerance: Tolerance,
) -> Result<(), Disagreement> {
    let (mut on_left, mut on_right) = (Executor::new(left), Executor::new(right));
    for (index, operation) in operations.iter().enumerate() {
        let (a, b) = (on_left.apply(operation), on_right.apply(operation));
        if tolerance.full && [&a, &b].contains(&&Outcome(Err(Errno::ENOSPC))) {
            break;
        }
        if a == b || tolerance.seek && matches!(operation.action, Action::Seek { .. }) {
            continue;
        }
        let details = [&on_left, &on_right].map(|side| side.last_detail().unwrap_or_default());
        return Err(Disagreement {
            index: Some(index),
            report: format!(
                "operation {index}: {operation}\n  left:  {a} {}\n  right: {b} {}",
                details[0], details[1]
            ),
        });
    }
    let options = TreeOptions::default();
    let trees = [left, right].map(|side| TreeSnapshot::read(side, "/", &options));
    let report = match &trees {
        [Ok(a), Ok(b)] => diff(a, b),
        [a, b] => {
            let failed = [("left", a), ("right", b)];
            let errors =
                failed.iter().filter_map(|(side, tree)| Some((side, tree.as_ref().err()?)));
            errors.map(|(side, error)| format!("{side} can't be walked: {error}")).collect()
        }
    };
    if report.is_empty() {
        return Ok(());
    }
    Err(Disagreement { index: None, report: format!("trees differ:\n  {}", report.join("\n  ")) })
}

/// Removes items, such as operations, as long as the rest still fails: halves first, single ones at the
/// end. `fails` has to rebuild what it tests each time; at most `attempts_max` calls are made.
pub fn shrink<T: Clone>(
    items: &[T],
    attempts_max: usize,
    mut fails: impl FnMut(&[T]) -> bool,
) -> Vec<T> {
    let mut rest = items.to_vec();
    let mut attempts = 0;
    let mut chunk = rest.len().div_ceil(2);
    while chunk > 0 && attempts < attempts_max {
        let mut start = 0;
        let mut removed_any = false;
        while start < rest.len() && attempts < attempts_max {
            let mut shorter = rest.clone();
            shorter.drain(start..rest.len().min(start + chunk));
            attempts += 1;
            if fails(&shorter) {
                rest = shorter;
                removed_any = true;
            } else {
                start += chunk;
            }
        }
        if chunk == 1 && !removed_any {
            break;
        }
        chunk = if chunk == 1 { 1 } else { chunk / 2 };
    }
    rest
}

/// Compares fresh pairs of file systems under `count` operations from each seed; panics on the
/// first difference with the seed and the shortest operations that show it.
///
/// `make` passes a fresh pair to the function that it gets, and returns that function's result.
pub fn check_seeds(
    seeds: std::ops::Range<u64>,
    profile: &Profile,
    count: usize,
    tolerance: Tolerance,
    mut make: impl FnMut(&mut dyn FnMut(&dyn FileSystem, &dyn FileSystem)),
) {
    let mut run = |operations: &[Operation]| {
        let mut result = Ok(());
        make(&mut |left, right| result = compare(left, right, operations, tolerance));
        result
    };
    for seed in seeds {
        let operations = generate(seed, profile, "/", count);
        let Err(first) = run(&operations) else { continue };
        let failing = first.index.map_or(&operations[..], |index| &operations[..=index]);
        let shortest = shrink(failing, 400, |operations| run(operations).is_err());
        let difference = run(&shortest).err().unwrap_or(first);
        let lines: Vec<String> = shortest.iter().map(Operation::to_string).collect();
        panic!(
            "profile {}, seed {seed}, {count} operations: {difference}\n\
             The operations below show it (parse_operations and compare run them again):\n{}\n",
            profile.name,
            lines.join("\n")
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Configuration, MemoryFileSystem};

    #[test]
    fn model_equals_itself_and_leaks_no_references() {
        for profile in Profile::ALL {
            check_seeds(0..3, profile, 600, Tolerance::default(), |test| {
                let (a, b) = (MemoryFileSystem::default(), MemoryFileSystem::default());
                test(&a, &b);
                assert_eq!(a.references(), 0);
            });
        }
    }

    #[test]
    fn differences_are_found_and_shrunk() {
        let fails = |operations: &[Operation]| {
            let small = Configuration { links_max: 2, ..Configuration::default() };
            let (a, b) = (MemoryFileSystem::default(), MemoryFileSystem::new(small));
            compare(&a, &b, operations, Tolerance::default()).is_err()
        };
        let found = (0..20)
            .map(|seed| generate(seed, &Profile::METADATA, "/", 400))
            .find(|operations| fails(operations))
            .expect("some sequence makes three links");
        let shortest = shrink(&found, 1000, fails);
        assert!(shortest.len() <= 4, "{shortest:#?}");
        assert!(fails(&shortest));
    }
}
