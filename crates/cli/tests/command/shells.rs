//! `shell`: scripts from standard input, and lines typed on a terminal.

use crate::support::{Done, Fixture, finish};
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

/// Runs lines that come from standard input.
fn script(fixture: &Fixture, options: &[&str], lines: &str) -> Done {
    fixture.put("script", lines);
    let mut command = fixture.command(&[&["shell", "disk.img"], options].concat());
    finish(command.stdin(File::open(fixture.path("script")).unwrap()))
}

#[test]
fn a_script_works_on_one_image() {
    let fixture = Fixture::new();
    fixture.fill(&["etc/hosts", "etc/motd", "var/log/a.log", "var/log/b.log", "var/log/c"]);
    fixture.put("host file", "from the host");
    let printed = script(
        &fixture,
        &[],
        "# A comment.\n\npwd\ncd /var/log\nls\ncat *.log\nmkdir -p 'new dir/below'\n\
         put 'host file' new\\ dir\ncd \"new dir\"\ncat 'host file'",
    );
    assert_eq!(printed.good(), "/\na.log\nb.log\nc\nvar/log/a.logvar/log/b.logfrom the host");
    let printed = script(
        &fixture,
        &[],
        "cd /etc\ncp hosts copy\nmv motd ../motd\nln copy /linked\nln -s ../motd link\ncat link\n\
         chmod 600 copy\nchown 5:6 copy\nsetfacl -m u:7:r copy\nsync\nmkdir /d /e\nrmdir /d /e\n",
    );
    assert_eq!(printed.good(), "etc/motd");
    std::fs::create_dir(fixture.path("out")).unwrap();
    let printed = script(
        &fixture,
        &[],
        "get /etc/copy /var/log out\nrm -r /var\ncd etc\npwd\ncd\npwd\nstat --json etc/copy\n\
         find --name 'c*'\nexit\nrm /linked\n",
    );
    let lines = printed.without_losses().good();
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!((lines[0], lines[1], lines[3]), ("/etc", "/", "/etc/copy"));
    let stat: serde_json::Value = serde_json::from_str(lines[2]).unwrap();
    assert_eq!((&stat["user"], &stat["links"]), (&5.into(), &2.into()));
    assert_eq!(std::fs::read(fixture.path("out/log/a.log")).unwrap(), b"var/log/a.log");
    assert!(fixture.path("out/copy").exists());
    assert_eq!(fixture.line("cat disk.img:/linked").good(), "etc/hosts");
    assert_eq!(fixture.line("cat disk.img:/etc/link").good(), "etc/motd");
    fixture.expect_sound();
}

/// A name in the image isn't an option, and a command may read what follows it in the script.
#[test]
fn names_and_input_are_what_they_seem() {
    let fixture = Fixture::new();
    fixture.fill(&["m/full/precious", "m/-r", "n/a"]);
    let refused = script(&fixture, &[], "cd /m\nrmdir *\n").bad(1);
    assert!(refused.contains("-r: "), "{refused}");
    script(&fixture, &[], "cd /m\nrmdir full\n").bad(1);
    assert_eq!(fixture.line("cat disk.img:/m/full/precious").good(), "m/full/precious");
    script(&fixture, &[], "cd /m\nrm -r *\nmkdir -p e/f\nrmdir e/f e\n").good();
    assert_eq!(fixture.line("ls disk.img:/m").good(), "");
    script(&fixture, &[], "touch /x\ncp - /hello\nhow are you\n").good();
    assert_eq!(fixture.line("cat disk.img:/hello").good(), "how are you\n");
    fixture.expect_sound();
}

#[test]
fn the_first_failure_ends_a_script() {
    let fixture = Fixture::new();
    fixture.fill(&["a", "b"]);
    for (lines, code, message) in [
        ("rm none\nrm a\n", 1, "drystone: disk.img:/none: no such file"),
        ("cd a\nrm a\n", 1, "disk.img:/a: isn't a directory"),
        ("frobnicate\nrm a\n", 2, "'frobnicate' isn't a command"),
        ("ls --none\nrm a\n", 2, "--none"),
        ("cat a > b\nrm a\n", 2, "'>' has no meaning here"),
        ("cat 'a\nrm a\n", 2, "a quote isn't closed"),
        ("pwd x\nrm a\n", 2, "usage: pwd"),
        ("cat ''\nrm a\n", 2, "an empty path"),
        ("check\nrm a\n", 2, "isn't a command"),
        ("put none\nrm a\n", 1, "none: "),
    ] {
        let done = script(&fixture, &[], lines);
        assert_eq!(done.code, Some(code), "{lines}{}", done.stderr);
        assert!(done.stderr.contains(message), "{lines}{}", done.stderr);
        assert!(!done.stderr.contains("drystone --help"), "{}", done.stderr);
    }
    assert_eq!(fixture.paths(), ["/a", "/b"]);
    let done = fixture.run(&["shell", "disk.img:/a"]).bad(1);
    assert!(done.contains("isn't a directory"), "{done}");
    let commands =
        ["shell", "disk.img", "-c", "mkdir d", "-c", "cd d", "-c", "put script", "-c", "ls"];
    assert_eq!(fixture.run(&commands).good(), "script\n");
    let done = fixture.run(&["shell", "--read-only", "disk.img", "-c", "ls", "-c", "rm a"]);
    assert_eq!(done.code, Some(2), "{}", done.stderr);
    assert!(done.stdout.contains("lost+found"));
    fixture.expect_sound();
}

