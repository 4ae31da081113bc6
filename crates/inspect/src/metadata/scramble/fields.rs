//! Fields of structures by their names.

use drystone_ondisk::Field;
use std::ops::Range;

/// Where a field of a table lies. The name must be one of the table's: any other is an empty place.
pub(super) fn place(fields: &[Field], name: &str) -> Range<usize> {
    let found = fields.iter().find(|field| field.name == name);
    debug_assert!(found.is_some(), "no field {name}");
    found.map_or(0..0, |field| field.offset..field.offset + field.length)
}

/// The bytes of a field as a number; absent bytes count as zero.
pub(super) fn get(bytes: &[u8], fields: &[Field], name: &str) -> u64 {
    let field = bytes.get(place(fields, name)).unwrap_or_default();
    field.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Stores a number in a field, as far as it fits.
pub(super) fn set(bytes: &mut [u8], fields: &[Field], name: &str, number: u64) {
    if let Some(field) = bytes.get_mut(place(fields, name)) {
        for (byte, new) in field.iter_mut().zip(number.to_le_bytes()) {
            *byte = new;
        }
    }
}
