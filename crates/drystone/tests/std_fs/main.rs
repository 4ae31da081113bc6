//! The same random calls on an image and, through `std::fs`, on a directory of this machine: every result
//! and every kind of error must be the same, as root and as an ordinary user.
//!
//! Both trees lie deep below directories of the same names, so that no `..` and no symbolic link leads to
//! anything that differs. Targets of links are relative.
#![allow(clippy::unwrap_used, reason = "clippy does not see that helpers here are tests too")]

mod calls;
mod paths;

use calls::{Call, Identity, on_host, on_image, tree_of_host, tree_of_image};
use drystone::{CreateOptions, Fs, Image, check_image, fsck};
use drystone_testkit::skip::is_root;
use fastrand::Rng;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

const CALLS: usize = 1500;
/// The whole trees are compared after so many calls.
const COMPARED_AFTER: usize = 100;
const USER: u32 = 1234;
/// More levels than `..` and links can go up.
const DEPTH: usize = 60;

#[test]
fn calls_are_those_of_std_fs() {
    let identity = Identity::of_process();
    (0..4).for_each(|seed| run(seed, &identity));
}

#[test]
fn calls_of_an_ordinary_user_are_those_of_std_fs() {
    if !is_root("acting as an ordinary user") {
        return;
    }
    let identity = Identity { user: USER, group: USER, groups: vec![USER + 1] };
    (10..14).for_each(|seed| run(seed, &identity));
}

fn run(seed: u64, identity: &Identity) {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    let memory = Path::new("/dev/shm");
    let scratch = match memory.is_dir() {
        true => tempfile::tempdir_in(memory).unwrap(),
        false => tempfile::tempdir().unwrap(),
    };
    let name = scratch.path().join("disk.img");
    let image = Image::create(&name, &CreateOptions::new(64 << 20)).unwrap();
    let superuser = image.fs();
    let base = "/p".repeat(DEPTH);
    let host_root = scratch.path().join("host");
    let host_base = host_root.join(&base[1..]);
    superuser.create_dir_all(&base).unwrap();
    std::fs::create_dir_all(&host_base).unwrap();
    for open in [scratch.path(), &host_root] {
        std::fs::set_permissions(open, PermissionsExt::from_mode(0o755)).unwrap();
    }
    give_to(identity, &superuser, Path::new(&base), &host_base);
    let fs = match identity.user {
        0 => superuser.clone(),
        _ => superuser.as_user(identity.user, identity.group, &identity.groups),
    };
    let mut rng = Rng::with_seed(seed);
    let _identity = identity.assume();
    for count in 0..CALLS {
        let call = Call::random(&mut rng, identity.user != 0);
        let expected = on_host(&call, &host_root, &base);
        let found = on_image(&call, &fs, &base);
        let context = || {
            let tree = tree_of_image(&superuser, &base).join("\n");
            format!("seed {seed}, call {count}: {call:?} in\n{tree}")
        };
        assert_eq!(found, expected, "{}", context());
        if count % COMPARED_AFTER == 0 {
            let trees = (tree_of_image(&fs, &base), tree_of_host(&host_base));
            assert_eq!(trees.0, trees.1, "seed {seed}, after call {count}: {call:?}");
        }
    }
    drop(fs);
    image.close().unwrap();
    let report = check_image(&name, &fsck::CheckOptions::default(), &mut |_| {}).unwrap();
    assert!(report.is_clean(), "{:?}", report.problems);
}

/// Makes the base the user's, and in it directories that the user may only look into or not even that.
fn give_to(identity: &Identity, fs: &Fs<'_>, base: &Path, host_base: &Path) {
    let (user, group) = (Some(identity.user), Some(identity.group));
    if rustix::process::geteuid().is_root() {
        fs.chown(base, user, group).unwrap();
        chown(host_base, user, group).unwrap();
        for (name, mode) in [("b", 0o755), ("b/c", 0o777), ("c", 0o700)] {
            fs.create_dir(base.join(name)).unwrap();
            fs.set_permissions(base.join(name), PermissionsExt::from_mode(mode)).unwrap();
            std::fs::create_dir(host_base.join(name)).unwrap();
            std::fs::set_permissions(host_base.join(name), PermissionsExt::from_mode(mode))
                .unwrap();
        }
    } else {
        // As on the host, where `..` leads to directories of the user too.
        for directory in base.ancestors() {
            fs.chown(directory, user, group).unwrap();
        }
    }
}
