//! The host's state that tests change for a while: a setting, mounts and loop devices.

use crate::process;
use drystone_testkit::rings::OFFERED;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// How often to look again for what is left: a lazy unmount takes its time.
const LOOKS_MAX: u32 = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// The state, as lines of text.
#[derive(Debug, PartialEq, Eq)]
pub struct Host(BTreeSet<String>);

impl Host {
    /// As it is now.
    pub fn now() -> Host {
        let mut found = BTreeSet::new();
        if let Ok(value) = fs::read_to_string(OFFERED) {
            found.insert(format!("{OFFERED} is {}", value.trim()));
        }
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        found.extend(mounts.lines().filter_map(mount));
        for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
            if let Ok(file) = fs::read_to_string(entry.path().join("loop/backing_file")) {
                let name = entry.file_name();
                let name = Path::new("/dev").join(name);
                found.insert(format!("{} holds {}", name.display(), file.trim()));
            }
        }
        Host(found)
    }

    /// An error that says what is there now and wasn't before, or was and isn't.
    pub fn expect_unchanged(&self) -> anyhow::Result<()> {
        let mut now = Host::now();
        for _ in 0..LOOKS_MAX {
            if now == *self {
                return Ok(());
            }
            process::nap(PAUSE);
            now = Host::now();
        }
        self.compare(&now)
    }

    fn compare(&self, now: &Host) -> anyhow::Result<()> {
        let new: Vec<&String> = now.0.difference(&self.0).collect();
        let gone: Vec<&String> = self.0.difference(&now.0).collect();
        anyhow::ensure!(new.is_empty() && gone.is_empty(), "left behind: {new:?}, gone: {gone:?}");
        Ok(())
    }
}

/// A line of the table of mounts in words, if it is one as tests make.
fn mount(line: &str) -> Option<String> {
    let mut fields = line.split(' ');
    let (source, place, kind) = (fields.next()?, fields.next()?, fields.next()?);
    let is_ours = kind.starts_with("fuse") && kind != "fusectl" || source.starts_with("/dev/loop");
    is_ours.then(|| format!("{place} is a mount of {source} ({kind})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_tests_are_known() {
        assert_eq!(mount("proc /proc proc rw 0 0"), None);
        assert_eq!(mount("fusectl /sys/fs/fuse/connections fusectl rw 0 0"), None);
        let ours = mount("/tmp/a /tmp/b fuse.drystone rw 0 0");
        assert_eq!(ours.as_deref(), Some("/tmp/b is a mount of /tmp/a (fuse.drystone)"));
        assert!(mount("/dev/loop3 /tmp/b ext4 rw 0 0").is_some());
    }

    #[test]
    fn what_is_left_behind_is_named() {
        let here = Host(["a".to_owned()].into());
        let error = here.compare(&Host(["b".to_owned()].into()));
        assert_eq!(error.unwrap_err().to_string(), "left behind: [\"b\"], gone: [\"a\"]");
        here.compare(&here).unwrap();
    }
}
