//! Settings and identity.

use crate::converting::features;
use crate::support::Sample;
use drystone::reshape::{MountOptionChange, ReservedSpace, Tuning};
use drystone::{ChangeOptions, ErrorCause, ErrorPolicy, Features, HashVersion, Image, tune_image};

const UUID: [u8; 16] = *b"\x12\x34\x56\x78\x9a\xbc\x4e\xf0\x81\x23\x45\x67\x89\xab\xcd\xef";

pub fn label(text: &str) -> Tuning {
    Tuning::default().label(text.as_bytes().to_vec())
}

#[test]
fn every_setting_is_what_dumpe2fs_shows() {
    let Some(sample) = Sample::new("default", 16) else { return };
    let before = sample.tree();
    let tuning = Tuning::default()
        .label(b"sixteen bytes ok".to_vec())
        .uuid(UUID)
        .reserved(ReservedSpace::Percent(2.0))
        .reserved_user(7)
        .reserved_group(8)
        .error_policy(ErrorPolicy::ReadOnly)
        .mount_options(MountOptionChange::parse("discard,^acl,journal_data").unwrap())
        .extended_mount_options(b"stripe=8".to_vec())
        .max_mount_count(30)
        .mount_count(3)
        .check_interval_seconds(86_400)
        .check_time_seconds(0)
        .last_mounted(b"/srv".to_vec())
        .raid_stride_blocks(16)
        .raid_stripe_blocks(64)
        .hash_version(HashVersion::Tea);
    tune_image(&sample.path(), &tuning, &ChangeOptions::default(), &mut |_| {}).unwrap();
    for (name, value) in [
        ("Filesystem volume name", "sixteen bytes ok"),
        ("Filesystem UUID", "12345678-9abc-4ef0-8123-456789abcdef"),
        ("Reserved block count", "81"),
        ("Reserved blocks uid", "7 (user lp)"),
        ("Reserved blocks gid", "8 (group mail)"),
        ("Errors behavior", "Remount read-only"),
        ("Default mount options", "journal_data user_xattr discard"),
        ("Mount options", "stripe=8"),
        ("Maximum mount count", "30"),
        ("Mount count", "3"),
        ("Check interval", "86400 (1 day)"),
        ("Last mounted on", "/srv"),
        ("RAID stride", "16"),
        ("RAID stripe width", "64"),
        ("Default directory hash", "tea"),
    ] {
        let found = sample.field(name);
        let is_same = found == value || found.split(" (").next() == value.split(" (").next();
        assert!(is_same, "{name}: {found}");
    }
    sample.judge("tuned", &before);
}

