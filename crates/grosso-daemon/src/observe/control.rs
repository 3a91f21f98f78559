//! The control socket, through which other programs can read a running program's counters. This module has the server
//! and the client.
//!
//! Each program listens on its own socket, in a directory that all programs of one user share. The request and the
//! reply are one line of JSON each; then the connection ends. A client that may open the socket can read the counters,
//! and nothing else.

use std::{
    env,
    io::{self, Read, Write},
    os::{
        fd::OwnedFd,
        unix::{
            fs::MetadataExt,
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    process,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use grosso_sys::{
    path::{
        self as names, Entry,
        socket::{self, Pinned},
    },
    unix_socket::refuses_files,
};
use rustix::{
    net::{AddressFamily, SocketFlags, SocketType, listen, socket_with},
    process::geteuid,
};
use serde::{Deserialize, Serialize};

use super::reading::DeviceReading;
use crate::confinement::{self, Confinement};

/// A request to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Ask {
    /// Requests the counters of the program's devices.
    Counters {
        /// Whether each queue is reported separately.
        #[serde(default)]
        per_queue: bool,
    },
}

/// The reply of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Name of the reply's schema.
    pub schema: String,
    /// Process ID of the program.
    pub pid: u32,
    /// Time at which the program read its counters, in nanoseconds since 1970.
    pub ts_ns: u64,
    /// Readings of the program's devices.
    pub devices: Vec<DeviceReading>,
    /// Confinement of the program's threads; older versions do not report it.
    #[serde(default)]
    pub confinement: Confinement,
}

impl Answer {
    /// Creates this program's reply with the counters read at time `at`.
    pub fn new(at: SystemTime, devices: Vec<DeviceReading>) -> Self {
        let since_1970 = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let ts_ns = u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX);
        let (schema, confinement) = (SCHEMA.to_owned(), confinement::known());
        Self { schema, pid: process::id(), ts_ns, devices, confinement }
    }
}

/// The program's control socket; dropping the value removes its file.
#[derive(Debug)]
pub struct ControlSocket {
    path: PathBuf,
}

