//! What a program shows on a terminal, as SVG. The terminal is a tmux of its own.

use crate::process;
use anyhow::{Context, bail};
use drystone_sync::thread;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The size of the terminal.
const COLUMNS: usize = 100;
const LINES: usize = 26;
/// How often, and at what interval, the screen is looked at for what it is to show.
const LOOKS: usize = 150;
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Pixels of a character, of a line and around the text.
const CHARACTER: f64 = 8.4;
const LINE: usize = 19;
const MARGIN: usize = 16;
const BACKGROUND: &str = "#1e2530";
const FOREGROUND: &str = "#d7dce5";
/// The eight colours of a terminal, and its bright ones.
const COLOURS: [&str; 8] =
    ["#3b4252", "#e06c75", "#8fce7a", "#ffd479", "#6ca8f0", "#c792ea", "#5fd0d8", "#d7dce5"];

/// A shell on a terminal.
pub struct Terminal {
    socket: String,
}

impl Terminal {
    /// Starts a shell in a folder, which finds the programs of `path` first.
    pub fn new(folder: &Path, path: &str) -> anyhow::Result<Terminal> {
        let terminal = Terminal { socket: format!("drystone-pictures-{}", std::process::id()) };
        let (columns, lines) = (COLUMNS.to_string(), LINES.to_string());
        let mut tmux = terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", &columns]);
        tmux.args(["-y", &lines, "-c"]).arg(folder);
        tmux.arg("sh").env("PATH", path).env("TZ", "UTC");
        process::run(&mut tmux)?;
        process::run(&mut terminal.tmux(&["set-option", "-g", "status", "off"]))?;
        // A shell of root's has another prompt.
        terminal.line("PS1='$ '; clear")?;
        terminal.screen_when("$", |screen| screen.trim() == "$")?;
        Ok(terminal)
    }

    /// Types a line.
    pub fn line(&self, line: &str) -> anyhow::Result<()> {
        process::run(&mut self.tmux(&["send-keys", "-l", line]))?;
        self.key("Enter")
    }

    /// Presses a key.
    pub fn key(&self, key: &str) -> anyhow::Result<()> {
        process::run(&mut self.tmux(&["send-keys", key]))
    }

    /// The screen, with escape sequences for colours, once it shows a text.
    pub fn screen_with(&self, text: &str) -> anyhow::Result<String> {
        self.screen_when(text, |screen| {
            runs(screen).iter().flatten().any(|run| run.text.contains(text))
        })
    }

    /// The screen once a prompt is at its end.
    pub fn screen_at(&self, prompt: &str) -> anyhow::Result<String> {
        self.screen_when(prompt, |screen| screen.trim_end().ends_with(prompt))
    }

    fn screen_when(&self, what: &str, is_it: impl Fn(&str) -> bool) -> anyhow::Result<String> {
        let mut screen = String::new();
        for _ in 0..LOOKS {
            let output = self.tmux(&["capture-pane", "-e", "-p"]).output().context("tmux")?;
            screen = String::from_utf8_lossy(&output.stdout).into_owned();
            if is_it(&screen) {
                return Ok(screen);
            }
            thread::sleep(LOOK_INTERVAL);
        }
        bail!("the terminal doesn't show '{what}' but:\n{}", screen.trim())
    }

    fn tmux(&self, arguments: &[&str]) -> Command {
        let mut tmux = Command::new("tmux");
        tmux.args(["-u", "-L", &self.socket]).args(arguments);
        tmux
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]).status();
    }
}

/// Characters of a line that look alike.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Run {
    text: String,
    colour: Option<usize>,
    is_bold: bool,
    is_dim: bool,
    is_reversed: bool,
}

/// The lines of a screen in runs.
fn runs(screen: &str) -> Vec<Vec<Run>> {
    let mut look = Run::default();
    let lines = screen.lines().map(|line| {
        let mut runs = Vec::new();
        for (index, part) in line.split("\u{1b}[").enumerate() {
            let text = match part.split_once('m') {
                Some((codes, text)) if index > 0 => {
                    look.change(codes);
                    text
                }
                _ => part,
            };
            if !text.is_empty() {
                runs.push(Run { text: text.to_owned(), ..look.clone() });
            }
        }
        runs
    });
    lines.collect()
}

impl Run {
    /// Follows the codes of an escape sequence.
    fn change(&mut self, codes: &str) {
        let mut codes = codes.split(';').map(|code| code.parse::<usize>().unwrap_or(0));
        while let Some(code) = codes.next() {
            match code {
                0 => *self = Run::default(),
                1 => self.is_bold = true,
                2 => self.is_dim = true,
                7 => self.is_reversed = true,
                22 => (self.is_bold, self.is_dim) = (false, false),
                27 => self.is_reversed = false,
                30..=37 | 90..=97 => self.colour = Some(code % 10),
                // A number among 256, of which the first 16 are these.
                38 => self.colour = codes.nth(1).map(|number| number % 8),
                39 => self.colour = None,
                _ => {}
            }
        }
    }
}

/// Draws a screen without the empty lines at its end.
pub fn svg(screen: &str) -> String {
    let lines = runs(screen.trim_end());
    let width = (COLUMNS as f64 * CHARACTER) as usize + 2 * MARGIN;
    let mut svg = super::opening(width, lines.len() * LINE + 2 * MARGIN, BACKGROUND);
    for (number, line) in lines.iter().enumerate() {
        let y = number * LINE + 30;
        let mut column = 0;
        for run in line {
            let characters = run.text.chars().count();
            let (x, length) =
                (MARGIN as f64 + column as f64 * CHARACTER, characters as f64 * CHARACTER);
            column += characters;
            let mut colour = run.colour.map_or(FOREGROUND, |colour| COLOURS[colour]);
            if run.is_reversed {
                let top = y - 14;
                let _ = writeln!(
                    svg,
                    r##"<rect x="{x:.1}" y="{top}" width="{length:.1}" height="{LINE}" fill="{colour}"/>"##
                );
                colour = BACKGROUND;
            }
            if run.text.trim().is_empty() {
                continue;
            }
            let weight = if run.is_bold { "bold" } else { "normal" };
            let opacity = if run.is_dim { "0.6" } else { "1" };
            let text = super::escaped(&run.text);
            let _ = writeln!(
                svg,
                r##"<text x="{x:.1}" y="{y}" fill="{colour}" font-weight="{weight}" opacity="{opacity}" textLength="{length:.1}" lengthAdjust="spacingAndGlyphs" xml:space="preserve">{text}</text>"##
            );
        }
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_go_on_until_they_end() {
        let screen = "a\u{1b}[1m\u{1b}[36mb\nc\u{1b}[0m\u{1b}[7md\u{1b}[39;49me";
        let lines = runs(screen);
        let run = |text: &str| Run { text: text.to_owned(), ..Run::default() };
        let bold = |text: &str| Run { colour: Some(6), is_bold: true, ..run(text) };
        assert_eq!(lines[0], [run("a"), bold("b")]);
        assert_eq!(lines[1][..2], [bold("c"), Run { is_reversed: true, ..run("d") }]);
        assert_eq!(
            runs("\u{1b}[2;38;5;14mx\u{1b}[22my")[0][1],
            Run { colour: Some(6), ..run("y") }
        );
        assert!(svg(screen).contains(r##"fill="#5fd0d8" font-weight="bold""##));
    }
}
