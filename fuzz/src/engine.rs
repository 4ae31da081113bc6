//! Whole images through the engine and the checker.

use crate::exercise;
use crate::image::options;
use crate::input::Input;
use drystone_blockdev::{BlockDevice, MemoryDevice, Overlay};
use drystone_ext4::Ext4;
use drystone_ext4_format::features::Features;
use drystone_mkfs::{JournalSize, MkfsOptions, default_features, make};
use drystone_sync::{Arc, LazyLock};
use drystone_vfs::{
    Errno, FallocateMode, FileSystem, InodeGuard, NewNode, RenameFlags, RequestContext,
    SetAttributes, XattrMode, find_parent, find_path,
};
use fastrand::Rng;

const SIZE: u64 = 2 << 20;

/// Features of the images: with block maps or with all that is new, never with checksums, which
/// would hide everything behind them.
const FEATURES: [&str; 3] = [
    "^metadata_csum,^metadata_csum_seed,inline_data,ea_inode,^has_journal,^resize_inode",
    "^metadata_csum,^metadata_csum_seed,^extent,^64bit,^flex_bg,^has_journal,^resize_inode",
    "^metadata_csum,^metadata_csum_seed,quota,^resize_inode",
];

/// An image, and the blocks of it that are not zero.
struct Seed {
    device: Arc<MemoryDevice>,
    blocks: Vec<u64>,
}

const BLOCK: u64 = 1024;

static SEEDS: LazyLock<Vec<Seed>> =
    LazyLock::new(|| FEATURES.iter().map(|list| seed(list)).collect());

fn seed(features: &str) -> Seed {
    let device = Arc::new(MemoryDevice::new(SIZE));
    let mut how = MkfsOptions::new(SIZE, [7; 16], [1, 2, 3, 4], 1_700_000_000);
    let change = Features::parse(features).expect("the list is of known features");
    how.features = default_features().apply(&change);
    how.block_size = Some(BLOCK as u32);
    how.inodes = Some(128);
    how.journal_size = JournalSize::Bytes(1 << 20);
    make(&*device, &how, true).expect("the image can be made");
    let fs = Ext4::open(device.clone(), options(false)).expect("a new image opens");
    for step in 0..60_u8 {
        let bytes: Vec<u8> =
            (0..16).map(|at| step.wrapping_mul(37).wrapping_add(step.wrapping_mul(at))).collect();
        let _ = operate(&fs, &mut Input(&bytes));
    }
    fs.close().expect("a sound image closes");
    let mut bytes = vec![0; BLOCK as usize];
    let mut is_used = |block: &u64| {
        device.read_at(block * BLOCK, &mut bytes).expect("the block is on the device");
        bytes.iter().any(|&byte| byte != 0)
    };
    let blocks = (0..SIZE / BLOCK).filter(|block| is_used(block)).collect();
    Seed { device, blocks }
}

/// An image with changes at any place: mounted, read, changed, checked.
pub fn image(data: &[u8]) {
    let mut input = Input(data);
    let seed = &SEEDS[usize::from(input.u8()) % SEEDS.len()];
    let random = input.u64();
    let damaged = || -> Arc<Overlay<Arc<MemoryDevice>>> {
        let device = Arc::new(Overlay::new(Arc::clone(&seed.device)));
        let mut input = input;
        for _ in 0..8 {
            if input.is_empty() {
                break;
            }
            let block = seed.blocks[usize::from(input.u16()) % seed.blocks.len()];
            let mut bytes = vec![0; BLOCK as usize];
            let _ = device.read_at(block * BLOCK, &mut bytes);
            let _ = device.write_at(block * BLOCK, &input.change(&bytes));
        }
        device
    };
    exercise::read_all(damaged());
    check(&*damaged());
    let device = damaged();
    exercise::change_all(device.clone(), &mut Rng::with_seed(random));
    exercise::read_all(device.clone());
    check(&*device);
}

fn check(device: &dyn BlockDevice) -> Option<drystone_fsck::Report> {
    let options = drystone_fsck::CheckOptions::default().problems_max(100).threads(1);
    drystone_fsck::check(device, &options, &mut |_| {}).ok()
}

