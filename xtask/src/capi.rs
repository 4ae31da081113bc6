//! Installs the library for C.

use crate::process;
use anyhow::Context;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The file that a program linked with the library looks for.
const SONAME: &str = "libdrystone.so.0";

#[derive(clap::Args)]
pub struct Options {
    /// Where lib/, include/ and lib/pkgconfig/ are.
    #[arg(long, default_value = "/usr/local")]
    prefix: PathBuf,
}

/// Builds the library and puts it, the header and the description for pkg-config below the prefix.
pub fn run(options: &Options) -> anyhow::Result<()> {
    process::run(&mut process::cargo(["build", "--release", "--package", "drystone-capi"]))?;
    let prefix = std::path::absolute(&options.prefix)?;
    let version = env!("CARGO_PKG_VERSION");
    let built = process::target_directory().join("release");
    let [lib, include, description] =
        ["lib", "include", "lib/pkgconfig"].map(|folder| prefix.join(folder));
    for folder in [&lib, &include, &description] {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let whole = format!("libdrystone.so.{version}");
    replace(&built.join("libdrystone_capi.so"), &lib.join(&whole))?;
    replace(&built.join("libdrystone_capi.a"), &lib.join("libdrystone.a"))?;
    replace(Path::new("crates/capi/include/drystone.h"), &include.join("drystone.h"))?;
    for (link, target) in [(SONAME, &*whole), ("libdrystone.so", SONAME)] {
        let link = lib.join(link);
        let _ = fs::remove_file(&link);
        symlink(target, &link).with_context(|| link.display().to_string())?;
    }
    let text = fs::read_to_string("crates/capi/drystone.pc.in")?
        .replace("@prefix@", &prefix.display().to_string())
        .replace("@version@", version);
    fs::write(description.join("drystone.pc"), text)?;
    println!(
        "installed below {}: {whole}, libdrystone.a, drystone.h, drystone.pc",
        prefix.display()
    );
    Ok(())
}

/// Copies a file; programs that use the old one go on with it.
fn replace(from: &Path, to: &Path) -> anyhow::Result<()> {
    let _ = fs::remove_file(to);
    fs::copy(from, to).with_context(|| format!("{} to {}", from.display(), to.display()))?;
    Ok(())
}
