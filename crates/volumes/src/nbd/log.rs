//! Changes that the server may still lose.

use drystone_sync::Arc;
use std::collections::BTreeMap;

/// A change of a range.
#[derive(Clone, Debug)]
pub(super) enum NbdChange {
    Write(Arc<[u8]>),
    Zero(u64),
}

/// All changes since the last flush, in the order in which they were begun.
///
/// A change that begins after another one was answered comes later. So they can be made again in this order,
/// also those whose answers are still awaited: changes under way at once have no order among them.
#[derive(Debug, Default)]
pub(super) struct UnflushedLog {
    changes: BTreeMap<u64, LoggedChange>,
    next: u64,
    bytes: usize,
}

#[derive(Debug)]
struct LoggedChange {
    offset: u64,
    change: NbdChange,
    is_answered: bool,
}

impl UnflushedLog {
    pub fn begin(&mut self, offset: u64, change: NbdChange) -> u64 {
        let number = self.next;
        self.next += 1;
        self.bytes += change.memory_bytes();
        self.changes.insert(number, LoggedChange { offset, change, is_answered: false });
        number
    }

    pub fn answered(&mut self, number: u64) {
        if let Some(logged) = self.changes.get_mut(&number) {
            logged.is_answered = true;
        }
    }

    pub fn remove(&mut self, number: u64) {
        if let Some(logged) = self.changes.remove(&number) {
            self.bytes -= logged.change.memory_bytes();
        }
    }

    /// What a flush that begins now makes durable.
    pub fn answered_numbers(&self) -> Vec<u64> {
        let answered = self.changes.iter().filter(|(_, logged)| logged.is_answered);
        answered.map(|(number, _)| *number).collect()
    }

    pub fn all(&self) -> Vec<(u64, NbdChange)> {
        self.changes.values().map(|logged| (logged.offset, logged.change.clone())).collect()
    }

    /// The memory that it takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl NbdChange {
    fn memory_bytes(&self) -> usize {
        size_of::<LoggedChange>()
            + match self {
                Self::Write(data) => data.len(),
                Self::Zero(_) => 0,
            }
    }
}
