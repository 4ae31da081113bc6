//! What mounts did between two looks at their counters.

use crate::mounts::registry::{MountRegistry, RunningMount};
use crate::mounts::status::Status;
use crate::output::time_exact;
use anyhow::anyhow;
use drystone::vfs::Timestamp;
use drystone_sync::clock::{self, Instant};
use jiff::tz::TimeZone;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The mounts that are watched.
pub struct MountWatch {
    /// Where they are; everywhere, if that is empty.
    directories: BTreeSet<PathBuf>,
    /// What the counters said at the last look.
    counted: BTreeMap<MountKey, Status>,
    looked: Instant,
    is_any_silent: bool,
}

/// The server and the directory.
type MountKey = (u32, PathBuf);

/// What happened between two looks.
#[derive(Debug, Default, Serialize)]
pub struct Interval {
    /// When it ended.
    pub time: String,
    /// How long it was.
    pub seconds: f64,
    pub mounts: Vec<Activity>,
    /// The sockets of servers that don't answer.
    #[serde(skip)]
    pub silent: Vec<PathBuf>,
}

/// What a mount did in an interval.
#[derive(Clone, Debug, Serialize)]
pub struct Activity {
    /// What happened in the interval.
    pub interval: Counts,
    /// What is known of the mount at its end. Counters are those since it was mounted.
    pub mount: Status,
}

/// What is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Requests of each kind that came.
    pub requests: BTreeMap<String, u64>,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub io_errors: u64,
    /// Transactions that were committed, and the microseconds that this took, if the mount has a journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commits: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit_us: Option<u64>,
}

impl MountWatch {
    /// Looks for the first time.
    ///
    /// # Errors
    /// No image is mounted on one of the directories, or its server doesn't answer.
    pub fn new(directories: Vec<PathBuf>) -> anyhow::Result<MountWatch> {
        let mut watch = MountWatch {
            directories: directories.into_iter().collect(),
            counted: BTreeMap::new(),
            looked: clock::now(),
            is_any_silent: false,
        };
        let (found, silent) = watch.look()?;
        for directory in &watch.directories {
            if !found.iter().any(|status| status.directory == *directory) {
                let name = directory.display();
                return Err(match silent.first() {
                    None => anyhow!("{name}: no mount of yours is there"),
                    Some(socket) => anyhow!(
                        "{name}: no mount of yours is known there, but the server at {} does not answer",
                        socket.display()
                    ),
                });
            }
        }
        watch.remember(found);
        Ok(watch)
    }

    /// What happened since the last look.
    pub fn next(&mut self) -> anyhow::Result<Interval> {
        let (found, silent) = self.look()?;
        let seconds = self.looked.elapsed().as_secs_f64();
        let (wall_seconds, nanoseconds) = clock::wall();
        let time = Timestamp { seconds: wall_seconds, nanoseconds };
        let mounts = found.iter().map(|now| {
            // One that has just begun is counted from its first look on.
            let before = self.counted.get(&key(now)).unwrap_or(now);
            Activity { interval: Counts::between(before, now), mount: now.clone() }
        });
        let mounts = mounts.collect();
        self.is_any_silent = !silent.is_empty();
        self.remember(found);
        Ok(Interval { time: time_exact(time, &TimeZone::UTC), seconds, mounts, silent })
    }

    /// True if nothing that was named is left.
    pub fn is_over(&self) -> bool {
        !self.directories.is_empty() && self.counted.is_empty() && !self.is_any_silent
    }

    /// The mounts that are watched, and the servers that don't answer.
    fn look(&self) -> anyhow::Result<(Vec<Status>, Vec<PathBuf>)> {
        let MountRegistry { running, silent } = MountRegistry::read()?;
        let statuses = running.into_iter().map(|RunningMount { status, .. }| status);
        let is_watched = |status: &Status| {
            self.directories.is_empty() || self.directories.contains(&status.directory)
        };
        Ok((statuses.filter(is_watched).collect(), silent))
    }

    fn remember(&mut self, found: Vec<Status>) {
        self.looked = clock::now();
        self.counted = found.into_iter().map(|status| (key(&status), status)).collect();
    }
}

fn key(status: &Status) -> MountKey {
    (status.process, status.directory.clone())
}

impl Counts {
    fn between(before: &Status, now: &Status) -> Counts {
        let requests = now.requests.iter().filter_map(|(kind, count)| {
            let count = count.saturating_sub(before.requests.get(kind).copied().unwrap_or(0));
            (count > 0).then(|| (kind.clone(), count))
        });
        let commits = now.commits.zip(before.commits);
        Counts {
            requests: requests.collect(),
            bytes_read: now.bytes_read.saturating_sub(before.bytes_read),
            bytes_written: now.bytes_written.saturating_sub(before.bytes_written),
            io_errors: now.io_errors.saturating_sub(before.io_errors),
            commits: commits.map(|(now, before)| now.count.saturating_sub(before.count)),
            commit_us: commits.map(|(now, before)| now.total_us.saturating_sub(before.total_us)),
        }
    }

    /// All requests.
    pub fn all_requests(&self) -> u64 {
        self.requests.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounts::status::CommitStatus;

    #[test]
    fn the_difference_is_what_happened() {
        let requests = |counts: &[(&str, u64)]| {
            counts.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect()
        };
        let before = Status {
            requests: requests(&[("read", 7), ("open", 2)]),
            bytes_read: 100,
            commits: Some(CommitStatus { count: 3, total_us: 900 }),
            ..Status::default()
        };
        let now = Status {
            requests: requests(&[("read", 9), ("open", 2), ("write", 4)]),
            bytes_read: 150,
            io_errors: 1,
            commits: Some(CommitStatus { count: 5, total_us: 1_900 }),
            ..Status::default()
        };
        let counts = Counts::between(&before, &now);
        let expected = Counts {
            requests: requests(&[("read", 2), ("write", 4)]),
            bytes_read: 50,
            bytes_written: 0,
            io_errors: 1,
            commits: Some(2),
            commit_us: Some(1_000),
        };
        assert_eq!(counts, expected);
        assert_eq!(counts.all_requests(), 6);
        assert_eq!(Counts::between(&now, &now).all_requests(), 0);
        assert_eq!(Counts::between(&Status::default(), &now).commits, None);
    }
}