/// Looking changes nothing and lets others look; a change needs the image alone.
#[test]
fn an_image_is_opened_for_changes_when_they_are_made() {
    let fixture = Fixture::new();
    fixture.fill(&["a"]);
    let before = std::fs::read(fixture.path("disk.img")).unwrap();
    script(&fixture, &[], "ls -l\ncat a\ndu\ndf\nfind\ntree\nlsattr\ngetfacl a\n").good();
    assert!(std::fs::read(fixture.path("disk.img")).unwrap() == before);
    let reader = File::open(fixture.path("disk.img")).unwrap();
    reader.lock_shared().unwrap();
    assert_eq!(script(&fixture, &[], "cat a\n").good(), "a");
    assert!(script(&fixture, &[], "rm a\n").bad(1).contains("in use by another process"));
    // Children of other tests may have inherited it.
    reader.unlock().unwrap();
    script(&fixture, &[], "cat a\nrm a\n").good();
    assert!(fixture.paths().is_empty());
    fixture.expect_sound();
}

#[test]
fn help_lists_what_there_is() {
    let fixture = Fixture::new();
    let help = script(&fixture, &[], "help\n").good();
    for name in ["cd ", "get ", "ls ", "setfacl ", "rmdir ", "sync "] {
        assert!(help.lines().any(|line| line.starts_with(name)), "{name}: {help}");
    }
    let help = script(&fixture, &[], "help ls\nls --help\n").good();
    assert!(help.contains("Usage: ls [OPTIONS] <PATH>...") && !help.contains("IMAGE"), "{help}");
}

/// Types lines on a terminal of its own, which script(1) makes, each when it is asked for.
fn typed(fixture: &Fixture, lines: &[&str]) -> String {
    let drystone = assert_cmd::cargo::cargo_bin("drystone");
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &format!("{} shell disk.img", drystone.display()), "/dev/null"]);
    terminal.env("TERM", "xterm").current_dir(fixture.path(""));
    let mut child = terminal.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut keys, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (mut shown, mut buffer) = (Vec::new(), [0; 4096]);
    for line in lines {
        let seen = shown.len();
        // The editor of lines turns pasting on before it asks, and throws away what was typed before.
        let is_asked = |shown: &[u8]| {
            let text = String::from_utf8_lossy(&shown[seen..]);
            text.split_once("\u{1b}[?2004h").is_some_and(|(_, after)| after.contains("> "))
        };
        while !is_asked(&shown) {
            let length = screen.read(&mut buffer).unwrap();
            assert!(length > 0, "{}", String::from_utf8_lossy(&shown));
            shown.extend(&buffer[..length]);
        }
        keys.write_all(line.as_bytes()).unwrap();
    }
    screen.read_to_end(&mut shown).unwrap();
    assert!(child.wait().unwrap().success());
    String::from_utf8_lossy(&shown).into_owned()
}

#[test]
fn a_terminal_completes_paths_and_repeats_lines() {
    let fixture = Fixture::new();
    fixture.fill(&["etc/hosts", "etc/motd", "a b/c d"]);
    fixture.put("from here", "x");
    // Directories, names with blanks, commands, and names of this machine.
    let lines = [
        "cat /et\tho\t\r",
        "cat a\tc\t\r",
        "mkd\t/made\r",
        "pu\tfro\t/made\r",
        "cd ma\t\r",
        "exit\r",
    ];
    let shown = typed(&fixture, &lines);
    assert!(shown.contains("disk.img:/> ") && shown.contains("disk.img:/made> "), "{shown}");
    assert!(shown.contains("etc/hosts\r") || shown.contains("etc/hosts\u{1b}"), "{shown}");
    assert!(shown.contains("a b/c d"), "{shown}");
    assert_eq!(fixture.run(&["cat", "disk.img:/made/from here"]).good(), "x");
    // Several are listed. A failure doesn't end it; the cursor key brings the line before back; Control-D ends it.
    let shown = typed(
        &fixture,
        &[
            "ls /etc/\t\t\r",
            "rm /none\r",
            "mkdir /d1\r",
            "\u{1b}[A\u{7f}2\r",
            "cat 'open\r",
            "\u{4}",
        ],
    );
    assert!(shown.contains("hosts") && shown.contains("motd"), "{shown}");
    assert!(shown.contains("/none: no such file"), "{shown}");
    assert!(fixture.paths().contains(&"/d2".to_owned()), "{shown}");
    fixture.expect_sound();
}
