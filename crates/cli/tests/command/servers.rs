//! Images behind an NBD server: every command takes them.

use crate::support::{Fixture, finish};
use drystone_testkit::nbd::NbdServer;
use drystone_testkit::skip;
use std::path::Path;
use std::process::Command;

/// nbdkit with a file of the fixture.
fn serve(fixture: &Fixture, image: &str) -> NbdServer {
    let arguments = format!("file {}", fixture.path(image).display());
    NbdServer::nbdkit(fixture.path("socket"), &arguments)
}

#[test]
fn images_are_made_filled_and_read_behind_a_server() {
    let fixture = Fixture::empty();
    std::fs::File::create(fixture.path("disk.img")).unwrap().set_len(64 << 20).unwrap();
    let _server = serve(&fixture, "disk.img");
    let remote = format!("nbd+unix:///?socket={}", fixture.path("socket").display());
    fixture.put("tree/etc/hosts", "::1 localhost");
    fixture.line(&format!("mkfs {remote} --label far -q")).good();
    fixture.line(&format!("cp -r tree/etc {remote}:/copy")).good();
    assert_eq!(fixture.line(&format!("cat {remote}:/copy/hosts")).good(), "::1 localhost");
    assert_eq!(fixture.line(&format!("info --json {remote}")).json()["label"], "far");
    fixture.line(&format!("check {remote}")).good();
    fixture.expect_sound();
    let message = fixture.line(&format!("build {remote} --from tree -q")).bad(1);
    assert!(message.contains("isn't empty"), "{message}");
    fixture.line(&format!("build {remote} --from tree --force -q")).good();
    assert_eq!(fixture.line(&format!("ls {remote}:/")).good(), "etc\nlost+found\n");
    fixture.expect_sound();
    if skip::is_root("changes of a whole image behind a server") {
        let log_folder = Path::new("/var/lib/drystone");
        let had_folder = log_folder.exists();
        fixture.line(&format!("tune {remote} --label near")).good();
        assert_eq!(fixture.line(&format!("info --json {remote}")).json()["label"], "near");
        // The log was in no folder here that is named like the address.
        let names = std::fs::read_dir(fixture.path("")).unwrap().map(|entry| entry.unwrap());
        assert!(names.into_iter().all(|entry| !entry.path().ends_with("nbd+unix:")));
        if !had_folder {
            std::fs::remove_dir(log_folder).unwrap();
        }
    }
    for (name, problem) in [("nbds:///x", "HOST"), ("nbd://", "HOST"), ("nbd://h/?a=b", "?")] {
        let message = fixture.line(&format!("ls {name}")).bad(1);
        assert!(message.contains(problem), "{message}");
    }
}

/// The server is killed and started again under a mount.
#[test]
fn a_mount_outlives_its_server() {
    if !skip::can_mount("mounts of NBD exports") {
        return;
    }
    let fixture = Fixture::with(&["--size", "64M"]);
    fixture.line("chmod 777 disk.img:/").good();
    let mut server = serve(&fixture, "disk.img");
    let remote = format!("nbd+unix:///?socket={}", fixture.path("socket").display());
    std::fs::create_dir(fixture.path("mnt")).unwrap();
    fixture.line(&format!("mount {remote} mnt")).good();
    for number in 0..20_u8 {
        std::fs::write(fixture.path(format!("mnt/{number}")), vec![number; 100_000]).unwrap();
        if number % 5 == 4 {
            drop(server);
            server = serve(&fixture, "disk.img");
            finish(Command::new("sync").arg("-f").arg(fixture.path("mnt"))).good();
        }
    }
    fixture.line("umount mnt").good();
    assert_eq!(fixture.line(&format!("cat {remote}:/19")).bytes, vec![19; 100_000]);
    fixture.expect_sound();
}
