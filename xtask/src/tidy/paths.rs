//! The paths in Rust source: which modules a file names, which names it exports, which types it
//! declares. Read from text, without a parser of the language: enough for what `cargo fmt` leaves.

use super::source::code_only;
use anyhow::Context;
use std::collections::BTreeMap;
use std::path::Path;

/// What one file says.
#[derive(Debug, Default)]
pub struct SourceFile {
    /// Paths to modules or items, outside of tests.
    pub paths: Vec<Vec<String>>,
    /// Names that it re-exports, with their paths.
    pub exports: BTreeMap<String, Vec<String>>,
    /// Types that it declares, and whether they are public in some way.
    pub types: Vec<String>,
    /// Types that are declared `pub`.
    pub public_types: Vec<String>,
    /// Types that it has inherent `impl` blocks for.
    pub inherent_impls: Vec<String>,
    /// Child modules that are only built for tests.
    test_children: Vec<String>,
}

/// Reads the files of a crate, by module path; test modules are left out.
pub fn read_crate(source: &Path) -> anyhow::Result<BTreeMap<Vec<String>, SourceFile>> {
    let mut files = BTreeMap::new();
    read_folder(source, &[], &mut files)?;
    let test_modules: Vec<Vec<String>> = files
        .iter()
        .flat_map(|(module, file): (&Vec<String>, &SourceFile)| {
            let children = file.test_children.iter().map(std::slice::from_ref);
            children.map(|child| [module.as_slice(), child].concat())
        })
        .collect();
    files.retain(|module, _| !test_modules.iter().any(|test| module.starts_with(test)));
    Ok(files)
}

fn read_folder(
    folder: &Path,
    module: &[String],
    files: &mut BTreeMap<Vec<String>, SourceFile>,
) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let Some(stem) = path.file_stem().and_then(|stem| stem.to_str()) else { continue };
        let child = [module, &[stem.to_string()]].concat();
        if path.is_dir() {
            // Programs are crates of their own.
            if !(module.is_empty() && stem == "bin") {
                read_folder(&path, &child, files)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text =
                std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let is_parent = matches!(stem, "mod" | "lib" | "main");
            let name = if is_parent { module.to_vec() } else { child };
            files.insert(name, SourceFile::parse(&text));
        }
    }
    Ok(())
}

impl SourceFile {
    /// Reads a file's text.
    pub fn parse(text: &str) -> SourceFile {
        let mut file = SourceFile::default();
        let code = without_tests(&code_only(text), &mut file.test_children);
        let tokens = tokens(&code);
        let mut at = 0;
        while at < tokens.len() {
            let is_path = |at: usize| tokens.get(at).is_some_and(|token| *token == "::");
            match tokens[at] {
                // `use<'a>` is a bound.
                "use" if tokens.get(at + 1).is_some_and(|next| *next != "<") => {
                    let is_exported = at > 0 && matches!(tokens[at - 1], "pub" | ")");
                    let mut found = Vec::new();
                    at = use_tree(&tokens, at + 1, &mut Vec::new(), &mut found);
                    for (name, path) in found {
                        if is_exported {
                            file.exports.insert(name, path.clone());
                        }
                        file.paths.push(path);
                    }
                }
                "struct" | "enum" | "trait" | "union"
                    if tokens.get(at + 1).is_some_and(|name| is_name(name)) =>
                {
                    file.types.push(tokens[at + 1].to_string());
                    if at > 0 && tokens[at - 1] == "pub" {
                        file.public_types.push(tokens[at + 1].to_string());
                    }
                }
                "impl" if at == 0 || matches!(tokens[at - 1], "}" | ";" | "]" | "unsafe") => {
                    file.inherent_impls.extend(inherent_impl(&tokens, at + 1));
                }
                name if is_name(name) && is_path(at + 1) && (at == 0 || !is_path(at - 1)) => {
                    let mut path = vec![name.to_string()];
                    while is_path(at + 1) && tokens.get(at + 2).is_some_and(|next| is_name(next)) {
                        path.push(tokens[at + 2].to_string());
                        at += 2;
                    }
                    file.paths.push(path);
                }
                _ => {}
            }
            at += 1;
        }
        file
    }
}

/// The type of an inherent `impl` whose keyword ends before `at`; none if it implements a trait.
fn inherent_impl(tokens: &[&str], mut at: usize) -> Option<String> {
    at = behind_generics(tokens, at);
    let mut name = None;
    while let Some(&token) = tokens.get(at) {
        match token {
            "for" => return None,
            "{" | "where" => return name,
            "<" => {
                at = behind_generics(tokens, at);
                continue;
            }
            _ if is_name(token) => name = Some(token.to_string()),
            _ => {}
        }
        at += 1;
    }
    None
}

