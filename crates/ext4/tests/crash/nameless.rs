//! Files that are linked only after they were written: without a sync in between, a crash may leave
//! the name and none of the content; with one, all of it.

use crate::images;
use crate::judge::{crash_images, recover};
use crate::record::{Part, Recorded, base, record};
use drystone_blockdev::BlockDevice;
use drystone_sync::Arc;
use drystone_testkit::crash::CrashImage;
use drystone_testkit::operations::{Action, Actor, Data, Operation, OperationTarget, Word};

const SLOT: u8 = 1;

fn path(name: &str) -> Word {
    Word::from(&format!("{}/{name}", base(0))[..])
}

/// Writes a file without a name, perhaps syncs it, links it, and syncs the directory.
fn link(is_synced: bool) -> Option<Recorded> {
    let file = || OperationTarget::Slot(SLOT);
    let data = Data::Seeded { seed: 1, length: 9000 };
    let mut actions = vec![
        Action::Temporary { path: path(""), slot: SLOT, mode: 0o600 },
        Action::Append { target: file(), data },
    ];
    if is_synced {
        actions.push(Action::SyncFile { target: file() });
    }
    actions.push(Action::Link { target: file(), path: path("linked") });
    actions.push(Action::SyncFile { target: OperationTarget::Path(path("")) });
    let operation = |action| Operation { actor: Actor(0), action };
    let operations = actions.into_iter().map(operation).collect();
    let parts = [Part { setup: Vec::new(), operations }];
    record("linked late", &images::FILE, &parts, 5000, false)
}

/// The image of a crash right after the last operation.
fn crash(recorded: &Recorded) -> CrashImage {
    let operations = recorded.tracks[0].operations.len();
    let mut images = crash_images(&recorded.base, recorded.events.clone());
    images.behind_mark(operations as u64).unwrap().unwrap()
}

/// Judges an image by the promises of a recording, perhaps of another run.
fn judge(image: CrashImage, promised: &Recorded) -> Result<(), String> {
    let possible = promised.tracks[0].possible(promised.tracks[0].operations.len());
    let device: Arc<dyn BlockDevice> = Arc::new(image.device);
    recover(&device, &promised.tracks, &[possible], &image.description)
}

#[test]
fn what_is_linked_late_keeps_what_was_synced() {
    let (Some(without), Some(with)) = (link(false), link(true)) else { return };
    judge(crash(&without), &without).unwrap();
    judge(crash(&with), &with).unwrap();
    // Data that still waited when the name became durable is lost; a sync would have written it.
    let lost = judge(crash(&without), &with).unwrap_err();
    assert!(lost.contains("size 9000"), "{lost}");
}
