//! Changes that end in the middle: after any write the image goes back, and the change can be made again.

use crate::support::Sample;
use drystone::reshape::{NewSize, ReshapeDevice, ReshapeError, Resized, resize};
use drystone_blockdev::{
    DeviceOperation, Effect, Fault, FileDevice, MemoryDevice, OpenMode, Trigger, UndoDevice,
    UndoFile,
};
use drystone_blockdev::{Faulty, roll_back};
use drystone_testkit::environment::number;

const MIB: u64 = 1 << 20;

fn shrink(device: &dyn ReshapeDevice, size: NewSize) -> Result<Resized, ReshapeError> {
    resize(device, size, 1_700_000_000, &mut |_| {})
}

#[test]
fn a_cut_anywhere_goes_back_to_every_file() {
    for (name, from, to) in [("default-1k", 40, 12), ("ext2-1k", 40, 8)] {
        let Some(sample) = Sample::new(name, from) else { return };
        for seed in 0..2 {
            sample.fill(seed, 50);
        }
        let before = sample.tree();
        let base = MemoryDevice::from_bytes(&std::fs::read(sample.path()).unwrap());
        let size = NewSize::Exactly(to * MIB);
        // How many writes there are.
        let begin =
            |image| UndoDevice::begin(image, MemoryDevice::new(256 * MIB), from * MIB).unwrap();
        let device = begin(Faulty::new(base.snapshot()));
        shrink(&device, size).unwrap();
        let (image, _) = device.finish().unwrap();
        let writes = image.operations(DeviceOperation::Write);
        let mut random = fastrand::Rng::with_seed(number("DRYSTONE_SEED").unwrap_or(1));
        for _ in 0..number("DRYSTONE_CHANGES").unwrap_or(0).max(6) {
            let cut = random.u64(..writes);
            let image = Faulty::new(base.snapshot());
            // The superblock is written as a whole.
            let effect = Effect::Short { bytes: random.u64(..4) * 1024 };
            let fault = Fault::of(DeviceOperation::Write, effect).when(Trigger::From(cut));
            image.inject(fault);
            let device = begin(image);
            let done = shrink(&device, size);
            let (image, log) = device.into_parts();
            image.repair();
            roll_back(&image, &log).unwrap();
            sample.replace(&image);
            sample.judge(&format!("cut at {cut} of {writes}, {done:?}"), &before);
        }
        // And once more, to the end.
        sample.replace(&base);
        let image = FileDevice::open(sample.path(), OpenMode::ReadWrite).unwrap();
        let undo = UndoFile::beside(&sample.path());
        let device = undo.begin(&image, from * MIB).unwrap();
        shrink(&device, size).unwrap();
        undo.finish(device).unwrap();
        drop(image);
        sample.judge("not cut", &before);
    }
}
