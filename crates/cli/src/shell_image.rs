//! The one image of a shell, which stays open between its commands.
//!
//! # State
//! It is opened for reading, and again for changes by the first command that makes any: a shell that
//! only looks changes nothing, and several may look at once.

use crate::location::is_same_image;
use anyhow::Context;
use drystone::Image;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// An image that is kept open, or opened again when it is needed.
#[derive(Debug)]
pub struct ShellImage {
    path: PathBuf,
    open: RefCell<Option<OpenState>>,
}

#[derive(Debug)]
struct OpenState {
    may_change: bool,
    image: Rc<Image>,
}

impl ShellImage {
    /// One that isn't open yet.
    pub fn new(path: &Path) -> ShellImage {
        ShellImage { path: path.to_path_buf(), open: RefCell::new(None) }
    }

    /// True if `path` names it.
    pub fn is_at(&self, path: &Path) -> bool {
        self.path == path || is_same_image(&self.path, path)
    }

    /// The image. `open` opens it, if it isn't open or is to be changed now.
    pub fn image(
        &self,
        may_change: bool,
        open: impl FnOnce() -> anyhow::Result<Image>,
    ) -> anyhow::Result<Rc<Image>> {
        let mut state = self.open.borrow_mut();
        if let Some(there) = state.as_ref().filter(|there| there.may_change || !may_change) {
            return Ok(Rc::clone(&there.image));
        }
        if let Some(there) = state.take() {
            self.close_last(there.image)?;
        }
        let image = Rc::new(open()?);
        *state = Some(OpenState { may_change, image: Rc::clone(&image) });
        Ok(image)
    }

    /// Makes all changes durable.
    pub fn sync(&self) -> anyhow::Result<()> {
        match &*self.open.borrow() {
            Some(there) if there.may_change => self.named(there.image.fs().sync()),
            _ => Ok(()),
        }
    }

    /// Closes the image. All changes are durable then.
    pub fn close(&self) -> anyhow::Result<()> {
        match self.open.take() {
            Some(there) => self.close_last(there.image),
            None => Ok(()),
        }
    }

    /// Closes the image, which no command uses any more.
    fn close_last(&self, image: Rc<Image>) -> anyhow::Result<()> {
        match Rc::try_unwrap(image) {
            Ok(image) => self.named(image.close()),
            // A command that holds it closes it when it ends.
            Err(_) => Ok(()),
        }
    }

    fn named(&self, result: drystone::Result<()>) -> anyhow::Result<()> {
        result.map_err(drystone::Error::into_cause).with_context(|| self.path.display().to_string())
    }
}
