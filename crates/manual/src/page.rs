//! Manual pages.
//!
//! `clap_mangen` writes names, synopses and options. It would fill the text after the options as if it
//! were prose; here its paragraphs, examples and tables are told apart.
//!
//! # Reference
//! man(7).

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use std::io;

/// What begins the paragraphs that have sections of their own.
const EXIT_CODES: &str = "Exit codes: ";
const EXAMPLES: &str = "Examples:";

/// What `clap_mangen` writes before lists of values; mandoc warns of it.
const DOUBLE_BREAK: &str = ".br\n\n.br\n";

/// The pages of a command and of its subcommands, with the names of their files.
pub fn all(definition: Command, date: &str) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut definition = definition;
    definition.build();
    // That which shows the help of another has no examples.
    let others = definition.get_subcommands().filter(|command| command.get_name() != "help");
    let commands = std::iter::once(&definition).chain(others);
    commands.map(|command| Ok((name(command) + ".1", page(command, date)?))).collect()
}

/// The name of a command's page.
fn name(command: &Command) -> String {
    command.get_display_name().unwrap_or(command.get_name()).to_owned()
}

fn page(command: &Command, date: &str) -> io::Result<Vec<u8>> {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").to_owned();
    let help = command.get_after_long_help().or(command.get_after_help());
    let parts = Parts::read(&help.map(ToString::to_string).unwrap_or_default());
    let man = Man::new(command.clone().override_usage(usage))
        .title(name(command).to_uppercase())
        .date(date)
        .source(concat!("drystone ", env!("CARGO_PKG_VERSION")))
        .manual("Drystone manual");
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    let is_said_below = command.get_long_about().is_none() && !parts.description.is_empty();
    if is_said_below {
        section("DESCRIPTION", &parts.description, &mut out)?;
    } else {
        man.render_description_section(&mut out)?;
        write(&parts.description, true, &mut out)?;
    }
    if command.has_subcommands() {
        man.render_subcommands_section(&mut out)?;
    }
    let mut options = Vec::new();
    man.render_options_section(&mut options)?;
    let options = String::from_utf8(options).map_err(io::Error::other)?;
    out.extend(options.replace(DOUBLE_BREAK, ".sp\n").bytes());
    let see_also = if command.has_subcommands() { "drystone-mkfs(1)" } else { "drystone(1)" };
    section("EXIT STATUS", &parts.exit_codes, &mut out)?;
    section("EXAMPLES", &parts.examples, &mut out)?;
    section("SEE ALSO", &[Block::Paragraph(see_also.to_owned())], &mut out)?;
    Ok(out)
}

/// Writes a section, if it holds something.
fn section(title: &str, blocks: &[Block], out: &mut Vec<u8>) -> io::Result<()> {
    if blocks.is_empty() {
        return Ok(());
    }
    let mut heading = Roff::default();
    heading.control("SH", [title]).to_writer(out)?;
    write(blocks, false, out)
}

/// A block of the text after the options.
#[derive(Debug, PartialEq, Eq)]
enum Block {
    /// Prose, which is filled.
    Paragraph(String),
    /// Lines that stay as they are.
    Lines(Vec<String>),
}

/// The text after the options, by section.
#[derive(Debug, Default)]
struct Parts {
    description: Vec<Block>,
    exit_codes: Vec<Block>,
    examples: Vec<Block>,
}

impl Parts {
    /// Empty lines separate paragraphs; indented lines stay as they are. The examples come last.
    fn read(help: &str) -> Parts {
        let mut parts = Parts::default();
        let (prose, examples) = help.split_once(EXAMPLES).unwrap_or((help, ""));
        for paragraph in prose.split("\n\n") {
            match paragraph.trim_start().strip_prefix(EXIT_CODES) {
                Some(codes) => push_blocks(codes, &mut parts.exit_codes),
                None => push_blocks(paragraph, &mut parts.description),
            }
        }
        for paragraph in examples.split("\n\n") {
            push_blocks(paragraph, &mut parts.examples);
        }
        parts
    }
}