impl ControlSocket {
    /// Listens in the first usable directory in `folders`.
    ///
    /// # Errors
    /// Fails if no directory is usable, with the error for the last directory.
    pub fn create(folders: &[PathBuf]) -> io::Result<(Self, UnixListener)> {
        let mut refusal = io::Error::from(io::ErrorKind::NotFound);
        for folder in folders {
            match names::prepare_private(folder).and_then(|()| Self::create_in(folder)) {
                Ok(made) => return Ok(made),
                Err(error) => {
                    let why = format!("{}: {error}", folder.display());
                    refusal = io::Error::new(error.kind(), why);
                }
            }
        }
        Err(refusal)
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn create_in(folder: &Path) -> io::Result<(Self, UnixListener)> {
        // A program in another process namespace may have the same process ID.
        let pid = process::id();
        let names = (0..NAMES_MAX).map(|count| match count {
            0 => format!("{pid}.{EXTENSION}"),
            _ => format!("{pid}-{count}.{EXTENSION}"),
        });
        for name in names {
            let path = folder.join(name);
            match listen_on(&path) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                result => return result.map(|listener| (Self { path }, listener)),
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        // The file may already be gone.
        let _ = names::remove(&self.path);
    }
}

/// Listens on a socket that only its owner can open. The mode is set before the name exists, so that nobody else can
/// ever open it. A socket left behind by a program that has exited is replaced.
fn listen_on(path: &Path) -> io::Result<UnixListener> {
    let socket = stream()?;
    // On older kernels, the closing thread closes descriptors that clients pass.
    let _ = refuses_files(&socket);
    socket::bind(&socket, SocketType::STREAM, path, 0o600)?;
    listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Connects to a socket, without waiting for a program that does not accept connections.
fn connect_to(path: &Path) -> io::Result<UnixStream> {
    let socket = stream()?;
    Pinned::at(path, None)?.connect(&socket)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn stream() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// Returns the first usable directory in `folders`; a missing directory is created.
///
/// # Errors
/// Fails if no directory is usable, with the error for the last directory.
pub fn usable(folders: &[PathBuf]) -> io::Result<&Path> {
    let mut refusal = io::Error::from(io::ErrorKind::NotFound);
    for folder in folders {
        match names::prepare_private(folder) {
            Ok(()) => return Ok(folder),
            Err(error) => {
                let why = format!("{}: {error}", folder.display());
                refusal = io::Error::new(error.kind(), why);
            }
        }
    }
    Err(refusal)
}

/// Returns the socket directories, in order of preference: the user's session directory, the system directory, and the
/// user's own directory in the temporary directory. If the service manager or the user sets `RUNTIME_DIRECTORY`, only
/// that directory is used.
pub fn folders() -> Vec<PathBuf> {
    let is_absolute = |folder: &PathBuf| folder.is_absolute();
    // The variable may name several directories, separated by colons.
    let service = env::var("RUNTIME_DIRECTORY").unwrap_or_default();
    let service = service.split(':').next().map(PathBuf::from).filter(is_absolute);
    if let Some(service) = service {
        return vec![service];
    }
    let session = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(is_absolute);
    let session = session.map(|folder| folder.join("grosso"));
    let private = env::temp_dir().join(format!("grosso-{}", geteuid().as_raw()));
    session.into_iter().chain([PathBuf::from("/run/grosso"), private]).collect()
}

/// Returns whether only the system or the user can have created the directory. In the temporary directory, anybody can
/// create one.
pub fn is_trusted(folder: &Path) -> bool {
    folder.parent() != Some(&env::temp_dir())
        || names::metadata(folder)
            .is_ok_and(|facts| facts.is_dir() && facts.uid() == geteuid().as_raw())
}

/// The replies of the running programs.
#[derive(Debug, Default)]
pub struct Answers {
    /// Replies in the order of process IDs.
    pub answers: Vec<Answer>,
    /// Sockets that this user may not open.
    pub forbidden: Vec<PathBuf>,
    /// Programs that did not reply, each with the reason.
    pub silent: Vec<(PathBuf, String)>,
}

/// Queries every program that has a socket in one of these directories, or in the subdirectory for a process that runs
/// as a separate user.
pub fn ask_all(folders: &[PathBuf], ask: &Ask) -> Answers {
    let mut found = Answers::default();
    for folder in folders.iter().filter(|folder| is_trusted(folder)) {
        let entries = match names::entries(folder) {
            Ok(entries) => entries,
            Err(error) => {
                if error.kind() == io::ErrorKind::PermissionDenied {
                    found.forbidden.push(folder.clone());
                }
                continue;
            }
        };
        let list = |folder: &Path, entries: Vec<Entry>| {
            let paths = entries.into_iter().map(|entry| folder.join(entry.name));
            paths.collect::<Vec<_>>()
        };
        let is = |path: &PathBuf, end: &str| path.extension().is_some_and(|own| own == end);
        let within = |path: PathBuf| match is(&path, OWN_FOLDER) {
            // A program that has just exited may have removed its directory.
            true => list(&path, names::entries(&path).unwrap_or_default()),
            false => vec![path],
        };
        let paths = list(folder, entries).into_iter();
        let sockets = paths.flat_map(within).filter(|path| is(path, EXTENSION));
        sockets.take(SOCKETS_MAX).for_each(|path| found.ask(path, ask));
    }
    found.answers.sort_by_key(|answer| answer.pid);
    found
}

impl Answers {
    fn ask(&mut self, path: PathBuf, ask: &Ask) {
        match ask_one(&path, ask) {
            Ok(answer) => self.answers.push(answer),
            Err(error) => match error.kind() {
                io::ErrorKind::PermissionDenied => self.forbidden.push(path),
                // The program exited after the directory was listed.
                io::ErrorKind::NotFound => {}
                io::ErrorKind::ConnectionRefused => {
                    // The program was killed and left its socket behind. The socket stays if this user may not remove
                    // it.
                    let _ = socket::remove_stale(&path, SocketType::STREAM);
                }
                _ => self.silent.push((path, error.to_string())),
            },
        }
    }
}

/// Queries the program at a socket, which may take [`PATIENCE`] to reply.
fn ask_one(path: &Path, ask: &Ask) -> io::Result<Answer> {
    let mut stream = connect_to(path)?;
    let end = Instant::now() + PATIENCE;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(ask)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut reply = Vec::new();
    let mut buffer = [0; 16 << 10];
    while !reply.ends_with(b"\n") {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer"));
        }
        stream.set_read_timeout(Some(left))?;
        let count = match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        reply.extend_from_slice(&buffer[..count]);
        if reply.len() > REPLY_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the reply is incomplete"));
        }
    }
    understand(&reply)
}

/// Parses the reply of a program.
pub fn understand(reply: &[u8]) -> io::Result<Answer> {
    let answer: Answer = serde_json::from_slice(reply)?;
    if answer.schema != SCHEMA {
        let why = format!("unexpected answer {}, expected {SCHEMA}", answer.schema);
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(answer)
}

/// Returns the same device of the same program from an earlier reading, and the time of that reading.
pub fn earlier<'a>(
    before: &'a [Answer],
    pid: u32,
    reading: &DeviceReading,
) -> Option<(u64, &'a DeviceReading)> {
    let answer = before.iter().find(|answer| answer.pid == pid)?;
    let mut devices = answer.devices.iter();
    let earlier = devices.find(|earlier| {
        (&earlier.path, &earlier.device, earlier.queue)
            == (&reading.path, &reading.device, reading.queue)
    });
    Some((answer.ts_ns, earlier?))
}

/// Schema of replies.
const SCHEMA: &str = "grosso.counters/1";
/// File extension of sockets.
const EXTENSION: &str = "sock";
/// Extension of the directory for the socket of a process that runs as a separate user.
pub const OWN_FOLDER: &str = "own";
/// Maximum number of sockets with the same process ID in a directory.
const NAMES_MAX: usize = 16;
/// Maximum number of programs that are queried per directory.
const SOCKETS_MAX: usize = 1024;
/// Number of requests that can wait while one is answered.
const BACKLOG: i32 = 16;
/// Maximum time for a program's reply.
const PATIENCE: Duration = Duration::from_secs(2);
/// Maximum length of a reply in bytes: enough for a thousand devices with a hundred counters each.
const REPLY_BYTES_MAX: usize = 16 << 20;
