//! Wrong calls, help, completions.

use crate::support::{Done, call};

fn drystone(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Done { code, stdout, stderr, .. } = call(arguments);
    (code, stdout, stderr)
}

#[test]
fn wrong_calls_end_with_2_and_say_what_is_wrong() {
    for (arguments, message) in [
        (&[][..], "Usage: drystone"),
        (&["frobnicate"], "unrecognized subcommand"),
        (&["ls"], "IMAGE[:PATH]"),
        (&["ls", ":/x"], "name of the image is missing"),
        (&["cp", "a:/b"], "SRC"),
        (&["cp", "a", "b"], "neither source nor target is in an image"),
        (&["mv", "a:/b", "c:/d"], "use cp and rm"),
        (&["ln", "a:/b", "c:/d"], "in one image"),
        (&["ln", "a:/b"], "IMAGE:PATH"),
        (&["chmod", "999", "a:/b"], "is no mode"),
        (&["chown", "root", "a:/b"], "is no number"),
        (&["truncate", "-s", "1X", "a:/b"], "is no size"),
        (&["find", "a", "--type", "z"], "is no type"),
        (&["find", "a", "--print0", "--json"], "cannot be used with"),
        (&["setfattr", "a:/b"], "--name"),
        (&["mkfs", "there/is/no/such.img"], "--size is needed"),
        (&["mkfs", "x.img", "--size", "1G", "-m", "80"], "percentage from 0 to 50"),
        (&["ls", "a", "-q", "-v"], "cannot be used with"),
    ] {
        let (code, _, stderr) = drystone(arguments);
        assert_eq!(code, Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(message), "{arguments:?}: {stderr}");
    }
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

#[test]
fn help_has_examples_and_exit_codes() {
    let (code, stdout, _) = drystone(&["--help"]);
    assert_eq!(code, Some(0));
    assert!(stdout.contains("Exit codes:") && stdout.contains("drystone mkfs disk.img --size 4G"));
    let (code, stdout, _) = drystone(&["ls", "--help"]);
    assert_eq!(code, Some(0));
    assert!(stdout.contains("drystone ls -l disk.img:/etc"));
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
