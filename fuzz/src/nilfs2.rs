//! Volumes of NILFS2 through the engine and the checker.

use crate::engine::operate;
use crate::input::Input;
use drystone_blockdev::{BlockDevice, MemoryDevice, Overlay};
use drystone_nilfs2::mkfs::{MakeOptions, make};
use drystone_nilfs2::{MountOptions, Nilfs2};
use drystone_nilfs2_check::{Nilfs2CheckOptions, check};
use drystone_nilfs2_format::geometry::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES};
use drystone_nilfs2_format::log::{LogHeader, seal};
use drystone_nilfs2_format::super_root::SUPER_ROOT_BYTES;
use drystone_nilfs2_format::superblock::{self, Superblock};
use drystone_nilfs2_format::{PhysicalBlock, SegmentNumber, Sum};
use drystone_sync::{Arc, LazyLock};
use drystone_vfs::{FileSystem, InodeNumber, RequestContext};

const SIZE: u64 = 2 << 20;
const BLOCK: u64 = 1024;
/// Names that are looked up in one walk.
const NAMES_MAX: usize = 500;

/// A log: its first block, its blocks, and the bytes of its summary.
#[derive(Clone, Copy)]
struct Log {
    start: u64,
    blocks: u64,
    summary_bytes: usize,
}

/// A volume, and where the damage goes.
struct Seed {
    device: Arc<MemoryDevice>,
    sum_seed: u32,
    logs: Vec<Log>,
}

static SEED: LazyLock<Seed> = LazyLock::new(seed);

fn options(read_only: bool) -> MountOptions {
    let fixed_time_s = Some(1_700_000_000);
    MountOptions::default().read_only(read_only).fixed_time_s(fixed_time_s)
}

fn seed() -> Seed {
    let device = Arc::new(MemoryDevice::new(SIZE));
    let how = MakeOptions::new(uuid::Uuid::from_u128(7), 7, 1_700_000_000)
        .block_bytes(BLOCK as u32)
        .blocks_per_segment(64);
    make(&*device, &how).expect("the volume can be made");
    let fs = Nilfs2::mount(device.clone(), &options(false)).expect("a new volume is mounted");
    for step in 0..40_u8 {
        let bytes: Vec<u8> =
            (0..16).map(|at| step.wrapping_mul(37).wrapping_add(step.wrapping_mul(at))).collect();
        let _ = operate(&fs, &mut Input(&bytes));
        if step % 10 == 0 {
            fs.sync().expect("the volume has room");
        }
    }
    fs.unmount().expect("a sound volume closes");
    let mut bytes = vec![0; SIZE as usize];
    device.read_at(0, &mut bytes).expect("the device is in memory");
    let superblock = &bytes[SUPERBLOCK_OFFSET_BYTES as usize..];
    let superblock = Superblock::check(superblock, SIZE).expect("the volume is sound");
    let geometry = superblock.geometry();
    let mut logs = Vec::new();
    for segment in (0..geometry.segments()).map(SegmentNumber) {
        let mut start = geometry.segment_start(segment).0;
        while start < geometry.segment_end(segment).0 {
            let found = &bytes[(start * BLOCK) as usize..];
            let Ok(header) = LogHeader::check(found, geometry, PhysicalBlock(start)) else { break };
            let (blocks, summary_bytes) = (u64::from(header.blocks), header.summary_bytes as usize);
            logs.push(Log { start, blocks, summary_bytes });
            start += blocks;
        }
    }
    assert!(logs.len() > 4, "every sync has written a log");
    Seed { device, sum_seed: superblock.seed(), logs }
}

/// A volume with changes at any place. Sums over them are made right, or not.
fn damaged(input: &mut Input<'_>) -> Arc<Overlay<Arc<MemoryDevice>>> {
    let device = Arc::new(Overlay::new(Arc::clone(&SEED.device)));
    let has_sums = input.u8() % 8 != 0;
    for _ in 0..4 {
        if input.is_empty() {
            break;
        }
        let at = usize::from(input.u8()) % (SEED.logs.len() + 1);
        match SEED.logs.get(at) {
            Some(log) => change_log(&device, log, has_sums, input),
            None => change_superblock(&device, has_sums, input),
        }
    }
    device
}

