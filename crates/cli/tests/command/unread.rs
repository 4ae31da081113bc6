//! A command whose output nobody reads, or that can't write it.

use crate::support::Fixture;
use std::ffi::OsStr;
use std::fs::File;
use std::process::Stdio;

/// A pipe that nobody will read.
fn closed_pipe() -> Stdio {
    std::io::pipe().unwrap().1.into()
}

/// What always is full: writing fails in another way.
fn full() -> Stdio {
    File::options().write(true).open("/dev/full").unwrap().into()
}

/// Where standard output and standard error go.
pub const SINKS: [[fn() -> Stdio; 2]; 3] =
    [[closed_pipe, closed_pipe], [closed_pipe, Stdio::piped], [full, full]];

/// Whatever happens to its output, a command doesn't panic, and it closes the image.
#[test]
fn nobody_reads_what_is_printed() {
    let fixture = Fixture::new();
    fixture.fill(&["a", "d/b"]);
    fixture.put("more/c", "c");
    let lines = [
        "cp --json more/. disk.img:/",
        // Problems are told, as many as there are.
        "cp missing1 missing2 more disk.img:/",
        "cp -v more disk.img:/",
        "-vvv mkdir disk.img:/e",
        "ls -R disk.img:/ disk.img:/none",
        "find disk.img",
        "tree disk.img:/",
        "stat disk.img:/a disk.img:/none",
        "cat disk.img:/a",
        "info disk.img none.img",
        "check disk.img",
        "extract disk.img --to out",
        "extract disk.img --to -",
        "extract --json disk.img --to out2",
        "diff disk.img:/ more",
        "mkfs new.img --size 8M",
        "mkfs --json newer.img --size 8M",
        "build built.img --from more",
        "build - --from more",
        "completions bash",
        "bench --list",
        "mounts",
        "top --count 1 --interval 0.1",
        "umount more",
        "--help",
        "rm disk.img:/none disk.img:/a",
        "no-such-command",
    ];
    run_unread(&fixture, &lines, &SINKS);
}

/// Nor does one that changes an image, or looks into it.
#[test]
fn nobody_reads_what_is_changed() {
    let fixture = Fixture::new();
    fixture.fill(&["a", "d/b"]);
    fixture.line("mkfs -t nilfs2 -B 16 --size 16M -q nilfs.img").good();
    let lines = [
        "mv disk.img:/a disk.img:/none/a",
        "mv disk.img:/d disk.img:/moved",
        "ln disk.img:/a disk.img:/none/a",
        "ln -s a disk.img:/none/a",
        "chmod 600 disk.img:/a disk.img:/none",
        "chown -R 5:5 disk.img:/",
        "truncate -s 100 disk.img:/a",
        "setfattr -n user.a -v b disk.img:/a",
        "getfattr disk.img:/a disk.img:/none",
        "setfacl -m u:5:r disk.img:/a disk.img:/none",
        "getfacl -R disk.img:/ disk.img:/none",
        "quota disk.img",
        "quota disk.img --user 5 --space-hard 1G",
        "inspect disk.img superblock",
        "inspect --json disk.img inode 2",
        "inspect disk.img block 100000000",
        "which-inode disk.img 0 1 100",
        "which-name disk.img 2 3 100",
        "metadata disk.img metadata.img",
        "set disk.img superblock mnt_count=1 --i-know",
        "set --json disk.img inode 2 atime=1 mtime=1 --i-know",
        "set disk.img inode 2 atime=x --i-know",
        "undelete disk.img",
        "label disk.img",
        "label disk.img x",
        "uuid disk.img",
        "uuid disk.img random",
        "tune disk.img --label y",
        "tune disk.img",
        "resize disk.img 40M",
        "resize --json disk.img 36M",
        "trim disk.img",
        "zero-free --json disk.img",
        "undo disk.img",
        "check -y disk.img",
        "check -n --json disk.img",
        "compact disk.img",
        "defragment disk.img",
        "checkpoints nilfs.img",
        "checkpoints --make nilfs.img",
        "history nilfs.img:/",
        "history nilfs.img:/none",
    ];
    run_unread(&fixture, &lines, &[SINKS[0], SINKS[2]]);
}

/// Runs each command with each pair of sinks; the image is closed after each.
fn run_unread(fixture: &Fixture, lines: &[&str], sinks: &[[fn() -> Stdio; 2]]) {
    for line in lines {
        for [out, err] in sinks {
            let mut command = fixture.command(&line.split(' ').collect::<Vec<_>>());
            let output = command.stdout(out()).stderr(err()).output().unwrap();
            let message = String::from_utf8_lossy(&output.stderr);
            // A panic ends with 101.
            let code = output.status.code();
            assert!(matches!(code, Some(0..=8)), "{line}: {code:?}, {message}");
            assert!(!message.contains("panicked"), "{line}: {message}");
            for made in ["new.img", "newer.img", "built.img", "metadata.img"] {
                let _ = std::fs::remove_file(fixture.path(made));
            }
        }
        let information = fixture.line("info --json disk.img").json();
        assert_eq!(information["needs_recovery"], false, "{line}");
    }
    fixture.expect_sound();
}

/// The exit code reports errors or differences even if the output is lost.
#[test]
fn codes_tell_what_was_found_to_nobody_else() {
    let fixture = Fixture::new();
    fixture.fill(&["a", "d/b"]);
    fixture.put("more/c", "c");
    std::fs::copy(fixture.path("disk.img"), fixture.path("bad.img")).unwrap();
    let image = fixture.path("bad.img");
    let request = ["-w", "-R", "set_inode_field /a links_count 7"].map(OsStr::new);
    let done = crate::support::tool("debugfs", &[&request[..], &[image.as_os_str()]].concat());
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    for (line, closed_code, full_code) in [
        ("check bad.img", 4, 4),
        ("check --json bad.img", 4, 4),
        ("check disk.img", 8, 8),
        ("check --json disk.img", 8, 8),
        ("diff disk.img more", 1, 2),
        ("diff disk.img disk.img", 0, 0),
    ] {
        for (out, code) in [(closed_pipe(), closed_code), (full(), full_code)] {
            let mut command = fixture.command(&line.split(' ').collect::<Vec<_>>());
            let output = command.stdout(out).output().unwrap();
            let message = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(code), "{line}: {message}");
        }
    }
}
