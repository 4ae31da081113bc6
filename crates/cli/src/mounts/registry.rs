//! The running mounts: each has a socket in a folder that only its user may write to.
//!
//! A client sends one line and reads the answer:
//!
//! - `status`: the status of the mount, as JSON.
//! - `wait`: `waiting` at once; when the mount has ended, `ended`, or `failed` and why. A server that is
//!   killed says nothing.
//! - `remount` and words as after `-o`: `done` when the mount is changed, or `failed` and why.

use crate::mounts::status::Status;
use anyhow::Context;
use drystone::vfs::DeviceNumber;
use drystone_fuse::attach;
use drystone_sync::{Arc, LockClass, Mutex, thread};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::DirBuilder;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Taken alone.
static WAITING: LockClass = LockClass::new("clients that wait for a mount's end", 10);
/// How long a client may take to say what it wants, and a server to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// When to take clients again after the system had no descriptor for one.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// How often, and at what interval, a server that doesn't answer is called again.
const LAST_LOOKS: u32 = 20;
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// What a client that waits is told at once.
const WAITING_WORD: &[u8] = b"waiting\n";

/// The folder of the sockets.
fn folder() -> PathBuf {
    let user = rustix::process::geteuid();
    match std::env::var_os("XDG_RUNTIME_DIR") {
        _ if user.is_root() => PathBuf::from("/run/drystone"),
        Some(folder) if !folder.is_empty() => PathBuf::from(folder).join("drystone"),
        _ => std::env::temp_dir().join(format!("drystone-{}", user.as_raw())),
    }
}

/// Fails unless a folder belongs to the caller and is closed to others. Everybody can write to `/tmp`:
/// another user may have made the folder to learn what we mount or to give false answers.
fn check_private(folder: &Path) -> io::Result<()> {
    let found = std::fs::symlink_metadata(folder)?;
    let problem = if !found.is_dir() {
        "it isn't a directory".to_owned()
    } else if found.uid() != rustix::process::geteuid().as_raw() {
        format!("it belongs to user {}", found.uid())
    } else if found.mode() & 0o077 != 0 {
        format!("others may use it (mode {:o})", found.mode() & 0o7777)
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("not trusted: {problem}")))
}

/// What clients ask a server for.
pub trait Answers: Send + Sync + 'static {
    /// What is known of the mount.
    fn status(&self) -> Status;

    /// Changes the mount as words say that are like those after `-o`.
    fn change(&self, words: &str) -> anyhow::Result<()>;
}

/// A server's entry in the registry.
pub struct MountEntry {
    path: PathBuf,
    waiting: Arc<Mutex<WaitingClients>>,
}

/// Clients that wait for the end of a mount, and its result once it is known.
#[derive(Default)]
struct WaitingClients {
    clients: Vec<UnixStream>,
    word: Option<String>,
}

impl MountEntry {
    /// Makes an entry, and answers clients on a thread of its own until the process ends.
    pub fn new(mount: impl Answers) -> anyhow::Result<MountEntry> {
        MountEntry::new_in(&folder(), mount)
    }

    fn new_in(folder: &Path, mount: impl Answers) -> anyhow::Result<MountEntry> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .and_then(|()| check_private(folder))
            .with_context(|| folder.display().to_string())?;
        let path = folder.join(format!("{}.sock", std::process::id()));
        // Left over from a process that had our number.
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).with_context(|| path.display().to_string())?;
        let waiting = Arc::new(Mutex::new(&WAITING, WaitingClients::default()));
        let clients = Arc::clone(&waiting);
        let mount = Arc::new(mount);
        thread::spawn("registry", move || {
            for client in listener.incoming() {
                let Ok(client) = client else {
                    // Descriptors are scarce.
                    thread::sleep(ACCEPT_RETRY);
                    continue;
                };
                let (mount, clients) = (Arc::clone(&mount), Arc::clone(&clients));
                // A thread for each client, so that none waits for another's request. A client that
                // sends nothing is dropped.
                let _ = thread::spawn("registry client", move || {
                    let _ = answer(client, &*mount, &clients);
                });
            }
        })?;
        Ok(MountEntry { path, waiting })
    }

    /// Removes the socket and tells waiting clients how the mount ended.
    pub fn end(self, result: Result<(), String>) {
        let _ = std::fs::remove_file(&self.path);
        let line = match result {
            Ok(()) => "ended\n".to_owned(),
            Err(why) => format!("failed {}\n", why.replace('\n', " ")),
        };
        let mut waiting = self.waiting.lock();
        for mut client in waiting.clients.drain(..) {
            let _ = client.write_all(line.as_bytes());
        }
        waiting.word = Some(line);
    }
}

