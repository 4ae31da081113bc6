//! A writer in a directory of a mount that remembers what it was promised: for which files a sync
//! has returned, and what they hold.
//!
//! It writes new files, overwrites and appends, cuts, replaces by renaming and removes, and syncs
//! the file and its directory after each. After a crash its claims are checked: each byte of a file
//! has to be as at the file's last sync, or as in any state that was begun since, because any of
//! the later writes may have reached the device.
//!
//! # State
//!
//! For each file every version since it was first synced. The content follows from numbers, and all
//! numbers from the seed.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// How many files there are.
const FILES: usize = 12;
/// About the size of the longest file, in bytes.
const LENGTH_MAX: usize = 40_000;

/// What a file held, or `None` if it didn't exist.
type Content = Option<Vec<u8>>;

/// A version of a file, perhaps not yet reached.
struct Version {
    content: Content,
    /// The moment at which its sync had returned.
    synced: Option<u64>,
}

/// A writer and what it knows.
pub struct Witness {
    directory: PathBuf,
    random: fastrand::Rng,
    files: Vec<Vec<Version>>,
    synced: u64,
}

/// A claim that doesn't hold.
#[derive(Debug, thiserror::Error)]
pub enum BrokenPromise {
    /// The file can't be read.
    #[error("{name}: {source}")]
    Read {
        /// The file.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// The content is neither what was synced nor what was begun later.
    #[error("{name}: {what}")]
    Lost {
        /// The file.
        name: String,
        /// How it differs.
        what: String,
    },
}

/// What a step does to a file.
enum Step {
    Overwrite { at: usize, data: Vec<u8> },
    Append(Vec<u8>),
    Cut(usize),
    Replace(Vec<u8>),
    Remove,
}

impl Witness {
    /// A writer in an empty directory.
    pub fn new(directory: &Path, seed: u64) -> Witness {
        let absent = || vec![Version { content: None, synced: Some(0) }];
        Witness {
            directory: directory.to_owned(),
            random: fastrand::Rng::with_seed(seed),
            files: std::iter::repeat_with(absent).take(FILES).collect(),
            synced: 0,
        }
    }

    /// How many syncs have returned.
    pub fn synced(&self) -> u64 {
        self.synced
    }

    /// Changes a file and syncs it; then `moment` gives the time of the return, as a rising number.
    ///
    /// # Errors
    ///
    /// What the mount says. Nothing more may be done then.
    pub fn step(&mut self, moment: impl FnOnce() -> u64) -> io::Result<()> {
        let index = self.random.usize(..FILES);
        let name = name_of(index);
        let path = self.directory.join(&name);
        let before = self.files[index].last().and_then(|version| version.content.clone());
        let step = self.choose(before.as_deref());
        let after = step.applied_to(before);
        self.files[index].push(Version { content: after, synced: None });
        step.perform(&self.directory, &path)?;
        let moment = moment();
        if let Some(version) = self.files[index].last_mut() {
            version.synced = Some(moment);
        }
        self.synced += 1;
        Ok(())
    }

    fn choose(&mut self, before: Option<&[u8]>) -> Step {
        let random = &mut self.random;
        let length = random.usize(1..LENGTH_MAX);
        let data = data(random.u64(..), length);
        let Some(before) = before else { return Step::Replace(data) };
        match random.u32(0..10) {
            0..3 if !before.is_empty() => {
                let at = random.usize(..before.len());
                let length = data.len().min(before.len() - at);
                Step::Overwrite { at, data: data[..length].to_vec() }
            }
            3..6 if before.len() < LENGTH_MAX => Step::Append(data),
            6 => Step::Cut(random.usize(..=before.len())),
            7 => Step::Remove,
            _ => Step::Replace(data),
        }
    }

    /// Checks the claims up to a moment. `read` gives the content of a file by its name, or `None`
    /// if it doesn't exist. Returns how many files had been synced.
    ///
    /// # Errors
    ///
    /// The first claim that doesn't hold.
    pub fn check(
        &self,
        moment: u64,
        mut read: impl FnMut(&str) -> io::Result<Content>,
    ) -> Result<usize, BrokenPromise> {
        let mut synced = 0;
        for (index, versions) in self.files.iter().enumerate() {
            let name = name_of(index);
            let last = versions
                .iter()
                .rposition(|version| version.synced.is_some_and(|at| at <= moment))
                .unwrap_or(0);
            let found = match read(&name) {
                Ok(found) => found,
                Err(source) => return Err(BrokenPromise::Read { name, source }),
            };
            if let Err(what) = compare(&versions[last..], found.as_deref()) {
                return Err(BrokenPromise::Lost { name, what });
            }
            synced += usize::from(last > 0);
        }
        Ok(synced)
    }

