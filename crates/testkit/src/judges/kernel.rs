//! The kernel's own ext4 on a loop device, as root.
//!
//! Tests are to find out if the kernel refuses one of our images. So a failed mount is a skip only
//! if the kernel also refuses an empty image of `mke2fs` with the same features.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
#[cfg(test)]
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::tools::{Scratch, run};
use crate::skip::{Prerequisite, skip};

/// How often a busy mount is tried again.
const UNMOUNT_ATTEMPTS_MAX: u32 = 50;
const UNMOUNT_PAUSE: std::time::Duration = std::time::Duration::from_millis(20);
/// How often a mounted image that changes is read again.
const READINGS_MAX: u32 = 50;

/// An image that the kernel has mounted, until dropped or unmounted.
#[derive(Debug)]
pub struct Mounted {
    directory: PathBuf,
    mounted: bool,
}

impl Mounted {
    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.directory
    }

    /// Unmounts it; then everything is in the image.
    pub fn unmount(mut self) -> io::Result<()> {
        self.mounted = false;
        let mut judgement = run("umount", [&self.directory])?;
        // A child that another thread forks has this process's files until it runs its program.
        for _ in 0..UNMOUNT_ATTEMPTS_MAX {
            if judgement.is_clean() {
                return Ok(());
            }
            drystone_sync::thread::sleep(UNMOUNT_PAUSE);
            judgement = run("umount", [&self.directory])?;
        }
        if judgement.is_clean() { Ok(()) } else { Err(io::Error::other(judgement.output)) }
    }
}

impl Drop for Mounted {
    /// A failing test leaves no mount behind.
    fn drop(&mut self) {
        if self.mounted {
            let _ = run("umount", [OsStr::new("-l"), self.directory.as_os_str()]);
        }
    }
}

/// Mounts an image at a directory, which is made if it isn't there, with mount options (such as
/// `ro,noload`; may be empty). `None`, after a note of the skip, without root, without loop devices,
/// or if the kernel refuses every image with these features.
///
/// # Errors
///
/// The kernel refuses this image, though it mounts an empty one with the same features.
pub fn kernel_mount(image: &Path, directory: &Path, options: &str) -> io::Result<Option<Mounted>> {
    Ok(match mount_or_lack(image, directory, options)? {
        Ok(mounted) => Some(mounted),
        Err(lack) => {
            skip(lack, format!("a mount of {} with {options:?}", image.display()));
            None
        }
    })
}

/// Mounts, or returns what the machine lacks.
fn mount_or_lack(
    image: &Path,
    directory: &Path,
    options: &str,
) -> io::Result<Result<Mounted, Prerequisite>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(Err(Prerequisite::Root));
    }
    let mounted = || Ok(Ok(Mounted { directory: directory.to_owned(), mounted: true }));
    if try_mount(image, directory, options)?.is_ok() {
        return mounted();
    }
    let scratch = Scratch::new("twin")?;
    if mounts(&Twin::PLAIN, &scratch, "")?.is_err() {
        return Ok(Err(Prerequisite::LoopMounts));
    }
    let plain = Twin::of(&scratch.join(Twin::NAME))?;
    let twin = Twin::of(image)?;
    if mounts(&twin, &scratch, options)?.is_err() {
        let is_special = |feature: &&str| !plain.features.split(',').any(|plain| plain == *feature);
        let special: Vec<&str> = twin.features.split(',').filter(is_special).collect();
        let block_size = twin.block_size;
        let blocks = format!("{block_size}-byte blocks");
        let words = [&[&*blocks], &special[..], &[options]].concat();
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        return Ok(Err(Prerequisite::Kernel(format!("ext4 with {}", words.join(", ")))));
    }
    // Loop devices are shared with the whole machine, so the first refusal may have another cause.
    match try_mount(image, directory, options)? {
        Ok(()) => mounted(),
        Err(refusal) => Err(io::Error::other(format!(
            "the kernel refuses {}, but not an empty image with {}: {refusal}",
            image.display(),
            twin.features
        ))),
    }
}

/// True if the kernel mounts the image with these options.
#[cfg(test)]
pub(super) fn kernel_mounts(image: &Path, directory: &Path, options: &str) -> io::Result<bool> {
    let mounted = try_mount(image, directory, options)?.is_ok();
    if mounted {
        Mounted { directory: directory.to_owned(), mounted }.unmount()?;
    }
    Ok(mounted)
}

/// The bytes of an image that the kernel has mounted, as a loss of power would leave them.
///
/// Whatever asks the machine to write back (`sync` of another program) makes the kernel commit and
/// write at any time, and a reading beside that mixes old blocks with new ones. So the image is read
/// until two readings are equal.
///
/// # Errors
///
/// The image changes all the time.
pub fn crashed_image(image: &Path) -> io::Result<Vec<u8>> {
    let mut before = std::fs::read(image)?;
    for _ in 0..READINGS_MAX {
        let now = std::fs::read(image)?;
        if now == before {
            return Ok(now);
        }
        before = now;
    }
    Err(io::Error::other(format!("{} changed in each of {READINGS_MAX} readings", image.display())))
}

