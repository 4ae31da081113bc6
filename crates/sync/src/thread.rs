//! Threads, and many of them at once.

pub use crate::backend::thread::*;

#[cfg(not(loom))]
pub use several::{at_end, spawn_several, together};

#[cfg(not(loom))]
mod several {
    use super::{Scope, scope, spawn_in};

    /// Starts up to `count` threads that all run `body`, and returns how many were started: the
    /// system may refuse some. Whatever lets them end must also happen if the caller fails or
    /// panics: see [`at_end`].
    ///
    /// # Errors
    ///
    /// The system's error if it starts none at all.
    pub fn spawn_several<'scope, F>(
        scope: &'scope Scope<'scope, '_>,
        name: &str,
        count: usize,
        body: F,
    ) -> std::io::Result<usize>
    where
        F: Fn() + Send + Copy + 'scope,
    {
        for started in 0..count {
            match spawn_in(scope, name, body) {
                Ok(_) => {}
                Err(error) if started == 0 => return Err(error),
                Err(_) => return Ok(started),
            }
        }
        Ok(count)
    }

    /// Runs `body` on up to `count` threads at once, the calling thread included, and returns when
    /// it has returned on all. If the system starts fewer threads, those do the work.
    pub fn together(name: &str, count: usize, body: impl Fn() + Sync) {
        scope(|scope| {
            // The calling thread is enough.
            let _ = spawn_several(scope, name, count.saturating_sub(1), &body);
            body();
        });
    }

    /// Runs an action when the returned value is dropped, also by a panic.
    #[must_use = "dropping it does it"]
    pub fn at_end(body: impl FnMut()) -> impl Drop {
        AtEnd(body)
    }

    struct AtEnd<F: FnMut()>(F);

    impl<F: FnMut()> Drop for AtEnd<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
}
