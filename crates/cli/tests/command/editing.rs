//! `edit`: what it keeps, and what it does when something fails.

use crate::support::{Done, Fixture, finish};
use std::path::PathBuf;

/// Edits with an editor that is a command of sh, which finds the file as `$1`.
fn edit_with(fixture: &Fixture, script: &str, path: &str) -> Done {
    fixture.put("editor", script);
    let temporary = fixture.path("tmp");
    std::fs::create_dir_all(&temporary).unwrap();
    let mut command = fixture.command(&["edit", &format!("disk.img:{path}")]);
    command.env_remove("VISUAL").env("EDITOR", "sh editor").env("TMPDIR", &temporary);
    finish(&mut command)
}

/// What an edit has left of its copy.
fn kept(fixture: &Fixture) -> Vec<PathBuf> {
    let folders = std::fs::read_dir(fixture.path("tmp")).unwrap();
    folders.map(|folder| folder.unwrap().path()).collect()
}

#[test]
fn all_but_the_content_stays() {
    let fixture = Fixture::with(&["--size", "32M", "-O", "project,quota"]);
    fixture.fill(&["d/a.conf"]);
    fixture.line("setfacl -m d:u:3:rwx disk.img:/d").good();
    fixture.line("chown 7:8 disk.img:/d/a.conf").good();
    fixture.line("chmod 4750 disk.img:/d/a.conf").good();
    fixture.line("setfacl -m u:9:rx disk.img:/d/a.conf").good();
    fixture.line("setfattr -n user.note --value kept disk.img:/d/a.conf").good();
    fixture.line("setfattr -n security.x --value kept disk.img:/d/a.conf").good();
    fixture.line("chattr +dA disk.img:/d/a.conf").good();
    fixture.line("ln -s d/a.conf disk.img:/link").good();
    let about = || {
        let stat = fixture.line("stat --json disk.img:/d/a.conf").json();
        let known = ["permissions", "user", "group", "flags", "project", "created", "links"];
        let stat = known.map(|key| stat[key].to_string()).join(" ");
        let acls = fixture.line("getfacl disk.img:/d/a.conf").good();
        stat + &acls + &fixture.line("getfattr disk.img:/d/a.conf").good()
    };
    let before = about();
    // The copy has the ending of the name, and nobody else may read it.
    let script = "case $1 in */a.conf) ;; *) exit 3;; esac\n\
        test $(stat -c %a $(dirname $1)) = 700 || exit 4\necho more >> $1";
    edit_with(&fixture, script, "/link").good();
    assert_eq!(fixture.line("cat disk.img:/d/a.conf").good(), "d/a.confmore\n");
    assert_eq!(about(), before);
    assert!(before.contains("user:9:r-x") && before.contains("no_access_time"), "{before}");
    // A file of several names stays one.
    fixture.line("ln disk.img:/d/a.conf disk.img:/other").good();
    let inode = fixture.line("stat --json disk.img:/other").json()["inode"].clone();
    edit_with(&fixture, "echo short > $1", "/other").good();
    assert_eq!(fixture.line("cat disk.img:/d/a.conf").good(), "short\n");
    assert_eq!(fixture.line("stat --json disk.img:/d/a.conf").json()["inode"], inode);
    // A new file.
    edit_with(&fixture, "echo new > $1", "/d/new").good();
    assert_eq!(fixture.line("cat disk.img:/d/new").good(), "new\n");
    assert!(kept(&fixture).is_empty());
    fixture.expect_sound();
}

#[test]
fn nothing_changes_without_a_new_content() {
    let fixture = Fixture::new();
    fixture.fill(&["a", "d/x"]);
    fixture.line("chattr +i disk.img:/d/x").good();
    let before = std::fs::read(fixture.path("disk.img")).unwrap();
    let failed = edit_with(&fixture, "exit 5", "/a").bad(1);
    assert!(failed.contains("'sh editor' failed") && failed.contains("nothing was changed"));
    let same = edit_with(&fixture, "cp $1 $1.new; mv $1.new $1", "/a");
    assert_eq!((same.code, &*same.stderr), (Some(0), "drystone: disk.img:/a: not changed\n"));
    edit_with(&fixture, ":", "/new");
    assert!(edit_with(&fixture, "echo x > $1", "/d").bad(1).contains("/d: isn't a file"));
    assert!(edit_with(&fixture, "echo x > $1", "/d/x").bad(1).contains("flags: immutable"));
    assert!(edit_with(&fixture, "echo x > $1", "/none/a").bad(1).contains("no such file"));
    edit_with(&fixture, "rm $1", "/a").bad(1);
    assert!(std::fs::read(fixture.path("disk.img")).unwrap() == before);
    assert!(kept(&fixture).is_empty());
    assert!(fixture.line("edit --read-only disk.img:/a").bad(2).contains("changes the image"));
}

/// An editor may fail after an hour of work.
#[test]
fn the_edited_text_is_kept_if_the_editor_fails() {
    let fixture = Fixture::new();
    fixture.fill(&["a"]);
    for (number, editor) in (1..).zip(["echo mine > $1; exit 5", "mv $1 $1.swp; exit 1"]) {
        let failed = edit_with(&fixture, editor, "/a").bad(1);
        assert!(failed.contains("nothing was changed") && failed.contains("kept in"), "{failed}");
        assert_eq!(kept(&fixture).len(), number);
        assert_eq!(fixture.line("cat disk.img:/a").good(), "a");
    }
}

#[test]
fn the_edited_text_is_kept_if_it_can_not_be_stored() {
    let fixture = Fixture::new();
    fixture.fill(&["a", "b", "c"]);
    fixture.line("ln disk.img:/b disk.img:/b2").good();
    // Somebody else changes it meanwhile.
    let drystone = assert_cmd::cargo::cargo_bin("drystone");
    let other = format!("{} chmod 600 disk.img:/a; echo mine > $1", drystone.display());
    let message = edit_with(&fixture, &other, "/a").bad(1);
    assert!(message.contains("/a: was changed by others meanwhile"), "{message}");
    let [folder] = &kept(&fixture)[..] else { panic!("{message}") };
    let copy = folder.join("a");
    assert!(
        message.contains(&format!("the edited text is kept in {}", copy.display())),
        "{message}"
    );
    assert_eq!(std::fs::read(&copy).unwrap(), b"mine\n");
    // Or it has no room, whether it gets a file of its own or not.
    for (name, number) in [("a", 2), ("b", 3)] {
        let large = "head -c 60000000 /dev/zero > $1";
        let message = edit_with(&fixture, large, &format!("/{name}")).bad(1);
        assert!(message.contains("kept in"), "{message}");
        assert_eq!(kept(&fixture).len(), number);
        assert_eq!(fixture.line(&format!("cat disk.img:/{name}")).good(), name);
    }
    assert_eq!(fixture.paths(), ["/a", "/b", "/b2", "/c"]);
    fixture.expect_sound();
}
