//! Messages on standard error.
//!
//! Messages quote images, archives and other users, so control characters are escaped. Standard error
//! may be a closed pipe; nothing here panics then.

use crate::output::Escaped;
use std::io::Write;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

/// Prints a message after the program's name.
pub fn tell(message: impl std::fmt::Display) {
    let message = without_numbers(&message.to_string());
    let lines: Vec<String> =
        message.lines().map(|line| Escaped(line.as_bytes()).to_string()).collect();
    // In one write, so that lines of several threads don't mix. There is nowhere to report an
    // error.
    let _ = std::io::stderr().write_all(format!("drystone: {}\n", lines.join("\n")).as_bytes());
}

/// A message without the numbers that the standard library adds to what the system says.
fn without_numbers(message: &str) -> String {
    let mut parts = message.split(" (os error ");
    let mut kept = parts.next().unwrap_or_default().to_string();
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if number.bytes().all(|digit| digit.is_ascii_digit()) => {
                kept += rest;
            }
            _ => kept = kept + " (os error " + part,
        }
    }
    kept
}

/// Gives a layer the events of a level and above from now on, or those that `RUST_LOG` names.
///
/// `EnvFilter` would know more, such as the fields of spans, but brings regular expressions for that.
pub fn report_events(layer: impl Layer<Registry> + Send + Sync, level: LevelFilter) {
    let asked = std::env::var("RUST_LOG").ok().and_then(|text| text.parse::<Targets>().ok());
    let filter = asked.unwrap_or_else(|| Targets::new().with_default(level));
    tracing_subscriber::registry().with(layer.with_filter(filter)).init();
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
    fn numbers_of_errors_are_left_out() {
        let error = std::io::Error::from_raw_os_error(2);
        let told =
            without_numbers(&format!("a: {error}; b: {error}, (os error x) and (os error 1"));
        let expected = "a: No such file or directory; b: No such file or directory, (os error x) and (os error 1";
        assert_eq!(told, expected);
    }

    #[test]
    fn events_are_harmless_lines() {
        let mut written = Vec::new();
        Events(&mut written).write_all("ä \u{1b}[2J\nx\n".as_bytes()).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), "ä \\u{1b}[2J\\nx\n");
    }
}
