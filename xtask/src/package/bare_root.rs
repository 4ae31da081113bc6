//! Root directories that hold little, to install packages in and use them.

use crate::ending::{AtEnd, at_end};
use crate::process;
use anyhow::Context;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a person may have beside the package: manual pages, shells, systemd.
const COMFORTS: &str = "man-db,bash-completion,zsh,fish,systemd-sysv";

/// Mounts what programs expect below the root directory `$0`, and runs the rest there. All of it is
/// gone when the program has ended: this runs in namespaces of its own.
const ENTER: &str = r#"
mount --bind "$0" "$0"
cd "$0"
[ ! -d proc ] || mount -t proc proc proc
[ ! -d run ] || mount -t tmpfs tmpfs run
if [ -d dev ]; then
    mount -t tmpfs tmpfs dev
    for device in null zero full random urandom tty fuse; do
        [ ! -e /dev/$device ] || { : > dev/$device; mount --bind /dev/$device dev/$device; }
    done
fi
exec chroot . "$@"
"#;

/// A folder that stands for the root directory; removed when it is dropped.
pub struct BareRoot {
    path: PathBuf,
    _end: AtEnd,
}

impl BareRoot {
    /// With nothing in it.
    pub fn empty() -> anyhow::Result<BareRoot> {
        let path = std::env::temp_dir().join(format!("drystone-root-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| path.display().to_string())?;
        let folder = path.clone();
        let end = at_end(move || drop(fs::remove_dir_all(folder)))?;
        Ok(BareRoot { path, _end: end })
    }

    /// Debian's smallest system, of this machine's release.
    pub fn debian() -> anyhow::Result<BareRoot> {
        BareRoot::copy(&system("bare", "")?)
    }

    /// As [`BareRoot::debian`], with manual pages, shells and systemd.
    pub fn comfortable() -> anyhow::Result<BareRoot> {
        BareRoot::copy(&system("comfortable", COMFORTS)?)
    }

    fn copy(system: &Path) -> anyhow::Result<BareRoot> {
        let root = BareRoot::empty()?;
        process::run(Command::new("cp").arg("-aT").arg(system).arg(root.path()))?;
        Ok(root)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs a program with its arguments inside; gives what it prints.
    pub fn run(&self, program: &[&str], arguments: &[&str]) -> anyhow::Result<String> {
        eprintln!("# {}", [program, arguments].concat().join(" "));
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--propagation=private", "--pid", "--fork", "--kill-child"]);
        unshare.args(["sh", "-euc", ENTER]).arg(&self.path).args(program).args(arguments);
        unshare.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", "/tmp");
        let output = unshare.env("LC_ALL", "C.UTF-8").output().context("can't run unshare")?;
        let said =
            String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
        anyhow::ensure!(output.status.success(), "in the bare root: {}: {said}", output.status);
        let output = String::from_utf8_lossy(&output.stdout).into_owned();
        eprint!("{output}");
        Ok(output)
    }

    /// The paths of all files, with their kinds and permissions, but for what dpkg keeps of its own work.
    pub fn files(&self) -> anyhow::Result<Vec<String>> {
        let mut find = Command::new("find");
        find.current_dir(&self.path).args([".", "-path", "./var/lib/dpkg/*-old", "-prune"]);
        let list = process::output(find.args(["-o", "-printf", "%p %y %m %l\\n"]))?;
        let mut files: Vec<String> = list.lines().map(str::to_owned).collect();
        files.sort();
        Ok(files)
    }
}

/// A Debian system with some packages, fetched once; gives its folder.
fn system(name: &str, packages: &str) -> anyhow::Result<PathBuf> {
    let release = release()?;
    let folder = process::target_directory().join("bare-roots");
    let system = std::path::absolute(folder.join(format!("{release}-{name}")))?;
    if system.exists() {
        return Ok(system);
    }
    let unfinished = system.with_extension("unfinished");
    let _ = fs::remove_dir_all(&unfinished);
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.arg("--variant=minbase");
    if !packages.is_empty() {
        debootstrap.arg(format!("--include={packages}"));
    }
    process::run(debootstrap.arg(&release).arg(&unfinished))?;
    fs::rename(&unfinished, &system).with_context(|| system.display().to_string())?;
    Ok(system)
}

/// The name of this machine's release of Debian.
fn release() -> anyhow::Result<String> {
    let text = fs::read_to_string("/etc/os-release").context("/etc/os-release")?;
    let name = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    Ok(name.context("/etc/os-release names no release")?.to_owned())
}