/// As in images that were made on machines where C's characters are unsigned.
#[test]
fn another_hash_keeps_the_signedness_of_old_indexes() {
    let Some(sample) = Sample::new("default", 16) else { return };
    sample.edit("ssv flags 2");
    let names: Vec<String> = (0..400).map(|number| format!("/names/größe-{number}")).collect();
    let image = Image::open(sample.path()).unwrap();
    image.fs().create_dir("/names").unwrap();
    for name in &names {
        image.fs().write(name, b"").unwrap();
    }
    image.close().unwrap();
    let tuning = Tuning::default().hash_version(HashVersion::Tea);
    tune_image(&sample.path(), &tuning, &ChangeOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(sample.field("Default directory hash"), "tea");
    assert_eq!(sample.field("Filesystem flags"), "unsigned_directory_hash");
    let image = Image::open(sample.path()).unwrap();
    assert!(names.iter().all(|name| image.fs().metadata(name).is_ok()));
    image.close().unwrap();
}

#[test]
fn features_bring_what_they_need() {
    let Some(sample) = Sample::new("ext2-1k", 16) else { return };
    let tune = |change: &str| {
        tune_image(&sample.path(), &features(change), &ChangeOptions::default(), &mut |_| {})
    };
    let error = tune("orphan_file").unwrap_err().to_string();
    assert!(error.contains("orphan_file needs the feature has_journal"), "{error}");
    for request in ["feature -dir_index", "ssv hash_seed null", "ssv def_hash_version 0"] {
        sample.edit(request);
    }
    sample.edit("ssv flags 0");
    tune("dir_index").unwrap();
    assert_eq!(sample.field("Default directory hash"), "half_md4");
    assert_eq!(sample.field("Filesystem flags"), "signed_directory_hash");
    assert_ne!(sample.field("Directory Hash Seed"), "");
}

#[test]
fn the_identity_changes_whatever_checksums_depend_on_it() {
    for name in ["default-1k", "group-checksums", "no-checksums", "ext2-1k", "mmp"] {
        let Some(sample) = Sample::new(name, 16) else { return };
        if name != "mmp" {
            // To be changed, that one takes ten seconds to open.
            sample.fill(1, 60);
        }
        let before = sample.tree();
        let tuning = Tuning::default().uuid(UUID);
        tune_image(&sample.path(), &tuning, &ChangeOptions::default(), &mut |_| {}).unwrap();
        sample.judge("another UUID", &before);
        assert_eq!(sample.field("Filesystem UUID"), "12345678-9abc-4ef0-8123-456789abcdef");
    }
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let Some(sample) = Sample::new("verity-encrypt", 16) else { return };
    let before = std::fs::read(sample.path()).unwrap();
    let refused = |tuning: Tuning| {
        let error = tune_image(&sample.path(), &tuning, &ChangeOptions::default(), &mut |_| {})
            .unwrap_err();
        assert!(matches!(error.cause(), ErrorCause::Reshape(_)), "{error}");
        error.to_string()
    };
    assert!(refused(label("seventeen bytes!!")).contains("at most 16 bytes"));
    // The set has stable_inodes.
    let uuid = Tuning::default().uuid(UUID);
    assert!(refused(uuid).contains("stable_inodes"));
    let unstable = Features::parse("^stable_inodes").unwrap();
    let unstable = Tuning::default().features(unstable);
    assert!(refused(unstable).contains("encrypted files"));
    let half = Tuning::default().reserved(ReservedSpace::Percent(51.0));
    assert!(refused(half).contains("0 to 50"));
    assert!(std::fs::read(sample.path()).unwrap() == before);
    assert!(!sample.beside("disk.img.undo").exists());
}

#[test]
fn a_journal_is_replayed_first() {
    let Some(sample) = Sample::new("default", 16) else { return };
    let image = Image::open(sample.path()).unwrap();
    let context = drystone::vfs::RequestContext::superuser();
    let system = image.file_system();
    let made =
        system.create(&context, system.root(), b"x", drystone::vfs::NewNode::Directory, 0o755);
    system.forget(made.unwrap().inode, 1);
    system.sync().unwrap();
    // As after a crash.
    drop(image);
    tune_image(&sample.path(), &label("new"), &ChangeOptions::default(), &mut |_| {}).unwrap();
    let tree = sample.tree();
    assert!(tree.entries.keys().any(|path| path.0 == b"/x"));
    sample.judge("recovered", &tree);
}

#[test]
fn features_come_and_go() {
    for (name, lists) in [
        ("default", &["^has_journal", "has_journal,orphan_file", "^orphan_file", "quota"][..]),
        ("default-1k", &["metadata_csum_seed", "quota,project", "^project", "project", "^quota"]),
        ("modern", &["^metadata_csum_seed", "^orphan_file", "^has_journal"]),
        ("ext2-1k", &["has_journal", "extent,huge_file,dir_nlink,large_dir", "^has_journal"]),
        ("bigalloc", &["^has_journal", "has_journal,orphan_file", "quota"]),
        ("group-checksums", &["^has_journal", "has_journal", "quota"]),
    ] {
        let Some(sample) = Sample::new(name, 64) else { return };
        sample.fill(2, 60);
        let before = sample.tree();
        for list in lists {
            // With another UUID, the seed isn't the one that follows from it.
            let uuid = Some([list.len() as u8; 16]);
            let features = Features::parse(list).unwrap();
            let tuning = Tuning::default().features(features).uuid(uuid);
            let tuned = tune_image(&sample.path(), &tuning, &ChangeOptions::default(), &mut |_| {});
            assert!(tuned.is_ok(), "{name} {list}: {tuned:?}");
            sample.judge(list, &before);
        }
        sample.fill(3, 40);
        let after = sample.tree();
        sample.judge("filled", &after);
    }
}

/// What one change frees or makes, the next one sees.
#[test]
fn several_features_change_at_once() {
    let Some(sample) = Sample::new("default", 64) else { return };
    sample.fill(2, 60);
    let before = sample.tree();
    // The inode of an orphan file that goes is nobody's any more.
    for list in ["^quota,orphan_file", "^orphan_file,quota", "^has_journal,project"] {
        let features = Features::parse(list).unwrap();
        let tuning = Tuning::default().features(features).uuid(UUID);
        let tuned = tune_image(&sample.path(), &tuning, &ChangeOptions::default(), &mut |_| {});
        assert!(tuned.is_ok(), "{list}: {tuned:?}");
        sample.judge(list, &before);
    }
}

#[test]
fn a_journal_gets_another_size() {
    let Some(sample) = Sample::new("default-1k", 64) else { return };
    let before = sample.tree();
    let tuning = Tuning::default().journal_bytes(2 << 20);
    tune_image(&sample.path(), &tuning, &ChangeOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(sample.field("Total journal size"), "2048k");
    sample.judge("a small journal", &before);
    let features = Features::parse("bigalloc").unwrap();
    let tuning = Tuning::default().features(features);
    let refused =
        tune_image(&sample.path(), &tuning, &ChangeOptions::default(), &mut |_| {}).unwrap_err();
    assert!(refused.to_string().contains("can't get bigalloc"), "{refused}");
}
