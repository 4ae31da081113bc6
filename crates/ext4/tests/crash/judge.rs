//! Whether an image after a crash is in a possible state.

use crate::record::{Possible, Track, may_be_partial, options, shifts};
use crate::seed;
use crate::watch::watch;
use drystone_blockdev::{BlockDevice, Event, MemoryDevice};
use drystone_ext4::{Ext4, QuotaLimits};
use drystone_ext4_format::quota::SPACE_LIMIT_UNIT;
use drystone_ext4_format::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES};
use drystone_sync::Arc;
use drystone_testkit::crash::CrashImages;
use drystone_testkit::judges::{Scratch, e2fsck_check, write_image};
use drystone_testkit::operations::Word;
use drystone_testkit::visible::{VisibleEntry, VisibleState, check_content};

/// Seconds that a recovery may take on a busy machine.
const RECOVERY_SECONDS_MAX: u64 = 60;

/// Crashes during a recording. The superblock, two sectors with one checksum, is taken to be written at
/// once: an image with half of it could not be mounted.
pub fn crash_images(base: &MemoryDevice, events: Vec<Event>) -> CrashImages {
    let superblock = SUPERBLOCK_OFFSET_BYTES..SUPERBLOCK_OFFSET_BYTES + SUPERBLOCK_BYTES as u64;
    CrashImages::new(base, events, seed()).unwrap().keeping_whole(superblock)
}

/// Opens the image, which recovers it, compares its files with the possible states of each track, closes
/// it and checks it.
pub fn recover(
    device: &Arc<dyn BlockDevice>,
    tracks: &[Track],
    possible: &[Possible],
    what: &str,
) -> Result<(), String> {
    let _watch = watch(RECOVERY_SECONDS_MAX, what);
    let fs = Ext4::open(Arc::clone(device), options(5000))
        .map_err(|error| format!("can't be opened: {error}"))?;
    for (track, possible) in tracks.iter().zip(possible) {
        check_track(track, &fs, possible)?;
    }
    check_grace(&fs)?;
    fs.close().map_err(|error| format!("can't be closed: {error}"))?;
    check(&**device)
}

/// Compares a track's files with the states that they may be in.
pub fn check_track(track: &Track, fs: &Ext4, possible: &Possible) -> Result<(), String> {
    let &Possible { first, last, .. } = possible;
    let found = VisibleState::read(fs, &track.base, Some(&track.states[first]))
        .map_err(|error| format!("can't be read: {error}"))?;
    let mut reasons = Vec::new();
    for number in first..=last {
        match check_state(track, &found, number, possible, false) {
            Ok(()) => return Ok(()),
            Err(reason) => reasons.push(format!("state {number}: {reason}")),
        }
    }
    for number in first..last {
        if may_be_partial(&track.operations[number].action)
            && check_state(track, &found, number, possible, true).is_ok()
        {
            return Ok(());
        }
    }
    let from = first.saturating_sub(3);
    let mut report = format!("no state of {first}..={last} of {}\n", track.base);
    for (number, operation) in track.operations[from..last].iter().enumerate() {
        report.push_str(&format!("  {} -> {}: {operation}\n", from + number, from + number + 1));
    }
    Err(report + &reasons.join("\n"))
}

/// Compares `found` with one state; with `is_partial`, the next operation may have been done in part.
fn check_state(
    track: &Track,
    found: &VisibleState,
    number: usize,
    possible: &Possible,
    is_partial: bool,
) -> Result<(), String> {
    let state = &track.states[number];
    let last = possible.last;
    let oldest = |inode| possible.content.unwrap_or(number).max(track.content_since(inode, last));
    let accepts = |path: &[u8], expected: Option<&VisibleEntry>, there: Option<&VisibleEntry>| {
        let (Some(expected), Some(there)) = (expected, there) else { return false };
        if possible.content.is_some() && there.is_same_node(expected) {
            // Data that waited may be missing, and with it the end of the file.
            let versions = track.states[oldest(expected.inode)..=last].iter();
            let sizes = versions
                .flat_map(|state| state.all_entries())
                .filter(|version| version.inode == expected.inode)
                .map(|version| version.size);
            let (least, most) =
                sizes.fold((u64::MAX, 0), |(least, most), size| (size.min(least), size.max(most)));
            if (least..=most).contains(&there.size) {
                return true;
            }
        }
        if !is_partial {
            return false;
        }
        let Some(next) = track.states[number + 1].entries.get(path) else { return false };
        let sizes = expected.size.min(next.size)..=expected.size.max(next.size);
        (there.is_same_node(expected) || there.is_same_node(next)) && sizes.contains(&there.size)
    };
    if let Some(difference) = state.difference(found, accepts) {
        return Err(difference);
    }
    for (path, entry) in &found.entries {
        let Some(content) = &entry.content else { continue };
        let inode = state.entries[path].inode;
        let oldest = oldest(inode);
        let is_shifted = track.operations[oldest..last].iter().any(|o| shifts(&o.action));
        let mut versions: Vec<&Arc<Vec<u8>>> = Vec::new();
        for later in &track.states[oldest..=last] {
            for version in later.all_entries().filter(|version| version.inode == inode) {
                let Some(version) = &version.content else { continue };
                if !versions.iter().any(|known| Arc::ptr_eq(known, version)) {
                    versions.push(version);
                }
            }
        }
        check_content(content, &versions, is_shifted)
            .map_err(|problem| format!("{}: {problem}", Word(path.clone())))?;
    }
    Ok(())
}

/// Grace periods run for owners that exceed soft limits, and for no others.
pub fn check_grace(fs: &Ext4) -> Result<(), String> {
    for report in fs.quota_reports().map_err(|error| error.to_string())? {
        for entry in &report.entries {
            let limits = QuotaLimits::of(entry);
            let space = entry.space_bytes > limits.space_soft * SPACE_LIMIT_UNIT;
            let inodes = entry.inodes > limits.inodes_soft;
            let runs = [entry.space_grace_end_seconds, entry.inode_grace_end_seconds];
            let exceeds = [space && limits.space_soft != 0, inodes && limits.inodes_soft != 0];
            if runs.map(|end| end != 0) != exceeds {
                return Err(format!(
                    "{} grace periods don't match the usage: {entry:?}",
                    report.kind
                ));
            }
        }
    }
    Ok(())
}

/// Checks an image that was closed with our own checker, which shares nothing with the engine.
pub fn check(device: &dyn BlockDevice) -> Result<(), String> {
    let options = drystone_fsck::CheckOptions::default();
    let report = drystone_fsck::check(device, &options, &mut |_| ())
        .map_err(|error| format!("can't be checked: {error}"))?;
    if report.problems.is_empty() {
        return Ok(());
    }
    let problems: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
    Err(format!("problems:\n{}", problems.join("\n")))
}

/// Checks an image that was closed with e2fsck.
pub fn e2fsck(device: &dyn BlockDevice, scratch: &Scratch) -> Result<(), String> {
    let path = scratch.join("checked");
    write_image(device, &path).unwrap();
    let judgement = e2fsck_check(&path).unwrap();
    if judgement.is_clean() { Ok(()) } else { Err(format!("e2fsck: {}", judgement.output)) }
}
