//! Looks inside ext4 images: what each structure says, byte by byte, and what belongs to whom.
//!
//! Nothing is repaired or replayed, and nothing is believed: each structure is shown as it is stored, with
//! the verdict of its checksum and what its checks say. Only [`set_fields`] changes an image: single fields, by the
//! names under which they are shown.
//!
//! # Structure
//! `image` finds the superblock, descriptors and inodes; `map` follows what maps a file's blocks; `decode`
//! has a module for each structure; `owners` and `names` answer whose a block is and what an inode is called;
//! `metadata` copies an image without the data of its files; `fragmentation` says in how many pieces they are;
//! `set` finds fields, stores values in them, and mends the checksums; `undelete` finds files that were deleted.
#![forbid(unsafe_code)]

mod block_ranges;
mod decode;
mod error;
mod fragmentation;
mod image;
mod map;
mod metadata;
mod names;
mod owners;
mod set;
mod undelete;

pub use decode::{ChecksumVerdict, Decoded, DecodedField, FieldValue, ImagePart, inspect};
pub use error::InspectError;
pub use fragmentation::{
    FilePieces, Fragmentation, FreePieces, FreePiecesOfSize, ScatteredFile, fragmentation_of,
};
pub use image::{InspectedImage, StoredInode};
pub use map::{MapPart, walk_map};
pub use metadata::{MetadataSummary, copy_metadata};
pub use names::{InodeName, names_of};
pub use owners::{BlockOwner, BlockPurpose, owners_of};
pub use set::{SetField, SetOptions, set_fields};
pub use undelete::{
    ContentVisitor, DeletedFile, JournalLog, KnowledgeSource, Recoverable, find_deleted,
    visit_content,
};
