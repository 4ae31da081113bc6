//! The names that the program may be called by.
//!
//! mount(8) calls `mount.fuse.drystone`, which is a link to this program, for file systems of that
//! type, and umount(8) `umount.fuse.drystone`. They pass options of their own.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The names that `mount` and `umount` call.
const MOUNT: [&str; 2] = ["mount.fuse.drystone", "mount.drystone"];
const UMOUNT: [&str; 2] = ["umount.fuse.drystone", "umount.drystone"];

/// The arguments, translated to those of the program's own name.
pub fn words() -> Vec<OsString> {
    translate(std::env::args_os().collect())
}

fn translate(words: Vec<OsString>) -> Vec<OsString> {
    let called = words.first().and_then(|word| Path::new(word).file_name()).unwrap_or_default();
    if MOUNT.iter().any(|name| called == *name) {
        from_mount(&words[1..], rustix::process::geteuid().is_root())
    } else if UMOUNT.iter().any(|name| called == *name) {
        from_umount(&words[1..])
    } else {
        as_find_options(words)
    }
}

/// Options of find(1), which it takes after one dash.
const OF_FIND: [(&str, &str); 7] = [
    ("-name", "--name"),
    ("-type", "--type"),
    ("-size", "--size"),
    ("-user", "--user"),
    ("-links", "--links"),
    ("-maxdepth", "--max-depth"),
    ("-print0", "--print0"),
];

/// After `find`, the options as find(1) has them stand for ours. Letters would be read otherwise: `-n ame`.
fn as_find_options(mut words: Vec<OsString>) -> Vec<OsString> {
    if words.get(1).is_some_and(|command| command == "find") {
        for word in &mut words {
            if let Some((_, ours)) = OF_FIND.iter().find(|(theirs, _)| word == theirs) {
                *word = (*ours).into();
            }
        }
    }
    words
}

/// Options and other words of a call by `mount` or `umount`. Options with a value are `-o`, `-t`
/// (our own type) and `-N` (a namespace); others are letters.
struct Call<'w> {
    plain: Vec<&'w OsStr>,
    options: Vec<&'w OsStr>,
    letters: Vec<u8>,
}

impl<'w> Call<'w> {
    fn read(words: &'w [OsString]) -> Call<'w> {
        let mut call = Call { plain: Vec::new(), options: Vec::new(), letters: Vec::new() };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_bytes() {
                b"-o" => call.options.extend(words.next().map(OsString::as_os_str)),
                b"-t" | b"-N" => {
                    words.next();
                }
                [b'-', letters @ ..] if !letters.is_empty() => call.letters.extend(letters),
                _ => call.plain.push(word),
            }
        }
        call
    }
}

/// `SOURCE DIR [-sfnv] [-o OPTIONS] [-t TYPE]`. As for other file systems, root's mounts allow
/// set-user-id programs and devices.
fn from_mount(words: &[OsString], is_root: bool) -> Vec<OsString> {
    let call = Call::read(words);
    let mut translated: Vec<OsString> = vec!["drystone".into(), "mount".into()];
    let is_change = |options: &&OsStr| {
        options.as_bytes().split(|byte| *byte == b',').any(|word| word == b"remount")
    };
    if is_root && !call.options.iter().any(is_change) {
        translated.extend(["-o".into(), "suid,dev".into()]);
    }
    for options in call.options {
        translated.extend(["-o".into(), options.to_owned()]);
    }
    translated.push("--".into());
    translated.extend(call.plain.into_iter().map(OsStr::to_owned));
    translated
}

/// `DIR [-flnrv] [-t TYPE]`.
fn from_umount(words: &[OsString]) -> Vec<OsString> {
    let call = Call::read(words);
    let mut translated: Vec<OsString> = vec!["drystone".into(), "umount".into()];
    if call.letters.contains(&b'l') {
        translated.push("--lazy".into());
    }
    translated.push("--".into());
    translated.extend(call.plain.into_iter().map(OsStr::to_owned));
    translated
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn mount_is_understood() {
        let line = words("disk.img /mnt -sn -o ro,noload -t fuse.drystone");
        assert_eq!(from_mount(&line, false), words("drystone mount -o ro,noload -- disk.img /mnt"));
        assert_eq!(
            from_mount(&line, true),
            words("drystone mount -o suid,dev -o ro,noload -- disk.img /mnt")
        );
        let line = words("disk.img /mnt -o rw,nosuid,remount");
        let expected = words("drystone mount -o rw,nosuid,remount -- disk.img /mnt");
        assert_eq!(from_mount(&line, true), expected);
    }

    #[test]
    fn umount_is_understood() {
        assert_eq!(from_umount(&words("/mnt -l")), words("drystone umount --lazy -- /mnt"));
        assert_eq!(
            from_umount(&words("/mnt -v -t fuse.drystone")),
            words("drystone umount -- /mnt")
        );
    }

    #[test]
    fn find_takes_the_options_of_find() {
        let line = words("drystone find disk.img -name x -type f -maxdepth 2 -l 1");
        let ours = words("drystone find disk.img --name x --type f --max-depth 2 -l 1");
        assert_eq!(translate(line), ours);
        let line = words("drystone ls -name x");
        assert_eq!(translate(line.clone()), line);
    }

    #[test]
    fn other_names_change_nothing() {
        let line = words("/usr/bin/drystone ls -l disk.img");
        assert_eq!(translate(line.clone()), line);
    }
}
