//! How the fields of an inode change.
//!
//! # State
//! A change reaches the record in the inode table before the fields are unlocked, with three exceptions:
//! changes within a batch, whose end writes them; times of an inode without names, which nothing will
//! read from the image; and a size whose data waits for blocks: the image keeps the size before that
//! (`durable_size`).
//!
//! # Crash
//! A record in the buffer may have the checksum of an earlier state: the block's seal computes the
//! checksums of changed records when a commit freezes the buffer.

use super::{Fields, Inode, InodeStore};
use crate::error::Result;
use drystone_cache::Buffer;
use drystone_jbd2::Handle;
use drystone_sync::atomic::Ordering;
use drystone_sync::{Arc, RwLockWriteGuard};

impl Inode {
    /// Changes the fields, in memory and in the inode table, as part of a transaction. A change
    /// that fails must leave the fields as they were.
    pub fn update<T>(
        &self,
        fs: &InodeStore,
        handle: &mut Handle<'_>,
        change: impl FnOnce(&mut Fields) -> Result<T>,
    ) -> Result<T> {
        if !self.is_batched.load(Ordering::Relaxed) {
            return self.update_now(fs, handle, change);
        }
        let mut fields = self.fields.write();
        if !self.is_batched.load(Ordering::Relaxed) {
            // The batch of another thread has just ended.
            drop(fields);
            return self.update_now(fs, handle, change);
        }
        let result = change(&mut fields)?;
        // The end of the batch publishes the other fields.
        if fields.disk.size_bytes != self.size_bytes() || fields.disk.flags != self.flags() {
            self.shown.write(&fields);
        }
        self.is_behind.store(true, Ordering::Relaxed);
        Ok(result)
    }

    /// Changes times of an inode without links, in memory only: nothing will read them from the image,
    /// and the next update writes them anyway. False, with nothing changed, if it has links.
    pub fn update_unlinked(&self, change: impl FnOnce(&mut Fields)) -> bool {
        let mut fields = self.fields.write();
        let is_unlinked = fields.disk.links_count == 0;
        if is_unlinked {
            change(&mut fields);
            self.changed(&mut fields);
        }
        is_unlinked
    }

    /// Stamps a directory whose names changed.
    pub fn stamp_names(&self, fs: &InodeStore, handle: &mut Handle<'_>) -> Result<()> {
        let now = fs.now();
        // The clock is coarse: most often the record has this time already, in this transaction, or another
        // thread, whose handle is open too, is about to write it.
        if self.last_transaction() == handle.tid() {
            // An update instead would make the words change for the next thread too.
            let view = self.view();
            if [view.modified(), view.changed()] == [view.clamped(now); 2] {
                return Ok(());
            }
        }
        self.update(fs, handle, |fields| {
            // Asked for again: another thread may have put a later time there.
            let now = fs.now();
            fields.disk.modification_time = now;
            fields.disk.change_time = now;
            Ok(())
        })
    }

    /// Runs `work`, and writes its updates of this inode to the inode table together at the end, also if
    /// `work` fails. `work` must not restart the handle. The content lock is held exclusively.
    ///
    /// Another thread may update the inode meanwhile (its link in the orphan list). That thread's handle
    /// and this one are open at the same time, so they belong to one transaction, and this one may write
    /// the updates of both.
    pub fn batch<'journal, T>(
        &self,
        fs: &InodeStore,
        handle: &mut Handle<'journal>,
        work: impl FnOnce(&mut Handle<'journal>) -> Result<T>,
    ) -> Result<T> {
        debug_assert!(!self.is_batched.load(Ordering::Relaxed), "a batch within a batch");
        // Read before anything changes, so that the end can't fail to read it.
        let buffer = self.lock_with_table(fs).1?;
        self.is_batched.store(true, Ordering::Relaxed);
        let result = work(handle);
        let mut fields = self.fields.write();
        self.is_batched.store(false, Ordering::Relaxed);
        let written = if self.is_behind.swap(false, Ordering::Relaxed) {
            self.changed(&mut fields);
            self.encode(fs, handle, &mut fields, &buffer)
        } else {
            Ok(())
        };
        drop(fields);
        let value = result?;
        written?;
        Ok(value)
    }

    /// Whether a batch goes on. It is that of the thread that holds the content lock exclusively.
    pub fn is_batched(&self) -> bool {
        self.is_batched.load(Ordering::Relaxed)
    }

    fn update_now<T>(
        &self,
        fs: &InodeStore,
        handle: &mut Handle<'_>,
        change: impl FnOnce(&mut Fields) -> Result<T>,
    ) -> Result<T> {
        let (mut fields, buffer) = self.lock_with_table(fs);
        let buffer = buffer?;
        let result = change(&mut fields)?;
        self.changed(&mut fields);
        self.encode(fs, handle, &mut fields, &buffer)?;
        Ok(result)
    }

