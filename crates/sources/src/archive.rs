//! Opens archives: files and standard input, plain or compressed.
//!
//! A plain archive in a regular file is read where it is. A compressed archive, or one from a pipe,
//! is first written uncompressed into a spool file without a name, which the system frees however
//! the program ends.

use crate::error::{Error, Result};
use crate::host_files::open_regular;
use crate::input::{FileRange, Input};
use drystone_sync::Arc;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

/// An archive's bytes, uncompressed.
#[derive(Clone, Debug)]
pub struct Archive {
    /// What the user called it.
    pub name: String,
    /// The bytes.
    pub input: FileRange,
}

/// The compression of a stream, recognised by its first bytes: names prove nothing, and a pipe has
/// none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compression {
    None,
    Gzip,
    Zstd,
    Xz,
    Bzip2,
    /// Compressed in an unsupported format.
    Foreign(&'static str),
}

/// As many bytes as [`Compression::of`] looks at.
const MAGIC_BYTES: usize = 6;
/// Spool files are written in pieces of this.
const PIECE_BYTES: usize = 1 << 20;
/// The most memory that xz data may ask for, in KiB: `xz -9` makes data that ask for 65 MiB, and a
/// damaged header may ask for any amount.
#[cfg(feature = "compression")]
const XZ_MEMORY_MAX_KIB: u32 = 1 << 20;

impl Compression {
    fn of(start: &[u8]) -> Compression {
        match start {
            [0x1f, 0x8b, ..] => Compression::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Compression::Zstd,
            // Skippable frames, which parallel compressors put first.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Compression::Zstd,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Compression::Xz,
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => Compression::Bzip2,
            [0x04, 0x22, 0x4d, 0x18, ..] => Compression::Foreign("lz4"),
            [b'L', b'Z', b'I', b'P', ..] => Compression::Foreign("lzip"),
            _ => Compression::None,
        }
    }
}

/// Whether the user cancelled.
type IsCancelled = dyn Fn() -> bool + Send + Sync;

/// Opens archives, and knows where spool files may be.
#[derive(Clone)]
pub struct Opener {
    spool_directory: PathBuf,
    is_cancelled: Option<Arc<IsCancelled>>,
}

impl fmt::Debug for Opener {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Opener");
        shown.field("spool_directory", &self.spool_directory).finish_non_exhaustive()
    }
}

impl Opener {
    /// Spool files go to `spool_directory`, usually on the file system that the image goes to: that one
    /// has room.
    #[must_use]
    pub fn new(spool_directory: &Path) -> Opener {
        Opener { spool_directory: spool_directory.to_path_buf(), is_cancelled: None }
    }

    /// Long work ends with [`Error::Cancelled`] once `is_cancelled` says so.
    #[must_use]
    pub fn cancelled_by(self, is_cancelled: impl Fn() -> bool + Send + Sync + 'static) -> Opener {
        Opener { is_cancelled: Some(Arc::new(is_cancelled)), ..self }
    }

