//! What the command prints to.
//!
//! Standard output and standard error may be pipes whose other end is closed at any time. Nothing
//! here panics then: an image that is open has to be closed still.

use std::io::{IsTerminal, Write};

/// Says something on standard error. What it quotes of images, archives and other users must not steer a
/// terminal.
pub fn tell(message: impl std::fmt::Display) {
    let message = message.to_string();
    let lines: Vec<String> =
        message.lines().map(|line| crate::output::Escaped(line.as_bytes()).to_string()).collect();
    // If nobody listens any more, there is nobody to be told so. In one piece, so that lines of
    // several threads don't mix.
    let _ = std::io::stderr().write_all(format!("drystone: {}\n", lines.join("\n")).as_bytes());
}

/// Where events of the library go, which may quote names of images too.
pub struct Events<W>(pub W);

impl<W: Write> Write for Events<W> {
    /// Takes whole events, each of which ends its line.
    fn write(&mut self, event: &[u8]) -> std::io::Result<usize> {
        let line = event.strip_suffix(b"\n").unwrap_or(event);
        let line = format!("{}\n", crate::output::Escaped(line));
        self.0.write_all(line.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

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

    /// Runs `body` with standard output, and writes out what is left at the end.
    pub fn with_stdout<T>(
        json: bool,
        body: impl FnOnce(&mut Output<'_>) -> crate::failure::Outcome<T>,
    ) -> crate::failure::Outcome<T> {
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
            write!(self.writer, "{}", crate::output::Escaped(name))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_harmless_lines() {
        let mut written = Vec::new();
        Events(&mut written).write_all("ä \u{1b}[2J\nx\n".as_bytes()).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), "ä \\u{1b}[2J\\nx\n");
    }
}
