//! Type names are unique, and say what the type is.
//!
//! In no crate do two types have one name, and no public type has the name of a public type of another
//! crate. Some names are too vague for any type. Tests may name theirs as they like.

use super::Finding;
use super::paths;
use anyhow::Context;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Names that several crates may have: callers write them with the crate's name.
const PER_CRATE: [&str; 2] = ["Error", "MountOptions"];
/// Crates that each declare a format, with the field's words: each has its superblock.
const FORMATS: [&str; 3] = ["ext4-format", "jbd2-format", "nilfs2-format"];
/// A name that each module of a command has.
const PER_MODULE: &str = "Arguments";
/// The modules whose types replace each other, depending on the configuration.
const ALTERNATIVES: &str = "sync::backend::";
/// Names that don't say what a type is.
const VAGUE: [&str; 19] = [
    "Change", "Copy", "Facts", "Found", "Ground", "Helper", "Info", "Item", "Kind", "Lack",
    "Manager", "Options", "Patience", "Place", "Run", "Shard", "State", "Turns", "Way",
];

/// Types by name, with the places that declare them.
type Types = BTreeMap<String, BTreeSet<String>>;

/// Checks each crate in `crates/`.
pub fn check() -> anyhow::Result<Vec<Finding>> {
    let mut public = Types::new();
    let mut own: BTreeMap<String, Types> = BTreeMap::new();
    for entry in std::fs::read_dir("crates").context("crates")? {
        let folder = entry?.path();
        let source = folder.join("src");
        let Some(name) = folder.file_name().and_then(|name| name.to_str()) else { continue };
        if source.is_dir() {
            read(&source, name, &mut public, own.entry(name.to_string()).or_default())?;
        }
    }
    Ok(duplicates(&public, &own))
}

fn read(source: &Path, name: &str, public: &mut Types, own: &mut Types) -> anyhow::Result<()> {
    for (module, file) in paths::read_crate(source)? {
        let place = [&[name.to_string()], module.as_slice()].concat().join("::");
        for declared in file.types {
            if declared == PER_MODULE || place.starts_with(ALTERNATIVES) {
                continue;
            }
            own.entry(declared).or_default().insert(place.clone());
        }
        for declared in file.public_types {
            public.entry(declared).or_default().insert(name.to_string());
        }
    }
    Ok(())
}

fn duplicates(public: &Types, own: &BTreeMap<String, Types>) -> Vec<Finding> {
    let list = |places: &BTreeSet<String>| places.iter().cloned().collect::<Vec<_>>().join(", ");
    let mut findings = Vec::new();
    for (name, types) in own {
        for (declared, places) in
            types.iter().filter(|(declared, _)| VAGUE.contains(&declared.as_str()))
        {
            let problem = format!("type `{declared}` in {}: say what it is", list(places));
            findings.push(Finding::error(format!("crates/{name}"), problem));
        }
        for (declared, places) in types.iter().filter(|(_, places)| places.len() > 1) {
            let problem = format!("several types `{declared}`: {}", list(places));
            findings.push(Finding::error(format!("crates/{name}"), problem));
        }
        let exported = public.iter().filter(|(declared, crates)| {
            crates.contains(name)
                && crates.len() > 1
                && !PER_CRATE.contains(&declared.as_str())
                && !crates.iter().all(|name| FORMATS.contains(&name.as_str()))
        });
        for (declared, crates) in exported {
            let problem = format!("a public type `{declared}` in several crates: {}", list(crates));
            findings.push(Finding::error(format!("crates/{name}"), problem));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types(list: &[(&str, &[&str])]) -> Types {
        let set = |places: &[&str]| places.iter().map(|place| (*place).to_string()).collect();
        list.iter().map(|(name, places)| ((*name).to_string(), set(places))).collect()
    }

    #[test]
    fn names_are_unique_in_a_crate_and_among_public_types() {
        let own = types(&[("Walk", &["ext4::a", "ext4::b"]), ("Place", &["ext4::a"])]);
        let public = types(&[
            ("Error", &["ext4", "fuse"]),
            ("Settings", &["ext4", "fuse"]),
            ("Superblock", &["ext4-format", "jbd2-format"]),
        ]);
        let own = BTreeMap::from([
            ("ext4".to_string(), own),
            ("ext4-format".to_string(), types(&[("Superblock", &["ext4-format"])])),
        ]);
        let problems: Vec<_> = duplicates(&public, &own).into_iter().map(|f| f.problem).collect();
        assert_eq!(
            problems,
            [
                "type `Place` in ext4::a: say what it is",
                "several types `Walk`: ext4::a, ext4::b",
                "a public type `Settings` in several crates: ext4, fuse"
            ]
        );
    }
}
