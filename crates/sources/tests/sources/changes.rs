//! Manifests and lists.

use crate::listing::{ALL, list};
use crate::made::Made;
use crate::tars::context;
use drystone_mkfs::tree::{FileTree, InodeTimestamp};
use drystone_sources::{Changes, Manifest, Source};
use drystone_sync::{clock, thread};
use std::path::Path;
use std::time::Duration;

fn tree(folder: &Path) -> FileTree {
    let tar = Made::default()
        .file("etc/passwd", "root")
        .pax(&[("SCHILY.xattr.user.old", b"1")])
        .file("bin/tool", "code")
        .end();
    let path = folder.join("a.tar");
    std::fs::write(&path, tar).unwrap();
    let mut tree = FileTree::new();
    Source::parse(path.as_os_str()).add(&mut tree, &mut context(folder)).unwrap();
    tree
}

#[test]
fn manifests_change_and_make() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("motd"), "welcome").unwrap();
    let text = "\
# what the sources lack
/etc/passwd      mode=600 uid=1 gid=2 mtime=-1.5
/bin/tool        xattr.user.old xattr.user.a\\sb=c\\x00d\\\\ mode=4755
/dev/null        type=character device=1:3 mode=666
/dev/disk        type=block device=8:1
/dev/pipe        type=fifo
/run/sock        type=socket gid=7
/sbin            type=symlink target=bin
/sbin/other      type=hardlink target=/bin/tool
/etc/motd        type=file content=motd mtime=5
/var/empty       type=directory mode=700
/bin             type=directory
/gone            optional mode=7
/also/gone       remove optional
";
    let manifest = Manifest::parse("m", folder.path(), text.as_bytes()).unwrap();
    let latest = Some(InodeTimestamp::from_seconds(10));
    let changes = Changes { manifests: vec![manifest], latest, ..Changes::default() };
    let mut tree = tree(folder.path());
    changes.apply(&mut tree).unwrap();
    let found = list(&tree, ALL);
    let text = |path: &str| found.get(path).map_or("nothing", String::as_str);
    for (path, expected) in [
        ("/etc/passwd", "file of 4 bytes, sum 356494, 600 1:2 at -2.500000000"),
        (
            "/bin/other",
            "file of 4 bytes, sum 2eae9b, 4755 0:0 at 10.000000000, user.a b=c\\x00d\\\\",
        ),
        ("/bin/tool", "as /bin/other"),
        ("/dev/null", "CharacterDevice { major: 1, minor: 3 }, 666 0:0 at 0.000000000"),
        ("/dev/disk", "BlockDevice { major: 8, minor: 1 }, 600 0:0 at 0.000000000"),
        ("/dev/pipe", "Fifo, 644 0:0 at 0.000000000"),
        ("/run/sock", "Socket, 755 0:7 at 0.000000000"),
        ("/etc/motd", "file of 7 bytes, sum 4b07ec9ce, 644 0:0 at 5.000000000"),
        ("/var/empty", "Directory, 700 0:0 at 0.000000000"),
        ("/gone", "nothing"),
    ] {
        let found = text(path);
        let shape = |text: &str| {
            text.split("sum ")
                .map(|part| part.split_once(',').map_or(part, |(_, rest)| rest).to_owned())
                .collect::<Vec<_>>()
        };
        assert!(
            found == expected || shape(found) == shape(expected),
            "{path}: {found}, not {expected}"
        );
    }
}

/// New content doesn't make a protected file public.
#[test]
fn new_content_leaves_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("new"), "new content").unwrap();
    let mut tree = tree(folder.path());
    let text = "\
/bin/tool        mode=600 gid=42 mtime=7
/bin/other       type=hardlink target=/bin/tool
/bin/tool        type=file content=new uid=3
/etc/passwd      type=file content=new
";
    let manifest = Manifest::parse("m", folder.path(), text.as_bytes()).unwrap();
    manifest.apply(&mut tree).unwrap();
    let node = tree.lookup(b"bin/tool").unwrap();
    assert_eq!(tree.lookup(b"bin/other"), Some(node));
    assert_eq!(crate::listing::content(&tree, node), b"new content");
    let metadata = tree.node(node).metadata();
    assert_eq!((metadata.permissions, metadata.user, metadata.group), (0o600, 3, 42));
    assert_eq!(metadata.xattrs[0].name, b"user.old");
    assert_eq!(tree.node(node).modified(), InodeTimestamp::from_seconds(7));
    let passwd = tree.lookup(b"etc/passwd").unwrap();
    assert_eq!(crate::listing::content(&tree, passwd), b"new content");
}

