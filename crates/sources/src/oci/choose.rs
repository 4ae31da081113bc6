//! Which image of a layout: indexes hold one for each platform and name.

use super::error::OciProblem;
use super::files::Files;
use crate::archive::Opener;
use crate::error::Result;
use oci_spec::image::{Descriptor, Digest, ImageConfiguration, ImageIndex, ImageManifest};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;

/// Indexes that may point at each other.
const NESTING_MAX: u32 = 8;
/// Images and indexes that are looked at. Each may be a file of 4 MiB.
const DESCRIPTORS_MAX: usize = 4096;

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
pub(super) fn manifest(files: &Files, choice: &Choice, opener: &Opener) -> Result<ImageManifest> {
    let index = parse(files, "index.json", "index", &files.read_json("index.json")?)?;
    let mut search = Search {
        files,
        opener,
        candidates: Vec::new(),
        seen: HashSet::new(),
        platforms: HashMap::new(),
    };
    search.gather(&index, None, NESTING_MAX)?;
    let mut candidates = search.candidates;
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

/// Finds the images of an index and of those that it points at.
struct Search<'s> {
    files: &'s Files,
    opener: &'s Opener,
    candidates: Vec<Candidate>,
    /// What was looked at, by digest and name: a descriptor may be there many times.
    seen: HashSet<(Digest, Option<String>)>,
    /// Platforms by the digests of the configurations that say so, which images may share.
    platforms: HashMap<Digest, Option<Platform>>,
}

impl Search<'_> {
    fn gather(&mut self, index: &ImageIndex, reference: Option<&str>, nesting: u32) -> Result<()> {
        for descriptor in index.manifests() {
            self.opener.go_on()?;
            let annotation = |name: &str| {
                let annotations = descriptor.annotations().as_ref();
                annotations.and_then(|annotations| annotations.get(name)).cloned()
            };
            // Signatures and the like, which lie beside what they are about.
            if annotation("vnd.docker.reference.type").is_some() {
                continue;
            }
            let reference = annotation("org.opencontainers.image.ref.name")
                .or_else(|| annotation("io.containerd.image.name"))
                .or_else(|| reference.map(str::to_owned));
            let media_type = descriptor.media_type().to_string();
            let is_index = media_type.ends_with("index.v1+json")
                || media_type.ends_with("manifest.list.v2+json");
            if !is_index && !media_type.contains(".manifest.v") {
                continue;
            }
            if !self.seen.insert((descriptor.digest().clone(), reference.clone())) {
                continue;
            }
            if self.seen.len() > DESCRIPTORS_MAX {
                return Err(self.files.error(OciProblem::TooMany(DESCRIPTORS_MAX)));
            }
            if is_index {
                let deeper = nesting
                    .checked_sub(1)
                    .ok_or_else(|| self.files.error(OciProblem::Nesting(NESTING_MAX)))?;
                let (path, bytes) = self.files.read_blob(descriptor)?;
                let index = parse(self.files, &path, "index", &bytes)?;
                self.gather(&index, reference.as_deref(), deeper)?;
            } else {
                let platform = self.platform(descriptor)?;
                let descriptor = descriptor.clone();
                self.candidates.push(Candidate { descriptor, reference, platform });
            }
        }
        Ok(())
    }

    /// What a descriptor says, or else the configuration.
    fn platform(&mut self, descriptor: &Descriptor) -> Result<Option<Platform>> {
        if let Some(platform) = descriptor.platform() {
            return Ok(Some(Platform {
                os: platform.os().to_string(),
                architecture: platform.architecture().to_string(),
                variant: platform.variant().clone(),
            }));
        }
        let (path, bytes) = self.files.read_blob(descriptor)?;
        let manifest: ImageManifest = parse(self.files, &path, "manifest", &bytes)?;
        let digest = manifest.config().digest();
        if let Some(known) = self.platforms.get(digest) {
            return Ok(known.clone());
        }
        // An artifact's configuration says nothing of platforms.
        let configuration = self.files.read_blob(manifest.config()).ok();
        let configuration =
            configuration.and_then(|(_, bytes)| ImageConfiguration::from_reader(&bytes[..]).ok());
        let platform = configuration.map(|configuration| Platform {
            os: configuration.os().to_string(),
            architecture: configuration.architecture().to_string(),
            variant: configuration.variant().clone(),
        });
        self.platforms.insert(digest.clone(), platform.clone());
        Ok(platform)
    }
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
