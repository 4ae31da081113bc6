//! `quota`: usage, limits and times of grace, of images that count usage and others.

use crate::support::{Fixture, tool};
use serde_json::json;
use std::ffi::OsStr;

const WEEK: u64 = 7 * 86_400;

#[test]
fn limits_are_set_and_shown() {
    let fixture = Fixture::with(&["--size", "32M", "--block-size", "4096", "-O", "quota,project"]);
    fixture.fill(&["a", "b"]);
    fixture.line("chown 1000:100 disk.img:/a").good();
    let user = |fixture: &Fixture| fixture.line("quota disk.img -u 1000 --json").json();
    let mut expected = json!({
        "kind": "user", "space_grace_seconds": WEEK, "inodes_grace_seconds": WEEK,
        "owners": [{
            "id": 1000, "space_bytes": 4096, "space_soft_bytes": 0, "space_hard_bytes": 0,
            "space_grace_end_seconds": 0, "inodes": 1, "inodes_soft": 0, "inodes_hard": 0,
            "inodes_grace_end_seconds": 0,
        }],
    });
    assert_eq!(user(&fixture), expected);
    fixture
        .line("quota disk.img --user 1000 --space-soft 1G --space-hard 1500 --inodes-soft 5")
        .good();
    fixture.line("quota disk.img --user 1000 --inodes-hard 7").good();
    fixture.line("quota disk.img --space-grace 3d").good();
    let owner = &mut expected["owners"][0];
    owner["space_soft_bytes"] = json!(1 << 30);
    owner["space_hard_bytes"] = json!(2048);
    owner["inodes_soft"] = json!(5);
    owner["inodes_hard"] = json!(7);
    expected["space_grace_seconds"] = json!(3 * 86_400);
    assert_eq!(user(&fixture), expected);
    let request: [&OsStr; 2] = ["-R".as_ref(), "get_quota user 1000".as_ref()];
    let told = tool("debugfs", &[request[0], request[1], fixture.path("disk.img").as_ref()]);
    let told = told.stdout.lines().last().expect("a record").to_owned();
    let told: Vec<_> = told.split_whitespace().collect();
    // Space is told in bytes, its limits in KiB.
    assert_eq!(told.join(" "), "1000 4096 1048576 2 1 5 7");
    // Who has nothing yet may have limits, and a limit that is exceeded has its grace run.
    fixture.line("quota disk.img --project 9 --space-hard 1M").good();
    fixture.line("quota disk.img --user 1000 --space-soft 2K --space-hard 0").good();
    let shown = fixture.line("quota disk.img").good();
    let lines: Vec<Vec<_>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0].join(" "), "Grace: 3d for space, 7d for inodes");
    assert!(lines.iter().any(|line| line.join(" ") == "9 0 - 1.0M - 0 - - -"), "{shown}");
    let line = lines.iter().find(|line| line.first() == Some(&"1000")).expect("the user");
    assert_eq!(line[..4].join(" "), "1000 4.0K 2.0K -");
    assert!(["3d", "2d23h"].contains(&line[4]), "{shown}");
    fixture.line("quota disk.img --user 1000 --space-soft 0").good();
    assert_eq!(user(&fixture)["owners"][0]["space_grace_end_seconds"], 0);
    fixture.expect_sound();
}

#[test]
fn what_cannot_be_limited_is_told() {
    let fixture = Fixture::new();
    assert!(fixture.line("quota disk.img").bad(1).contains("disk.img: usage isn't counted"));
    assert!(fixture.line("quota disk.img -u 1 --space-hard 1M").bad(1).contains("isn't counted"));
    assert!(fixture.line("quota nope.img").bad(1).contains("nope.img: "));
    let users_and_groups = Fixture::with(&["--size", "32M", "-O", "quota"]);
    let refused = users_and_groups.line("quota disk.img -P 1 --space-hard 1M").bad(1);
    assert!(refused.contains("usage of projects isn't counted"), "{refused}");
    users_and_groups.line("quota disk.img -u 1 --space-hard 1M --read-only").bad(2);
    for line in [
        "quota",
        "quota disk.img --space-hard 1M",
        "quota disk.img -u 1 -g 1 --space-hard 1M",
        "quota disk.img -u root --space-hard 1M",
        "quota disk.img -u 1 --space-hard x",
        "quota disk.img -u 1 --space-grace 1d",
        "quota disk.img --space-grace 1w",
    ] {
        assert_eq!(users_and_groups.line(line).code, Some(2), "{line}");
    }
    users_and_groups.expect_sound();
}
