//! Rules about packages: layers, licences, and libraries that only some packages may use.

use super::Finding;
use anyhow::{Context, bail};
use serde::Deserialize;

/// Which packages of the workspace a package may use, in tests included where not said otherwise:
/// the layers. Nothing points up. The checker and the image builder never see the engine, so that
/// they can't share its bugs.
const LAYERS: [(&str, &[&str]); 28] = [
    ("drystone-sync", &[]),
    ("drystone-ondisk", &[]),
    ("drystone-options", &[]),
    ("drystone-jbd2-format", &["ondisk"]),
    ("drystone-ext4-format", &["ondisk"]),
    ("drystone-nilfs2-format", &["ondisk"]),
    ("drystone-nilfs2-check", &["blockdev", "nilfs2-format", "ondisk", "options"]),
    ("drystone-blockdev", &["ondisk", "sync"]),
    ("drystone-rbd", &["blockdev", "sync"]),
    ("drystone-volumes", &["blockdev", "ext4-format", "nilfs2-format", "rbd", "sync"]),
    ("drystone-cache", &["blockdev", "ondisk", "sync"]),
    ("drystone-jbd2", &["blockdev", "cache", "jbd2-format", "ondisk", "options", "sync"]),
    ("drystone-vfs", &[]),
    (
        "drystone-ext4",
        &["blockdev", "cache", "ext4-format", "jbd2", "ondisk", "options", "sync", "vfs"],
    ),
    ("drystone-nilfs2", &["blockdev", "nilfs2-format", "ondisk", "options", "sync", "vfs"]),
    ("drystone-fsck", &["blockdev", "ext4-format", "jbd2-format", "ondisk", "options", "sync"]),
    ("drystone-mkfs", &["blockdev", "ext4-format", "jbd2-format", "ondisk", "options", "sync"]),
    ("drystone-sources", &["blockdev", "ext4-format", "mkfs", "ondisk", "sync", "vfs"]),
    (
        "drystone-reshape",
        &["blockdev", "ext4-format", "jbd2-format", "mkfs", "ondisk", "options", "sync"],
    ),
    ("drystone-inspect", &["blockdev", "ext4-format", "jbd2-format", "ondisk", "options", "sync"]),
    ("drystone-testkit", &["blockdev", "ext4-format", "ondisk", "sync", "vfs"]),
    (
        "drystone",
        &[
            "blockdev",
            "ext4",
            "ext4-format",
            "fsck",
            "fuse",
            "inspect",
            "mkfs",
            "nilfs2",
            "nilfs2-check",
            "nilfs2-format",
            "options",
            "reshape",
            "sources",
            "sync",
            "vfs",
            "volumes",
        ],
    ),
    ("drystone-capi", &["drystone", "sync"]),
    ("drystone-fuse", &["options", "sync", "vfs"]),
    (
        "drystone-bench",
        &[
            "blockdev",
            "ext4",
            "fsck",
            "mkfs",
            "nilfs2",
            "nilfs2-check",
            "sync",
            "testkit",
            "vfs",
            "volumes",
        ],
    ),
    (
        "drystone-simulate",
        &["bench", "blockdev", "ext4", "ext4-format", "fsck", "mkfs", "sync", "testkit", "vfs"],
    ),
    ("drystone-cli", &["bench", "blockdev", "drystone", "fuse", "mkfs", "sources", "sync", "vfs"]),
    ("drystone-manual", &["cli"]),
];

/// The crates that a crate may use; both named without their `drystone-`.
#[cfg(test)]
pub fn uses(name: &str) -> &'static [&'static str] {
    let found = LAYERS.iter().find(|(user, _)| user.trim_start_matches("drystone-") == name);
    found.map_or(&[], |(_, used)| *used)
}

/// What the tests of a package may use beyond its layer. The checker and the builder may test each
/// other; no test of theirs uses the engine.
const TEST_LAYERS: [(&str, &[&str]); 18] = [
    ("drystone-blockdev", &["testkit"]),
    ("drystone-ext4-format", &["testkit"]),
    ("drystone-volumes", &["mkfs", "testkit", "volumes"]),
    ("drystone-cache", &["testkit"]),
    ("drystone-jbd2", &["testkit"]),
    ("drystone-ext4", &["fsck", "mkfs", "testkit"]),
    ("drystone-nilfs2", &["nilfs2-check", "testkit"]),
    ("drystone-fsck", &["mkfs", "sync", "testkit"]),
    ("drystone-nilfs2-check", &["testkit"]),
    ("drystone-mkfs", &["fsck", "testkit"]),
    ("drystone-sources", &["fsck", "sources", "testkit"]),
    ("drystone-inspect", &["testkit"]),
    ("drystone-reshape", &["fsck", "testkit"]),
    ("drystone", &["drystone", "testkit"]),
    // Itself: its tests turn on the feature that compares with another library.
    ("drystone-fuse", &["blockdev", "drystone", "ext4", "fsck", "fuse", "testkit"]),
    ("drystone-capi", &["testkit"]),
    // It makes hostile volumes.
    ("drystone-cli", &["nilfs2-format", "testkit"]),
    ("drystone-manual", &["testkit"]),
];

