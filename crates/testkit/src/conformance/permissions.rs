//! Permissions.

use drystone_vfs::{
    Access, Capabilities, FallocateMode, FileFlags, NewNode, OpenFlags, RenameFlags,
    RequestContext, SetAttributes,
};

cases! {
    fn owner_group_and_others_have_their_bits(t) {
        let file = t.file("a");
        t.chown(file, 1001, 1002);
        t.chmod(file, 0o421);
        let check = |context: &RequestContext, access| t.fs.check_access(context, file, access);
        check(&t.user(1), Access::READ).unwrap();
        fails!(check(&t.user(1), Access::WRITE), EACCES);
        check(&t.user(2), Access::WRITE).unwrap();
        fails!(check(&t.user(2), Access::READ), EACCES);
        check(&t.user(3), Access::EXECUTE).unwrap();
        fails!(check(&t.user(3), Access::READ), EACCES);
    }

    fn supplementary_groups_count(t) {
        let file = t.file("a");
        t.chown(file, 1, 2000);
        t.chmod(file, 0o060);
        t.fs.check_access(&t.user(3), file, Access::READ | Access::WRITE).unwrap();
        fails!(t.fs.check_access(&RequestContext::user(9, 9, Vec::new()), file, Access::READ), EACCES);
    }

    fn capabilities_override_bits(t) {
        let (file, sub) = (t.file("a"), t.mkdir("d"));
        t.chmod(file, 0o000);
        t.chmod(sub, 0o000);
        let overrides = t.able(1, Capabilities::OVERRIDE);
        t.fs.check_access(&overrides, file, Access::READ | Access::WRITE).unwrap();
        fails!(t.fs.check_access(&overrides, file, Access::EXECUTE), EACCES);
        t.fs.check_access(&overrides, sub, Access::all()).unwrap();
        let reads = t.able(1, Capabilities::READ_SEARCH);
        t.fs.check_access(&reads, file, Access::READ).unwrap();
        fails!(t.fs.check_access(&reads, file, Access::WRITE), EACCES);
        t.fs.check_access(&reads, sub, Access::READ | Access::EXECUTE).unwrap();
        fails!(t.fs.check_access(&reads, sub, Access::WRITE), EACCES);
        t.chmod(file, 0o001);
        t.fs.check_access(&overrides, file, Access::EXECUTE).unwrap();
    }

    fn unchecked_context_may_do_everything(t) {
        let file = t.file("a");
        t.chmod(file, 0o000);
        t.fs.check_access(&t.root, file, Access::all()).unwrap();
    }

    fn making_needs_write_and_search(t) {
        let sub = t.mkdir("d");
        for mode in [0o555, 0o444, 0o666] {
            t.chmod(sub, mode);
            fails!(t.create_as(&t.user(1), sub, "a", NewNode::Regular, 0o644), EACCES);
            fails!(t.create_as(&t.user(1), sub, "a", NewNode::Directory, 0o755), EACCES);
            fails!(t.create_as(&t.user(1), sub, "a", NewNode::Symlink(b"x"), 0o777), EACCES);
            fails!(t.keep(t.fs.create_unnamed(&t.user(1), sub, 0o600)), EACCES);
        }
        t.chmod(sub, 0o333);
        t.create_as(&t.user(1), sub, "a", NewNode::Regular, 0o644).unwrap();
    }

    fn taken_names_are_reported_before_missing_permission(t) {
        let sub = t.mkdir("d");
        t.file_in(sub, "a");
        t.chmod(sub, 0o555);
        fails!(t.create_as(&t.user(1), sub, "a", NewNode::Regular, 0o644), EEXIST);
        fails!(t.create_as(&t.user(1), sub, "a", NewNode::Directory, 0o755), EEXIST);
    }

    fn lookup_needs_search(t) {
        let sub = t.mkdir("d");
        t.file_in(sub, "a");
        t.chmod(sub, 0o666);
        fails!(t.keep(t.fs.lookup(&t.user(1), sub, b"a")), EACCES);
        fails!(t.keep(t.fs.lookup(&t.user(1), sub, b"none")), EACCES);
        t.chmod(sub, 0o111);
        t.keep(t.fs.lookup(&t.user(1), sub, b"a")).unwrap();
    }

    fn listing_needs_read(t) {
        let sub = t.mkdir("d");
        t.chmod(sub, 0o333);
        fails!(t.fs.read_directory(&t.user(1), sub, 0, &mut |_| true), EACCES);
        t.chmod(sub, 0o444);
        t.fs.read_directory(&t.user(1), sub, 0, &mut |_| true).unwrap();
    }

    fn removing_needs_write_on_the_directory_only(t) {
        let sub = t.mkdir("d");
        let file = t.file_in(sub, "a");
        t.chmod(file, 0o000);
        t.chmod(sub, 0o555);
        fails!(t.fs.unlink(&t.user(1), sub, b"a"), EACCES);
        t.chmod(sub, 0o777);
        t.fs.unlink(&t.user(1), sub, b"a").unwrap();
    }

    fn sticky_directory_protects_entries(t) {
        let sub = t.mkdir("d");
        t.chmod(sub, 0o1777);
        t.made(&t.user(1), sub, "a", NewNode::Regular, 0o666);
        t.made(&t.user(1), sub, "e", NewNode::Directory, 0o777);
        t.made(&t.user(2), sub, "b", NewNode::Regular, 0o666);
        fails!(t.fs.unlink(&t.user(2), sub, b"a"), EPERM);
        fails!(t.fs.remove_directory(&t.user(2), sub, b"e"), EPERM);
        fails!(t.rename_as(&t.user(2), (sub, "a"), (sub, "c"), RenameFlags::empty()), EPERM);
        fails!(t.rename_as(&t.user(2), (sub, "b"), (sub, "a"), RenameFlags::empty()), EPERM);
        t.fs.unlink(&t.user(1), sub, b"a").unwrap();
        t.fs.unlink(&t.able(3, Capabilities::OWNER), sub, b"b").unwrap();
    }

    fn owner_of_a_sticky_directory_may_remove(t) {
        let sub = t.made(&t.user(1), t.dir, "d", NewNode::Directory, 0o1777);
        t.made(&t.user(2), sub, "a", NewNode::Regular, 0o666);
        t.fs.unlink(&t.user(1), sub, b"a").unwrap();
    }

    fn set_group_id_directory_passes_its_group(t) {
        let sub = t.mkdir("d");
        t.chown(sub, 0, 2000);
        t.chmod(sub, 0o2777);
        let file = t.create_as(&t.user(1), sub, "a", NewNode::Regular, 0o644).unwrap();
        assert_eq!((file.group, file.permissions), (2000, 0o644));
        let inner = t.create_as(&t.user(1), sub, "e", NewNode::Directory, 0o755).unwrap();
        assert_eq!((inner.group, inner.permissions), (2000, 0o2755));
        let link = t.create_as(&t.user(1), sub, "l", NewNode::Symlink(b"x"), 0o777).unwrap();
        assert_eq!(link.group, 2000);
    }

    fn set_group_id_is_lost_outside_the_group(t) {
        let sub = t.mkdir("d");
        t.chown(sub, 0, 3000);
        t.chmod(sub, 0o2777);
        let file = t.create_as(&t.user(1), sub, "a", NewNode::Regular, 0o2755).unwrap();
        assert_eq!((file.group, file.permissions), (3000, 0o755));
        let kept = t.create_as(&t.user(1), sub, "b", NewNode::Regular, 0o2745).unwrap();
        assert_eq!(kept.permissions, 0o2745, "without group execution the bit isn't one of privilege");
        let masked = RequestContext { umask: 0o010, ..t.user(1) };
        let lost = t.create_as(&masked, sub, "m", NewNode::Regular, 0o2755).unwrap();
        assert_eq!(lost.permissions, 0o745, "what was asked for counts, not what the umask leaves");
        let able = t.able(1, Capabilities::SET_ID);
        let kept = t.create_as(&able, sub, "c", NewNode::Regular, 0o2755).unwrap();
        assert_eq!(kept.permissions, 0o2755);
    }

    fn open_checks_permissions(t) {
        let file = t.file("a");
        t.chmod(file, 0o604);
        t.keep(t.fs.open(&t.user(1), file, OpenFlags::READ)).unwrap();
        fails!(t.keep(t.fs.open(&t.user(1), file, OpenFlags::WRITE)), EACCES);
        fails!(t.keep(t.fs.open(&t.user(1), file, OpenFlags::READ | OpenFlags::WRITE)), EACCES);
        fails!(t.keep(t.fs.open(&t.user(1), file, OpenFlags::EXECUTE)), EACCES);
        fails!(t.keep(t.fs.open(&t.user(1), file, OpenFlags::WRITE | OpenFlags::TRUNCATE)), EACCES);
    }

    fn open_minds_the_type(t) {
        t.keep(t.fs.open(&t.root, t.dir, OpenFlags::READ)).unwrap();
        fails!(t.keep(t.fs.open(&t.root, t.dir, OpenFlags::WRITE)), EISDIR);
        fails!(t.keep(t.fs.open(&t.root, t.symlink("l", "x"), OpenFlags::READ)), ELOOP);
    }

    fn open_can_truncate(t) {
        let file = t.file("a");
        t.write(file, 0, b"content");
        let opened = t.keep(t.fs.open(&t.root, file, OpenFlags::WRITE | OpenFlags::TRUNCATE)).unwrap();
        assert_eq!(opened.size, 0);
        assert_eq!(t.content(file), b"");
    }

    fn immutable_inode_can_not_change(t) {
        let file = t.file("a");
        t.file("b");
        let flags = |flags| SetAttributes { flags: Some(flags), ..Default::default() };
        let stored = t.stat(file).flags;
        t.set(&t.root, file, flags(stored | FileFlags::IMMUTABLE)).unwrap();
        fails!(t.fs.write(&t.root, file, 0, b"x"), EPERM);
        fails!(t.resize(file, 10), EPERM);
        fails!(t.unlink(t.dir, "a"), EPERM);
        fails!(t.link(file, t.dir, "c"), EPERM);
        fails!(t.rename((t.dir, "a"), (t.dir, "c")), EPERM);
        fails!(t.rename((t.dir, "b"), (t.dir, "a")), EPERM);
        fails!(t.set(&t.root, file, SetAttributes { permissions: Some(0o600), ..Default::default() }), EPERM);
        fails!(t.set(&t.root, file, SetAttributes { user: Some(1), ..Default::default() }), EPERM);
        fails!(t.keep(t.fs.open(&t.root, file, OpenFlags::WRITE)), EPERM);
        t.keep(t.fs.open(&t.root, file, OpenFlags::READ)).unwrap();
        t.set(&t.root, file, flags(stored)).unwrap();
        t.unlink(t.dir, "a").unwrap();
    }

    fn immutable_directory_takes_and_gives_no_names(t) {
        let sub = t.mkdir("d");
        t.file_in(sub, "a");
        let stored = t.stat(sub).flags;
        let flags = |flags| SetAttributes { flags: Some(flags), ..Default::default() };
        t.set(&t.root, sub, flags(stored | FileFlags::IMMUTABLE)).unwrap();
        fails!(t.create_as(&t.root, sub, "b", NewNode::Regular, 0o644), EPERM);
        fails!(t.unlink(sub, "a"), EPERM);
        fails!(t.rename((sub, "a"), (t.dir, "a")), EPERM);
        t.set(&t.root, sub, flags(stored)).unwrap();
        t.unlink(sub, "a").unwrap();
    }

    fn append_only_file_only_grows(t) {
        let file = t.file("a");
        t.write(file, 0, b"one");
        let stored = t.stat(file).flags;
        let flags = |flags| SetAttributes { flags: Some(flags), ..Default::default() };
        t.set(&t.root, file, flags(stored | FileFlags::APPEND)).unwrap();
        assert_eq!(t.fs.append(&t.root, file, b"two").unwrap(), (3, 3));
        fails!(t.fs.write(&t.root, file, 0, b"x"), EPERM);
        fails!(t.resize(file, 0), EPERM);
        fails!(t.keep(t.fs.open(&t.root, file, OpenFlags::WRITE | OpenFlags::TRUNCATE)), EPERM);
        fails!(t.unlink(t.dir, "a"), EPERM);
        fails!(t.link(file, t.dir, "b"), EPERM);
        t.set(&t.root, file, flags(stored)).unwrap();
        assert_eq!(t.content(file), b"onetwo");
    }

    fn append_only_directory_only_grows(t) {
        let sub = t.mkdir("d");
        let stored = t.stat(sub).flags;
        let flags = |flags| SetAttributes { flags: Some(flags), ..Default::default() };
        t.set(&t.root, sub, flags(stored | FileFlags::APPEND)).unwrap();
        t.file_in(sub, "a");
        fails!(t.unlink(sub, "a"), EPERM);
        fails!(t.rename((sub, "a"), (sub, "b")), EPERM);
        if t.of.extents {
            // Linux asks for the flags before the type.
            let range = |mode| t.fs.fallocate(&t.root, sub, mode, 0, 10);
            fails!(range(FallocateMode::PunchHole), EPERM);
            fails!(range(FallocateMode::Allocate { keep_size: true }), EISDIR);
        }
        t.set(&t.root, sub, flags(stored)).unwrap();
        t.unlink(sub, "a").unwrap();
    }

    fn guarding_flags_need_a_capability(t) {
        let file = t.made(&t.user(1), t.dir, "a", NewNode::Regular, 0o644);
        let stored = t.stat(file).flags;
        for flag in [FileFlags::IMMUTABLE, FileFlags::APPEND] {
            let changes = SetAttributes { flags: Some(stored | flag), ..Default::default() };
            fails!(t.set(&t.user(1), file, changes), EPERM);
        }
        let changes = SetAttributes { flags: Some(stored | FileFlags::NO_DUMP), ..Default::default() };
        fails!(t.set(&t.user(2), file, changes), EPERM);
        assert!(t.set(&t.user(1), file, changes).unwrap().flags.contains(FileFlags::NO_DUMP));
    }

    fn names_are_sought_with_permission_only(t) {
        let sub = t.mkdir("d");
        t.file_in(sub, "a");
        t.chmod(sub, 0o600);
        let user = t.user(1);
        fails!(t.create_as(&user, sub, "a", NewNode::Regular, 0o644), EACCES);
        fails!(t.fs.unlink(&user, sub, b"none"), EACCES);
        fails!(t.fs.remove_directory(&user, sub, b"none"), EACCES);
    }

    fn devices_need_the_directory_before_the_capability(t) {
        let sub = t.mkdir("d");
        let device = drystone_vfs::DeviceNumber { major: 1, minor: 3 };
        let node = NewNode::CharacterDevice(device);
        fails!(t.create_as(&t.user(1), sub, "a", node, 0o644), EACCES);
        t.chmod(sub, 0o777);
        fails!(t.create_as(&t.user(1), sub, "a", node, 0o644), EPERM);
        let whiteout = NewNode::CharacterDevice(Default::default());
        t.create_as(&t.user(1), sub, "w", whiteout, 0o644).unwrap();
    }

    fn new_directories_take_no_set_id_bits(t) {
        let made = t.made(&t.root, t.dir, "d", NewNode::Directory, 0o7755);
        assert_eq!(t.stat(made).permissions, 0o1755);
    }

    fn flags_of_other_types_are_refused(t) {
        let fifo = t.made(&t.root, t.dir, "f", NewNode::Fifo, 0o644);
        let flags = t.stat(fifo).flags | FileFlags::APPEND;
        let changes = SetAttributes { flags: Some(flags), ..Default::default() };
        fails!(t.set(&t.root, fifo, changes), EOPNOTSUPP);
    }

    fn sockets_are_not_opened(t) {
        let socket = t.made(&t.root, t.dir, "s", NewNode::Socket, 0o644);
        fails!(t.fs.open(&t.root, socket, drystone_vfs::OpenFlags::READ), ENXIO);
    }

    fn only_files_have_holes(t) {
        let sub = t.mkdir("d");
        fails!(t.fs.seek(sub, drystone_vfs::SeekFrom::Hole(0)), EINVAL);
    }

    fn append_only_files_are_written_behind_the_end(t) {
        let file = t.file("a");
        t.write(file, 0, b"one");
        let stored = t.stat(file).flags;
        let flags = |flags| SetAttributes { flags: Some(flags), ..Default::default() };
        t.set(&t.root, file, flags(stored | FileFlags::APPEND)).unwrap();
        // A program may write behind appends that its kernel hasn't sent yet.
        t.write(file, 5, b"x");
        fails!(t.fs.write(&t.root, file, 4, b"x"), EPERM);
        t.fs.append(&t.root, file, b"y").unwrap();
        t.set(&t.root, file, flags(stored)).unwrap();
        assert_eq!(t.content(file), b"one\0\0xy");
    }
}
