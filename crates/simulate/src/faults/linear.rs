//! Whether calls of several threads can be put in one order that explains what each caller saw
//! (M. Herlihy and J. Wing, "Linearizability: a correctness condition for concurrent objects", 1990).
//!
//! # State
//! The search tries every order that respects real time, and drops one as soon as the model answers
//! differently. States that were met before, with the same calls done, are not tried again (G. Lowe, "Testing for
//! linearizability", 2017).

use super::history::Call;
use super::replica::Replica;
use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Operations that a search may try.
const STEPS_MAX: usize = 30_000;

/// A state of the model on the way, with the order of calls that led there: the threads, one a call.
pub struct SearchNode {
    pub replica: Replica,
    /// How many calls of each thread have been done.
    pub done: Vec<usize>,
    pub order: Vec<usize>,
}

/// Why a search ended without its goal.
#[derive(Debug)]
pub enum NotFound {
    /// No order reaches it. With the longest order that was found.
    Nowhere(Vec<usize>),
    /// It was given up.
    TooLong,
}

/// Goes through all orders until one state is the goal.
pub fn search(
    calls: &[Vec<Call>],
    start: Replica,
    mut is_goal: impl FnMut(&SearchNode) -> bool,
) -> Result<SearchNode, NotFound> {
    let start = SearchNode { replica: start, done: vec![0; calls.len()], order: Vec::new() };
    let mut pending = vec![start];
    let mut met = HashSet::new();
    let mut longest = Vec::new();
    let mut steps = 0;
    while let Some(mut node) = pending.pop() {
        loop {
            if is_goal(&node) {
                return Ok(node);
            }
            if node.order.len() > longest.len() {
                longest.clone_from(&node.order);
            }
            let mut next = candidates(calls, &node.done);
            if next.len() > 1 && !met.insert(digest(&node)) {
                break;
            }
            // The call that ended first goes first; the others wait.
            let Some(first) = next.pop() else { break };
            for thread in next {
                let mut other = SearchNode {
                    replica: node.replica.clone(),
                    done: node.done.clone(),
                    order: node.order.clone(),
                };
                steps += 1;
                if step(calls, &mut other, thread) {
                    pending.push(other);
                }
            }
            steps += 1;
            if steps > STEPS_MAX {
                return Err(NotFound::TooLong);
            }
            if !step(calls, &mut node, first) {
                break;
            }
        }
    }
    Err(NotFound::Nowhere(longest))
}

/// Threads whose next call may come next, the one that ended first last.
fn candidates(calls: &[Vec<Call>], done: &[usize]) -> Vec<usize> {
    let next = |thread: usize| calls[thread].get(done[thread]);
    let threads = 0..calls.len();
    let first_end = threads.clone().filter_map(|thread| Some(next(thread)?.ended)).min();
    let mut able: Vec<usize> = threads
        .filter(|&thread| next(thread).zip(first_end).is_some_and(|(call, end)| call.begun < end))
        .collect();
    able.sort_by_key(|&thread| std::cmp::Reverse(calls[thread][done[thread]].ended));
    able
}

/// Does a thread's next call; false if its caller saw something else.
fn step(calls: &[Vec<Call>], node: &mut SearchNode, thread: usize) -> bool {
    let call = &calls[thread][node.done[thread]];
    node.done[thread] += 1;
    node.order.push(thread);
    node.replica.repeat(thread, call).is_none_or(|expected| call.outcome == Some(expected))
}

/// What the rest of a search depends on, but for the numbers of inodes.
fn digest(node: &SearchNode) -> u64 {
    let mut hasher = DefaultHasher::new();
    node.done.hash(&mut hasher);
    let state = node.replica.state(None);
    for (path, entry) in &state.entries {
        (path, &entry.facts, &entry.first_name, entry.size, &entry.content).hash(&mut hasher);
    }
    // What is held: by its name, or by its place among what is held.
    let mut places = BTreeMap::new();
    for (place, inode) in node.replica.all_held().enumerate() {
        let place = *places.entry(inode).or_insert(place);
        place.hash(&mut hasher);
        node.replica.described(inode).hash(&mut hasher);
        if let Some(entry) = state.entry_of(inode) {
            (&entry.facts, &entry.first_name, entry.size, &entry.content).hash(&mut hasher);
        }
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::image::Shape;
    use crate::faults::workload::WriteSizes;
    use drystone_testkit::operations::Outcome;
    use drystone_vfs::Errno;

    /// A call of a thread: its number, begin and end, the operation, and what the thread saw.
    type Line<'a> = (usize, u64, u64, &'a str, Result<&'a str, Errno>);

    /// The calls of each thread.
    fn calls(lines: &[Line<'_>]) -> Vec<Vec<Call>> {
        let mut calls = vec![Vec::new(); 2];
        for &(thread, begun, ended, operation, outcome) in lines {
            let operation = operation.parse().expect("an operation");
            let outcome = Some(Outcome(outcome.map(str::to_owned)));
            calls[thread].push(Call { thread, operation, outcome, begun, ended });
        }
        calls
    }

    fn order(calls: &[Vec<Call>]) -> Option<Vec<usize>> {
        let start = Replica::new(Shape::Roomy, WriteSizes::Any, calls.len());
        let found = search(calls, start, |node| {
            node.done.iter().zip(calls).all(|(&done, calls)| done == calls.len())
        });
        found.ok().map(|node| node.order)
    }

    #[test]
    fn calls_at_the_same_time_have_either_order() {
        let unlink = "u0 unlink /w/d/f";
        let calls = calls(&[(0, 1, 4, unlink, Err(Errno::ENOENT)), (1, 2, 5, unlink, Ok(""))]);
        assert_eq!(order(&calls), Some(vec![1, 0]));
    }

    #[test]
    fn a_call_sees_what_had_ended() {
        let unlink = "u0 unlink /w/d/f";
        let calls = calls(&[(0, 1, 2, unlink, Err(Errno::ENOENT)), (1, 3, 4, unlink, Ok(""))]);
        assert_eq!(order(&calls), None);
    }

    #[test]
    fn nothing_is_seen_twice() {
        let unlink = "u0 unlink /w/d/f";
        let calls = calls(&[(0, 1, 4, unlink, Ok("")), (1, 2, 5, unlink, Ok(""))]);
        assert_eq!(order(&calls), None);
    }
}
