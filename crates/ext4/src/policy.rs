//! Policies: which form of a mechanism a mount uses.
//!
//! Each mechanism of the engine exists in the form that was published as the baseline and in an improved
//! form, so that what a lock or a search order costs can be measured. A policy is read in one place,
//! the `mod.rs` of its mechanism.

use std::fmt;
use std::str::FromStr;

/// Declares a policy: its type, its key, its values from baseline to scalable.
macro_rules! policy {
    ($(#[$doc:meta])* $name:ident, $key:literal { $($(#[$value_doc:meta])* $value:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$value_doc])* $value,)*
        }

        impl $name {
            /// The key in a list of policies.
            pub const KEY: &'static str = $key;
            /// All values.
            pub const VALUES: &'static [$name] = &[$($name::$value,)*];

            /// The value's name in a list of policies.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $($name::$value => $text,)* }
            }
        }

        impl FromStr for $name {
            type Err = UnknownPolicy;

            fn from_str(text: &str) -> Result<$name, UnknownPolicy> {
                let found = $name::VALUES.iter().copied().find(|value| value.name() == text);
                found.ok_or_else(|| UnknownPolicy {
                    text: format!("{}={text}", $name::KEY),
                    known: $name::VALUES.iter().map(|value| value.name()).collect(),
                })
            }
        }
    };
}

policy! {
    /// Where an inode that must be cleaned up after a crash is recorded.
    OrphanPolicy, "orphans" {
        /// In the list that starts in the superblock, under one mutex.
        List = "list",
        /// In the orphan file, under one spinlock.
        FileLocked = "file-locked",
        /// In the orphan file, without a lock.
        File = "file",
        /// Nowhere: a crash leaks space. For benchmarks, as the bound of what can be reached.
        Unrecorded = "none",
    }
}

/// A part of a list of policies that names none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown policy '{text}'; known: {}", known.join(", "))]
pub struct UnknownPolicy {
    text: String,
    known: Vec<&'static str>,
}

/// The forms that a mount uses, one for each mechanism.
///
/// As text: `baseline`, `scalable`, or a list such as `baseline,orphans=file`; what a list leaves out is
/// as in `scalable`, or in the preset that the list begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    /// Where orphans are recorded; `None`: in the orphan file without a lock if the image has one, else
    /// in the list.
    pub orphans: Option<OrphanPolicy>,
}

impl Policy {
    /// What was published as the starting point.
    pub const BASELINE: Policy = Policy { orphans: Some(OrphanPolicy::List) };
    /// What scales.
    pub const SCALABLE: Policy = Policy { orphans: None };
}

impl Default for Policy {
    fn default() -> Policy {
        Policy::SCALABLE
    }
}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Policy, UnknownPolicy> {
        let mut policy = Policy::SCALABLE;
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                None if part == "baseline" => policy = Policy::BASELINE,
                None if part == "scalable" => policy = Policy::SCALABLE,
                Some((OrphanPolicy::KEY, value)) => policy.orphans = Some(value.parse()?),
                _ => {
                    return Err(UnknownPolicy {
                        text: part.to_owned(),
                        known: vec!["baseline", "scalable", OrphanPolicy::KEY],
                    });
                }
            }
        }
        Ok(policy)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Policy::BASELINE => f.write_str("baseline"),
            Policy::SCALABLE => f.write_str("scalable"),
            Policy { orphans } => {
                f.write_str("scalable")?;
                if let Some(orphans) = orphans {
                    write!(f, ",{}={}", OrphanPolicy::KEY, orphans.name())?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_policy_are_the_same() {
        for text in
            ["baseline", "scalable", "scalable,orphans=file-locked", "scalable,orphans=none"]
        {
            assert_eq!(text.parse::<Policy>().unwrap().to_string(), text);
        }
        assert_eq!("orphans=list".parse(), Ok(Policy::BASELINE));
        assert_eq!(
            "baseline,orphans=file".parse::<Policy>().unwrap().orphans,
            Some(OrphanPolicy::File)
        );
    }

    #[test]
    fn what_is_unknown_is_named() {
        let error = "orphans=heap".parse::<Policy>().unwrap_err().to_string();
        assert!(error.contains("orphans=heap") && error.contains("file-locked"), "{error}");
        assert!("fast".parse::<Policy>().is_err());
    }
}
