//! The pictures of the documentation, as SVG: the layers of the crates, and sessions in a terminal.
//!
//! `./dev pictures` redraws all. A test compares the layers with the rules that `tidy` checks; the
//! sessions are run with the `drystone` that cargo builds.

mod screen;

use crate::process;
use anyhow::Context;
use drystone_sync::thread;
use screen::Terminal;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// Where the drawing of the layers goes.
const LAYERS_FILE: &str = "docs/src/design/crates.svg";
/// Where the session goes.
const SESSION_FILE: &str = "docs/src/session.svg";

/// Where the shell on an image goes.
const SHELL_FILE: &str = "docs/src/shell.svg";
/// Where the watch of mounts goes.
const TOP_FILE: &str = "docs/src/top.svg";

/// The crates as boxes: row, and from which to which column. A crate uses only what stands lower, and
/// `vfs`, the interface between the engine and what is built on it.
const BOXES: [(&str, usize, usize, usize); 25] = [
    ("cli", 0, 0, 4),
    ("capi", 0, 4, 6),
    ("bench", 1, 0, 2),
    ("drystone", 1, 2, 6),
    ("sources", 2, 0, 1),
    ("reshape", 2, 1, 2),
    ("vfs", 2, 2, 4),
    ("volumes", 2, 4, 5),
    ("fuse", 2, 5, 6),
    ("mkfs", 3, 0, 2),
    ("ext4", 3, 2, 4),
    ("nilfs2", 3, 4, 5),
    ("nilfs2-check", 3, 5, 6),
    ("fsck", 4, 0, 1),
    ("inspect", 4, 1, 2),
    ("jbd2", 4, 2, 4),
    ("nilfs2-format", 4, 4, 6),
    ("ext4-format", 5, 0, 2),
    ("jbd2-format", 5, 2, 4),
    ("cache", 5, 4, 5),
    ("rbd", 5, 5, 6),
    ("blockdev", 6, 0, 6),
    ("ondisk", 7, 0, 2),
    ("options", 7, 2, 4),
    ("sync", 7, 4, 6),
];

/// What is typed in the session. `$ ` stands before each.
const SESSION: [&str; 6] = [
    "drystone build disk.img --from rootfs/ --free 20%",
    "drystone ls -lh disk.img:/doc",
    "drystone find disk.img --name '*.md' --size +6K",
    "drystone mkdir disk.img:/doc/notes",
    "drystone diff rootfs disk.img --ignore times",
    "drystone check disk.img",
];

/// What is typed into the shell on an image.
const SHELL_LINES: [&str; 6] = [
    "cd doc",
    "find /doc --size +6K",
    "cp json.md notes.md",
    "ls -lh *s.md",
    "chmod 600 notes.md",
    "du -h /",
];

/// What a mount has to do while it is watched. `kill` is what ends it.
const WORK: &str = "(while mkdir mnt/work 2>/dev/null; do for i in $(seq 300); do \
                    cp rootfs/doc/json.md mnt/work/$i; done; sync -f mnt; cat mnt/work/* >mnt/work/all; dd if=mnt/work/all of=/dev/null bs=64K iflag=direct 2>/dev/null; \
                    rm -r mnt/work; done) & clear";

/// Draws everything.
pub fn run() -> anyhow::Result<()> {
    process::run(&mut process::cargo(["build", "--quiet", "--package", "drystone-cli"]))?;
    std::fs::write(LAYERS_FILE, layers()).context(LAYERS_FILE)?;
    let place = Place::new()?;
    std::fs::write(SESSION_FILE, terminal(&session(&place)?)).context(SESSION_FILE)?;
    std::fs::write(SHELL_FILE, screen::svg(&shell(&place)?)).context(SHELL_FILE)?;
    std::fs::write(TOP_FILE, screen::svg(&top(&place)?)).context(TOP_FILE)?;
    std::fs::remove_dir_all(&place.folder)?;
    println!("{LAYERS_FILE}\n{SESSION_FILE}\n{SHELL_FILE}\n{TOP_FILE}");
    Ok(())
}

/// The boxes, from top to bottom.
fn layers() -> String {
    const COLUMN: usize = 120;
    const ROW: usize = 48;
    const GAP: usize = 8;
    let rows = BOXES.iter().map(|(_, row, ..)| row + 1).max().unwrap_or(0);
    let mut svg = opening(6 * COLUMN + GAP, rows * ROW + GAP, "#ffffff");
    for (name, row, from, to) in BOXES {
        let colour = match name {
            "ext4" | "nilfs2" | "jbd2" | "cache" => "#ffe3b3",
            "mkfs" | "fsck" | "nilfs2-check" | "sources" | "reshape" => "#d9edd4",
            "cli" | "capi" | "fuse" | "drystone" | "bench" => "#d6e4f7",
            _ => "#eceef2",
        };
        let (x, y) = (from * COLUMN + GAP, row * ROW + GAP);
        let (width, height) = ((to - from) * COLUMN - GAP, ROW - GAP);
        let (middle, line) = (x + width / 2, y + height / 2 + 5);
        let _ = writeln!(
            svg,
            r##"<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="{colour}" stroke="#5b6577"/><text x="{middle}" y="{line}" text-anchor="middle" fill="#1d2430">{name}</text>"##
        );
    }
    svg + "</svg>\n"
}

