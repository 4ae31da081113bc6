//! `compact`, `trim` and `zero-free`.

use crate::support::Fixture;
use std::os::unix::fs::MetadataExt;

#[test]
fn a_compact_image_is_as_small_as_its_files_allow() {
    let fixture = Fixture::with(&["--size", "200M", "--journal-size", "4M"]);
    fixture.put("source/kept", vec![1; 2_000_000]);
    fixture.put("source/gone", vec![2; 30_000_000]);
    fixture.line("cp -r source/. disk.img:/").good();
    fixture.line("rm disk.img:/gone").good();
    let image = fixture.path("disk.img");
    let told = fixture.line("compact --json disk.img").json();
    let bytes = told["blocks"].as_u64().unwrap() * told["block_size"].as_u64().unwrap();
    let status = image.metadata().unwrap();
    assert_eq!(status.len(), bytes);
    assert!(bytes < 12 << 20 && status.blocks() * 512 < 9 << 20, "{status:?}");
    fixture.expect_sound();
    assert_eq!(fixture.line("cat disk.img:/kept").bytes, vec![1; 2_000_000]);
    let told = fixture.line("trim disk.img").good();
    assert!(told.contains("discarded"), "{told}");
    fixture.line("zero-free -q disk.img").good();
    fixture.expect_sound();
}

/// The size that is named is one that the image can have.
#[test]
fn an_image_that_can_not_be_so_small_says_how_small_it_can_be() {
    let fixture = Fixture::with(&["--size", "64M", "--journal-size", "4M"]);
    fixture.put("source/kept", vec![1; 20_000_000]);
    fixture.line("cp -r source/. disk.img:/").good();
    for size in ["10M", "4K", "-60M"] {
        let message = fixture.line(&format!("resize disk.img {size}")).bad(1);
        let bytes = message.split_whitespace().find_map(|word| word.parse::<u64>().ok());
        let bytes = bytes.unwrap_or_else(|| panic!("{message}"));
        assert!((20_000_000..40_000_000).contains(&bytes), "{message}");
        let copy = fixture.copy();
        copy.line(&format!("resize -q disk.img {bytes}")).good();
        copy.expect_sound();
    }
    fixture.expect_sound();
}

#[test]
fn an_image_with_errors_is_left_alone() {
    let fixture = Fixture::new();
    fixture.fill(&["a", "b"]);
    let image = fixture.path("disk.img");
    let mut bytes = std::fs::read(&image).unwrap();
    let group = fixture.line("inspect --json disk.img group 0").json();
    let bitmap = group["parts"].as_array().unwrap().iter();
    let mut bitmaps =
        bitmap.filter(|part| part["name"].as_str().unwrap().starts_with("block bitmap"));
    let at = bitmaps.next_back().unwrap()["offset"].as_u64().unwrap() as usize;
    bytes[at + 2] = 0;
    std::fs::write(&image, &bytes).unwrap();
    for command in ["trim", "zero-free", "compact"] {
        let message = fixture.line(&format!("{command} disk.img")).bad(1);
        assert!(message.contains("error"), "{message}");
        assert!(std::fs::read(&image).unwrap() == bytes, "{command}");
    }
    assert!(fixture.line("trim --read-only disk.img").bad(2).contains("changes the image"));
}

/// An error that is about the log names it.
#[test]
fn an_undo_log_that_can_not_be_made_is_named() {
    let fixture = Fixture::new();
    let message = fixture.line("tune disk.img --label x --undo nowhere/log").bad(1);
    assert!(message.contains("disk.img: ") && message.contains("nowhere/log"), "{message}");
}

/// Free blocks may be what an earlier change would need to be undone.
#[test]
fn a_change_before_free_space_was_cleared_is_not_undone() {
    let fixture = Fixture::with(&["--size", "40M"]);
    fixture.fill(&["a", "b"]);
    for command in ["trim", "zero-free", "compact"] {
        fixture.line("tune disk.img --features ^has_journal --undo before.undo").good();
        fixture.line(&format!("{command} -q disk.img")).good();
        let message = fixture.line("undo disk.img before.undo").bad(1);
        // A compact image was cut, too.
        let is_refused = ["has changed since", "before the change"];
        assert!(is_refused.iter().any(|why| message.contains(why)), "{command}: {message}");
        assert_eq!(fixture.line("cat disk.img:/a").good(), "a");
        fixture.expect_sound();
        std::fs::remove_file(fixture.path("before.undo")).unwrap();
        fixture.line("resize -q disk.img 40M").good();
        fixture.line("tune disk.img --features has_journal").good();
    }
}
