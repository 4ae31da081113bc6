//! Independent judges of images: e2fsprogs and the kernel.

mod feature_sets;
mod kernel;
mod loop_device;
mod small_images;
mod tools;

pub use feature_sets::{FEATURE_SETS, FeatureSet, KernelSupport};
pub use kernel::{Mounted, can_mount, crashed_image, kernel_mount};
pub use loop_device::LoopDevice;
pub use small_images::{SMALL_IMAGES, SmallImage, make_small_image};
pub use tools::{
    Judgement, Scratch, debugfs, e2fsck_at, e2fsck_check, e2fsck_repair, have, mke2fs, run,
    write_image,
};
