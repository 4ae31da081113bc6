//! What changed since an older image.

use super::Extraction;
use crate::failure::Outcome;
use crate::image::{Intent, close, open};
use crate::location::Location;
use crate::progress::Progress;
use drystone::{Image, Layer};

impl Extraction<'_> {
    /// Finds what leads from the tree at `old` to the one that is extracted. Nothing of the old image is needed
    /// afterwards.
    pub fn layer(&self, image: &Image, old: &Location) -> Outcome<Layer> {
        let from = &self.arguments.from;
        let opened = open(&old.image, Intent::Read, self.global)?;
        let prefixes = [&old.image, &from.image].map(|image| format!("{}:", image.display()));
        let verbose = self.global.verbose > 0;
        let interrupt = Some(self.interrupt.clone());
        let progress = Progress::new(self.global.quiet, verbose, prefixes, interrupt);
        let (files, old_files) = (image.fs(), opened.fs());
        let places = ((&old_files, old.path.as_path()), (&files, from.path.as_path()));
        let found =
            progress.during(|| Layer::new(places.0, places.1, &self.options(image), &progress));
        drop(old_files);
        close(&old.image, opened, found.map_err(|error| anyhow::Error::from(error).into()))
    }
}
