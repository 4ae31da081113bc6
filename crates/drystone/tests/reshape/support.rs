//! Images of many kinds with files, and their judges.

use drystone::fsck::CheckOptions;
use drystone::{BlockDevice, Image, check_image};
use drystone_testkit::judges::{FeatureSet, Scratch, e2fsck_check, have, mke2fs, run};
use drystone_testkit::operations::{Action, Actor, Executor, Operation, Profile, Word, generate};
use drystone_testkit::tree::{TreeOptions, TreeSnapshot, diff};
use std::path::PathBuf;

/// An image that `mke2fs` has made.
pub struct Sample {
    scratch: Scratch,
    pub set: &'static FeatureSet,
}

impl Sample {
    /// None if there is no `mke2fs`.
    pub fn new(name: &str, size_mib: u64) -> Option<Sample> {
        let set = FeatureSet::by_name(name).unwrap();
        if !have("mke2fs") {
            return None;
        }
        let sample = Sample { scratch: Scratch::new(&format!("reshape-{name}")).unwrap(), set };
        let size_mib = size_mib.max(set.size_mib_min);
        mke2fs(&sample.path(), set, size_mib << 20).unwrap().expect_clean(name);
        Some(sample)
    }

    pub fn path(&self) -> PathBuf {
        self.scratch.join("disk.img")
    }

    pub fn beside(&self, name: &str) -> PathBuf {
        self.scratch.join(name)
    }

    /// Has debugfs change a field.
    pub fn edit(&self, request: &str) {
        run("debugfs", ["-w", "-R", request, self.path().to_str().unwrap()]).unwrap();
    }

    /// Makes the image that of a device.
    pub fn replace(&self, image: &impl BlockDevice) {
        let mut bytes = vec![0; image.size_bytes() as usize];
        image.read_at(0, &mut bytes).unwrap();
        std::fs::write(self.path(), bytes).unwrap();
    }

    /// Does random things in directories of their own.
    pub fn fill(&self, seed: u64, count: usize) {
        let image = Image::open(self.path()).unwrap();
        let mut executor = Executor::new(image.file_system());
        for profile in [Profile::MIXED, Profile::BIG_DIRECTORIES, Profile::XATTRS] {
            let profile = Profile {
                offset_max: profile.offset_max.min(1_200_000),
                alignment: u64::from(self.set.cluster_size),
                ..self.set.with_fitting_xattrs(profile)
            };
            let base = format!("/{}-{seed}", profile.name);
            let action = Action::MakeDirectory { path: Word::from(&base[..]), mode: 0o777 };
            executor.apply(&Operation { actor: Actor(0), action });
            for operation in generate(seed, &profile, &base, count) {
                executor.apply(&operation);
            }
        }
        executor.close_all();
        drop(executor);
        image.close().unwrap();
    }

    /// Writes files until no more than about `left` bytes are free, reserved ones among them.
    pub fn fill_up(&self, left: u64) {
        let image = Image::open(self.path()).unwrap();
        let fs = image.fs();
        let _ = fs.create_dir("/filling");
        let first = fs.read_dir("/filling").unwrap().count();
        for number in first.. {
            let free = fs.statistics().unwrap();
            let bytes = free.blocks_free * u64::from(free.block_size);
            let length = (20 << 10).min(bytes.saturating_sub(left)) as usize;
            if length == 0 || fs.write(format!("/filling/{number}"), vec![5; length]).is_err() {
                break;
            }
        }
        image.close().unwrap();
    }

    /// Removes one of so many files that [`fill_up`](Self::fill_up) has written.
    pub fn remove_every(&self, count: usize) {
        let image = Image::open(self.path()).unwrap();
        let fs = image.fs();
        for number in (0..).step_by(count) {
            if fs.remove_file(format!("/filling/{number}")).is_err() {
                break;
            }
        }
        image.close().unwrap();
    }

    /// All that can be seen of the files.
    pub fn tree(&self) -> TreeSnapshot {
        let image = Image::options().read_only(true).open(self.path()).unwrap();
        let options = TreeOptions { times: true, flags: true, ..TreeOptions::default() };
        let tree = TreeSnapshot::read(image.file_system(), "/", &options).unwrap();
        image.close().unwrap();
        tree
    }

    /// Both checkers find no error, and the files are the same.
    #[track_caller]
    pub fn judge(&self, what: &str, before: &TreeSnapshot) {
        let what = format!("{}: {what}", self.set.name);
        e2fsck_check(&self.path()).unwrap().expect_clean(&what);
        let options = CheckOptions::default().problems_max(20);
        let report = check_image(&self.path(), &options, &mut |_| {}).unwrap();
        let problems: Vec<_> = report.problems.iter().map(ToString::to_string).collect();
        assert!(report.is_clean(), "{what}: {}", problems.join("\n"));
        let differences = diff(before, &self.tree());
        assert!(differences.is_empty(), "{what}: {}", differences.join("\n"));
    }

    /// A field of the superblock, as `dumpe2fs -h` shows it.
    pub fn field(&self, name: &str) -> String {
        let path = self.path();
        let shown = run("dumpe2fs", ["-h", path.to_str().unwrap()]).unwrap();
        let mut lines = shown.output.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(field, _)| *field == name).map(|(_, value)| value.trim());
        found.unwrap_or_else(|| panic!("no {name} in {}", shown.output)).to_owned()
    }
}
