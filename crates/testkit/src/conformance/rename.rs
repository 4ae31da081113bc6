//! Moving names.

use drystone_vfs::{DeviceNumber, FileType, NewNode, RenameFlags};

cases! {
    fn rename_moves_a_file(t) {
        let (file, sub) = (t.file("a"), t.mkdir("d"));
        t.rename((t.dir, "a"), (t.dir, "b")).unwrap();
        t.rename((t.dir, "b"), (sub, "c")).unwrap();
        assert_eq!(t.lookup(sub, "c").unwrap().inode, file);
        assert_eq!(t.names(t.dir), ["d"]);
        assert_eq!(t.stat(file).links, 1);
    }

    fn rename_moves_a_directory_with_its_parent_entry(t) {
        let (a, b) = (t.mkdir("a"), t.mkdir("b"));
        let moved = t.mkdir_in(a, "m");
        t.file_in(moved, "f");
        t.rename((a, "m"), (b, "n")).unwrap();
        assert_eq!(t.lookup(moved, "..").unwrap().inode, b);
        assert_eq!((t.stat(a).links, t.stat(b).links, t.stat(moved).links), (2, 3, 2));
        assert_eq!(t.names(moved), ["f"]);
    }

    fn rename_replaces_a_file(t) {
        let (a, b) = (t.file("a"), t.file("b"));
        t.write(b, 0, b"old");
        t.rename((t.dir, "a"), (t.dir, "b")).unwrap();
        assert_eq!(t.lookup(t.dir, "b").unwrap().inode, a);
        assert_eq!(t.stat(b).links, 0);
        assert_eq!(t.content(b), b"old");
    }

    fn rename_replaces_one_of_several_names(t) {
        let b = t.file("b");
        t.link(b, t.dir, "c").unwrap();
        t.file("a");
        t.rename((t.dir, "a"), (t.dir, "b")).unwrap();
        assert_eq!(t.stat(b).links, 1);
    }

    fn rename_replaces_an_empty_directory(t) {
        let (a, b) = (t.mkdir("a"), t.mkdir("b"));
        t.file_in(a, "f");
        let links = t.stat(t.dir).links;
        t.rename((t.dir, "a"), (t.dir, "b")).unwrap();
        assert_eq!(t.lookup(t.dir, "b").unwrap().inode, a);
        assert_eq!((t.stat(b).links, t.stat(t.dir).links), (0, links - 1));
    }

    fn rename_wants_an_empty_target(t) {
        t.mkdir("a");
        let b = t.mkdir("b");
        t.file_in(b, "f");
        fails!(t.rename((t.dir, "a"), (t.dir, "b")), ENOTEMPTY);
    }

    fn rename_minds_types(t) {
        t.mkdir("d");
        t.file("f");
        fails!(t.rename((t.dir, "d"), (t.dir, "f")), ENOTDIR);
        fails!(t.rename((t.dir, "f"), (t.dir, "d")), EISDIR);
        t.symlink("l", "d");
        fails!(t.rename((t.dir, "d"), (t.dir, "l")), ENOTDIR);
        t.rename((t.dir, "f"), (t.dir, "l")).unwrap();
    }

    fn rename_into_itself_fails(t) {
        let a = t.mkdir("a");
        let b = t.mkdir_in(a, "b");
        fails!(t.rename((t.dir, "a"), (a, "x")), EINVAL);
        fails!(t.rename((t.dir, "a"), (b, "x")), EINVAL);
        fails!(t.rename((t.dir, "a"), (a, "b")), EINVAL);
    }

    fn rename_over_an_ancestor_fails(t) {
        let a = t.mkdir("a");
        let b = t.mkdir_in(a, "b");
        t.file_in(b, "f");
        t.mkdir_in(b, "c");
        fails!(t.rename((b, "f"), (t.dir, "a")), ENOTEMPTY);
        fails!(t.rename((b, "c"), (t.dir, "a")), ENOTEMPTY);
        fails!(t.rename((a, "b"), (t.dir, "a")), ENOTEMPTY);
    }

    fn rename_of_dot_names_fails(t) {
        t.file("a");
        for name in [".", ".."] {
            fails!(t.rename((t.dir, name), (t.dir, "b")), EBUSY);
            fails!(t.rename((t.dir, "a"), (t.dir, name)), EBUSY);
            fails!(t.rename_as(&t.root, (t.dir, "a"), (t.dir, name), RenameFlags::NO_REPLACE), EEXIST);
        }
    }

    fn rename_to_the_same_name_changes_nothing(t) {
        let file = t.file("a");
        t.mkdir("d");
        t.rename((t.dir, "a"), (t.dir, "a")).unwrap();
        t.rename((t.dir, "d"), (t.dir, "d")).unwrap();
        assert_eq!(t.lookup(t.dir, "a").unwrap().inode, file);
    }

    fn rename_between_names_of_one_inode_changes_nothing(t) {
        let file = t.file("a");
        t.link(file, t.dir, "b").unwrap();
        t.rename((t.dir, "a"), (t.dir, "b")).unwrap();
        assert_eq!(t.names(t.dir), ["a", "b"]);
        assert_eq!(t.stat(file).links, 2);
    }

    fn no_replace_keeps_the_target(t) {
        let (a, b) = (t.file("a"), t.file("b"));
        fails!(t.rename_as(&t.root, (t.dir, "a"), (t.dir, "b"), RenameFlags::NO_REPLACE), EEXIST);
        fails!(t.rename_as(&t.root, (t.dir, "a"), (t.dir, "a"), RenameFlags::NO_REPLACE), EEXIST);
        t.rename_as(&t.root, (t.dir, "a"), (t.dir, "c"), RenameFlags::NO_REPLACE).unwrap();
        assert_eq!(t.lookup(t.dir, "c").unwrap().inode, a);
        assert_eq!(t.lookup(t.dir, "b").unwrap().inode, b);
    }

    fn exchange_swaps_files(t) {
        let (a, sub) = (t.file("a"), t.mkdir("d"));
        let b = t.file_in(sub, "b");
        t.rename_as(&t.root, (t.dir, "a"), (sub, "b"), RenameFlags::EXCHANGE).unwrap();
        assert_eq!(t.lookup(t.dir, "a").unwrap().inode, b);
        assert_eq!(t.lookup(sub, "b").unwrap().inode, a);
        assert_eq!((t.stat(a).links, t.stat(b).links), (1, 1));
    }

    fn exchange_swaps_a_file_and_a_directory(t) {
        let (file, sub, other) = (t.file("a"), t.mkdir("d"), t.mkdir("other"));
        let inner = t.mkdir_in(other, "inner");
        t.rename_as(&t.root, (t.dir, "a"), (other, "inner"), RenameFlags::EXCHANGE).unwrap();
        assert_eq!(t.lookup(t.dir, "a").unwrap().inode, inner);
        assert_eq!(t.lookup(other, "inner").unwrap().inode, file);
        assert_eq!(t.lookup(inner, "..").unwrap().inode, t.dir);
        assert_eq!((t.stat(other).links, t.stat(t.dir).links), (2, 5));
        assert_eq!(t.stat(sub).links, 2);
    }

    fn exchange_swaps_directories(t) {
        let (a, b) = (t.mkdir("a"), t.mkdir("b"));
        let (x, y) = (t.mkdir_in(a, "x"), t.mkdir_in(b, "y"));
        t.file_in(x, "full");
        t.file_in(y, "full");
        t.rename_as(&t.root, (a, "x"), (b, "y"), RenameFlags::EXCHANGE).unwrap();
        assert_eq!(t.lookup(x, "..").unwrap().inode, b);
        assert_eq!(t.lookup(y, "..").unwrap().inode, a);
        assert_eq!((t.stat(a).links, t.stat(b).links), (3, 3));
    }

    fn exchange_needs_both(t) {
        t.file("a");
        fails!(t.rename_as(&t.root, (t.dir, "a"), (t.dir, "b"), RenameFlags::EXCHANGE), ENOENT);
        fails!(t.rename_as(&t.root, (t.dir, "b"), (t.dir, "a"), RenameFlags::EXCHANGE), ENOENT);
    }

    fn exchange_with_an_ancestor_fails(t) {
        let a = t.mkdir("a");
        let b = t.mkdir_in(a, "b");
        t.file_in(b, "f");
        fails!(t.rename_as(&t.root, (t.dir, "a"), (a, "b"), RenameFlags::EXCHANGE), EINVAL);
        fails!(t.rename_as(&t.root, (b, "f"), (t.dir, "a"), RenameFlags::EXCHANGE), EINVAL);
    }

    fn exchange_goes_with_no_other_flag(t) {
        t.file("a");
        t.file("b");
        for flag in [RenameFlags::NO_REPLACE, RenameFlags::WHITEOUT] {
            fails!(t.rename_as(&t.root, (t.dir, "a"), (t.dir, "b"), RenameFlags::EXCHANGE | flag), EINVAL);
        }
    }

    fn whiteout_stays_behind(t) {
        let file = t.file("a");
        t.rename_as(&t.root, (t.dir, "a"), (t.dir, "b"), RenameFlags::WHITEOUT).unwrap();
        assert_eq!(t.lookup(t.dir, "b").unwrap().inode, file);
        let whiteout = t.lookup(t.dir, "a").unwrap();
        assert_eq!(whiteout.file_type, FileType::CharacterDevice);
        assert_eq!((whiteout.device, whiteout.permissions), (DeviceNumber::default(), 0));
    }

    fn rename_needs_write_on_both_directories(t) {
        let (a, b) = (t.mkdir("a"), t.mkdir("b"));
        t.chmod(a, 0o777);
        t.made(&t.user(1), a, "f", NewNode::Regular, 0o644);
        fails!(t.rename_as(&t.user(1), (a, "f"), (b, "f"), RenameFlags::empty()), EACCES);
        t.chmod(a, 0o555);
        t.chmod(b, 0o777);
        fails!(t.rename_as(&t.user(1), (a, "f"), (b, "f"), RenameFlags::empty()), EACCES);
        t.chmod(a, 0o777);
        t.rename_as(&t.user(1), (a, "f"), (b, "f"), RenameFlags::empty()).unwrap();
    }

    fn moving_a_directory_needs_write_on_it(t) {
        let (a, b) = (t.mkdir("a"), t.mkdir("b"));
        t.chmod(a, 0o777);
        t.chmod(b, 0o777);
        t.mkdir_in(a, "m");
        t.rename_as(&t.user(1), (a, "m"), (a, "n"), RenameFlags::empty()).unwrap();
        fails!(t.rename_as(&t.user(1), (a, "n"), (b, "n"), RenameFlags::empty()), EACCES);
    }

    fn rename_finds_names_before_permissions(t) {
        let (a, b) = (t.mkdir("a"), t.mkdir("b"));
        t.file_in(a, "f");
        t.file_in(b, "g");
        t.file_in(b, "same");
        let user = t.user(1);
        fails!(t.rename_as(&user, (a, "f"), (b, "g"), RenameFlags::NO_REPLACE), EEXIST);
        fails!(t.rename_as(&user, (a, "f"), (b, "none"), RenameFlags::EXCHANGE), ENOENT);
        t.rename_as(&user, (b, "same"), (b, "same"), RenameFlags::empty()).unwrap();
        t.chmod(b, 0o700);
        fails!(t.rename_as(&user, (a, "none"), (b, "g"), RenameFlags::empty()), EACCES);
    }

    fn a_file_does_not_replace_a_directory_above_it(t) {
        let above = t.mkdir("above");
        t.file_in(above, "f");
        fails!(t.rename((above, "f"), (t.dir, "above")), ENOTEMPTY);
    }
}
