//! Maps of sparse files: old GNU headers, and the three formats in PAX records.
//!
//! All come down to pairs of offset and length: where data lies in the file. The data follows in
//! the archive without the holes.
//!
//! # Reference
//! GNU tar manual, "Storing Sparse Files".

use super::entry::DataRun;
use super::error::TarProblem;
use super::header::{BLOCK_BYTES, RawSparse, number};
use crate::bytes::decimal;

/// Most bytes of a map before a file's data, as of one in an extended header.
pub(crate) const MAP_BYTES_MAX: u64 = 64 << 20;

/// A piece of a file that has data: offset and length in bytes.
pub(crate) type SparsePiece = (u64, u64);

/// Adds the pieces of an old GNU header or extension; an empty slot ends them.
pub(crate) fn add_raw(
    pieces: &mut Vec<SparsePiece>,
    slots: &[RawSparse],
) -> Result<(), TarProblem> {
    for slot in slots {
        if slot.length[0] == 0 {
            break;
        }
        let field = |field: &[u8], name| {
            number(field)
                .and_then(|value| value.try_into().ok())
                .ok_or(TarProblem::Field { field: name })
        };
        pieces.push((field(&slot.offset, "sparse offset")?, field(&slot.length, "sparse length")?));
    }
    Ok(())
}

/// The pieces of formats 0.0 and 0.1: numbers in turn.
pub(crate) fn from_numbers(numbers: &[u64]) -> Result<Vec<SparsePiece>, TarProblem> {
    let (pairs, []) = numbers.as_chunks::<2>() else {
        return Err(TarProblem::Sparse { what: "ends within a piece" });
    };
    Ok(pairs.iter().map(|[offset, length]| (*offset, *length)).collect())
}

/// The map of format 1.0 at the start of the data: lines of decimal numbers, the first of which
/// says how many pieces follow. Blocks are requested as they are needed; returns how many there
/// were.
pub(crate) fn from_data(
    mut next_block: impl FnMut(u64) -> Result<[u8; 512], TarProblem>,
) -> Result<(Vec<SparsePiece>, u64), TarProblem> {
    let mut blocks = 0;
    let mut block = [0; 512];
    let mut at = block.len();
    let mut line = || -> Result<u64, TarProblem> {
        // More digits than a number of 64 bits has.
        const DIGITS_MAX: usize = 20;
        let mut digits = Vec::new();
        loop {
            if at == block.len() {
                if blocks >= MAP_BYTES_MAX / BLOCK_BYTES {
                    return Err(TarProblem::Sparse { what: "has too many pieces" });
                }
                block = next_block(blocks)?;
                blocks += 1;
                at = 0;
            }
            let byte = block[at];
            at += 1;
            if byte == b'\n' {
                break;
            }
            digits.push(byte);
            if digits.len() > DIGITS_MAX {
                break;
            }
        }
        decimal(&digits).ok_or(TarProblem::Sparse { what: "has a line that isn't a number" })
    };
    let count = line()?;
    let mut pieces = Vec::new();
    for _ in 0..count {
        pieces.push((line()?, line()?));
    }
    Ok((pieces, blocks))
}

/// The map of format 1.0 as it stands before the data, filled up to whole blocks. An empty piece marks
/// the end of a file that ends in a hole.
pub(crate) fn to_data(runs: &[DataRun], size: u64) -> Vec<u8> {
    let ends_in_hole = runs.last().is_none_or(|run| run.offset + run.length < size);
    let pieces = runs.iter().map(|run| (run.offset, run.length));
    let pieces = pieces.chain(ends_in_hole.then_some((size, 0)));
    let mut map = format!("{}\n", runs.len() + usize::from(ends_in_hole));
    map.extend(pieces.map(|(offset, length)| format!("{offset}\n{length}\n")));
    let mut map = map.into_bytes();
    map.resize(map.len().next_multiple_of(BLOCK_BYTES as usize), 0);
    map
}

