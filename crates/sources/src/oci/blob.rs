//! Blobs: opened by digest, and checked against it.

use super::files::LayoutFiles;
use crate::archive::{Archive, Opener};
use crate::error::{OciProblem, Result};
use crate::input::{FileRange, Input};
use oci_spec::image::{Descriptor, Digest as BlobDigest, DigestAlgorithm};
use sha2::{Digest, Sha256, Sha512};
use std::io::{self, Read, Write};

/// Layers are hashed in pieces of this.
const PIECE_BYTES: usize = 1 << 18;

/// A hash of the kind that a digest names.
enum Hasher {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Hasher {
    fn finish(self) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        match self {
            Hasher::Sha256(hasher) => hex(&hasher.finalize()),
            Hasher::Sha512(hasher) => hex(&hasher.finalize()),
        }
    }
}

/// Hashes the bytes of a blob as they are read.
struct Checked {
    hasher: Hasher,
    bytes: u64,
}

impl Write for Checked {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.hasher {
            Hasher::Sha256(hasher) => hasher.update(bytes),
            Hasher::Sha512(hasher) => hasher.update(bytes),
        }
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl LayoutFiles {
    /// The path of a blob and its expected digest.
    fn check_of(&self, digest: &BlobDigest) -> Result<(String, Checked)> {
        let path = format!("blobs/{}/{}", digest.algorithm(), digest.digest());
        Ok((path, self.checked(digest)?))
    }

    fn checked(&self, digest: &BlobDigest) -> Result<Checked> {
        let hasher = match digest.algorithm() {
            DigestAlgorithm::Sha256 => Hasher::Sha256(Sha256::new()),
            DigestAlgorithm::Sha512 => Hasher::Sha512(Sha512::new()),
            _ => return Err(self.error(OciProblem::Algorithm { digest: digest.to_string() })),
        };
        Ok(Checked { hasher, bytes: 0 })
    }

    /// A blob's file, which is as long as the descriptor says.
    fn open_blob(&self, path: &str, descriptor: &Descriptor) -> Result<FileRange> {
        let range = self.open(path)?;
        let (expected, found) = (descriptor.size(), range.length());
        if expected != found {
            return Err(self.error(OciProblem::Size { path: path.to_owned(), expected, found }));
        }
        Ok(range)
    }

    fn compare(&self, path: &str, checked: Checked, digest: &BlobDigest) -> Result<()> {
        let computed = checked.hasher.finish();
        if computed != digest.digest() {
            return Err(self.error(OciProblem::Digest { path: path.to_owned(), computed }));
        }
        Ok(())
    }

    /// The bytes of a small blob: an index, a manifest, a configuration.
    pub fn read_blob(&self, descriptor: &Descriptor) -> Result<(String, Vec<u8>)> {
        let (path, mut checked) = self.check_of(descriptor.digest())?;
        self.open_blob(&path, descriptor)?;
        let bytes = self.read_json(&path)?;
        checked.write_all(&bytes).map_err(|error| self.unreadable(&path, &error))?;
        self.compare(&path, checked, descriptor.digest())?;
        Ok((path, bytes))
    }

    /// A layer, uncompressed and checked.
    pub fn open_layer(&self, descriptor: &Descriptor, opener: &Opener) -> Result<Archive> {
        let (path, mut checked) = self.check_of(descriptor.digest())?;
        let range = self.open_blob(&path, descriptor)?;
        let archive = opener.uncompressed(&self.layer_name(&path), range.clone(), &mut checked)?;
        // A plain layer hasn't been read at all, and a decompressor may have stopped before the
        // blob's end.
        let hashed = checked.bytes;
        let mut rest = range.part(hashed, range.length() - hashed).unwrap_or(range).reader();
        self.hash(&path, &mut rest, &mut checked, opener)?;
        self.compare(&path, checked, descriptor.digest())?;
        Ok(archive)
    }

    /// The configuration of an image that `docker save` wrote, which is named by its digest.
    pub fn read_saved_configuration(&self, path: &str) -> Result<Vec<u8>> {
        let bytes = self.read_json(path)?;
        let name = path.rsplit('/').next().unwrap_or(path);
        let name = name.strip_suffix(".json").unwrap_or(name);
        let digest = format!("sha256:{}", name.strip_prefix("sha256:").unwrap_or(name));
        // Some tools name it differently; then it is the only one in the list.
        if let Ok(digest) = digest.parse::<BlobDigest>() {
            let mut checked = self.checked(&digest)?;
            checked.write_all(&bytes).map_err(|error| self.unreadable(path, &error))?;
            self.compare(path, checked, &digest)?;
        }
        Ok(bytes)
    }

    /// A layer that `docker save` wrote, uncompressed; the digest is that of the uncompressed bytes.
    pub fn open_saved_layer(
        &self,
        path: &str,
        digest: &BlobDigest,
        opener: &Opener,
    ) -> Result<Archive> {
        let mut checked = self.checked(digest)?;
        let archive = opener.uncompressed(&self.layer_name(path), self.open(path)?, io::sink())?;
        self.hash(path, &mut archive.input.clone().reader(), &mut checked, opener)?;
        self.compare(path, checked, digest)?;
        Ok(archive)
    }

    /// Reads everything in large pieces, to check it.
    fn hash(
        &self,
        path: &str,
        reader: &mut impl Read,
        checked: &mut Checked,
        opener: &Opener,
    ) -> Result<()> {
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            opener.go_on()?;
            let length = reader.read(&mut piece).map_err(|error| self.unreadable(path, &error))?;
            if length == 0 {
                return Ok(());
            }
            checked.write_all(&piece[..length]).map_err(|error| self.unreadable(path, &error))?;
        }
    }

    /// What a layer is called in messages.
    pub fn layer_name(&self, path: &str) -> String {
        format!("{}: {path}", self.name)
    }
}
