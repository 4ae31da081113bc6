//! Sizes as people write them and read them: `4G`, `512K`, `1.5M`.

pub use drystone::parse_size as parse;

/// Writes a number of bytes with three digits or so: `4.0K`, `12M`.
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
    }
}