fn answer(
    mut client: UnixStream,
    mount: &impl Answers,
    waiting: &Mutex<WaitingClients>,
) -> anyhow::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(&client).read_line(&mut line)?;
    match line.trim_end() {
        "status" => {
            let mut answer = serde_json::to_vec(&mount.status())?;
            answer.push(b'\n');
            client.write_all(&answer)?;
        }
        "wait" => {
            // Before the answer, so that a client that has it will be told of the end.
            let mut waiting = waiting.lock();
            client.write_all(WAITING_WORD)?;
            match &waiting.word {
                Some(word) => client.write_all(word.as_bytes())?,
                None => {
                    // Those that gave up would keep their descriptors until the end.
                    waiting.clients.retain(has_not_hung_up);
                    waiting.clients.push(client);
                }
            }
        }
        line => {
            if let Some(words) = line.strip_prefix("remount ") {
                let answer = match mount.change(words) {
                    Ok(()) => "done\n".to_owned(),
                    Err(why) => format!("failed {}\n", format!("{why:#}").replace('\n', " ")),
                };
                client.write_all(answer.as_bytes())?;
            }
        }
    }
    Ok(())
}

/// Whether a client that has nothing more to say is still there.
fn has_not_hung_up(client: &UnixStream) -> bool {
    let mut ends = [PollFd::new(client, PollFlags::IN)];
    !matches!(poll(&mut ends, Some(&Timespec::default())), Ok(1..))
}

/// A mount that runs.
pub struct RunningMount {
    /// What is known of it.
    pub status: Status,
    socket: PathBuf,
}

/// How a mount ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// Everything is in the image.
    Clean,
    /// Something could not be written.
    Failed(String),
    /// The server was killed.
    Killed,
}

/// A server's end that is waited for; reads of its socket time out after [`PATIENCE`].
pub struct Wait(BufReader<UnixStream>);

impl RunningMount {
    /// Has the server change the mount; waits until it has.
    pub fn change(&self, words: &str) -> anyhow::Result<()> {
        let mut server = UnixStream::connect(&self.socket).context("can't reach the server")?;
        writeln!(server, "remount {words}").context("can't reach the server")?;
        let mut answer = String::new();
        BufReader::new(server).read_line(&mut answer).context("can't reach the server")?;
        match answer.trim_end().split_once(' ') {
            None if answer.trim_end() == "done" => Ok(()),
            Some(("failed", why)) => Err(anyhow::anyhow!("{why}")),
            _ => Err(anyhow::anyhow!("the server ended meanwhile, or doesn't know how")),
        }
    }

    /// Whether the mount is still there, though perhaps not where this process could see it: after its end the
    /// server closes the image.
    pub fn is_serving(&self) -> bool {
        let status = connect(&self.socket).ok().and_then(|server| ask(server).ok());
        status.is_some_and(|status| status.space.is_some())
    }

    /// Has the server tell when it ends.
    pub fn wait(&self) -> anyhow::Result<Wait> {
        let mut server = UnixStream::connect(&self.socket).context("can't reach the server")?;
        server.set_read_timeout(Some(PATIENCE))?;
        server.write_all(b"wait\n").context("can't reach the server")?;
        let mut server = BufReader::new(server);
        let mut word = String::new();
        server.read_line(&mut word).context("can't reach the server")?;
        if word.as_bytes() != WAITING_WORD {
            return Err(anyhow::anyhow!("the server has just ended"));
        }
        Ok(Wait(server))
    }
}