/// Libraries that only the named packages may use.
const RESERVED: [(&str, &[&str]); 3] = [
    (
        "anyhow",
        &["drystone-cli", "drystone-bench", "drystone-manual", "drystone-simulate", "xtask"],
    ),
    ("parking_lot", &["drystone-sync"]),
    ("fuser", &["drystone-fuse"]),
];

/// The licence of every package.
const LICENCE: &str = "MIT OR Apache-2.0";

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    license: Option<String>,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// `dev` or `build`; none for an ordinary one.
    kind: Option<String>,
    /// Only packages of the workspace have one.
    path: Option<String>,
}

/// Checks the workspace in the current folder.
pub fn check() -> anyhow::Result<Vec<Finding>> {
    let output = crate::process::cargo(["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .context("can't run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let metadata: Metadata = serde_json::from_slice(&output.stdout)?;
    Ok(metadata.packages.iter().flat_map(check_package).collect())
}

fn check_package(package: &Package) -> Vec<Finding> {
    let mut findings = Vec::new();
    if package.license.as_deref() != Some(LICENCE) {
        findings.push(Finding::error(&package.name, format!("its licence isn't {LICENCE}")));
    }
    for (library, users) in RESERVED {
        let uses = package.dependencies.iter().any(|dependency| dependency.name == library);
        if uses && !users.contains(&package.name.as_str()) {
            let users = users.join(", ");
            findings.push(Finding::error(&package.name, format!("{library} is for {users} only")));
        }
    }
    if package.name.starts_with("drystone") {
        check_layers(package, &mut findings);
    }
    findings
}

fn check_layers(package: &Package, findings: &mut Vec<Finding>) {
    let row = |table: &[(&str, &'static [&'static str])]| {
        table.iter().find(|(name, _)| *name == package.name).map(|(_, allowed)| *allowed)
    };
    let Some(allowed) = row(&LAYERS) else {
        findings.push(Finding::error(&package.name, "has no layer in xtask/src/tidy/crates.rs"));
        return;
    };
    let allowed_in_tests = row(&TEST_LAYERS).unwrap_or_default();
    for dependency in package.dependencies.iter().filter(|dependency| dependency.path.is_some()) {
        let short = dependency.name.trim_start_matches("drystone-");
        let in_tests = dependency.kind.as_deref() == Some("dev");
        let is_below = allowed.contains(&short) || in_tests && allowed_in_tests.contains(&short);
        if !is_below {
            findings.push(Finding::error(
                &package.name,
                format!("may not use {}: it isn't in a layer below", dependency.name),
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, uses: &[(&str, Option<&str>)]) -> Package {
        let dependency = |(name, kind): &(&str, Option<&str>)| Dependency {
            name: name.to_string(),
            kind: kind.map(str::to_string),
            path: name.starts_with("drystone").then(String::new),
        };
        Package {
            name: name.to_string(),
            license: Some(LICENCE.to_string()),
            dependencies: uses.iter().map(dependency).collect(),
        }
    }

    #[test]
    fn layers_below_are_allowed() {
        let cache = package("drystone-cache", &[("drystone-blockdev", None), ("thiserror", None)]);
        assert_eq!(check_package(&cache), []);
        let ext4 = package("drystone-ext4", &[("drystone-mkfs", Some("dev"))]);
        assert_eq!(check_package(&ext4), []);
    }

    #[test]
    fn layers_above_are_not() {
        let cache = package("drystone-cache", &[("drystone-jbd2", None)]);
        assert_eq!(check_package(&cache).len(), 1);
        let ext4 = package("drystone-ext4", &[("drystone-mkfs", None)]);
        assert_eq!(check_package(&ext4).len(), 1);
    }

    #[test]
    fn the_checker_never_sees_the_engine() {
        for engine in ["drystone-ext4", "drystone-jbd2", "drystone-cache", "drystone"] {
            for kind in [None, Some("dev")] {
                for name in ["drystone-fsck", "drystone-mkfs"] {
                    assert_eq!(check_package(&package(name, &[(engine, kind)])).len(), 1);
                }
            }
        }
    }

    #[test]
    fn an_unknown_package_needs_a_layer() {
        assert_eq!(check_package(&package("drystone-new", &[])).len(), 1);
        assert_eq!(check_package(&package("xtask", &[])), []);
    }

    #[test]
    fn reserved_libraries_and_licences() {
        assert_eq!(check_package(&package("drystone-ext4", &[("anyhow", None)])).len(), 1);
        assert_eq!(check_package(&package("drystone-cli", &[("anyhow", None)])), []);
        let mut unlicensed = package("drystone-sync", &[]);
        unlicensed.license = None;
        assert_eq!(check_package(&unlicensed).len(), 1);
    }

    #[test]
    fn the_tables_name_packages_that_may_exist() {
        for (_, allowed) in LAYERS.iter().chain(&TEST_LAYERS) {
            for short in *allowed {
                let known =
                    |(name, _): &(&str, &[&str])| name.trim_start_matches("drystone-") == *short;
                assert!(LAYERS.iter().any(known), "{short}");
            }
        }
    }
}
