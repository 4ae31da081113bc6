//! Searches one group's bitmap for a free run.
//!
//! The result is the next run from a cursor on that is long enough, else the longest. Both
//! functions are pure functions of the bits.

use drystone_ondisk::bitmap;
use std::ops::Range;

/// What is looked for in a group. Positions and lengths are bits (blocks or clusters).
#[derive(Clone, Copy, Debug)]
pub(super) struct RunRequest {
    /// Where the search starts.
    pub cursor: u32,
    /// The most that is taken.
    pub wanted: u32,
    /// The least that will do.
    pub least: u32,
    /// The first bit that must not be taken.
    pub limit: u32,
}

/// A free run for `request`; if none will do, the length of the longest one.
pub(super) fn find_run(taken: &[u8], request: &RunRequest) -> Result<Range<u32>, u32> {
    let limit = request.limit;
    let cursor = request.cursor.min(limit);
    let mut longest = 0..0;
    // A run that contains the cursor is seen whole when the search wraps around.
    let around = cursor.saturating_add(request.wanted).min(limit);
    for (mut from, to) in [(cursor, limit), (0, around)] {
        while let Some(start) = bitmap::find_zero(taken, from as usize..to as usize) {
            let run = run_at(taken, start as u32, request.wanted, limit);
            from = run.end.min(to);
            if run.len() as u32 == request.wanted {
                return Ok(run);
            }
            if run.len() > longest.len() {
                longest = run;
            }
        }
    }
    let length = longest.len() as u32;
    if length >= request.least.max(1) { Ok(longest) } else { Err(length) }
}

/// The free run that starts at the free bit `start`, `wanted` bits of it at most.
pub(super) fn run_at(taken: &[u8], start: u32, wanted: u32, limit: u32) -> Range<u32> {
    let end = start.saturating_add(wanted).min(limit);
    let one = bitmap::find_one(taken, start as usize..end as usize);
    start..one.map_or(end, |one| one as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(wanted: u32) -> RunRequest {
        RunRequest { cursor: 0, wanted, least: 1, limit: 64 }
    }

    #[test]
    fn wraps_and_joins_across_the_cursor() {
        let mut taken = [0xffu8; 8];
        bitmap::clear_range(&mut taken, 20..30);
        let found = find_run(&taken, &RunRequest { cursor: 25, ..request(10) });
        assert_eq!(found, Ok(20..30));
    }

    #[test]
    fn tells_the_longest_when_none_will_do() {
        let mut taken = [0xffu8; 8];
        bitmap::clear_range(&mut taken, 5..9);
        bitmap::clear_range(&mut taken, 40..46);
        assert_eq!(find_run(&taken, &RunRequest { least: 7, ..request(20) }), Err(6));
        assert_eq!(find_run(&taken, &RunRequest { least: 6, ..request(20) }), Ok(40..46));
        assert_eq!(find_run(&[0xff; 8], &request(1)), Err(0));
    }

    #[test]
    fn stays_below_the_limit() {
        assert_eq!(find_run(&[0; 8], &RunRequest { limit: 5, ..request(20) }), Ok(0..5));
        let past = RunRequest { cursor: 70, limit: 5, ..request(2) };
        assert_eq!(find_run(&[0; 8], &past), Ok(0..2));
    }

    proptest! {
        #[test]
        fn finds_whenever_there_is_one(
            taken in prop::collection::vec(prop_oneof![Just(0u8), Just(0xffu8), any::<u8>()], 8..24),
            cursor in 0u32..200,
            wanted in 1u32..40,
            least in 1u32..40,
            limit in 1u32..192,
        ) {
            let limit = limit.min(taken.len() as u32 * 8);
            let least = least.min(wanted);
            let request = RunRequest { cursor, wanted, least, limit };
            let free = |bit: u32| bit < limit && !bitmap::test(&taken, bit as usize);
            let longest = (0..limit)
                .map(|start| (start..).take_while(|&bit| free(bit)).count() as u32)
                .max()
                .unwrap_or(0)
                .min(wanted);
            match find_run(&taken, &request) {
                Ok(run) => {
                    prop_assert!(!run.is_empty() && run.len() as u32 <= wanted);
                    prop_assert!(run.clone().all(free));
                    prop_assert_eq!(run.len() as u32, longest);
                }
                Err(found) => {
                    prop_assert_eq!(found, longest);
                    prop_assert!(longest < least);
                }
            }
        }
    }
}
