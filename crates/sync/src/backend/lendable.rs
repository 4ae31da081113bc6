//! A guard that a condition variable takes by value, for back ends in which it can't be lent by `&mut`.

use std::ops::{Deref, DerefMut};

/// A guard; empty only inside a wait.
pub(crate) struct Lendable<G>(pub(super) Option<G>);

impl<G> Lendable<G> {
    pub(super) fn new(guard: G) -> Self {
        Self(Some(guard))
    }
}

impl<G: Deref> Deref for Lendable<G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        match &self.0 {
            Some(guard) => guard,
            None => unreachable!("the guard is lent to a wait"),
        }
    }
}

impl<G: DerefMut> DerefMut for Lendable<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        match &mut self.0 {
            Some(guard) => guard,
            None => unreachable!("the guard is lent to a wait"),
        }
    }
}
