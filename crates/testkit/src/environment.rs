//! Settings of tests from environment variables: seeds and amounts.

/// The number in an environment variable; `None` if it isn't set. Panics if it isn't a number,
/// because a test that went on would seem to have done what was asked.
#[must_use]
pub fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{variable}={text}: {error}")))
}
