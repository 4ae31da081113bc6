//! `du` and `df`, judged by the programs of that name on a mount.

use crate::mounting::Mounting;
use crate::support::{Fixture, finish};
use std::process::Command;

/// A tree with links, a hole and a symbolic link.
fn fill(fixture: &Fixture) {
    fixture.put("source/d/e/big", vec![b'x'; 300_001]);
    fixture.fill(&["d/f/small", "d/other", "e/x"]);
    fixture.line("ln disk.img:/d/e/big disk.img:/e/again").good();
    fixture.line("ln -s other disk.img:/d/link").good();
    fixture.line("truncate -s 5M disk.img:/hole").good();
    // Anyone may count it.
    fixture.line("chmod 755 disk.img:/lost+found").good();
}

/// Lines in order, each with its path as it is in the image.
fn sorted(text: &str) -> Vec<String> {
    let in_image = |line: &str| {
        let (number, path) = line.split_once('\t').unwrap();
        let path = path.strip_prefix('.').unwrap_or(path);
        format!("{number}\t{}", if path.is_empty() { "/" } else { path })
    };
    let mut lines: Vec<String> = text.lines().map(in_image).collect();
    lines.sort();
    lines
}

#[test]
fn du_and_df_on_a_mount_say_the_same() {
    let Some(mounting) = Mounting::new() else { return };
    let fixture = &mounting.fixture;
    fill(fixture);
    let options = ["", "-a", "-s", "-h", "-d1", "-ah", "-l", "-c"];
    let places = ["", "e d", "d d/e d/e/big", "d/e/big e/again"];
    let call = |option: &str, place: &str| {
        let places = place.split(' ').map(|place| format!("disk.img:/{place}"));
        let words = ["du", option].into_iter().filter(|word| !word.is_empty());
        sorted(&fixture.run(&words.map(str::to_owned).chain(places).collect::<Vec<_>>()).good())
    };
    let ours: Vec<_> = options.map(|option| places.map(|place| call(option, place))).into();
    let df =
        ["df disk.img", "df -i disk.img", "df -h disk.img"].map(|line| fixture.line(line).good());
    mounting.line("mount disk.img mnt").good();
    for (option, ours) in options.iter().zip(ours) {
        for (place, ours) in places.iter().zip(ours) {
            let mut du = Command::new("du");
            du.args(option.split(' ').filter(|word| !word.is_empty()));
            du.args(
                place.split(' ').map(|place| format!("./{place}").trim_end_matches('/').to_owned()),
            );
            let theirs = finish(du.current_dir(mounting.path(""))).good();
            let mut both = [ours, sorted(&theirs)];
            if place.is_empty() && *option != "-l" {
                // The file with two names counts in the directory that a walk comes to first.
                both.iter_mut().for_each(|lines| lines.retain(|line| line.ends_with("\t/")));
            }
            assert!(!both[0].is_empty());
            assert_eq!(both[0], both[1], "du {option} {place}");
        }
    }
    for (option, ours) in ["-k", "-i", "-h"].into_iter().zip(df) {
        let theirs = finish(Command::new("df").arg(option).arg(mounting.path(""))).good();
        let numbers = |line: &str, from: usize| {
            let words = line.split_whitespace().skip(from).take(4);
            words.map(str::to_owned).collect::<Vec<_>>()
        };
        let last = |text: &str| text.lines().last().unwrap().to_owned();
        assert_eq!(numbers(&last(&ours), 0), numbers(&last(&theirs), 1), "df {option}");
    }
    mounting.unmount().good();
    fixture.expect_sound();
}

#[test]
fn sizes_are_summed() {
    let fixture = Fixture::new();
    fill(&fixture);
    assert_eq!(
        fixture.line("du -b disk.img:/d/e/big disk.img:/hole").good().lines().collect::<Vec<_>>(),
        ["300001\t/d/e/big", "5242880\t/hole"]
    );
    assert_eq!(fixture.line("du -sb disk.img:/d").good(), "300022\t/d\n");
    assert_eq!(fixture.line("du -s --apparent-size disk.img:/d").good(), "293\t/d\n");
    let lines = fixture.line("du -c --json disk.img:/d disk.img:/e").json_lines();
    let last = lines.last().unwrap();
    assert_eq!((&last["name"], &last["size"]), (&"total".into(), &300_025.into()));
    assert!(fixture.line("du disk.img:/none disk.img:/d").bad(1).contains("/none: no such file"));
    let df = fixture.line("df --json disk.img").json();
    let number = |key: &str| df[key].as_u64().unwrap();
    assert!(number("used") > 300_000 && number("used") + number("available") <= number("size"));
    assert_eq!(number("inodes_used") + number("inodes_available"), number("inodes"));
    fixture.line("mkfs other.img --size 8M -q").good();
    let text = fixture.line("df -h disk.img other.img").good();
    let names: Vec<_> = text.lines().filter_map(|line| line.split(' ').next_back()).collect();
    assert_eq!(names, ["Image", "disk.img", "other.img"]);
    assert!(fixture.line("df disk.img none.img").stderr.contains("none.img: "));
}