    /// The same, with the files of a directory.
    ///
    /// # Errors
    ///
    /// The first claim that doesn't hold.
    pub fn check_directory(&self, moment: u64, directory: &Path) -> Result<usize, BrokenPromise> {
        self.check(moment, |name| match fs::read(directory.join(name)) {
            Ok(content) => Ok(Some(content)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        })
    }
}

fn name_of(index: usize) -> String {
    format!("file{index}")
}

/// Bytes that follow from a number.
fn data(number: u64, length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(number);
    let mut data = vec![0; length];
    random.fill(&mut data);
    data
}

impl Step {
    fn applied_to(&self, before: Content) -> Content {
        let mut content = before.unwrap_or_default();
        match self {
            Step::Overwrite { at, data } => content[*at..*at + data.len()].copy_from_slice(data),
            Step::Append(data) => content.extend_from_slice(data),
            Step::Cut(length) => content.truncate(*length),
            Step::Replace(data) => content = data.clone(),
            Step::Remove => return None,
        }
        Some(content)
    }

    fn perform(&self, directory: &Path, path: &Path) -> io::Result<()> {
        let open = || File::options().write(true).open(path);
        match self {
            Step::Overwrite { at, data } => {
                let file = open()?;
                file.write_all_at(data, *at as u64)?;
                return file.sync_data();
            }
            Step::Append(data) => {
                let file = open()?;
                file.write_all_at(data, file.metadata()?.len())?;
                return file.sync_data();
            }
            Step::Cut(length) => {
                let file = open()?;
                file.set_len(*length as u64)?;
                return file.sync_all();
            }
            Step::Replace(data) => {
                let new = path.with_extension("new");
                let file = File::create(&new)?;
                file.write_all_at(data, 0)?;
                file.sync_all()?;
                fs::rename(&new, path)?;
            }
            Step::Remove => {
                fs::remove_file(path)?;
                // The names are the directory's data.
                return File::open(directory)?.sync_data();
            }
        }
        File::open(directory)?.sync_all()
    }
}

/// Whether `found` can result from the first version and what was begun since.
fn compare(versions: &[Version], found: Option<&[u8]>) -> Result<(), String> {
    let Some(found) = found else {
        let may_be_absent = versions.iter().any(|version| version.content.is_none());
        return if may_be_absent { Ok(()) } else { Err("it was synced, and isn't there".into()) };
    };
    let contents: Vec<&[u8]> = versions.iter().filter_map(|v| v.content.as_deref()).collect();
    let (Some(shortest), Some(longest)) = (
        contents.iter().map(|content| content.len()).min(),
        contents.iter().map(|content| content.len()).max(),
    ) else {
        return Err(format!("it was removed, and is there with {} bytes", found.len()));
    };
    let is_new = versions[0].content.is_none();
    // A new file appears with its content, because it is renamed after its sync.
    if !(shortest..=longest).contains(&found.len()) {
        return Err(format!("{} bytes, not {shortest} to {longest}", found.len()));
    }
    let kept = if is_new { usize::MAX } else { contents[0].len() };
    for (at, byte) in found.iter().enumerate() {
        // Beyond the old end, a later write may have reached the disk before an earlier one.
        let is_gap = *byte == 0 && at >= kept;
        if !is_gap && !contents.iter().any(|content| content.get(at) == Some(byte)) {
            return Err(format!(
                "byte {at} of {} is {byte:#04x}, which it never was in {} states",
                found.len(),
                contents.len()
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(seed: u64, steps: u64) -> (tempfile::TempDir, Witness) {
        let directory = tempfile::tempdir().unwrap();
        let mut witness = Witness::new(directory.path(), seed);
        for step in 1..=steps {
            witness.step(|| step).unwrap();
        }
        (directory, witness)
    }

    #[test]
    fn what_is_kept_is_right() {
        let (directory, witness) = run(1, 300);
        assert_eq!(witness.synced(), 300);
        assert!(witness.check_directory(300, directory.path()).unwrap() > FILES / 2);
        // The file may also be as at the beginning, or as after any step.
        assert_eq!(witness.check(0, |_| Ok(None)).unwrap(), 0);
        witness.check_directory(150, directory.path()).unwrap();
    }

    #[test]
    fn what_is_lost_is_noticed() {
        let (directory, witness) = run(2, 300);
        let is_noticed = |what: &str, change: &dyn Fn(&mut Vec<u8>)| {
            let changed = witness.check(300, |name| {
                Ok(fs::read(directory.path().join(name)).ok().map(|mut content| {
                    change(&mut content);
                    content
                }))
            });
            assert!(matches!(changed, Err(BrokenPromise::Lost { .. })), "{what}: {changed:?}");
        };
        is_noticed("a bit", &|content| content.iter_mut().for_each(|byte| *byte ^= 1));
        is_noticed("the end", &|content| content.truncate(content.len() - 1));
        is_noticed("more", &|content| content.push(0));
        assert!(witness.check(300, |_| Ok(None)).is_err());
        assert!(witness.check(300, |_| Ok(Some(Vec::new()))).is_err());
    }
}
