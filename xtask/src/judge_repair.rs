//! The repair on the damaged images that e2fsprogs has collected for its own tests, beside e2fsck.
//!
//! The images come with the sources of Debian's package; nothing of them is kept in this repository.

use crate::process;
use anyhow::{Context, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where Debian names its archives.
const SOURCES: &str = "/etc/apt/sources.list.d";
const SOURCES_LIST: &str = "/etc/apt/sources.list";

#[derive(clap::Args)]
pub struct Options {
    /// A folder with a folder for each image, which holds image.gz, in place of those of e2fsprogs.
    #[arg(long)]
    images: Option<PathBuf>,
    /// Only the image of this name, with all that the repair did.
    image: Option<String>,
}

pub fn run(options: &Options) -> anyhow::Result<()> {
    let images = match &options.images {
        Some(images) => std::path::absolute(images)?,
        None => fetched(&std::path::absolute(process::target_directory())?.join("e2fsprogs"))?,
    };
    let mut cargo = process::cargo(["test", "--package", "drystone-fsck", "--test", "collected"]);
    cargo.args(["--", "--ignored", "--nocapture"]);
    cargo.env("DRYSTONE_COLLECTED_IMAGES", images);
    if let Some(image) = &options.image {
        cargo.env("DRYSTONE_COLLECTED_IMAGE", image);
    }
    process::run(&mut cargo)
}

/// The folder of images in the package's sources, which are fetched unless they are in `folder`.
fn fetched(folder: &Path) -> anyhow::Result<PathBuf> {
    let unpacked = folder.join("unpacked");
    if !unpacked.join("tests").is_dir() {
        let archive = fetch(folder)?;
        fs::create_dir_all(&unpacked)?;
        let mut tar = Command::new("tar");
        tar.args(["-x", "--strip-components=1", "-f"]).arg(archive).arg("-C").arg(&unpacked);
        process::run(&mut tar)?;
    }
    Ok(unpacked.join("tests"))
}

/// Fetches the archive of the package's sources. The machine's own lists needn't name sources, and stay as
/// they are.
fn fetch(folder: &Path) -> anyhow::Result<PathBuf> {
    let (sources, lists) = (folder.join("sources"), folder.join("lists"));
    fs::create_dir_all(&sources)?;
    fs::create_dir_all(lists.join("partial"))?;
    for entry in fs::read_dir(SOURCES).context(SOURCES)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "sources") {
            let text = fs::read_to_string(&path)?.replace("Types: deb\n", "Types: deb-src\n");
            fs::write(sources.join(path.file_name().unwrap_or_default()), text)?;
        }
    }
    let list = fs::read_to_string(SOURCES_LIST).unwrap_or_default();
    let lines = list.lines().filter_map(|line| line.strip_prefix("deb "));
    let lines: String = lines.map(|line| format!("deb-src {line}\n")).collect();
    fs::write(sources.join("list.list"), lines)?;
    for arguments in [&["update", "-qq"][..], &["source", "-qq", "--download-only", "e2fsprogs"]] {
        let mut apt = Command::new("apt-get");
        for (option, value) in [
            ("Dir::Etc::SourceList", Path::new("/dev/null")),
            ("Dir::Etc::SourceParts", &sources),
            ("Dir::State::Lists", &lists),
        ] {
            apt.arg("-o").arg(format!("{option}={}", value.display()));
        }
        process::run(apt.args(arguments).current_dir(folder))?;
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.to_string_lossy().contains(".orig.tar.") && path.extension() != Some("asc".as_ref())
        {
            return Ok(path);
        }
    }
    bail!("{}: apt-get source left no archive", folder.display())
}
