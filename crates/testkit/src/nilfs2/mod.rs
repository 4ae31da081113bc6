//! Images of NILFS2 by mkfs.nilfs2 and the real kernel (see [`uml`](crate::uml)), and how the kernel sees
//! an image.

mod view;

pub use view::{CheckpointLine, Nilfs2View, SegmentLine};

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::judges::{Scratch, run};
use crate::skip::{Prerequisite, skip};
use crate::uml::{Guest, GuestResult};

const MKFS: &str = "mkfs.nilfs2";
const MODULE: &str = "fs/nilfs2/nilfs2";
/// The exit code of a script whose mount the kernel refused: that of mount(8).
pub const MOUNT_REFUSED: i32 = 32;

/// Options of `mkfs.nilfs2`.
#[derive(Clone, Copy, Debug)]
pub struct Nilfs2Layout {
    /// The size of the image.
    pub size_bytes: u64,
    /// 1024, 2048 or 4096.
    pub block_size: u32,
    /// A power of two, at least 16.
    pub blocks_per_segment: u32,
}

/// Small images with small and large blocks and segments.
pub const LAYOUTS: [Nilfs2Layout; 4] = [
    Nilfs2Layout { size_bytes: 32 << 20, block_size: 1024, blocks_per_segment: 16 },
    Nilfs2Layout { size_bytes: 64 << 20, block_size: 1024, blocks_per_segment: 512 },
    Nilfs2Layout { size_bytes: 96 << 20, block_size: 4096, blocks_per_segment: 64 },
    Nilfs2Layout { size_bytes: 160 << 20, block_size: 4096, blocks_per_segment: 2048 },
];

