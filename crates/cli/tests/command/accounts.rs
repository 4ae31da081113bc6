//! Names of users and groups: those of the image, not of this machine.

use crate::support::Fixture;
use std::os::unix::fs::symlink;

/// An image with names of its own, and the file `/f` of user 1000 and group 100.
fn named(passwd: &[u8], group: &[u8]) -> Fixture {
    let fixture = Fixture::new();
    fixture.put("etc/passwd", passwd);
    fixture.put("etc/group", group);
    fixture.put("f", "content");
    fixture.line("cp etc f disk.img:/ --owner 1000:100").good();
    fixture
}

/// What `ls` prints for a file, without its time.
fn owners(fixture: &Fixture, options: &str, path: &str) -> String {
    let line = fixture.line(&format!("ls {options} disk.img:{path}")).good();
    line.split(' ').filter(|word| !word.is_empty()).skip(2).take(2).collect::<Vec<_>>().join(":")
}

#[test]
fn names_are_those_of_the_image() {
    let fixture =
        named(b"root:x:0:0::/:/bin/sh\nimaginary:x:1000:7\n", b"guild:x:100:\nseven:x:7:\n");
    fixture.line("chown 0:5 disk.img:/etc").good();
    let listed = fixture.line("ls -l disk.img").good();
    // Names begin in a column, numbers end in one.
    for start in ["drwxr-xr-x 2 root          5 ", "-rw-r--r-- 1 imaginary guild "] {
        assert!(listed.lines().any(|line| line.starts_with(start)), "{listed}");
    }
    for options in ["-n", "-ln", "--numeric"] {
        assert_eq!(owners(&fixture, options, "/f"), "1000:100");
    }
    let stat = fixture.line("stat disk.img:/f").good();
    assert!(stat.contains("Uid: 1000/imaginary   Gid: 100/guild "), "{stat}");
    let stat = fixture.line("stat -n disk.img:/f").good();
    assert!(stat.contains("Uid: 1000   Gid: 100 "), "{stat}");
    for line in ["ls --json disk.img:/f", "stat --json disk.img:/f", "find --json disk.img:/f"] {
        let json = fixture.line(line).json();
        assert_eq!((&json["user_name"], &json["user"]), (&"imaginary".into(), &1000.into()));
        assert_eq!((&json["group_name"], &json["group"]), (&"guild".into(), &100.into()));
    }
    let json = fixture.line("ls -dn --json disk.img:/f").json();
    assert_eq!((&json["user"], json.get("user_name")), (&1000.into(), None));
    let json = fixture.line("ls -d --json disk.img:/etc").json();
    assert_eq!((&json["user_name"], json.get("group_name")), (&"root".into(), None));
    assert_eq!(fixture.line("find disk.img --user imaginary --type f -n f").good(), "/f\n");
    assert_eq!(fixture.line("find disk.img --user 1000 -n f").good(), "/f\n");
    let unknown = fixture.line("find disk.img --user nobody").bad(1);
    assert_eq!(unknown, "drystone: disk.img: /etc/passwd of the image has no user 'nobody'\n");
}

#[test]
fn owners_are_given_by_name() {
    let fixture = named(b"root:x:0:0\nimaginary:x:1000:7\n", b"guild:x:100:\nseven:x:7:\n");
    for (owner, found) in [
        ("root:seven", "0:7"),
        ("imaginary", "1000:7"),
        (":guild", "1000:100"),
        ("imaginary:", "1000:7"),
        ("5:guild", "5:100"),
    ] {
        fixture.line(&format!("chown {owner} disk.img:/f")).good();
        assert_eq!(owners(&fixture, "-n", "/f"), found, "{owner}");
    }
    fixture.line("chown -R imaginary:guild disk.img:/etc").good();
    assert_eq!(owners(&fixture, "-n", "/etc/passwd"), "1000:100");
    for (owner, message) in [
        ("nobody", "/etc/passwd of the image has no user 'nobody'"),
        ("root:root", "/etc/group of the image has no group 'root'"),
        ("5:", "/etc/passwd of the image has no group of user 5"),
    ] {
        let done = fixture.line(&format!("chown {owner} disk.img:/f")).bad(1);
        assert_eq!(done, format!("drystone: disk.img: {message}\n"));
    }
    assert_eq!(owners(&fixture, "-n", "/f"), "5:100");
    fixture.expect_sound();
}

/// Whatever an image calls its users, nothing reaches the terminal that isn't text, and there is an answer.
#[test]
fn hostile_names_are_harmless() {
    let large = [&b"x:x:5:5\n".repeat(1 << 20)[..], b"late:x:1000:100\n"].concat();
    for (passwd, shown) in [
        (&b"\x1b]0;evil\x07\xff\xfe:x:1000:1\n"[..], "\\u{1b}]0;evil\\u{7}\\xff\\xfe"),
        (b"0:x:1000:1\n", "1000"),
        (b":x:1000:1\n\0:x:1001", "1000"),
        (b"a\r\nno colons at all\nb:x:1000", "b"),
        (&large, "1000"),
        (&[b':'; 100_000], "1000"),
        (&[&[b'n'; 70_000][..], b":x:1000:1\n"].concat(), "1000"),
    ] {
        let fixture = named(passwd, b"");
        assert_eq!(owners(&fixture, "-l", "/f"), format!("{shown}:100"));
        let json = fixture.line("stat --json disk.img:/f").json();
        assert_eq!(json["user"], 1000);
    }
    let fixture = named(b"", b"");
    fixture.line("rm disk.img:/etc/passwd disk.img:/etc/group").good();
    // A link that leads in a circle, a pipe, and a link out of the image.
    fixture.line("ln -s passwd disk.img:/etc/passwd").good();
    fixture.line("mknod disk.img:/etc/group p").good();
    assert_eq!(owners(&fixture, "-l", "/f"), "1000:100");
    fixture.line("rm disk.img:/etc/passwd").good();
    symlink("../../../../etc/passwd", fixture.path("link")).unwrap();
    fixture.line("cp -T link disk.img:/etc/passwd").good();
    fixture.line("chown 0:0 disk.img:/f").good();
    assert_eq!(owners(&fixture, "-l", "/f"), "0:0");
}