/// Without its list, a file would give its group what the list's mask allows.
#[test]
fn listed_files_keep_attributes_and_lists() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, "text").unwrap();
    let list = crate::fixture::access_list();
    for (name, value) in [("user.x", &b"1"[..]), ("system.posix_acl_access", &list)] {
        rustix::fs::setxattr(&path, name, value, rustix::fs::XattrFlags::empty()).unwrap();
    }
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("file", &link).unwrap();
    let sources = Source::parse_list("list", folder.path(), b"file /a\nfile:link /b\n").unwrap();
    let mut tree = FileTree::new();
    for source in sources {
        source.add(&mut tree, &mut context(folder.path())).unwrap();
    }
    for name in ["a", "b"] {
        let node = tree.node(tree.lookup(name.as_bytes()).unwrap());
        let find = |name: &[u8]| {
            let found = node.metadata().xattrs.iter().find(|xattr| xattr.name == name);
            found.map(|xattr| &xattr.value[..])
        };
        assert_eq!(find(b"user.x"), Some(&b"1"[..]));
        assert_eq!(find(b"system.posix_acl_access"), Some(&list[..]));
    }
}

#[test]
fn what_is_wrong_with_a_manifest_is_said_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    for (text, expected) in [
        ("/a moed=7", "m:1:4: \"moed\" is not one of type, mode"),
        ("\n/a mode=8", "m:2:9: \"8\" is not an octal mode up to 7777"),
        ("/a mode=17777", "m:1:9: \"17777\" is not an octal mode"),
        ("/a uid=-1", "m:1:8: \"-1\" is not the number of a user"),
        ("/a gid=4294967295", "m:1:8: \"4294967295\" is not the number"),
        ("/a mtime=now", "m:1:10: \"now\" is not a decimal number of seconds"),
        ("/a mtime=99999999999", "m:1:10: \"99999999999\" is before 1901 or after 2446"),
        ("/a type=disk", "m:1:9: \"disk\" is not one of file"),
        ("/a type=block", "m:1:9: this type needs a device="),
        ("/a type=block device=1", "m:1:22: \"1\" is not a device"),
        ("/a type=block device=4096:0", "m:1:22: \"4096:0\" is not a device"),
        ("/a type=fifo device=1:1", "m:1:14: doesn't go with this type"),
        ("/a target=b", "m:1:4: needs a type="),
        ("/a type=symlink", "m:1:9: this type needs a target="),
        ("/a mode=1 mode=2", "m:1:11: \"mode\" is said twice"),
        ("/a/../b mode=1", "m:1:1: the name /a/../b has \"..\" in it"),
        ("/a xattr.foo=1", "m:1:4: \"xattr.foo\" is not an attribute that Linux has"),
        ("/a remove mode=1", "m:1:1: what is removed can't be changed as well"),
        ("/ remove", "m:1:1: the root can't be removed"),
        ("/a\\q mode=1", "m:1:3: a backslash stands before"),
        ("/nothing mode=1", "m:1:1: /nothing isn't there, and nothing says what it shall be"),
        ("/nothing remove", "m:1:1: /nothing isn't there"),
        ("/x type=hardlink target=/nothing", "m:1:1: x: hard link to nothing, which isn't there"),
        ("/x type=file content=gone", "m:1:1: /nonexistent/gone: No such file"),
    ] {
        let applied = Manifest::parse("m", Path::new("/nonexistent"), text.as_bytes())
            .and_then(|manifest| manifest.apply(&mut tree(folder.path())));
        let error = applied.expect_err(text).to_string();
        assert!(error.starts_with(expected), "{error:?}, not {expected:?}");
    }
}

#[test]
fn lists_say_what_goes_where() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(at("root/etc")).unwrap();
    std::fs::write(at("root/etc/name"), "from the directory").unwrap();
    std::fs::write(at("app.tar"), Made::default().file("app", "tar").end()).unwrap();
    std::fs::write(at("a file"), "text").unwrap();
    let text = b"root\napp.tar /opt\na\\sfile /etc/name\nfile:app.tar opt/kept.tar\n";
    let sources = Source::parse_list("list", folder.path(), text).unwrap();
    let mut tree = FileTree::new();
    let mut context = context(folder.path());
    for source in sources {
        source.add(&mut tree, &mut context).unwrap();
    }
    let content = |path: &str| {
        crate::listing::content(
            &tree,
            tree.lookup(path.as_bytes()).unwrap_or_else(|| panic!("{path}")),
        )
    };
    assert_eq!(content("etc/name"), b"text");
    assert_eq!(content("opt/app"), b"tar");
    assert_eq!(content("opt/kept.tar"), std::fs::read(at("app.tar")).unwrap());

    for (text, expected) in [
        ("a b c", "list:1:5: a line is a source and a path in the image"),
        ("a ../b", "list:1:3: the name ../b has"),
        ("tar: x", "list:1:1: a source has a path"),
    ] {
        let error = Source::parse_list("list", folder.path(), text.as_bytes()).expect_err(text);
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}

