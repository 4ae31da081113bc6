//! A line of a shell: what it means, and how it is run.

use super::patterns::expand;
use super::places::{HOST_MARK, Here};
use super::words::{Ending, split};
use crate::commands::{self, Command};
use crate::failure::{Failure, Outcome};
use crate::global::Global;
use crate::image::{Intent, with_one};
use crate::terminal::print_line;
use crate::wrong_call::{is_help, wrong_call};
use clap::FromArgMatches;
use clap::error::ErrorKind;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The program's commands that work on files of an image.
const COMMANDS: [&str; 25] = [
    "cat", "chattr", "chmod", "chown", "cp", "df", "du", "edit", "find", "getfacl", "getfattr",
    "ln", "ls", "lsattr", "mkdir", "mknod", "mv", "rm", "setfacl", "setfattr", "stat", "touch",
    "tree", "truncate", "extract",
];

/// Commands that show the current directory if no path is given.
const SHOWING_HERE: [&str; 6] = ["df", "du", "find", "ls", "lsattr", "tree"];

/// What only a shell has: a name, what follows it, and what it does.
const BUILT_IN: [(&str, &str, &str); 9] = [
    ("cd", "[DIR]", "Change the current directory"),
    ("exit", "", "End the shell; so do 'quit' and Control-D"),
    (
        "get",
        "PATH... [HOST]",
        "Copy from the image to this machine, or to the directory where the shell runs",
    ),
    ("help", "[COMMAND]", "Show what there is"),
    ("put", "HOST... [PATH]", "Copy from this machine to the image, or to the current directory"),
    ("pwd", "", "Print the current directory"),
    ("quit", "", ""),
    ("rmdir", "DIR...", "Remove empty directories"),
    ("sync", "", "Make all changes durable"),
];

/// A shell on an image.
pub struct Shell {
    pub here: Here,
    pub global: Global,
    /// A command has ended it.
    pub is_ended: bool,
}

impl Shell {
    /// `definition` is that of the program's command line.
    pub fn new(image: PathBuf, global: Global, definition: fn() -> clap::Command) -> Shell {
        let here = Here { image, directory: PathBuf::from("/"), program: definition };
        Shell { here, global, is_ended: false }
    }

    /// Goes to a directory.
    pub fn enter(&mut self, path: &Path) -> Outcome {
        let directory = with_one(&self.here.image, Intent::Read, &self.global, |tree| {
            let real = tree.fs.canonicalize(path).map_err(|error| tree.error_at(path, error))?;
            if !tree.find(&real, true)?.is_directory() {
                let bytes = path.as_os_str().as_bytes();
                return Err(tree.error(bytes, &"isn't a directory").into());
            }
            Ok(real)
        })?;
        self.here.directory = directory;
        Ok(())
    }

    /// Removes empty directories.
    fn remove_directories(&self, names: &[OsString]) -> Outcome {
        with_one(&self.here.image, Intent::Change, &self.global, |tree| {
            for name in names {
                let path = self.here.path(name);
                tree.fs.remove_dir(&path).map_err(|error| tree.error_at(&path, error))?;
            }
            Ok(())
        })
    }

