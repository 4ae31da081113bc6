//! Reads and writes spans of time such as `7d`, `12h` and `6d23h`.

const UNITS: [(char, u64); 4] = [('d', 86_400), ('h', 3600), ('m', 60), ('s', 1)];

/// Reads seconds, with or without a unit.
pub fn parse(text: &str) -> Result<u32, String> {
    let error = || format!("'{text}' isn't a time: a number, then nothing or d, h, m or s");
    let (number, unit) = match text.char_indices().next_back() {
        Some((at, last)) if !last.is_ascii_digit() => {
            let unit = UNITS.iter().find(|(letter, _)| *letter == last).ok_or_else(error)?;
            (&text[..at], unit.1)
        }
        _ => (text, 1),
    };
    let number: u64 = number.parse().map_err(|_| error())?;
    let seconds = number.checked_mul(unit).and_then(|seconds| u32::try_from(seconds).ok());
    seconds.ok_or_else(|| format!("{text} is too long"))
}

/// Writes seconds with the two largest units.
pub fn human(seconds: u64) -> String {
    let mut left = seconds;
    let mut text = String::new();
    let first = UNITS.iter().position(|&(_, unit)| seconds >= unit).unwrap_or(UNITS.len() - 1);
    for (letter, unit) in UNITS.iter().skip(first).take(2) {
        let count = left / unit;
        left %= unit;
        if count > 0 || text.is_empty() {
            text += &format!("{count}{letter}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_and_written() {
        for (text, seconds) in [("0", 0), ("90", 90), ("90s", 90), ("30m", 1800), ("7d", 604_800)] {
            assert_eq!(parse(text), Ok(seconds), "{text}");
        }
        for text in ["", "d", "-1", "1w", "1.5h", "60000d", "1d1h", "7é"] {
            assert!(parse(text).is_err(), "{text}");
        }
        for (seconds, text) in
            [(0, "0s"), (59, "59s"), (90, "1m30s"), (604_799, "6d23h"), (604_800, "7d")]
        {
            assert_eq!(human(seconds), text);
        }
    }
}
