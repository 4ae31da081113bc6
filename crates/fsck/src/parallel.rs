//! Work in pieces of which some are done already, by several threads.

use drystone_sync::in_order;

/// Does `work` for those of the pieces `0..count` that aren't done, as [`in_order`] does, and calls `take` for all
/// pieces: with nothing for one that was done.
///
/// # Errors
///
/// That of `take`.
pub(crate) fn in_order_unless<T: Send, E>(
    count: usize,
    threads: usize,
    is_done: impl Fn(usize) -> bool,
    work: impl Fn(usize) -> T + Sync,
    mut take: impl FnMut(usize, Option<T>) -> Result<(), E>,
) -> Result<(), E> {
    let left: Vec<usize> = (0..count).filter(|&piece| !is_done(piece)).collect();
    let mut next = 0;
    in_order(
        "check",
        left.len(),
        threads,
        |index| work(left[index]),
        |index, result| {
            (next..left[index]).try_for_each(|piece| take(piece, None))?;
            next = left[index] + 1;
            take(left[index], Some(result))
        },
    )?;
    (next..count).try_for_each(|piece| take(piece, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_needs_no_work() {
        let mut taken = Vec::new();
        let work = |piece| {
            assert_ne!(piece % 3, 0);
            piece
        };
        let all = in_order_unless(
            10,
            2,
            |piece| piece % 3 == 0,
            work,
            |piece, result| {
                taken.push((piece, result));
                Ok::<(), ()>(())
            },
        );
        assert_eq!(all, Ok(()));
        let expected = (0..10).map(|piece| (piece, (piece % 3 != 0).then_some(piece)));
        assert!(expected.eq(taken));
    }
}
