//! Modes, owners and times.

use drystone_vfs::{
    Capabilities, Errno, FallocateMode, FileFlags, NewNode, RequestContext, SetAttributes, SetTime,
    Timestamp,
};

const OLD: Timestamp = Timestamp { seconds: 1_000, nanoseconds: 0 };

fn at(seconds: i64, nanoseconds: u32) -> Option<SetTime> {
    Some(SetTime::At(Timestamp { seconds, nanoseconds }))
}

fn times(seconds: i64, nanoseconds: u32) -> SetAttributes {
    let time = at(seconds, nanoseconds);
    SetAttributes { accessed: time, modified: time, ..Default::default() }
}

/// All times long ago, so that a change shows.
fn old() -> SetAttributes {
    SetAttributes { changed: Some(OLD), ..times(OLD.seconds, 0) }
}

cases! {
    fn chmod_sets_all_bits(t) {
        let file = t.file("a");
        for mode in [0o7777, 0, 0o4755, 0o1644] {
            t.chmod(file, mode);
            assert_eq!(t.stat(file).permissions, mode);
        }
    }

    fn chmod_is_for_the_owner(t) {
        let file = t.made(&t.user(1), t.dir, "a", NewNode::Regular, 0o666);
        let changes = SetAttributes { permissions: Some(0o600), ..Default::default() };
        fails!(t.set(&t.user(2), file, changes), EPERM);
        t.set(&t.user(1), file, changes).unwrap();
        t.set(&t.able(2, Capabilities::OWNER), file, changes).unwrap();
    }

    fn chmod_drops_group_id_outside_the_group(t) {
        let file = t.file("a");
        t.chown(file, 1001, 3000);
        let changes = SetAttributes { permissions: Some(0o2755), ..Default::default() };
        assert_eq!(t.set(&t.user(1), file, changes).unwrap().permissions, 0o755);
        t.chown(file, 1001, 2000);
        assert_eq!(t.set(&t.user(1), file, changes).unwrap().permissions, 0o2755);
    }

    fn symlinks_have_no_mode_to_change(t) {
        let link = t.symlink("l", "x");
        let changes = SetAttributes { permissions: Some(0o600), ..Default::default() };
        fails!(t.set(&t.root, link, changes), EOPNOTSUPP);
        t.chown(link, 5, 6);
        assert_eq!((t.stat(link).user, t.stat(link).group), (5, 6));
    }

    fn flags_that_mean_nothing_are_refused(t) {
        let flags = FileFlags::IMMUTABLE | FileFlags::NO_DUMP | FileFlags::TOP_DIRECTORY;
        let set = |flags| SetAttributes { flags: Some(flags), ..Default::default() };
        let (link, file, directory) = (t.symlink("l", "x"), t.file("f"), t.mkdir("d"));
        for (inode, meant) in [
            (link, FileFlags::NO_DUMP),
            (file, flags - FileFlags::TOP_DIRECTORY),
            (directory, flags),
        ] {
            if meant != flags {
                fails!(t.set(&t.root, inode, set(flags)), EOPNOTSUPP);
            }
            assert_eq!(t.set(&t.root, inode, set(meant)).unwrap().flags & flags, meant);
            t.set(&t.root, inode, set(FileFlags::empty())).unwrap();
        }
        let fifo = t.made(&t.user(1), t.dir, "p", NewNode::Fifo, 0o666);
        fails!(t.set(&t.user(1), fifo, set(FileFlags::IMMUTABLE)), EPERM);
    }

    fn chown_is_for_the_privileged(t) {
        let file = t.made(&t.user(1), t.dir, "a", NewNode::Regular, 0o666);
        let user = |user| SetAttributes { user: Some(user), ..Default::default() };
        fails!(t.set(&t.user(1), file, user(1002)), EPERM);
        t.set(&t.user(1), file, user(1001)).unwrap();
        t.set(&t.able(3, Capabilities::CHOWN), file, user(1002)).unwrap();
        assert_eq!(t.stat(file).user, 1002);
    }

    fn owners_may_choose_among_their_groups(t) {
        let file = t.made(&t.user(1), t.dir, "a", NewNode::Regular, 0o666);
        let group = |group| SetAttributes { group: Some(group), ..Default::default() };
        t.set(&t.user(1), file, group(2000)).unwrap();
        assert_eq!(t.stat(file).group, 2000);
        fails!(t.set(&t.user(1), file, group(3000)), EPERM);
        fails!(t.set(&t.user(2), file, group(2000)), EPERM);
    }

    fn chown_clears_set_id_bits(t) {
        let file = t.file("a");
        t.chmod(file, 0o6755);
        t.chown(file, 1, 1);
        assert_eq!(t.stat(file).permissions, 0o755);
        let sub = t.mkdir("d");
        t.chmod(sub, 0o6755);
        t.chown(sub, 1, 1);
        assert_eq!(t.stat(sub).permissions, 0o6755);
    }

    fn owners_may_have_32_bits(t) {
        let file = t.file("a");
        t.chown(file, 0xfffe_1234, 0x8765_4321);
        assert_eq!((t.stat(file).user, t.stat(file).group), (0xfffe_1234, 0x8765_4321));
    }

    fn times_keep_their_range(t) {
        let file = t.file("a");
        let all = [-1_i64, -86_400 * 365, i64::from(i32::MIN) + 1, 0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff,
            0x1_0000_0000, 0x1_8000_0000, 0x3_7fff_fffe];
        for seconds in all {
            let expected = t.of.clamp_time(Timestamp { seconds, nanoseconds: 123_456_789 });
            let after = t.set(&t.root, file, times(seconds, 123_456_789)).unwrap();
            assert_eq!((after.accessed, after.modified), (expected, expected));
            assert_eq!(t.stat(file).modified, expected);
        }
    }

    fn times_outside_the_range_are_clamped(t) {
        let file = t.file("a");
        for seconds in [i64::MIN / 2, t.of.time_min - 1, t.of.time_max + 1, i64::MAX / 2] {
            let after = t.set(&t.root, file, times(seconds, 5)).unwrap();
            let expected = t.of.clamp_time(Timestamp { seconds, nanoseconds: 5 });
            assert_eq!(after.modified, expected);
        }
    }

    fn nanoseconds_have_a_limit(t) {
        fails!(t.set(&t.root, t.file("a"), times(0, 1_000_000_000)), EINVAL);
    }

    fn given_times_are_for_the_owner(t) {
        let file = t.made(&t.user(1), t.dir, "a", NewNode::Regular, 0o666);
        fails!(t.set(&t.user(2), file, times(5, 0)), EPERM);
        t.set(&t.user(1), file, times(5, 0)).unwrap();
    }

    fn present_time_is_for_writers(t) {
        let file = t.made(&t.user(1), t.dir, "a", NewNode::Regular, 0o602);
        let now = Some(SetTime::Now);
        let touch = SetAttributes { accessed: now, modified: now, ..Default::default() };
        t.set(&t.user(2), file, touch).unwrap();
        t.chmod(file, 0o604);
        fails!(t.set(&t.user(2), file, touch), EACCES);
        let half = SetAttributes { modified: now, ..Default::default() };
        t.chmod(file, 0o602);
        fails!(t.set(&t.user(2), file, half), EPERM);
    }

    fn write_changes_times(t) {
        let file = t.file("a");
        t.set(&t.root, file, old()).unwrap();
        t.write(file, 0, b"x");
        let after = t.stat(file);
        assert!(after.modified > OLD && after.changed > OLD);
        assert_eq!(after.accessed, OLD);
    }

    fn writes_of_a_cache_change_no_times(t) {
        let file = t.file("a");
        t.set(&t.root, file, old()).unwrap();
        let cache = RequestContext { is_cache: true, ..RequestContext::superuser() };
        // New blocks, in place, and further on.
        for offset in [0, 0, 10_000] {
            t.fs.write(&cache, file, offset, b"x").unwrap();
        }
        let after = t.stat(file);
        assert_eq!((after.modified, after.changed, after.size), (OLD, OLD, 10_001));
        assert_eq!(t.content(file)[..1], *b"x");
    }

    fn writes_of_a_cache_obey_flags(t) {
        let file = t.file("a");
        t.write(file, 0, b"one");
        let stored = t.stat(file).flags;
        let set = |added| {
            let flags = Some(stored | added);
            t.set(&t.root, file, SetAttributes { flags, ..Default::default() }).unwrap();
        };
        let cache = RequestContext { is_cache: true, ..RequestContext::superuser() };
        set(FileFlags::IMMUTABLE);
        fails!(t.fs.write(&cache, file, 0, b"x"), EPERM);
        fails!(t.fs.write(&cache, file, 3, b"x"), EPERM);
        // An append comes as a whole page.
        set(FileFlags::APPEND);
        t.fs.write(&cache, file, 0, b"onetwo").unwrap();
        set(FileFlags::empty());
        assert_eq!(t.content(file), b"onetwo");
    }

    fn changes_past_a_cache_that_keeps_times_change_none(t) {
        let file = t.file("a");
        t.set(&t.root, file, old()).unwrap();
        let context = RequestContext { keeps_times: true, ..RequestContext::superuser() };
        for offset in [0, 0, 20_000] {
            t.fs.write(&context, file, offset, b"x").unwrap();
        }
        let modes = [
            FallocateMode::Allocate { keep_size: true },
            FallocateMode::Allocate { keep_size: false },
            FallocateMode::PunchHole,
            FallocateMode::ZeroRange { keep_size: true },
        ];
        for (mode, length) in modes.into_iter().zip([40_000, 30_000, 10_000, 10_000]) {
            match t.fs.fallocate(&context, file, mode, 0, length) {
                Err(error) if error.errno == Errno::EOPNOTSUPP => {}
                done => done.unwrap(),
            }
        }
        let after = t.stat(file);
        assert_eq!((after.modified, after.changed), (OLD, OLD));
    }

    fn read_changes_no_time(t) {
        let file = t.file("a");
        t.write(file, 0, b"x");
        t.set(&t.root, file, old()).unwrap();
        t.content(file);
        t.names(t.dir);
        let after = t.stat(file);
        assert_eq!((after.accessed, after.modified, after.changed), (OLD, OLD, OLD));
    }

    fn chmod_changes_the_change_time_only(t) {
        let file = t.file("a");
        t.set(&t.root, file, old()).unwrap();
        t.chmod(file, 0o600);
        let after = t.stat(file);
        assert!(after.changed > OLD);
        assert_eq!((after.accessed, after.modified), (OLD, OLD));
    }

    fn names_change_times_of_their_directory(t) {
        let sub = t.mkdir("d");
        let file = t.file("f");
        let check = |what: &str, change: &dyn Fn()| {
            t.set(&t.root, sub, old()).unwrap();
            change();
            let after = t.stat(sub);
            assert!(after.modified > OLD && after.changed > OLD, "{what}");
        };
        check("create", &|| { t.file_in(sub, "a"); });
        check("link", &|| { t.link(file, sub, "l").unwrap(); });
        check("unlink", &|| t.unlink(sub, "l").unwrap());
        check("mkdir", &|| { t.mkdir_in(sub, "e"); });
        check("rename within", &|| t.rename((sub, "a"), (sub, "b")).unwrap());
        check("rename out", &|| t.rename((sub, "b"), (t.dir, "b")).unwrap());
        check("rename in", &|| t.rename((t.dir, "b"), (sub, "b")).unwrap());
        check("rmdir", &|| t.rmdir(sub, "e").unwrap());
    }

    fn link_and_unlink_change_the_inodes_change_time(t) {
        let file = t.file("a");
        t.set(&t.root, file, old()).unwrap();
        t.link(file, t.dir, "b").unwrap();
        assert!(t.stat(file).changed > OLD);
        t.set(&t.root, file, old()).unwrap();
        t.unlink(t.dir, "b").unwrap();
        assert!(t.stat(file).changed > OLD);
        t.set(&t.root, file, old()).unwrap();
        t.rename((t.dir, "a"), (t.dir, "c")).unwrap();
        assert!(t.stat(file).changed > OLD);
        assert_eq!(t.stat(file).modified, OLD);
    }

    fn tools_may_set_creation_and_change_times(t) {
        let file = t.file("a");
        let time = Timestamp { seconds: 12_345, nanoseconds: 678 };
        let changes =
            SetAttributes { created: Some(time), changed: Some(time), ..Default::default() };
        let after = t.set(&t.root, file, changes).unwrap();
        assert_eq!(after.changed, t.of.clamp_time(time));
        assert_eq!(after.created, t.of.nanoseconds.then_some(time));
    }

    fn failed_change_changes_nothing(t) {
        let file = t.made(&t.user(1), t.dir, "a", NewNode::Regular, 0o666);
        t.write(file, 0, b"content");
        let changes = SetAttributes {
            permissions: Some(0o600),
            user: Some(5),
            size: Some(1),
            ..Default::default()
        };
        fails!(t.set(&t.user(1), file, changes), EPERM);
        let after = t.stat(file);
        assert_eq!((after.permissions, after.user, after.size), (0o666, 1001, 7));
    }

    fn project_is_kept_where_there_are_projects(t) {
        let file = t.file("a");
        let project = |project| SetAttributes { project: Some(project), ..Default::default() };
        if t.of.projects {
            assert_eq!(t.set(&t.root, file, project(77)).unwrap().project, 77);
        } else {
            fails!(t.set(&t.root, file, project(77)), EOPNOTSUPP);
        }
    }
}
