//! Looks inside ext4 images: decodes structures byte by byte, and finds the owners of blocks and the names of inodes.
//!
//! Nothing is repaired or replayed, and nothing is taken on trust: each structure is shown as it is stored, with
//! its problems and whether its checksum is right. Only [`set_fields`] changes an image: it sets single fields, by the
//! names that [`inspect`] shows.
//!
//! # Structure
//! `image` finds the superblock, descriptors and inodes; `map` walks extent trees and block maps; `decode`
//! has a module for each structure; `owners` finds what blocks belong to, and `names` the paths of inodes;
//! `metadata` copies an image without the data of its files, and without private text if asked to; `fragmentation` counts the fragments of files and free
//! space; `set` finds fields, stores values in them, and updates the checksums; `undelete` finds deleted files.
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
    FileFragments, Fragmentation, FragmentedFile, FreeFragments, FreeFragmentsOfSize,
    fragmentation_of,
};
pub use image::{InspectedImage, StoredInode};
pub use map::{MapPart, walk_map};
pub use metadata::{
    MetadataOptions, MetadataSummary, ScrambleKey, ScrambleSummary, copy_metadata, copy_scrambled,
};
pub use names::{InodeName, names_of};
pub use owners::{BlockOwner, BlockPurpose, owners_of};
pub use set::{SetField, SetOptions, set_fields};
pub use undelete::{
    ContentVisitor, DeletedFile, JournalLog, KnowledgeSource, Recoverable, find_deleted,
    visit_content,
};
