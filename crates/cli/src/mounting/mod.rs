//! Mounts: how they are begun in the background, served, listed and ended.
//!
//! `drystone mount` starts itself once more as the *server*, which has the image open and answers
//! the kernel. The server tells its parent over a pipe when the mount can be used. It listens on a
//! socket, where other commands ask for its status, change it, and wait for its end.

pub mod background;
pub mod log;
pub mod options;
mod served;
pub mod server;
mod utab;
