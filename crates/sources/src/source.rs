//! The sources that `--from` names. Their kind is detected unless the user states it.

use crate::archive::{Archive, Opener, looks_like_archive};
use crate::bytes::shown;
use crate::context::SourceContext;
use crate::directory::{DirectoryOptions, read_directory_at};
use crate::error::{Error, Result};
use crate::layer::{self, Whiteouts};
use crate::list::{LineError, for_each_line};
#[cfg(feature = "oci")]
use crate::oci::{self, LayoutFiles};
use crate::tar::clean_path;
use crate::xattrs;
use drystone_mkfs::tree::{FileTree, InodeTimestamp, NodeMetadata, NodeToInsert};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Adds what an open archive holds to a tree, over what is there.
///
/// # Errors
/// It is damaged, or can't be in an image.
pub fn add_archive(
    tree: &mut FileTree,
    archive: Archive,
    context: &mut SourceContext,
) -> Result<()> {
    layer::add(tree, archive, b"", Whiteouts::AreFiles, context)
}

/// The kind of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    /// To be detected.
    Any,
    /// A directory.
    Directory,
    /// A tar archive, whatever is in it.
    Tar,
    /// An OCI layout, or an archive of one.
    #[cfg(feature = "oci")]
    Oci,
    /// A file that is to be in the image as it is.
    File,
}

/// Something that an image is built from, and where in the image it goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// What it is.
    pub kind: SourceKind,
    /// Where it is; `-` is standard input.
    pub path: PathBuf,
    /// The directory of the image that it goes to, also by a symbolic link, or the name that a file
    /// gets; empty for the root.
    pub at: Vec<u8>,
}

impl Source {
    /// Reads `[dir:|tar:|oci:|file:]PATH`, which goes to the image's root.
    #[must_use]
    pub fn parse(text: &OsStr) -> Source {
        let kinds = [
            (&b"dir:"[..], SourceKind::Directory),
            (b"tar:", SourceKind::Tar),
            #[cfg(feature = "oci")]
            (b"oci:", SourceKind::Oci),
            (b"file:", SourceKind::File),
        ];
        let bytes = text.as_bytes();
        let said = kinds.iter().find_map(|(prefix, kind)| {
            bytes.strip_prefix(*prefix).map(|path| (*kind, OsStr::from_bytes(path)))
        });
        let (kind, path) = said.unwrap_or((SourceKind::Any, text));
        Source { kind, path: path.into(), at: Vec::new() }
    }

    /// Reads a list of sources: lines of `SOURCE [PATH]`, where a path says where in the image it
    /// goes. Relative sources are relative to `directory`.
    ///
    /// # Errors
    /// The first invalid line.
    pub fn parse_list(
        name: &str,
        directory: &Path,
        text: &[u8],
    ) -> std::result::Result<Vec<Source>, LineError> {
        let mut sources = Vec::new();
        for_each_line(name, text, |_, fields| {
            let (source, at) = match fields {
                [source] => (source, Vec::new()),
                [source, at] => {
                    (source, clean_path(&at.text()?).map_err(|problem| at.wrong(problem))?)
                }
                [_, _, more, ..] => {
                    return Err(more.wrong("a line is a source and a path in the image"));
                }
                [] => return Ok(()),
            };
            let mut parsed = Source::parse(&OsString::from_vec(source.text()?));
            if parsed.path.as_os_str().is_empty() {
                return Err(source.wrong("a source has a path"));
            }
            if parsed.path.as_os_str() != "-" {
                parsed.path = directory.join(parsed.path);
            }
            sources.push(Source { at, ..parsed });
            Ok(())
        })?;
        Ok(sources)
    }

    /// Adds it to a tree, over what is there.
    ///
    /// # Errors
    /// It doesn't exist, can't be read, or can't be in an image.
    pub fn add(&self, tree: &mut FileTree, context: &mut SourceContext) -> Result<()> {
        match self.open(&context.opener)? {
            OpenedSource::Directory => self.add_directory(tree, context),
            OpenedSource::Tar(archive) => {
                let at = self.make_place(tree)?;
                layer::add(tree, archive, &at, Whiteouts::AreFiles, context)
            }
            #[cfg(feature = "oci")]
            OpenedSource::Oci(files) => {
                let at = self.make_place(tree)?;
                oci::add(tree, &files, context, &at)
            }
            OpenedSource::File => self.add_file(tree, context),
        }
    }

