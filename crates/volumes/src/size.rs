//! Sizes as people write them: `4G`, `512K`, `1.5M`.

/// Reads a number of bytes, with a suffix of powers of 1024 (`K`, `M`, `G`, `T`, `P`, with or
/// without `iB`) or of 1000 (`KB`, `MB`, …).
///
/// # Errors
///
/// What is wrong with the text, in a sentence.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let unit = unit(suffix).ok_or_else(|| {
        format!("'{text}' isn't a size: a number, then nothing or K, M, G, T or P")
    })?;
    let not_a_number = || format!("'{text}' isn't a size: '{number}' isn't a number");
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || (number.contains('.') && (fraction.is_empty() || fraction.len() > 9)) {
        return Err(not_a_number());
    }
    let whole: u128 = whole.parse().map_err(|_| not_a_number())?;
    let mut bytes = whole.checked_mul(unit).ok_or_else(|| format!("{text} is too large"))?;
    if !fraction.is_empty() {
        let numerator: u128 = fraction.parse().map_err(|_| not_a_number())?;
        bytes += numerator * unit / 10_u128.pow(fraction.len() as u32);
    }
    u64::try_from(bytes).map_err(|_| format!("{text} is too large"))
}

fn unit(suffix: &str) -> Option<u128> {
    let suffix = suffix.to_ascii_uppercase();
    if suffix.is_empty() || suffix == "B" {
        return Some(1);
    }
    let mut letters = suffix.chars();
    let letter = letters.next()?;
    let power = "KMGTP".find(letter)? as u32 + 1;
    match letters.as_str() {
        "" | "IB" => Some(1024_u128.pow(power)),
        "B" => Some(1000_u128.pow(power)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [
            ("0", 0),
            ("1", 1),
            ("512K", 512 << 10),
            ("64M", 64 << 20),
            ("64m", 64 << 20),
            ("4G", 4 << 30),
            ("16T", 16 << 40),
            ("1.5K", 1536),
            ("2KiB", 2048),
            ("2KB", 2000),
            ("100B", 100),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in
            ["", "K", "-1", "1X", "1KK", "1.2.3", ".5", "1.", "4 G", "1e3", "20000P", "0x10"]
        {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
