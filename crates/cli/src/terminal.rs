//! Standard output.
//!
//! It may be a pipe whose other end is closed at any time. Nothing here panics then: an image that is
//! open must still be closed.

use crate::failure::Outcome;
use crate::output::{Escaped, NameJson};
use crate::tree::ImageTree;
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;

/// Prints a line on standard output.
pub fn print_line(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush());
    written.map_err(of_stdout)
}

/// An error of standard output, which says so. Its kind stays.
fn of_stdout(error: std::io::Error) -> std::io::Error {
    std::io::Error::new(error.kind(), format!("standard output: {error}"))
}

/// Standard output, and how names are to be written to it.
pub struct Output<'w> {
    writer: &'w mut dyn Write,
    /// A terminal must not get control characters from names in an image.
    escape: bool,
    /// JSON was asked for.
    pub json: bool,
    /// The image that paths are in, if that has to be said.
    image: Option<Vec<u8>>,
}

/// What was found in one of several images, in JSON.
#[derive(Serialize)]
struct InImage<'v, V> {
    image: NameJson,
    #[serde(flatten)]
    value: &'v V,
}

impl<'w> Output<'w> {
    /// Output to `writer`.
    pub fn new(writer: &'w mut dyn Write, escape: bool, json: bool) -> Output<'w> {
        Output { writer, escape, json, image: None }
    }

    /// Runs `body` with standard output, and flushes at the end.
    pub fn with_stdout<T>(
        json: bool,
        body: impl FnOnce(&mut Output<'_>) -> Outcome<T>,
    ) -> Outcome<T> {
        let stdout = std::io::stdout();
        let escape = stdout.is_terminal();
        let mut writer = std::io::BufWriter::new(stdout.lock());
        let result = body(&mut Output::new(&mut writer, escape, json));
        let flushed = writer.flush();
        let value = result?;
        flushed.map_err(of_stdout)?;
        Ok(value)
    }

    /// From now on, says of paths and in JSON which image they are in, if there are several.
    pub fn tell_image(&mut self, tree: &ImageTree<'_>) {
        let image = tree.is_one_of_several.then(|| tree.image().as_os_str().as_bytes().to_vec());
        self.image = image;
    }

    /// From now on, what is written is about no image, or all.
    pub fn tell_no_image(&mut self) {
        self.image = None;
    }

    /// Writes a path in an image, after the name of that if it has to be said.
    pub fn path(&mut self, path: &[u8]) -> std::io::Result<()> {
        match &self.image {
            Some(image) => self.name(&[image, &b":"[..], path].concat()),
            None => self.name(path),
        }
    }

    /// Writes a name: as it is to a file or pipe, harmless to a terminal.
    pub fn name(&mut self, name: &[u8]) -> std::io::Result<()> {
        if self.escape { write!(self, "{}", Escaped(name)) } else { self.write_all(name) }
    }

    /// Writes a value as a line of JSON.
    pub fn json(&mut self, value: &impl serde::Serialize) -> anyhow::Result<()> {
        let mut line = match &self.image {
            Some(image) => serde_json::to_vec(&InImage { image: image.as_slice().into(), value })?,
            None => serde_json::to_vec(value)?,
        };
        line.push(b'\n');
        Ok(self.write_all(&line)?)
    }
}

impl Write for Output<'_> {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        self.writer.write(buffer).map_err(of_stdout)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.writer.flush().map_err(of_stdout)
    }
}
