//! Data that was synced after the newest checkpoint gets into its file, or its only copy stays.

use super::*;

/// Where the mode is in a record of an inode.
const MODE_AT: u64 = 48;

/// A volume that has crashed after a data log of `a`, and where the record of `a` is on its device.
fn with_data_log() -> (FaultyMemory, u64) {
    let (device, fs, [a, _]) = volume();
    let engine = &fs.engine;
    let (key, offset) = engine.ifile.layout.entry(a.number.0);
    let pointer = engine.ifile.file.read().map.get(key, &engine.source()).unwrap();
    let block = engine.source().translate(VirtualBlock(pointer)).unwrap();
    // The mount checks the newest checkpoint as a whole: the record must not be in that.
    let change = SetAttributes { permissions: Some(0o700), ..SetAttributes::default() };
    fs.set_attributes(&RequestContext::superuser(), fs.root(), &change).unwrap();
    fs.sync().unwrap();
    engine.log.lock().superblocks.write_both(&engine.volume).unwrap();
    overwrite(&fs, &a, 0, 2);
    LogWriter::new(engine).write_data_log(&[a]).unwrap();
    (crashed(&device), engine.volume.geometry.offset_of(block) + offset as u64)
}

#[test]
fn a_damaged_inode_keeps_its_salvaged_data() {
    let (device, record) = with_data_log();
    let mut sound = [0; 2];
    device.read_at(record + MODE_AT, &mut sound).unwrap();
    for damage in [[0; 2], [0xFF; 2]] {
        device.write_at(record + MODE_AT, &damage).unwrap();
        let before = device.inner().to_vec();
        let mount = |read_only| {
            let held = Arc::clone(&device) as Arc<dyn BlockDevice>;
            Nilfs2::mount(held, &MountOptions::default().read_only(read_only))
        };
        let failed = mount(false).unwrap_err().to_string();
        assert!(failed.contains("inode 11") && failed.contains("read-only"), "{failed}");
        assert_eq!(first_byte(&mount(true).unwrap(), b"b"), 1);
        assert!(device.inner().to_vec() == before, "something was written");
    }
    device.write_at(record + MODE_AT, &sound).unwrap();
    assert_eq!(first_byte(&mount(&device), b"a"), 2);
}

/// Its number in the map of inodes in use is what counts.
#[test]
fn data_of_a_free_inode_is_given_up() {
    let (device, record) = with_data_log();
    device.write_at(record + MODE_AT, &[0; 2]).unwrap();
    let held = Arc::clone(&device) as Arc<dyn BlockDevice>;
    let opened = Opened::find(held, false, &MountOptions::default()).unwrap();
    let (engine, work) = opened.into_engine(&MountOptions::default(), false).unwrap();
    let inode = work.state.salvaged[0].inode;
    engine.ifile.free(inode, engine.source()).unwrap();
    work.replay(&engine).unwrap();
}
