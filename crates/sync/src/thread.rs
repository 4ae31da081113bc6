//! Threads, and many of them at once.

pub use crate::backend::thread::*;

#[cfg(not(loom))]
pub use several::{at_end, spawn_several, together};

#[cfg(not(loom))]
mod several {
    use super::{Scope, scope, spawn_in};

    /// Starts up to `count` threads that all run `body`, and returns how many there are: the system
    /// may start fewer. What has to happen for them to end must not hang on the caller's good end:
    /// see [`at_end`].
    ///
    /// # Errors
    ///
    /// What the system says when it starts not even one.
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

    /// Runs `body` on up to `count` threads at once, of which the calling one is the first, and
    /// returns when it has returned on all. Where the system starts fewer threads, those do the
    /// work.
    pub fn together(name: &str, count: usize, body: impl Fn() + Sync) {
        scope(|scope| {
            // The calling thread is enough.
            let _ = spawn_several(scope, name, count.saturating_sub(1), &body);
            body();
        });
    }

    /// Does something when the value that this returns is dropped, by a panic too.
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
