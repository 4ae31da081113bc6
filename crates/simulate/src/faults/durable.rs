//! Whether what a crash has left is what some order of the calls allows: everything that was synced is there,
//! and nothing without all that had ended before it began.

use super::history::Call;
use super::linear::{NotFound, SearchNode, search};
use super::replica::Replica;
use super::verdict::Verdict;
use drystone_testkit::operations::{Action, OperationTarget, Word};
use drystone_testkit::visible::{VisibleEntry, VisibleState, check_content};
use drystone_vfs::InodeNumber;
use std::collections::HashSet;

/// What is known of a run until its crash.
pub struct Crashed<'c> {
    /// By thread, the calls that had begun.
    pub calls: Vec<Vec<Call>>,
    /// The moments before the crash.
    pub moments: HashSet<u64>,
    /// An order of all calls that explains what callers saw.
    pub order: &'c [usize],
    /// The model before all calls.
    pub start: &'c Replica,
    /// Data may have waited for its blocks: it may be older than the rest.
    pub is_delayed: bool,
}

/// A call, by its thread and its number there.
type Place = (usize, usize);

/// The states of the model along an order of calls, from before the first on.
struct Path {
    places: Vec<Place>,
    states: Vec<VisibleState>,
    /// By call: the inode that it is about, if it is about one that is held.
    targets: Vec<Option<InodeNumber>>,
}

