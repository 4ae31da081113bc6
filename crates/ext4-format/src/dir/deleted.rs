//! Entries that were removed and whose bytes are still there.
//!
//! Removing an entry only makes the record in front of it longer. What lies in that slack was an entry, or was
//! never anything, so each is taken for one only if all of its fields could be.

use super::record::{self, HEADER_LENGTH};
use super::view::{DirectoryBlock, Entry};
use super::{EntryType, NAME_LENGTH_MAX};

/// Entries start at multiples of this.
const ALIGNMENT: usize = 4;

impl<'a> DirectoryBlock<'a> {
    /// The entries that still lie in the slack of records, in block order. Any of them may be nothing but bytes
    /// that look like one. `.` and `..` are left out.
    #[must_use]
    pub fn deleted_entries(&self) -> Vec<Entry<'a>> {
        let mut found = Vec::new();
        for holder in self.records() {
            let end = holder.offset + holder.length;
            // The name of an unused record is left over too, but not its inode.
            let used = holder.used.max(record::hash_offset(holder.name.len()));
            let mut at = holder.offset + used;
            while at + HEADER_LENGTH < end {
                match self.deleted_entry_at(at, end) {
                    // Its record may have been longer: entries after it were removed before.
                    Some((entry, used)) => {
                        at += used;
                        found.push(entry);
                    }
                    None => at += ALIGNMENT,
                }
            }
        }
        found
    }

    /// What could be an entry at a place in slack that reaches up to `end`, and the bytes that it uses.
    fn deleted_entry_at(&self, at: usize, end: usize) -> Option<(Entry<'a>, usize)> {
        let walk = self.records();
        let record = record::read(walk.bytes, at, end, &walk.layout).ok()?;
        let entry_type = EntryType::from_raw(record.raw_type)?;
        let has_type = entry_type != EntryType::Unknown || !walk.layout.file_type;
        let entry = Entry::from(record);
        let is_entry = record.is_live()
            && has_type
            && record.name.len() <= NAME_LENGTH_MAX
            && record::check_entry(&record, &walk.layout).is_ok()
            && !entry.is_dot();
        is_entry.then_some((entry, record.used))
    }
}
