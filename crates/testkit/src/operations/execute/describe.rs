//! Descriptions on which two file systems have to agree.

use crate::operations::text::Word;
use drystone_vfs::{
    FileFlags, FileSystem, FileType, InodeAttributes, InodeNumber, RequestContext, Result,
};

/// Flags that two file systems have to agree on; the others depend on how an inode is stored.
pub const COMPARED_FLAGS: FileFlags = FileFlags::IMMUTABLE
    .union(FileFlags::APPEND)
    .union(FileFlags::NO_DUMP)
    .union(FileFlags::NO_ACCESS_TIME)
    .union(FileFlags::SYNC)
    .union(FileFlags::DIRECTORY_SYNC)
    .union(FileFlags::TOP_DIRECTORY)
    .union(FileFlags::PROJECT_INHERIT)
    .union(FileFlags::CASEFOLD);

/// A description of attributes, without those in which file systems may differ.
pub fn describe(attributes: &InodeAttributes) -> String {
    let size = match attributes.file_type {
        FileType::Directory => String::new(),
        _ => format!(" size {}", attributes.size),
    };
    let device = match attributes.file_type {
        FileType::CharacterDevice | FileType::BlockDevice => {
            format!(" device {}:{}", attributes.device.major, attributes.device.minor)
        }
        _ => String::new(),
    };
    let flags = attributes.flags & COMPARED_FLAGS;
    let flags =
        if flags.is_empty() { String::new() } else { format!(" flags {:#x}", flags.bits()) };
    format!(
        "{:?} {:04o} links {} owner {}:{}{size}{device}{flags}",
        attributes.file_type,
        attributes.permissions,
        attributes.links,
        attributes.user,
        attributes.group
    )
}

/// The names in a directory, sorted, without `lost+found`, which only some file systems have.
pub(super) fn list(
    file_system: &dyn FileSystem,
    context: &RequestContext,
    inode: InodeNumber,
) -> Result<String> {
    let mut names = Vec::new();
    file_system.read_directory(context, inode, 0, &mut |entry| {
        if entry.name != b"lost+found" {
            names.push(Word(entry.name.to_vec()));
        }
        true
    })?;
    names.sort();
    let names: Vec<String> = names.iter().map(Word::to_string).collect();
    Ok(names.join(" "))
}
