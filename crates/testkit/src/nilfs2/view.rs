//! What the kernel shows of an image of NILFS2.

use std::collections::BTreeMap;
use std::io;

use crate::operations::Word;
use crate::tree::{PathFacts, TreeOptions, TreeSnapshot, from_facts};

/// The size of the largest file whose content is listed; `list.py` has it too.
const CONTENT_BYTES_MAX: u64 = 1 << 30;

/// A line of `lscp -a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointLine {
    /// The checkpoint's number.
    pub number: u64,
    /// It is a snapshot.
    pub is_snapshot: bool,
    /// It is minor: the user has changed nothing since the last one.
    pub is_minor: bool,
    /// Blocks of the ifile and of its files.
    pub blocks: u64,
    /// Inodes in use.
    pub inodes: u64,
}

/// A line of `lssu -a -l -p 0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentLine {
    /// The segment's number.
    pub number: u64,
    /// It is being written, or is the next to be.
    pub is_active: bool,
    /// It has been written and isn't reclaimed yet.
    pub is_dirty: bool,
    /// It can't be used.
    pub is_bad: bool,
    /// Blocks written to it.
    pub blocks: u64,
    /// Of these, blocks in use.
    pub blocks_in_use: u64,
}

/// Everything that the kernel shows of an image.
///
/// The facts of a tree are those that [`TreeSnapshot::read`] gives with [`Nilfs2View::tree_options`].
#[derive(Clone, Debug, Default)]
pub struct Nilfs2View {
    /// The tree as it is now.
    pub current: TreeSnapshot,
    /// The tree of each snapshot.
    pub snapshots: BTreeMap<u64, TreeSnapshot>,
    /// All checkpoints, in ascending order.
    pub checkpoints: Vec<CheckpointLine>,
    /// All segments.
    pub segments: Vec<SegmentLine>,
}

impl Nilfs2View {
    /// How an engine's tree has to be read to be compared.
    #[must_use]
    pub fn tree_options() -> TreeOptions {
        TreeOptions {
            times: true,
            change_times: true,
            inode_numbers: true,
            content_bytes_max: CONTENT_BYTES_MAX,
            paths_ignored: Vec::new(),
            ..TreeOptions::default()
        }
    }

    /// Reads the output of `view` or of several calls of `list`: the tree named `current` and the
    /// numbered ones.
    pub fn parse(output: &str) -> io::Result<Nilfs2View> {
        let mut view = Nilfs2View::default();
        let mut trees: BTreeMap<&str, Vec<(Word, PathFacts)>> = BTreeMap::new();
        let mut heading = "";
        for line in output.lines() {
            let parsed = match line.strip_prefix('@').map(|line| line.split_once('\t')) {
                Some(Some((name, path))) => {
                    heading = "";
                    path_and_facts(path).map(|entry| trees.entry(name).or_default().push(entry))
                }
                Some(None) => {
                    heading = line;
                    Some(())
                }
                None if line.trim_start().starts_with(|first: char| !first.is_ascii_digit()) => {
                    Some(())
                }
                None => match heading {
                    "@checkpoints" => checkpoint(line).map(|line| view.checkpoints.push(line)),
                    "@segments" => segment(line).map(|line| view.segments.push(line)),
                    _ => Some(()),
                },
            };
            parsed.ok_or_else(|| io::Error::other(format!("{heading}: {line}")))?;
        }
        for (name, entries) in trees {
            let tree = from_facts(entries);
            match name.parse() {
                Ok(number) => drop(view.snapshots.insert(number, tree)),
                Err(_) if name == "current" => view.current = tree,
                Err(_) => return Err(io::Error::other(format!("{name}: no name of a tree"))),
            }
        }
        Ok(view)
    }
}

/// Reads hexadecimal digits.
fn bytes(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()).collect()
}

fn path_and_facts(line: &str) -> Option<(Word, PathFacts)> {
    let mut fields = line.split('\t');
    let path = Word(bytes(fields.next()?)?);
    let facts = fields.map(|field| {
        let (name, value) = field.split_once('=')?;
        let value = match name {
            "target" => Word(bytes(value)?).to_string(),
            _ => value.to_owned(),
        };
        Some((name.to_owned(), value))
    });
    Some((path, facts.collect::<Option<PathFacts>>()?))
}

/// `CNO DATE TIME MODE FLG BLKCNT ICNT`
fn checkpoint(line: &str) -> Option<CheckpointLine> {
    let fields: Vec<_> = line.split_whitespace().collect();
    let &[number, _, _, mode, flags, blocks, inodes] = &*fields else { return None };
    Some(CheckpointLine {
        number: number.parse().ok()?,
        is_snapshot: mode == "ss",
        is_minor: flags.contains('i'),
        blocks: blocks.parse().ok()?,
        inodes: inodes.parse().ok()?,
    })
}

/// `SEGNUM DATE TIME STAT NBLOCKS NLIVEBLOCKS (PERCENT)`; date and time are dashes in a clean one.
fn segment(line: &str) -> Option<SegmentLine> {
    let fields: Vec<_> = line.split_whitespace().collect();
    let flags_at =
        fields.iter().position(|field| field.len() == 4 && field.starts_with(['a', '-']))?;
    let flags = fields[flags_at];
    Some(SegmentLine {
        number: fields.first()?.parse().ok()?,
        is_active: flags.starts_with('a'),
        is_dirty: flags.contains('d'),
        is_bad: flags.contains('e'),
        blocks: fields.get(flags_at + 1)?.parse().ok()?,
        blocks_in_use: fields.get(flags_at + 2)?.parse().ok()?,
    })
}
