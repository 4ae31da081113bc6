//! Sets single fields of an image, for tests that need it damaged and for repairs by hand.
//!
//! `find` looks for a field in what [`inspect`] shows, `value` parses its new value, and `seal` computes the
//! checksum of the structure that the field is in. A checksum that was wrong before is right afterwards.
//!
//! Nothing else is updated: copies of the superblock and of descriptors keep their bytes, and so do checksums elsewhere
//! that have the field as their seed, such as those of an inode's blocks when its generation changes.

mod find;
mod seal;
mod value;

use crate::decode::{FieldValue, ImagePart, Structure, inspect, of_bytes};
use crate::error::{InspectError, Result};
use crate::image::InspectedImage;
use drystone_blockdev::BlockDevice;
use find::FoundField;
use serde::Serialize;

/// How fields are set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SetOptions {
    /// Leaves checksums as they are.
    pub keep_checksums: bool,
}

drystone_options::setters! {
    SetOptions {
        keep_checksums: bool,
    }
}

/// A field that was set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SetField {
    /// The structure that it is in.
    pub structure: String,
    /// Its name.
    pub field: String,
    /// Where it starts on the device, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub length: usize,
    /// What was stored.
    pub before: FieldValue,
    /// What that meant, where the value alone doesn't say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before_meaning: Option<String>,
    /// What is stored now.
    pub after: FieldValue,
    /// What that means, where the value alone doesn't say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_meaning: Option<String>,
}

/// A field and the bytes that it gets.
struct FieldChange {
    found: FoundField,
    bytes: Vec<u8>,
}

impl FieldChange {
    /// Whether two fields share bits.
    fn overlaps(&self, other: &Self) -> bool {
        let (one, two) = (&self.found, &other.found);
        let is_apart = one.offset + one.length as u64 <= two.offset
            || two.offset + two.length as u64 <= one.offset;
        !is_apart && (one.bit.is_none() || two.bit.is_none() || one.bit == two.bit)
    }
}

/// Sets fields of a part of the image on `device`. Each assignment is `FIELD=VALUE`: a name as [`inspect`] shows it, or
/// `PART/FIELD`, and a value as text. Nothing is written unless all fields can be set.
///
/// # Errors
/// There is no such part or field, several fields have the name, or the value doesn't fit. After an error of the device,
/// or if a computed checksum has replaced a value, only some of the fields are set.
pub fn set_fields(
    device: &dyn BlockDevice,
    part: &ImagePart,
    assignments: &[String],
    options: SetOptions,
) -> Result<Vec<SetField>> {
    if matches!(part, ImagePart::Htree(_) | ImagePart::Extents(_)) {
        return Err(InspectError::missing("only fields of an inode or of a block can be set"));
    }
    let shown = inspect(device, part)?;
    // Without a usable superblock, only the superblock itself is shown.
    let image = InspectedImage::open(device).ok();
    let mut changes: Vec<FieldChange> = Vec::with_capacity(assignments.len());
    for assignment in assignments {
        let (found, value) = find::assigned(&shown, assignment)?;
        let change = FieldChange { bytes: value::encode(&found, value)?, found };
        if let Some(other) = changes.iter().find(|other| other.overlaps(&change)) {
            let problem = format!("it shares bytes with {}, which is set too", other.found.name);
            return Err(InspectError::unsettable(&change.found.name, problem));
        }
        changes.push(change);
    }
    let mut set = Vec::with_capacity(changes.len());
    for change in &changes {
        set.push(store(device, change)?);
    }
    if !options.keep_checksums {
        mend(device, image.as_ref(), &changes)?;
    }
    Ok(set)
}

/// Stores the bytes of a field.
fn store(device: &dyn BlockDevice, change: &FieldChange) -> Result<SetField> {
    let found = &change.found;
    let mut old = vec![0; found.length];
    device.read_at(found.offset, &mut old)?;
    let mut new = change.bytes.clone();
    if let Some(bit) = found.bit {
        new[0] = old[0] & !(1 << bit) | new[0] << bit;
    }
    device.write_at(found.offset, &new)?;
    let ((before, before_meaning), (after, after_meaning)) =
        (shown(found, &old), shown(found, &new));
    Ok(SetField {
        structure: found.structure_name.clone(),
        field: found.name.clone(),
        offset: found.offset,
        length: found.length,
        before,
        before_meaning,
        after,
        after_meaning,
    })
}

/// A value as it is shown, and what it means if it isn't a number.
fn shown(found: &FoundField, raw: &[u8]) -> (FieldValue, Option<String>) {
    if let Some(bit) = found.bit {
        return (FieldValue::Number(u64::from(raw[0] >> bit & 1)), None);
    }
    match found.is_number {
        true => (FieldValue::number_of(raw, found.is_big_endian()), None),
        false => (FieldValue::bytes_of(raw), of_bytes(&found.name, raw)),
    }
}

/// Computes the checksums of the structures that were changed. None may replace a value that was set.
fn mend(
    device: &dyn BlockDevice,
    image: Option<&InspectedImage<'_>>,
    changes: &[FieldChange],
) -> Result<()> {
    for change in changes {
        let holder = &change.found.holder;
        match (holder.structure, image) {
            (Structure::Superblock, _) => seal::superblock(device, holder)?,
            (_, Some(image)) => seal::of_image(device, image, holder)?,
            // Nothing else was found without it.
            (_, None) => {}
        }
    }
    for change in changes {
        let found = &change.found;
        let mut bytes = vec![0; found.length];
        device.read_at(found.offset, &mut bytes)?;
        let is_kept = match found.bit {
            Some(bit) => bytes[0] >> bit & 1 == change.bytes[0],
            None => bytes == change.bytes,
        };
        if !is_kept {
            let problem = "it is a checksum, which is computed afterwards: \
                           with --keep-checksum, what was set stays";
            return Err(InspectError::unsettable(&found.name, problem));
        }
    }
    Ok(())
}
