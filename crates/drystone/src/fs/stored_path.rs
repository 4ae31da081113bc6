//! The path that a file was opened by, which errors name.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes of a path that is kept in place: an allocation costs as much as a look-up.
const SHORT_BYTES: usize = 39;

/// A path.
pub(super) enum StoredPath {
    Short { bytes: [u8; SHORT_BYTES], length: u8 },
    Long(Box<Path>),
}

impl StoredPath {
    pub fn new(path: &Path) -> StoredPath {
        let given = path.as_os_str().as_bytes();
        let mut bytes = [0; SHORT_BYTES];
        match bytes.get_mut(..given.len()) {
            Some(place) => {
                place.copy_from_slice(given);
                StoredPath::Short { bytes, length: given.len() as u8 }
            }
            None => StoredPath::Long(path.into()),
        }
    }

    pub fn get(&self) -> &Path {
        match self {
            StoredPath::Short { bytes, length } => {
                Path::new(OsStr::from_bytes(&bytes[..usize::from(*length)]))
            }
            StoredPath::Long(path) => path,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_any_length_are_kept() {
        for length in [0, 1, SHORT_BYTES, SHORT_BYTES + 1, 4000] {
            let path = "x".repeat(length);
            let stored = StoredPath::new(path.as_ref());
            assert_eq!(stored.get(), Path::new(&path));
            assert_eq!(matches!(stored, StoredPath::Long(_)), length > SHORT_BYTES);
        }
    }
}
