//! A mount tells when it can't start where the newer superblock says.

use super::*;
use tracing::span;

/// Counts warnings.
struct Warnings(Arc<AtomicUsize>);

impl tracing::Subscriber for Warnings {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// The content of `a` after a mount for reading, and the number of warnings.
fn mounted(device: MemoryDevice) -> (u8, usize) {
    let warnings = Arc::new(AtomicUsize::new(0));
    let byte = tracing::subscriber::with_default(Warnings(Arc::clone(&warnings)), || {
        let options = MountOptions::default().read_only(true);
        first_byte(&Nilfs2::mount(Arc::new(device), &options).unwrap(), b"a")
    });
    (byte, warnings.load(Ordering::Relaxed))
}

#[test]
fn an_older_checkpoint_is_not_used_without_a_warning() {
    let (device, fs, [a, _]) = volume();
    let engine = &fs.engine;
    engine.log.lock().superblocks.write_both(&engine.volume).unwrap();
    let second_at = second_superblock_offset(device.size_bytes());
    let mut second = [0; SUPERBLOCK_BYTES];
    device.read_at(second_at, &mut second).unwrap();
    overwrite(&fs, &a, 0, 2);
    fs.sync().unwrap();
    engine.log.lock().superblocks.write_both(&engine.volume).unwrap();
    device.write_at(second_at, &second).unwrap();
    let device = || MemoryDevice::from_bytes(&device.inner().to_vec());
    assert_eq!(mounted(device()), (2, 0));

    let damaged = device();
    let newest = engine.log.lock().superblocks.current.cursor().block;
    damaged.write_at(engine.volume.geometry.offset_of(newest) + 100, &[0xFF; 8]).unwrap();
    assert_eq!(mounted(damaged), (1, 1));

    let damaged = device();
    damaged.write_at(SUPERBLOCK_OFFSET_BYTES + 100, &[0xFF; 8]).unwrap();
    assert_eq!(mounted(damaged), (2, 1));
}