/// Where the pieces' data is, if the map is consistent: ascending pieces within the file that
/// together have the `stored` bytes of data from `position`.
pub(crate) fn runs(
    pieces: &[SparsePiece],
    size: u64,
    position: u64,
    stored: u64,
) -> Result<Vec<DataRun>, TarProblem> {
    let wrong = |what| TarProblem::Sparse { what };
    let mut runs: Vec<DataRun> = Vec::new();
    let mut file_end = 0;
    let mut used = 0;
    for &(offset, length) in pieces {
        let end = offset.checked_add(length).ok_or(wrong("overflows"))?;
        if end > size {
            return Err(wrong("goes beyond the file's size"));
        }
        if offset < file_end {
            return Err(wrong("has pieces that overlap or descend"));
        }
        file_end = end;
        if length == 0 {
            continue;
        }
        match runs.last_mut() {
            Some(last) if last.offset + last.length == offset => last.length += length,
            _ => runs.push(DataRun { offset, length, position: position + used }),
        }
        used += length;
    }
    if used > stored {
        return Err(wrong("needs more data than there is"));
    }
    if used < stored {
        return Err(wrong("has no place for some of the data"));
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_that_make_sense() {
        let run = |offset, length, position| DataRun { offset, length, position };
        let pieces = [(0, 512), (512, 512), (4096, 100), (9000, 0)];
        let expected = Ok(vec![run(0, 1024, 70), run(4096, 100, 1094)]);
        assert_eq!(runs(&pieces, 9000, 70, 1124), expected);
        assert_eq!(runs(&[], 1 << 40, 0, 0), Ok(vec![]));
    }

    #[test]
    fn maps_that_do_not() {
        for (pieces, what) in [
            (&[(0, 11)][..], "beyond"),
            (&[(5, 2), (4, 1)], "overlap"),
            (&[(u64::MAX, 2)], "overflows"),
            (&[(0, 10)], "more data"),
            (&[(0, 8)], "no place"),
            (&[], "no place"),
        ] {
            let problem = runs(pieces, 10, 0, 9).expect_err("makes no sense");
            assert!(problem.to_string().contains(what), "{problem}");
        }
        assert!(from_numbers(&[1, 2, 3]).is_err());
    }

    #[test]
    fn maps_that_are_written() {
        let map = |pieces: &[SparsePiece], size| {
            let run = |&(offset, length): &SparsePiece| DataRun { offset, length, position: 0 };
            to_data(&pieces.iter().map(run).collect::<Vec<_>>(), size)
        };
        let whole = map(&[(4096, 4096), (12288, 1)], 12289);
        assert_eq!(whole.len(), 512);
        assert!(whole.starts_with(b"2\n4096\n4096\n12288\n1\n\0"));
        assert!(map(&[], 70000).starts_with(b"1\n70000\n0\n\0"));
        assert!(map(&[(0, 5)], 6).starts_with(b"2\n0\n5\n6\n0\n\0"));
    }

    /// A few KiB of a compressed archive may hold as many pieces as anybody likes.
    #[test]
    fn maps_have_an_end() {
        let block = |index: u64| {
            let mut block: [u8; 512] = std::array::from_fn(|at| b"0\n"[at % 2]);
            if index == 0 {
                block[..10].copy_from_slice(b"020000000\n");
            }
            Ok(block)
        };
        let problem = TarProblem::Sparse { what: "has too many pieces" };
        assert_eq!(from_data(block).map(|(pieces, _)| pieces.len()), Err(problem));
    }

    #[test]
    fn maps_before_the_data() {
        let text = b"40\n"
            .iter()
            .copied()
            .chain((0..80).flat_map(|number| format!("{}\n", number * 1_000_000).into_bytes()));
        let mut bytes: Vec<u8> = text.collect();
        bytes.resize(bytes.len().next_multiple_of(512), 0);
        let block = |index: u64| {
            bytes.as_chunks::<512>().0.get(index as usize).copied().ok_or(TarProblem::Empty)
        };
        let (pieces, blocks) = from_data(block).expect("valid");
        assert_eq!((pieces.len(), pieces[1]), (40, (2_000_000, 3_000_000)));
        assert_eq!(blocks, bytes.len() as u64 / 512);
        assert_eq!(
            from_data(|_| Ok([b'1'; 512])).map(|_| ()).expect_err("endless").to_string(),
            "the sparse file's map has a line that isn't a number"
        );
        let mut huge = b"18446744073709551615\n".to_vec();
        huge.extend(std::iter::repeat_n(*b"1\n", 256).flatten());
        let block = |index: u64| {
            huge.as_chunks::<512>().0.get(index as usize).copied().ok_or(TarProblem::Empty)
        };
        assert_eq!(from_data(block), Err(TarProblem::Empty), "it ends with the archive");
    }
}
