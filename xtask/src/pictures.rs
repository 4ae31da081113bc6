//! The pictures of the documentation, as SVG: the layers of the crates, and a session in a terminal.
//!
//! `./dev pictures` draws both anew. The layers come from the rules that `tidy` checks; the session
//! is run with the `drystone` that cargo builds.

use crate::process;
use crate::tidy::uses;
use anyhow::Context;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// Where the drawing of the layers goes.
const LAYERS_FILE: &str = "docs/src/design/crates.svg";
/// Where the session goes.
const SESSION_FILE: &str = "docs/src/session.svg";

/// Rows of crates, from top to bottom: what a crate uses stands below it.
const ROWS: [&[&str]; 6] = [
    &["cli"],
    &["fuse", "drystone", "bench"],
    &["sources", "ext4"],
    &["mkfs", "fsck", "jbd2", "vfs"],
    &["ext4-format", "jbd2-format", "cache"],
    &["ondisk", "blockdev", "sync"],
];

/// What is typed in the session. `$ ` stands before each.
const SESSION: [&str; 6] = [
    "drystone build disk.img --from rootfs/ --free 20%",
    "drystone ls -lh disk.img:/doc",
    "drystone find disk.img --name '*.md' --size +12K",
    "drystone mkdir disk.img:/doc/notes",
    "drystone diff rootfs disk.img --ignore times",
    "drystone check disk.img",
];

/// Draws everything.
pub fn run() -> anyhow::Result<()> {
    std::fs::write(LAYERS_FILE, layers()).context(LAYERS_FILE)?;
    std::fs::write(SESSION_FILE, terminal(&session()?)).context(SESSION_FILE)?;
    println!("{LAYERS_FILE}\n{SESSION_FILE}");
    Ok(())
}

/// Boxes in rows, and a line from each crate to those of the next rows that it uses and that nothing
/// else leads to.
fn layers() -> String {
    const WIDTH: usize = 760;
    const ROW: usize = 84;
    const BOX: (usize, usize) = (124, 40);
    let height = ROWS.len() * ROW;
    let place = |name: &str| {
        ROWS.iter().enumerate().find_map(|(row, names)| {
            let column = names.iter().position(|other| *other == name)?;
            Some((WIDTH * (2 * column + 1) / (2 * names.len()), row * ROW + 20))
        })
    };
    let mut svg = opening(WIDTH, height, "#ffffff");
    let names: Vec<&str> = ROWS.iter().flat_map(|row| row.iter().copied()).collect();
    for &name in &names {
        let used = uses(name);
        let is_implied = |target: &str| used.iter().any(|between| reaches(between, target));
        for target in used.iter().filter(|target| !is_implied(target)) {
            let (Some((x, y)), Some((to_x, to_y))) = (place(name), place(target)) else { continue };
            let (from_y, middle) = (y + BOX.1, (y + BOX.1 + to_y) / 2);
            let _ = writeln!(
                svg,
                r##"<path d="M{x} {from_y} C{x} {middle} {to_x} {middle} {to_x} {to_y}" fill="none" stroke="#8a94a6" stroke-width="1.5" marker-end="url(#arrow)"/>"##
            );
        }
    }
    for name in names {
        let Some((x, y)) = place(name) else { continue };
        let colour = match name {
            "ext4" => "#ffe3b3",
            "mkfs" | "fsck" | "sources" => "#d9edd4",
            "cli" | "fuse" | "drystone" | "bench" => "#d6e4f7",
            _ => "#eceef2",
        };
        let left = x - BOX.0 / 2;
        let _ = writeln!(
            svg,
            r##"<rect x="{left}" y="{y}" width="{}" height="{}" rx="6" fill="{colour}" stroke="#5b6577"/><text x="{x}" y="{}" text-anchor="middle" fill="#1d2430">{name}</text>"##,
            BOX.0,
            BOX.1,
            y + 25
        );
    }
    svg + "</svg>\n"
}

/// True if a crate uses another, perhaps through others.
fn reaches(from: &str, target: &str) -> bool {
    uses(from).iter().any(|next| *next == target || reaches(next, target))
}

/// Runs the session on a tree that is made from this repository's documentation.
fn session() -> anyhow::Result<String> {
    process::run(&mut process::cargo(["build", "--quiet", "--package", "drystone-cli"]))?;
    let program = std::path::absolute(process::target_directory().join("debug"))?;
    let folder = process::target_directory().join("pictures");
    let _ = std::fs::remove_dir_all(&folder);
    let tree = folder.join("rootfs/doc");
    std::fs::create_dir_all(&tree)?;
    for entry in std::fs::read_dir("docs/src/reference")? {
        let entry = entry?;
        std::fs::copy(entry.path(), tree.join(entry.file_name()))?;
    }
    let mut shown = String::new();
    for line in SESSION {
        let _ = writeln!(shown, "$ {line}");
        shown.push_str(&output_of(line, &folder, &program)?);
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(shown)
}

/// What a command line prints, to both outputs.
fn output_of(line: &str, folder: &Path, program: &Path) -> anyhow::Result<String> {
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{line} 2>&1")]).current_dir(folder);
    let output = shell.env("PATH", path).env("TZ", "UTC").output().context("sh")?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A terminal that shows a text; lines that begin with `$` are what was typed.
fn terminal(text: &str) -> String {
    const LINE: usize = 19;
    const LEFT: usize = 16;
    let lines: Vec<&str> = text.lines().collect();
    let mut svg = opening(860, lines.len() * LINE + 32, "#1e2530");
    for (number, line) in lines.iter().enumerate() {
        let y = number * LINE + 30;
        let escaped = line.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let (colour, weight) =
            if line.starts_with('$') { ("#ffd479", "bold") } else { ("#d7dce5", "normal") };
        let _ = writeln!(
            svg,
            r##"<text x="{LEFT}" y="{y}" fill="{colour}" font-weight="{weight}" xml:space="preserve">{escaped}</text>"##
        );
    }
    svg + "</svg>\n"
}

fn opening(width: usize, height: usize, background: &str) -> String {
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14">
<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#8a94a6"/></marker></defs>
<rect width="{width}" height="{height}" rx="8" fill="{background}"/>
"##
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_crate_uses_stands_below_it() {
        let row = |name: &str| ROWS.iter().position(|row| row.contains(&name));
        for (number, names) in ROWS.iter().enumerate() {
            for used in names.iter().flat_map(|name| uses(name)) {
                let below = row(used).is_none_or(|row| row > number);
                assert!(below || *used == "testkit", "{names:?} use {used}");
            }
        }
    }

    #[test]
    fn text_is_escaped() {
        assert!(terminal("$ a <b> & c\n").contains("$ a &lt;b&gt; &amp; c</text>"));
    }
}
