//! Making and removing names.

use drystone_vfs::{DeviceNumber, FileType, InodeNumber, NewNode, RequestContext, find_path};

cases! {
    fn create_makes_an_empty_file(t) {
        let made = t.create_as(&t.user(1), t.dir, "a", NewNode::Regular, 0o640).unwrap();
        assert_eq!((made.file_type, made.permissions, made.size), (FileType::Regular, 0o640, 0));
        assert_eq!((made.links, made.user, made.group), (1, 1001, 1001));
        assert_eq!(t.lookup(t.dir, "a").unwrap().inode, made.inode);
    }

    fn create_refuses_a_name_that_is_taken(t) {
        t.file("a");
        fails!(t.create_as(&t.root, t.dir, "a", NewNode::Regular, 0o644), EEXIST);
        fails!(t.create_as(&t.root, t.dir, "a", NewNode::Directory, 0o755), EEXIST);
        fails!(t.create_as(&t.root, t.dir, "a", NewNode::Fifo, 0o644), EEXIST);
    }

    fn create_refuses_device_numbers_that_no_inode_can_hold(t) {
        for device in [(1 << 12, 0), (0, 1 << 20)].map(|(major, minor)| DeviceNumber { major, minor }) {
            fails!(t.create_as(&t.root, t.dir, "a", NewNode::CharacterDevice(device), 0o644), EINVAL);
            fails!(t.create_as(&t.root, t.dir, "a", NewNode::BlockDevice(device), 0o644), EINVAL);
        }
        let device = DeviceNumber { major: (1 << 12) - 1, minor: (1 << 20) - 1 };
        let made = t.create_as(&t.root, t.dir, "a", NewNode::BlockDevice(device), 0o644).unwrap();
        assert_eq!(made.device, device);
    }

    fn create_applies_the_umask(t) {
        let context = RequestContext { umask: 0o027, ..t.user(1) };
        assert_eq!(t.create_as(&context, t.dir, "a", NewNode::Regular, 0o666).unwrap().permissions, 0o640);
        assert_eq!(t.create_as(&context, t.dir, "b", NewNode::Directory, 0o777).unwrap().permissions, 0o750);
    }

    fn create_in_a_file_fails(t) {
        let file = t.file("a");
        fails!(t.create_as(&t.root, file, "b", NewNode::Regular, 0o644), ENOTDIR);
        fails!(t.lookup(file, "b"), ENOTDIR);
        fails!(t.unlink(file, "b"), ENOTDIR);
        fails!(t.rmdir(file, "b"), ENOTDIR);
    }

    fn dot_names_can_not_be_made(t) {
        for name in [".", ".."] {
            fails!(t.create_as(&t.root, t.dir, name, NewNode::Regular, 0o644), EEXIST);
            fails!(t.create_as(&t.root, t.dir, name, NewNode::Directory, 0o755), EEXIST);
        }
    }

    fn dot_names_can_not_be_removed(t) {
        fails!(t.unlink(t.dir, "."), EISDIR);
        fails!(t.unlink(t.dir, ".."), EISDIR);
        fails!(t.rmdir(t.dir, "."), EINVAL);
        fails!(t.rmdir(t.dir, ".."), ENOTEMPTY);
    }

    fn dot_names_can_be_looked_up(t) {
        let sub = t.mkdir("d");
        assert_eq!(t.lookup(sub, ".").unwrap().inode, sub);
        assert_eq!(t.lookup(sub, "..").unwrap().inode, t.dir);
        assert_eq!(t.lookup(t.fs.root(), "..").unwrap().inode, t.fs.root());
    }

    fn inodes_with_names_are_found_by_number(t) {
        let made = t.create_as(&t.root, t.dir, "a", NewNode::Regular, 0o640).unwrap();
        t.release(made.inode);
        let found = t.keep(t.fs.find_inode(made.inode)).unwrap();
        assert_eq!((found.inode, found.generation), (made.inode, made.generation));
        assert_eq!((found.file_type, found.permissions), (FileType::Regular, 0o640));
        // In use, but without a name.
        t.unlink(t.dir, "a").unwrap();
        fails!(t.keep(t.fs.find_inode(made.inode)), ESTALE);
        t.release(made.inode);
        // Gone.
        fails!(t.keep(t.fs.find_inode(made.inode)), ESTALE);
        for number in [0, 1, 1 << 31, u64::from(u32::MAX), u64::MAX] {
            fails!(t.keep(t.fs.find_inode(InodeNumber(number))), ESTALE);
        }
    }

    fn a_number_that_is_used_again_has_another_generation(t) {
        let first = t.create_as(&t.root, t.dir, "a", NewNode::Regular, 0o644).unwrap();
        t.unlink(t.dir, "a").unwrap();
        t.release(first.inode);
        t.fs.sync().unwrap();
        for number in 0..64 {
            let next = t.create_as(&t.root, t.dir, &number.to_string(), NewNode::Regular, 0o644);
            let next = next.unwrap();
            assert_ne!((next.inode, next.generation), (first.inode, first.generation));
        }
    }

    fn names_of_255_bytes_are_fine(t) {
        let name = "n".repeat(255);
        let file = t.file(&name);
        assert_eq!(t.lookup(t.dir, &name).unwrap().inode, file);
        assert_eq!(t.names(t.dir), std::slice::from_ref(&name));
        t.unlink(t.dir, &name).unwrap();
    }

    fn names_of_256_bytes_are_too_long(t) {
        let name = "n".repeat(256);
        fails!(t.create_as(&t.root, t.dir, &name, NewNode::Regular, 0o644), ENAMETOOLONG);
        fails!(t.lookup(t.dir, &name), ENAMETOOLONG);
        fails!(t.unlink(t.dir, &name), ENAMETOOLONG);
        fails!(t.rmdir(t.dir, &name), ENAMETOOLONG);
        let file = t.file("a");
        fails!(t.link(file, t.dir, &name), ENAMETOOLONG);
        fails!(t.rename((t.dir, "a"), (t.dir, &name)), ENAMETOOLONG);
        fails!(t.rename((t.dir, &name), (t.dir, "a")), ENAMETOOLONG);
    }

    fn empty_names_do_not_exist(t) {
        fails!(t.create_as(&t.root, t.dir, "", NewNode::Regular, 0o644), ENOENT);
        fails!(t.lookup(t.dir, ""), ENOENT);
        fails!(t.unlink(t.dir, ""), ENOENT);
    }

    fn names_with_slash_or_nul_are_invalid(t) {
        for name in ["a/b", "/", "a\0b"] {
            fails!(t.create_as(&t.root, t.dir, name, NewNode::Regular, 0o644), EINVAL);
        }
    }

    fn names_may_have_any_other_byte(t) {
        for byte in (1..=255_u8).filter(|&byte| byte != b'/' && byte != b'.') {
            let made = t.keep(t.fs.create(&t.root, t.dir, &[byte], NewNode::Regular, 0o644)).unwrap();
            let found = t.keep(t.fs.lookup(&t.root, t.dir, &[byte])).unwrap();
            assert_eq!(found.inode, made.inode, "byte {byte}");
        }
    }

    fn lookup_of_nothing_fails(t) {
        fails!(t.lookup(t.dir, "a"), ENOENT);
        fails!(t.unlink(t.dir, "a"), ENOENT);
        fails!(t.rmdir(t.dir, "a"), ENOENT);
        fails!(t.rename((t.dir, "a"), (t.dir, "b")), ENOENT);
    }

    fn mkdir_counts_links(t) {
        let before = t.stat(t.dir).links;
        let sub = t.mkdir("d");
        assert_eq!(t.stat(sub).links, 2);
        assert_eq!(t.stat(t.dir).links, before + 1);
        t.rmdir(t.dir, "d").unwrap();
        assert_eq!(t.stat(t.dir).links, before);
    }

    fn mkdir_ignores_set_id_bits(t) {
        let made = t.create_as(&t.root, t.dir, "d", NewNode::Directory, 0o7755).unwrap();
        assert_eq!(made.permissions, 0o1755);
    }

    fn rmdir_wants_an_empty_directory(t) {
        let sub = t.mkdir("d");
        t.file_in(sub, "a");
        fails!(t.rmdir(t.dir, "d"), ENOTEMPTY);
        t.unlink(sub, "a").unwrap();
        t.rmdir(t.dir, "d").unwrap();
        fails!(t.lookup(t.dir, "d"), ENOENT);
    }

    fn rmdir_and_unlink_mind_the_type(t) {
        t.file("a");
        t.mkdir("d");
        fails!(t.rmdir(t.dir, "a"), ENOTDIR);
        fails!(t.unlink(t.dir, "d"), EISDIR);
    }

    fn removed_directory_takes_no_entries(t) {
        let sub = t.mkdir("d");
        let file = t.file("f");
        t.rmdir(t.dir, "d").unwrap();
        assert_eq!(t.stat(sub).links, 0);
        fails!(t.create_as(&t.root, sub, "a", NewNode::Regular, 0o644), ENOENT);
        fails!(t.create_as(&t.root, sub, "a", NewNode::Directory, 0o755), ENOENT);
        fails!(t.link(file, sub, "a"), ENOENT);
        fails!(t.rename((t.dir, "f"), (sub, "a")), ENOENT);
        fails!(t.lookup(sub, "a"), ENOENT);
    }

    fn symlinks_keep_their_target(t) {
        for length in [1, 59, 60, 61, 255, 1000] {
            let (name, target) = (format!("l{length}"), "x".repeat(length));
            let link = t.symlink(&name, &target);
            assert_eq!(t.fs.read_link(link).unwrap(), target.as_bytes());
            let status = t.stat(link);
            assert_eq!((status.size, status.permissions), (length as u64, 0o777));
        }
    }

    fn symlink_targets_have_limits(t) {
        fails!(t.create_as(&t.root, t.dir, "a", NewNode::Symlink(b""), 0o777), ENOENT);
        fails!(t.create_as(&t.root, t.dir, "a", NewNode::Symlink(&[b'x'; 4096]), 0o777), ENAMETOOLONG);
        let most = (t.of.block_size as usize - 1).min(4095);
        t.symlink("most", &"x".repeat(most));
        if most < 4095 {
            fails!(t.create_as(&t.root, t.dir, "b", NewNode::Symlink(&vec![b'x'; most + 1]), 0o777), ENAMETOOLONG);
        }
    }

    fn read_link_wants_a_symlink(t) {
        fails!(t.fs.read_link(t.file("a")), EINVAL);
        fails!(t.fs.read_link(t.dir), EINVAL);
    }

    fn symlink_loops_end(t) {
        t.symlink("a", "b");
        t.symlink("b", "a");
        let here = "/symlink_loops_end";
        fails!(find_path(t.fs, &t.root, format!("{here}/a").as_bytes(), true), ELOOP);
        fails!(find_path(t.fs, &t.root, format!("{here}/a/x").as_bytes(), false), ELOOP);
    }

    fn symlinks_are_followed_on_the_way(t) {
        let sub = t.mkdir("d");
        let file = t.file_in(sub, "f");
        t.symlink("l", "d/../d/.");
        let path = b"/symlinks_are_followed_on_the_way/l/f";
        assert_eq!(find_path(t.fs, &t.root, path, true).unwrap().inode(), file);
    }

    fn devices_keep_their_numbers(t) {
        for (name, major, minor) in [("a", 1, 3), ("b", 255, 255), ("c", 256, 256), ("d", 4095, 1_048_575)] {
            let device = DeviceNumber { major, minor };
            let made = t.create_as(&t.root, t.dir, name, NewNode::CharacterDevice(device), 0o600).unwrap();
            assert_eq!((made.device, made.file_type), (device, FileType::CharacterDevice));
            let name = format!("block-{name}");
            let made = t.create_as(&t.root, t.dir, &name, NewNode::BlockDevice(device), 0o600).unwrap();
            assert_eq!((t.stat(made.inode).device, made.file_type), (device, FileType::BlockDevice));
        }
    }

    fn pipes_and_sockets_can_be_made_by_users(t) {
        for (name, node) in [("p", NewNode::Fifo), ("s", NewNode::Socket)] {
            let made = t.create_as(&t.user(1), t.dir, name, node, 0o666).unwrap();
            assert_eq!((made.file_type, made.size, made.links), (node.file_type(), 0, 1));
        }
    }

    fn device_nodes_need_a_capability(t) {
        let node = NewNode::CharacterDevice(DeviceNumber { major: 1, minor: 3 });
        fails!(t.create_as(&t.user(1), t.dir, "a", node, 0o666), EPERM);
    }

    fn link_adds_a_name(t) {
        let file = t.file("a");
        t.write(file, 0, b"content");
        let linked = t.link(file, t.dir, "b").unwrap();
        assert_eq!((linked.inode, linked.links), (file, 2));
        t.unlink(t.dir, "a").unwrap();
        assert_eq!(t.stat(file).links, 1);
        assert_eq!(t.content(t.lookup(t.dir, "b").unwrap().inode), b"content");
    }

    fn link_refuses_directories_and_taken_names(t) {
        let (sub, file) = (t.mkdir("d"), t.file("a"));
        fails!(t.link(sub, t.dir, "e"), EPERM);
        fails!(t.link(file, t.dir, "a"), EEXIST);
        fails!(t.link(file, t.dir, "d"), EEXIST);
    }

    fn symlinks_and_pipes_can_be_linked(t) {
        let link = t.symlink("l", "target");
        assert_eq!(t.link(link, t.dir, "m").unwrap().links, 2);
        let pipe = t.made(&t.root, t.dir, "p", NewNode::Fifo, 0o644);
        assert_eq!(t.link(pipe, t.dir, "q").unwrap().links, 2);
    }

    fn links_have_a_limit(t) {
        // Reaching the real limit would take too long; file systems made for this test have a small
        // one.
        if t.of.links_max > 1000 {
            return;
        }
        let file = t.file("a");
        for n in 1..t.of.links_max {
            t.link(file, t.dir, &format!("l{n}")).unwrap();
        }
        fails!(t.link(file, t.dir, "more"), EMLINK);
        t.unlink(t.dir, "l1").unwrap();
        t.link(file, t.dir, "more").unwrap();
    }

    fn subdirectories_have_a_limit(t) {
        if t.of.links_max > 1000 || t.of.directory_links_unlimited {
            return;
        }
        let parent = t.mkdir("d");
        for n in 2..t.of.links_max {
            t.mkdir_in(parent, &format!("d{n}"));
        }
        fails!(t.create_as(&t.root, parent, "more", NewNode::Directory, 0o755), EMLINK);
        t.mkdir("other");
        fails!(t.rename((t.dir, "other"), (parent, "more")), EMLINK);
        t.rename((t.dir, "other"), (parent, "d2")).unwrap();
    }

    fn unlinked_file_lives_while_referenced(t) {
        let file = t.file("a");
        t.write(file, 0, b"content");
        t.unlink(t.dir, "a").unwrap();
        assert_eq!(t.stat(file).links, 0);
        t.write(file, 7, b" and more");
        assert_eq!(t.content(file), b"content and more");
        t.resize(file, 3).unwrap();
        assert_eq!(t.content(file), b"con");
        fails!(t.link(file, t.dir, "b"), ENOENT);
    }

    fn unlinked_name_can_be_made_anew(t) {
        let old = t.file("a");
        t.write(old, 0, b"old");
        t.unlink(t.dir, "a").unwrap();
        let new = t.file("a");
        assert_ne!(new, old);
        assert_eq!(t.content(new), b"");
        assert_eq!(t.content(old), b"old");
    }

    fn unnamed_file_can_be_named(t) {
        let made = t.keep(t.fs.create_unnamed(&t.user(1), t.dir, 0o640)).unwrap();
        assert_eq!((made.links, made.permissions, made.user), (0, 0o640, 1001));
        assert!(t.names(t.dir).is_empty());
        t.write(made.inode, 0, b"content");
        assert_eq!(t.link(made.inode, t.dir, "a").unwrap().links, 1);
        assert_eq!(t.content(t.lookup(t.dir, "a").unwrap().inode), b"content");
        t.unlink(t.dir, "a").unwrap();
        fails!(t.link(made.inode, t.dir, "b"), ENOENT);
    }

    fn unnamed_file_needs_a_directory(t) {
        let file = t.file("a");
        fails!(t.keep(t.fs.create_unnamed(&t.root, file, 0o600)), ENOTDIR);
    }

    fn unnamed_file_may_vanish(t) {
        let made = t.keep(t.fs.create_unnamed(&t.root, t.dir, 0o600)).unwrap();
        t.write(made.inode, 0, b"content");
        t.release(made.inode);
        assert!(t.names(t.dir).is_empty());
    }
}
