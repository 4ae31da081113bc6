//! Messages on standard error.
//!
//! Messages quote images, archives and other users, so control characters are escaped. Standard error
//! may be a closed pipe; nothing here panics then.

use crate::output::Escaped;
use std::io::Write;

/// Prints a message after the program's name.
pub fn tell(message: impl std::fmt::Display) {
    let message = message.to_string();
    let lines: Vec<String> =
        message.lines().map(|line| Escaped(line.as_bytes()).to_string()).collect();
    // In one write, so that lines of several threads don't mix. There is nowhere to report an
    // error.
    let _ = std::io::stderr().write_all(format!("drystone: {}\n", lines.join("\n")).as_bytes());
}

/// Where events of the library go.
pub struct Events<W>(pub W);

impl<W: Write> Write for Events<W> {
    /// Takes whole events, each of which ends its line.
    fn write(&mut self, event: &[u8]) -> std::io::Result<usize> {
        let line = event.strip_suffix(b"\n").unwrap_or(event);
        let line = format!("{}\n", Escaped(line));
        self.0.write_all(line.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
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
