//! Wrong calls, help, completions.

use crate::support::{Done, Fixture, call, command, finish};

fn drystone(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Done { code, stdout, stderr, .. } = call(arguments);
    (code, stdout, stderr)
}

#[test]
fn wrong_calls_end_with_2_and_say_what_is_wrong() {
    // Where nothing is in the way of the names.
    let folder = tempfile::tempdir().unwrap();
    for (arguments, message) in [
        (&[][..], "Usage: drystone"),
        (&["frobnicate"], "unrecognized subcommand"),
        (&["ls"], "IMAGE[:PATH]"),
        (&["ls", ":/x"], "name of the image is missing"),
        (&["cp", "a:/b"], "SRC"),
        (&["cp", "a", "b"], "neither source nor target is in an image"),
        (&["cp", "--owner", "0", "a:/b", "c:/d"], "two numbers, as in 0:0"),
        (&["cp", "--map-uid", "0", "a:/b", "c:/d"], "FROM:TO or FROM:TO:COUNT"),
        (&["cp", "--owner", "0:0", "-", "c:/d"], "'-' has no owner to be replaced"),
        (&["import", "--owner", "0:0", "--no-owners", "a", "b"], "cannot be used with"),
        (&["mv", "a:/b", "c:/d"], "use cp and rm"),
        (&["ln", "a:/b", "c:/d"], "in one image"),
        (&["ln", "a:/b"], "IMAGE:PATH"),
        (&["chmod", "999", "a:/b"], "isn't a mode"),
        (&["chown", ":", "a:/b"], "neither user nor group"),
        (&["chown", "0:4294967296", "a:/b"], "4294967296 is too large"),
        (&["truncate", "-s", "1X", "a:/b"], "isn't a size"),
        (&["chattr", "+e", "a:/b"], "'e' isn't a flag to change"),
        (&["chattr", "i", "a:/b"], "doesn't begin with +, - or ="),
        (&["mknod", "a:/b", "q"], "invalid value 'q'"),
        (&["setfacl", "a:/b"], "name at least one change"),
        (&["setfacl", "-m", "u:1:rq", "a:/b"], "'u:1:rq' has other permissions"),
        (&["setfacl", "-x", "u:1:r", "a:/b"], "no permissions here"),
        (&["setfacl", "--restore", "f", "-b", "a:/b"], "cannot be used with"),
        (&["setfacl", "--restore", "f", "a:/b", "c:/d"], "takes one"),
        (&["touch", "-d", "yesterday", "a:/b"], "'yesterday' is neither a date nor @SECONDS"),
        (&["find", "a", "--type", "z"], "isn't a type"),
        (&["find", "a", "--print0", "--json"], "cannot be used with"),
        (&["setfattr", "a:/b"], "--name"),
        (&["mkfs", "there/is/no/such.img"], "--size is needed"),
        (&["mkfs", "x.img", "--size", "1G", "-m", "80"], "percentage from 0 to 50"),
        (&["ls", "a", "-q", "-v"], "cannot be used with"),
        (&["mkfs", "x.img", "--size", "0"], "too small"),
        (&["mkfs", "x.img", "--size", "8M", "-b", "3000"], "must be 1024, 2048"),
        (&["mkfs", "x.img", "--size", "8M", "-L", "12345678901234567"], "at most 16 bytes"),
        (
            &["mkfs", "x.img", "--size", "8M", "--timestamp", "15032385536"],
            "hold at most 15032385535",
        ),
        (
            &["mkfs", "x.img", "--size", "8M", "-I", "128", "--timestamp", "2147483648"],
            "hold at most",
        ),
        (&["mkfs", "x.img", "--size", "8M", "-O", "nonsense"], "there are has_journal, "),
        (&["mkfs", "x.img", "--size", "8M", "--type", "nilfs2"], "don't hold a segment"),
        (&["mkfs", "x.img", "--size", "256M", "--type", "nilfs2", "-B", "5"], "power of two"),
        (&["tune", "x.img"], "name at least one setting\nTry 'drystone tune --help'."),
        (&["tune", "x.img", "-m", "60"], "percentage from 0 to 50"),
        (&["label", "x.img:/etc", "new"], "this is about the whole image: write 'x.img'"),
        (&["check", "x.img:/etc"], "this is about the whole image: write 'x.img'"),
        (&["chmod", "644", "x.img"], "name the path: 'x.img:/' is the root directory"),
        (&["rm", "-r", "x.img"], "name the path: 'x.img:/' is the root directory"),
        (&["quota", "x.img", "--user", "root"], "it isn't a number"),
        (&["build", "x.img", "rootfs"], "sources follow --from"),
        (&["mkfs", "x.img", "64M"], "the size follows --size"),
        (
            &["mkfs", "x.img", "--size", "1M", "-O", "has_journal"],
            "a journal needs an image of 2048",
        ),
        (&["mkfs", "x.img", "--size", "1M", "-J", "1M"], "a journal needs an image of 2048"),
        (&["tune", "x.img", "-L", "12345678901234567"], "at most 16 bytes"),
        (&["tune", "x.img", "-i", "1y"], "a number of days, or a number with s, h, d, w or m"),
        (&["tune", "x.img", "-c", "-2"], "-1..=32767"),
        (&["tune", "x.img", "-T", "1099511627776"], "is not in"),
        (&["label", "x.img", "12345678901234567"], "at most 16 bytes"),
        (&["build", "x.img", "--from", "/dev", "-m", "60"], "percentage from 0 to 50"),
        (&["setfattr", "-n", "user.a", "-v", "a:/b"], "'--value VALUE'"),
        (&["cp", "a", "b.img"], "'IMAGE:/'"),
    ] {
        let done = finish(command().current_dir(folder.path()).args(arguments));
        let Done { code, stderr, .. } = done;
        assert_eq!(code, Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(message), "{arguments:?}: {stderr}");
        assert!(stderr.starts_with("drystone: ") || arguments.is_empty(), "{stderr}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "something was made");
}

/// No name begins so.
#[test]
fn an_unknown_option_is_not_taken_for_a_name() {
    let (code, _, stderr) = drystone(&["rm", "-z", "a:/b"]);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("unexpected argument '-z'") && !stderr.contains("'-- -z'"), "{stderr}");
    let (_, _, stderr) = drystone(&["rm", "--recursiv", "a:/b"]);
    assert!(stderr.contains("--recursive"), "{stderr}");
}

#[test]
fn an_image_that_is_not_there_is_named() {
    for arguments in [
        &["ls", "no/such.img:/x"][..],
        &["cat", "no/such.img:/x"],
        &["rm", "no/such.img:/x"],
        &["cp", "no/such.img:/x", "."],
        &["info", "no/such.img"],
    ] {
        let (code, stdout, stderr) = drystone(arguments);
        assert_eq!(code, Some(1), "{arguments:?}: {stderr}");
        assert!(stderr.starts_with("drystone: no/such.img: "), "{arguments:?}: {stderr}");
        assert_eq!(stdout, "");
    }
    assert_eq!(drystone(&["check", "no/such.img"]).0, Some(8));
}

/// What isn't text stays away from a terminal.
#[test]
fn a_terminal_gets_no_bytes_that_are_no_text() {
    let fixture = Fixture::new();
    fixture.run(&["label", "disk.img", "a\u{1b}[31mb"]).good();
    fixture.put("source/file", "content");
    let drystone = assert_cmd::cargo::cargo_bin("drystone");
    let on_terminal = |line: &str| {
        let mut script = std::process::Command::new("script");
        script.args(["-qec", &format!("{} {line}", drystone.display()), "/dev/null"]);
        finish(script.current_dir(fixture.path("")).stdin(std::process::Stdio::null()))
    };
    assert_eq!(on_terminal("label disk.img").stdout, "a\\u{1b}[31mb\r\n");
    assert_eq!(fixture.line("label disk.img").good(), "a\u{1b}[31mb\n");
    for line in ["build - --from source", "extract disk.img --to -"] {
        let refused = on_terminal(line);
        assert_eq!(refused.code, Some(2), "{line}: {}", refused.stdout);
        assert!(refused.stdout.contains("standard output is a terminal: pipe the"), "{line}");
    }
}

/// A full disk behind standard output isn't taken for a full image.
#[test]
fn a_full_standard_output_is_named() {
    let fixture = Fixture::new();
    for line in ["info disk.img", "ls disk.img", "df disk.img", "mkfs new.img --size 8M"] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = fixture.command(&line.split(' ').collect::<Vec<_>>());
        let told = finish_to(&mut command, full);
        assert_eq!(told, "drystone: standard output: No space left on device\n", "{line}");
    }
}

