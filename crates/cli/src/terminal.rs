//! Standard output.
//!
//! It may be a pipe whose other end is closed at any time. Nothing here panics then: an image that is
//! open must still be closed.

use crate::failure::Outcome;
use crate::output::Escaped;
use std::io::{IsTerminal, Write};

/// Prints a line on standard output.
pub fn print_line(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Standard output, and how names are to be written to it.
pub struct Output<'w> {
    writer: &'w mut dyn Write,
    /// A terminal must not get control characters from names in an image.
    escape: bool,
    /// JSON was asked for.
    pub json: bool,
}

impl<'w> Output<'w> {
    /// Output to `writer`.
    pub fn new(writer: &'w mut dyn Write, escape: bool, json: bool) -> Output<'w> {
        Output { writer, escape, json }
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
        flushed?;
        Ok(value)
    }

    /// Writes a name: as it is to a file or pipe, harmless to a terminal.
    pub fn name(&mut self, name: &[u8]) -> std::io::Result<()> {
        if self.escape {
            write!(self.writer, "{}", Escaped(name))
        } else {
            self.writer.write_all(name)
        }
    }

    /// Writes a value as a line of JSON.
    pub fn json(&mut self, value: &impl serde::Serialize) -> anyhow::Result<()> {
        serde_json::to_writer(&mut *self.writer, value)?;
        self.writer.write_all(b"\n")?;
        Ok(())
    }
}

impl Write for Output<'_> {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        self.writer.write(buffer)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.writer.flush()
    }
}
