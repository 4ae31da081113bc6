//! Policies as the user names them.

use anyhow::{Context, Result};
use drystone_ext4::Policy;

/// A policy and its name in results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyChoice {
    /// As the user wrote it.
    pub text: String,
    /// The engine's policy.
    pub policy: Policy,
}

impl PolicyChoice {
    /// Reads `baseline`, `scalable`, or `key=value,…`.
    ///
    /// # Errors
    /// The engine doesn't know it.
    pub fn parse(text: &str) -> Result<PolicyChoice> {
        let policy = text.parse().with_context(|| format!("--policy {text}"))?;
        Ok(PolicyChoice { text: text.to_string(), policy })
    }
}

/// The policy keys, each with its value in `baseline` and in `scalable`.
const KEYS: [(&str, &str, &str); 7] = [
    ("orphans", "list", "per-core"),
    ("inode-search", "first", "per-core"),
    ("inode-claim", "test-then-lock", "relock"),
    ("group-lock", "wait", "try"),
    ("block-goal", "global", "own-group"),
    ("group-scan", "linear", "size-lazy"),
    ("extent-reclaim", "lru-sorted", "round-robin"),
];

/// The value of a key in a policy's text, given explicitly or by its preset.
#[must_use]
pub fn value_of<'t>(text: &'t str, key: &str) -> Option<&'t str> {
    let (_, baseline, scalable) = KEYS.iter().find(|(name, ..)| *name == key)?;
    let mut value: &'t str = scalable;
    for part in text.split(',').map(str::trim) {
        match part.split_once('=') {
            None if part == "baseline" => value = baseline,
            None if part == "scalable" => value = scalable,
            Some((name, given)) if name == key => value = given,
            _ => {}
        }
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_from_the_text_or_its_preset() {
        assert_eq!(value_of("baseline", "orphans"), Some("list"));
        assert_eq!(value_of("scalable", "group-lock"), Some("try"));
        assert_eq!(value_of("orphans=none", "orphans"), Some("none"));
        assert_eq!(value_of("orphans=none", "block-goal"), Some("own-group"));
        assert_eq!(value_of("baseline,orphans=file", "orphans"), Some("file"));
        assert_eq!(value_of("baseline,orphans=file", "group-scan"), Some("linear"));
        assert_eq!(value_of("baseline", "colour"), None);
    }

    #[test]
    fn the_presets_are_those_of_the_engine() {
        let list = |value: fn(&(&str, &str, &str)) -> String| {
            KEYS.iter().map(value).collect::<Vec<_>>().join(",")
        };
        let baseline = list(|(key, baseline, _)| format!("{key}={baseline}"));
        assert_eq!(baseline.parse(), Ok(Policy::BASELINE));
        let scalable: Policy =
            list(|(key, _, scalable)| format!("{key}={scalable}")).parse().unwrap();
        // The preset itself leaves this to the image.
        assert_eq!(Policy { orphans: None, ..scalable }, Policy::SCALABLE);
        assert_eq!(KEYS.map(|(key, ..)| key), Policy::KEYS);
    }

    #[test]
    fn unknown_policies_are_refused() {
        assert!(PolicyChoice::parse("baseline").is_ok());
        let error = format!("{:#}", PolicyChoice::parse("orphans=heap").unwrap_err());
        assert!(error.contains("heap") && error.contains("file-locked"), "{error}");
    }
}
