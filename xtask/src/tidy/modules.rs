//! The modules of a crate use each other in one direction only.
//!
//! The graph has the modules below the crate root as its nodes and their paths as its edges: `use`
//! declarations and paths in expressions, without tests. A re-export leads to the module that it
//! comes from. A circle among the top-level modules of a crate is an error, as is one among the
//! children of a top-level module. A parent and its children are read together and may name each
//! other.
//!
//! Methods need no path, so an inherent `impl` must stand in the top-level module of its type:
//! otherwise a lower layer could call a higher one without naming it.

use super::Finding;
use super::paths::{self, SourceFile};
use anyhow::Context;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A module's path below the crate root.
type ModulePath = Vec<String>;
/// Which nodes each node uses.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// What one crate's modules use.
struct CrateModules {
    files: BTreeMap<ModulePath, SourceFile>,
}

/// Checks each crate in `crates/`.
pub fn check() -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let mut folders: Vec<_> = std::fs::read_dir("crates")
        .context("crates")?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    folders.sort();
    for folder in folders {
        let source = folder.join("src");
        if source.is_dir() {
            findings.extend(check_crate(&source)?);
        }
    }
    Ok(findings)
}

fn check_crate(source: &Path) -> anyhow::Result<Vec<Finding>> {
    let modules = CrateModules { files: paths::read_crate(source)? };
    let place = source.display().to_string();
    let mut findings = Vec::new();
    for (parent, graph) in modules.graphs() {
        let folder = [std::slice::from_ref(&place), parent.as_slice()].concat().join("/");
        for circle in circles_of(&graph) {
            let problem = modules.describe(&parent, &graph, &circle);
            findings.push(Finding::error(folder.clone(), problem));
        }
    }
    let problems = modules.foreign_impls().into_iter();
    findings.extend(problems.map(|problem| Finding::error(place.clone(), problem)));
    Ok(findings)
}

impl CrateModules {
    /// The graph of the top-level modules, and that of the children of each.
    fn graphs(&self) -> Vec<(ModulePath, Graph)> {
        let mut graphs: BTreeMap<ModulePath, Graph> = BTreeMap::new();
        for (module, file) in &self.files {
            for path in &file.paths {
                let Some(target) = self.resolve(module, path) else { continue };
                let shared = module.iter().zip(&target).take_while(|(a, b)| a == b).count();
                // Deeper than the children of a top-level module, or to and from a parent.
                if shared > 1 || module.len() <= shared || target.len() <= shared {
                    continue;
                }
                let graph = graphs.entry(module[..shared].to_vec()).or_default();
                graph.entry(target[shared].clone()).or_default();
                graph.entry(module[shared].clone()).or_default().insert(target[shared].clone());
            }
        }
        graphs.into_iter().collect()
    }

    /// The module that an absolute path leads to; none if that isn't one of this crate.
    fn resolve(&self, from: &[String], path: &[String]) -> Option<ModulePath> {
        let mut at = from.to_vec();
        let mut rest = path;
        match rest.first()?.as_str() {
            "crate" => {
                at.clear();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|part| part == "super") {
                    at.pop()?;
                    rest = &rest[1..];
                }
            }
            first => {
                let child = [from, &[first.to_string()]].concat();
                if !self.files.contains_key(&child) {
                    return None;
                }
            }
        }
        self.descend(at, rest, 0)
    }

    fn descend(&self, mut at: ModulePath, mut rest: &[String], depth: u32) -> Option<ModulePath> {
        while let Some(name) = rest.first() {
            let child = [at.as_slice(), std::slice::from_ref(name)].concat();
            if self.files.contains_key(&child) {
                at = child;
                rest = &rest[1..];
                continue;
            }
            let exported = self.files.get(&at)?.exports.get(name);
            if let Some(target) = exported.filter(|_| depth < 8) {
                let to_parent = target.first().is_some_and(|part| part == "super");
                let module = if to_parent { None } else { self.resolve(&at, target) };
                return module.or(Some(at));
            }
            break;
        }
        Some(at)
    }

    /// How large a circle is.
    fn size(&self, parent: &[String], circle: &BTreeSet<String>) -> String {
        let is_in = |module: &&ModulePath| {
            module.starts_with(parent)
                && module.get(parent.len()).is_some_and(|name| circle.contains(name))
        };
        let files = self.files.keys().filter(is_in).count();
        format!("a circle of {} modules in {files} files", circle.len())
    }

    /// The same, with the uses in it.
    fn describe(&self, parent: &[String], graph: &Graph, circle: &BTreeSet<String>) -> String {
        let mut text = self.size(parent, circle);
        for from in circle {
            let to: Vec<_> = graph[from].intersection(circle).map(String::as_str).collect();
            text.push_str(&format!("\n    {from} -> {}", to.join(", ")));
        }
        text
    }

    /// Inherent `impl` blocks outside of the top-level module of their type.
    fn foreign_impls(&self) -> Vec<String> {
        let mut homes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (module, file) in &self.files {
            for name in &file.types {
                let home = module.first().map_or("", String::as_str);
                homes.entry(name).or_default().insert(home);
            }
        }
        let mut problems = Vec::new();
        for (module, file) in &self.files {
            let own = module.first().map_or("", String::as_str);
            for name in &file.inherent_impls {
                if let Some(home) = homes.get(name.as_str())
                    && !home.contains(own)
                {
                    let home = home.iter().copied().collect::<Vec<_>>().join(" or ");
                    let at = module.join("::");
                    problems.push(format!("`impl {name}` in `{at}`; the type is in `{home}`"));
                }
            }
        }
        problems
    }
}

