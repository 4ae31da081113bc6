//! Listing directories.

use std::collections::BTreeMap;

use drystone_vfs::{DirectoryEntry, FileType, InodeGuard, InodeNumber, NewNode, find_path};

type Fixture<'a> = super::fixture::Fixture<'a>;

/// Up to `count` names from a cookie on, and the cookie to go on at.
fn some(t: &Fixture<'_>, directory: InodeNumber, cookie: u64, count: usize) -> (Vec<String>, u64) {
    let (mut names, mut next) = (Vec::new(), cookie);
    t.fs.read_directory(&t.root, directory, cookie, &mut |entry| {
        if names.len() == count {
            return false;
        }
        names.push(String::from_utf8_lossy(entry.name).into_owned());
        next = entry.cookie;
        true
    })
    .unwrap();
    (names, next)
}

/// How often each name is met when the directory is read in small portions and `change` is
/// called between them.
fn portions(
    t: &Fixture<'_>,
    directory: InodeNumber,
    mut change: impl FnMut(usize),
) -> BTreeMap<String, usize> {
    let (mut met, mut cookie) = (BTreeMap::new(), 0);
    for round in 0.. {
        let (names, next) = some(t, directory, cookie, 7);
        if names.is_empty() {
            break;
        }
        assert!(round < 10_000, "the listing doesn't end");
        for name in names {
            *met.entry(name).or_default() += 1;
        }
        cookie = next;
        change(round);
    }
    met
}

/// Gives a file one more name: names need no inodes of their own, of which small images have few.
fn name(t: &Fixture<'_>, file: InodeNumber, directory: InodeNumber, name: &str) {
    match InodeGuard::link(t.fs, &t.root, file, directory, name.as_bytes()) {
        // A file system may allow few names.
        Err(error) if error.errno == drystone_vfs::Errno::EMLINK => {
            t.file_in(directory, name);
        }
        named => drop(named.unwrap()),
    }
}

