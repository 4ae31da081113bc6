//! Case-insensitive directories: the kernel is case-sensitive and must not rely on cached names.

use crate::attributes::{as_nobody, reachable};
use crate::support::{Mounted, errno, have, run};
use drystone_fuse::Transport;
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

/// Runs a test on an image whose directory `d` compares names without case, over each transport.
fn check(body: fn(&Mounted)) {
    if !have("chattr") {
        return;
    }
    for transport in [Transport::Device, Transport::Rings, Transport::Fuser] {
        let Some(mounted) = Mounted::made_with(transport, &["-O", "casefold"]) else { continue };
        fs::create_dir(mounted.path("d")).unwrap();
        // The kernel learns that this name isn't there before the directory folds.
        assert!(!mounted.path("d/EARLY").exists());
        run("chattr", &["+F", "d"], &mounted.root());
        body(&mounted);
        mounted.finish();
    }
}

#[test]
fn every_spelling_leads_to_the_file_that_is_there() {
    check(|mounted| {
        let path = |name: &str| mounted.path(name);
        for (one, other) in [("d/foo", "d/FOO"), ("d/early", "d/EARLY")] {
            fs::write(path(one), "old").unwrap();
            assert_eq!(fs::read(path(other)).unwrap(), b"old");
            fs::remove_file(path(one)).unwrap();
            assert_eq!(errno(File::open(path(other))), Errno::NOENT);
            fs::write(path(other), "new").unwrap();
            assert_eq!(fs::read(path(one)).unwrap(), b"new");
            fs::remove_file(path(one)).unwrap();
        }
        // Moved in after the kernel has cached it elsewhere.
        fs::write(path("bar"), "old").unwrap();
        fs::rename(path("bar"), path("d/bar")).unwrap();
        fs::remove_file(path("d/BAR")).unwrap();
        fs::write(path("d/bar"), "new").unwrap();
        assert_eq!(fs::read(path("d/Bar")).unwrap(), b"new");
        // Cached from listings.
        assert_eq!(run("ls", &["-l", "d"], &mounted.root()).lines().count(), 2);
        fs::rename(path("d/BAR"), path("d/other")).unwrap();
        assert_eq!(errno(fs::read(path("d/bar"))), Errno::NOENT);
        assert_eq!(fs::read(path("d/OTHER")).unwrap(), b"new");
    });
}

#[test]
fn no_spelling_opens_the_files_of_others() {
    check(|mounted| {
        fs::set_permissions(mounted.path("d"), PermissionsExt::from_mode(0o777)).unwrap();
        reachable(mounted);
        assert!(!as_nobody(mounted, "cat d/SECRET"));
        let mut secret = File::create(mounted.path("d/secret")).unwrap();
        secret.set_permissions(PermissionsExt::from_mode(0o600)).unwrap();
        secret.write_all(b"secret").unwrap();
        assert!(!as_nobody(mounted, "echo theirs > d/SECRET"));
        assert!(!as_nobody(mounted, "cat d/SECRET"));
        assert_eq!(fs::read(mounted.path("d/SECRET")).unwrap(), b"secret");
    });
}
