//! `extract --since`: layers, applied by umoci, skopeo and `build`.

use crate::copying::make_tree;
use crate::support::{Fixture, finish};
use drystone_testkit::judges::have;
use drystone_testkit::skip;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

/// Calls another program in the folder.
fn run(fixture: &Fixture, line: &str) -> String {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap());
    let done = finish(command.args(words).current_dir(fixture.path("")));
    assert_eq!(done.code, Some(0), "{line}: {}{}", done.stdout, done.stderr);
    done.stdout
}

/// Two images, of a tree and of what became of it: of everything something is added, changed and removed.
fn old_and_new() -> Fixture {
    let fixture = Fixture::empty();
    make_tree(&fixture.path("old"));
    fs::remove_file(fixture.path("old/socket")).unwrap();
    for name in ["gone/a/b", "emptied/a", "emptied/b/c", "becomes-directory", "becomes-file/f"] {
        fixture.put(&format!("old/{name}"), name);
    }
    run(&fixture, "cp -a old new");
    for name in ["gone", "emptied/b", "becomes-file", "d/deep/deeper"] {
        fs::remove_dir_all(fixture.path("new").join(name)).unwrap();
    }
    for name in ["emptied/a", "becomes-directory", "d/deep/file-7", "short-link", "d/of-60"] {
        fs::remove_file(fixture.path("new").join(name)).unwrap();
    }
    for name in ["emptied/new", "becomes-directory/a/b", "becomes-file", "added/a/b", "d/of-4096"] {
        fixture.put(&format!("new/{name}"), format!("new {name}"));
    }
    symlink("first", fixture.path("new/short-link")).unwrap();
    fs::hard_link(fixture.path("new/d/of-1"), fixture.path("new/added/of-1")).unwrap();
    let mode = |name: &str, mode| {
        fs::set_permissions(fixture.path("new").join(name), PermissionsExt::from_mode(mode))
            .unwrap();
    };
    mode("mode-400", 0o777);
    mode("d/deep", 0o2711);
    // One of three names.
    fs::write(fixture.path("new/d/second"), "changed under one of its names").unwrap();
    for image in ["old", "new"] {
        fixture.line(&format!("build {image}.img --from {image} -q")).good();
    }
    fixture
}

/// A layout of the old tree and a layer over it is the new tree, whoever puts the two together.
#[test]
fn a_layer_over_the_old_tree_is_the_new_one() {
    if !skip::is_root("the owners in layers") || !have("umoci") || !have("skopeo") {
        return;
    }
    let fixture = old_and_new();
    fixture.line("extract old.img --to base.tar -q").good();
    let summary = fixture.line("extract new.img --since old.img --to layer.tar --json").json();
    assert_eq!((&summary["failed"], &summary["not_kept"]), (&0.into(), &0.into()));
    let names = run(&fixture, "tar -tf layer.tar");
    for name in ["./.wh.gone", "./emptied/.wh..wh..opq", "./d/deep/.wh.file-7", "./added/of-1"] {
        assert!(names.lines().any(|line| line == name), "{name}: {names}");
    }
    // What is the same isn't there, nor what is below something that is gone or new.
    for name in ["./d/of-159", "./gone/", "./emptied/.wh.a", "./empty", "./d/deep/file-8"] {
        assert!(!names.lines().any(|line| line == name), "{name}: {names}");
    }
    run(&fixture, "umoci init --layout layout");
    run(&fixture, "umoci new --image layout:tag");
    run(&fixture, "umoci raw add-layer --image layout:tag base.tar");
    run(&fixture, "umoci raw add-layer --image layout:tag layer.tar");
    fixture.line("build over.img --from oci:layout -q").good();
    fixture.line("diff over.img new.img").good();
    fixture.expect_sound_image("over.img");
    run(&fixture, "umoci unpack --image layout:tag bundle");
    // It knows no ACLs and no attributes without a value, and fills holes.
    let differences = fixture.line("diff bundle/rootfs new.img --ignore holes").stdout;
    let unknown = ["xattr system.posix_acl_", "xattr user.empty: none"];
    let is_known = |line: &&str| !unknown.iter().any(|attribute| line.contains(attribute));
    assert_eq!(differences.lines().filter(is_known).collect::<Vec<_>>(), [""; 0]);
    let policy = r#"{"default":[{"type":"insecureAcceptAnything"}]}"#;
    fixture.put("policy.json", policy);
    let copy =
        "skopeo --policy policy.json copy -q oci:layout:tag docker-archive:saved.tar:name:tag";
    run(&fixture, copy);
    fixture.line("build saved.img --from saved.tar -q").good();
    fixture.line("diff saved.img new.img").good();
}

/// No archive holds a socket, but what had its name before is gone.
#[test]
fn a_socket_takes_the_old_entry_away() {
    let fixture = Fixture::empty();
    for (tree, names) in [("old", ["secret/key", "file"]), ("new", ["other", "more"])] {
        names.iter().for_each(|name| fixture.put(&format!("{tree}/{name}"), *name));
    }
    for name in ["new/secret", "new/file"] {
        drop(std::os::unix::net::UnixListener::bind(fixture.path(name)).unwrap());
    }
    for image in ["old", "new"] {
        fixture.line(&format!("build {image}.img --from {image} -q")).good();
    }
    fixture.line("extract new.img --since old.img --to layer.tar -q");
    let names = run(&fixture, "tar -tf layer.tar");
    for name in ["./.wh.secret", "./.wh.file", "./other"] {
        assert!(names.lines().any(|line| line == name), "{name}: {names}");
    }
}

#[test]
fn the_same_trees_give_the_same_layer() {
    let fixture = old_and_new();
    fixture.line("extract new.img --since old.img --to layer.tar -q").good();
    let layer = fs::read(fixture.path("layer.tar")).unwrap();
    for threads in [1, 8] {
        let line = format!("extract new.img --since old.img --to - -j {threads}");
        assert!(fixture.line(&line).bytes == layer);
    }
    fixture.line("extract old.img --since old.img --to nothing.tar -q").good();
    assert_eq!(fs::read(fixture.path("nothing.tar")).unwrap(), vec![0; 10_240]);
    fixture.line("extract new.img:/added --since old.img:/gone --to part.tar -q").good();
    let names = run(&fixture, "tar -tf part.tar");
    assert_eq!(names, "./\n./a/\n./a/b\n./of-1\n");
}

#[test]
fn what_is_no_layer_is_refused() {
    let fixture = Fixture::new();
    fixture.fill(&["old/f", "new/f", "new/.wh.f"]);
    for (line, code, message) in [
        ("extract disk.img --since disk.img --to out", 2, "a layer is an archive"),
        ("extract disk.img --since none.img --to a.tar", 1, "none.img: "),
        ("extract disk.img:/old/f --since disk.img:/old --to a.tar", 1, "not a directory"),
        ("extract disk.img:/old --since disk.img:/old/f --to a.tar", 1, "not a directory"),
        ("extract disk.img:/old --since disk.img:/none --to a.tar", 1, "no such file"),
    ] {
        let done = fixture.line(line);
        assert!(done.stderr.contains(message), "{line}: {}", done.stderr);
        done.bad(code);
        assert!(!fixture.path("a.tar").exists(), "{line}");
    }
    let message = fixture.line("extract disk.img:/new --since disk.img:/old --to a.tar -q").bad(1);
    assert!(message.contains("can't archive disk.img:/new/.wh.f: in a layer, a name"), "{message}");
    assert!(fixture.path("a.tar").exists());
}
