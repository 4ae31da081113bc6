//! Copies everything that isn't a directory: content, links, special files, and the attributes of all.

use super::directory::{CopiedDirectory, EntryName};
use super::ends::{CopySource, CopyTarget};
use super::engine::Copier;
use super::facts::{InodeFacts, Xattrs, with_mapped_ids};
use super::links::Claim;
use super::problem::{Cause, CopyProblem, Lacking, LostProperty, Side};
use drystone_sync::Arc;
use drystone_sync::atomic::Ordering;
use drystone_vfs::{Errno, Error, FileType};
use std::borrow::Cow;

impl<S: CopySource, T: CopyTarget> Copier<'_, S, T> {
    /// Copies an inode that has one name.
    pub(super) fn leaf(
        &self,
        directory: &CopiedDirectory<S, T>,
        name: &EntryName,
        node: S::Node,
        facts: &InodeFacts,
        buffer: &mut [u8],
    ) -> Result<(), CopyProblem> {
        self.make(directory, name, node, facts, buffer).map(drop)
    }

    /// Copies or links one of the names of an inode that has several.
    pub(super) fn one_of_links(
        &self,
        directory: &Arc<CopiedDirectory<S, T>>,
        name: EntryName,
        node: S::Node,
        facts: &InodeFacts,
        buffer: &mut [u8],
    ) {
        // If another thread copies this file, the name stays work of its directory.
        directory.pending.fetch_add(1, Ordering::Relaxed);
        match self.links.claim(facts.identity, (directory.clone(), name)) {
            Claim::Waits => {}
            Claim::Link(original, (_, name)) => self.link(directory, &name, &original, facts),
            Claim::First((_, name)) => {
                match self.make(directory, &name, node, facts, buffer) {
                    Ok(made) => {
                        let original = self.target.keep(made, &directory.target, &name.to);
                        let waiting =
                            self.links.made(facts.identity, original.clone(), facts.links - 1);
                        for (directory, name) in waiting {
                            self.link(&directory, &name, &original, facts);
                        }
                    }
                    Err(problem) => {
                        self.failed(problem.clone());
                        let may_retry = self.may_retry(directory.item, facts, &problem);
                        for (directory, name) in self.links.failed(facts.identity) {
                            if may_retry {
                                self.retry(directory, name);
                                continue;
                            }
                            let (action, cause) = (problem.action, problem.cause.clone());
                            self.failed(match problem.side {
                                Side::Source => {
                                    self.source_problem(action, &directory, &name, cause)
                                }
                                Side::Target => {
                                    self.target_problem(action, &directory, &name, cause)
                                }
                            });
                            self.complete(&directory);
                        }
                    }
                }
                self.complete(directory);
            }
        }
    }

    /// Whether another name of an inode may fare better: if the target refused this one, but not if it
    /// took a part of the content, which could come to much with many names.
    fn may_retry(&self, item: usize, facts: &InodeFacts, problem: &CopyProblem) -> bool {
        problem.side == Side::Target
            && (!S::HAS_ONE_NAME
                || self
                    .copied
                    .lock()
                    .get(&item)
                    .is_some_and(|copied| copied.is_untaken(facts.identity.1)))
    }

    /// Makes a further name of a file that is copied, which was work of `directory`.
    fn link(
        &self,
        directory: &Arc<CopiedDirectory<S, T>>,
        name: &EntryName,
        original: &T::Original,
        facts: &InodeFacts,
    ) {
        match self.target.link(original, &directory.target, &name.to) {
            Ok(()) => {
                self.counters.hard_links.fetch_add(1, Ordering::Relaxed);
                self.monitor.entry(&|| directory.source_path(name));
            }
            Err(cause) => {
                self.failed(self.target_problem("link", directory, name, cause));
            }
        }
        self.links.used(facts.identity);
        self.complete(directory);
    }

    /// Makes an inode with content and attributes. Takes the source's node.
    fn make(
        &self,
        directory: &CopiedDirectory<S, T>,
        name: &EntryName,
        mut node: S::Node,
        facts: &InodeFacts,
        buffer: &mut [u8],
    ) -> Result<T::Node, CopyProblem> {
        let result = self.make_of(directory, name, &mut node, facts, buffer);
        if result.is_ok() {
            let counter = match facts.file_type {
                FileType::Regular => &self.counters.files,
                FileType::Symlink => &self.counters.symlinks,
                _ => &self.counters.special,
            };
            counter.fetch_add(1, Ordering::Relaxed);
            self.monitor.entry(&|| directory.source_path(name));
        }
        result
    }

    fn make_of(
        &self,
        directory: &CopiedDirectory<S, T>,
        name: &EntryName,
        node: &mut S::Node,
        facts: &InodeFacts,
        buffer: &mut [u8],
    ) -> Result<T::Node, CopyProblem> {
        if facts.is_regular() {
            let open = self.source.open(node, facts);
            open.map_err(|cause| self.source_problem("open", directory, name, cause))?;
        }
        self.note_copied(node, facts, directory, name)?;
        let (facts, xattrs) = self.wanted(node, facts, directory, name);
        let facts = &*facts;
        let (made, made_as) = match self.target.make(&directory.target, &name.to, facts) {
            Ok(made) => made,
            Err(cause) => {
                if S::HAS_ONE_NAME {
                    let mut copied = self.copied.lock();
                    copied.entry(directory.item).or_default().set_untaken(facts.identity.1);
                }
                return Err(self.unmade(directory, name, facts, &xattrs, cause));
            }
        };
        let content = match facts.is_regular() {
            true => self.content(directory, name, node, &made, facts, buffer),
            false => Ok(()),
        };
        let completed = content.and_then(|()| {
            self.finish(&made, facts, &xattrs, directory.existed, directory, name)?;
            let Some(made_as) = &made_as else { return Ok(()) };
            self.target
                .settle(&directory.target, made_as, &name.to)
                .map_err(|cause| self.target_problem("replace", directory, name, cause))
        });
        match (completed, made_as) {
            (Ok(()), _) => Ok(made),
            (Err(problem), None) => Err(problem),
            (Err(problem), Some(made_as)) => {
                self.target.discard(&directory.target, &made_as);
                Err(CopyProblem { is_old_kept: true, ..problem })
            }
        }
    }

    /// Says what it means that an entry could not be made.
    fn unmade(
        &self,
        directory: &CopiedDirectory<S, T>,
        name: &EntryName,
        facts: &InodeFacts,
        xattrs: &Xattrs,
        cause: Cause,
    ) -> CopyProblem {
        let is_device =
            matches!(facts.file_type, FileType::CharacterDevice | FileType::BlockDevice);
        if !is_device || !cause.is(Errno::EPERM) {
            return self.target_problem("make", directory, name, cause);
        }
        self.tell_lacks(&[LostProperty::Node], facts, xattrs, directory, name);
        let problem = self.target_problem(LostProperty::Node.action(), directory, name, cause);
        CopyProblem { is_not_made: true, ..problem }
    }

    /// Copies content, leaving out holes.
    fn content(
        &self,
        directory: &CopiedDirectory<S, T>,
        name: &EntryName,
        from: &S::Node,
        made: &T::Node,
        facts: &InodeFacts,
        buffer: &mut [u8],
    ) -> Result<(), CopyProblem> {
        let unreadable = |cause| self.source_problem("read", directory, name, cause);
        let unwritable = |cause| self.target_problem("write", directory, name, cause);
        let mut copy = |mut offset: u64, end: u64| {
            while offset < end {
                let room = usize::try_from(end - offset).unwrap_or(usize::MAX).min(buffer.len());
                let length =
                    self.source.read(from, offset, &mut buffer[..room]).map_err(unreadable)?;
                if length == 0 {
                    break;
                }
                if self.is_stopped() {
                    let cause = Errno::EINTR.into();
                    return Err(self.target_problem("copy all of", directory, name, cause));
                }
                self.target.write(made, offset, &buffer[..length]).map_err(unwritable)?;
                offset += length as u64;
                self.counters.bytes.fetch_add(length as u64, Ordering::Relaxed);
                self.monitor.bytes(length as u64);
            }
            Ok(offset)
        };
        if !facts.is_sparse {
            // To the end, whatever the size was: files of some file systems have none.
            return copy(0, u64::MAX).map(drop);
        }
        let (mut offset, mut written_end) = (0, 0);
        while offset < facts.size
            && let Some((start, end)) = self.source.next_data(from, offset).map_err(unreadable)?
        {
            // A file that a damaged image contradicts itself about must not turn in circles.
            if end <= offset {
                break;
            }
            written_end = copy(start, end)?;
            if written_end < end.min(facts.size) {
                // What follows would be zeros that were never there.
                let cause = Error::with_detail(Errno::EIO, "the file ends too early").into();
                return Err(unreadable(cause));
            }
            offset = end;
        }
        if written_end == facts.size {
            return Ok(());
        }
        self.target.set_size(made, facts.size).map_err(unwritable)
    }

    /// Notes that an inode is copied, which must not have been under another name or number.
    pub(super) fn note_copied(
        &self,
        node: &S::Node,
        facts: &InodeFacts,
        directory: &CopiedDirectory<S, T>,
        name: &EntryName,
    ) -> Result<(), CopyProblem> {
        if !S::HAS_ONE_NAME {
            return Ok(());
        }
        let refused = |cause| self.source_problem("copy", directory, name, cause);
        let mut copied = self.copied.lock();
        let copied_of_item = copied.entry(directory.item).or_default();
        let noted = copied_of_item.note(facts.identity.1, facts.is_directory());
        drop(copied);
        if !noted.map_err(|error| refused(error.into()))? || !facts.may_have_places() {
            return Ok(());
        }
        let places = self.source.places(node, facts.size).map_err(refused)?;
        let bytes = self.source.size();
        let mut copied = self.copied.lock();
        let noted = copied.entry(directory.item).or_default().note_places(&places, bytes);
        drop(copied);
        noted.map_err(|error| refused(error.into()))
    }

    /// What a copy gets: what is known of the inode, and extended attributes.
    pub(super) fn wanted<'i>(
        &self,
        node: &S::Node,
        facts: &'i InodeFacts,
        directory: &CopiedDirectory<S, T>,
        name: &EntryName,
    ) -> (Cow<'i, InodeFacts>, Xattrs) {
        if self.options.keep_xattrs {
            return (Cow::Borrowed(facts), self.xattrs(node, directory, name));
        }
        // Nobody misses attributes that can't be read.
        let left_out = self.source.xattrs(node).unwrap_or_default();
        (facts.without_xattrs(&left_out), Xattrs::new())
    }

    /// The extended attributes to copy. If they can't be read that is told, and the rest of the
    /// file is copied all the same: it may be all that can be saved.
    fn xattrs(
        &self,
        node: &S::Node,
        directory: &CopiedDirectory<S, T>,
        name: &EntryName,
    ) -> Xattrs {
        let told = |action| {
            move |cause| {
                self.failed(self.source_problem(action, directory, name, cause));
                Xattrs::new()
            }
        };
        let xattrs = match self.source.xattrs(node) {
            Ok(xattrs) if xattrs.is_empty() => return xattrs,
            Ok(xattrs) => xattrs,
            Err(cause) => return told("read the extended attributes of")(cause),
        };
        let bytes = self.source.size();
        let mut copied = self.copied.lock();
        let noted = copied.entry(directory.item).or_default().note_xattrs(&xattrs, bytes);
        drop(copied);
        match noted {
            Ok(()) => with_mapped_ids(xattrs, &self.options.owners),
            Err(error) => told("copy the extended attributes of")(error.into()),
        }
    }

    /// Sets the attributes of what was made.
    pub(super) fn finish(
        &self,
        made: &T::Node,
        facts: &InodeFacts,
        xattrs: &Xattrs,
        may_inherit: bool,
        directory: &CopiedDirectory<S, T>,
        name: &EntryName,
    ) -> Result<(), CopyProblem> {
        let mut lacks = Vec::new();
        let mut not_kept = |lack: LostProperty, cause: Cause| {
            let is_whole = !cause.is_too_large();
            let problem = self.target_problem(lack.action(), directory, name, cause);
            match is_whole {
                true => self.not_kept(problem),
                // Another target could hold it: something is missing.
                false => self.incomplete(problem),
            }
            lacks.push(lack);
        };
        let finished = self.target.finish(made, facts, xattrs, may_inherit, &mut not_kept);
        self.tell_lacks(&lacks, facts, xattrs, directory, name);
        finished
            .map_err(|cause| self.target_problem("set the attributes of", directory, name, cause))
    }

    fn tell_lacks(
        &self,
        lacks: &[LostProperty],
        facts: &InodeFacts,
        xattrs: &Xattrs,
        directory: &CopiedDirectory<S, T>,
        name: &EntryName,
    ) {
        if lacks.is_empty() {
            return;
        }
        let is_lacking = |name: &[u8]| {
            lacks.iter().any(|lack| match lack {
                LostProperty::Xattr(lacking) => lacking == name,
                LostProperty::Node => true,
                LostProperty::Owner => false,
            })
        };
        self.monitor.lacking(&Lacking {
            way: &directory.target_way(name),
            is_missing: lacks.contains(&LostProperty::Node),
            file_type: facts.file_type,
            permissions: facts.permissions,
            user: facts.user,
            group: facts.group,
            modified: facts.modified,
            device: facts.device,
            xattrs: xattrs
                .iter()
                .filter(|(name, _)| is_lacking(name))
                .map(|(name, value)| (name.as_slice(), value.as_slice()))
                .collect(),
        });
    }
}
