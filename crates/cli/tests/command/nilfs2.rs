//! Images of NILFS2, made and used by every command as those of ext4 are.

use crate::support::Fixture;
use drystone_testkit::skip;

fn made() -> Fixture {
    let fixture = Fixture::empty();
    fixture.line("mkfs disk.img --type nilfs2 --size 64M --blocks-per-segment 64 -q").good();
    fixture
}

#[test]
fn what_is_copied_in_comes_out_and_is_clean() {
    let fixture = made();
    let file = |number: usize| format!("d{}/file-{number}", number % 7);
    let content = |number: usize| vec![number as u8; number * 97];
    for number in 0..300 {
        fixture.put(&format!("source/{}", file(number)), content(number));
    }
    fixture.line("cp -r source disk.img:/").good();
    assert!(fixture.line("check disk.img").good().contains("disk.img: clean, checkpoint 2 of 2"));
    fixture.line("cp -r disk.img:/source out").good();
    for number in 0..300 {
        let found = std::fs::read(fixture.path(format!("out/{}", file(number)))).unwrap();
        assert!(found == content(number), "file {number}");
    }
    fixture.line("rm -r disk.img:/source/d3").good();
    fixture.line("mv disk.img:/source/d4 disk.img:/moved").good();
    fixture.line("ln -s moved disk.img:/link").good();
    fixture.line("truncate -s 1M disk.img:/moved/file-4").good();
    assert_eq!(fixture.line("ls disk.img:/source").good(), "d0\nd1\nd2\nd5\nd6\n");
    fixture.line("check disk.img -q").good();
}

#[test]
fn each_checkpoint_stays_readable() {
    let fixture = made();
    fixture.put("a", "one");
    fixture.line("cp a disk.img:/").good();
    fixture.put("a", "two");
    fixture.line("cp a disk.img:/").good();
    assert_eq!(fixture.line("cat disk.img:/a").good(), "two");
    assert_eq!(fixture.line("cat disk.img@2:/a").good(), "one");
    assert_eq!(fixture.line("ls disk.img@1:/").good(), "");
    assert!(fixture.line("cat disk.img@99:/a").bad(1).contains("99"));
    assert!(
        fixture.line("rm disk.img@2:/a").bad(2).contains("a checkpoint, which can only be read")
    );
}

#[test]
fn what_it_is_and_lacks_is_told() {
    let fixture = made();
    let told = fixture.line("info disk.img --json").json_lines();
    assert_eq!((&told[0]["type"], &told[0]["checkpoint"]), (&"nilfs2".into(), &1.into()));
    assert_eq!(told[0]["blocks_per_segment"], 64);
    assert!(fixture.line("info disk.img").good().contains("Segments         "));
    let refused = fixture.line("mkfs other.img --type nilfs2 --size 64M --inodes 7").bad(2);
    assert!(refused.contains("NILFS2 has no --inodes"), "{refused}");
    let small = fixture.line("mkfs other.img --type nilfs2 --size 1M").bad(2);
    assert!(small.contains("segments"), "{small}");
    assert!(!fixture.path("other.img").exists());
    assert!(fixture.line("mkfs disk.img --type nilfs2 -B 64").bad(1).contains("--force"));
    fixture.line("mkfs ext4.img --size 8M -q").good();
    assert!(fixture.line("quota disk.img").bad(1).contains("NILFS2 has no quotas"));
    assert!(fixture.line("ls ext4.img@3:/").bad(1).contains("ext4 has no checkpoints"));
}

#[test]
fn an_image_is_mounted() {
    if !skip::can_mount("a mount of NILFS2") {
        return;
    }
    let fixture = made();
    fixture.put("mnt/.keep", "");
    fixture.line("chmod 777 disk.img:/").good();
    fixture.line("mount disk.img mnt").good();
    std::fs::create_dir(fixture.path("mnt/d")).unwrap();
    std::fs::write(fixture.path("mnt/d/file"), vec![7; 100_000]).unwrap();
    assert_eq!(std::fs::read(fixture.path("mnt/d/file")).unwrap(), vec![7; 100_000]);
    fixture.line("umount mnt").good();
    assert_eq!(fixture.line("cat disk.img:/d/file").bytes, vec![7; 100_000]);
    fixture.line("check disk.img -q").good();
}