cases! {
    fn listing_starts_with_dots(t) {
        let sub = t.mkdir("d");
        t.file_in(sub, "a");
        let mut entries = Vec::new();
        t.fs.read_directory(&t.root, sub, 0, &mut |entry| {
            entries.push((entry.name.to_vec(), entry.inode));
            true
        })
        .unwrap();
        assert_eq!(entries[0], (b".".to_vec(), sub));
        assert_eq!(entries[1], (b"..".to_vec(), t.dir));
        assert_eq!(entries.len(), 3);
    }

    fn listing_gives_types(t) {
        t.file("file");
        t.mkdir("dir");
        t.symlink("link", "x");
        t.made(&t.root, t.dir, "pipe", NewNode::Fifo, 0o644);
        let mut types = BTreeMap::new();
        t.fs.read_directory(&t.root, t.dir, 0, &mut |entry| {
            types.insert(entry.name.to_vec(), entry.file_type);
            true
        })
        .unwrap();
        let expected = [
            (&b"file"[..], FileType::Regular),
            (b"dir", FileType::Directory),
            (b"link", FileType::Symlink),
            (b"pipe", FileType::Fifo),
        ];
        for (name, file_type) in expected {
            // Some images don't record types in directories.
            assert!(types[name].is_none_or(|listed| listed == file_type));
        }
    }

    fn listing_wants_a_directory(t) {
        fails!(t.fs.read_directory(&t.root, t.file("a"), 0, &mut |_| true), ENOTDIR);
    }

    fn listing_goes_on_at_each_cookie(t) {
        for n in 0..40 {
            t.file(&format!("f{n}"));
        }
        let (all, _) = some(t, t.dir, 0, usize::MAX);
        assert_eq!(all.len(), 42);
        let mut cookie = 0;
        for name in &all {
            let (one, next) = some(t, t.dir, cookie, 1);
            assert_eq!(one, std::slice::from_ref(name));
            cookie = next;
        }
        assert_eq!(some(t, t.dir, cookie, 1).0.len(), 0);
    }

    fn listing_in_portions_is_complete(t) {
        for n in 0..500 {
            t.file(&format!("file-{n}"));
        }
        let met = portions(t, t.dir, |_| ());
        assert_eq!(met.len(), 502);
        assert!(met.values().all(|&times| times == 1));
    }

    fn listing_survives_new_entries(t) {
        for n in 0..300 {
            t.file(&format!("old-{n}"));
        }
        let met = portions(t, t.dir, |round| {
            if round < 100 {
                for n in 0..10 {
                    t.file(&format!("new-{round}-{n}"));
                }
            }
        });
        for n in 0..300 {
            assert_eq!(met.get(&format!("old-{n}")), Some(&1), "old-{n}");
        }
        assert!(met.values().all(|&times| times == 1), "a new entry is listed twice");
    }

    fn listing_survives_removed_entries(t) {
        for n in 0..400 {
            t.file(&format!("f{n}"));
        }
        let met = portions(t, t.dir, |round| {
            for n in 0..10 {
                // Odd ones go, even ones stay.
                let _ = t.unlink(t.dir, &format!("f{}", (round * 10 + n) * 2 + 1));
            }
        });
        for n in (0..400).step_by(2) {
            assert_eq!(met.get(&format!("f{n}")), Some(&1), "f{n}");
        }
    }

    fn directory_can_be_emptied_while_listed(t) {
        let sub = t.mkdir("d");
        for n in 0..300 {
            t.file_in(sub, &format!("f{n}"));
        }
        let mut cookie = 0;
        loop {
            let (names, next) = some(t, sub, cookie, 20);
            if names.is_empty() {
                break;
            }
            for name in names.iter().filter(|name| !name.starts_with('.')) {
                t.unlink(sub, name).unwrap();
            }
            cookie = next;
        }
        t.rmdir(t.dir, "d").unwrap();
    }

    fn large_directory_finds_every_name(t) {
        let names: Vec<String> =
            (0..2000.min(t.of.links_max as usize - 1)).map(|n| format!("{n}-{}", "x".repeat(n % 100))).collect();
        let file = t.file("base");
        let sub = t.mkdir("d");
        for name in &names {
            // Links are cheaper than files: only the directory is of interest.
            t.link(file, sub, name).unwrap();
        }
        for name in &names {
            assert_eq!(t.lookup(sub, name).unwrap().inode, file);
        }
        assert_eq!(t.names(sub).len(), names.len());
        for name in names.iter().step_by(3) {
            t.unlink(sub, name).unwrap();
            fails!(t.lookup(sub, name), ENOENT);
        }
        let left = names.len() - names.len().div_ceil(3);
        assert_eq!(t.names(sub).len(), left);
        assert_eq!(t.stat(file).links as usize, left + 1);
    }

    fn deep_directories_are_walked(t) {
        let mut here = t.dir;
        for n in 0..100 {
            here = t.mkdir_in(here, &format!("level-{n}"));
        }
        let file = t.file_in(here, "bottom");
        let mut path = b"/deep_directories_are_walked".to_vec();
        for n in 0..100 {
            path.extend(format!("/level-{n}").bytes());
        }
        path.extend(b"/bottom");
        assert_eq!(find_path(t.fs, &t.root, &path, true).unwrap().inode(), file);
    }

    fn removed_directory_lists_nothing(t) {
        let sub = t.mkdir("d");
        t.rmdir(t.dir, "d").unwrap();
        fails!(t.fs.read_directory(&t.root, sub, 0, &mut |_| true), ENOENT);
    }

    fn removed_directory_has_no_parent(t) {
        let parent = t.mkdir("parent");
        let sub = t.mkdir_in(parent, "d");
        let other = t.mkdir("other");
        let file = t.file("f");
        t.rmdir(parent, "d").unwrap();
        // Its number is free after that.
        t.release(parent);
        t.rmdir(t.dir, "parent").unwrap();
        t.fs.sync().unwrap();
        fails!(t.lookup(sub, ".."), ENOENT);
        fails!(t.rename((t.dir, "other"), (sub, "x")), ENOENT);
        fails!(t.link(file, sub, "x"), ENOENT);
        assert_eq!(t.lookup(t.dir, "other").unwrap().inode, other);
    }

    fn visitors_may_change_the_directory(t) {
        let file = t.file("a");
        for count in [2, 40, 600] {
            let sub = t.mkdir(&format!("d-{count}"));
            for n in 0..count {
                name(t, file, sub, &format!("kept-{n}"));
                name(t, file, sub, &format!("doomed-{n}"));
            }
            let (mut met, mut calls) = (BTreeMap::new(), 0);
            let visit = &mut |entry: &DirectoryEntry<'_>| {
                *met.entry(String::from_utf8_lossy(entry.name).into_owned()).or_insert(0) += 1;
                let found = InodeGuard::lookup(t.fs, &t.root, sub, entry.name);
                match found {
                    Ok(found) => assert_eq!(t.stat(found.inode()).inode, entry.inode),
                    // What goes may come all the same.
                    Err(_) => assert!(!entry.name.starts_with(b"kept")),
                }
                if calls < count {
                    name(t, file, sub, &format!("made-{calls}"));
                    t.rename((sub, &format!("made-{calls}")), (sub, &format!("new-{calls}"))).unwrap();
                    t.unlink(sub, &format!("doomed-{calls}")).unwrap();
                    assert!(t.names(sub).len() >= count);
                }
                calls += 1;
                true
            };
            t.fs.read_directory(&t.root, sub, 0, visit).unwrap();
            for n in 0..count {
                assert_eq!(met.remove(&format!("kept-{n}")), Some(1), "kept-{n} of {count}");
            }
            assert_eq!((met.remove("."), met.remove("..")), (Some(1), Some(1)));
            assert!(met.values().all(|times| *times == 1), "{met:?}");
            assert_eq!(t.names(sub).len(), 2 * count);
        }
    }

    fn visitors_may_remove_the_directory(t) {
        let file = t.file("a");
        for count in [3, 600] {
            let of_it = format!("d-{count}");
            let sub = t.mkdir(&of_it);
            for n in 0..count {
                name(t, file, sub, &n.to_string());
            }
            let mut calls = 0;
            let listed = t.fs.read_directory(&t.root, sub, 0, &mut |_| {
                if calls == 0 {
                    (0..count).for_each(|n| t.unlink(sub, &n.to_string()).unwrap());
                    t.rmdir(t.dir, &of_it).unwrap();
                }
                calls += 1;
                true
            });
            listed.unwrap();
            assert!((1..=count + 2).contains(&calls));
        }
    }
}
