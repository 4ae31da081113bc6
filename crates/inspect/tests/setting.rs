//! Every field that is shown can be set, and the checksum of its structure is right afterwards.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use drystone_blockdev::{BlockDevice, MemoryDevice};
use drystone_inspect::{
    ChecksumVerdict, Decoded, DecodedField, FieldValue, ImagePart, SetOptions, inspect, set_fields,
};
use drystone_testkit::environment::number;
use drystone_testkit::judges::{FEATURE_SETS, Scratch, have, mke2fs};
use drystone_testkit::metadata_map::{BlockContent, MetadataMap};

/// Fields of each image that are set, unless `DRYSTONE_CHANGES` says how many.
const CHANGES: u64 = 20;

/// Fields without which a structure has no place for its checksum, or isn't shown as what it is.
const LEADING: [&str; 13] = [
    "magic",
    "max",
    "limit",
    "count",
    "record_length",
    "inode",
    "name_length",
    "file_type",
    "dot",
    "dotdot",
    "checksum_type",
    "extra_isize",
    "kind",
];

#[test]
fn what_is_shown_can_be_set() {
    if !have("mke2fs") {
        return;
    }
    let mut random = fastrand::Rng::with_seed(number("DRYSTONE_SEED").unwrap_or(1));
    for set in FEATURE_SETS.iter().step_by(3) {
        let scratch = Scratch::new("set").unwrap();
        let path = scratch.join("disk.img");
        mke2fs(&path, set, set.size_mib_min.max(8) << 20).unwrap().expect_clean(set.name);
        let base = MemoryDevice::from_bytes(&std::fs::read(&path).unwrap());
        let map = MetadataMap::of(base.snapshot());
        // Copies aren't all shown as parts of their own.
        let blocks = map.blocks.iter().filter(|(_, content)| **content != BlockContent::Log);
        let blocks: Vec<ImagePart> =
            blocks.map(|(block, _)| ImagePart::Block((*block).into())).collect();
        let mut parts = vec![ImagePart::Superblock, ImagePart::Journal];
        parts.extend((0..2).map(|group| ImagePart::Group(group.into())));
        parts.extend([2, 7, 8, 11].map(|inode| ImagePart::Inode(inode.into())));
        for _ in 0..number("DRYSTONE_CHANGES").unwrap_or(0).max(CHANGES) {
            let from = if random.bool() { &parts } else { &blocks };
            let part = &from[random.usize(..from.len())];
            let device = base.snapshot();
            let Ok(shown) = inspect(&device, part) else { continue };
            let mut fields = Vec::new();
            all_fields(&shown, &mut fields);
            if !fields.is_empty() {
                let (structure, field) = &fields[random.usize(..fields.len())];
                let context = format!("{} {part:?}: {}", set.name, field.name);
                set_one(&device, part, structure, field, &mut random, &context);
            }
        }
    }
}

/// All fields, each with the structure that it is in.
fn all_fields<'d>(decoded: &'d Decoded, found: &mut Vec<(&'d Decoded, &'d DecodedField)>) {
    found.extend(decoded.fields.iter().map(|field| (decoded, field)));
    decoded.parts.iter().for_each(|part| all_fields(part, found));
}

fn set_one(
    device: &MemoryDevice,
    part: &ImagePart,
    structure: &Decoded,
    field: &DecodedField,
    random: &mut fastrand::Rng,
    context: &str,
) {
    let value = match &field.value {
        // A directory's record is shown with the number of its inode.
        FieldValue::Number(_) if field.length > 8 => random.u32(..).to_string(),
        FieldValue::Number(_) => {
            (random.u64(..) >> (64 - 8 * field.length.min(8) as u32)).to_string()
        }
        FieldValue::Bytes(_) => {
            let digits: String =
                (0..field.length).map(|_| format!("{:02x}", random.u8(..))).collect();
            format!("hex:{digits}")
        }
    };
    let mut before = vec![0; device.size_bytes() as usize];
    device.read_at(0, &mut before).unwrap();
    let assignment = format!("{}/{}@{:#x}={value}", structure.name, field.name, field.offset);
    let set = set_fields(device, part, &[assignment], SetOptions::default());
    let is_checksum = field.name.contains("checksum");
    let set = match set {
        Ok(set) => set.into_iter().next().unwrap(),
        Err(error) => {
            assert!(is_checksum && error.to_string().contains("computed"), "{context}: {error}");
            return;
        }
    };
    assert_eq!((set.offset, &set.before), (field.offset, &field.value), "{context}");
    let wanted = match value.strip_prefix("hex:") {
        Some(digits) => FieldValue::Bytes(digits.to_owned()),
        None => FieldValue::Number(value.parse().unwrap()),
    };
    assert_eq!(set.after, wanted, "{context}");
    let is_leading = LEADING.iter().any(|name| field.name.rsplit('.').next() == Some(name));
    // Nothing else changes than the field and the checksums of one structure and of its group.
    let mut after = vec![0; before.len()];
    device.read_at(0, &mut after).unwrap();
    let changed = (0..after.len()).filter(|&at| before[at] != after[at]).count();
    assert!(changed <= set.length + 8, "{context}: {changed} bytes");
    if is_leading || field.name.starts_with("feature") {
        return;
    }
    let Ok(shown) = inspect(device, part) else { return };
    let mut structures = Vec::new();
    all_fields(&shown, &mut structures);
    let again = structures
        .iter()
        .find(|(found, _)| (found.offset, found.length) == (structure.offset, structure.length));
    // A structure that something else leads to may be elsewhere now.
    if let Some((again, _)) = again
        && structure.checksum == ChecksumVerdict::Good
    {
        // One that is unusable otherwise has no verdict.
        assert_ne!(again.checksum, ChecksumVerdict::Wrong, "{context}: {:?}", again.problems);
    }
}
