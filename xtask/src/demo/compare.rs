//! Compares a tree of the host with its changed copy in an image.

use super::judges::{Judge, facts_on_host, names_on_host};
use anyhow::Context;
use std::ffi::OsString;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What was done to the copy.
#[derive(Default)]
pub struct CopyChanges {
    /// The directory of the tree that was deleted.
    pub deleted: Option<OsString>,
    /// The directory of the tree that is `/moved` now.
    pub moved: Option<OsString>,
}

/// How much there is.
#[derive(Clone, Copy, Default)]
pub struct Totals {
    pub files: u64,
    pub directories: u64,
    pub others: u64,
    /// The content of the files.
    pub bytes: u64,
}

impl Totals {
    /// Files, directories and all else.
    pub fn entries(&self) -> u64 {
        self.files + self.directories + self.others
    }

    /// Entries and bytes a second.
    pub fn rate(&self, time: Duration) -> String {
        let seconds = time.as_secs_f64().max(0.001);
        let entries = self.entries() as f64 / seconds;
        let mebibytes = self.bytes as f64 / f64::from(1 << 20) / seconds;
        format!("{entries:.0} entries/s, {mebibytes:.0} MiB/s")
    }

    fn count(&mut self, mode: u32, size: u64) {
        match mode & 0o170_000 {
            0o100_000 => {
                self.files += 1;
                self.bytes += size;
            }
            0o040_000 => self.directories += 1,
            _ => self.others += 1,
        }
    }
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} files, {} directories, {} links and special files, {:.1} MiB",
            self.files,
            self.directories,
            self.others,
            self.bytes as f64 / f64::from(1 << 20)
        )
    }
}

/// What a comparison found.
pub struct Differences {
    pub compared: Totals,
    pub found: Vec<String>,
}

/// Counts a tree of the host.
pub fn measure(tree: &Path) -> anyhow::Result<Totals> {
    let mut totals = Totals::default();
    let mut waiting = vec![tree.to_path_buf()];
    while let Some(path) = waiting.pop() {
        let metadata = path.symlink_metadata().with_context(|| path.display().to_string())?;
        totals.count(metadata.mode(), metadata.len());
        if metadata.is_dir() {
            waiting.extend(names_on_host(&path)?.into_iter().map(|name| path.join(name)));
        }
    }
    Ok(totals)
}

/// Compares `tree` with `/tree` and `/moved` of the image.
pub fn compare(tree: &Path, plan: &CopyChanges, judge: &Judge) -> anyhow::Result<Differences> {
    let mut differences = Differences { compared: Totals::default(), found: Vec::new() };
    let mut waiting: Vec<(PathBuf, PathBuf)> = Vec::new();
    let mut names = names_on_host(tree)?;
    names.retain(|name| Some(name) != plan.deleted.as_ref() && Some(name) != plan.moved.as_ref());
    if judge.names(Path::new("/tree"))? != names {
        differences.found.push("the entries of /tree differ".to_string());
    }
    waiting.extend(names.iter().map(|name| (tree.join(name), Path::new("/tree").join(name))));
    waiting.extend(plan.moved.iter().map(|name| (tree.join(name), PathBuf::from("/moved"))));
    let mut top: Vec<OsString> = vec!["lost+found".into(), "tree".into()];
    top.splice(1..1, plan.moved.iter().map(|_| "moved".into()));
    if judge.names(Path::new("/"))? != top {
        differences.found.push("the entries of / aren't the expected ones".to_string());
    }
    while let Some((ours, copy)) = waiting.pop() {
        compare_one(&ours, &copy, judge, &mut differences, &mut waiting)
            .with_context(|| copy.display().to_string())?;
    }
    Ok(differences)
}

fn compare_one(
    ours: &Path,
    copy: &Path,
    judge: &Judge,
    differences: &mut Differences,
    waiting: &mut Vec<(PathBuf, PathBuf)>,
) -> anyhow::Result<()> {
    let expected = facts_on_host(ours, judge.tells_more())?;
    let found = judge.facts(copy)?;
    differences.compared.count(expected.mode, expected.size);
    if expected != found {
        differences.found.push(format!("{}: {expected:?} became {found:?}", ours.display()));
        return Ok(());
    }
    match expected.mode & 0o170_000 {
        0o040_000 => {
            let names = names_on_host(ours)?;
            if judge.names(copy)? != names {
                differences.found.push(format!("{}: the entries differ", ours.display()));
            }
            waiting.extend(names.iter().map(|name| (ours.join(name), copy.join(name))));
        }
        0o100_000 if !same_content(std::fs::File::open(ours)?, judge.content(copy)?)? => {
            differences.found.push(format!("{}: the content differs", ours.display()));
        }
        _ => {}
    }
    Ok(())
}

fn same_content(mut a: impl Read, mut b: impl Read) -> std::io::Result<bool> {
    let (mut buffer_a, mut buffer_b) = (vec![0; 1 << 18], vec![0; 1 << 18]);
    loop {
        let length = read_full(&mut a, &mut buffer_a)?;
        if read_full(&mut b, &mut buffer_b)? != length || buffer_a[..length] != buffer_b[..length] {
            return Ok(false);
        }
        if length == 0 {
            return Ok(true);
        }
    }
}

/// Reads until the buffer is full or the file at its end.
fn read_full(file: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match file.read(&mut buffer[length..])? {
            0 => break,
            more => length += more,
        }
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_compared_to_the_end() {
        let long = vec![7; 600_000];
        assert!(same_content(long.as_slice(), long.as_slice()).unwrap());
        assert!(!same_content(long.as_slice(), &long[1..]).unwrap());
        assert!(!same_content(long.as_slice(), vec![8; 600_000].as_slice()).unwrap());
        assert!(same_content(b"".as_slice(), b"".as_slice()).unwrap());
    }

    #[test]
    fn totals_count_by_type() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "12345").unwrap();
        std::os::unix::fs::symlink("a", folder.path().join("b")).unwrap();
        let totals = measure(folder.path()).unwrap();
        assert_eq!((totals.files, totals.directories, totals.others, totals.bytes), (1, 1, 1, 5));
        assert!(totals.rate(Duration::from_secs(1)).starts_with("3 entries/s"));
    }
}