#[test]
fn checkpoints_are_listed_kept_and_deleted() {
    let fixture = made();
    for (number, text) in [(1, "one"), (2, "three")] {
        fixture.put("a", text);
        fixture.line("cp a disk.img:/").good();
        assert!(fixture.line("ls disk.img").good().contains('a'), "{number}");
    }
    fixture.line("rm disk.img:/a").good();
    let numbers = |fixture: &Fixture| -> Vec<u64> {
        let all = fixture.line("checkpoints disk.img --json").json_lines();
        all.iter().map(|one| one["checkpoint"].as_u64().unwrap()).collect()
    };
    assert_eq!(numbers(&fixture), [1, 2, 3, 4]);
    let history = fixture.line("history disk.img:/a").good();
    let sizes: Vec<bool> = history.lines().map(|line| line.contains(" 5 bytes")).collect();
    assert_eq!(sizes, [false, true, false], "{history}");
    assert!(history.ends_with("not there\n"), "{history}");
    assert!(fixture.line("history disk.img:/b").bad(1).contains("in no checkpoint"));
    fixture.line("checkpoints disk.img --keep 2 -q").good();
    let kept = fixture.line("checkpoints disk.img").good();
    assert!(kept.lines().any(|line| line.ends_with("snapshot")), "{kept}");
    for (line, message) in [
        ("--delete 2", "checkpoint 2 is a snapshot: '--release 2' first"),
        ("--delete 99", "there is no checkpoint 99"),
        ("--keep 99", "there is no checkpoint 99"),
    ] {
        let told = fixture.line(&format!("checkpoints disk.img {line}")).bad(1);
        assert_eq!(told, format!("drystone: disk.img: {message}\n"));
    }
    let newest = numbers(&fixture).into_iter().max().unwrap();
    let told = fixture.line(&format!("checkpoints disk.img --delete {newest}")).bad(1);
    assert!(told.contains("is the newest, which can't be deleted"), "{told}");
    fixture.put("more", "");
    for line in ["rm -r disk.img@2:/a", "cp more disk.img@2:/more", "mkdir disk.img@2:/d"] {
        let told = fixture.line(line).bad(2);
        assert!(told.starts_with("drystone: disk.img@2 is a checkpoint, which"), "{told}");
        assert_eq!(told.lines().count(), 2, "{told}");
    }
    fixture.line("checkpoints disk.img --release 2 --delete 2 --delete 3 --make -q").good();
    assert!(!numbers(&fixture).contains(&2) && !numbers(&fixture).contains(&3));
    fixture.line("check disk.img -q").good();
    fixture.line("mkfs ext4.img --size 8M -q").good();
    assert!(fixture.line("checkpoints ext4.img").bad(1).contains("ext4 has no checkpoints"));
}

#[test]
fn a_tree_is_built_the_same_with_any_number_of_threads() {
    let fixture = Fixture::empty();
    // More than one batch, files that cross from one to the next, holes, links, deep directories.
    let content = |number: usize| vec![number as u8 ^ 0x5a; number * 131 % 9000];
    for number in 0..400 {
        fixture.put(&format!("source/d{}/e/file-{number}", number % 7), content(number));
    }
    fixture.put("source/large", vec![3; 70 << 20]);
    let sparse = std::fs::File::create(fixture.path("source/sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"end", 5 << 20).unwrap();
    sparse.set_len(9 << 20).unwrap();
    std::os::unix::fs::symlink("large", fixture.path("source/link")).unwrap();
    std::fs::hard_link(fixture.path("source/large"), fixture.path("source/d0/same")).unwrap();
    fixture.line("build a.img --type nilfs2 --from source --threads 1 --free 4M -q").good();
    fixture.line("build b.img --type nilfs2 --from source --threads 5 --free 4M -q").good();
    let (a, b) = (fixture.path("a.img"), fixture.path("b.img"));
    assert!(std::fs::read(a).unwrap() == std::fs::read(b).unwrap(), "the images differ");
    fixture.line("check a.img -q").good();
    assert_eq!(fixture.line("diff source a.img:/").good(), "");
    assert_eq!(fixture.line("cat a.img:/d0/same").bytes.len(), 70 << 20);
    // It can be written to.
    fixture.put("more", vec![1; 3 << 20]);
    fixture.line("cp more a.img:/").good();
    fixture.line("check a.img -q").good();
}

#[test]
fn a_build_for_which_nilfs2_is_no_good_is_refused() {
    let fixture = Fixture::empty();
    fixture.put("source/file", "text");
    let build =
        |options: &str| fixture.line(&format!("build a.img --type nilfs2 --from source {options}"));
    assert!(build("--journal-size 4M").bad(2).contains("NILFS2 has no --journal-size"));
    assert!(build("--verity-hash").bad(2).contains("NILFS2 has no --verity-hash"));
    assert!(build("--size 2M").bad(1).contains("too small"));
    assert!(build("--blocks-per-segment 100").bad(2).contains("power of two"));
    assert!(fixture.line("build a.img --from source -B 64").bad(2).contains("ext4 has no"));
    assert!(!fixture.path("a.img").exists());
    let told = build("--block-size 1K -B 64 --label l --json").json_lines();
    assert_eq!((&told[0]["type"], &told[0]["block_size"]), (&"nilfs2".into(), &1024.into()));
    assert_eq!(fixture.line("cat a.img:/file").good(), "text");
    fixture.line("check a.img -q").good();
}

#[test]
fn an_image_grows_and_is_not_cut() {
    let fixture = made();
    fixture.put("file", vec![9; 5 << 20]);
    fixture.line("cp file disk.img:/").good();
    let told = fixture.line("resize disk.img +64M --json").json_lines();
    assert_eq!((&told[0]["type"], &told[0]["segments_before"]), (&"nilfs2".into(), &255.into()));
    assert_eq!(told[0]["segments"], 511);
    fixture.line("check disk.img -q").good();
    assert_eq!(fixture.line("cat disk.img:/file").bytes, vec![9; 5 << 20]);
    fixture.put("large", vec![8; 70 << 20]);
    fixture.line("cp large disk.img:/").good();
    fixture.line("check disk.img -q").good();
    for smaller in ["-1M", "64M", "--minimum"] {
        let refused = fixture.line(&format!("resize disk.img {smaller}")).bad(1);
        assert!(refused.contains("no way to become smaller"), "{refused}");
    }
    assert!(fixture.line("resize disk.img +1M --undo log").bad(2).contains("undo log"));
    fixture.line("check disk.img -q").good();
}