impl Wait {
    /// Waits for the end. Calls `is_late` if it doesn't come soon.
    pub fn finish(self, is_late: impl FnOnce()) -> End {
        let mut line = String::new();
        let Wait(mut server) = self;
        let mut heard = server.read_line(&mut line);
        if heard.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            is_late();
            heard =
                server.get_ref().set_read_timeout(None).and_then(|()| server.read_line(&mut line));
        }
        if heard.is_err() {
            return End::Killed;
        }
        match line.trim_end().split_once(' ') {
            Some(("failed", why)) => End::Failed(why.to_owned()),
            None if line.trim_end() == "ended" => End::Clean,
            _ => End::Killed,
        }
    }
}

/// What is known of the mounts that run.
#[derive(Default)]
pub struct MountRegistry {
    /// Those whose servers have answered, by directory.
    pub running: Vec<RunningMount>,
    /// The sockets of servers that take calls and don't answer.
    pub silent: Vec<PathBuf>,
}

impl MountRegistry {
    /// Takes the server of the visible mount on a directory. There may be others: of mounts hidden below
    /// it, or detached but still in use.
    pub fn take(&mut self, directory: &Path) -> Option<RunningMount> {
        let device = attach::device_on(directory)?;
        self.take_of(directory, device)
    }

    fn take_of(&mut self, directory: &Path, device: DeviceNumber) -> Option<RunningMount> {
        let is_it = |RunningMount { status, .. }: &RunningMount| {
            status.directory == directory && status.device.is_none_or(|own| own == device)
        };
        let index = self.running.iter().rposition(is_it)?;
        Some(self.running.swap_remove(index))
    }
}

impl MountRegistry {
    /// Asks all servers, and removes the sockets of killed ones.
    pub fn read() -> anyhow::Result<MountRegistry> {
        MountRegistry::read_in(&folder())
    }

    fn read_in(folder: &Path) -> anyhow::Result<MountRegistry> {
        let sockets = match check_private(folder).and_then(|()| std::fs::read_dir(folder)) {
            Ok(sockets) => sockets,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(MountRegistry::default());
            }
            Err(error) => return Err(error).context(folder.display().to_string()),
        };
        let mut registry = MountRegistry::default();
        for socket in sockets.flatten().map(|entry| entry.path()) {
            let Ok(server) = connect(&socket) else { continue };
            match ask(server) {
                Ok(status) => registry.running.push(RunningMount { status, socket }),
                // One that has just ended is none.
                Err(_) if is_gone(&socket) => {}
                Err(_) => registry.silent.push(socket),
            }
        }
        registry.running.sort_by(|a, b| a.status.directory.cmp(&b.status.directory));
        Ok(registry)
    }
}

/// The full path of a directory where an image may be mounted. The mount itself is never asked, because its server may
/// be dead or hang.
pub fn full_path(directory: &Path) -> anyhow::Result<PathBuf> {
    let name = || directory.display().to_string();
    let path = std::path::absolute(directory).with_context(name)?;
    if let (Some(parent), Some(last)) = (path.parent(), path.file_name()) {
        let path = std::fs::canonicalize(parent).with_context(name)?.join(last);
        if attach::is_mounted(&path) {
            return Ok(path);
        }
    }
    std::fs::canonicalize(directory).with_context(name)
}

fn connect(socket: &Path) -> io::Result<UnixStream> {
    UnixStream::connect(socket).inspect_err(|error| {
        if error.kind() == io::ErrorKind::ConnectionRefused {
            let _ = std::fs::remove_file(socket);
        }
    })
}

/// True if nothing accepts connections any more. A process that ends may close a connection before
/// the socket.
fn is_gone(socket: &Path) -> bool {
    (0..LAST_LOOKS).any(|_| {
        thread::sleep(LOOK_INTERVAL);
        connect(socket).is_err()
    })
}

