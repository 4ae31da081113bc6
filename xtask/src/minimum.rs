//! The oldest compiler that the manifest promises.

use crate::ci::Verdict;
use crate::process;
use anyhow::Context;
use std::process::Command;

/// Compiles the workspace with it, if what compiles everything else isn't it already.
pub fn run() -> anyhow::Result<Verdict> {
    let manifest = std::fs::read_to_string("Cargo.toml")?;
    let promised = promised(&manifest).context("the manifest has no rust-version")?;
    let ours = process::output(Command::new("rustc").arg("--version"))?;
    if is_version(&ours, promised) {
        eprintln!("everything is compiled by Rust {promised}");
        return Ok(Verdict::Passed);
    }
    let toolchain = format!("+{promised}");
    let theirs = Command::new("cargo").args([&toolchain, "--version"]).env_remove("CARGO").output();
    if !theirs.is_ok_and(|theirs| is_version(&String::from_utf8_lossy(&theirs.stdout), promised)) {
        return Ok(Verdict::Impossible(format!(
            "Rust {promised} isn't installed: rustup toolchain install {promised}"
        )));
    }
    let mut cargo = Command::new("cargo");
    cargo.args([&toolchain, "check", "--workspace", "--locked", "--quiet"]);
    // Cargo names its own version and tools to what it runs, and we are run by it.
    for name in ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"] {
        cargo.env_remove(name);
    }
    process::run(cargo.env("CARGO_TARGET_DIR", process::target_directory().join("minimum")))?;
    Ok(Verdict::Passed)
}

/// The version in a manifest.
fn promised(manifest: &str) -> Option<&str> {
    let line = manifest.lines().find_map(|line| line.strip_prefix("rust-version = "))?;
    Some(line.trim_matches('"'))
}

/// Whether a tool's answer, such as `rustc 1.95.0 (…)`, names a version.
fn is_version(said: &str, version: &str) -> bool {
    let Some(found) = said.split(' ').nth(1) else { return false };
    found.strip_prefix(version).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        assert!(is_version("rustc 1.95.0 (59807616e 2026-04-14)", "1.95"));
        assert!(is_version("cargo 1.95.1", "1.95.1"));
        assert!(!is_version("rustc 1.95.0 (x)", "1.9"));
        assert!(!is_version("rustc 1.96.0-nightly (x)", "1.95"));
        assert_eq!(promised("[a]\nrust-version = \"1.95\"\n"), Some("1.95"));
        assert_eq!(promised("[a]\n"), None);
    }
}
