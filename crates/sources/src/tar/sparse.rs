//! Maps of sparse files: old GNU headers, and the three formats in PAX records.
//!
//! All come down to pairs of offset and length: where data lies in the file. The data follows in
//! the archive without the holes.
//!
//! # Reference
//! GNU tar manual, "Storing Sparse Files".

use super::entry::DataRun;
use super::error::Problem;
use super::header::{RawSparse, number};
use crate::bytes::decimal;

/// A piece of a file that has data: offset and length in bytes.
pub(crate) type Piece = (u64, u64);

/// Adds the pieces of an old GNU header or extension; an empty slot ends them.
pub(crate) fn add_raw(pieces: &mut Vec<Piece>, slots: &[RawSparse]) -> Result<(), Problem> {
    for slot in slots {
        if slot.length[0] == 0 {
            break;
        }
        let field = |field: &[u8], name| {
            number(field)
                .and_then(|value| value.try_into().ok())
                .ok_or(Problem::Field { field: name })
        };
        pieces.push((field(&slot.offset, "sparse offset")?, field(&slot.length, "sparse length")?));
    }
    Ok(())
}

/// The pieces of formats 0.0 and 0.1: numbers in turn.
pub(crate) fn from_numbers(numbers: &[u64]) -> Result<Vec<Piece>, Problem> {
    let (pairs, []) = numbers.as_chunks::<2>() else {
        return Err(Problem::Sparse { what: "ends within a piece" });
    };
    Ok(pairs.iter().map(|[offset, length]| (*offset, *length)).collect())
}

/// The map of format 1.0 at the start of the data: lines of decimal numbers, the first of which
/// says how many pieces follow. Blocks are asked for as they are needed; the answer is how many
/// there were.
pub(crate) fn from_data(
    mut next_block: impl FnMut(u64) -> Result<[u8; 512], Problem>,
) -> Result<(Vec<Piece>, u64), Problem> {
    let mut blocks = 0;
    let mut block = [0; 512];
    let mut at = block.len();
    let mut line = || -> Result<u64, Problem> {
        // More digits than a number of 64 bits has.
        const DIGITS_MAX: usize = 20;
        let mut digits = Vec::new();
        loop {
            if at == block.len() {
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
        decimal(&digits).ok_or(Problem::Sparse { what: "has a line that is no number" })
    };
    let count = line()?;
    let mut pieces = Vec::new();
    for _ in 0..count {
        pieces.push((line()?, line()?));
    }
    Ok((pieces, blocks))
}

/// Where the pieces' data is, if the map makes sense: ascending pieces within the file, for which
/// `stored` bytes of data from `position` are there.
pub(crate) fn runs(
    pieces: &[Piece],
    size: u64,
    position: u64,
    stored: u64,
) -> Result<Vec<DataRun>, Problem> {
    let wrong = |what| Problem::Sparse { what };
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
        assert_eq!(runs(&pieces, 9000, 70, 1536), expected);
        assert_eq!(runs(&[], 1 << 40, 0, 0), Ok(vec![]));
    }

    #[test]
    fn maps_that_do_not() {
        for (pieces, what) in [
            (&[(0, 11)][..], "beyond"),
            (&[(5, 2), (4, 1)], "overlap"),
            (&[(u64::MAX, 2)], "overflows"),
            (&[(0, 10)], "more data"),
        ] {
            let problem = runs(pieces, 10, 0, 9).expect_err("makes no sense");
            assert!(problem.to_string().contains(what), "{problem}");
        }
        assert!(from_numbers(&[1, 2, 3]).is_err());
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
            bytes.as_chunks::<512>().0.get(index as usize).copied().ok_or(Problem::Empty)
        };
        let (pieces, blocks) = from_data(block).expect("valid");
        assert_eq!((pieces.len(), pieces[1]), (40, (2_000_000, 3_000_000)));
        assert_eq!(blocks, bytes.len() as u64 / 512);
        assert_eq!(
            from_data(|_| Ok([b'1'; 512])).map(|_| ()).expect_err("endless").to_string(),
            "the sparse file's map has a line that is no number"
        );
        let mut huge = b"18446744073709551615\n".to_vec();
        huge.extend(std::iter::repeat_n(*b"1\n", 256).flatten());
        let block = |index: u64| {
            huge.as_chunks::<512>().0.get(index as usize).copied().ok_or(Problem::Empty)
        };
        assert_eq!(from_data(block), Err(Problem::Empty), "it ends with the archive");
    }
}
