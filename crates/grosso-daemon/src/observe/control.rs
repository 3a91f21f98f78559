//! The socket at which a running program is asked for its counters: both ends.
//!
//! Each program listens on a socket of its own in a folder that all programs of one user agree on. A request is one
//! line of JSON, and so is the answer; then the connection ends. Those who may open the socket may read counters, and
//! nothing else.

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
    /// The counters of its devices.
    Counters {
        /// Whether each queue is reported separately.
        #[serde(default)]
        per_queue: bool,
    },
}

/// The answer of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The name of the reply's schema.
    pub schema: String,
    /// The process number of the program.
    pub pid: u32,
    /// The time at which it read its counters, in nanoseconds since 1970.
    pub ts_ns: u64,
    /// The readings of its devices.
    pub devices: Vec<DeviceReading>,
    /// The confinement of its threads; programs of before say nothing of it.
    #[serde(default)]
    pub confinement: Confinement,
}

impl Answer {
    /// The answer of this program, with its counters at this time.
    pub fn new(at: SystemTime, devices: Vec<DeviceReading>) -> Self {
        let since_1970 = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let ts_ns = u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX);
        let (schema, confinement) = (SCHEMA.to_owned(), confinement::known());
        Self { schema, pid: process::id(), ts_ns, devices, confinement }
    }
}

/// The program's control socket; its file is removed when the value is dropped.
#[derive(Debug)]
pub struct ControlSocket {
    path: PathBuf,
}

impl ControlSocket {
    /// Listens in the first of these folders that is usable.
    ///
    /// # Errors
    /// If none is usable; the error is that of the last one.
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

    /// The path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn create_in(folder: &Path) -> io::Result<(Self, UnixListener)> {
        // A program in another process namespace may have the same number.
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
        // It may be gone already.
        let _ = names::remove(&self.path);
    }
}

/// Listens on a socket that only its owner can open. It is so from its first moment: the mode is set before the name
/// exists. A socket that a program left behind is replaced.
fn listen_on(path: &Path) -> io::Result<UnixListener> {
    let socket = stream()?;
    // On older kernels, descriptors that are passed are closed by the closing thread.
    let _ = refuses_files(&socket);
    socket::bind(&socket, SocketType::STREAM, path, 0o600)?;
    listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Connects to a socket, without waiting for a program that accepts nothing.
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

/// The first of these folders that is usable; a missing one is made.
///
/// # Errors
/// If none is usable; the error is that of the last one.
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

/// The folders of sockets, the preferred ones first: that of the user's session, that of the system, and one of the
/// user's own among temporary files. If the service manager or the user names one in `RUNTIME_DIRECTORY`, it is the
/// only one.
pub fn folders() -> Vec<PathBuf> {
    let is_absolute = |folder: &PathBuf| folder.is_absolute();
    // The variable may name several, joined by colons.
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

/// Whether only the system or the user can have made the folder: among temporary files everybody can make one.
pub fn is_trusted(folder: &Path) -> bool {
    folder.parent() != Some(&env::temp_dir())
        || names::metadata(folder)
            .is_ok_and(|facts| facts.is_dir() && facts.uid() == geteuid().as_raw())
}

/// The answers of the running programs.
#[derive(Debug, Default)]
pub struct Answers {
    /// In the order of their process numbers.
    pub answers: Vec<Answer>,
    /// Sockets that this user may not open.
    pub forbidden: Vec<PathBuf>,
    /// Programs that did not answer, and the reason.
    pub silent: Vec<(PathBuf, String)>,
}

/// Asks every program that has a socket in one of these folders, or in the folder there of a process of its own user.
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
            // A program that has just ended takes its folder along.
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
                // The program ended after the folder was listed.
                io::ErrorKind::NotFound => {}
                io::ErrorKind::ConnectionRefused => {
                    // The program was killed and left its socket. If this user may not remove it, it stays.
                    let _ = socket::remove_stale(&path, SocketType::STREAM);
                }
                _ => self.silent.push((path, error.to_string())),
            },
        }
    }
}

/// Asks the program behind a socket, which may take [`PATIENCE`] to answer.
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
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the answer is incomplete"));
        }
    }
    understand(&reply)
}

/// Reads the answer of a program.
pub fn understand(reply: &[u8]) -> io::Result<Answer> {
    let answer: Answer = serde_json::from_slice(reply)?;
    if answer.schema != SCHEMA {
        let why = format!("unexpected answer {}, expected {SCHEMA}", answer.schema);
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(answer)
}

/// The same device of the same program in an earlier reading, and the time of that.
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

/// The schema of answers.
const SCHEMA: &str = "grosso.counters/1";
/// The end of the names of sockets.
const EXTENSION: &str = "sock";
/// The end of the names of folders whose sockets are those of one process, which became another user.
pub const OWN_FOLDER: &str = "own";
/// Most sockets of one process number in one folder.
const NAMES_MAX: usize = 16;
/// Most programs that are asked in one folder.
const SOCKETS_MAX: usize = 1024;
/// Requests that wait while one is answered.
const BACKLOG: i32 = 16;
/// The longest time that a program may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most bytes of an answer: a thousand devices with a hundred counters.
const REPLY_BYTES_MAX: usize = 16 << 20;