/// Adds the blocks of a paragraph: neighbours of one kind are one block.
fn push_blocks(paragraph: &str, blocks: &mut Vec<Block>) {
    let first = blocks.len();
    for line in paragraph.lines().filter(|line| !line.trim().is_empty()) {
        let last = if blocks.len() > first { blocks.last_mut() } else { None };
        match (line.strip_prefix("  "), last) {
            (Some(line), Some(Block::Lines(lines))) => lines.push(line.to_owned()),
            (Some(line), _) => blocks.push(Block::Lines(vec![line.to_owned()])),
            (None, Some(Block::Paragraph(text))) => *text = format!("{text} {line}"),
            (None, _) => blocks.push(Block::Paragraph(line.to_owned())),
        }
    }
}

/// Writes blocks. Those that go on with a section are set apart from what is before them.
fn write(blocks: &[Block], goes_on: bool, out: &mut Vec<u8>) -> io::Result<()> {
    let mut roff = Roff::default();
    for (index, block) in blocks.iter().enumerate() {
        if goes_on || index > 0 {
            roff.control("PP", []);
        }
        match block {
            Block::Paragraph(text) => {
                roff.text([roman(text)]);
            }
            Block::Lines(lines) => {
                roff.control("nf", []).control("RS", ["4"]);
                for line in lines {
                    roff.text([roman(line)]);
                }
                roff.control("RE", []).control("fi", []);
            }
        }
    }
    roff.to_writer(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use drystone_testkit::judges::{Scratch, have};
    use std::process::Command;

    #[test]
    fn the_text_after_the_options_is_cut_into_sections() {
        let help = "One\ntwo.\n\nTable:\n  a  b\n  c  d\n\nExit codes: 0 good.\n\n\
                    Examples:\n  drystone ls\n  drystone cat";
        let parts = Parts::read(help);
        let paragraph = |text: &str| Block::Paragraph(text.to_owned());
        let lines = |lines: &[&str]| Block::Lines(lines.iter().map(|&l| l.to_owned()).collect());
        let expected = [paragraph("One two."), paragraph("Table:"), lines(&["a  b", "c  d"])];
        assert_eq!(parts.description, expected);
        assert_eq!(parts.exit_codes, [paragraph("0 good.")]);
        assert_eq!(parts.examples, [lines(&["drystone ls", "drystone cat"])]);
    }

    #[test]
    fn every_command_has_a_page_with_its_examples() {
        let pages = all(drystone_cli::definition(), "2026-01-31").unwrap();
        assert_eq!(pages.len(), 1 + drystone_cli::definition().get_subcommands().count());
        for (name, text) in pages {
            let text = String::from_utf8(text).unwrap();
            let command = name.trim_end_matches(".1").replacen('-', " ", 1);
            for expected in [".SH NAME", ".SH SYNOPSIS", ".SH OPTIONS", ".SH EXAMPLES"] {
                assert!(text.contains(expected), "{name} lacks {expected}");
            }
            let example = text.split(".SH EXAMPLES").nth(1).unwrap();
            assert!(example.replace("\\-", "-").contains(&command), "{name}: {example}");
        }
    }
    #[test]
    fn mandoc_finds_no_fault_with_the_pages() {
        if !have("mandoc") {
            return;
        }
        let scratch = Scratch::new("manual").unwrap();
        let pages = all(drystone_cli::definition(), "2026-01-31").unwrap();
        assert!(pages.len() > 40, "only {} pages", pages.len());
        let mut mandoc = Command::new("mandoc");
        mandoc.args(["-T", "lint", "-W", "warning"]).current_dir(scratch.path());
        for (name, text) in pages {
            std::fs::write(scratch.join(&name), text).unwrap();
            mandoc.arg(name);
        }
        let output = mandoc.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{said}");
    }
}
