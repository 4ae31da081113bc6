//! Growing a volume: what it holds stays, also in a crash, and the new segments are used.
//!
//! `DRYSTONE_CRASH_IMAGES` is how many crashes are made.
#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use drystone_blockdev::{BlockDevice, DeviceResult, MemoryDevice, Overlay, Recording};
use drystone_nilfs2::mkfs::{MakeOptions, make};
use drystone_nilfs2::{GrownVolume, MountOptions, Nilfs2, grow};
use drystone_nilfs2_format::geometry::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET_BYTES};
use drystone_nilfs2_format::superblock::Superblock;
use drystone_sync::Arc;
use drystone_testkit::crash::CrashImages;
use drystone_testkit::environment::number;
use drystone_testkit::tree::diff;
use drystone_vfs::{FileSystem, NewNode, RequestContext};
use support::{image, judge, mount, tree};
use uuid::Uuid;

/// A larger device with the same bytes.
fn enlarged(device: &MemoryDevice, mebibytes: u64) -> Arc<MemoryDevice> {
    let mut bytes = vec![0; device.size_bytes() as usize];
    device.read_at(0, &mut bytes).unwrap();
    let larger = MemoryDevice::new(mebibytes << 20);
    larger.write_at(0, &bytes).unwrap();
    Arc::new(larger)
}

fn fill(
    device: &Arc<MemoryDevice>,
    name: &[u8],
    mebibytes: usize,
) -> Result<(), drystone_vfs::Error> {
    let context = RequestContext::superuser();
    let fs = mount(device, &MountOptions::default());
    let entry = fs.create(&context, fs.root(), name, NewNode::Regular, 0o644)?;
    let written = fs.write_all(&context, entry.inode, 0, &vec![7; mebibytes << 20]);
    fs.unmount().unwrap();
    written
}

#[test]
fn a_grown_volume_keeps_its_files_and_takes_more() {
    for (block_bytes, blocks_per_segment) in [(4096, 16), (1024, 64)] {
        let small = image(8, block_bytes, blocks_per_segment);
        fill(&small, b"first", 4).unwrap();
        let before = tree(&mount(&small, &MountOptions::default().read_only(true)));
        let device = enlarged(&small, 40);
        let shared: Arc<dyn BlockDevice> = Arc::clone(&device) as Arc<dyn BlockDevice>;
        let GrownVolume { segments_before, segments } = grow(&shared).unwrap();
        assert!(segments > 4 * segments_before, "{segments_before} became {segments}");
        judge(&*device, "a grown volume");
        let after = tree(&mount(&device, &MountOptions::default().read_only(true)));
        assert_eq!(diff(&before, &after), Vec::<String>::new());
        fill(&device, b"second", 24).unwrap();
        judge(&*device, "a grown and filled volume");
        // Again, without more room.
        assert_eq!(grow(&shared).unwrap(), GrownVolume { segments_before: segments, segments });
        judge(&*device, "a volume that was to grow twice");
    }
}

/// A crash leaves what the volume held, and growing again completes it.
#[test]
fn a_crash_while_growing_loses_nothing() {
    let seed = number("DRYSTONE_SEED").unwrap_or(0);
    let count = number("DRYSTONE_CRASH_IMAGES").unwrap_or(40) as usize / 2;
    let read_only = MountOptions::default().read_only(true);
    for (block_bytes, blocks_per_segment) in [(4096, 16), (1024, 64)] {
        let small = image(8, block_bytes, blocks_per_segment);
        fill(&small, b"first", 3).unwrap();
        let before = tree(&mount(&small, &read_only));
        let base = enlarged(&small, 20).snapshot();
        let recording = Arc::new(Recording::new(base.snapshot()));
        let shared: Arc<dyn BlockDevice> = Arc::clone(&recording) as Arc<dyn BlockDevice>;
        let grown = grow(&shared).unwrap();
        for crash in CrashImages::new(&base, recording.events(), seed).unwrap().take(count) {
            let crash = crash.unwrap();
            let what = &crash.description;
            let device: Arc<dyn BlockDevice> = Arc::new(crash.device);
            let found = tree(&Nilfs2::mount(Arc::clone(&device), &read_only).unwrap());
            assert_eq!(diff(&before, &found), [""; 0], "{what}");
            assert_eq!(grow(&device).unwrap().segments, grown.segments, "{what}");
            judge(&*device, what);
            let found = tree(&Nilfs2::mount(device, &read_only).unwrap());
            assert_eq!(diff(&before, &found), [""; 0], "{what}, grown again");
        }
    }
}

/// The reserve of the new size is more than the segments that are counted as clean until then.
#[test]
fn a_volume_whose_growth_crashed_is_written_to() {
    let small = image(8, 4096, 16);
    fill(&small, b"first", 4).unwrap();
    let device = enlarged(&small, 200);
    let recording = Arc::new(Recording::new(device.snapshot()));
    let shared: Arc<dyn BlockDevice> = Arc::clone(&recording) as Arc<dyn BlockDevice>;
    let grown = grow(&shared).unwrap();
    let segments = || {
        let mut bytes = vec![0; SUPERBLOCK_BYTES];
        device.read_at(SUPERBLOCK_OFFSET_BYTES, &mut bytes).unwrap();
        Superblock::check(&bytes, device.size_bytes()).unwrap().geometry().segments()
    };
    let mut events = recording.events().into_iter();
    while segments() < grown.segments {
        events.next().unwrap().kind.apply(&*device).unwrap();
    }
    fill(&device, b"second", 24).unwrap();
    judge(&*device, "a volume whose growth crashed");
}

/// As many zeros as one likes.
#[derive(Debug)]
struct Nothing {
    size_bytes: u64,
}

impl BlockDevice for Nothing {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read_at(&self, _offset: u64, buffer: &mut [u8]) -> DeviceResult {
        buffer.fill(0);
        Ok(())
    }

    fn write_at(&self, _offset: u64, _data: &[u8]) -> DeviceResult {
        unreachable!("it is under an overlay")
    }

    fn flush(&self) -> DeviceResult {
        Ok(())
    }
}

/// Neither memory nor time follows what a superblock claims.
#[test]
fn claimed_segments_cost_nothing() {
    let device = Arc::new(Overlay::new(Nothing { size_bytes: 1 << 60 }));
    let options = MakeOptions::new(Uuid::from_u128(1), 7, 1_700_000_000)
        .block_bytes(1024)
        .blocks_per_segment(16);
    make(&device, &options).unwrap();
    let shared: Arc<dyn BlockDevice> = Arc::clone(&device) as Arc<dyn BlockDevice>;
    let context = RequestContext::superuser();
    let fs = Nilfs2::mount(Arc::clone(&shared), &MountOptions::default()).unwrap();
    for name in ["a", "b"] {
        let entry = fs.create(&context, fs.root(), name.as_bytes(), NewNode::Regular, 0o644);
        fs.write_all(&context, entry.unwrap().inode, 0, &[7; 100_000]).unwrap();
        fs.sync().unwrap();
    }
    fs.unlink(&context, fs.root(), b"a").unwrap();
    fs.clean(0).unwrap();
    fs.unmount().unwrap();
    judge(&device, "a volume with many segments");
    let grown = grow(&shared).unwrap();
    assert!(grown.segments > 1 << 45, "{grown:?}");
    judge(&device, "a volume that has grown");
}