/// The circles of a graph: sets of nodes that reach each other.
fn circles_of(graph: &Graph) -> Vec<BTreeSet<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        graph.keys().map(|node| (node, reachable(graph, node))).collect();
    let mut circles = BTreeSet::new();
    for node in graph.keys() {
        let others = graph.keys().filter(|other| {
            *other != node && reached[node].contains(other) && reached[other].contains(node)
        });
        let mut circle: BTreeSet<String> = others.cloned().collect();
        if !circle.is_empty() {
            circle.insert(node.clone());
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

fn reachable<'a>(graph: &'a Graph, from: &'a String) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(node) = open.pop() {
        for next in &graph[node] {
            if reached.insert(next) {
                open.push(next);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(files: &[(&str, &str)]) -> CrateModules {
        let read = |&(module, text): &(&str, &str)| {
            let module = module.split("::").filter(|part| !part.is_empty()).map(String::from);
            (module.collect(), SourceFile::parse(text))
        };
        CrateModules { files: files.iter().map(read).collect() }
    }

    fn circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let graphs = modules(files).graphs();
        let circles = graphs.iter().flat_map(|(_, graph)| circles_of(graph));
        circles.map(|circle| circle.into_iter().collect()).collect()
    }

    #[test]
    fn one_direction_passes() {
        let files =
            [("a", "use crate::b::{self, C};"), ("b", "fn f() { crate::c::g() }"), ("c", "")];
        assert_eq!(circles(&files), [[""; 0]; 0]);
    }

    #[test]
    fn circles_are_found_in_declarations_and_expressions() {
        let files = [("a", "use crate::b;"), ("b", "use super::c::X;"), ("c", "f(crate::a::Y)")];
        assert_eq!(circles(&files), [["a", "b", "c"]]);
    }

    #[test]
    fn a_test_may_use_what_it_likes() {
        let files = [("a", "use crate::b;"), ("b", "#[cfg(test)]\nmod tests { use crate::a::X; }")];
        assert_eq!(circles(&files), [[""; 0]; 0]);
    }

    #[test]
    fn parents_and_children_are_read_together() {
        let files = [
            ("a", "mod x; mod y; pub use x::X; pub use y::Y;"),
            ("a::x", "use super::Shared;"),
            ("a::y", "use super::x::X;"),
        ];
        assert_eq!(circles(&files), [[""; 0]; 0]);
        let files = [files[0], ("a::x", "use super::Y;"), files[2]];
        assert_eq!(circles(&files), [["x", "y"]], "through a re-export");
    }

    #[test]
    fn methods_stand_with_their_type() {
        let files = [
            ("a", "pub struct T;"),
            ("a::x", "impl T { fn f() {} } impl Clone for T {}"),
            ("b", "impl<'a> T<'a> { fn g() {} }"),
        ];
        assert_eq!(modules(&files).foreign_impls(), ["`impl T` in `b`; the type is in `a`"]);
    }
}
