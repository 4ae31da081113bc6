//! The image of a layout that the user wants.

use std::fmt;

/// A platform: `linux/arm64`, `linux/arm/v7`, or just an architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Platform {
    /// The operating system.
    pub os: String,
    /// The architecture, in the words of Go.
    pub architecture: String,
    /// Its variant.
    pub variant: Option<String>,
}

impl Platform {
    /// Reads `linux/arm64/v8`, with the system and the variant left out if need be.
    #[must_use]
    pub fn parse(text: &str) -> Option<Platform> {
        let parts: Vec<&str> = text.split('/').collect();
        let (os, architecture, variant) = match parts[..] {
            [architecture] => ("linux", architecture, None),
            [os, architecture] => (os, architecture, None),
            [os, architecture, variant] => (os, architecture, Some(variant.to_owned())),
            _ => return None,
        };
        if parts.iter().any(|part| part.is_empty()) {
            return None;
        }
        Some(Platform { os: os.into(), architecture: architecture.into(), variant })
    }

    /// The platform that this program runs on.
    #[must_use]
    pub fn of_host() -> Platform {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "x86" => "386",
            "aarch64" => "arm64",
            "powerpc64" => "ppc64le",
            "loongarch64" => "loong64",
            same => same,
        };
        Platform { os: "linux".into(), architecture: architecture.into(), variant: None }
    }

    /// Whether an image for `other` fits this platform. The variant counts only if it is given.
    pub(crate) fn accepts(&self, other: &Platform) -> bool {
        self.os == other.os
            && self.architecture == other.architecture
            && (self.variant.is_none() || self.variant == other.variant)
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.os, self.architecture)?;
        self.variant.iter().try_for_each(|variant| write!(formatter, "/{variant}"))
    }
}

/// What the user asks for.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// The platform; if not given, the only one there is, or this machine's.
    pub platform: Option<Platform>,
    /// The name (`org.opencontainers.image.ref.name`, a tag as a rule).
    pub reference: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::Platform;

    #[test]
    fn platforms() {
        for (text, shown) in [
            ("arm64", Some("linux/arm64")),
            ("linux/arm64", Some("linux/arm64")),
            ("linux/arm/v7", Some("linux/arm/v7")),
            ("", None),
            ("linux/", None),
            ("a/b/c/d", None),
        ] {
            assert_eq!(Platform::parse(text).map(|it| it.to_string()).as_deref(), shown, "{text}");
        }
        let any = Platform::parse("linux/arm").expect("valid");
        let seventh = Platform::parse("linux/arm/v7").expect("valid");
        assert!(any.accepts(&seventh));
        assert!(!seventh.accepts(&any));
    }
}
