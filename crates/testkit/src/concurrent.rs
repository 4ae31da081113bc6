//! Many threads on one file system: each in a directory of its own, where every outcome is known,
//! and all in a shared directory, where only some outcomes can be ruled out.

use std::collections::BTreeMap;

use drystone_sync::{Barrier, thread};
use drystone_vfs::{Errno, FileSystem, InodeGuard, NewNode, RequestContext};

use crate::comparison::Tolerance;
use crate::model::{Configuration, MemoryFileSystem};
use crate::operations::{Action, Executor, Operation, Outcome, Profile, generate};
use crate::tree::{TreeOptions, TreeSnapshot, diff};

/// What to run.
#[derive(Clone, Debug)]
pub struct ConcurrentSettings {
    /// How many threads.
    pub threads: usize,
    /// Operations of each thread in its own directory.
    pub private_operations: usize,
    /// Operations of each thread in the shared directory, spread among the others.
    pub shared_operations: usize,
    /// The random seed.
    pub seed: u64,
    /// What is done in own directories.
    pub private_profile: Profile,
    /// What is done in the shared directory.
    pub shared_profile: Profile,
    /// What is not compared. With `full`, a full disk isn't an error, and ends the comparison of a
    /// thread's own directory.
    pub tolerance: Tolerance,
    /// The limits of the file system, for the models of own directories.
    pub configuration: Configuration,
}

impl Default for ConcurrentSettings {
    fn default() -> ConcurrentSettings {
        ConcurrentSettings {
            threads: 4,
            private_operations: 500,
            shared_operations: 500,
            seed: 0,
            private_profile: Profile::MIXED,
            shared_profile: Profile { users_percent: 0, ..Profile::RENAMES },
            tolerance: Tolerance::default(),
            configuration: Configuration::default(),
        }
    }
}

/// Errors that other threads can cause; any other error is the file system's fault.
const PLAUSIBLE: [Errno; 17] = [
    Errno::EPERM,
    Errno::ENOENT,
    Errno::ENXIO,
    Errno::EBADF,
    Errno::EACCES,
    Errno::EEXIST,
    Errno::EXDEV,
    Errno::ENOTDIR,
    Errno::EISDIR,
    Errno::EINVAL,
    Errno::EFBIG,
    Errno::EMLINK,
    Errno::ENAMETOOLONG,
    Errno::ENOTEMPTY,
    Errno::ELOOP,
    Errno::ENODATA,
    Errno::EOPNOTSUPP,
];

/// Runs the threads to their end and returns the failures. Works in `/private-N` and `/shared`,
/// which must not exist.
pub fn run(file_system: &dyn FileSystem, settings: &ConcurrentSettings) -> Vec<String> {
    let mut problems = Vec::new();
    let bases: Vec<String> = (0..settings.threads).map(|n| format!("/private-{n}")).collect();
    for base in bases.iter().map(String::as_str).chain(["/shared"]) {
        if let Err(problem) = make_base(file_system, base) {
            return vec![problem];
        }
    }
    let start = Barrier::new(settings.threads);
    thread::scope(|scope| {
        let start = &start;
        let threads: Vec<_> = bases
            .iter()
            .zip(0..)
            .map(|(base, n)| scope.spawn(move || worker(file_system, settings, base, n, start)))
            .collect();
        for (thread, n) in threads.into_iter().zip(0..) {
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(problem)) => problems.push(format!("thread {n}: {problem}")),
                Err(_) => problems.push(format!("thread {n} panicked")),
            }
        }
    });
    match TreeSnapshot::read(file_system, "/shared", &TreeOptions::default()) {
        Ok(tree) => problems.extend(check_links(&tree)),
        Err(error) => problems.push(format!("/shared can't be walked: {error}")),
    }
    if !problems.is_empty() {
        let (threads, seed) = (settings.threads, settings.seed);
        problems.push(format!("that was with {threads} threads and seed {seed}"));
    }
    problems
}

fn make_base(file_system: &dyn FileSystem, base: &str) -> Result<(), String> {
    let (root, context) = (file_system.root(), RequestContext::superuser());
    let name = base.trim_start_matches('/').as_bytes();
    let made = InodeGuard::create(file_system, &context, root, name, NewNode::Directory, 0o777);
    made.map(drop).map_err(|e| format!("{base}: {e}"))
}

/// One thread's work and the comparison of its directory with its model.
fn worker(
    file_system: &dyn FileSystem,
    settings: &ConcurrentSettings,
    base: &str,
    n: u64,
    start: &Barrier,
) -> Result<(), String> {
    // First, because a thread that fails earlier would leave the others waiting.
    start.wait();
    let seed = settings.seed.wrapping_mul(1_000).wrapping_add(n * 2);
    let private = generate(seed, &settings.private_profile, base, settings.private_operations);
    let shared =
        generate(seed + 1, &settings.shared_profile, "/shared", settings.shared_operations);
    let model = MemoryFileSystem::new(settings.configuration.clone());
    make_base(&model, base)?;
    let full = {
        let mut lane = Lane {
            real: Executor::new(file_system),
            expected: Executor::new(&model),
            in_shared: Executor::new(file_system),
            tolerance: settings.tolerance,
            full: false,
        };
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut private, mut shared) = (private.iter(), shared.iter());
        loop {
            let odds = (private.len(), private.len() + shared.len());
            if odds.1 == 0 {
                break;
            }
            if random.usize(..odds.1) < odds.0 {
                private.next().map_or(Ok(()), |operation| lane.private(operation))?;
            } else {
                shared.next().map_or(Ok(()), |operation| lane.shared(operation))?;
            }
        }
        lane.full
    };
    if full {
        return Ok(());
    }
    let read = |side: &dyn FileSystem| {
        TreeSnapshot::read(side, base, &TreeOptions::default())
            .map_err(|error| format!("{base} can't be walked: {error}"))
    };
    let differences = diff(&read(&model)?, &read(file_system)?);
    if differences.is_empty() {
        return Ok(());
    }
    Err(format!("{base} differs (left: expected):\n  {}", differences.join("\n  ")))
}

