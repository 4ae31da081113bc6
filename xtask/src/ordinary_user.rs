//! Tests once more as an ordinary user, which root's rights would let pass: what permissions forbid,
//! mounts through `fusermount3`, owners that can't be given away.

use crate::ci::Verdict;
use crate::ending::at_end;
use crate::skips::{self, Skips, User};
use crate::test_program::{TestProgram, run_side_by_side};
use crate::{process, suites};
use anyhow::Context;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

/// Folders of the crates whose tests depend on who runs them, and their test programs that do; all if
/// none is named.
const CRATES: [(&str, &[&str]); 7] = [
    ("crates/blockdev", &[]),
    ("crates/sources", &[]),
    ("crates/fuse", &[]),
    ("crates/cli", &[]),
    ("crates/drystone", &["drystone"]),
    ("crates/volumes", &["drystone_volumes", "nbd"]),
    ("crates/capi", &["drystone_capi"]),
];
/// `nobody`, and its group.
const USER: u32 = 65_534;

/// Runs the compiled tests of some packages.
pub fn run() -> anyhow::Result<Verdict> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("all tests have run as an ordinary user");
        return Ok(Verdict::Passed);
    }
    let programs = programs()?;
    let place = std::env::temp_dir().join(format!("drystone-user-{}", std::process::id()));
    fs::create_dir(&place)?;
    let _end = {
        let place = place.clone();
        at_end(move || drop(fs::remove_dir_all(place)))?
    };
    fs::set_permissions(&place, Permissions::from_mode(0o777))?;
    let skips = Skips::begin("ordinary-user")?;
    let noted = place.join("skips");
    fs::write(&noted, "")?;
    fs::set_permissions(&noted, Permissions::from_mode(0o666))?;
    let fuse = place.join("fuse");
    make_fuse_for_all(&fuse)?;
    let as_user = |program: &Path| {
        let mut command = Command::new("unshare");
        // Other processes don't see what is mounted over the device.
        let enter = "mount --bind \"$0\" /dev/fuse && exec \"$@\"";
        command.args(["--mount", "--propagation=private", "sh", "-c", enter]).arg(&fuse);
        command.args(["setpriv", &format!("--reuid={USER}"), &format!("--regid={USER}")]);
        command.args(["--clear-groups", "--inh-caps=-all", "--"]).arg(program);
        command.env("TMPDIR", &place).env("HOME", &place).env("XDG_RUNTIME_DIR", &place);
        command
    };
    for program in &programs {
        let program = &program.executable;
        let mut reach = as_user(Path::new("test"));
        if !reach.arg("-x").arg(program).status().context("can't run setpriv")?.success() {
            let told = format!("the user {USER} can't reach {}", program.display());
            return Ok(Verdict::Impossible(told));
        }
    }
    let programs = programs.iter().map(|program| {
        let (name, _) = program.command();
        let mut command = as_user(&program.executable);
        command.arg("--quiet").current_dir(&program.directory);
        command.env(drystone_testkit::skip::SKIPS, &noted);
        (name, command)
    });
    let logs = process::target_directory().join("ordinary-user-logs");
    let mut parts = run_side_by_side(&logs, programs.collect())?;
    fs::copy(&noted, skips.path())?;
    let wrong = skips::list(&skips.noted()?, User::Ordinary)?;
    parts.run("skips", || skips::expect_none(&wrong));
    parts.end().map(|()| Verdict::Passed)
}

/// Makes a node of `/dev/fuse` that everybody may open, as udev has it; without udev only root may.
fn make_fuse_for_all(node: &Path) -> anyhow::Result<()> {
    let device = fs::metadata("/dev/fuse").context("/dev/fuse")?.rdev();
    let mode = Mode::from_raw_mode(0o666);
    mknodat(CWD, node, FileType::CharacterDevice, mode, device)?;
    // The mask of the process doesn't count here.
    Ok(fs::set_permissions(node, Permissions::from_mode(0o666))?)
}

/// The test programs of the packages.
fn programs() -> anyhow::Result<Vec<TestProgram>> {
    let mut built = TestProgram::build(suites::build())?;
    let mut programs = Vec::new();
    for (folder, names) in CRATES {
        let is_wanted = |program: &mut TestProgram| {
            program.directory.ends_with(folder)
                && (names.is_empty() || names.contains(&&*program.name))
        };
        let found: Vec<_> = built.extract_if(.., is_wanted).collect();
        anyhow::ensure!(found.len() >= names.len().max(1), "{folder} lacks one of its tests");
        programs.extend(found);
    }
    Ok(programs)
}