fn finish_to(command: &mut std::process::Command, output: std::fs::File) -> String {
    let done = command.stdout(output).output().unwrap();
    assert_eq!(done.status.code(), Some(1));
    String::from_utf8(done.stderr).unwrap()
}

#[test]
fn help_has_examples_and_exit_codes() {
    let (code, stdout, _) = drystone(&["--help"]);
    assert_eq!(code, Some(0));
    assert!(stdout.contains("Exit codes:") && stdout.contains("drystone mkfs disk.img --size 4G"));
    assert!(stdout.contains("NILFS2") && stdout.contains("IMAGE@NUMBER"));
    let (code, stdout, _) = drystone(&["ls", "--help"]);
    assert_eq!(code, Some(0));
    assert!(stdout.contains("drystone ls -l disk.img:/etc"));
    assert_eq!(drystone(&["help", "ls"]).1, stdout);
    assert_eq!(drystone(&["--version"]).0, Some(0));
}

#[test]
fn completions_are_made_for_every_shell() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let (code, stdout, _) = drystone(&["completions", shell]);
        assert_eq!(code, Some(0));
        assert!(stdout.contains("getfattr"), "{shell}");
    }
}

#[test]
fn every_workload_is_measured_on_the_engine_and_in_a_directory() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::create_dir(path("target")).unwrap();
    let (directory, json, report) = (path("target"), path("results.json"), path("report"));
    let arguments = "bench all --target engine --procs 2 --rounds 1 --ops 40 --files 5 --dirs 2 --roots 1 \
         --delete 1 --size 12K --no-verify --target";
    let mut arguments: Vec<&str> = arguments.split_whitespace().collect();
    arguments.extend([&directory, "--json", &json, "--report", &report]);
    let (code, stdout, stderr) = drystone(&arguments);
    assert_eq!(code, Some(0), "{stderr}");
    let results: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let rows = results["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 23);
    for pair in rows.chunks(2) {
        // The same work on both.
        assert_eq!(pair[0]["workload"], pair[1]["workload"]);
        assert_eq!(pair[0]["operations"], pair[1]["operations"], "{}", pair[0]["workload"]);
        assert_eq!(
            (&pair[0]["target"], &pair[0]["policy"]),
            (&"engine".into(), &"scalable".into())
        );
        assert_eq!(pair[1]["policy"], "-");
        assert!(stdout.contains(pair[0]["workload"].as_str().unwrap()));
    }
    let page = std::fs::read_to_string(folder.path().join("report/index.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("fallocate2"));
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0, "something was left behind");
}

#[test]
fn measuring_what_is_not_there_says_so() {
    for (arguments, code, message) in [
        (&["bench"][..], 2, "WORKLOAD"),
        (&["bench", "orphans"], 2, "there are: all, published, fxmark, orphan"),
        (&["ls", "--policy", "orphans=heap", "x.img"], 2, "file-locked"),
        (&["bench", "orphan", "--policy", "orphans=heap"], 2, "heap"),
        (&["bench", "orphan", "--target", "/no/such"], 1, "/no/such"),
        (&["bench", "orphan", "--procs", "0"], 2, "--procs"),
    ] {
        let (found, _, stderr) = drystone(arguments);
        assert_eq!(found, Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(message), "{arguments:?}: {stderr}");
    }
    let (code, stdout, _) = drystone(&["bench", "--list"]);
    assert_eq!((code, stdout.lines().count()), (Some(0), 23));
}
