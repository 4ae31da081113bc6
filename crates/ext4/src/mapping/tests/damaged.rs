//! Every operation on a damaged mapping returns an error or succeeds, without a panic.

use super::tester::Tester;
use super::*;
use drystone_ext4_format::InodeNumber;

#[test]
fn damaged_mappings_give_errors() {
    for (arguments, _) in
        [("-t ext4 -b 1024 -O ^has_journal,^metadata_csum", true), ("-t ext2 -b 1024", false)]
    {
        let Some(image) = image_with_file(arguments, 8 << 20) else { return };
        let mut tester = Tester::new(&image, 1);
        for block in 0..600 {
            assert!(tester.insert(block * 5, 2));
        }
        let device = Arc::clone(&tester.fs.volume.device);
        let block_size = tester.fs.volume.block_size() as u64;
        let mut nodes = vec![];
        for block in 0..device.size_bytes() / block_size {
            let mut bytes = vec![0; block_size as usize];
            device.read_at(block * block_size, &mut bytes).expect("a read");
            let data = tester.model.values().any(|(physical, _)| *physical == block);
            nodes.extend((!data && bytes.iter().any(|byte| *byte != 0)).then_some(block));
        }
        drop(device);
        close(tester.fs);
        let sound = std::fs::read(&image.path).expect("an image");
        for seed in 0..50 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut bytes = sound.clone();
            for _ in 0..random.usize(1..20) {
                // Anything but the superblock and the descriptors.
                let block = nodes[random.usize(nodes.len() / 8..nodes.len())];
                bytes[(block * block_size) as usize + random.usize(..block_size as usize)] =
                    random.u8(..);
            }
            std::fs::write(&image.path, &bytes).expect("an image");
            use_damaged(&image, &mut random);
        }
    }
}

/// Reads and changes the mapping until an error is found.
fn use_damaged(image: &ImageFile, random: &mut fastrand::Rng) {
    let Ok(fs) = Ext4::open(image.device(), MountOptions::default()) else { return };
    let Ok(inode) = fs.inode(InodeNumber::new(12)) else { return };
    if !inode.has_mapping() {
        return;
    }
    let mut next = Some(LogicalBlock::FIRST);
    while let Some(from) = next {
        let Ok(Some(extent)) = next_extent(&fs, &inode, from) else { break };
        assert!(extent.logical >= from && extent.length > 0);
        next = extent.logical.checked_add(extent.length);
    }
    let _content = inode.content().write();
    let context = RequestContext::superuser();
    for _ in 0..40 {
        let first = LogicalBlock::new(random.u32(..SPAN));
        let Ok(mapped) = map(&fs, &inode, first, random.u32(1..10)) else { return };
        let Ok(mut handle) = fs.volume.start(credits::CUT + credits::WRITE) else { return };
        let done = match mapped.physical {
            Some(_) if has_extents(&inode) && random.bool() => {
                convert(&fs, &mut handle, &inode, first, mapped.length, random.bool()).map(|_| ())
            }
            Some(_) => {
                let end = first.as_u64() + u64::from(random.u32(1..200));
                remove(&fs, &mut handle, &inode, first, end).map(|_| ())
            }
            None => {
                allocate(&fs, &mut handle, &context, &inode, first, mapped.length).and_then(|run| {
                    let (physical, length) = (run.physical, run.length);
                    let extent = Extent { logical: first, physical, length, unwritten: false };
                    insert(&fs, &mut handle, &inode, extent)
                })
            }
        };
        if fs.settle(handle, done).is_err() {
            return;
        }
    }
}
