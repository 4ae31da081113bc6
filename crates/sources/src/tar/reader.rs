//! Walks through an archive from header to header.
//!
//! Data is skipped, not read. The archive isn't trusted: each entry is checked to lie within the
//! archive before it is used, so memory and time are bounded by the archive's length.

use super::acl_text::{self, IdNames};
use super::entry::{
    DataRun, EntryKind, TarAttributes, TarEntry, Time, clean_layer_path, clean_path,
};
use super::error::{TarError, TarProblem};
use super::header::{BLOCK_BYTES, Dialect, RawTarHeader, SparseExtension, check_sum, number, text};
use super::pax::Extended;
use super::{is_header, sparse};
use crate::input::{Input, Window};
use drystone_ext4_format::acl::Acl;

/// Most bytes of an extended header. Attributes and maps of sparse files are in there.
const EXTENDED_BYTES_MAX: u64 = 64 << 20;
/// Most bytes of a global extended header, which every entry gets a copy of.
const GLOBAL_BYTES_MAX: u64 = 64 << 10;
/// Most bytes of a GNU long name.
const LONG_NAME_BYTES_MAX: u64 = 1 << 20;
/// Bytes of an archive without entries that are looked at at once.
const PIECE_BYTES: u64 = 64 << 10;
/// No program fills an empty archive up to more than this.
const EMPTY_BYTES_MAX: u64 = 1 << 20;

type TarBlock = [u8; BLOCK_BYTES as usize];

/// Reads the entries of an archive in their order.
#[derive(Debug)]
pub struct TarReader<'a> {
    name: String,
    window: Window<'a>,
    position: u64,
    /// The data of global extended headers, for all entries that follow.
    global: Extended,
    users: IdNames,
    groups: IdNames,
    is_at_end: bool,
    /// Whether names may be those of whiteouts.
    is_layer: bool,
}

/// The headers before an entry's own.
#[derive(Default)]
struct Before {
    extended: Option<Extended>,
    name: Option<Vec<u8>>,
    link_name: Option<Vec<u8>>,
    /// All bytes of extended headers.
    extended_bytes: u64,
}

impl Before {
    fn is_empty(&self) -> bool {
        self.extended.is_none() && self.name.is_none() && self.link_name.is_none()
    }
}

