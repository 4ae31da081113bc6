//! Checks the library's Cargo features: without any the library stays small, and each works alone.

use crate::process;
use anyhow::Context;

/// The library's features.
const FEATURES: [&str; 11] = [
    "mkfs",
    "tar",
    "build",
    "compression",
    "oci",
    "fsck",
    "reshape",
    "containers",
    "fuse",
    "serde",
    "tls",
];

/// Compiles the library without features and with each alone.
pub fn run() -> anyhow::Result<()> {
    let library = ["check", "--package", "drystone", "--no-default-features", "--quiet"];
    process::run(&mut process::cargo(library))?;
    FEATURES.iter().try_for_each(|feature| {
        process::run(process::cargo(library).args(["--features", feature]))
            .with_context(|| format!("the library doesn't compile with only the feature {feature}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::ensure;
    use serde::Deserialize;
    use std::collections::BTreeSet;
    use std::process::Command;

    /// Crates from the registry that the library may need without features.
    const CRATES_MAX: usize = 40;

    /// Crates that compile C, or that have a pool of threads.
    const UNWANTED: [&str; 5] = ["cc", "cmake", "pkg-config", "bindgen", "rayon"];

    /// The packages that the library needs without features, as `name version`.
    fn packages_needed() -> anyhow::Result<BTreeSet<String>> {
        let mut tree = process::cargo(["tree", "--package", "drystone", "--no-default-features"]);
        tree.args([
            "--edges",
            "normal,build",
            "--prefix",
            "none",
            "--no-dedupe",
            "--format",
            "{p}",
        ]);
        let names = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
        Ok(output(&mut tree)?.lines().filter(|line| !line.is_empty()).map(names).collect())
    }

    /// The packages of the workspace and its dependencies that link a library which isn't Rust's.
    fn packages_linking() -> anyhow::Result<BTreeSet<String>> {
        #[derive(Deserialize)]
        struct Metadata {
            packages: Vec<Package>,
        }
        #[derive(Deserialize)]
        struct Package {
            name: String,
            version: String,
            links: Option<String>,
        }
        let text = output(&mut process::cargo(["metadata", "--format-version", "1"]))?;
        let metadata: Metadata = serde_json::from_str(&text)?;
        let linking = metadata.packages.into_iter().filter(|package| package.links.is_some());
        Ok(linking.map(|package| format!("{} v{}", package.name, package.version)).collect())
    }

    fn output(command: &mut Command) -> anyhow::Result<String> {
        let output = command.output().with_context(|| process::describe(command))?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(String::from_utf8(output.stdout)?)
    }

    fn check_crates(needed: &BTreeSet<String>, linking: &BTreeSet<String>) -> anyhow::Result<()> {
        let foreign: Vec<&str> = needed
            .iter()
            .map(String::as_str)
            .filter(|name| !name.starts_with("drystone"))
            .collect();
        ensure!(
            foreign.len() <= CRATES_MAX,
            "without features the library needs {} crates, more than {CRATES_MAX}: {}",
            foreign.len(),
            foreign.join(", ")
        );
        for package in foreign {
            let name = package.split(' ').next().unwrap_or_default();
            ensure!(
                !linking.contains(package) && !UNWANTED.contains(&name),
                "without features the library needs {package}, which compiles or links other code"
            );
        }
        Ok(())
    }

    #[test]
    fn the_library_is_small_without_features() {
        check_crates(&packages_needed().unwrap(), &packages_linking().unwrap()).unwrap();
    }

    #[test]
    fn what_grows_or_links_is_told() {
        let set = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        let none = BTreeSet::new();
        let few: BTreeSet<String> = set(&["drystone v1.0.0", "libc v1.0.0"]);
        check_crates(&few, &none).unwrap();
        check_crates(&few, &set(&["libc v1.0.0"])).unwrap_err();
        check_crates(&set(&["cc v1.0.0"]), &none).unwrap_err();
        let many = (0..=CRATES_MAX).map(|number| format!("crate{number} v1.0.0")).collect();
        check_crates(&many, &none).unwrap_err();
    }
}
