//! Chooses the image of a layout: indexes hold one for each platform and name.

use super::files::LayoutFiles;
use crate::archive::Opener;
use crate::choice::{Choice, Platform};
use crate::error::{OciProblem, Result};
use oci_spec::image::{Descriptor, Digest, ImageConfiguration, ImageIndex, ImageManifest};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;

/// How deeply indexes may be nested.
const NESTING_MAX: u32 = 8;
/// The most images and indexes that are read. Each may be a file of 4 MiB.
const DESCRIPTORS_MAX: usize = 4096;

/// A candidate image.
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
pub(super) fn manifest(
    files: &LayoutFiles,
    choice: &Choice,
    opener: &Opener,
) -> Result<ImageManifest> {
    let index = parse(files, "index.json", "index", &files.read_json("index.json")?)?;
    let mut search = ImageSearch {
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
struct ImageSearch<'s> {
    files: &'s LayoutFiles,
    opener: &'s Opener,
    candidates: Vec<Candidate>,
    /// What was read, by digest and name: a descriptor may be there many times.
    seen: HashSet<(Digest, Option<String>)>,
    /// Platforms by the digest of the configuration, which images may share.
    platforms: HashMap<Digest, Option<Platform>>,
}

impl ImageSearch<'_> {
    fn gather(&mut self, index: &ImageIndex, reference: Option<&str>, nesting: u32) -> Result<()> {
        for descriptor in index.manifests() {
            self.opener.go_on()?;
            let annotation = |name: &str| {
                let annotations = descriptor.annotations().as_ref();
                annotations.and_then(|annotations| annotations.get(name)).cloned()
            };
            // Signatures and the like, which are stored beside the image that they belong to.
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

    /// The platform in a descriptor, or else in the configuration.
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
        // An artifact's configuration doesn't name a platform.
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
    files: &LayoutFiles,
    path: &str,
    what: &'static str,
    bytes: &[u8],
) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|error| {
        files.error(OciProblem::Json { path: path.to_owned(), what, problem: error.to_string() })
    })
}
