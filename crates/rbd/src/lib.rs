//! Images in Ceph clusters (RBD) as block devices.
//!
//! [`RbdDevice`] is an image, or a snapshot of one, that a [`RbdAddress`] names. librbd, a library of C, is loaded
//! when the first image is opened; nothing else needs it. [`SnapshotWatch`] freezes what is mounted for snapshots.
//!
//! # Crash
//!
//! librados sends a request again until an OSD has answered it, whatever happens to the OSDs: what was
//! answered is durable. A request that isn't answered within the time limit ends all use of the image.
//!
//! An image is written by one client at a time, the owner of its lock (`owner`).
#![deny(unsafe_code)]

mod address;
mod device;
mod image;
mod in_flight;
mod library;
mod notes;
mod owner;
mod snapshot;

pub use address::RbdAddress;
pub use device::RbdDevice;
pub use snapshot::{Freezing, SnapshotWatch, create_snapshot};