    /// The directory that it goes to, as a path without symbolic links. An entry of the source for
    /// its own top would replace a link, and not what the link leads to.
    fn make_place(&self, tree: &mut FileTree) -> Result<Vec<u8>> {
        let directory = tree.make_directory(&self.at)?;
        let path = tree.directory_path(directory);
        Ok(path.strip_prefix(b"/").unwrap_or(&path).to_vec())
    }

    fn add_directory(&self, tree: &mut FileTree, context: &SourceContext) -> Result<()> {
        let at = self.make_place(tree)?;
        let exclude = |path: &[u8]| {
            let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
            let whole = || PathBuf::from(OsString::from_vec(layer::below(&at, path)));
            context.exclude.covers(name, whole)
        };
        let options = DirectoryOptions {
            threads: context.threads,
            one_file_system: context.one_file_system,
            exclude: &exclude,
            is_cancelled: &|| context.opener.is_cancelled(),
        };
        Ok(read_directory_at(tree, &self.path, &at, &options)?)
    }

    fn add_file(&self, tree: &mut FileTree, context: &mut SourceContext) -> Result<()> {
        let (content, metadata, file) = context.files.add(tree, &self.path)?;
        let mut about =
            NodeMetadata::new((metadata.mode() & 0o7777) as u16, metadata.uid(), metadata.gid());
        let xattrs = xattrs::of_file(&file)
            .map_err(|errno| Error::io(&shown(&self.path))(io::Error::from(errno)))?;
        for xattr in xattrs {
            if layer::can_be_kept(&xattr.name) {
                about.xattrs.push(xattr);
            } else {
                context.warnings.attribute_left_out(&xattr.name);
            }
        }
        let modified = InodeTimestamp {
            seconds: metadata.mtime(),
            nanoseconds: u32::try_from(metadata.mtime_nsec()).unwrap_or(0),
        };
        tree.insert(&self.at, NodeToInsert::File(content), &about, modified.clamp_to_inode(true))?;
        Ok(())
    }

    /// Detects what it is, and opens it.
    fn open(&self, opener: &Opener) -> Result<OpenedSource> {
        let name = shown(&self.path);
        if self.path.as_os_str() == "-" {
            return self.open_archive(opener);
        }
        let metadata = std::fs::metadata(&self.path).map_err(Error::io(&name))?;
        match self.kind {
            SourceKind::Directory => Ok(OpenedSource::Directory),
            SourceKind::File => self.open_file(name),
            #[cfg(not(feature = "oci"))]
            SourceKind::Any if metadata.is_dir() => Ok(OpenedSource::Directory),
            #[cfg(feature = "oci")]
            SourceKind::Any | SourceKind::Oci if metadata.is_dir() => {
                let files = LayoutFiles::of_directory(&name, &self.path)?;
                let is_layout = self.kind == SourceKind::Oci || files.is_layout();
                Ok(if is_layout { OpenedSource::Oci(files) } else { OpenedSource::Directory })
            }
            SourceKind::Any
                if metadata.is_file()
                    && !self.at.is_empty()
                    && !looks_like_archive(&self.path).map_err(Error::io(&name))? =>
            {
                self.open_file(name)
            }
            _ => self.open_archive(opener),
        }
    }

    fn open_file(&self, name: String) -> Result<OpenedSource> {
        if self.at.is_empty() {
            let problem = io::Error::other("a file needs a path in the image; give it in a list");
            return Err(Error::Io { name, problem });
        }
        Ok(OpenedSource::File)
    }

    fn open_archive(&self, opener: &Opener) -> Result<OpenedSource> {
        let archive = opener.open(&self.path)?;
        #[cfg(feature = "oci")]
        if self.kind != SourceKind::Tar {
            if let Some(files) = LayoutFiles::of_archive(&archive, opener)? {
                return Ok(OpenedSource::Oci(files));
            }
            if self.kind == SourceKind::Oci {
                let path = "index.json".into();
                let problem = oci::OciProblem::Missing { path };
                return Err(oci::OciError { layout: archive.name, problem }.into());
            }
        }
        Ok(OpenedSource::Tar(archive))
    }
}

/// An open source of a known kind.
#[derive(Debug)]
enum OpenedSource {
    Directory,
    Tar(Archive),
    #[cfg(feature = "oci")]
    Oci(LayoutFiles),
    /// A source that is opened when it is read.
    File,
}
