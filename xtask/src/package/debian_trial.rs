//! The Debian package on bare roots: installed, used as the pages say, mounted by systemd, removed.

use super::bare_root::BareRoot;
use crate::process;
use anyhow::Context;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The page whose commands a new user runs first, and the section that has them.
const GUIDE: &str = "docs/src/guide/start.md";
const SECTION: &str = "\n## A first image\n";

/// Where the package is inside.
const PACKAGE: &str = "/tmp/drystone.deb";

/// What a user goes on with. It ends with an error if anything isn't as it should be.
const USE: &str = include_str!("use.sh");

/// What a user does with manual pages and with the completions of the shells.
const COMFORTS: &str = include_str!("comforts.sh");

/// What happens while systemd runs: the unit is active, and a file is written on the mount.
const BOOTED: &str = include_str!("booted.sh");

/// Seconds until a system that doesn't power off is ended.
const BOOT_SECONDS: &str = "120";

/// Tests the package.
pub fn run(package: &Path) -> anyhow::Result<()> {
    let bare = BareRoot::debian()?;
    fs::copy(package, bare.path().join(&PACKAGE[1..]))?;
    let before = bare.files()?;
    bare.run(&["dpkg", "-i"], &[PACKAGE])?;
    bare.run(&["dpkg", "-L"], &["drystone"])?;
    fs::create_dir(bare.path().join("tmp/try"))?;
    fs::create_dir(bare.path().join("tmp/try/rootfs"))?;
    process::run(
        Command::new("cp")
            .arg("-a")
            .arg(bare.path().join("etc"))
            .arg(bare.path().join("tmp/try/rootfs")),
    )?;
    for line in guide()? {
        bare.run(&["sh", "-euc"], &[&format!("cd /tmp/try; {line}")])?;
    }
    bare.run(&["sh", "-euc"], &[&format!("cd /tmp/try\n{USE}")])?;
    bare.run(&["rm", "-r"], &["/tmp/try"])?;
    bare.run(&["dpkg", "-r"], &["drystone"])?;
    compare(&before, &bare.files()?)?;
    bare.run(&["dpkg", "-i"], &[PACKAGE])?;
    bare.run(&["dpkg", "-P"], &["drystone"])?;
    compare(&before, &bare.files()?)?;
    println!("installed, used and removed on a bare root: nothing is left");
    drop(bare);

    let root = BareRoot::comfortable()?;
    fs::copy(package, root.path().join(&PACKAGE[1..]))?;
    root.run(&["dpkg", "-i"], &[PACKAGE])?;
    root.run(&["sh", "-euc"], &[COMFORTS])?;
    println!("manual pages and completions work");
    boot(&root)
}

/// The lines of the guide's first commands.
fn guide() -> anyhow::Result<Vec<String>> {
    let text = fs::read_to_string(GUIDE).context(GUIDE)?;
    let (_, section) = text.split_once(SECTION).context("the guide has no first image")?;
    let section = section.split("\n## ").next().unwrap_or(section);
    let lines: Vec<String> =
        section.lines().filter_map(|line| line.strip_prefix("$ ")).map(str::to_owned).collect();
    anyhow::ensure!(!lines.is_empty(), "{GUIDE} has no commands in '{}'", SECTION.trim());
    Ok(lines)
}

/// An error that names files which are new or gone.
fn compare(before: &[String], after: &[String]) -> anyhow::Result<()> {
    let new: Vec<_> = after.iter().filter(|file| !before.contains(file)).collect();
    let gone: Vec<_> = before.iter().filter(|file| !after.contains(file)).collect();
    anyhow::ensure!(new.is_empty() && gone.is_empty(), "left behind: {new:?}, gone: {gone:?}");
    Ok(())
}

/// Removes the control groups that systemd-nspawn makes beside ours and leaves.
fn remove_groups() -> anyhow::Result<()> {
    let ours = fs::read_to_string("/proc/self/cgroup").context("/proc/self/cgroup")?;
    for line in ours.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(kind), Some(path)) = (fields.next(), fields.next()) else { continue };
        let hierarchy = match kind {
            "name=systemd" => "/sys/fs/cgroup/systemd",
            "" => ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"]
                .into_iter()
                .find(|folder| Path::new(folder).exists())
                .unwrap_or_default(),
            _ => continue,
        };
        for group in ["payload", "supervisor"] {
            let group = Path::new(hierarchy).join(path.trim_start_matches('/')).join(group);
            if group.exists() {
                let mut find = Command::new("find");
                process::output(find.arg(group).args(["-depth", "-type", "d", "-delete"]))?;
            }
        }
    }
    Ok(())
}

/// Boots the system with the unit enabled; then looks at the image.
fn boot(root: &BareRoot) -> anyhow::Result<()> {
    fs::write(root.path().join("booted.sh"), BOOTED)?;
    let prepare = include_str!("unit.sh");
    root.run(&["sh", "-euc"], &[prepare])?;
    let mut nspawn = Command::new("timeout");
    nspawn.args(["--kill-after=10", BOOT_SECONDS, "systemd-nspawn", "--quiet", "--boot"]);
    nspawn.args(["--private-network", "--console=pipe", "--bind=/dev/fuse"]);
    nspawn.arg("--directory").arg(root.path());
    let said = if Path::new("/run/systemd/system").exists() {
        process::output(nspawn.arg("--property=DeviceAllow=/dev/fuse rwm"))?
    } else {
        let said = process::output(nspawn.args(["--register=no", "--keep-unit"]));
        remove_groups()?;
        said?
    };
    let seen = fs::read_to_string(root.path().join("booted.txt"));
    let seen = seen.with_context(|| format!("systemd hasn't come to its services: {said}"))?;
    eprint!("{seen}");
    anyhow::ensure!(seen.ends_with("\nmounted at boot\n"), "the unit isn't active after booting");
    root.run(&["drystone"], &["check", "/srv/data.img"])?;
    let written = root.run(&["drystone"], &["cat", "/srv/data.img:/written"])?;
    anyhow::ensure!(written == "written after booting\n", "the image lacks what was written");
    println!("systemd has mounted an image at boot, and unmounted it at the end");
    Ok(())
}
