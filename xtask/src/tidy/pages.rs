//! What the pages of the documentation refer to exists: links, headings, files, tests.
//!
//! `docs/` is a book for mdBook, which builds it (`./dev book`) but checks no links.

use super::Finding;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use std::collections::{BTreeMap, BTreeSet};

/// The folder of the book's pages.
const BOOK: &str = "docs/src/";
/// Its table of contents.
const SUMMARY: &str = "docs/src/SUMMARY.md";
/// The page about locks.
pub const LOCKS: &str = "docs/src/design/locking.md";
/// A code span that begins with one of these names a file or folder of the repository.
const PATHS: [&str; 5] = ["crates/", "docs/", "xtask/", "fuzz/", ".ci/"];

/// What a page refers to, and what others may refer to in it.
#[derive(Default)]
struct Page {
    /// Targets of links, with the line.
    links: Vec<(String, usize)>,
    /// Code spans, with the line.
    codes: Vec<(String, usize)>,
    /// The anchors of headings, as mdBook and GitHub make them.
    anchors: BTreeSet<String>,
}

/// Checks `pages`, from their path in the repository to their text. `read` gives the text of a file,
/// or an empty one for a folder.
pub fn check(
    pages: &BTreeMap<String, String>,
    read: &dyn Fn(&str) -> Option<String>,
) -> Vec<Finding> {
    let parsed: BTreeMap<&str, Page> =
        pages.iter().map(|(path, text)| (path.as_str(), parse(text))).collect();
    let mut findings = Vec::new();
    for (&path, page) in &parsed {
        for (link, line) in &page.links {
            if let Some(problem) = problem_of_link(path, link, &parsed, read) {
                findings.push(Finding::error(format!("{path}:{line}"), problem));
            }
        }
        for (code, line) in &page.codes {
            if let Some(problem) = problem_of_code(code, read) {
                findings.push(Finding::error(format!("{path}:{line}"), problem));
            }
        }
    }
    if let Some(summary) = parsed.get(SUMMARY) {
        let listed: BTreeSet<String> =
            summary.links.iter().filter_map(|(link, _)| resolve(SUMMARY, link)).collect();
        for &path in parsed.keys().filter(|path| path.starts_with(BOOK) && **path != SUMMARY) {
            if !listed.contains(path) {
                findings.push(Finding::error(path, format!("not listed in {SUMMARY}")));
            }
        }
    }
    findings
}

/// Crates whose lock classes are for tests alone.
const LOCKS_OF_TESTS: [&str; 2] = ["crates/sync/", "crates/testkit/"];

/// Checks that each lock class which the source at `path` declares is on the page about locks. A class that
/// only tests have is declared in a module or file of tests.
pub fn check_lock_classes(path: &str, text: &str, page: &str) -> Vec<Finding> {
    let is_test = path.contains("/tests/") || path.ends_with("/tests.rs");
    let is_source = path.starts_with("crates/") && path.contains("/src/") && !is_test;
    if !is_source || LOCKS_OF_TESTS.iter().any(|crate_| path.starts_with(crate_)) {
        return Vec::new();
    }
    let declared = text.match_indices("LockClass::new(\"").filter(|(at, _)| {
        // The item that the class is in: its first line alone isn't indented.
        let mut before = text[..*at].lines().rev();
        before.find(|line| !line.starts_with(' ')).is_some_and(|line| line.contains("static "))
    });
    let names = declared.filter_map(|(at, start)| text[at + start.len()..].split('"').next());
    let missing = names.filter(|name| !page.contains(&format!("`{name}`")));
    missing
        .map(|name| Finding::error(path, format!("lock class '{name}': not in {LOCKS}")))
        .collect()
}

fn parse(text: &str) -> Page {
    let mut page = Page::default();
    let mut heading: Option<String> = None;
    let options = Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES;
    for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
        let line = || text[..range.start].matches('\n').count() + 1;
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                page.links.push((dest_url.into_string(), line()));
            }
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                let anchor = anchor(&heading.take().unwrap_or_default());
                let again = (1..).map(|number| format!("{anchor}-{number}"));
                let mut names = std::iter::once(anchor.clone()).chain(again);
                page.anchors.extend(names.find(|name| !page.anchors.contains(name)));
            }
            Event::Text(words) => heading.iter_mut().for_each(|heading| heading.push_str(&words)),
            Event::Code(code) => {
                heading.iter_mut().for_each(|heading| heading.push_str(&code));
                page.codes.push((code.into_string(), line()));
            }
            _ => {}
        }
    }
    page
}

/// The anchor of a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter_map(|character| match character {
        ' ' => Some('-'),
        '-' | '_' => Some(character),
        _ if character.is_alphanumeric() => Some(character.to_ascii_lowercase()),
        _ => None,
    });
    kept.collect()
}