    /// Clamps times and publishes the fields, which are locked, after a change.
    #[inline]
    fn changed(&self, fields: &mut Fields) {
        fields.disk.clamp_times();
        self.shown.write(fields);
        let is_nameless = fields.disk.links_count == 0;
        if is_nameless != self.is_nameless.load(Ordering::Relaxed) {
            self.is_nameless.store(is_nameless, Ordering::Release);
        }
    }

    /// Locks the fields, and gets the block of the inode table that they are in.
    fn lock_with_table(
        &self,
        fs: &InodeStore,
    ) -> (RwLockWriteGuard<'_, Fields>, Result<Arc<Buffer>>) {
        let fields = self.fields.write();
        if let Some(buffer) = fields.table.upgrade() {
            buffer.touch();
            return (fields, Ok(buffer));
        }
        // The block may have to be read, and no other thread should wait for that.
        drop(fields);
        let read = fs.volume.read(self.place.block);
        let mut fields = self.fields.write();
        if let Ok(buffer) = &read {
            fields.table = Arc::downgrade(buffer);
        }
        (fields, read)
    }

    /// Brings the copy in the inode table up to date with the fields, which are locked.
    fn encode(
        &self,
        fs: &InodeStore,
        handle: &mut Handle<'_>,
        fields: &mut Fields,
        buffer: &Arc<Buffer>,
    ) -> Result<()> {
        let mut bytes = handle.write(buffer, Some(fs.allocator.table_seal()))?;
        let layout = fs.volume.layout();
        let record = &mut bytes[self.place.record(layout)];
        if fields.xattr_area.take_new() {
            record.fill(0);
        }
        fields.xattr_area.store(&mut record[fields.disk.attribute_area(layout)]);
        let size_bytes = fields.disk.size_bytes;
        fields.disk.size_bytes = fields.durable_size.unwrap_or(size_bytes);
        let encoded = match self.place.part() {
            Some(_) => fields.disk.encode_unsealed(record, layout),
            None => fields.disk.encode_into(record, layout),
        };
        fields.disk.size_bytes = size_bytes;
        if let Some(part) = self.place.part() {
            bytes.note_unfinished(part);
        }
        encoded?;
        self.last_transaction.store(handle.tid(), Ordering::Relaxed);
        Ok(())
    }

    /// Raises the size to `end` for callers, but not on disk: data up to there waits for blocks. Returns
    /// what `look` returns. The content lock is held exclusively, and data that waits keeps the inode in
    /// memory.
    pub fn grow_in_memory<T>(&self, end: u64, look: impl FnOnce(&Fields) -> T) -> T {
        let mut fields = self.fields.write();
        let size_bytes = fields.disk.size_bytes;
        if end > size_bytes {
            fields.durable_size.get_or_insert(size_bytes);
            fields.disk.size_bytes = end;
            self.shown.write(&fields);
        }
        look(&fields)
    }

    /// Goes back to the size on disk after data that waited was dropped, before another thread's update
    /// can write the size up to that data.
    pub fn forget_growth(&self) {
        let mut fields = self.fields.write();
        if let Some(durable) = fields.durable_size.take() {
            fields.disk.size_bytes = durable;
            self.shown.write(&fields);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::testing::TestImage;
    use drystone_ext4_format::InodeNumber;
    use drystone_vfs::{FileSystem, NewNode, RequestContext};

    /// Between the drop of data that waited and the truncation, another thread records an access.
    #[test]
    fn data_that_was_dropped_leaves_no_size() {
        let Some(image) = TestImage::new("default", 16) else { return };
        let fs = image.open();
        let context = RequestContext::superuser();
        let made = fs.create(&context, fs.root(), b"file", NewNode::Regular, 0o644).unwrap();
        fs.write(&context, made.inode, 0, &[1; 20_000]).unwrap();
        let number = InodeNumber::new(made.inode.0 as u32);
        let inode = fs.inode(number).unwrap();
        assert_eq!((inode.size_bytes(), fs.inode_now(number).unwrap().size_bytes()), (20_000, 0));
        let content = inode.content().write();
        crate::file::discard(&fs, &inode);
        let mut handle = fs.volume.start(4).unwrap();
        inode.update(&fs, &mut handle, |_| Ok(())).unwrap();
        handle.stop().unwrap();
        assert_eq!((inode.size_bytes(), fs.inode_now(number).unwrap().size_bytes()), (0, 0));
        drop(content);
        fs.close().unwrap();
        image.check("after data was dropped");
    }
}
