//! Rules about one file.

use super::Finding;
use super::source::code_only;

/// Lines above which a Rust file should be cut in two.
const LINES_WARNED: usize = 400;
/// Lines above which it must be.
const LINES_MAX: usize = 800;

/// Crates of which a module must use unsafe code, and says why it is sound; the others forbid it.
const UNSAFE_CRATES: [&str; 9] =
    ["blockdev", "capi", "cli", "fuse", "rbd", "simulate", "sync", "testkit", "volumes"];

/// Where sharing is built: the only place for these names.
const SHARING_ROOT: &str = "crates/sync/";
/// Names that code outside [`SHARING_ROOT`] doesn't use.
const SHARING: [&str; 5] =
    ["std::sync", "std::thread", "std::time::Instant", "Instant::now", "parking_lot"];

/// Where skips are noted: the only place that prints them.
const SKIPS: &str = "crates/testkit/src/skip.rs";

/// Macros that mark what isn't done.
const UNFINISHED_MACROS: [&str; 3] = ["todo!", "unimplemented!", "dbg!"];
/// Words that mark it in comments; taken apart so that this file may name them.
const UNFINISHED_WORDS: [&str; 3] = [concat!("FIX", "ME"), concat!("XX", "X"), concat!("TO", "DO")];
/// Folders of one machine.
const MACHINE_PATHS: [&str; 3] =
    [concat!("/ro", "ot/"), concat!("/wo", "rk/main"), concat!("/wo", "rk/shared")];

/// Checks the file at `path`, relative to the workspace.
pub fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    if path.starts_with("LICENSE") || path == "Cargo.lock" || path.ends_with(".csv") {
        return findings;
    }
    check_text(path, text, &mut findings);
    if path.ends_with(".rs") {
        check_rust(path, text, &mut findings);
    }
    findings
}

fn check_text(path: &str, text: &str, findings: &mut Vec<Finding>) {
    if !text.is_empty() && !text.ends_with('\n') {
        findings.push(Finding::error(path, "no newline at the end"));
    }
    for (index, line) in text.lines().enumerate() {
        let place = || format!("{path}:{}", index + 1);
        if line.ends_with([' ', '\t', '\r']) {
            findings.push(Finding::error(place(), "white space at the end of the line"));
        }
        for word in UNFINISHED_WORDS {
            if has_word(line, word) {
                findings.push(Finding::error(place(), format!("{word}: finish it or file it")));
            }
        }
        for folder in MACHINE_PATHS {
            if line.contains(folder) {
                findings.push(Finding::error(place(), format!("{folder}: a path of one machine")));
            }
        }
    }
}

fn check_rust(path: &str, text: &str, findings: &mut Vec<Finding>) {
    let lines = text.lines().count();
    if lines > LINES_MAX {
        findings.push(Finding::error(path, format!("{lines} lines; {LINES_MAX} is the end")));
    } else if lines > LINES_WARNED {
        findings.push(Finding {
            place: path.to_string(),
            problem: format!("{lines} lines; aim under {LINES_WARNED}"),
            is_warning: true,
        });
    }
    if !text.starts_with("//!") {
        findings.push(Finding::error(path, "no `//!` header that says what the module is"));
    }
    let may_be_unsafe =
        UNSAFE_CRATES.iter().any(|name| path.starts_with(&format!("crates/{name}/")));
    let attribute = format!("#![{}(unsafe_code)]", if may_be_unsafe { "deny" } else { "forbid" });
    if is_crate_root(path) && !text.contains(&attribute) {
        findings.push(Finding::error(path, format!("no `{attribute}`")));
    }
    for (index, line) in text.lines().enumerate() {
        if path.starts_with("crates/") && path != SKIPS && says_that_it_skips(line) {
            let place = format!("{path}:{}", index + 1);
            findings.push(Finding::error(place, "use drystone_testkit::skip: it is counted"));
        }
    }
    for (index, line) in code_only(text).lines().enumerate() {
        let place = || format!("{path}:{}", index + 1);
        if !path.starts_with(SHARING_ROOT)
            && let Some(name) = SHARING.iter().find(|name| has_word(line, name))
        {
            findings.push(Finding::error(place(), format!("{name}: use drystone_sync")));
        }
        if let Some(name) = UNFINISHED_MACROS.iter().find(|name| has_word(line, name)) {
            findings.push(Finding::error(place(), format!("{name} left in")));
        }
    }
}

/// True if the line prints that a test is skipped, which nobody counts.
fn says_that_it_skips(line: &str) -> bool {
    line.split_once("println!(\"").is_some_and(|(_, said)| said.to_lowercase().contains("skipped"))
}

fn is_crate_root(path: &str) -> bool {
    path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs") || path.contains("/src/bin/")
}

/// True if `line` has `word` with no identifier character right before or after it.
fn has_word(line: &str, word: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(is_name) && !line[at + word.len()..].starts_with(is_name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> Vec<String> {
        check(path, text).into_iter().map(|f| format!("{} {}", f.place, f.problem)).collect()
    }

    #[test]
    fn a_good_file_passes() {
        let text = "//! A thing.\n#![forbid(unsafe_code)]\n\n// Not std::sync.\nfn f() {}\n";
        assert_eq!(problems("crates/x/src/lib.rs", text), [""; 0]);
    }

    #[test]
    fn headers_and_forbidding_are_asked_for() {
        assert_eq!(problems("crates/x/src/lib.rs", "fn f() {}\n").len(), 2);
        assert_eq!(problems("crates/x/src/other.rs", "//! A.\n"), [""; 0]);
    }

    #[test]
    fn sharing_is_for_the_sync_crate() {
        let text = "//! A.\nuse std::sync::Arc;\n";
        assert_eq!(
            problems("crates/x/src/a.rs", text),
            ["crates/x/src/a.rs:2 std::sync: use drystone_sync"]
        );
        assert_eq!(problems("crates/sync/src/a.rs", text), [""; 0]);
        assert_eq!(
            problems("crates/x/src/a.rs", "//! std::sync\nfn f() { \"std::sync\"; }\n").len(),
            0
        );
    }

    #[test]
    fn skips_are_counted() {
        let text = "//! A.\nfn f() {\n    eprintln!(\"Skipped: no tool\");\n}\n";
        assert_eq!(problems("crates/x/tests/a.rs", text).len(), 1);
        assert_eq!(problems(SKIPS, text), [""; 0]);
    }

    #[test]
    fn unfinished_work_is_found() {
        let text = format!("//! A.\n// {}: later\nfn f() {{ todo!() }}\n", UNFINISHED_WORDS[0]);
        assert_eq!(problems("a.rs", &text).len(), 2);
        assert_eq!(problems("a.rs", "//! A.\nfn f() { not_todo!() }\n"), [""; 0]);
    }

    #[test]
    fn text_of_any_kind_is_clean() {
        assert_eq!(
            problems("a.md", "a \nb"),
            ["a.md no newline at the end", "a.md:1 white space at the end of the line"]
        );
        assert_eq!(problems("a.md", &format!("in {}x\n", MACHINE_PATHS[0])).len(), 1);
    }

    #[test]
    fn long_files_warn_then_fail() {
        let file = |lines: usize| format!("//! A.\n{}", "fn f() {}\n".repeat(lines - 1));
        assert!(check("a.rs", &file(LINES_WARNED)).is_empty());
        assert!(check("a.rs", &file(LINES_WARNED + 1))[0].is_warning);
        assert!(!check("a.rs", &file(LINES_MAX + 1))[0].is_warning);
    }
}
