//! Other owners for a tree: the same, whichever way it goes into an image.

use crate::copying::make_tree;
use crate::support::Fixture;
use drystone_testkit::skip;
use std::fs;

/// As a container's users are mapped, one user elsewhere, one group.
const MAP: &str = "--map-uid 1000:5000:1 --map-uid 0:100000:65536 --map-gid 70000:7";

#[test]
fn owners_are_mapped_alike_everywhere() {
    if !skip::is_root("other owners than the caller") {
        return;
    }
    let fixture = Fixture::empty();
    make_tree(&fixture.path("source"));
    fs::remove_file(fixture.path("source/socket")).unwrap();
    fixture.line(&format!("build built.img --from source --free 64M -q {MAP}")).good();
    let empty = |image: &str| fixture.line(&format!("mkfs {image} --size 96M -q")).good();
    for image in ["plain.img", "copied.img", "between.img", "imported.img", "archived.img"] {
        empty(image);
    }
    fixture.line("cp source/. plain.img:/").good();
    fixture.line(&format!("cp source/. copied.img:/ {MAP}")).good();
    fixture.line(&format!("cp plain.img:/ between.img:/ {MAP}")).good();
    fixture.line("extract plain.img --to plain.tar -q").good();
    fixture.line(&format!("import imported.img plain.tar {MAP}")).good();
    fixture.line(&format!("extract plain.img --to mapped.tar -q {MAP}")).good();
    fixture.line("import archived.img mapped.tar").good();
    fixture.line(&format!("extract plain.img --to out -q {MAP}")).good();
    for other in ["copied.img", "between.img", "imported.img", "archived.img", "out"] {
        let ignored = if other == "out" { "--ignore holes" } else { "--ignore times" };
        fixture.line(&format!("diff built.img {other} {ignored}")).good();
    }
    for (path, owners) in [("/empty", (5000, 7)), ("/d", (100_000, 0)), ("/", (100_000, 0))] {
        let stat = fixture.line(&format!("stat copied.img:{path} --json")).json();
        let found = (stat["user"].as_u64().unwrap(), stat["group"].as_u64().unwrap());
        assert_eq!(found, owners, "{path}");
    }
    let list = fixture.line("getfattr copied.img:/attributes --json").good();
    // The list names user 1001, who is 101,001.
    assert!(list.contains(&hex(101_001)) && !list.contains(&hex(1001)), "{list}");
    for image in ["copied.img", "between.img", "imported.img"] {
        fixture.expect_sound_image(image);
    }
    fixture.line("cp source/. copied.img:/ --owner 3:4").good();
    let stat = fixture.line("stat copied.img:/d/deep --json").json();
    assert_eq!((stat["user"].as_u64(), stat["group"].as_u64()), (Some(3), Some(4)));
}

/// How a number stands in an attribute's value.
fn hex(id: u32) -> String {
    id.to_le_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}
