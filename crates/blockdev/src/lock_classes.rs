//! The lock classes of devices, by rank.

use drystone_sync::LockClass;

/// Whether a flush of a [`GroupFlush`](crate::GroupFlush) runs. Not held while the device works.
pub static GROUP_FLUSH: LockClass = LockClass::new("group flush", 890);

/// What an [`UndoDevice`](crate::UndoDevice) holds and has logged. Held while the devices below work.
pub static UNDO: LockClass = LockClass::new("undo log", 895);

/// What [`Recording`](crate::Recording) has recorded. Held while the operation reaches the
/// device below, so that the log has the order in which the device was changed. Nestable:
/// recordings may be stacked, and the outer one is taken first.
pub static RECORDING: LockClass = LockClass::new("recording log", 900).nestable();

/// Rules and counts of a [`Faulty`](crate::Faulty) device.
pub static FAULTS: LockClass = LockClass::new("fault rules", 910);

/// Operations that wait in a [`Stepped`](crate::Stepped) device.
pub static STEPS: LockClass = LockClass::new("held operations", 905);

/// One shard of the blocks that an [`Overlay`](crate::Overlay) has in memory.
pub static OVERLAY_SHARD: LockClass = LockClass::new("overlay shard", 920);

/// One chunk of a [`MemoryDevice`](crate::MemoryDevice). Nestable: a snapshot takes the locks
/// of all chunks, in their order.
pub static MEMORY_CHUNK: LockClass = LockClass::new("memory chunk", 990).nestable();

/// Whether a flush of a [`FileDevice`](crate::FileDevice) has failed. Held while one runs.
pub static FILE_FLUSH: LockClass = LockClass::new("file flush", 980);
