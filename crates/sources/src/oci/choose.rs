//! Which image of a layout: indexes hold one for each platform and name.

use super::error::OciProblem;
use super::files::Files;
use crate::error::Result;
use oci_spec::image::{Descriptor, ImageConfiguration, ImageIndex, ImageManifest};
use std::collections::BTreeSet;
use std::fmt;

/// Indexes that may point at each other.
const NESTING_MAX: u32 = 8;

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

    /// The one that this program runs on.
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

    /// Whether an image for `other` is one for this; a variant counts where it is asked for.
    fn accepts(&self, other: &Platform) -> bool {
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

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// The platform; otherwise the only one there is, or this machine's.
    pub platform: Option<Platform>,
    /// The name (`org.opencontainers.image.ref.name`, a tag as a rule).
    pub reference: Option<String>,
}

/// An image that may be meant.
struct Candidate {
    descriptor: Descriptor,
    reference: Option<String>,
    platform: Option<Platform>,
}

impl fmt::Display for Candidate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reference {
            Some(reference) => write!(formatter, "{reference}")?,
            None => write!(formatter, "{}", self.descriptor.digest())?,
        }
        self.platform.iter().try_for_each(|platform| write!(formatter, " for {platform}"))
    }
}

/// Finds the manifest that is asked for.
pub(super) fn manifest(files: &Files, choice: &Choice) -> Result<ImageManifest> {
    let index = parse(files, "index.json", "index", &files.read_json("index.json")?)?;
    let mut candidates = Vec::new();
    gather(files, &index, None, NESTING_MAX, &mut candidates)?;
    let all: BTreeSet<String> = candidates.iter().map(Candidate::to_string).collect();
    if let Some(reference) = &choice.reference {
        candidates.retain(|candidate| candidate.reference.as_ref() == Some(reference));
    }
    let is_choice_left = candidates.len() > 1;
    let platform = match &choice.platform {
        Some(platform) => Some(platform.clone()),
        None => is_choice_left.then(Platform::of_host),
    };
    if let Some(wanted) = &platform {
        let accepted = |candidate: &Candidate| {
            candidate.platform.as_ref().is_none_or(|platform| wanted.accepts(platform))
        };
        candidates.retain(accepted);
    }
    candidates.dedup_by(|left, right| left.descriptor.digest() == right.descriptor.digest());
    let wanted = [
        choice.reference.as_ref().map(|reference| format!("named {reference}")),
        platform.map(|platform| format!("for {platform}")),
    ];
    let wanted = wanted.into_iter().flatten().collect::<Vec<_>>().join(" ");
    let list = |names: BTreeSet<String>| {
        if names.is_empty() {
            "none".into()
        } else {
            names.into_iter().collect::<Vec<_>>().join(", ")
        }
    };
    match &candidates[..] {
        [candidate] => {
            let (path, bytes) = files.read_blob(&candidate.descriptor)?;
            parse(files, &path, "manifest", &bytes)
        }
        [] => Err(files.error(OciProblem::NoImage { wanted, found: list(all) })),
        several => {
            let found = list(several.iter().map(Candidate::to_string).collect());
            Err(files.error(OciProblem::Ambiguous { wanted, found }))
        }
    }
}

/// Adds the images of an index and of those that it points at.
fn gather(
    files: &Files,
    index: &ImageIndex,
    reference: Option<&str>,
    nesting: u32,
    candidates: &mut Vec<Candidate>,
) -> Result<()> {
    for descriptor in index.manifests() {
        let annotation = |name: &str| {
            descriptor.annotations().as_ref().and_then(|annotations| annotations.get(name)).cloned()
        };
        // Signatures and the like, which lie beside what they are about.
        if annotation("vnd.docker.reference.type").is_some() {
            continue;
        }
        let reference = annotation("org.opencontainers.image.ref.name")
            .or_else(|| annotation("io.containerd.image.name"))
            .or_else(|| reference.map(str::to_owned));
        let media_type = descriptor.media_type().to_string();
        if media_type.ends_with("index.v1+json") || media_type.ends_with("manifest.list.v2+json") {
            let deeper = nesting
                .checked_sub(1)
                .ok_or_else(|| files.error(OciProblem::Nesting(NESTING_MAX)))?;
            let (path, bytes) = files.read_blob(descriptor)?;
            let index = parse(files, &path, "index", &bytes)?;
            gather(files, &index, reference.as_deref(), deeper, candidates)?;
        } else if media_type.contains(".manifest.v") {
            let platform = platform(files, descriptor)?;
            candidates.push(Candidate { descriptor: descriptor.clone(), reference, platform });
        }
    }
    Ok(())
}

/// What a descriptor says, or else the configuration.
fn platform(files: &Files, descriptor: &Descriptor) -> Result<Option<Platform>> {
    if let Some(platform) = descriptor.platform() {
        return Ok(Some(Platform {
            os: platform.os().to_string(),
            architecture: platform.architecture().to_string(),
            variant: platform.variant().clone(),
        }));
    }
    let (path, bytes) = files.read_blob(descriptor)?;
    let manifest: ImageManifest = parse(files, &path, "manifest", &bytes)?;
    // An artifact's configuration says nothing of platforms.
    let Ok((_, bytes)) = files.read_blob(manifest.config()) else { return Ok(None) };
    let Ok(configuration) = ImageConfiguration::from_reader(&bytes[..]) else { return Ok(None) };
    Ok(Some(Platform {
        os: configuration.os().to_string(),
        architecture: configuration.architecture().to_string(),
        variant: configuration.variant().clone(),
    }))
}

/// Reads an index or a manifest.
pub(super) fn parse<T: serde::de::DeserializeOwned>(
    files: &Files,
    path: &str,
    what: &'static str,
    bytes: &[u8],
) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|error| {
        files.error(OciProblem::Json { path: path.to_owned(), what, problem: error.to_string() })
    })
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