/// What one thread has open.
struct Lane<'a> {
    real: Executor<'a>,
    expected: Executor<'a>,
    in_shared: Executor<'a>,
    tolerance: Tolerance,
    /// The disk was full once, so the model no longer matches.
    full: bool,
}

impl Lane<'_> {
    fn private(&mut self, operation: &Operation) -> Result<(), String> {
        let outcome = self.real.apply(operation);
        if self.tolerance.full && outcome == Outcome(Err(Errno::ENOSPC)) {
            self.full = true;
        }
        if self.full {
            return self.check_plausible(operation, &outcome);
        }
        let expected = self.expected.apply(operation);
        let ignored = self.tolerance.seek && matches!(operation.action, Action::Seek { .. });
        if ignored || outcome == expected {
            return Ok(());
        }
        let detail = self.real.last_detail().unwrap_or_default();
        Err(format!("{operation}: {outcome} {detail}; expected: {expected}"))
    }

    fn shared(&mut self, operation: &Operation) -> Result<(), String> {
        let outcome = self.in_shared.apply(operation);
        self.check_plausible(operation, &outcome)
    }

    fn check_plausible(&self, operation: &Operation, outcome: &Outcome) -> Result<(), String> {
        match outcome.0 {
            Err(Errno::ENOSPC) if self.tolerance.full => Ok(()),
            Err(errno) if !PLAUSIBLE.contains(&errno) => {
                let detail = self.in_shared.last_detail().unwrap_or_default();
                Err(format!("{operation}: {outcome} {detail}: not an error that may happen here"))
            }
            _ => Ok(()),
        }
    }
}

/// Compares link counts with the names in a tree that has all names of its inodes.
pub fn check_links(tree: &TreeSnapshot) -> Vec<String> {
    let fact =
        |facts: &crate::tree::PathFacts, name: &str| facts.get(name).cloned().unwrap_or_default();
    let mut problems = Vec::new();
    let mut subdirectories: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
    let mut names: BTreeMap<String, u32> = BTreeMap::new();
    for (path, facts) in &tree.entries {
        if fact(facts, "type") == "Directory" {
            let cut = path.0.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
            if path.0 != b"/" {
                let parent = if cut == 0 { b"/".to_vec() } else { path.0[..cut].to_vec() };
                *subdirectories.entry(parent).or_default() += 1;
            }
        } else if let Some(first) = facts.get("same inode as") {
            *names.entry(first.clone()).or_default() += 1;
        }
    }
    for (path, facts) in &tree.entries {
        let links: u32 = fact(facts, "links").parse().unwrap_or(0);
        let expected = match (fact(facts, "type").as_str(), facts.get("same inode as")) {
            // A count of 1 means that there were too many once.
            ("Directory", _) if links == 1 => 1,
            ("Directory", _) => 2 + subdirectories.get(&path.0).copied().unwrap_or(0),
            (_, Some(first)) => names[first],
            _ => 1,
        };
        if links != expected {
            problems.push(format!("{path}: {links} links, expected {expected}"));
        }
        if let Some(listing) = facts.get("listing") {
            problems.push(format!("{path}: {listing}"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::{Word, parse_operations};

    #[test]
    fn threads_on_the_model_see_what_they_expect() {
        for seed in 0..3 {
            let model = MemoryFileSystem::default();
            let problems =
                run(&model, &ConcurrentSettings { seed, ..ConcurrentSettings::default() });
            assert!(problems.is_empty(), "{}", problems.join("\n"));
            assert_eq!(model.references(), 0);
        }
    }

    #[test]
    fn other_limits_are_noticed() {
        let small = Configuration { links_max: 2, ..Configuration::default() };
        let model = MemoryFileSystem::new(small);
        let settings = ConcurrentSettings {
            private_profile: Profile::METADATA,
            ..ConcurrentSettings::default()
        };
        let problems = run(&model, &settings);
        assert!(problems.iter().any(|problem| problem.contains("expected: ")), "{problems:?}");
    }

    #[test]
    fn link_counts_are_checked() {
        let model = MemoryFileSystem::default();
        let mut executor = Executor::new(&model);
        let operations = "u0 mkdir /d 755\nu0 mkdir /d/e 755\nu0 create /d/f 644\n\
            u0 link /d/f /g\nu0 create /d/single 644";
        for operation in parse_operations(operations).unwrap() {
            assert!(executor.apply(&operation).0.is_ok());
        }
        let mut tree = TreeSnapshot::read(&model, "/", &TreeOptions::default()).unwrap();
        assert!(check_links(&tree).is_empty());
        tree.entries.remove(&Word::from("/g"));
        tree.entries.remove(&Word::from("/d/e"));
        assert_eq!(check_links(&tree), ["/d: 3 links, expected 2", "/d/f: 2 links, expected 1"]);
    }
}
