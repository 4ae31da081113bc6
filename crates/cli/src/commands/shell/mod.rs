//! `shell`: commands on one image, which stays open between them.
//!
//! A line is one command. Most are those of the program, read by the same definitions; only words that
//! name places in images are paths here, which may start at the current directory.

mod line;
mod patterns;
mod places;
mod terminal;
mod words;

use crate::failure::{Failure, Outcome};
use crate::global::Global;
use crate::location::Location;
use crate::messages::tell;
use crate::shell_image::ShellImage;
use line::Shell;
use std::ffi::OsString;
use std::io::{BufRead, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

/// Work on an image with several commands
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A line is a command: ls, tree, find, du, df, stat, cat, cp, extract, mv, rm, mkdir, rmdir, ln, touch, mknod, truncate, edit, \
chmod, chown, chattr, lsattr, getfattr, setfattr, getfacl, setfacl, with the options that they have here and paths in \
the image; get and put, which copy from it and to it; cd, pwd, sync, help, exit. Words are quoted as in sh, and *, ? \
and [...] stand for names.

On a terminal, lines can be edited and repeated, and Tab completes paths. Otherwise commands come from standard input, \
and the first one that fails ends the shell with its exit code. Changes are durable after 'sync' and at the end, and \
no later than a few seconds after a command.

Examples:
  drystone shell disk.img -c 'ls -l /etc' -c 'rm /tmp/old/*'
  echo 'put share /usr' | drystone shell disk.img")]
pub struct Arguments {
    /// The image, and the directory to start in.
    #[arg(value_name = "IMAGE[:DIR]", value_parser = Location::parser())]
    place: Location,
    /// Run this command and end; may be given several times.
    #[arg(short, long, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// `definition` is that of the whole command line.
pub fn run(arguments: &Arguments, global: &Global, definition: fn() -> clap::Command) -> Outcome {
    let image = &arguments.place.image;
    let shell_image = Rc::new(ShellImage::new(image));
    let mut global = global.clone();
    global.shell_image = Some(Rc::clone(&shell_image));
    let mut shell = Shell::new(image.clone(), global, definition);
    let result = shell.enter(&arguments.place.path).and_then(|()| match &arguments.command[..] {
        [] if std::io::stdin().is_terminal() => terminal::run(shell),
        [] => run_input(&mut shell),
        commands => run_all(&mut shell, commands.iter().map(|line| Ok(line.as_bytes().to_vec()))),
    });
    let closed = shell_image.close();
    result?;
    Ok(closed?)
}

/// The failure of a line after what the user has to know of it was told, as far as that names options
/// of the program.
fn told(failure: Failure) -> Failure {
    match failure {
        Failure::Usage(message) => {
            tell(message);
            Failure::Code(2)
        }
        failure => failure,
    }
}

/// Runs the lines of standard input.
fn run_input(shell: &mut Shell) -> Outcome {
    // A command may read it, too.
    run_all(shell, std::iter::from_fn(|| next_line(&mut std::io::stdin().lock()).transpose()))
}

/// A line without its end; nothing at the end of the input.
fn next_line(input: &mut impl BufRead) -> std::io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    if input.read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    line.pop_if(|byte| *byte == b'\n');
    Ok(Some(line))
}

/// Runs lines up to the first that fails, or ends the shell.
fn run_all(shell: &mut Shell, lines: impl Iterator<Item = std::io::Result<Vec<u8>>>) -> Outcome {
    for line in lines {
        shell.run(&line?).map_err(told)?;
        if shell.is_ended {
            break;
        }
    }
    Ok(())
}