impl<'a> TarReader<'a> {
    /// Begins with the first entry; `name` is what the user called the archive.
    #[must_use]
    pub fn new(name: &str, input: &'a dyn Input) -> TarReader<'a> {
        TarReader {
            name: name.to_owned(),
            window: Window::new(input),
            position: 0,
            global: Extended::default(),
            users: IdNames::of_users(),
            groups: IdNames::of_groups(),
            is_at_end: false,
            is_layer: false,
        }
    }

    /// The same for a layer, which may hold whiteouts of the longest names.
    pub(crate) fn of_layer(name: &str, input: &'a dyn Input) -> TarReader<'a> {
        TarReader { is_layer: true, ..TarReader::new(name, input) }
    }

    /// The next entry; `None` at the archive's end.
    ///
    /// # Errors
    /// What follows isn't an entry, or is one that can't be in an image.
    pub fn next_entry(&mut self) -> Result<Option<TarEntry>, Box<TarError>> {
        let offset = self.position;
        let mut name = None;
        self.read_entry(offset, &mut name).map_err(|problem| {
            self.is_at_end = true;
            Box::new(TarError { archive: self.name.clone(), entry: name, offset, problem })
        })
    }

    fn read_entry(
        &mut self,
        offset: u64,
        shown_name: &mut Option<Vec<u8>>,
    ) -> Result<Option<TarEntry>, TarProblem> {
        let mut before = Before::default();
        loop {
            if self.is_at_end || self.is_end()? {
                self.is_at_end = true;
                return if before.is_empty() { Ok(None) } else { Err(TarProblem::Dangling) };
            }
            let block = self.next_block()?;
            check_sum(&block)?;
            let header = RawTarHeader::of(&block);
            let size = unsigned(&header.size, "size")?;
            match header.kind {
                b'x' | b'X' => {
                    // There may be several.
                    let limit = EXTENDED_BYTES_MAX - before.extended_bytes;
                    let bytes = self.metadata(size, "an extended header", limit)?;
                    before.extended_bytes += size;
                    let extended = before.extended.get_or_insert_with(|| self.global.clone());
                    extended.add(&bytes)?;
                }
                b'g' => {
                    let bytes =
                        self.metadata(size, "a global extended header", GLOBAL_BYTES_MAX)?;
                    self.global.add_global(&bytes)?;
                }
                b'L' | b'K' => {
                    let mut bytes = self.metadata(size, "a long name", LONG_NAME_BYTES_MAX)?;
                    bytes.truncate(text(&bytes).len());
                    let place =
                        if header.kind == b'L' { &mut before.name } else { &mut before.link_name };
                    *place = Some(bytes);
                }
                // A label of the volume.
                b'V' => self.skip(size)?,
                b'M' | b'N' => {
                    let what = "is a part of an archive in volumes, or of a format long gone";
                    return Err(TarProblem::Kind { kind: header.kind, what });
                }
                _ => return self.finish_entry(offset, &header, before, shown_name).map(Some),
            }
        }
    }

    fn finish_entry(
        &mut self,
        offset: u64,
        header: &RawTarHeader,
        before: Before,
        shown_name: &mut Option<Vec<u8>>,
    ) -> Result<TarEntry, TarProblem> {
        let extended = before.extended.unwrap_or_else(|| self.global.clone());
        let name = extended.sparse.name.clone();
        let name = name.or_else(|| extended.path.clone()).or(before.name);
        let name = name.unwrap_or_else(|| header.path());
        let clean = if self.is_layer { clean_layer_path } else { clean_path };
        let path = clean(shown_name.insert(name))?;
        let is_directory_name = shown_name.as_ref().is_some_and(|name| name.ends_with(b"/"));
        let link = || {
            let link = extended.link_path.clone().or_else(|| before.link_name.clone());
            link.unwrap_or_else(|| text(&header.link_name).to_vec())
        };
        let device = || -> Result<(u32, u32), TarProblem> {
            let number = |said: Option<u64>, field: &[u8], name| match said {
                Some(number) => {
                    u32::try_from(number).map_err(|_| TarProblem::Field { field: name })
                }
                None => {
                    unsigned(field, name)?.try_into().map_err(|_| TarProblem::Field { field: name })
                }
            };
            let major = number(extended.device_major, &header.device_major, "devmajor")?;
            Ok((major, number(extended.device_minor, &header.device_minor, "devminor")?))
        };
        let size = match extended.size {
            Some(size) => size,
            None => unsigned(&header.size, "size")?,
        };
        let kind = match header.kind {
            b'0' | 0 | b'7' if is_directory_name => {
                self.skip(size)?;
                EntryKind::Directory
            }
            b'0' | 0 | b'7' | b'S' => self.file(header, &extended, size)?,
            b'1' => {
                // POSIX: an entry has as much data as its PAX record says. The header's field may be
                // left of the file.
                if extended.size.is_some() || self.has_data_of_hard_link(size)? {
                    self.skip(size)?;
                }
                EntryKind::HardLink(clean_path(&link())?)
            }
            b'2' => EntryKind::Symlink(link()),
            b'3' => device().map(|(major, minor)| EntryKind::CharacterDevice { major, minor })?,
            b'4' => device().map(|(major, minor)| EntryKind::BlockDevice { major, minor })?,
            b'5' => EntryKind::Directory,
            b'6' => EntryKind::Fifo,
            // A directory of an incremental archive, with a list of names.
            b'D' => {
                self.skip(size)?;
                EntryKind::Directory
            }
            kind => return Err(TarProblem::Kind { kind, what: "is none that is known" }),
        };
        self.attributed(offset, path, kind, header, extended)
    }

    fn attributed(
        &mut self,
        offset: u64,
        path: Vec<u8>,
        kind: EntryKind,
        header: &RawTarHeader,
        extended: Extended,
    ) -> Result<TarEntry, TarProblem> {
        let user = owner(extended.user, &header.user, "uid")?;
        let group = owner(extended.group, &header.group, "gid")?;
        if header.dialect() != Dialect::V7 {
            let name = |said: &'_ Option<Vec<u8>>, field: &[u8]| {
                said.clone().unwrap_or_else(|| text(field).to_vec())
            };
            self.users.learn(&name(&extended.user_name, &header.user_name), user);
            self.groups.learn(&name(&extended.group_name, &header.group_name), group);
        }
        let modified = match extended.modified {
            Some(time) => time,
            None => Time {
                seconds: number(&header.modified).ok_or(TarProblem::Field { field: "mtime" })?,
                nanoseconds: 0,
            },
        };
        let mut mode = (unsigned(&header.mode, "mode")? & 0o7777) as u16;
        let attributes = self.attributes(extended)?;
        // Programs store different modes beside a list; Linux uses the list's.
        let list = attributes.iter().find(|(name, _)| name == acl_text::ACCESS);
        if let Some(list) = list.and_then(|(_, value)| Acl::from_attribute(value).ok()) {
            mode = mode & 0o7000 | list.mode();
        }
        Ok(TarEntry { offset, path, kind, mode, user, group, modified, attributes })
    }

    /// All attributes by name.
    fn attributes(&mut self, mut extended: Extended) -> Result<TarAttributes, TarProblem> {
        let mut attributes = extended.take_attributes();
        if let Some(mut label) = extended.label {
            // Archives leave out the NUL that the kernel keeps.
            if label.last() != Some(&0) {
                label.push(0);
            }
            attributes.push((b"security.selinux".to_vec(), label));
        }
        let lists =
            [(extended.access_list, acl_text::ACCESS), (extended.default_list, acl_text::DEFAULT)];
        for (list, name) in lists {
            let Some(list) = list else { continue };
            let list = acl_text::parse(&list, &mut self.users, &mut self.groups)?;
            // Linux doesn't store an access list that only repeats the mode.
            if name == acl_text::DEFAULT || list.equivalent_mode().is_none() {
                attributes.push((name.to_vec(), list.to_attribute()));
            }
        }
        attributes.sort_by(|(left, _), (right, _)| left.cmp(right));
        attributes.dedup_by(|(later, _), (first, _)| later == first);
        Ok(attributes)
    }

    /// Where a regular file's data is; goes after it.
    fn file(
        &mut self,
        header: &RawTarHeader,
        extended: &Extended,
        stored: u64,
    ) -> Result<EntryKind, TarProblem> {
        let records = &extended.sparse;
        let (pieces, size) = if header.kind == b'S' {
            // star has its map elsewhere in the header.
            if header.dialect() != Dialect::Gnu {
                let what = "is a sparse file of another program than GNU tar, which is not read";
                return Err(TarProblem::Kind { kind: header.kind, what });
            }
            self.old_map(header)?
        } else if records.major == Some(1) && records.minor.unwrap_or(0) == 0 {
            let start = self.position;
            let (pieces, blocks) = sparse::from_data(|index| {
                if index.saturating_mul(BLOCK_BYTES) >= stored {
                    return Err(TarProblem::Sparse { what: "is longer than the entry" });
                }
                self.block(start + index * BLOCK_BYTES)
            })?;
            let size = records.size.ok_or(TarProblem::Sparse { what: "comes without a size" })?;
            let map = blocks * BLOCK_BYTES;
            let position = self.position + map;
            self.skip(stored)?;
            let stored = stored.saturating_sub(map);
            return Ok(EntryKind::File {
                size,
                runs: sparse::runs(&pieces, size, position, stored)?,
            });
        } else if records.major.is_some_and(|major| major != 0) {
            return Err(TarProblem::Sparse { what: "is in a format that is not known" });
        } else if let Some(size) = records.size {
            (sparse::from_numbers(&records.map)?, size)
        } else {
            let run = DataRun { offset: 0, length: stored, position: self.position };
            self.skip(stored)?;
            let runs = if stored == 0 { Vec::new() } else { vec![run] };
            return Ok(EntryKind::File { size: stored, runs });
        };
        let position = self.position;
        self.skip(stored)?;
        Ok(EntryKind::File { size, runs: sparse::runs(&pieces, size, position, stored)? })
    }

    /// The map in a GNU header and the blocks that continue it, and the file's size.
    fn old_map(
        &mut self,
        header: &RawTarHeader,
    ) -> Result<(Vec<sparse::SparsePiece>, u64), TarProblem> {
        let tail = header.gnu_tail();
        let size = unsigned(&tail.real_size, "realsize")?;
        let mut pieces = Vec::new();
        sparse::add_raw(&mut pieces, &tail.sparse)?;
        let mut is_extended = tail.is_extended != 0;
        let mut extensions = 0;
        while is_extended {
            extensions += 1;
            if extensions > sparse::MAP_BYTES_MAX / BLOCK_BYTES {
                return Err(TarProblem::Sparse { what: "has too many pieces" });
            }
            let extension: SparseExtension = zerocopy::transmute!(self.next_block()?);
            sparse::add_raw(&mut pieces, &extension.sparse)?;
            is_extended = extension.is_extended != 0;
        }
        Ok((pieces, size))
    }

    /// Whether data follows a hard link without a PAX header. Some programs write the data again,
    /// some only its size: if a header follows at once, there is no data.
    fn has_data_of_hard_link(&mut self, size: u64) -> Result<bool, TarProblem> {
        let available = self.window.length() - self.position;
        if size == 0 || available == 0 || is_header(&self.block(self.position)?) {
            return Ok(false);
        }
        // Zeros are the archive's end, or data that begins with them. After data comes the next
        // entry or the end; and if the end follows either way, no entry is lost.
        if !self.is_zeros_at(self.position)? {
            return Ok(true);
        }
        if size > available {
            return Ok(false);
        }
        let end = (self.position + size).next_multiple_of(BLOCK_BYTES);
        let is_whole = self.check_within(end, BLOCK_BYTES).is_ok();
        Ok(self.is_zeros_at(end)? || is_whole && is_header(&self.block(end)?))
    }

    /// Whether the archive ends here: at two blocks of zeros, one before the file's end, or the
    /// file's end.
    fn is_end(&mut self) -> Result<bool, TarProblem> {
        if self.position >= self.window.length() {
            return if self.position == 0 { Err(TarProblem::Empty) } else { Ok(true) };
        }
        if self.position == 0 && self.window.length() < BLOCK_BYTES {
            return Err(TarProblem::NotAHeader);
        }
        if self.block(self.position)?.iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        let next = self.position + BLOCK_BYTES;
        if self.position == 0 {
            let is_blank = self.is_all_zeros()?;
            let is_archive =
                self.window.length() >= next + BLOCK_BYTES && is_header(&self.block(next)?);
            return match (is_blank, is_archive) {
                (true, _) => Ok(true),
                (false, true) => Err(TarProblem::LoneZeroBlock),
                (false, false) => Err(TarProblem::NotAHeader),
            };
        }
        if self.is_zeros_at(next)? { Ok(true) } else { Err(TarProblem::LoneZeroBlock) }
    }

    /// Whether the block at an offset has no other bytes than zeros, as far as the archive goes.
    fn is_zeros_at(&mut self, offset: u64) -> Result<bool, TarProblem> {
        let mut block = [0; BLOCK_BYTES as usize];
        let length = self.window.length().saturating_sub(offset).min(BLOCK_BYTES);
        self.read(offset, &mut block[..length as usize])?;
        Ok(block.iter().all(|&byte| byte == 0))
    }

    /// Whether the whole archive is zeros, as an empty one is. An image may begin with zeros too, and a blank
    /// disk is larger than an archive's last record.
    fn is_all_zeros(&mut self) -> Result<bool, TarProblem> {
        if self.window.length() > EMPTY_BYTES_MAX {
            return Ok(false);
        }
        let mut piece = vec![0; PIECE_BYTES as usize];
        for offset in (0..self.window.length()).step_by(PIECE_BYTES as usize) {
            let length = (self.window.length() - offset).min(PIECE_BYTES) as usize;
            self.read(offset, &mut piece[..length])?;
            if piece[..length].iter().any(|&byte| byte != 0) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn metadata(
        &mut self,
        length: u64,
        what: &'static str,
        limit: u64,
    ) -> Result<Vec<u8>, TarProblem> {
        let start = self.position;
        self.skip(length)?;
        if length > limit {
            return Err(TarProblem::TooLong { what, length, limit });
        }
        let mut bytes = vec![0; length as usize];
        self.read(start, &mut bytes)?;
        Ok(bytes)
    }

    fn next_block(&mut self) -> Result<TarBlock, TarProblem> {
        let block = self.block(self.position)?;
        self.position += BLOCK_BYTES;
        Ok(block)
    }

    fn block(&mut self, offset: u64) -> Result<TarBlock, TarProblem> {
        self.check_within(offset, BLOCK_BYTES)?;
        let mut block = [0; BLOCK_BYTES as usize];
        self.read(offset, &mut block)?;
        Ok(block)
    }

    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), TarProblem> {
        self.window.read(offset, buffer).map_err(|error| TarProblem::Read(error.to_string()))
    }

    /// Skips data and its padding. The padding at the very end may be missing.
    fn skip(&mut self, length: u64) -> Result<(), TarProblem> {
        self.check_within(self.position, length)?;
        let end = (self.position + length).next_multiple_of(BLOCK_BYTES);
        self.position = end.min(self.window.length());
        Ok(())
    }

    fn check_within(&self, offset: u64, length: u64) -> Result<(), TarProblem> {
        let available = self.window.length().saturating_sub(offset);
        if length > available {
            return Err(TarProblem::Truncated { missing_bytes: length - available });
        }
        Ok(())
    }
}

fn unsigned(field: &[u8], name: &'static str) -> Result<u64, TarProblem> {
    number(field).and_then(|value| value.try_into().ok()).ok_or(TarProblem::Field { field: name })
}

/// A user or group; the highest number means no id.
fn owner(said: Option<u64>, field: &[u8], name: &'static str) -> Result<u32, TarProblem> {
    let id = match said {
        Some(id) => id,
        None => unsigned(field, name)?,
    };
    u32::try_from(id).ok().filter(|&id| id != u32::MAX).ok_or(TarProblem::Field { field: name })
}
