//! Trees of file systems behind the interface.

use std::collections::BTreeSet;

use drystone_vfs::{
    Errno, FileSystem, FileType, InodeAttributes, InodeGuard, InodeNumber, RequestContext, Result,
    SeekFrom, find_path,
};

use super::{
    Collector, PathFacts, TreeOptions, TreeSnapshot, is_ignored, is_xattr_ignored, summarise,
};
use crate::operations::{COMPARED_FLAGS, Word};

impl TreeSnapshot {
    /// Everything below `base`, read as the superuser.
    pub fn read(
        file_system: &dyn FileSystem,
        base: &str,
        options: &TreeOptions,
    ) -> Result<TreeSnapshot> {
        let reader = Reader { file_system, options, context: RequestContext::superuser() };
        let mut collector = Collector::default();
        let start = find_path(file_system, &reader.context, base.as_bytes(), true)?;
        let mut pending = vec![(Vec::new(), start, None)];
        let mut seen = BTreeSet::new();
        while let Some((path, node, parent)) = pending.pop() {
            let shown = if path.is_empty() { b"/".to_vec() } else { path.clone() };
            let attributes = node.attributes();
            let mut facts = reader.facts(&shown, attributes, &mut collector)?;
            if node.is_directory() {
                if !seen.insert(attributes.inode) {
                    return Err(Errno::ELOOP.into());
                }
                let problems = reader.children(&path, attributes, parent, |path, child| {
                    if is_ignored(options, &path) {
                        collector.ignored_at_root += u32::from(child.is_directory());
                    } else {
                        pending.push((path, child, Some(attributes.inode)));
                    }
                })?;
                if !problems.is_empty() {
                    facts.insert("listing".to_owned(), problems.join(", "));
                }
            }
            collector.tree.entries.insert(Word(shown), facts);
        }
        Ok(collector.finish())
    }
}

struct Reader<'a> {
    file_system: &'a dyn FileSystem,
    options: &'a TreeOptions,
    context: RequestContext,
}

impl<'a> Reader<'a> {
    /// Hands each child to `found`; returns what is wrong with the listing.
    fn children(
        &self,
        path: &[u8],
        directory: &InodeAttributes,
        parent: Option<InodeNumber>,
        mut found: impl FnMut(Vec<u8>, InodeGuard<'a>),
    ) -> Result<Vec<String>> {
        let mut listed = Vec::new();
        self.file_system.read_directory(&self.context, directory.inode, 0, &mut |entry| {
            listed.push((entry.name.to_vec(), entry.inode, entry.file_type));
            true
        })?;
        let mut problems = Vec::new();
        let mut names = BTreeSet::new();
        for (name, inode, file_type) in listed {
            let word = Word(name.clone());
            if !names.insert(name.clone()) {
                problems.push(format!("{word} is listed twice"));
                continue;
            }
            let expected = match &name[..] {
                b"." => Some(directory.inode),
                b".." => parent,
                _ => {
                    let (file_system, directory) = (self.file_system, directory.inode);
                    let child = InodeGuard::lookup(file_system, &self.context, directory, &name)?;
                    if file_type.is_some_and(|listed| listed != child.attributes().file_type) {
                        problems.push(format!("{word} is listed as {file_type:?}"));
                    }
                    let number = child.inode();
                    found([path, b"/", &name].concat(), child);
                    Some(number)
                }
            };
            if expected.is_some_and(|expected| expected != inode) {
                problems.push(format!("{word} is listed as inode {inode}"));
            }
        }
        for name in [&b"."[..], b".."] {
            if !names.contains(name) {
                problems.push(format!("{} isn't listed", Word(name.to_vec())));
            }
        }
        Ok(problems)
    }

    fn facts(
        &self,
        path: &[u8],
        attributes: &InodeAttributes,
        collector: &mut Collector,
    ) -> Result<PathFacts> {
        let inode = attributes.inode;
        let mut facts = PathFacts::new();
        let mut fact = |name: &str, value: String| facts.insert(name.to_owned(), value);
        fact("type", format!("{:?}", attributes.file_type));
        fact("mode", format!("{:04o}", attributes.permissions));
        fact("links", attributes.links.to_string());
        fact("owner", format!("{}:{}", attributes.user, attributes.group));
        let InodeAttributes { accessed, modified, changed, .. } = attributes;
        let TreeOptions { times, change_times, .. } = *self.options;
        for (name, time, is_wanted) in [
            ("accessed", accessed, times),
            ("modified", modified, times),
            ("changed", changed, change_times),
        ] {
            if is_wanted {
                fact(name, format!("{}.{:09}", time.seconds, time.nanoseconds));
            }
        }
        if self.options.inode_numbers {
            fact("inode", inode.to_string());
        }
        if self.options.flags {
            fact("flags", format!("{:#x}", (attributes.flags & COMPARED_FLAGS).bits()));
        }
        match attributes.file_type {
            FileType::Directory => {}
            FileType::Regular => {
                fact("size", attributes.size.to_string());
                if attributes.size <= self.options.content_bytes_max {
                    fact("content", self.content(attributes)?);
                }
                if self.options.holes {
                    fact("data at", self.data_ranges(attributes)?);
                }
            }
            FileType::Symlink => {
                fact("size", attributes.size.to_string());
                fact("target", Word(self.file_system.read_link(inode)?).to_string());
            }
            FileType::CharacterDevice | FileType::BlockDevice => {
                fact("device", format!("{}:{}", attributes.device.major, attributes.device.minor));
            }
            FileType::Fifo | FileType::Socket => {}
        }
        for name in self.file_system.list_xattrs(&self.context, inode)? {
            if !is_xattr_ignored(self.options, &name) {
                let value = self.file_system.xattr(&self.context, inode, &name)?;
                facts.insert(format!("xattr {}", Word(name)), format!("={}", Word(value)));
            }
        }
        if attributes.file_type != FileType::Directory && attributes.links > 1 {
            collector.note_name(path, inode.0);
        }
        Ok(facts)
    }

    fn next(&self, inode: InodeNumber, from: SeekFrom) -> Result<Option<u64>> {
        match self.file_system.seek(inode, from) {
            Ok(at) => Ok(Some(at)),
            Err(error) if error.errno == Errno::ENXIO => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn content(&self, attributes: &InodeAttributes) -> Result<String> {
        let inode = attributes.inode;
        summarise(
            attributes.size,
            |offset| self.next(inode, SeekFrom::Data(offset)),
            |offset, buffer| self.file_system.read(inode, offset, buffer),
        )
    }

    fn data_ranges(&self, attributes: &InodeAttributes) -> Result<String> {
        let mut ranges = Vec::new();
        let mut at = 0;
        while let Some(start) = self.next(attributes.inode, SeekFrom::Data(at))? {
            let end = self.next(attributes.inode, SeekFrom::Hole(start))?;
            at = end.unwrap_or(attributes.size).max(start + 1);
            ranges.push(format!("{start}..{at}"));
        }
        Ok(ranges.join(" "))
    }
}
