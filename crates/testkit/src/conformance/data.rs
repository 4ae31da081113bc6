//! Reading and writing.

use drystone_sync::Barrier;
use drystone_vfs::{Capabilities, NewNode};

cases! {
    fn written_bytes_are_read(t) {
        let file = t.file("a");
        let data: Vec<u8> = (0..200_000_u32).map(|n| (n / 7) as u8).collect();
        t.write(file, 0, &data);
        assert!(t.content(file) == data);
        t.write(file, 70_001, b"inside");
        let mut buffer = [0; 8];
        assert_eq!(t.fs.read(file, 70_000, &mut buffer).unwrap(), 8);
        assert_eq!(&buffer[1..7], b"inside");
        assert_eq!((buffer[0], buffer[7]), (data[70_000], data[70_007]));
    }

    fn read_ends_at_the_end(t) {
        let file = t.file("a");
        t.write(file, 0, b"0123456789");
        let mut buffer = [0; 20];
        assert_eq!(t.fs.read(file, 0, &mut buffer).unwrap(), 10);
        assert_eq!(t.fs.read(file, 7, &mut buffer).unwrap(), 3);
        assert_eq!(t.fs.read(file, 10, &mut buffer).unwrap(), 0);
        assert_eq!(t.fs.read(file, 1 << 40, &mut buffer).unwrap(), 0);
        assert_eq!(t.fs.read(file, 2, &mut buffer[..0]).unwrap(), 0);
    }

    fn read_and_write_want_a_file(t) {
        let mut buffer = [0; 10];
        fails!(t.fs.read(t.dir, 0, &mut buffer), EISDIR);
        fails!(t.fs.write(&t.root, t.dir, 0, b"x"), EISDIR);
        fails!(t.fs.append(&t.root, t.dir, b"x"), EISDIR);
        let link = t.symlink("l", "x");
        fails!(t.fs.read(link, 0, &mut buffer), EINVAL);
        fails!(t.fs.write(&t.root, link, 0, b"x"), EINVAL);
    }

    fn write_behind_the_end_leaves_zeros(t) {
        let file = t.file("a");
        t.write(file, 0, b"start");
        t.write(file, 100_000, b"end");
        let content = t.content(file);
        assert_eq!(content.len(), 100_003);
        assert_eq!(&content[..5], b"start");
        assert!(content[5..100_000].iter().all(|&byte| byte == 0));
        assert_eq!(&content[100_000..], b"end");
    }

    fn empty_write_changes_nothing(t) {
        let file = t.file("a");
        assert_eq!(t.fs.write(&t.root, file, 100, b"").unwrap(), 0);
        assert_eq!(t.stat(file).size, 0);
    }

    fn append_writes_at_the_end(t) {
        let file = t.file("a");
        assert_eq!(t.fs.append(&t.root, file, b"one").unwrap(), (0, 3));
        assert_eq!(t.fs.append(&t.root, file, b"two").unwrap(), (3, 3));
        t.resize(file, 10).unwrap();
        assert_eq!(t.fs.append(&t.root, file, b"three").unwrap(), (10, 5));
        assert_eq!(t.content(file), b"onetwo\0\0\0\0three");
    }

    fn appends_of_many_threads_do_not_mix(t) {
        const THREADS: u8 = 4;
        const RECORDS: usize = 50;
        const LENGTH: usize = 333;
        let file = t.file("a");
        let (start, fs) = (Barrier::new(usize::from(THREADS)), t.fs);
        drystone_sync::thread::scope(|scope| {
            for n in 1..=THREADS {
                let (start, context) = (&start, t.user(u32::from(n)));
                scope.spawn(move || {
                    start.wait();
                    for _ in 0..RECORDS {
                        let (_, count) = fs.append(&context, file, &[n; LENGTH]).unwrap();
                        assert_eq!(count, LENGTH);
                    }
                });
            }
        });
        let content = t.content(file);
        assert_eq!(content.len(), usize::from(THREADS) * RECORDS * LENGTH);
        for record in content.chunks(LENGTH) {
            assert!(record.iter().all(|byte| *byte == record[0]), "a record is torn");
        }
    }

    fn truncate_cuts_and_extends(t) {
        let file = t.file("a");
        t.write(file, 0, &[7; 10_000]);
        t.resize(file, 5_000).unwrap();
        assert_eq!(t.content(file), [7; 5_000]);
        t.resize(file, 9_000).unwrap();
        let content = t.content(file);
        assert_eq!((content.len(), &content[..5_000]), (9_000, &[7; 5_000][..]));
        assert!(content[5_000..].iter().all(|&byte| byte == 0), "what was cut off is back");
    }

    fn truncate_to_block_boundaries_and_beside(t) {
        let file = t.file("a");
        let block = t.block();
        for size in [3 * block, 3 * block - 1, 2 * block + 1, 2 * block, block, 1, 0] {
            t.write(file, 0, &vec![9; 4 * block as usize]);
            t.resize(file, size).unwrap();
            t.resize(file, 4 * block).unwrap();
            let content = t.content(file);
            assert!(content[..size as usize].iter().all(|&byte| byte == 9), "{size}");
            assert!(content[size as usize..].iter().all(|&byte| byte == 0), "{size}");
        }
    }

    fn truncate_wants_a_file(t) {
        fails!(t.resize(t.dir, 0), EISDIR);
        fails!(t.resize(t.symlink("l", "x"), 0), EINVAL);
    }

    fn files_have_a_largest_size(t) {
        let (file, most) = (t.file("a"), t.of.file_size_max);
        t.resize(file, most).unwrap();
        fails!(t.resize(file, most + 1), EFBIG);
        fails!(t.fs.write(&t.root, file, most, b"x"), EFBIG);
        assert_eq!(t.fs.write(&t.root, file, most, b"").unwrap(), 0);
        fails!(t.fs.append(&t.root, file, b"x"), EFBIG);
        assert_eq!(t.fs.write(&t.root, file, most - 3, b"12345").unwrap(), 3);
        let mut buffer = [0; 5];
        assert_eq!(t.fs.read(file, most - 3, &mut buffer).unwrap(), 3);
        assert_eq!(&buffer[..3], b"123");
        assert_eq!(t.stat(file).size, most);
        t.resize(file, 0).unwrap();
    }

    fn write_clears_set_id_bits(t) {
        let file = t.file("a");
        t.chmod(file, 0o6777);
        t.fs.write(&t.user(1), file, 0, b"x").unwrap();
        assert_eq!(t.stat(file).permissions, 0o777);
        t.chmod(file, 0o6777);
        t.fs.append(&t.user(1), file, b"x").unwrap();
        assert_eq!(t.stat(file).permissions, 0o777);
        t.chmod(file, 0o6777);
        t.fs.write(&t.able(1, Capabilities::SET_ID), file, 0, b"x").unwrap();
        assert_eq!(t.stat(file).permissions, 0o6777);
    }

    fn truncate_clears_set_id_bits(t) {
        let file = t.file("a");
        t.chmod(file, 0o6777);
        let changes = drystone_vfs::SetAttributes { size: Some(3), ..Default::default() };
        assert_eq!(t.set(&t.user(1), file, changes).unwrap().permissions, 0o777);
    }

    fn write_keeps_group_id_without_group_execution_for_members(t) {
        let file = t.file("a");
        t.chown(file, 0, 2000);
        t.chmod(file, 0o2666);
        t.fs.write(&t.user(1), file, 0, b"x").unwrap();
        assert_eq!(t.stat(file).permissions, 0o2666);
        t.chown(file, 0, 3000);
        t.chmod(file, 0o2666);
        t.fs.write(&t.user(1), file, 0, b"x").unwrap();
        assert_eq!(t.stat(file).permissions, 0o666);
    }

    fn sync_succeeds(t) {
        let file = t.file("a");
        t.write(file, 0, b"x");
        t.fs.sync_inode(file, true).unwrap();
        t.fs.sync_inode(file, false).unwrap();
        t.fs.sync_inode(t.dir, false).unwrap();
        t.unlink(t.dir, "a").unwrap();
        t.fs.sync_inode(file, false).unwrap();
        t.fs.sync().unwrap();
    }

    fn freeze_holds_changes_back(t) {
        let file = t.file("a");
        t.write(file, 0, b"before");
        t.fs.freeze().unwrap();
        fails!(t.fs.freeze(), EBUSY);
        let (fs, context) = (t.fs, t.user(1));
        drystone_sync::thread::scope(|scope| {
            let writer = scope.spawn(move || fs.write(&context, file, 0, b"after!").map(|_| ()));
            drystone_sync::thread::sleep(std::time::Duration::from_millis(30));
            let seen = t.content(file);
            fs.thaw().unwrap();
            writer.join().unwrap().unwrap();
            assert_eq!(seen, b"before");
        });
        assert_eq!(t.content(file), b"after!");
        fails!(t.fs.thaw(), EINVAL);
    }

    fn statistics_make_sense(t) {
        let statistics = t.fs.statistics().unwrap();
        assert_eq!(statistics.name_length_max, 255);
        assert!(statistics.blocks_available <= statistics.blocks_free);
        assert!(statistics.blocks_free <= statistics.blocks);
        assert!(statistics.inodes_free < statistics.inodes);
    }

    fn many_small_files_keep_their_content(t) {
        for n in 0..300_u32 {
            let file = t.made(&t.root, t.dir, &format!("f{n}"), NewNode::Regular, 0o644);
            t.write(file, 0, format!("content {n}").as_bytes());
        }
        for n in 0..300_u32 {
            let file = t.lookup(t.dir, &format!("f{n}")).unwrap().inode;
            assert_eq!(t.content(file), format!("content {n}").as_bytes());
        }
    }
}