/// True if the kernel mounts ext4 through a loop device here.
pub fn can_mount() -> io::Result<bool> {
    Ok(rustix::process::geteuid().is_root()
        && mounts(&Twin::PLAIN, &Scratch::new("twin")?, "")?.is_ok())
}

/// Mounts, or returns why the kernel refuses.
fn try_mount(image: &Path, directory: &Path, options: &str) -> io::Result<Result<(), String>> {
    std::fs::create_dir_all(directory)?;
    let options = if options.is_empty() { "loop".to_owned() } else { format!("loop,{options}") };
    let arguments = [OsStr::new("-t"), OsStr::new("ext4"), OsStr::new("-o"), OsStr::new(&options)];
    let judgement =
        run("mount", arguments.into_iter().chain([image.as_os_str(), directory.as_os_str()]))?;
    Ok(if judgement.is_clean() { Ok(()) } else { Err(judgement.output) })
}

/// The properties that an empty image shares with another.
struct Twin {
    /// As `mke2fs` takes them.
    features: String,
    block_size: u64,
    inode_size: u64,
    size_bytes: u64,
}

impl Twin {
    /// The name of its file.
    const NAME: &'static str = "image";
    /// The features that every kernel with ext4 mounts.
    const PLAIN: Twin =
        Twin { features: String::new(), block_size: 1024, inode_size: 256, size_bytes: 8 << 20 };

    fn of(image: &Path) -> io::Result<Twin> {
        let shown = run("dumpe2fs", [OsStr::new("-h"), image.as_os_str()])?;
        let field = |name: &str| {
            let line = shown.output.lines().find_map(|line| line.strip_prefix(name));
            line.map(str::trim).ok_or_else(|| {
                io::Error::other(format!("{}: {name} unknown: {}", image.display(), shown.output))
            })
        };
        let number = |name: &str| field(name)?.parse().map_err(io::Error::other);
        // These two are states.
        let is_feature = |word: &&str| !["needs_recovery", "orphan_present"].contains(word);
        let features: Vec<&str> =
            field("Filesystem features:")?.split_whitespace().filter(is_feature).collect();
        Ok(Twin {
            features: features.join(","),
            block_size: number("Block size:")?,
            inode_size: number("Inode size:")?,
            size_bytes: std::fs::metadata(image)?.len(),
        })
    }

    fn make(&self, path: &Path) -> io::Result<()> {
        File::create(path)?.set_len(self.size_bytes)?;
        let features = match &*self.features {
            "" => String::new(),
            features => format!("none,{features}"),
        };
        let numbers = [self.block_size.to_string(), self.inode_size.to_string()];
        let arguments = ["-q", "-F", "-t", "ext4", "-b", &numbers[0], "-I", &numbers[1]];
        let features = ["-O", &features].into_iter().filter(|_| !features.is_empty());
        let arguments = arguments.into_iter().chain(features).map(OsStr::new);
        let made = run("mke2fs", arguments.chain([path.as_os_str()]))?;
        if made.is_clean() { Ok(()) } else { Err(io::Error::other(made.output)) }
    }
}

/// Whether the kernel mounts such an image, or why it doesn't.
fn mounts(twin: &Twin, scratch: &Scratch, options: &str) -> io::Result<Result<(), String>> {
    let (image, directory) = (scratch.join(Twin::NAME), scratch.join("mount"));
    twin.make(&image)?;
    let tried = try_mount(&image, &directory, options)?;
    if tried.is_ok() {
        Mounted { directory, mounted: true }.unmount()?;
    }
    Ok(tried)
}

#[cfg(test)]
mod tests {
    use super::super::{FeatureSet, have, mke2fs};
    use super::*;

    fn make(scratch: &Scratch, set: &str) -> PathBuf {
        let set = FeatureSet::by_name(set).unwrap();
        let image = scratch.join(set.name);
        mke2fs(&image, set, set.size_mib_min << 20).unwrap().expect_clean(set.name);
        image
    }

    #[test]
    fn an_image_that_the_kernel_refuses_is_an_error() {
        if !have("mke2fs") || !can_mount().unwrap() {
            return skip(Prerequisite::LoopMounts, "an image that the kernel refuses");
        }
        let scratch = Scratch::new("refused").unwrap();
        let image = make(&scratch, "default");
        let mount = scratch.join("mount");
        kernel_mount(&image, &mount, "").unwrap().unwrap().unmount().unwrap();
        // The number of the journal's inode.
        let file = File::options().write(true).open(&image).unwrap();
        file.write_all_at(&[77], 1024 + 0xe0).unwrap();
        let error = kernel_mount(&image, &mount, "").unwrap_err().to_string();
        assert!(error.contains("refuses"), "{error}");
    }

    #[test]
    fn features_that_the_kernel_refuses_are_no_error() {
        if !have("mke2fs") || !can_mount().unwrap() {
            return skip(Prerequisite::LoopMounts, "features that the kernel refuses");
        }
        let scratch = Scratch::new("refused-set").unwrap();
        let image = make(&scratch, "default-2k");
        let lack = mount_or_lack(&image, &scratch.join("mount"), "no-such-option").unwrap();
        let expected = "ext4 with 2048-byte blocks, no-such-option".to_owned();
        assert_eq!(lack.unwrap_err(), Prerequisite::Kernel(expected));
    }
}
