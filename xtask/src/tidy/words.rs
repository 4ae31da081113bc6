//! Words that pages and help texts must not use, each with the field's word.
//!
//! Only unambiguous phrases are listed, so that there are no false findings. Pages are read without
//! their code; of the command, comments and strings are read, since help texts are both.

use super::Finding;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// What not to write and what to write instead, whatever the case of letters.
const WORDS: [(&str, &str); 29] = [
    ("a bar of", "a target of"),
    ("(bar:", "(target:"),
    ("the bars", "the targets"),
    ("its bar", "its target"),
    ("form of each mechanism", "variant of each mechanism"),
    ("forms of each mechanism", "variants of each mechanism"),
    ("forms of the mechanisms", "variants of the mechanisms"),
    ("mechanisms' forms", "variants of the mechanisms"),
    ("the other forms", "the other variants"),
    ("time of grace", "grace period"),
    ("times of grace", "grace periods"),
    ("room for a stay", "room to grow"),
    ("who comes", "name the thread or the caller"),
    ("who doesn't get", "name the thread or the caller"),
    ("whoever", "name the thread, the caller or the program"),
    ("write-behind", "delayed allocation"),
    ("heartbeat", "MMP"),
    ("known names", "dentry cache"),
    ("known blocks", "directory block cache"),
    ("out of turn", "without the lock"),
    ("for the habit of", "for compatibility with"),
    ("with commas between", "separated by commas"),
    ("it is found out by looking", "it is detected"),
    ("one a line", "one on each line"),
    ("times of access", "access times"),
    ("time of last access", "access time"),
    ("report of a bug", "bug report"),
    ("anew", "again, or a verb with re-"),
    ("is no number", "isn't a number"),
];

/// Checks the file at `path`.
pub fn check(path: &str, text: &str) -> Vec<Finding> {
    let mut prose = if path.ends_with(".md") {
        prose_of_page(text)
    } else if path.starts_with("crates/cli/src/") || path == "dev" || path == "xtask/src/main.rs" {
        prose_of_source(text)
    } else {
        return Vec::new();
    };
    prose.iter_mut().for_each(|(line, _)| *line = line.to_lowercase());
    let (text, starts) = joined(&prose);
    let mut findings = Vec::new();
    for (word, instead) in WORDS {
        let word = word.to_lowercase();
        for at in places(&text, &word) {
            let (_, line) = starts[starts.partition_point(|(start, _)| *start <= at) - 1];
            let problem = format!("\"{word}\": write \"{instead}\"");
            findings.push(Finding::error(format!("{path}:{line}"), problem));
        }
    }
    findings
}

/// Where whole words begin that are `word`.
fn places<'t>(text: &'t str, word: &'t str) -> impl Iterator<Item = usize> + 't {
    text.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let end = at + word.len();
        !text[..*at].ends_with(char::is_alphanumeric)
            && !text[end..].starts_with(char::is_alphanumeric)
    })
}

/// Texts with single spaces between, and where each begins, with its line.
fn joined(prose: &[(String, usize)]) -> (String, Vec<(usize, usize)>) {
    let (mut text, mut starts) = (String::new(), vec![(0, 1)]);
    for (words, line) in prose {
        starts.push((text.len(), *line));
        text.extend(words.split_whitespace().flat_map(|word| [word, " "]));
    }
    (text, starts)
}

/// The text of a page without its code, with lines.
fn prose_of_page(text: &str) -> Vec<(String, usize)> {
    let mut prose = Vec::new();
    let mut is_code = false;
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::CodeBlock(_)) => is_code = true,
            Event::End(TagEnd::CodeBlock) => is_code = false,
            Event::Text(words) if !is_code => {
                prose.push((words.into_string(), text[..range.start].matches('\n').count() + 1));
            }
            // Words on both sides of it don't form a phrase.
            Event::Code(_) => prose.push(("|".to_owned(), 1)),
            _ => {}
        }
    }
    prose
}

/// The lines of a source file without the marks of comments and of strings that go on.
fn prose_of_source(text: &str) -> Vec<(String, usize)> {
    let lines = text.lines().enumerate();
    let bare = |line: &str| {
        line.trim().trim_start_matches(['/', '!', '#']).trim_end_matches('\\').to_owned()
    };
    lines.map(|(index, line)| (bare(line), index + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> Vec<String> {
        check(path, text).into_iter().map(|f| format!("{} {}", f.place, f.problem)).collect()
    }

    #[test]
    fn words_are_found_across_lines() {
        assert_eq!(
            problems("docs/src/a.md", "# A\n\nFor a\nbar of 2, times\nof grace.\n"),
            [
                "docs/src/a.md:3 \"a bar of\": write \"a target of\"",
                "docs/src/a.md:4 \"times of grace\": write \"grace periods\""
            ]
        );
        let help =
            "/// Options, with commas\n/// between.\nconst A: &str = \"Time of \\\n  grace\";\n";
        assert_eq!(problems("crates/cli/src/a.rs", help).len(), 2);
    }

    #[test]
    fn code_and_other_words_are_left_alone() {
        let page = "`times of grace`, a progress bar\n\n    whoever\n\nthe barsoom\n";
        assert_eq!(problems("a.md", page), [""; 0]);
        assert_eq!(problems("crates/ext4/src/a.rs", "//! Whoever.\n"), [""; 0]);
    }
}
