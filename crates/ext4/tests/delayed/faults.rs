//! A device that fails: waiting data is written later, or writes are refused.

use super::*;
use drystone_blockdev::{DeviceOperation, Effect, Fault, Faulty, Trigger};
use drystone_vfs::Errno;

/// A device that fails for a time: syncs return the error, nothing else stops, and the data is written
/// later.
#[test]
fn what_the_device_refuses_is_tried_again() {
    let memory = image(64);
    let device = Arc::new(Faulty::new(Arc::clone(&memory)));
    let fs = mount(&device, unhurried());
    let context = RequestContext::superuser();
    let (file, other) = (new_file(&fs, "f"), new_file(&fs, "g"));
    fs.sync().unwrap();
    let free = fs.statistics().unwrap().blocks_free;
    fs.write(&context, file, 0, &[7; 3 * BLOCK as usize]).unwrap();
    device.inject(Fault::of(DeviceOperation::Write, Effect::InputOutputError));
    for _ in 0..2 {
        assert_eq!(fs.sync_inode(file, true).unwrap_err().errno, Errno::EIO);
    }
    device.repair();
    assert!(read_all(&fs, file).iter().all(|byte| *byte == 7));
    fs.write(&context, other, 0, b"goes on").unwrap();
    fs.sync_inode(file, true).unwrap();
    assert_eq!(fs.extents(file, 0, u64::MAX, 10).unwrap().len(), 1);
    fs.sync().unwrap();
    assert_eq!(fs.statistics().unwrap().blocks_free, free - 4);
    fs.close().unwrap();
    assert!(content_of_f(&memory).iter().all(|byte| *byte == 7));
    judge(&memory, "after a device that failed");
}

/// Writes are refused if their data can never be written.
#[test]
fn nothing_waits_when_the_journal_has_stopped() {
    let memory = image(64);
    let device = Arc::new(Faulty::new(Arc::clone(&memory)));
    let fs = mount(&device, MountOptions::default());
    let context = RequestContext { is_cache: true, ..RequestContext::superuser() };
    let file = new_file(&fs, "f");
    fs.write(&context, file, 0, b"in time").unwrap();
    device.inject(Fault::of(DeviceOperation::Write, Effect::InputOutputError));
    new_file(&fs, "g");
    assert!(fs.sync().is_err());
    device.repair();
    for offset in [0, BLOCK] {
        assert_eq!(fs.write(&context, file, offset, b"late").unwrap_err().errno, Errno::EROFS);
    }
    assert!(fs.sync().is_err());
    assert!(fs.close().is_err());
    drop(fs);
    let fs = open(&memory);
    fs.close().unwrap();
    judge(&memory, "after the journal had stopped");
}

/// If only the first part of the waiting data could be written, the file on the device ends after it.
#[test]
fn a_file_half_written_ends_where_its_data_does() {
    let memory = image(64);
    let device = Arc::new(Faulty::new(Arc::clone(&memory)));
    let fs = mount(&device, unhurried());
    let context = RequestContext::superuser();
    let (file, other) = (new_file(&fs, "f"), new_file(&fs, "g"));
    fs.sync().unwrap();
    fs.write(&context, file, 0, &[1; BLOCK as usize]).unwrap();
    fs.write(&context, file, 5 * BLOCK, &[2; BLOCK as usize]).unwrap();
    let fault = Fault::of(DeviceOperation::Write, Effect::InputOutputError);
    device.inject(fault.when(Trigger::Nth(1)));
    assert_eq!(fs.sync_inode(file, true).unwrap_err().errno, Errno::EIO);
    device.repair();
    let changes = SetAttributes { permissions: Some(0o600), ..SetAttributes::default() };
    fs.set_attributes(&context, other, &changes).unwrap();
    fs.sync_inode(other, false).unwrap();
    let crashed = Arc::new(memory.snapshot());
    assert_eq!(content_of_f(&crashed), [1; BLOCK as usize]);
    judge(&crashed, "a file half written");
    fs.sync_inode(file, true).unwrap();
    assert_eq!(read_all(&fs, file).len() as u64, 6 * BLOCK);
    fs.close().unwrap();
    judge(&memory, "a file written at last");
}
