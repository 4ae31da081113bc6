//! A server in the background: the command starts itself once more, and waits until the server says
//! that the mount can be used. No process forks while it has threads.

use crate::failure::{Failure, Outcome};
use anyhow::Context;
use rustix::fs::{Mode, OFlags};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

/// Tells a server that a parent waits for its word.
const WAITED_FOR: &str = "DRYSTONE_MOUNT_SERVER";
/// The word.
const READY: &[u8] = b"ready\n";

/// True in a server that a parent waits for.
pub fn is_waited_for() -> bool {
    std::env::var_os(WAITED_FOR).is_some()
}

/// Starts a server with `arguments` and returns when the mount can be used. If it can't, the server
/// has said why.
pub fn start(arguments: &[OsString]) -> Outcome {
    let program = std::env::current_exe().context("can't find this program")?;
    let mut server = Command::new(program)
        .args(arguments)
        .env(WAITED_FOR, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("can't start the server")?;
    let mut words = server.stdout.take().context("the server has no pipe")?;
    let mut word = [0; READY.len()];
    // It ends without a word if it fails.
    if words.read_exact(&mut word).is_ok() && word == READY {
        return Ok(());
    }
    let status = server.wait().context("can't wait for the server")?;
    match (status.code(), status.signal()) {
        (Some(code), _) => Err(Failure::Code(u8::try_from(code).unwrap_or(1).max(1))),
        (None, signal) => {
            let signal = signal.unwrap_or_default();
            Err(anyhow::anyhow!("the server was ended by signal {signal}").into())
        }
    }
}

/// Leaves the terminal and tells the parent that the mount can be used.
pub fn ready() -> anyhow::Result<()> {
    // A session of its own: no terminal sends it signals. It may have one already.
    let _ = rustix::process::setsid();
    std::env::set_current_dir("/").context("can't go to /")?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .context("/dev/null")?;
    let mut words = std::io::stdout().lock();
    // The parent may have been ended; the mount goes on.
    let _ = words.write_all(READY).and_then(|()| words.flush());
    rustix::stdio::dup2_stdout(&null).context("can't leave the terminal")?;
    rustix::stdio::dup2_stderr(&null).context("can't leave the terminal")?;
    Ok(())
}
