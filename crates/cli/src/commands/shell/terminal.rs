//! A shell on a terminal: editing of lines, history and completion.

use super::line::{Shell, names_on_host};
use super::told;
use super::words::{Ending, quoted, split};
use crate::failure::Outcome;
use crate::output::Escaped;
use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Reads lines from the terminal and runs them. One that fails doesn't end the shell.
pub fn run(shell: Shell) -> Outcome {
    let config = Config::builder().completion_type(CompletionType::List).build();
    let history = MemHistory::with_config(&config);
    let mut editor = Editor::<LineHelper, _>::with_history(config, history)?;
    editor.set_helper(Some(LineHelper { shell }));
    while let Some(LineHelper { shell }) = editor.helper_mut().filter(|it| !it.shell.is_ended) {
        let place = format!("{}:", shell.here.image.display());
        let directory = shell.here.directory.as_os_str().as_bytes();
        let prompt = format!("{}{}> ", Escaped(place.as_bytes()), Escaped(directory));
        let line = match editor.readline(&prompt) {
            Ok(line) => line,
            // Control-C.
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => break,
            Err(error) => return Err(error.into()),
        };
        if !line.trim().is_empty() {
            editor.add_history_entry(&line)?;
        }
        if let Some(LineHelper { shell }) = editor.helper_mut()
            && let Err(failure) = shell.run(line.as_bytes())
        {
            // Its code is that of the command alone.
            let _ = told(failure).report();
        }
    }
    Ok(())
}

/// What the editor of lines asks.
struct LineHelper {
    shell: Shell,
}

impl Helper for LineHelper {}
impl Highlighter for LineHelper {}
impl Validator for LineHelper {}

impl Hinter for LineHelper {
    type Hint = String;
}

impl Completer for LineHelper {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<Pair>)> {
        let line = &line[..position];
        let Ok((mut words, ending)) = split(line.as_bytes()) else {
            return Ok((position, Vec::new()));
        };
        let last = if ending == Ending::Complete { None } else { words.pop() };
        let start = last.as_ref().map_or(position, |word| word.start);
        let begun = last.map(|word| word.text).unwrap_or_default();
        let Some(command) = words.first() else {
            let names =
                Shell::command_names().into_iter().filter(|n| n.as_bytes().starts_with(&begun));
            let pair = |name: &str| Pair { display: name.into(), replacement: format!("{name} ") };
            return Ok((start, names.map(pair).collect()));
        };
        Ok((start, self.paths(&begun, command.text == b"put")))
    }
}

impl LineHelper {
    /// The paths that begin so. Names that aren't text, or would control the terminal, are left out.
    fn paths(&self, begun: &[u8], is_on_host: bool) -> Vec<Pair> {
        let name_start = begun.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let (directory, begun) = begun.split_at(name_start);
        let Ok(directory) = std::str::from_utf8(directory) else { return Vec::new() };
        let listed = if directory.is_empty() { "." } else { directory };
        let mut names = match is_on_host {
            true => names_on_host(listed.as_bytes()),
            false => self.shell.names_in(listed.as_bytes()),
        };
        names.sort();
        let names = names.iter().filter(|name| {
            name.starts_with(begun) && (!name.starts_with(b".") || begun.starts_with(b"."))
        });
        let names = names.filter_map(|name| std::str::from_utf8(name).ok());
        let names = names.filter(|name| !name.chars().any(char::is_control));
        names
            .map(|name| {
                let path = format!("{directory}{name}");
                let is_directory = match is_on_host {
                    true => Path::new(&path).is_dir(),
                    false => self.shell.is_directory(OsStr::new(&path)),
                };
                let (end, mark) = if is_directory { ("/", "/") } else { (" ", "") };
                let replacement = format!("{}{end}", quoted(&path));
                Pair { display: format!("{name}{mark}"), replacement }
            })
            .collect()
    }
}
