//! A real Linux that runs as a program (Debian's `user-mode-linux`): it needs no rights, no loop device
//! and no KVM, and has file systems and quotas that the host's kernel may lack.
//!
//! A [`Guest`] boots, runs a shell script as its root and powers off; that takes some two seconds. Its root
//! file system is the host's, read-only, so that the script has the host's programs and files at their paths.
//! Beyond them it has:
//!
//! - its disks: `/dev/ubda`, `/dev/ubdb`…, one for each image. What the script has mounted from them is
//!   unmounted at the end;
//! - `powercut [STATUS]`: stops the machine at once, without a sync or an unmount;
//! - `gc [SECONDS]`: lets NILFS2's cleaner work on `/dev/ubda`, which has to be mounted at `/mnt`. No other
//!   cleaner runs;
//! - `$RUN`: a directory that is writable and goes away, for what the script wants to keep for its time.
//!
//! The script writes to a terminal, so that its output before a power cut isn't lost.
//!
//! Each guest has a directory of its own for all its files, so that guests don't interfere.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use drystone_sync::thread;
use rustix::fs::{Access, StatVfsMountFlags};
use rustix::process::{Pid, Signal, kill_process};

use crate::judges::{Scratch, run};
use crate::skip::{Prerequisite, skip};

const LINUX: &str = "linux.uml";
/// Where the package keeps the modules of its kernel, below a directory with the kernel's release.
const MODULES: &str = "/usr/lib/uml/modules";
/// Where a guest's memory is kept, if programs may be mapped from there.
const MEMORY: &str = "/dev/shm";
/// What the init script ends with when it, not the test's script, has failed.
const FAILED: i32 = 125;
/// What `timeout` ends with, if the signal to end was enough and if it wasn't.
const TIMED_OUT: [i32; 2] = [124, 137];
/// What Linux says where it can't trace programs, or can't set their registers.
const REFUSALS: [&str; 3] =
    ["ptrace set fp regs failed", "ptrace set regs failed", "check_ptrace :"];
/// Lines of the boot log that an error shows.
const LINES_SHOWN: usize = 20;
/// The names of the disks: as many as one letter distinguishes.
const DISKS_MAX: usize = 8;

/// A machine to be booted once.
#[derive(Clone, Debug)]
pub struct Guest {
    disks: Vec<PathBuf>,
    writable: Vec<PathBuf>,
    modules: Vec<String>,
    memory_mib: u32,
    limit: Duration,
}

impl Default for Guest {
    fn default() -> Guest {
        Guest {
            disks: Vec::new(),
            writable: Vec::new(),
            modules: Vec::new(),
            memory_mib: 256,
            limit: Duration::from_secs(120),
        }
    }
}

/// The result of a guest's script.
#[derive(Clone, Debug)]
pub struct GuestResult {
    /// The script's exit code, or what `powercut` was given.
    pub code: i32,
    /// All that the script printed.
    pub output: String,
    /// What the guest's kernel said.
    pub kernel_log: String,
}

impl GuestResult {
    /// The output. Panics with all that is known unless the exit code is 0.
    pub fn expect_clean(self, what: &str) -> String {
        let GuestResult { code, output, kernel_log } = self;
        assert_eq!(code, 0, "{what}: {output}\n{kernel_log}");
        output
    }
}

impl Guest {
    /// Adds an image as the next disk.
    #[must_use]
    pub fn disk(mut self, image: impl Into<PathBuf>) -> Guest {
        self.disks.push(image.into());
        self
    }

    /// Lets the guest write to a directory of the host.
    #[must_use]
    pub fn writable(mut self, directory: impl Into<PathBuf>) -> Guest {
        self.writable.push(directory.into());
        self
    }

    /// Loads a module of the kernel before the script runs, such as `fs/nilfs2/nilfs2`.
    #[must_use]
    pub fn module(mut self, name: &str) -> Guest {
        self.modules.push(name.to_owned());
        self
    }

