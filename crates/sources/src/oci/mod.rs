//! OCI image layouts, and what `docker save` writes: layers over each other.
//!
//! A layout is a directory, or an archive of one. Every file that is used is first checked against
//! its digest; layers that `docker save` writes are checked against the image's configuration.
//! Layers are uncompressed in parallel and applied in order.
//!
//! # Reference
//! OCI Image Format Specification: image-layout, index, manifest, layer.

mod blob;
mod choose;
mod files;

pub use crate::choice::{Choice, Platform};
pub use crate::error::{OciError, OciProblem};
pub(crate) use files::LayoutFiles;

use crate::archive::Archive;
use crate::context::SourceContext;
use crate::error::Result;
use crate::layer::{self, Whiteouts};
use drystone_mkfs::tree::FileTree;
use drystone_sync::atomic::{AtomicUsize, Ordering};
use drystone_sync::{LockClass, Mutex, thread};
use oci_spec::image::Digest;
use serde::Deserialize;

/// Layers that were opened, with their places.
static OPENED: LockClass = LockClass::new("layers opened", 112);

/// An image in `manifest.json` of an archive that `docker save` made.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SavedImage {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// The fields of an image's configuration that are used.
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
pub(crate) fn add(
    tree: &mut FileTree,
    files: &LayoutFiles,
    context: &mut SourceContext,
    at: &[u8],
) -> Result<()> {
    let layers = match files.is_layout() {
        true => layers(files, context)?,
        false => saved_layers(files, context)?,
    };
    for layer in layers {
        layer::add(tree, layer, at, Whiteouts::TakeAway, context)?;
    }
    Ok(())
}

fn layers(files: &LayoutFiles, context: &SourceContext) -> Result<Vec<Archive>> {
    let manifest = choose::manifest(files, &context.choice, &context.opener)?;
    for layer in manifest.layers() {
        let media_type = layer.media_type().to_string();
        let is_tar = media_type.contains(".tar") && !media_type.contains("encrypted");
        if !is_tar {
            return Err(files.error(OciProblem::Layer { media_type }));
        }
    }
    open_all(manifest.layers(), context.threads, |layer| files.open_layer(layer, &context.opener))
}

/// Opens layers, as many at a time as there are threads.
fn open_all<T: Sync>(
    layers: &[T],
    threads: usize,
    open: impl Fn(&T) -> Result<Archive> + Sync,
) -> Result<Vec<Archive>> {
    let next = AtomicUsize::new(0);
    let opened = Mutex::new(&OPENED, Vec::new());
    thread::together("layer", threads.min(layers.len()), || {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(layer) = layers.get(place) else { return };
            let result = open(layer);
            if result.is_err() {
                next.store(layers.len(), Ordering::Relaxed);
            }
            opened.lock().push((place, result));
        }
    });
    let mut opened = opened.into_inner();
    opened.sort_by_key(|(place, _)| *place);
    opened.into_iter().map(|(_, result)| result).collect()
}

/// The images in an archive that `docker save` made.
fn saved_images(files: &LayoutFiles) -> Result<Vec<SavedImage>> {
    let path = "manifest.json";
    if !files.has(path) {
        // An OCI layout has both.
        let missing = if files.has("index.json") { "oci-layout" } else { "index.json" };
        return Err(files.error(OciProblem::Missing { path: missing.to_owned() }));
    }
    choose::parse(files, path, "list of images", &files.read_json(path)?)
}

/// The layers of such an image, uncompressed and checked.
fn open_saved(
    files: &LayoutFiles,
    context: &SourceContext,
    image: &SavedImage,
) -> Result<Vec<Archive>> {
    let bytes = files.read_saved_configuration(&image.config)?;
    let configuration: SavedConfiguration =
        choose::parse(files, &image.config, "configuration", &bytes)?;
    let digests = configuration.rootfs.diff_ids;
    let (expected, found) = (digests.len(), image.layers.len());
    if expected != found {
        return Err(files.error(OciProblem::LayerCount { expected, found }));
    }
    let layers: Vec<_> = image.layers.iter().zip(&digests).collect();
    open_all(&layers, context.threads, |(path, digest)| {
        files.open_saved_layer(path, digest, &context.opener)
    })
}

fn saved_layers(files: &LayoutFiles, context: &SourceContext) -> Result<Vec<Archive>> {
    let choice = &context.choice;
    let images = saved_images(files)?;
    let tags = |image: &SavedImage| image.repo_tags.clone().unwrap_or_default();
    let is_meant = |image: &&SavedImage| {
        choice.reference.as_ref().is_none_or(|reference| tags(image).contains(reference))
    };
    let meant: Vec<&SavedImage> = images.iter().filter(is_meant).collect();
    let wanted = choice.reference.as_ref().map(|name| format!("named {name}")).unwrap_or_default();
    let found = || images.iter().flat_map(tags).collect::<Vec<_>>().join(", ");
    match meant[..] {
        [image] => open_saved(files, context, image),
        [] => Err(files.error(OciProblem::NoImage { wanted, found: found() })),
        _ => Err(files.error(OciProblem::Ambiguous { wanted, found: found() })),
    }
}
