//! A repair of everything, and what it did.

use drystone_blockdev::{BlockDevice, MemoryDevice, Overlay};
use drystone_fsck::{CheckOptions, Decision, Error, RepairReport, check, repair};
use drystone_testkit::judges::Judgement;

/// Repairs happen at this time.
pub const NOW_SECONDS: u64 = 1_800_000_000;

pub fn repair_all(device: &dyn BlockDevice) -> Result<RepairReport, Error> {
    repair(device, &CheckOptions::default(), NOW_SECONDS, &mut |_, _| Decision::Repair, &mut |_| {})
}

/// Repairs a copy of an image. Nothing if it can't be made clean; an error if it only seems so, or if a second
/// repair changes something.
pub fn repaired(damaged: &[u8], is_told: bool) -> Result<Option<MemoryDevice>, String> {
    let device = MemoryDevice::from_bytes(damaged);
    let first = repair_all(&device);
    if is_told {
        eprintln!("{}", told(&first));
    }
    if !first.as_ref().is_ok_and(RepairReport::is_clean) {
        return Ok(None);
    }
    let options = CheckOptions::default().now_seconds(NOW_SECONDS);
    let ours = check(&device, &options, &mut |_| {}).map_err(|error| error.to_string())?;
    if !ours.is_clean() {
        return Err(format!("not clean for us:\n{:?}\n{}", ours.problems, told(&first)));
    }
    let again = Overlay::new(&device);
    let second = repair_all(&again);
    if again.changed_bytes() > 0 {
        let (second, first) = (told(&second), told(&first));
        return Err(format!("a second repair changes it:\n{second}\nfirst:\n{first}"));
    }
    Ok(Some(device))
}

/// Whether e2fsck finds nothing to repair. Of the superblock and the descriptors it tells only in words. The
/// superblock's counts, which no mount believes, are a warning for `check`, and wide trees no error.
pub fn finds_nothing(judged: &Judgement) -> bool {
    let lines: Vec<&str> = judged.output.lines().filter(|line| !line.is_empty()).collect();
    let would_repair = |pair: &[&str]| {
        let is_count = pair[0].starts_with("Free ") && pair[0].contains(" count wrong (");
        pair[1].ends_with("? no") && !pair[1].ends_with("Optimize? no") && !is_count
    };
    judged.code == 0 && !lines.windows(2).any(would_repair)
}

/// All bytes of a device.
pub fn content(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size_bytes() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

/// What a repair did, for people.
pub fn told(report: &Result<RepairReport, Error>) -> String {
    match report {
        Err(error) => error.to_string(),
        Ok(report) => {
            let lines = report.problems.iter().map(|problem| {
                let done = problem.done.unwrap_or("-");
                format!("  {} [{:?}: {done}]\n", problem.problem, problem.repair)
            });
            let lines: Vec<String> = lines.collect();
            let left = lines.len().saturating_sub(60);
            let head: String = lines.iter().take(40).cloned().collect();
            let tail: String = lines.iter().skip(40.max(left + 40)).cloned().collect();
            head + &tail
        }
    }
}