/// Makes an empty image. `false`, after a note of the skip, if that isn't possible.
pub fn mkfs_nilfs2(image: &Path, layout: &Nilfs2Layout) -> io::Result<bool> {
    File::create(image)?.set_len(layout.size_bytes)?;
    let numbers = [layout.block_size, layout.blocks_per_segment].map(|number| number.to_string());
    let arguments = ["-q", "-f", "-b", &numbers[0], "-B", &numbers[1]].map(OsStr::new);
    match run(MKFS, arguments.into_iter().chain([image.as_os_str()])) {
        Ok(made) if made.is_clean() => Ok(true),
        Ok(made) => Err(io::Error::other(format!("{MKFS}: {}", made.output))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            skip(Prerequisite::Program(MKFS.to_owned()), "images of NILFS2");
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// The real kernel with an image of NILFS2.
///
/// Its scripts find the image at `/mnt`, its device at `/dev/ubda`, the programs of nilfs-tools, and:
///
/// - `populate SEED STAGE...` makes content: `kinds`, `sparse`, `large`, `churn`, `churn=ROUNDS`, `delete`
///   (see `populate.py`);
/// - `list NAME DIRECTORY`, `view`, `view COUNT` (with the trees of so many snapshots) and `view_current`
///   (with none) print what [`Nilfs2View`] reads;
/// - `gc` and `powercut` (see [`uml`](crate::uml)).
#[derive(Clone, Debug)]
pub struct Nilfs2Guest {
    guest: Guest,
    /// `None`: the script mounts the image itself.
    mount_options: Option<String>,
}

impl Nilfs2Guest {
    /// Mounts an image for reading and writing.
    pub fn new(image: impl Into<PathBuf>) -> Nilfs2Guest {
        let guest = Guest::default().disk(image).module(MODULE);
        Nilfs2Guest { guest, mount_options: Some(String::new()) }
    }

    /// Mounts with these options, such as `ro,cp=3`.
    #[must_use]
    pub fn options(mut self, options: &str) -> Nilfs2Guest {
        self.mount_options = Some(options.to_owned());
        self
    }

    /// Leaves the mount to the script: `busybox mount -i -t nilfs2 /dev/ubda /mnt`.
    #[must_use]
    pub fn without_mount(mut self) -> Nilfs2Guest {
        self.mount_options = None;
        self
    }

    /// Lets the script write to a directory of the host.
    #[must_use]
    pub fn writable(mut self, directory: impl Into<PathBuf>) -> Nilfs2Guest {
        self.guest = self.guest.writable(directory);
        self
    }

    /// Sets the time after which the guest is stopped.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Nilfs2Guest {
        self.guest = self.guest.limit(limit);
        self
    }

    /// Runs a script. `None`, after a note of the skip, where no guest can run. The code is
    /// [`MOUNT_REFUSED`] if the kernel doesn't mount the image.
    ///
    /// # Errors
    ///
    /// As [`Guest::run`].
    pub fn run(&self, script: &str) -> io::Result<Option<GuestResult>> {
        let tools = Scratch::new("nilfs2")?;
        for (name, text) in
            [("populate.py", include_str!("populate.py")), ("list.py", include_str!("list.py"))]
        {
            fs::write(tools.join(name), text)?;
        }
        let mount = self.mount_options.as_ref().map_or(String::new(), |options| {
            let options = if options.is_empty() { String::new() } else { format!("-o {options}") };
            format!("busybox mount -i -t nilfs2 {options} /dev/ubda /mnt || exit {MOUNT_REFUSED}\n")
        });
        let place = tools.path().display();
        let prelude = include_str!("prelude.sh");
        self.guest.run(&format!("TOOLS={place}\n{prelude}\n{mount}{script}"))
    }

    /// Returns everything that the kernel shows of the image. `None`, after a note of the skip, where no
    /// guest can run.
    ///
    /// # Errors
    ///
    /// As [`Guest::run`]; the kernel refuses the image.
    pub fn view(&self) -> io::Result<Option<Nilfs2View>> {
        let Some(result) = self.run("view")? else { return Ok(None) };
        if result.code != 0 {
            let GuestResult { code, output, kernel_log } = result;
            return Err(io::Error::other(format!("exit code {code}: {output}\n{kernel_log}")));
        }
        Nilfs2View::parse(&result.output).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::diff;

    /// An image with everything, and how the kernel saw it before the power was cut.
    fn everything(scratch: &Scratch, layout: &Nilfs2Layout) -> Option<(PathBuf, Nilfs2View)> {
        let image = scratch.join("image");
        if !mkfs_nilfs2(&image, layout).unwrap() {
            return None;
        }
        let script = "populate 1 kinds sparse large churn delete; gc 3; sync
            view; populate 2 churn=1 > /dev/null 2>&1 & sleep 0.5; powercut";
        let result = Nilfs2Guest::new(&image).run(script).unwrap()?;
        let view = Nilfs2View::parse(&result.expect_clean("content")).unwrap();
        Some((image, view))
    }

    #[test]
    fn the_kernel_sees_its_own_images() {
        let [_, layout, ..] = &LAYOUTS;
        let scratch = Scratch::new("nilfs2-image").unwrap();
        let Some((image, before)) = everything(&scratch, layout) else { return };
        assert!(before.current.entries.len() > 900, "{}", before.current.entries.len());
        assert!(before.snapshots.len() >= 2, "{:?}", before.snapshots.keys());
        let snapshots = before.checkpoints.iter().filter(|line| line.is_snapshot).count();
        assert_eq!(snapshots, before.snapshots.len());
        assert_eq!(before.segments.len(), 127);
        assert!(before.segments.iter().any(|segment| !segment.is_dirty));
        let after = Nilfs2Guest::new(&image).view().unwrap().unwrap();
        // Times of access are kept in memory only.
        let is_kept = |line: &String| !line.contains(": accessed: ");
        for (number, tree) in &before.snapshots {
            let mut changes = diff(tree, &after.snapshots[number]);
            changes.retain(is_kept);
            assert_eq!(changes, [""; 0], "snapshot {number}");
        }
        // The cut was in the middle of the churn.
        let is_old = |line: &String| !line.contains("churn2") && !line.starts_with("/: ");
        let mut changes = diff(&before.current, &after.current);
        changes.retain(|line| is_kept(line) && is_old(line));
        assert_eq!(changes, [""; 0]);
    }

    #[test]
    fn what_the_kernel_refuses_is_told() {
        let scratch = Scratch::new("nilfs2-refused").unwrap();
        let image = scratch.join("image");
        if !mkfs_nilfs2(&image, &LAYOUTS[0]).unwrap() {
            return;
        }
        let Some(result) = Nilfs2Guest::new(&image).options("ro,cp=77").run("true").unwrap() else {
            return;
        };
        assert_eq!(result.code, MOUNT_REFUSED);
        assert!(result.output.contains("mount:"), "{}", result.output);
        let unmounted = Nilfs2Guest::new(&image).without_mount().run("ls -1 /mnt | wc -l");
        unmounted.unwrap().unwrap().expect_clean("a script without a mount");
    }
}
