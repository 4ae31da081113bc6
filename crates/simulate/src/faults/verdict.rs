//! Why a run isn't good.

/// Why a run isn't good.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// It shows a bug.
    Wrong(String),
    /// A search was given up.
    Undecided,
}

impl Verdict {
    /// The same, with what it was seen after.
    pub fn after(self, what: &str) -> Verdict {
        match self {
            Verdict::Wrong(problem) => Verdict::Wrong(format!("{what}: {problem}")),
            Verdict::Undecided => Verdict::Undecided,
        }
    }
}

impl From<String> for Verdict {
    fn from(what: String) -> Verdict {
        Verdict::Wrong(what)
    }
}
