//! NBD servers of others: nbdkit(1) and qemu-nbd(8), on Unix sockets.

use drystone_sync::{clock, thread};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long a server may take to start, or to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server, which is killed with this value.
pub struct NbdServer {
    child: Child,
    /// Its socket.
    pub socket: PathBuf,
}

impl NbdServer {
    /// nbdkit with a plugin, filters and their settings.
    #[must_use]
    pub fn nbdkit(socket: PathBuf, arguments: &str) -> NbdServer {
        let mut command = Command::new("nbdkit");
        command.args(["-f", "-U"]).arg(&socket).args(arguments.split_whitespace());
        NbdServer::start(command, socket)
    }

    /// qemu-nbd with an image.
    #[must_use]
    pub fn qemu(socket: PathBuf, arguments: &str, image: &Path) -> NbdServer {
        let mut command = Command::new("qemu-nbd");
        command.args(["--persistent", "-k"]).arg(&socket);
        command.args(arguments.split_whitespace()).arg(image);
        NbdServer::start(command, socket)
    }

    fn start(mut command: Command, socket: PathBuf) -> NbdServer {
        let _ = std::fs::remove_file(&socket);
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let start = clock::now();
        while UnixStream::connect(&socket).is_err() {
            assert!(start.elapsed() < PATIENCE, "{command:?} doesn't start");
            thread::sleep(Duration::from_millis(5));
        }
        NbdServer { child, socket }
    }

    /// Kills it: what it holds in memory is lost.
    pub fn kill(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Whether it ends by itself.
    pub fn ended(&mut self) -> bool {
        let start = clock::now();
        while start.elapsed() < PATIENCE {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return true;
            }
            thread::sleep(Duration::from_millis(5));
        }
        false
    }
}

impl Drop for NbdServer {
    fn drop(&mut self) {
        self.kill();
    }
}
