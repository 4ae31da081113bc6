//! The paths that exist.

use crate::model::MemoryFileSystem;
use drystone_vfs::{FileType, RequestContext};

/// Paths that exist.
#[derive(Default)]
pub(super) struct Known {
    pub directories: Vec<Vec<u8>>,
    pub files: Vec<Vec<u8>>,
    pub others: Vec<Vec<u8>>,
}

impl Known {
    pub fn len(&self) -> usize {
        self.directories.len() + self.files.len() + self.others.len()
    }

    pub fn add(&mut self, path: Vec<u8>, file_type: FileType) {
        match file_type {
            FileType::Directory => self.directories.push(path),
            FileType::Regular => self.files.push(path),
            _ => self.others.push(path),
        }
    }

    pub fn remove(&mut self, path: &[u8]) {
        for list in [&mut self.directories, &mut self.files, &mut self.others] {
            if let Some(at) = list.iter().position(|known| known == path) {
                list.swap_remove(at);
                return;
            }
        }
    }

    /// Finds everything below `base` again.
    pub fn scan(&mut self, model: &MemoryFileSystem, base: &[u8]) {
        *self = Known::default();
        let entries = crate::walk::walk(model, &RequestContext::superuser(), base)
            .unwrap_or_else(|error| panic!("the model can't be walked: {error}"));
        self.directories.push(base.to_vec());
        for (path, attributes) in entries {
            if path != base && path != b"/" {
                self.add(path, attributes.file_type);
            }
        }
    }
}