impl Crashed<'_> {
    fn call(&self, (thread, number): Place) -> &Call {
        &self.calls[thread][number]
    }

    /// The states along an order, as far as its calls had begun.
    fn path(&self, order: &[usize]) -> Path {
        let mut replica = self.start.clone();
        let mut done = vec![0; self.calls.len()];
        let mut path =
            Path { places: Vec::new(), states: vec![replica.state(None)], targets: Vec::new() };
        for &thread in order {
            let place = (thread, done[thread]);
            if place.1 >= self.calls[thread].len() {
                continue;
            }
            done[thread] += 1;
            let operation = &self.call(place).operation;
            let target = slot_of(&operation.action).and_then(|slot| replica.held(thread, slot));
            replica.repeat(thread, self.call(place));
            let state = replica.state(path.states.last());
            path.states.push(state);
            path.places.push(place);
            path.targets.push(target);
        }
        path
    }

    /// The syncs on a path that had ended, by the number of the call.
    fn syncs<'p>(&'p self, path: &'p Path) -> impl Iterator<Item = (usize, &'p Call)> {
        let calls = path.places.iter().map(|&place| self.call(place)).enumerate();
        calls.filter(|(_, call)| call.has_synced() && self.moments.contains(&call.ended))
    }

    /// How many calls of each thread must have survived.
    fn required(&self) -> Vec<usize> {
        let path = self.path(self.order);
        let mut required = vec![0; self.calls.len()];
        for (number, sync) in self.syncs(&path) {
            for earlier in 0..path.places.len() {
                let (thread, of_thread) = path.places[earlier];
                let has_ended = self.call(path.places[earlier]).ended < sync.begun;
                if has_ended && is_covered(&path, earlier, number, &sync.operation.action) {
                    required[thread] = required[thread].max(of_thread + 1);
                }
            }
        }
        required
    }

    /// Looks for an order whose first calls leave what was found.
    pub fn explain(&self, found: &VisibleState) -> Result<(), Verdict> {
        let required = self.required();
        let mut last: Option<(usize, String)> = None;
        let outcome = search(&self.calls, self.start.clone(), |node| {
            if node.done.iter().zip(&required).any(|(done, required)| done < required) {
                return false;
            }
            let state = node.replica.state(None);
            match self.compare(node, &state, found) {
                Ok(()) => true,
                Err(difference) => {
                    last = Some((node.order.len(), difference));
                    false
                }
            }
        });
        match outcome {
            Ok(_) => Ok(()),
            Err(NotFound::TooLong) => Err(Verdict::Undecided),
            Err(NotFound::Nowhere(_)) => {
                let last = last.map_or(String::new(), |(calls, difference)| {
                    format!("; after {calls} calls: {difference}")
                });
                Err(Verdict::Wrong(format!(
                    "no order leaves what the crash left; by thread, {:?} calls had begun, and \
                     {required:?} must be there{last}",
                    self.calls.iter().map(Vec::len).collect::<Vec<_>>(),
                )))
            }
        }
    }

    fn compare(
        &self,
        node: &SearchNode,
        state: &VisibleState,
        found: &VisibleState,
    ) -> Result<(), String> {
        let is_file = |entry: &VisibleEntry| entry.content.is_some();
        let same_but_size = |_: &[u8],
                             left: Option<&VisibleEntry>,
                             right: Option<&VisibleEntry>| {
            left.zip(right).is_some_and(|(left, right)| left.is_same_node(right) && is_file(left))
        };
        if let Some(difference) = state.difference(found, same_but_size) {
            return Err(difference);
        }
        self.check_contents(node, found)
    }

    /// Compares the content of files: each byte as in some state since the last sync.
    fn check_contents(&self, node: &SearchNode, found: &VisibleState) -> Result<(), String> {
        // The calls that may have left a part follow.
        let mut order = node.order.clone();
        let mut done = node.done.clone();
        for &thread in self.order {
            if done[thread] > 0 {
                done[thread] -= 1;
            } else {
                order.push(thread);
            }
        }
        // Those whose outcome isn't known may have done a part as well.
        for (thread, calls) in self.calls.iter().enumerate() {
            let ordered = order.iter().filter(|&&other| other == thread).count();
            order.extend(std::iter::repeat_n(thread, calls.len().saturating_sub(ordered)));
        }
        let path = self.path(&order);
        let at = node.order.len();
        for (name, entry) in &found.entries {
            let Some(content) = &entry.content else { continue };
            let Some(expected) = path.states[at].entries.get(name) else { continue };
            let first = self.oldest(&path, at, expected.inode);
            let versions: Vec<&VisibleEntry> = path.states[first..]
                .iter()
                .flat_map(VisibleState::all_entries)
                .filter(|version| version.inode == expected.inode)
                .collect();
            let sizes = versions.iter().map(|version| version.size);
            let (least, most) =
                sizes.fold((u64::MAX, 0), |(least, most), size| (size.min(least), size.max(most)));
            if !(least..=most).contains(&entry.size) {
                let name = Word(name.clone());
                return Err(format!("{name}: size {}, expected {least} to {most}", entry.size));
            }
            let contents: Vec<_> =
                versions.iter().filter_map(|version| version.content.as_ref()).collect();
            check_content(content, &contents, false)
                .map_err(|problem| format!("{}: {problem}", Word(name.clone())))?;
        }
        Ok(())
    }

    /// The first state whose content of a file may be there, if everything is as in the state `at`.
    fn oldest(&self, path: &Path, at: usize, inode: InodeNumber) -> usize {
        let changes = |number: usize| {
            let content =
                |state: &VisibleState| state.entry_of(inode).and_then(|e| e.content.clone());
            content(&path.states[number]) != content(&path.states[number + 1])
        };
        let must_be_there = |number: usize| {
            // Data goes before what is journaled, unless it waits.
            let is_ordered = !self.is_delayed && number < at;
            let call = self.call(path.places[number]);
            is_ordered
                || self.syncs(path).any(|(sync_number, sync)| {
                    let covers = match sync.operation.action {
                        Action::Sync {} => true,
                        _ => path.targets[sync_number] == Some(inode),
                    };
                    covers && call.ended < sync.begun
                })
        };
        let changes: Vec<usize> =
            (0..path.places.len()).filter(|&number| changes(number)).collect();
        let last = changes.iter().rposition(|&number| must_be_there(number));
        let Some(last) = last else { return 0 };
        // One before it that needn't be there may be missing under it.
        let missing = changes[..last].iter().find(|&&number| !must_be_there(number));
        missing.copied().unwrap_or(changes[last] + 1)
    }
}

/// Whether a sync makes an earlier call durable, as far as names and attributes go.
fn is_covered(path: &Path, earlier: usize, sync_number: usize, sync: &Action) -> bool {
    if earlier >= sync_number {
        return false;
    }
    let (before, after) = (&path.states[earlier], &path.states[earlier + 1]);
    let Some(inode) = path.targets[sync_number] else { return matches!(sync, Action::Sync {}) };
    let Some(entry) = path.states[sync_number].entry_of(inode) else { return false };
    match sync {
        Action::SyncData { .. } if !entry.is_directory() => {
            let size = |state: &VisibleState| state.entry_of(inode).map(|entry| entry.size);
            size(before) != size(after)
        }
        _ => before.covered(inode) != after.covered(inode),
    }
}

fn slot_of(action: &Action) -> Option<u8> {
    let (Action::SyncFile { target } | Action::SyncData { target }) = action else { return None };
    match target {
        OperationTarget::Slot(slot) => Some(*slot),
        OperationTarget::Path(_) => None,
    }
}
