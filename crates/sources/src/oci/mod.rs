//! OCI image layouts, and what `docker save` writes: layers over each other.
//!
//! A layout is a directory, or an archive of one. Everything that is used of it is compared with its
//! digest first; the layers that `docker save` writes are compared with those in the image's
//! configuration. Layers are uncompressed at the same time and applied in their order.
//!
//! # Reference
//! OCI Image Format Specification: image-layout, index, manifest, layer.

mod blob;
mod choose;
mod error;
mod files;

pub use choose::{Choice, Platform};
pub use error::{OciError, OciProblem};
pub(crate) use files::Files;

use crate::archive::{Archive, Opener};
use crate::error::Result;
use crate::layer::{self, Whiteouts};
use crate::source::Context;
use drystone_mkfs::tree::Tree;
use oci_spec::image::Digest;
use rayon::prelude::*;
use serde::Deserialize;

/// An image in `manifest.json` of an archive that `docker save` made.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SavedImage {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// What is used of an image's configuration.
#[derive(Deserialize)]
struct SavedConfiguration {
    rootfs: RootFileSystem,
}

#[derive(Deserialize)]
struct RootFileSystem {
    /// Digests of the uncompressed layers.
    diff_ids: Vec<Digest>,
}

/// Puts an image's layers into a tree, below the directory `at`.
pub(crate) fn add(tree: &mut Tree, files: &Files, context: &mut Context, at: &[u8]) -> Result<()> {
    let layers = if files.is_layout() {
        layers(files, &context.opener, &context.choice)?
    } else {
        saved_layers(files, &context.opener, &context.choice)?
    };
    for layer in layers {
        layer::add(tree, layer, at, Whiteouts::TakeAway, &mut context.warnings)?;
    }
    Ok(())
}

fn layers(files: &Files, opener: &Opener, choice: &Choice) -> Result<Vec<Archive>> {
    let manifest = choose::manifest(files, choice)?;
    for layer in manifest.layers() {
        let media_type = layer.media_type().to_string();
        let is_tar = media_type.contains(".tar") && !media_type.contains("encrypted");
        if !is_tar {
            return Err(files.error(OciProblem::Layer { media_type }));
        }
    }
    manifest.layers().par_iter().map(|layer| files.open_layer(layer, opener)).collect()
}

/// The images in an archive that `docker save` made.
fn saved_images(files: &Files) -> Result<Vec<SavedImage>> {
    let path = "manifest.json";
    choose::parse(files, path, "list of images", &files.read_json(path)?)
}

/// The layers of such an image, uncompressed and checked.
fn open_saved(files: &Files, opener: &Opener, image: &SavedImage) -> Result<Vec<Archive>> {
    let bytes = files.read_saved_configuration(&image.config)?;
    let configuration: SavedConfiguration =
        choose::parse(files, &image.config, "configuration", &bytes)?;
    let digests = configuration.rootfs.diff_ids;
    let (expected, found) = (digests.len(), image.layers.len());
    if expected != found {
        return Err(files.error(OciProblem::LayerCount { expected, found }));
    }
    let layers = image.layers.par_iter().zip(&digests);
    layers.map(|(path, digest)| files.open_saved_layer(path, digest, opener)).collect()
}

fn saved_layers(files: &Files, opener: &Opener, choice: &Choice) -> Result<Vec<Archive>> {
    let images = saved_images(files)?;
    let tags = |image: &SavedImage| image.repo_tags.clone().unwrap_or_default();
    let is_meant = |image: &&SavedImage| {
        choice.reference.as_ref().is_none_or(|reference| tags(image).contains(reference))
    };
    let meant: Vec<&SavedImage> = images.iter().filter(is_meant).collect();
    let wanted = choice.reference.as_ref().map(|name| format!("named {name}")).unwrap_or_default();
    let found = || images.iter().flat_map(tags).collect::<Vec<_>>().join(", ");
    match meant[..] {
        [image] => open_saved(files, opener, image),
        [] => Err(files.error(OciProblem::NoImage { wanted, found: found() })),
        _ => Err(files.error(OciProblem::Ambiguous { wanted, found: found() })),
    }
}
