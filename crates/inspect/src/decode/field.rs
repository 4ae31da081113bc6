//! A decoded structure: its fields, its parts, its checksum and its problems.

use drystone_ext4_format::htree::IndexKind;
use drystone_ext4_format::{GroupNumber, InodeNumber};
use drystone_ondisk::Field;
use serde::Serialize;
use std::fmt;

/// The longest number.
const NUMBER_BYTES_MAX: usize = 8;
/// Fields that are bytes, although they are as short as a number.
const ARRAYS: [&str; 3] = ["backup_bgs", "encrypt_algos", "s_padding2"];

/// Whether the checksum of a structure is right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChecksumVerdict {
    /// The structure has none.
    #[default]
    None,
    /// It is right.
    Good,
    /// It is wrong.
    Wrong,
}

/// What a check says is wrong.
pub(crate) trait CheckProblem: fmt::Display {
    /// Whether that is a checksum.
    fn is_checksum(&self) -> bool;
}

impl CheckProblem for drystone_ext4_format::Corrupt {
    fn is_checksum(&self) -> bool {
        self.is_checksum()
    }
}

impl CheckProblem for drystone_jbd2_format::Corrupt {
    fn is_checksum(&self) -> bool {
        self.is_checksum()
    }
}

/// The kind of a structure, which determines how its checksum is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Structure {
    /// It has no checksum of its own; one of a structure around it may cover it.
    #[default]
    Plain,
    Superblock,
    Descriptor(GroupNumber),
    /// A block bitmap, whose checksum is in the descriptor.
    BlockBitmap(GroupNumber),
    /// An inode bitmap, whose checksum is in the descriptor.
    InodeBitmap(GroupNumber),
    Inode(InodeNumber),
    /// A node in a block, of the extent tree of this inode.
    ExtentNode(InodeNumber),
    /// Records of this directory.
    Records(InodeNumber),
    /// A block of the index of this directory.
    Index(InodeNumber, IndexKind),
    /// A block of extended attributes.
    Attributes,
    /// A block of the orphan file, which is this inode.
    Orphans(InodeNumber),
    MultiMount,
    /// The journal's superblock.
    Journal,
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum FieldValue {
    /// A number.
    Number(u64),
    /// Bytes, as hexadecimal digits.
    Bytes(String),
}

impl FieldValue {
    /// The number that is stored in at most eight bytes.
    pub(crate) fn number_of(raw: &[u8], is_big_endian: bool) -> Self {
        Self::Number(number(raw, is_big_endian))
    }

    pub(crate) fn bytes_of(raw: &[u8]) -> Self {
        Self::Bytes(super::meaning::digits(raw))
    }
}

impl fmt::Display for FieldValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Bytes(digits) => f.write_str(digits),
        }
    }
}

/// One field of a structure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DecodedField {
    /// Its name, as in the format's description.
    pub name: String,
    /// Where it starts on the device, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub length: usize,
    /// What is stored.
    pub value: FieldValue,
    /// What the value means, where a number alone doesn't say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meaning: Option<String>,
}

/// A structure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Decoded {
    /// What it is.
    pub name: String,
    /// Where it starts on the device, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
    /// Whether its checksum is right.
    pub checksum: ChecksumVerdict,
    /// How its checksum is computed.
    #[serde(skip)]
    pub(crate) structure: Structure,
    /// What is wrong with it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// Its fields.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<DecodedField>,
    /// Structures inside it, or that belong to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Decoded>,
}

impl Decoded {
    /// Whether the structure and all its parts have good checksums and no problems.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.checksum != ChecksumVerdict::Wrong
            && self.problems.is_empty()
            && self.parts.iter().all(Self::is_sound)
    }

    pub(crate) fn new(name: impl Into<String>, offset: u64, length: u64) -> Self {
        Self {
            name: name.into(),
            offset,
            length,
            checksum: ChecksumVerdict::None,
            structure: Structure::Plain,
            problems: Vec::new(),
            fields: Vec::new(),
            parts: Vec::new(),
        }
    }

    /// Notes the outcome of a check that compares the checksum. `exists`: whether the structure has one. After another
    /// problem the checksum is unknown: it has no place, or wasn't compared.
    pub(crate) fn checksum<E: CheckProblem>(&mut self, exists: bool, outcome: Result<(), E>) {
        self.checksum = match &outcome {
            Ok(()) if exists => ChecksumVerdict::Good,
            Err(problem) if exists && problem.is_checksum() => ChecksumVerdict::Wrong,
            _ => ChecksumVerdict::None,
        };
        self.problem(outcome);
    }

    /// Notes the outcome of a check.
    pub(crate) fn problem<T, E: fmt::Display>(&mut self, outcome: Result<T, E>) {
        if let Err(problem) = outcome {
            let text = problem.to_string();
            if !self.problems.contains(&text) {
                self.problems.push(text);
            }
        }
    }
}

/// Decodes the fields of one structure.
pub(crate) struct Builder<'b> {
    pub decoded: Decoded,
    bytes: &'b [u8],
    is_big_endian: bool,
}

impl<'b> Builder<'b> {
    /// For the structure of `bytes`, which start at `offset` on the device.
    pub fn new(name: impl Into<String>, offset: u64, bytes: &'b [u8]) -> Self {
        let decoded = Decoded::new(name, offset, bytes.len() as u64);
        Self { decoded, bytes, is_big_endian: false }
    }

    /// Sets how the checksum is computed.
    pub fn structure(mut self, structure: Structure) -> Self {
        self.decoded.structure = structure;
        self
    }

    pub fn big_endian(mut self) -> Self {
        self.is_big_endian = true;
        self
    }

    /// Adds fields of a table, which starts `base` bytes into the structure.
    pub fn table(
        &mut self,
        base: usize,
        fields: &[Field],
        meaning: &dyn Fn(&str, u64) -> Option<String>,
    ) {
        for field in fields {
            self.field(field.name, field.behind(base).offset, field.length, meaning);
        }
    }

    /// Adds a field, unless the structure ends before.
    pub fn field(
        &mut self,
        name: &str,
        at: usize,
        length: usize,
        meaning: &dyn Fn(&str, u64) -> Option<String>,
    ) {
        let Some(raw) = self.bytes.get(at..at + length) else { return };
        let value = if length <= NUMBER_BYTES_MAX && !ARRAYS.contains(&name) {
            FieldValue::number_of(raw, self.is_big_endian)
        } else {
            FieldValue::bytes_of(raw)
        };
        let meaning = match &value {
            FieldValue::Number(number) => meaning(name, *number),
            FieldValue::Bytes(_) => super::meaning::of_bytes(name, raw),
        };
        let offset = self.decoded.offset + at as u64;
        let name = name.to_owned();
        self.decoded.fields.push(DecodedField { name, offset, length, value, meaning });
    }

    /// Adds a part of a table with a prefix to each name.
    pub fn prefixed(&mut self, prefix: &str, base: usize, fields: &[Field]) {
        for field in fields {
            let name = format!("{prefix}{}", field.name);
            self.field(&name, base + field.offset, field.length, &|_, _| None);
        }
    }
}

fn number(raw: &[u8], is_big_endian: bool) -> u64 {
    let add = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
    if is_big_endian { raw.iter().fold(0, add) } else { raw.iter().rev().fold(0, add) }
}