fn change_log(device: &dyn BlockDevice, log: &Log, has_sums: bool, input: &mut Input<'_>) {
    let mut bytes = vec![0; (log.blocks * BLOCK) as usize];
    let _ = device.read_at(log.start * BLOCK, &mut bytes);
    let at = u64::from(input.u16()) % log.blocks * BLOCK;
    let block = at as usize..(at + BLOCK) as usize;
    let changed = input.change(&bytes[block.clone()]);
    bytes[block].copy_from_slice(&changed);
    if has_sums {
        // If the last block isn't a super root, it is damaged a little more.
        let last = bytes.len() - BLOCK as usize;
        let sum = Sum::of(SEED.sum_seed, &bytes[last + 4..last + SUPER_ROOT_BYTES]);
        bytes[last..last + 4].copy_from_slice(&sum.to_le_bytes());
        let (summary, payload) = bytes.split_at_mut(BLOCK as usize);
        if log.summary_bytes <= summary.len() {
            seal(SEED.sum_seed, summary, log.summary_bytes, [&*payload]);
        }
    }
    let _ = device.write_at(log.start * BLOCK, &bytes);
}

fn change_superblock(device: &dyn BlockDevice, has_sums: bool, input: &mut Input<'_>) {
    let mut bytes = vec![0; SUPERBLOCK_BYTES];
    let _ = device.read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes);
    let mut bytes = input.change(&bytes);
    if has_sums {
        superblock::seal(&mut bytes);
    }
    let _ = device.write_at(SUPERBLOCK_OFFSET_BYTES, &bytes);
}

/// A damaged volume: checked, mounted, read, changed, checked again.
pub fn volume(data: &[u8]) {
    let input = Input(data);
    let fresh = || {
        let mut input = input;
        let device = damaged(&mut input);
        (device, input)
    };
    let (device, _) = fresh();
    let _ = check(&*device, &Nilfs2CheckOptions::default().problems_max(100));
    if let Ok(fs) = Nilfs2::mount(device, &options(true)) {
        walk(&fs);
    }
    let (device, mut input) = fresh();
    if let Ok(fs) = Nilfs2::mount(device.clone(), &options(false)) {
        for _ in 0..16 {
            if input.is_empty() {
                break;
            }
            let _ = operate(&fs, &mut input);
        }
        let _ = fs.sync();
        walk(&fs);
        let _ = fs.unmount();
    }
    let _ = check(&*device, &Nilfs2CheckOptions::default().problems_max(100));
}

/// Looks at the tree from its root.
fn walk(fs: &Nilfs2) {
    let context = RequestContext::superuser();
    let mut pending = vec![fs.root()];
    let mut left = NAMES_MAX;
    while let Some(directory) = pending.pop() {
        for name in names(fs, &context, directory) {
            if left == 0 {
                return;
            }
            left -= 1;
            if let Ok(entry) = fs.lookup(&context, directory, &name) {
                look(fs, entry.inode);
                pending.push(entry.inode);
                fs.forget(entry.inode, 1);
            }
        }
    }
}

fn names(fs: &Nilfs2, context: &RequestContext, directory: InodeNumber) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let _ = fs.read_directory(context, directory, 0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            names.push(entry.name.to_vec());
        }
        names.len() < NAMES_MAX
    });
    names
}

fn look(fs: &Nilfs2, inode: InodeNumber) {
    let mut bytes = [0; 3000];
    let _ = fs.attributes(inode);
    let _ = fs.read_link(inode);
    for offset in [0, 10_000, 1 << 30, 1 << 40] {
        let _ = fs.read(inode, offset, &mut bytes);
    }
}