    /// Whether the user cancelled.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_cancelled.as_ref().is_some_and(|is_cancelled| is_cancelled())
    }

    /// Fails with [`Error::Cancelled`] if the user cancelled.
    pub(crate) fn go_on(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// Opens an archive; `-` is standard input.
    ///
    /// # Errors
    /// It can't be read, uncompressed or spooled.
    pub fn open(&self, path: &Path) -> Result<Archive> {
        if path.as_os_str() == "-" {
            let name = "standard input";
            let input =
                rustix::io::dup(io::stdin()).map_err(|error| Error::io(name)(error.into()))?;
            return self.open_file(name, File::from(input));
        }
        let name = path.display().to_string();
        let file = File::open(path).map_err(Error::io(&name))?;
        self.open_file(&name, file)
    }

    /// Opens an archive in an open file, which the user calls `name`, from where the file stands.
    ///
    /// # Errors
    /// It can't be read, uncompressed or spooled.
    pub fn open_file(&self, name: &str, mut file: File) -> Result<Archive> {
        let failed = |error| Error::io(name)(error);
        if file.metadata().map_err(failed)?.is_file() {
            let start = file.stream_position().map_err(failed)?;
            let range = FileRange::new(file, start).map_err(failed)?;
            return self.uncompressed(name, range, io::sink());
        }
        self.read(name, file)
    }

    /// Reads an archive, which the user calls `name`, into a spool file.
    ///
    /// # Errors
    /// It can't be read, uncompressed or spooled.
    pub fn read(&self, name: &str, mut reader: impl Read) -> Result<Archive> {
        let mut start = [0; MAGIC_BYTES];
        let length = read_up_to(&mut reader, &mut start).map_err(Error::io(name))?;
        let compression = Compression::of(&start[..length]);
        self.spool(name, compression, io::Cursor::new(start).take(length as u64).chain(reader))
    }

    /// The uncompressed bytes of a part of a file. `observer` gets all bytes that are read of a
    /// compressed part; a plain part is not read here.
    ///
    /// # Errors
    /// It can't be read, uncompressed or spooled.
    pub(crate) fn uncompressed(
        &self,
        name: &str,
        range: FileRange,
        observer: impl Write,
    ) -> Result<Archive> {
        let mut start = [0; MAGIC_BYTES];
        let length = range.length().min(MAGIC_BYTES as u64) as usize;
        range.read_at(0, &mut start[..length]).map_err(Error::io(name))?;
        match Compression::of(&start[..length]) {
            Compression::None => Ok(Archive { name: name.to_owned(), input: range }),
            compression => {
                self.spool(name, compression, Observed { reader: range.reader(), observer })
            }
        }
    }

    fn spool(&self, name: &str, compression: Compression, reader: impl Read) -> Result<Archive> {
        let unreadable = |program| Err(Error::Compression { name: name.to_owned(), program });
        let mut counted = Counted { reader, bytes: 0 };
        let (format, copied) = match compression {
            Compression::None => ("plain", self.copy(&mut counted)),
            #[cfg(feature = "compression")]
            Compression::Gzip => {
                let buffered = io::BufReader::with_capacity(PIECE_BYTES, &mut counted);
                ("gzip", self.copy(&mut flate2::bufread::MultiGzDecoder::new(buffered)))
            }
            #[cfg(feature = "compression")]
            Compression::Zstd => {
                let decoder = zstd::stream::read::Decoder::new(&mut counted);
                ("zstd", decoder.map_err(CopyError::Read).and_then(|mut it| self.copy(&mut it)))
            }
            #[cfg(feature = "compression")]
            Compression::Xz => {
                let buffered = io::BufReader::with_capacity(PIECE_BYTES, &mut counted);
                (
                    "xz",
                    self.copy(&mut lzma_rust2::XzReader::new_mem_limit(
                        buffered,
                        true,
                        XZ_MEMORY_MAX_KIB,
                    )),
                )
            }
            #[cfg(feature = "compression")]
            Compression::Bzip2 => {
                let buffered = io::BufReader::with_capacity(PIECE_BYTES, &mut counted);
                ("bzip2", self.copy(&mut bzip2::bufread::MultiBzDecoder::new(buffered)))
            }
            Compression::Foreign(program) => return unreadable(program),
            #[cfg(not(feature = "compression"))]
            Compression::Gzip => return unreadable("gzip"),
            #[cfg(not(feature = "compression"))]
            Compression::Zstd => return unreadable("zstd"),
            #[cfg(not(feature = "compression"))]
            Compression::Xz => return unreadable("xz"),
            #[cfg(not(feature = "compression"))]
            Compression::Bzip2 => return unreadable("bzip2"),
        };
        let read_bytes = counted.bytes;
        match copied {
            Ok(input) => Ok(Archive { name: name.to_owned(), input }),
            Err(CopyError::Cancelled) => Err(Error::Cancelled),
            Err(CopyError::Read(problem)) if compression == Compression::None => {
                Err(Error::io(name)(problem))
            }
            Err(CopyError::Read(problem)) => {
                Err(Error::Decompression { name: name.to_owned(), format, read_bytes, problem })
            }
            Err(CopyError::Write(problem)) => {
                let directory = self.spool_directory.display().to_string();
                Err(Error::Spool { directory, problem })
            }
        }
    }

    fn copy(&self, reader: &mut impl Read) -> std::result::Result<FileRange, CopyError> {
        let mut spool = tempfile::tempfile_in(&self.spool_directory).map_err(CopyError::Write)?;
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            if self.is_cancelled() {
                return Err(CopyError::Cancelled);
            }
            let length = read_up_to(reader, &mut piece).map_err(CopyError::Read)?;
            if length == 0 {
                return FileRange::new(spool, 0).map_err(CopyError::Write);
            }
            spool.write_all(&piece[..length]).map_err(CopyError::Write)?;
        }
    }
}

/// Why a copy ended early.
enum CopyError {
    Cancelled,
    Read(io::Error),
    Write(io::Error),
}

/// Reads until the buffer is full or there is no more.
fn read_up_to(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match reader.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

/// Counts what is read.
struct Counted<R> {
    reader: R,
    bytes: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.reader.read(buffer)?;
        self.bytes += length as u64;
        Ok(length)
    }
}

/// Passes what is read to an observer.
struct Observed<R, W> {
    reader: R,
    observer: W,
}

impl<R: Read, W: Write> Read for Observed<R, W> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.reader.read(buffer)?;
        self.observer.write_all(&buffer[..length])?;
        Ok(length)
    }
}

/// Whether a file begins as an archive or something compressed does.
///
/// # Errors
/// If it can't be read.
pub(crate) fn looks_like_archive(path: &Path) -> io::Result<bool> {
    let mut start = [0; 512];
    let length = read_up_to(&mut open_regular(path)?, &mut start)?;
    let is_tar = length == start.len() && crate::tar::is_header(&start);
    Ok(is_tar || Compression::of(&start[..length.min(MAGIC_BYTES)]) != Compression::None)
}
