//! Writes what is in files.

use super::Archiver;
use super::entry::{ArchivePath, file_kind, head};
use super::output;
use crate::transfer::CopyProblem;
use crate::transfer::ends::CopySource;
use crate::transfer::facts::{InodeFacts, Xattrs};
use drystone_sources::tar;
use drystone_vfs::{Errno, Error, InodeGuard};

impl<'a> Archiver<'a, '_> {
    /// Writes a file: the entry, and the content without holes.
    pub(super) fn file(
        &mut self,
        node: &InodeGuard<'a>,
        facts: &InodeFacts,
        xattrs: &Xattrs,
        place: &ArchivePath<'_>,
    ) -> Result<(), CopyProblem> {
        let whole = vec![(0, facts.size)];
        let pieces = match facts.is_sparse {
            true => self.source.data_ranges(node, facts.size).unwrap_or_else(|cause| {
                self.failed(place.problem("read the map of", cause));
                whole
            }),
            false => whole,
        };
        let data_bytes = pieces.iter().map(|(start, end)| end - start).sum();
        let kind = file_kind(facts.size, &pieces);
        self.output.write(&head(place.name, facts, xattrs, kind))?;
        let mut is_readable = true;
        for (start, end) in pieces {
            self.piece(node, start, end, place, &mut is_readable)?;
        }
        self.output.write(tar::padding(data_bytes))
    }

    /// Writes a piece of content. What can't be read becomes zeros, which is told once.
    fn piece(
        &mut self,
        node: &InodeGuard<'a>,
        mut offset: u64,
        end: u64,
        place: &ArchivePath<'_>,
        is_readable: &mut bool,
    ) -> Result<(), CopyProblem> {
        while offset < end {
            // While bytes are missing: the entry is cut off then.
            if self.monitor.is_cancelled() {
                return Err(output::cancelled());
            }
            let space = self.output.space()?;
            let room = usize::try_from(end - offset).unwrap_or(usize::MAX).min(space.len());
            let buffer = &mut space[..room];
            let read = match self.source.read(node, offset, buffer) {
                Ok(0) => Err(Error::with_detail(Errno::EIO, "the file ends too early").into()),
                other => other,
            };
            let length = read.unwrap_or_else(|cause| {
                buffer.fill(0);
                if std::mem::take(is_readable) {
                    self.summary.failed += 1;
                    self.monitor.problem(&place.problem("read", cause));
                }
                room
            });
            self.output.advance(length);
            offset += length as u64;
            self.summary.bytes += length as u64;
            self.monitor.bytes(length as u64);
        }
        Ok(())
    }
}
