//! Work in parts: all are done even if some fail, and the failures are reported at the end.

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
}