/// The path in the repository that a relative link leads to, if it stays inside.
fn resolve(from: &str, link: &str) -> Option<String> {
    let target = link.split('#').next().unwrap_or_default();
    let mut folders: Vec<&str> = from.split('/').collect();
    if !target.is_empty() {
        folders.pop();
    }
    for part in target.split('/').filter(|part| !matches!(*part, "" | ".")) {
        match part {
            ".." => drop(folders.pop()?),
            name => folders.push(name),
        }
    }
    Some(folders.join("/"))
}

fn problem_of_link(
    from: &str,
    link: &str,
    pages: &BTreeMap<&str, Page>,
    read: &dyn Fn(&str) -> Option<String>,
) -> Option<String> {
    if ["http://", "https://", "mailto:"].iter().any(|scheme| link.starts_with(scheme)) {
        return None;
    }
    let Some(target) = resolve(from, link).filter(|_| !link.starts_with('/')) else {
        return Some(format!("link to {link}: outside of the repository"));
    };
    if from.starts_with(BOOK) && !target.starts_with(BOOK) {
        return Some(format!("link to {link}: the book holds only what is in {BOOK}"));
    }
    match (pages.get(target.as_str()), link.split_once('#')) {
        (Some(page), Some((_, anchor))) if !page.anchors.contains(anchor) => {
            Some(format!("link to {link}: no such heading"))
        }
        (None, _) if read(&target).is_none() => Some(format!("link to {link}: no such file")),
        _ => None,
    }
}

/// `PATH` must exist, and `PATH::NAME` be a function in that file.
fn problem_of_code(code: &str, read: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let is_path = PATHS.iter().any(|start| code.starts_with(start));
    if !is_path || code.contains(['*', ' ', '<', '{']) {
        return None;
    }
    let (path, function) = match code.split_once("::") {
        Some((path, function)) => (path, Some(function)),
        None => (code, None),
    };
    let Some(text) = read(path.trim_end_matches('/')) else {
        return Some(format!("`{code}`: no such file"));
    };
    match function {
        Some(function) if !text.contains(&format!("fn {function}(")) => {
            Some(format!("`{code}`: no such function in that file"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(pages: &[(&str, &str)]) -> Vec<String> {
        let pages = pages.iter().map(|(path, text)| (path.to_string(), text.to_string())).collect();
        let read = |path: &str| match path {
            "crates/x/src" => Some(String::new()),
            "crates/x/a.rs" | "LICENSE" => Some("fn it_works() {}\n".to_owned()),
            _ => None,
        };
        check(&pages, &read).into_iter().map(|f| format!("{} {}", f.place, f.problem)).collect()
    }

    #[test]
    fn what_exists_may_be_referred_to() {
        let page = "# A `b`: c, d\n[x](../b.md#one-two-1) [y](#a-b-c-d) <https://c.d>\n\
                    `crates/x/src/` `crates/x/a.rs::it_works` `crates/*/src`\n";
        let pages = [
            ("docs/src/SUMMARY.md", "[a](g/a.md)\n[b](b.md)\n"),
            ("docs/src/b.md", "# One two\n## One two\n[a](g/a.md)\n"),
            ("docs/src/g/a.md", page),
            ("README.md", "[l](LICENSE) [a](docs/src/g/a.md#a-b-c-d)\n"),
        ];
        assert_eq!(problems(&pages), [""; 0]);
    }

    #[test]
    fn lock_classes_are_on_their_page() {
        let text = "static A: LockClass = LockClass::new(\"a\", 1);\n\
                    pub static B: LockClass =\n    LockClass::new(\"b c\", 2);\n\
                    mod tests {\n    static D: LockClass = LockClass::new(\"d\", 1);\n}\n";
        let found = check_lock_classes("crates/x/src/any.rs", text, "| 1 | `a` |\n");
        assert_eq!(found.len(), 1);
        assert!(found[0].problem.contains("'b c'"), "{}", found[0].problem);
        assert!(check_lock_classes("crates/sync/src/any.rs", text, "").is_empty());
        assert!(check_lock_classes("crates/x/tests/any.rs", text, "").is_empty());
    }

    #[test]
    fn what_does_not_exist_is_found() {
        let pages = [
            ("docs/src/SUMMARY.md", "[a](a.md)\n"),
            ("docs/src/a.md", "# A\n[x](c.md) [y](#b)\n\n[z](../../LICENSE)\n"),
            ("docs/src/b.md", "`crates/y.rs` `crates/x/a.rs::breaks`\n"),
            ("README.md", "[x](../y) [z](docs/src/a.md#z)\n"),
        ];
        assert_eq!(
            problems(&pages),
            [
                "README.md:1 link to ../y: outside of the repository",
                "README.md:1 link to docs/src/a.md#z: no such heading",
                "docs/src/a.md:2 link to c.md: no such file",
                "docs/src/a.md:2 link to #b: no such heading",
                "docs/src/a.md:4 link to ../../LICENSE: the book holds only what is in docs/src/",
                "docs/src/b.md:1 `crates/y.rs`: no such file",
                "docs/src/b.md:1 `crates/x/a.rs::breaks`: no such function in that file",
                "docs/src/b.md not listed in docs/src/SUMMARY.md",
            ]
        );
    }
}