fn ask(mut server: UnixStream) -> anyhow::Result<Status> {
    server.set_read_timeout(Some(PATIENCE))?;
    server.set_write_timeout(Some(PATIENCE))?;
    server.write_all(b"status\n")?;
    let mut line = String::new();
    BufReader::new(server).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// A server that has nothing to say.
    struct Mute;

    impl Answers for Mute {
        fn status(&self) -> Status {
            Status::default()
        }

        fn change(&self, _: &str) -> anyhow::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn servers_that_say_nothing_are_told_from_those_that_are_gone() {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o700)).unwrap();
        let [silent, gone] = ["silent", "gone"].map(|name| scratch.path().join(name));
        let _listener = UnixListener::bind(&silent).unwrap();
        drop(UnixListener::bind(&gone).unwrap());
        let registry = MountRegistry::read_in(scratch.path()).unwrap();
        assert!(registry.running.is_empty());
        assert_eq!(registry.silent, [silent]);
        assert!(!gone.exists());
        assert!(MountRegistry::read_in(&scratch.path().join("nothing")).unwrap().silent.is_empty());
    }

    #[test]
    fn clients_that_no_longer_wait_are_forgotten() {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o700)).unwrap();
        let entry = MountEntry::new_in(scratch.path(), Mute).unwrap();
        let wait = || {
            let mut client = UnixStream::connect(&entry.path).unwrap();
            client.write_all(b"wait\n").unwrap();
            let mut answer = [0; WAITING_WORD.len()];
            client.read_exact(&mut answer).unwrap();
            client
        };
        for _ in 0..5 {
            drop(wait());
        }
        let _stays = wait();
        let _stays_too = wait();
        assert_eq!(entry.waiting.lock().clients.len(), 2);
    }

    #[test]
    fn the_server_of_the_mount_that_is_seen_is_found() {
        let server = |process: u32, directory: &str, minor: Option<u32>| {
            let device = minor.map(|minor| DeviceNumber { major: 0, minor });
            let directory = directory.into();
            let status = Status { process, directory, device, ..Status::default() };
            RunningMount { status, socket: PathBuf::new() }
        };
        let all = [(1, "/a", Some(51)), (2, "/a", Some(50)), (3, "/a", Some(52)), (4, "/b", None)];
        for (directory, minor, expected) in
            [("/a", 50, Some(2)), ("/a", 52, Some(3)), ("/a", 53, None), ("/b", 51, Some(4))]
        {
            let running = all.map(|(process, directory, minor)| server(process, directory, minor));
            let mut registry = MountRegistry { running: running.into(), silent: Vec::new() };
            let found = registry.take_of(directory.as_ref(), DeviceNumber { major: 0, minor });
            assert_eq!(found.map(|found| found.status.process), expected, "{directory} {minor}");
        }
    }

    #[test]
    fn only_a_closed_folder_of_ones_own_is_trusted() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("folder");
        DirBuilder::new().mode(0o700).create(&folder).unwrap();
        check_private(&folder).unwrap();
        let link = scratch.path().join("link");
        symlink(&folder, &link).unwrap();
        assert!(check_private(&link).unwrap_err().to_string().contains("isn't a directory"));
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o770)).unwrap();
        assert!(check_private(&folder).unwrap_err().to_string().contains("mode 770"));
        // Neither looking for mounts nor making one trusts it.
        let untrusted =
            [MountRegistry::read_in(&folder).err(), MountEntry::new_in(&folder, Mute).err()];
        for error in untrusted {
            assert!(format!("{:#}", error.unwrap()).contains("not trusted"));
        }
        // Only root can give it to somebody else, and only others find one of root's.
        let foreign = if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&folder, Some(1), None).unwrap();
            folder
        } else {
            PathBuf::from("/")
        };
        assert!(check_private(&foreign).unwrap_err().to_string().contains("belongs to user"));
    }
}
