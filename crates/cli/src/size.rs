//! Sizes as people write them and read them: `4G`, `512K`, `1.5M`.

pub use drystone::parse_size as parse;

/// Writes a number of bytes for a sentence: `4.0 KiB`, `12 MiB`.
pub fn bytes(bytes: u64) -> String {
    let text = human(bytes);
    match text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic()) {
        number if number.len() < text.len() => format!("{number} {}iB", &text[number.len()..]),
        _ => format!("{text} B"),
    }
}

/// Writes a number of bytes for a column, with three digits or so: `4.0K`, `12M`.
pub fn human(bytes: u64) -> String {
    if bytes < 1024 {
        return bytes.to_string();
    }
    let mut amount = bytes as f64;
    let mut suffix = ' ';
    for letter in "KMGTPE".chars() {
        if amount < 1024.0 {
            break;
        }
        amount /= 1024.0;
        suffix = letter;
    }
    if amount < 10.0 { format!("{amount:.1}{suffix}") } else { format!("{amount:.0}{suffix}") }
}

/// Writes a number of bytes that are used, as du(1) does: rounded up, without a blank.
pub fn human_used(bytes: u64) -> String {
    let bytes = u128::from(bytes);
    let mut unit = 1;
    for letter in ["", "K", "M", "G", "T", "P"] {
        let tenths = (bytes * 10).div_ceil(unit);
        if tenths < 100 && unit > 1 {
            return format!("{}.{}{letter}", tenths / 10, tenths % 10);
        }
        if bytes.div_ceil(unit) < 1024 {
            return format!("{}{letter}", bytes.div_ceil(unit));
        }
        unit *= 1024;
    }
    format!("{}E", bytes.div_ceil(unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written() {
        for (bytes, text) in
            [(0, "0"), (1023, "1023"), (1024, "1.0K"), (12 << 20, "12M"), (3 << 29, "1.5G")]
        {
            assert_eq!(human(bytes), text);
        }
        assert_eq!(human(u64::MAX), "16E");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(12 << 20), "12 MiB");
    }

    #[test]
    fn used_sizes_are_rounded_up() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10_137, "9.9K"),
            (10_138, "10K"),
            (10_241, "11K"),
            (1_047_552, "1023K"),
            (1_047_553, "1.0M"),
            (u64::MAX, "16E"),
        ] {
            assert_eq!(human_used(bytes), text, "{bytes}");
        }
    }
}
