//! Crashes of images without a journal. They promise less: e2fsck can repair the image, and until then
//! reads return errors or results, and never panic or run without end.

use crate::images::NO_JOURNAL;
use crate::judge::{crash_images, e2fsck};
use crate::record::{Part, base, options, record};
use crate::watch::watch;
use crate::{images as image_count, seed, workloads};
use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_ext4::Ext4;
use drystone_sync::Arc;
use drystone_testkit::judges::{Scratch, e2fsck_repair, have, write_image};
use drystone_testkit::visible::VisibleState;

const OPERATIONS: usize = 300;
/// One of so many images is made here.
const SHARE: usize = 25;

#[test]
fn crashes_are_repaired() {
    if !have("e2fsck") {
        return;
    }
    let operations = workloads::storm(seed(), &base(0), OPERATIONS);
    let parts = [Part { setup: Vec::new(), operations }];
    let Some(recorded) = record("no journal", &NO_JOURNAL, &parts, 1, false) else { return };
    let scratch = Scratch::new("crash").unwrap();
    let images = crash_images(&recorded.base, recorded.events.clone());
    for image in images.take(image_count() / SHARE) {
        let image = image.unwrap();
        let what = image.description.clone();
        let _watch = watch(60, &what[..]);
        let path = scratch.join("image");
        write_image(&image.device, &path).unwrap();
        let device: Arc<dyn BlockDevice> = Arc::new(image.device);
        let read_only = options(5000).read_only(true);
        if let Ok(fs) = Ext4::open(device, read_only) {
            let _ = VisibleState::read(&fs, "/", None);
            fs.close().unwrap();
        }
        let repaired = e2fsck_repair(&path).unwrap();
        assert!(repaired.code <= 1, "{what}: e2fsck -fy: {}", repaired.output);
        let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(&path).unwrap()));
        let fs = Ext4::open(device.clone() as Arc<dyn BlockDevice>, options(5000)).unwrap();
        VisibleState::read(&fs, "/", None).unwrap_or_else(|error| panic!("{what}: {error}"));
        fs.close().unwrap();
        e2fsck(&*device, &scratch).unwrap_or_else(|problem| panic!("{what}: {problem}"));
    }
}
