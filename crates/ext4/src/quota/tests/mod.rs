//! Usage files that grow, judged by e2fsck; limits.

mod judged;
mod steps;

use super::QuotaLimits;
use crate::Ext4;
use crate::testing::{ImageFile, TestImage};
use drystone_ext4_format::quota::QuotaKind;
use drystone_testkit::judges::run;
use drystone_vfs::{
    Errno, FileFlags, FileSystem, NewNode, RenameFlags, RequestContext, SetAttributes,
};

/// Enough to fill more than a few blocks of records, spread so that the tree gets branches.
const OWNERS: u32 = 120;

#[test]
fn new_owners_get_records() {
    for kind in ["quota", "quota-project"] {
        let Some(image) = TestImage::new(kind, 16) else { return };
        for round in 0..2 {
            make_files_of_owners(image.open(), round);
            image.check(kind);
        }
    }
}

/// A new file of usage ends within its first block there.
#[test]
fn usage_is_counted_in_large_blocks() {
    for block_size in [8192, 65536] {
        let arguments = format!("-t ext4 -b {block_size} -O quota");
        let Some(image) = ImageFile::new(&arguments, 128 << 20) else { return };
        for round in 0..2 {
            make_files_of_owners(image.open(), round);
            image.check(&arguments);
        }
    }
}

fn make_files_of_owners(fs: Ext4, round: u32) {
    let context = RequestContext::superuser();
    let root = fs.root();
    for number in 0..OWNERS {
        let owner = number.wrapping_mul(0x0101_3579) ^ round;
        let user = RequestContext { user: owner, group: owner / 2, ..context.clone() };
        let name = format!("{round}-{number}");
        let made = fs.create(&user, root, name.as_bytes(), NewNode::Regular, 0o644);
        let inode = made.expect("a file").inode;
        fs.write(&context, inode, 0, &[1; 5000]).expect("data");
        if number % 3 == 0 {
            let group = Some(number * 77_777);
            let changes = SetAttributes { group, ..SetAttributes::default() };
            fs.set_attributes(&context, inode, &changes).expect("a new group");
        }
        if number % 5 == 0 {
            fs.unlink(&context, root, name.as_bytes()).expect("a file less");
        }
        fs.forget(inode, 1);
    }
    fs.close().expect("a clean end");
}

/// A limit is kept to the block, also while data waits; data that is written at once counts what waits.
#[test]
fn what_waits_counts_for_limits() {
    const USER: u32 = 1000;
    const BLOCK: usize = 4096;
    let Some(image) = TestImage::new("quota", 64) else { return };
    for (round, syncs) in [false, true].into_iter().enumerate() {
        let fs = image.open();
        let root = fs.root();
        let superuser = RequestContext::superuser();
        let user = RequestContext::user(USER, USER, Vec::new());
        let writer = RequestContext { check_permissions: true, ..user };
        let file = |name: &str| {
            let name = format!("{name}{round}");
            let owned = RequestContext { check_permissions: false, ..writer.clone() };
            let made = fs.create(&owned, root, name.as_bytes(), NewNode::Regular, 0o666);
            made.expect("a file").inode
        };
        let (small, other) = (file("small"), file("other"));
        let used = fs.quotas.files()[0].get(&fs, USER).unwrap().unwrap().space_bytes;
        let space_hard = used / 1024 + 20 * BLOCK as u64 / 1024;
        let limits = QuotaLimits { space_hard, ..QuotaLimits::default() };
        fs.set_quota_limits(QuotaKind::User, USER, &limits).expect("a limit");
        let mut written = 0;
        let refused = loop {
            match fs.write(&writer, small, written * 2 * BLOCK as u64, &[1; BLOCK]) {
                Ok(_) => written += 1,
                Err(error) => break error,
            }
            if syncs && written % 7 == 0 {
                fs.sync_inode(small, true).expect("what waits has its space");
            }
        };
        assert_eq!(refused.errno, Errno::EDQUOT);
        // Nodes of the mapping are not checked against the limit, but count.
        assert!((19..=20).contains(&written), "{written} blocks");
        let large = fs.write(&writer, other, 0, &[1; 200_000]);
        assert_eq!(large.expect_err("the limit").errno, Errno::EDQUOT);
        // Another user's from here on.
        let changes = SetAttributes { user: Some(0), ..SetAttributes::default() };
        fs.set_attributes(&superuser, small, &changes).expect("a new owner");
        assert!(fs.write(&writer, other, 0, &[1; BLOCK]).is_ok());
        fs.close().expect("a clean end");
        image.check("after a limit");
    }
}

/// Old systems made inodes without room for a project's number.
#[test]
fn a_project_that_can_not_be_stored_is_refused() {
    let Some(image) = ImageFile::new("-t ext4 -O quota,project", 16 << 20) else { return };
    let context = RequestContext::superuser();
    let create = |fs: &Ext4, name: &[u8]| {
        let made = fs.create(&context, fs.root(), name, NewNode::Regular, 0o644);
        made.expect("a file").inode
    };
    let fs = image.open();
    fs.forget(create(&fs, b"old"), 1);
    fs.close().expect("a clean end");
    drop(fs);
    let request = "set_inode_field old extra_isize 28";
    let said = run("debugfs", ["-w", "-R", request, &image.path.to_string_lossy()]);
    said.expect("debugfs runs").expect_clean("debugfs");
    let fs = image.open();
    let old = fs.lookup(&context, fs.root(), b"old").expect("the file").inode;
    let set_project = |inode, project| {
        let changes = SetAttributes { project: Some(project), ..SetAttributes::default() };
        fs.set_attributes(&context, inode, &changes)
    };
    assert_eq!(set_project(old, 7).expect_err("no room").errno, Errno::EOVERFLOW);
    assert_eq!(set_project(old, 0).expect("it has none").project, 0);
    assert_eq!(set_project(create(&fs, b"new"), 7).expect("room").project, 7);
    fs.close().expect("a clean end");
    image.check("after a project that was refused");
}

/// A directory whose project is inherited takes no inode of another, also not under another name.
#[test]
fn names_do_not_change_beside_an_inherited_project() {
    let Some(image) = TestImage::new("quota-project", 16) else { return };
    let (fs, context) = (image.open(), RequestContext::superuser());
    let made = fs.create(&context, fs.root(), b"d", NewNode::Directory, 0o755);
    let directory = made.expect("a directory").inode;
    for name in [b"a", b"b"] {
        let made = fs.create(&context, directory, name, NewNode::Regular, 0o644);
        fs.forget(made.expect("a file").inode, 1);
    }
    let rename = |from: &[u8], to: &[u8], flags| {
        fs.rename(&context, directory, from, directory, to, flags).map_err(|error| error.errno)
    };
    let inherits = SetAttributes {
        project: Some(7),
        flags: Some(FileFlags::PROJECT_INHERIT),
        ..SetAttributes::default()
    };
    fs.set_attributes(&context, directory, &inherits).expect("a project");
    assert_eq!(rename(b"a", b"c", RenameFlags::empty()), Err(Errno::EXDEV));
    assert_eq!(rename(b"a", b"b", RenameFlags::empty()), Err(Errno::EXDEV));
    assert_eq!(rename(b"a", b"b", RenameFlags::EXCHANGE), Err(Errno::EXDEV));
    let other = SetAttributes { project: Some(0), ..SetAttributes::default() };
    fs.set_attributes(&context, directory, &other).expect("no project");
    assert_eq!(rename(b"a", b"c", RenameFlags::empty()), Ok(()));
    fs.forget(directory, 1);
    fs.close().expect("a clean end");
    image.check("after renames");
}
