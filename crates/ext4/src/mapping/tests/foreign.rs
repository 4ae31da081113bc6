//! Mappings of files that the kernel has written.

use super::*;

#[test]
fn files_of_the_kernel_are_read() {
    for arguments in ["-t ext4 -b 1024", "-t ext4 -b 4096 -O bigalloc -C 16384", "-t ext3 -b 1024"]
    {
        let Some(image) = image_with_file(arguments, IMAGE_BYTES) else { return };
        let directory = image.scratch.join("mount");
        let Some(mounted) = kernel_mount(&image.path, &directory, "").expect("mount runs") else {
            return;
        };
        let mut random = fastrand::Rng::with_seed(1);
        let mut content = vec![0; 8 << 20];
        for _ in 0..300 {
            let start = random.usize(..content.len() - 9000);
            random.fill(&mut content[start..start + random.clone().usize(1..9000)]);
        }
        let source = image.scratch.join("source");
        std::fs::write(&source, &content).expect("a file");
        // `cp` writes the file rather than this process: a process that another test starts would
        // inherit our open file for an instant, and keep the mount busy.
        let (source, target) = (source.as_path(), mounted.path().join("g"));
        let copied = run("cp", ["--sparse=always".as_ref(), source, &target]);
        copied.expect("cp runs").expect_clean("cp");
        mounted.unmount().expect("an unmount");

        let fs = image.open();
        let inode = inode_of(&image, &fs, "g");
        let block_size = fs.volume.block_size();
        let mut read = vec![0; content.len()];
        let mut next = LogicalBlock::FIRST;
        while let Some(extent) = next_extent(&fs, &inode, next).expect("a sound mapping") {
            let start = extent.logical.get() as usize * block_size;
            let end = read.len().min(extent.logical_end() as usize * block_size);
            if !extent.unwritten && start < end {
                let offset = extent.physical.get() * block_size as u64;
                fs.volume.device.read_at(offset, &mut read[start..end]).expect("a read");
            }
            next = LogicalBlock::new(extent.logical_end() as u32);
        }
        let size = inode.fields().disk.size_bytes as usize;
        assert!(read[..size] == content[..size], "mke2fs {arguments}: other content");
        {
            let _content = inode.content().write();
            remove_all(&fs, &inode, LogicalBlock::FIRST).expect("a removal");
        }
        close(fs);
        image.check(arguments);
    }
}
