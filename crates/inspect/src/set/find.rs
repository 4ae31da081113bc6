//! Finds a field by the name that [`inspect`](crate::inspect) shows.

use crate::decode::{Decoded, DecodedField, FieldValue, Structure};
use crate::error::{InspectError, Result};
use drystone_ext4_format::dir::RawRecordHeader;
use drystone_ondisk::Field;

/// How many fields an error lists.
const LISTED_MAX: usize = 8;

/// The structure whose checksum covers a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChecksumHolder {
    pub structure: Structure,
    /// Where it starts on the device, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
}

/// A field that was found.
#[derive(Clone, Debug)]
pub(super) struct FoundField {
    /// The name of the structure that it is shown in.
    pub structure_name: String,
    pub name: String,
    /// Where it starts on the device, in bytes.
    pub offset: u64,
    pub length: usize,
    /// Which bit of the byte it is, if it is a bit of a bitmap.
    pub bit: Option<u8>,
    pub is_number: bool,
    pub holder: ChecksumHolder,
}

impl FoundField {
    pub fn is_big_endian(&self) -> bool {
        self.holder.structure == Structure::Journal
    }
}

impl ChecksumHolder {
    fn of(decoded: &Decoded) -> Self {
        let &Decoded { structure, offset, length, .. } = decoded;
        Self { structure, offset, length }
    }

    /// The structure whose checksum covers `part`: the part itself if it has one, otherwise this one.
    fn within(self, part: &Decoded) -> Self {
        let end = self.offset.saturating_add(self.length);
        let is_inside =
            self.offset <= part.offset && part.offset.saturating_add(part.length) <= end;
        let has_none = part.structure == Structure::Plain;
        if has_none && is_inside { self } else { Self::of(part) }
    }
}

/// The field and the value of `FIELD=VALUE`. Names of files and attributes may hold any character.
pub(super) fn assigned<'a>(shown: &Decoded, assignment: &'a str) -> Result<(FoundField, &'a str)> {
    let mut error = None;
    for (at, _) in assignment.match_indices('=') {
        let name = &assignment[..at];
        let mut found = Vec::new();
        enter(shown, ChecksumHolder::of(shown), name, &mut found);
        match found.len() {
            0 => drop(error.get_or_insert_with(|| unknown(shown, name))),
            1 => return Ok((found.remove(0), &assignment[at + 1..])),
            _ => return Err(ambiguous(name, &found)),
        }
    }
    Err(error.unwrap_or_else(|| {
        InspectError::unsettable(assignment, "there is no value: write FIELD=VALUE")
    }))
}

fn unknown(shown: &Decoded, name: &str) -> InspectError {
    let problem =
        format!("there is no such field in {}: 'drystone inspect' lists its fields", shown.name);
    InspectError::unsettable(name, problem)
}

fn ambiguous(name: &str, found: &[FoundField]) -> InspectError {
    let is_one_part = found.iter().all(|field| field.structure_name == found[0].structure_name);
    let choices: Vec<String> = found
        .iter()
        .take(LISTED_MAX)
        .map(|field| match is_one_part {
            true => format!("'{}@{:#x}'", field.name, field.offset),
            false => format!("'{}/{}'", field.structure_name, field.name),
        })
        .collect();
    let rest = if found.len() > LISTED_MAX { " and more" } else { "" };
    let problem =
        format!("several fields have this name: write one of {}{rest}", choices.join(", "));
    InspectError::unsettable(name, problem)
}

/// Looks in a structure for `FIELD`, and for `NAME/FIELD` if this is its name.
fn enter(part: &Decoded, holder: ChecksumHolder, text: &str, found: &mut Vec<FoundField>) {
    search(part, holder, text, found);
    for (at, _) in text.match_indices('/') {
        if is_called(&part.name, &text[..at]) {
            search(part, holder, &text[at + 1..], found);
        }
    }
}

/// A structure's own fields come before those of its parts.
fn search(decoded: &Decoded, holder: ChecksumHolder, text: &str, found: &mut Vec<FoundField>) {
    let own = own_fields(decoded, holder, text);
    if !own.is_empty() {
        return found.extend(own);
    }
    for part in &decoded.parts {
        enter(part, holder.within(part), text, found);
    }
}

/// Whether `text` is the name of a part, or whole words at the start of the name.
fn is_called(name: &str, text: &str) -> bool {
    let rest = name.strip_prefix(text).filter(|_| !text.is_empty());
    rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric()))
}

/// The fields of this name. `@` and an offset choose one of several.
fn own_fields(decoded: &Decoded, holder: ChecksumHolder, text: &str) -> Vec<FoundField> {
    let named = fields_named(decoded, holder, text);
    if !named.is_empty() {
        return named;
    }
    let place = text.rsplit_once('@').and_then(|(name, place)| {
        Some((name, u64::from_str_radix(place.strip_prefix("0x")?, 16).ok()?))
    });
    let Some((name, offset)) = place else { return Vec::new() };
    let mut named = fields_named(decoded, holder, name);
    named.retain(|field| field.offset == offset);
    named
}

fn fields_named(decoded: &Decoded, holder: ChecksumHolder, text: &str) -> Vec<FoundField> {
    let field = |name: &str, offset, length, is_number| FoundField {
        structure_name: decoded.name.clone(),
        name: name.to_owned(),
        offset,
        length,
        bit: None,
        is_number,
        holder,
    };
    let of_record = |record: &DecodedField, part: &Field| {
        field(text, record.offset + part.offset as u64, part.length, true)
    };
    let mut found = Vec::new();
    for shown in &decoded.fields {
        if let Some(parts) = record_of(decoded, shown) {
            // A record is shown with the number of its inode, which comes first.
            let wanted = match text.strip_prefix(&*shown.name) {
                Some("") => Some("inode"),
                rest => rest.and_then(|rest| rest.strip_prefix('.')),
            };
            let part = parts.iter().find(|part| Some(part.name) == wanted);
            found.extend(part.map(|part| of_record(shown, part)));
        } else if shown.name == text {
            let is_number = matches!(shown.value, FieldValue::Number(_));
            found.push(field(text, shown.offset, shown.length, is_number));
        }
    }
    if matches!(decoded.structure, Structure::BlockBitmap(_) | Structure::InodeBitmap(_)) {
        let number = text.strip_prefix("bit[").and_then(|text| text.strip_suffix(']'));
        let number = number.and_then(|text| text.parse::<u64>().ok());
        if let Some(number) = number.filter(|number| number / 8 < decoded.length) {
            let byte = field(text, decoded.offset + number / 8, 1, true);
            found.push(FoundField { bit: Some((number % 8) as u8), ..byte });
        }
    }
    found
}

/// The fixed fields of a directory's record, if that is what is shown.
fn record_of(decoded: &Decoded, shown: &DecodedField) -> Option<&'static [Field]> {
    let is_record = matches!(decoded.structure, Structure::Records(_))
        && shown.length > RawRecordHeader::FIELDS[0].length;
    is_record.then_some(RawRecordHeader::FIELDS)
}
