//! Names that a copy makes in directories that compare names without case.
//!
//! Two names that differ only in case are two entries of the source and one entry of such a directory. The
//! second would silently replace what the same copy has just made of the first. It is refused instead, as GNU
//! `cp` does. An entry that was there before the copy is replaced, whatever its spelling.

use drystone_vfs::{Errno, Error, InodeNumber, Result};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// The names, by their directory and their folded form.
#[derive(Default)]
pub(super) struct FoldedNames {
    names: HashMap<(InodeNumber, Vec<u8>), Vec<u8>>,
}

impl FoldedNames {
    /// Notes a name and its folded form. Fails if the copy has noted another spelling of it.
    pub fn note(&mut self, directory: InodeNumber, folded: Vec<u8>, name: &[u8]) -> Result<()> {
        let first = self.names.entry((directory, folded)).or_insert_with(|| name.to_vec());
        if first == name {
            return Ok(());
        }
        let first = OsStr::from_bytes(first).display();
        let detail = format!("the directory takes it for '{first}', which is copied too");
        Err(Error::with_detail(Errno::EEXIST, detail))
    }
}