fn behind_generics(tokens: &[&str], mut at: usize) -> usize {
    if tokens.get(at) != Some(&"<") {
        return at;
    }
    let mut depth = 0;
    while let Some(&token) = tokens.get(at) {
        match token {
            "<" => depth += 1,
            ">" => depth -= 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            break;
        }
    }
    at
}

/// Reads a use tree that starts at `at`; returns where it ends.
fn use_tree(
    tokens: &[&str],
    mut at: usize,
    prefix: &mut Vec<String>,
    found: &mut Vec<(String, Vec<String>)>,
) -> usize {
    let depth = prefix.len();
    while let Some(&token) = tokens.get(at) {
        match token {
            "{" => {
                at += 1;
                while tokens.get(at).is_some_and(|token| !matches!(*token, "}" | ";")) {
                    at = use_tree(tokens, at, prefix, found);
                    if tokens.get(at) == Some(&",") {
                        at += 1;
                    }
                }
                prefix.truncate(depth);
                return at + 1;
            }
            "::" => {}
            "self" if depth > 0 => {}
            "*" => {}
            "as" => {
                if let (Some(name), true) = (tokens.get(at + 1), prefix.len() > depth) {
                    found.push(((*name).to_string(), prefix.clone()));
                    prefix.truncate(depth);
                    return at + 2;
                }
            }
            ";" | "," | "}" => break,
            name => prefix.push(name.to_string()),
        }
        at += 1;
    }
    if let Some(name) = prefix.last() {
        found.push((name.clone(), prefix.clone()));
    }
    prefix.truncate(depth);
    at
}

/// Code without the items that are only built for tests. Adds the names of test modules in files of
/// their own to `test_children`.
fn without_tests(code: &str, test_children: &mut Vec<String>) -> String {
    let mut kept = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = rest.find("#[cfg(") {
        let (before, attribute) = rest.split_at(at);
        kept.push_str(before);
        let end = attribute.find(']').map_or(attribute.len(), |end| end + 1);
        let condition = &attribute[..end];
        let is_test = !condition.contains("not(test")
            && condition.split(|c: char| !c.is_alphanumeric()).any(|word| word == "test");
        rest = &attribute[end..];
        if is_test {
            let item_end = end_of_item(rest);
            let words: Vec<&str> = rest[..item_end].split_whitespace().collect();
            if let Some(at) = words.iter().position(|word| *word == "mod")
                && let Some(name) = words.get(at + 1)
            {
                test_children.push(name.trim_end_matches(';').to_string());
            }
            rest = &rest[item_end..];
        }
    }
    kept.push_str(rest);
    kept
}

/// Where the item ends that `code` begins with: at its `;`, or at the brace that closes its first.
fn end_of_item(code: &str) -> usize {
    let mut depth = 0;
    for (at, c) in code.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                if depth <= 0 {
                    return at + 1;
                }
            }
            ';' | ',' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Names, `::`, and single other characters.
fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let end = if is_part(first) {
            rest.find(|c| !is_part(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") || rest.starts_with("->") || rest.starts_with("=>") {
            2
        } else {
            first.len_utf8()
        };
        tokens.push(&rest[..end]);
        rest = rest[end..].trim_start();
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        SourceFile::parse(text).paths.iter().map(|path| path.join("::")).collect()
    }

    #[test]
    fn use_trees_are_spread_out() {
        assert_eq!(
            paths("use crate::{a::{self, B as C}, d::*};\npub(super) use super::e;"),
            ["crate::a", "crate::a::B", "crate::d", "super::e"]
        );
    }

    #[test]
    fn exports_are_known_by_their_names() {
        let file = SourceFile::parse("pub use a::{B, C as D}; use e::F;");
        let exports: Vec<_> =
            file.exports.iter().map(|(k, v)| (k.as_str(), v.join("::"))).collect();
        assert_eq!(exports, [("B", "a::B".to_string()), ("D", "a::C".to_string())]);
    }

    #[test]
    fn paths_in_code_count_and_tests_do_not() {
        let text = "fn f() { crate::a::g::<X>(super::b) }\n#[cfg(all(test, not(loom)))]\nmod tests;\n\
                    #[cfg(test)]\nmod inner { use crate::z; }\n// crate::y::z\nfn h() { self::c::d }";
        assert_eq!(paths(text), ["crate::a::g", "super::b", "self::c::d"]);
        assert_eq!(SourceFile::parse(text).test_children, ["tests", "inner"]);
    }

    #[test]
    fn types_and_their_methods() {
        let text =
            "pub struct A<T>(T);\nenum B {}\nimpl<T: Into<u8>> A<T> {}\nimpl From<A> for B {}";
        let file = SourceFile::parse(text);
        assert_eq!(file.types, ["A", "B"]);
        assert_eq!(file.public_types, ["A"]);
        assert_eq!(file.inherent_impls, ["A"]);
    }
}
