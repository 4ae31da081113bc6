//! What tests are told from outside: seeds, and how much to do.

/// The number in an environment variable; nothing if it isn't set. What is no number is no answer:
/// a test that went on would look as if it had done what was asked.
#[must_use]
pub fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{variable}={text}: {error}")))
}