    /// The names of all commands, sorted.
    pub fn command_names() -> Vec<&'static str> {
        let built_in = BUILT_IN.iter().map(|(name, _, _)| *name);
        let mut names: Vec<_> = COMMANDS.into_iter().chain(built_in).collect();
        names.sort_unstable();
        names
    }

    /// The names in a directory of the image, sorted; none if it can't be listed.
    pub fn names_in(&self, directory: &[u8]) -> Vec<Vec<u8>> {
        let path = self.here.path(OsStr::from_bytes(directory));
        let names = with_one(&self.here.image, Intent::Read, &self.global, |tree| {
            let node = tree.find(&path, true)?;
            if !node.is_directory() {
                return Ok(Vec::new());
            }
            let names = tree.list(node.inode(), path.as_os_str().as_bytes());
            let names = names.map_err(|error| tree.error(b"", &error))?;
            Ok(names.into_iter().map(Vec::from).collect())
        });
        names.unwrap_or_default()
    }

    /// True for a directory of the image.
    pub fn is_directory(&self, word: &OsStr) -> bool {
        let path = self.here.path(word);
        let found = with_one(&self.here.image, Intent::Read, &self.global, |tree| {
            Ok(tree.fs.metadata(&path).is_ok_and(|metadata| metadata.is_dir()))
        });
        found.unwrap_or(false)
    }

    /// Runs a line.
    pub fn run(&mut self, line: &[u8]) -> Outcome {
        let (words, ending) = split(line).map_err(Failure::Usage)?;
        if ending == Ending::Open {
            return Err(Failure::Usage("a quote isn't closed".to_owned()));
        }
        let Some((name, arguments)) = words.split_first() else { return Ok(()) };
        let name = String::from_utf8_lossy(&name.text).into_owned();
        // What is copied in comes from this machine.
        let in_image = |directory: &[u8]| self.names_in(directory);
        let list: &super::patterns::ListNames<'_> =
            if name == "put" { &names_on_host } else { &in_image };
        let arguments = arguments.iter().flat_map(|word| expand(word, list));
        let arguments: Vec<OsString> = arguments.map(OsString::from_vec).collect();
        match (name.as_str(), &arguments[..]) {
            ("exit" | "quit", []) => {
                self.is_ended = true;
                Ok(())
            }
            ("pwd", []) => self.print_directory(),
            ("cd", []) => self.enter(Path::new("/")),
            ("cd", [directory]) => self.enter(&self.here.path(directory)),
            ("sync", []) => match &self.global.shell_image {
                Some(image) => Ok(image.sync()?),
                None => Ok(()),
            },
            ("help", []) => self.help(),
            ("help", [command]) => self.run_command(&command.to_string_lossy(), &["--help".into()]),
            ("rmdir", names @ [_, ..]) => self.remove_directories(names),
            ("get" | "put", [_, ..]) => self.run_command("cp", &copied(&name, arguments)),
            (command, arguments) if COMMANDS.contains(&command) => {
                self.run_command(command, arguments)
            }
            (command, _) => match BUILT_IN.iter().find(|(name, _, _)| *name == command) {
                Some((name, usage, _)) => Err(Failure::Usage(format!("usage: {name} {usage}"))),
                None => {
                    Err(Failure::Usage(format!("'{command}' isn't a command; 'help' lists them")))
                }
            },
        }
    }

    /// Runs a command of the program.
    fn run_command(&self, name: &str, arguments: &[OsString]) -> Outcome {
        if !COMMANDS.contains(&name) {
            return Err(Failure::Usage(format!(
                "'{name}' has no options; 'help' lists the commands"
            )));
        }
        let mut words = vec![OsString::from(name)];
        words.extend_from_slice(arguments);
        let mut matches = self.here.definition().try_get_matches_from(&words);
        if SHOWING_HERE.contains(&name)
            && matches.as_ref().is_err_and(|e| e.kind() == ErrorKind::MissingRequiredArgument)
        {
            words.push(self.here.directory.clone().into());
            matches = self.here.definition().try_get_matches_from(&words);
        }
        let parsed = matches.and_then(|matches| {
            Ok((Command::from_arg_matches(&matches)?, Global::from_arg_matches(&matches)?))
        });
        let (mut command, mut global) = match parsed {
            Ok(parsed) => parsed,
            Err(error) if is_help(&error) => {
                // A closed pipe is no concern of the shell's.
                let _ = error.print();
                return Ok(());
            }
            Err(error) => {
                let message = wrong_call(error, name);
                return Err(Failure::Usage(format!("{message}\nTry 'help {name}'.")));
            }
        };
        global.json = global.json_output.is_some() || self.global.json;
        global.read_only |= self.global.read_only;
        global.quiet |= self.global.quiet;
        global.policy = global.policy.take().or_else(|| self.global.policy.clone());
        global.shell_image = self.global.shell_image.clone();
        if let Command::Ln(link) = &mut command {
            link.find_target(|target| self.here.location(target));
        }
        commands::run(&command, &global, self.here.program)
    }

    fn print_directory(&self) -> Outcome {
        let directory = self.here.directory.as_os_str().as_bytes();
        Ok(print_line(&crate::output::Escaped(directory).to_string())?)
    }

    fn help(&self) -> Outcome {
        let definition = self.here.definition();
        for name in Shell::command_names() {
            let built_in = BUILT_IN.iter().find(|(built_in, _, _)| *built_in == name);
            let line = match (built_in, definition.find_subcommand(name)) {
                (Some((_, _, "")), _) => continue,
                (Some((_, usage, does)), _) => format!("{:<24} {does}", format!("{name} {usage}")),
                (None, command) => {
                    let about = command.and_then(clap::Command::get_about);
                    format!("{name:<24} {}", about.map(ToString::to_string).unwrap_or_default())
                }
            };
            print_line(&line)?;
        }
        Ok(())
    }
}

/// The arguments of cp for `get` or `put`. With one place, the target is where the shell is.
fn copied(name: &str, arguments: Vec<OsString>) -> Vec<OsString> {
    let is_option = |word: &OsString| word.len() > 1 && word.as_bytes().starts_with(b"-");
    let (mut words, mut places): (Vec<_>, Vec<_>) = arguments.into_iter().partition(is_option);
    if places.len() == 1 {
        places.push(".".into());
    }
    let last = places.len().saturating_sub(1);
    words.push("--".into());
    words.extend(
        places
            .into_iter()
            .enumerate()
            .map(|(index, place)| {
                // One of sources and target is on this machine.
                match (name == "get") == (index == last) {
                    true => [&[HOST_MARK], place.as_bytes()].concat(),
                    false => place.into_vec(),
                }
            })
            .map(OsString::from_vec),
    );
    words
}

/// The names in a directory of this machine; none if it can't be listed.
pub fn names_on_host(directory: &[u8]) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(Path::new(OsStr::from_bytes(directory)));
    let entries = entries.into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().into_vec()).collect()
}
