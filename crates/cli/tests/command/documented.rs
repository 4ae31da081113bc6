//! The page about JSON has every field that commands print.

use crate::support::Fixture;
use serde_json::Value;

const PAGE: &str = include_str!("../../../../docs/src/reference/json.md");

/// The part of the page that is about a command.
fn section(command: &str) -> &'static str {
    let is_about = |part: &&str| {
        let heading = part.lines().next().unwrap_or_default();
        heading.split(", ").any(|name| name == command)
    };
    PAGE.split("\n## ").skip(1).find(is_about).unwrap_or_else(|| panic!("{command} has no section"))
}

fn keys(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                found.push(key.clone());
                keys(value, found);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| keys(value, found)),
        _ => {}
    }
}

#[test]
fn every_field_is_on_its_page() {
    let fixture = Fixture::new();
    fixture.fill(&["etc/motd", "bin/tool", "gone"]);
    fixture.put("etc/passwd", "root:x:0:0::/root:/bin/sh\n");
    fixture.put("etc/group", "root:x:0:\n");
    fixture.line("cp etc/passwd etc/group disk.img:/etc/").good();
    fixture.line("ln -s motd disk.img:/etc/link").good();
    fixture.line("setfattr -n user.a --value b disk.img:/bin/tool").good();
    fixture.line("extract disk.img:/etc --to etc.tar -q").good();
    fixture.line("setfacl -m u:5:r,d:u:5:r disk.img:/bin").good();
    // Nothing new gets its inode.
    fixture.line("rm disk.img:/gone").good();
    fixture.line("mkfs quota.img --size 8M -q -O quota,project").good();
    fixture.line("mkfs log.img --type nilfs2 --size 64M -B 64 -q").good();
    fixture.line("cp disk.img:/etc/motd log.img:/").good();
    fixture.partition("whole.img", "label: gpt\nsize=16M, name=root\n");
    let mut damaged = std::fs::read(fixture.path("disk.img")).unwrap();
    // Nothing of the first group's bitmaps and inodes is left.
    damaged[0x8000..0x20_0000].fill(0);
    std::fs::write(fixture.path("damaged.img"), damaged).unwrap();
    for (line, code) in [
        ("mkfs new.img --size 8M", 0),
        ("build built.img --from source --immutable --verity-hash", 0),
        ("info disk.img", 0),
        ("info whole.img", 0),
        ("ls -l disk.img:/etc", 0),
        ("tree disk.img", 0),
        ("find disk.img", 0),
        ("stat --extents disk.img:/bin/tool", 0),
        ("cp disk.img:/etc out", 0),
        ("extract disk.img:/etc --to extracted", 0),
        ("import quota.img etc.tar", 0),
        ("diff disk.img quota.img", 1),
        ("check disk.img", 0),
        ("check damaged.img", 4),
        ("undelete disk.img", 0),
        ("info --fragmentation disk.img", 0),
        ("tune new.img --label x --undo new.undo", 0),
        ("undo new.img new.undo", 0),
        ("trim new.img", 0),
        ("zero-free new.img", 0),
        ("defragment new.img", 0),
        ("compact new.img", 0),
        ("inspect disk.img inode 2", 0),
        ("which-inode disk.img 1 20000", 0),
        ("which-name disk.img 2", 0),
        ("label disk.img", 0),
        ("uuid disk.img", 0),
        ("resize new.img +8M", 0),
        ("set new.img superblock volume_name=x mnt_count=1 --i-know", 0),
        ("getfattr disk.img:/bin/tool", 0),
        ("du disk.img", 0),
        ("df disk.img", 0),
        ("getfacl disk.img:/bin", 0),
        ("quota quota.img", 0),
        ("checkpoints log.img", 0),
        ("history log.img:/motd", 0),
    ] {
        let done = fixture.line(&format!("{line} --json"));
        assert_eq!(done.code, Some(code), "{line}: {}", done.stderr);
        let section = section(line.split(' ').next().unwrap());
        let mut found = Vec::new();
        for text in done.stdout.lines() {
            keys(&serde_json::from_str(text).unwrap(), &mut found);
        }
        assert!(!found.is_empty(), "{line}");
        for key in found {
            let is_there = [format!("`{key}`"), format!("\"{key}\"")];
            assert!(is_there.iter().any(|text| section.contains(text)), "{line}: {key}");
        }
    }
}
