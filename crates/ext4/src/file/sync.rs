//! Making things durable.

use super::{tail, write_back};
use crate::content::ContentStore;
use crate::error::Result;
use crate::inode::Inode;
use drystone_sync::Arc;
use drystone_vfs::FileType;

/// Returns when the content of an inode is durable, and what is needed to find it; without
/// `data_only` also its times and owners.
pub(crate) fn sync(fs: &ContentStore, inode: &Arc<Inode>, data_only: bool) -> Result<()> {
    if fs.volume.read_only.is_some() {
        return Ok(());
    }
    if inode.delayed.is_any() {
        let _content = inode.content.write();
        write_back::flush(fs, inode)?;
    }
    let journal = &fs.volume.journal;
    // The data of a directory are its names, and each change of them stamps it.
    let data_only = data_only && inode.file_type() != FileType::Directory;
    let tid = if data_only { inode.last_data_transaction() } else { inode.last_transaction() };
    if !journal.is_committed(tid) {
        journal.force_commit(tid);
        journal.wait(tid)?;
    }
    // Usually the commit's flush, or another caller's, has covered what was overwritten in place.
    fs.volume.flush_writes(inode.last_overwrite())
}

/// Writes what waits for a quiet moment, after everything was made durable.
pub(crate) fn write_back_all(fs: &ContentStore) -> Result<()> {
    // What can't be written must not keep the rest from getting durable.
    let written = write_back::flush_all(fs);
    fs.volume.journal.commit_and_wait()?;
    tail::clear_all(fs)?;
    written
}