/// What goes to a link goes where the link leads, whether or not the source has an entry for its top.
#[test]
fn places_are_found_through_links() {
    let base = Made::default().file("usr/lib/kept", "").entry("lib", b'2', "usr/lib", b"").end();
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("base.tar"), &base).unwrap();
    std::fs::create_dir(at("directory")).unwrap();
    std::fs::write(at("directory/new"), "").unwrap();
    std::fs::write(at("with-top.tar"), Made::default().directory("./").file("./new", "").end())
        .unwrap();
    std::fs::write(at("without.tar"), Made::default().file("new", "").end()).unwrap();
    for source in ["directory", "with-top.tar", "without.tar"] {
        let text = format!("base.tar\n{source} /lib\n");
        let mut tree = FileTree::new();
        for source in Source::parse_list("list", folder.path(), text.as_bytes()).unwrap() {
            source.add(&mut tree, &mut context(folder.path())).unwrap();
        }
        let is_there = |path: &str| tree.lookup(path.as_bytes()).is_some();
        assert!(["usr/lib/new", "lib/kept"].into_iter().all(is_there), "{source}");
    }
}

/// More than may be open at once, and than there are numbers for sources.
#[test]
fn a_list_may_be_long() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "text").unwrap();
    let lines: String =
        (0..66_000).map(|index| format!("file /d{}/{index}\n", index % 7)).collect();
    let sources = Source::parse_list("list", folder.path(), lines.as_bytes()).unwrap();
    let mut tree = FileTree::new();
    let mut context = crate::tars::context(folder.path());
    for source in &sources {
        source.add(&mut tree, &mut context).unwrap();
    }
    let last = tree.lookup(b"d3/65999").unwrap();
    assert_eq!(crate::listing::content(&tree, last), b"text");
    // A file that was replaced isn't taken for the one that was listed.
    std::fs::rename(folder.path().join("file"), folder.path().join("away")).unwrap();
    std::fs::write(folder.path().join("file"), "text").unwrap();
    let segment = tree.node(last).segments().next().unwrap();
    let read = tree.source(segment.source).read_at(segment.object, 0, &mut [0; 4]);
    assert!(read.unwrap_err().to_string().contains("changed while the image was built"));
}

/// A pipe is refused without waiting for its other end, in a list and when it has taken a file's place.
#[test]
fn a_pipe_is_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let make_pipe = |path: &Path| {
        let kind = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, path, kind, rustix::fs::Mode::RWXU, 0).unwrap();
    };
    make_pipe(&folder.path().join("pipe"));
    std::fs::write(folder.path().join("file"), "text").unwrap();
    let lists = [&b"file:pipe /a"[..], b"file:file /a"].map(|text| {
        let sources = Source::parse_list("list", folder.path(), text).unwrap();
        let mut tree = FileTree::new();
        let added = sources[0].add(&mut tree, &mut crate::tars::context(folder.path()));
        added.map(|()| tree).map_err(|error| error.to_string())
    });
    let [refused, listed] = lists;
    let error = refused.unwrap_err();
    assert!(error.contains("pipe: not a regular file"), "{error}");

    let tree = listed.unwrap();
    let file = folder.path().join("file");
    std::fs::remove_file(&file).unwrap();
    make_pipe(&file);
    let node = tree.node(tree.lookup(b"a").unwrap());
    let segment = node.segments().next().unwrap();
    let read = || tree.source(segment.source).read_at(segment.object, 0, &mut [0; 4]);
    let error = thread::scope(|scope| {
        let reader = scope.spawn(|| read().unwrap_err().to_string());
        // Nobody opens the other end before this has passed.
        let limit = clock::now() + Duration::from_secs(20);
        while !reader.is_finished() && clock::now() < limit {
            thread::sleep(Duration::from_millis(1));
        }
        let has_waited = !reader.is_finished();
        if has_waited {
            drop(std::fs::File::options().write(true).open(&file).unwrap());
        }
        let error = reader.join().unwrap();
        assert!(!has_waited, "the reader waited for the other end of a pipe: {error}");
        error
    });
    assert!(error.contains("file: not a regular file"), "{error}");
}