/// Where sessions run.
struct Place {
    /// It has a tree that is made from this repository's documentation.
    folder: PathBuf,
    /// Where programs are looked for.
    path: String,
}

impl Place {
    fn new() -> anyhow::Result<Place> {
        let programs = std::path::absolute(process::target_directory().join("debug"))?;
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
        // Its name is in a picture.
        let folder = std::env::temp_dir().join("drystone-pictures");
        let _ = std::fs::remove_dir_all(&folder);
        let tree = folder.join("rootfs/doc");
        std::fs::create_dir_all(&tree)?;
        for entry in std::fs::read_dir("docs/src/reference")? {
            let entry = entry?;
            std::fs::copy(entry.path(), tree.join(entry.file_name()))?;
        }
        Ok(Place { folder, path })
    }

    /// What a command line prints, to both outputs.
    fn output_of(&self, line: &str) -> anyhow::Result<String> {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{line} 2>&1")]).current_dir(&self.folder);
        let output = shell.env("PATH", &self.path).env("TZ", "UTC").output().context("sh")?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Command lines, one after the other.
fn session(place: &Place) -> anyhow::Result<String> {
    let mut shown = String::new();
    for line in SESSION {
        let _ = writeln!(shown, "$ {line}");
        shown.push_str(&place.output_of(line)?);
    }
    Ok(shown)
}

/// The shell on the image of the session.
fn shell(place: &Place) -> anyhow::Result<String> {
    let terminal = Terminal::new(&place.folder, &place.path)?;
    terminal.line("drystone shell disk.img")?;
    terminal.screen_at("disk.img:/>")?;
    for line in SHELL_LINES {
        terminal.line(line)?;
        terminal.screen_with(line)?;
        terminal.screen_at("disk.img:/doc>")?;
    }
    let screen = terminal.screen_at("disk.img:/doc>")?;
    terminal.line("exit")?;
    terminal.screen_at("$")?;
    Ok(screen)
}

/// The watch of two mounts, of which one works.
fn top(place: &Place) -> anyhow::Result<String> {
    place.output_of("mkdir mnt log; drystone mkfs data.img --size 256M -q")?;
    place.output_of("drystone mkfs log.img --type nilfs2 --size 256M -q")?;
    place.output_of("drystone mount data.img mnt && drystone mount log.img log")?;
    let screen = watched(place);
    // The work ends when it can't make its directory.
    place.output_of("drystone umount --lazy mnt log")?;
    screen
}

fn watched(place: &Place) -> anyhow::Result<String> {
    let terminal = Terminal::new(&place.folder, &place.path)?;
    terminal.line(WORK)?;
    terminal.line("drystone top mnt log --interval 0.5")?;
    terminal.screen_with("REQUEST")?;
    // The mount that works.
    terminal.key("Down")?;
    // Long enough for the curve.
    thread::sleep(Duration::from_secs(52));
    let screen = terminal.screen_with("REQUEST")?;
    terminal.key("q")?;
    Ok(screen)
}

/// A terminal that shows a text; lines that begin with `$` are what was typed.
fn terminal(text: &str) -> String {
    const LINE: usize = 19;
    const LEFT: usize = 16;
    let lines: Vec<&str> = text.lines().collect();
    let mut svg = opening(860, lines.len() * LINE + 32, "#1e2530");
    for (number, line) in lines.iter().enumerate() {
        let y = number * LINE + 30;
        let escaped = escaped(line);
        let (colour, weight) =
            if line.starts_with('$') { ("#ffd479", "bold") } else { ("#d7dce5", "normal") };
        let _ = writeln!(
            svg,
            r##"<text x="{LEFT}" y="{y}" fill="{colour}" font-weight="{weight}" xml:space="preserve">{escaped}</text>"##
        );
    }
    svg + "</svg>\n"
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn opening(width: usize, height: usize, background: &str) -> String {
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14">
<rect width="{width}" height="{height}" rx="8" fill="{background}"/>
"##
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::uses;

    #[test]
    fn what_a_crate_uses_stands_below_it() {
        let row = |name: &str| BOXES.iter().find(|(other, ..)| *other == name).map(|found| found.1);
        for (name, at, ..) in BOXES {
            for used in uses(name).iter().filter(|used| !matches!(**used, "testkit" | "vfs")) {
                assert!(row(used).is_some_and(|row| row > at), "{name} uses {used}");
            }
        }
    }

    #[test]
    fn text_is_escaped() {
        assert!(terminal("$ a <b> & c\n").contains("$ a &lt;b&gt; &amp; c</text>"));
    }
}
