//! Work in parts: all are done even if some fail, and the failures are reported at the end.

use drystone_sync::{LockClass, Mutex, thread};

static CLASS: LockClass = LockClass::new("parts that wait", 1);

/// The parts that were done.
#[derive(Default)]
pub struct Parts {
    failed: Vec<String>,
}

impl Parts {
    /// Does a part; what is wrong with it is printed at once.
    pub fn run(&mut self, name: &str, part: impl FnOnce() -> anyhow::Result<()>) {
        if let Err(error) = part() {
            eprintln!("{name}: FAILED: {error:#}");
            self.failed.push(name.to_owned());
        }
    }

    /// An error that names the parts that failed, if any did.
    pub fn end(self) -> anyhow::Result<()> {
        anyhow::ensure!(self.failed.is_empty(), "failed: {}", self.failed.join(", "));
        Ok(())
    }
}

/// Works on all items, as many at once as there are cores; gives the results in no order.
pub fn side_by_side<T: Send, R: Send>(mut items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let at_once = cores.min(items.len());
    items.reverse();
    let waiting = Mutex::new(&CLASS, items);
    let work = || {
        let mut done = Vec::new();
        loop {
            let Some(item) = waiting.lock().pop() else { return done };
            done.push(work(item));
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.flat_map(|done| done.expect("work that panics ends the program")).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_fails_keeps_no_other_from_running() {
        let mut parts = Parts::default();
        let mut done = Vec::new();
        for (name, is_good) in [("a", false), ("b", true), ("c", false)] {
            parts.run(name, || {
                done.push(name);
                anyhow::ensure!(is_good, "bad");
                Ok(())
            });
        }
        assert_eq!(done, ["a", "b", "c"]);
        assert_eq!(parts.end().unwrap_err().to_string(), "failed: a, c");
        Parts::default().end().unwrap();
    }

    #[test]
    fn each_item_is_worked_on_once() {
        let mut done = side_by_side((0..20).collect(), |number| number * 2);
        done.sort_unstable();
        assert_eq!(done, (0..40).step_by(2).collect::<Vec<_>>());
    }
}