    /// Sets how much memory the guest has.
    #[must_use]
    pub fn memory_mib(mut self, memory_mib: u32) -> Guest {
        self.memory_mib = memory_mib;
        self
    }

    /// Sets the time after which the guest is stopped.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Guest {
        self.limit = limit;
        self
    }

    /// Boots, and runs a script with `sh -e`. `None`, after a note of the skip, where no guest can run.
    ///
    /// # Errors
    ///
    /// The time is over (`TimedOut`), the guest crashed, a disk or a directory can't be attached, or what the
    /// script had mounted couldn't be unmounted.
    pub fn run(&self, script: &str) -> io::Result<Option<GuestResult>> {
        if let Some(lack) = lack() {
            skip(lack, "user-mode Linux");
            return Ok(None);
        }
        let scratch = Scratch::new("uml")?;
        // The kernel's command line and mount options are cut there.
        let places = self.writable.iter().map(PathBuf::as_path).chain([scratch.path()]);
        for place in places {
            if place.as_os_str().as_bytes().iter().any(|byte| b", \t\n\"'".contains(byte)) {
                let name = place.display();
                return Err(io::Error::other(format!("{name}: a guest can't have such a path")));
            }
        }
        self.prepare(&scratch, script)?;
        let (code, output) = self.boot(&scratch)?;
        let read = |name: &str| match fs::read(scratch.join(name)) {
            Ok(text) => Ok(String::from_utf8_lossy(&text).into_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(error),
        };
        let (boot_log, kernel_log) = (read("boot-log")?, read("kernel-log")?);
        if TIMED_OUT.contains(&code) {
            let limit = self.limit;
            let (end, waits) = (end_of(&boot_log), read("waits")?);
            let text = format!("the guest ran longer than {limit:?}: {output}{end}\n{waits}");
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        let Ok(code) = read("status")?.trim().parse() else {
            if REFUSALS.iter().any(|refusal| boot_log.contains(refusal)) {
                let lack = Prerequisite::Host("a user-mode Linux that can run programs".into());
                skip(lack, "user-mode Linux");
                return Ok(None);
            }
            let text = format!("the guest crashed: {output}{}", end_of(&boot_log));
            return Err(io::Error::other(text));
        };
        if code == FAILED {
            let failure = read("failure")?;
            if !failure.is_empty() {
                return Err(io::Error::other(format!("{failure}{output}{kernel_log}")));
            }
        }
        Ok(Some(GuestResult { code, output, kernel_log }))
    }

    /// Writes all files of the guest.
    fn prepare(&self, scratch: &Scratch, script: &str) -> io::Result<()> {
        let bin = scratch.join("bin");
        fs::create_dir(&bin)?;
        let programs = [
            ("powercut", include_str!("powercut.sh")),
            ("gc", include_str!("gc.sh")),
            ("end-cleaners", include_str!("end_cleaners.sh")),
        ];
        for (name, text) in programs {
            fs::write(bin.join(name), text)?;
            fs::set_permissions(bin.join(name), Permissions::from_mode(0o755))?;
        }
        let busybox = program("busybox").ok_or(io::ErrorKind::NotFound)?;
        symlink(busybox, bin.join("busybox"))?;
        fs::write(scratch.join("init"), include_str!("init.sh"))?;
        fs::write(scratch.join("script"), script)?;
        let lines = |paths: &[PathBuf]| {
            let lines = paths.iter().flat_map(|path| [path.as_os_str().as_bytes(), b"\n"]);
            lines.collect::<Vec<_>>().concat()
        };
        let writable: io::Result<Vec<_>> = self.writable.iter().map(fs::canonicalize).collect();
        fs::write(scratch.join("writable"), lines(&writable?))?;
        fs::write(scratch.join("modules"), lines(&self.module_paths()?))?;
        let source = scratch.join("xsave.c");
        fs::write(&source, include_str!("xsave.c"))?;
        let object = scratch.join("xsave.so");
        let fixed = ["-O2", "-shared", "-fPIC", "-o"].map(OsStr::new);
        let files = [object.as_os_str(), source.as_os_str(), OsStr::new("-ldl")];
        let compiled = run("cc", fixed.into_iter().chain(files))?;
        if !compiled.is_clean() {
            return Err(io::Error::other(format!("cc: {}", compiled.output)));
        }
        assert!(self.disks.len() <= DISKS_MAX, "{} disks", self.disks.len());
        for (number, image) in self.disks.iter().enumerate() {
            // A colon or a comma in the path of an image would end it.
            symlink(fs::canonicalize(image)?, scratch.join(format!("disk{number}")))?;
        }
        Ok(())
    }

    fn module_paths(&self) -> io::Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for name in &self.modules {
            let releases = fs::read_dir(MODULES)?.collect::<io::Result<Vec<_>>>()?;
            let [release] = &*releases else {
                return Err(io::Error::other(format!("{MODULES}: not one kernel's")));
            };
            paths.push(release.path().join(format!("kernel/{name}.ko")));
        }
        Ok(paths)
    }

    /// Runs the guest to its end; gives the exit code of `timeout` and what the script printed.
    fn boot(&self, scratch: &Scratch) -> io::Result<(i32, String)> {
        let place = scratch.path().display();
        let is_executable = rustix::fs::statvfs(MEMORY)
            .is_ok_and(|found| !found.f_flag.contains(StatVfsMountFlags::NOEXEC))
            && rustix::fs::access(MEMORY, Access::WRITE_OK).is_ok();
        // The script's output has a terminal of its own, apart from what the kernel and its host say.
        let mut command = Command::new("sh");
        command.args(["-c", r#"exec timeout -k 5 "$@" 5>&1 > boot-log 2>&1"#, "sh"]);
        command.arg(self.limit.as_secs().max(1).to_string()).arg(LINUX);
        command.arg(format!("mem={}M", self.memory_mib));
        command.args((0..self.disks.len()).map(|number| format!("ubd{number}=disk{number}")));
        command.args([format!("uml_dir={place}/"), "umid=guest".to_owned()]);
        command.args(["con=null", "con0=null,fd:1", "con1=null,fd:5", "ssl=null", "quiet"]);
        command.args(["root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro"]);
        command.arg(format!("init={place}/bin/busybox"));
        command.args(["--", "sh", &format!("{place}/init")]);
        command.current_dir(scratch.path()).stdin(Stdio::null());
        command.env("TMPDIR", if is_executable { Path::new(MEMORY) } else { scratch.path() });
        command.env("LD_PRELOAD", scratch.join("xsave.so"));
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let printed = child.stdout.take().map(|mut pipe| {
            thread::spawn("guest output", move || {
                let mut bytes = Vec::new();
                pipe.read_to_end(&mut bytes).map(|_| bytes)
            })
        });
        let ended = child.wait();
        end_what_is_left(scratch)?;
        let printed = match printed.transpose()?.map(thread::JoinHandle::join) {
            Some(Ok(printed)) => printed?,
            _ => Vec::new(),
        };
        Ok((ended?.code().unwrap_or(-1), String::from_utf8_lossy(&printed).into_owned()))
    }
}

/// Kills processes of a guest that has ended: one that it had stopped when it was killed stays so, and would keep the
/// output open for ever.
fn end_what_is_left(scratch: &Scratch) -> io::Result<()> {
    let own = format!("uml_dir={}/", scratch.path().display());
    for entry in fs::read_dir("/proc")?.flatten() {
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(process) = number.and_then(Pid::from_raw) else { continue };
        // It may end meanwhile.
        let Ok(words) = fs::read(entry.path().join("cmdline")) else { continue };
        if words.split(|byte| *byte == 0).any(|word| word == own.as_bytes()) {
            let _ = kill_process(process, Signal::KILL);
        }
    }
    Ok(())
}

/// What a guest needs and this machine lacks.
fn lack() -> Option<Prerequisite> {
    let is_linux_there = cfg!(target_arch = "x86_64") && program(LINUX).is_some();
    if !is_linux_there {
        return Some(Prerequisite::Program(LINUX.to_owned()));
    }
    let missing = ["busybox", "cc"].into_iter().find(|name| program(name).is_none());
    missing.map(|name| Prerequisite::Program(name.to_owned()))
}

/// Where a program is.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|directory| directory.join(name));
    places.find(|place| place.is_file())
}

fn end_of(log: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_script_has_disks_and_directories() {
        let scratch = Scratch::new("guest").unwrap();
        let images = ["one", "a two,:"].map(|name| scratch.join(name));
        for image in &images {
            File::create(image).unwrap().set_len(8 << 20).unwrap();
        }
        let shared = scratch.join("shared");
        fs::create_dir(&shared).unwrap();
        let guest = Guest::default().disk(&images[0]).disk(&images[1]).writable(&shared);
        let script = format!(
            "mke2fs -q -F /dev/ubdb; mount -t ext4 /dev/ubdb /mnt; echo kept > /mnt/file
            echo \"$(id -u) $(cat /sys/block/ubda/size)\"; cp /mnt/file {}/copy
            ! touch /mine 2> $RUN/refused; grep -o Read-only $RUN/refused; exit 3",
            shared.display()
        );
        let Some(result) = guest.run(&script).unwrap() else { return };
        assert_eq!((result.code, &*result.output), (3, "0 16384\nRead-only\n"), "{result:?}");
        assert_eq!(fs::read(shared.join("copy")).unwrap(), b"kept\n");
        let again = guest.run("mount -t ext4 -o ro /dev/ubdb /mnt; cat /mnt/file").unwrap();
        assert_eq!(again.unwrap().expect_clean("what was unmounted"), "kept\n");
    }

    #[test]
    fn a_cut_of_power_loses_what_was_not_synced() {
        let scratch = Scratch::new("guest").unwrap();
        let image = scratch.join("image");
        File::create(&image).unwrap().set_len(8 << 20).unwrap();
        let guest = Guest::default().disk(&image);
        let script = "mke2fs -q -F -t ext4 /dev/ubda; mount -t ext4 /dev/ubda /mnt
            touch /mnt/kept; sync; touch /mnt/lost; echo cut; powercut 7; echo alive";
        let Some(result) = guest.run(script).unwrap() else { return };
        assert_eq!((result.code, &*result.output), (7, "cut\n"));
        let names = guest.run("mount -t ext4 /dev/ubda /mnt; ls -1 /mnt").unwrap().unwrap();
        assert_eq!(names.expect_clean("recovery"), "kept\nlost+found\n");
    }

    #[test]
    fn what_goes_on_is_stopped() {
        let guest = Guest::default().limit(Duration::from_secs(12));
        match guest.run("echo begun; sleep 60") {
            Ok(result) => assert!(result.is_none(), "{result:?}"),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::TimedOut);
                let text = error.to_string();
                assert!(text.contains("begun") && text.contains("comm:sleep"), "{text}");
            }
        }
    }

    #[test]
    fn what_can_not_be_unmounted_is_an_error() {
        let scratch = Scratch::new("guest").unwrap();
        let image = scratch.join("image");
        File::create(&image).unwrap().set_len(8 << 20).unwrap();
        let script = "mke2fs -q -F /dev/ubda; mount -t ext4 /dev/ubda /mnt
            (cd /mnt; sleep 60) & sleep 0.2";
        match Guest::default().disk(&image).run(script) {
            Ok(result) => assert!(result.is_none(), "{result:?}"),
            Err(error) => assert!(error.to_string().contains("can't unmount /mnt"), "{error}"),
        }
    }
}