/// A path of names that others may use too.
fn path(input: &mut Input<'_>) -> Vec<u8> {
    let mut path = Vec::new();
    for _ in 0..=input.u8() % 3 {
        path.push(b'/');
        match input.u8() {
            0 => path.extend(b".."),
            1 => path.extend([b'x'; 255]),
            2 => path.extend(input.bytes(6)),
            number => path.push(b'a' + number % 6),
        }
    }
    path
}

/// One operation.
pub(crate) fn operate(fs: &impl FileSystem, input: &mut Input<'_>) -> drystone_vfs::Result<()> {
    let context = RequestContext::superuser();
    let kind = input.u8() % 16;
    let first = path(input);
    let (offset, length) = (u64::from(input.u16()) << (input.u8() % 8), u64::from(input.u16()));
    if kind < 6 {
        let (parent, name) = find_parent(fs, &context, &first)?;
        let target = path(input);
        let node = match kind {
            0 | 1 => NewNode::Regular,
            2 | 3 => NewNode::Directory,
            _ => NewNode::Symlink(&target),
        };
        return InodeGuard::create(fs, &context, parent.inode(), name, node, 0o644).map(drop);
    }
    if kind < 10 {
        let (parent, name) = find_parent(fs, &context, &first)?;
        let parent_inode = parent.inode();
        return match kind {
            6 => fs.unlink(&context, parent_inode, name),
            7 => fs.remove_directory(&context, parent_inode, name),
            _ => {
                let second = path(input);
                let (to, new_name) = find_parent(fs, &context, &second)?;
                let flags = match input.u8() % 3 {
                    0 => RenameFlags::EXCHANGE,
                    1 => RenameFlags::NO_REPLACE,
                    _ => RenameFlags::empty(),
                };
                fs.rename(&context, parent_inode, name, to.inode(), new_name, flags)
            }
        };
    }
    let found = find_path(fs, &context, &first, true)?;
    let inode = found.inode();
    let content = vec![kind; length as usize % 20_000];
    match kind {
        10 => fs.write(&context, inode, offset, &content).map(drop),
        11 => {
            let changes = SetAttributes { size: Some(offset), ..SetAttributes::default() };
            fs.set_attributes(&context, inode, &changes).map(drop)
        }
        12 => {
            let value = &content[..content.len().min(3000)];
            fs.set_xattr(&context, inode, b"user.name", value, XattrMode::Set)
        }
        13 => fs.remove_xattr(&context, inode, b"user.name"),
        14 => {
            let mode = match input.u8() % 5 {
                0 => FallocateMode::PunchHole,
                1 => FallocateMode::ZeroRange { keep_size: false },
                2 => FallocateMode::CollapseRange,
                3 => FallocateMode::InsertRange,
                _ => FallocateMode::Allocate { keep_size: true },
            };
            fs.fallocate(&context, inode, mode, offset & !1023, length & !1023)
        }
        _ => {
            let other = path(input);
            let (parent, name) = find_parent(fs, &context, &other)?;
            InodeGuard::link(fs, &context, inode, parent.inode(), name).map(drop)
        }
    }
}

/// Any sequence of operations on paths of a sound image, which the checker finds sound after.
pub fn path_operations(data: &[u8]) {
    let mut input = Input(data);
    let seed = &SEEDS[usize::from(input.u8()) % SEEDS.len()];
    let device = Arc::new(Overlay::new(Arc::clone(&seed.device)));
    let fs = Ext4::open(device.clone(), options(false)).expect("a sound image opens");
    for _ in 0..64 {
        if input.is_empty() {
            break;
        }
        if let Err(error) = operate(&fs, &mut input) {
            assert!(!matches!(error.errno, Errno::EUCLEAN | Errno::EIO), "{error:?}");
        }
    }
    fs.close().expect("a sound image closes");
    let report = check(&*device).expect("a sound image can be checked");
    assert!(report.is_clean(), "{:?}", report.problems);
}
