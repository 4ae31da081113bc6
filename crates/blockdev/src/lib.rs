//! Block devices: files, memory, and wrappers that record, fail and delay.
//!
//! The engine knows only [`BlockDevice`]. What stands behind it is a [`FileDevice`] (a regular file
//! or a block device), a [`MemoryDevice`], or one of these inside wrappers: [`Region`] (a part, such
//! as a partition), [`GroupFlush`] (callers that wait for a flush share one; used by the engine),
//! [`ReadOnly`], [`Overlay`] (writes stay in memory), [`Cancellable`], [`Recording`] (for crash images), [`Faulty`],
//! [`Stepped`] (operations wait for a test) and [`Timed`]. Test hooks are in wrappers, never in the
//! engine.
//!
//! [`UndoDevice`] logs old bytes, so that a change of an image can be taken back.
//!
//! Before an image is made, [`holds_data`] says whether a device is empty, and [`erase_signatures`]
//! removes what identifies other formats.
//!
//! # Locking
//!
//! Devices may be called with any engine lock held, so the lock classes here (see [`lock_classes`])
//! rank above all others. A wrapper calls the device below without a lock of its own; [`Recording`]
//! alone keeps one, so that its log has the device's order.
#![deny(unsafe_code)]

mod cancellable;
mod device;
mod error;
mod faulty;
mod file;
mod group_flush;
mod kernel_use;
pub mod lock_classes;
mod loop_device;
mod memory;
mod overlay;
mod read_only;
mod recording;
mod region;
mod signatures;
mod stepped;
mod timed;
mod undo;

pub use cancellable::Cancellable;
pub use device::{BlockDevice, check_range, write_zeros};
pub use error::{DeviceError, DeviceOperation, DeviceResult};
pub use faulty::{Effect, Fault, Faulty, Trigger};
pub use file::{Existing, FileDevice, OpenMode, sync_directory_of};
pub use group_flush::{GroupFlush, WriteMark};
pub use kernel_use::{KernelUse, lies_on};
pub use memory::MemoryDevice;
pub use overlay::Overlay;
pub use read_only::ReadOnly;
pub use recording::{Event, EventKind, Recording};
pub use region::Region;
pub use signatures::{edges_hold_data, erase_signatures, holds_data};
pub use stepped::{Stepped, Waiting};
pub use timed::{Delays, OperationStatistics, Timed};
pub use undo::{UndoDevice, UndoError, UndoFile, UndoMark, UndoTarget, roll_back};
