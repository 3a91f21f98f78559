//! The confinement of the process: each thread gives up the privileges that its work does not need.
//!
//! | thread | capabilities | system calls |
//! |---|---|---|
//! | threads of paths | none | packets, and Unix sockets if the thread connects to one or shares memory |
//! | `grosso-observe` | none | requests for counters |
//! | `signals` | none | waiting |
//! | `closer` | none | closing descriptors that other programs passed |
//! | main | capabilities to open devices | opening, for a reload |
//! | main, in `capture` | none | frames of an open ring, open files and sockets |
//! | `pcap-listener` | none | clients of `capture --listen` |
//! | `capture-files` | the capability for directories of other users | opening files in the output directories |
//!
//! Threads of paths are confined before their first packet, as is the main thread of `capture`. In other commands, the
//! main thread is confined once the devices are open.

use std::{
    io,
    path::PathBuf,
    sync::{Mutex, PoisonError, mpsc},
    thread::{self, JoinHandle},
};

use grosso_sys::{
    closer,
    sandbox::{self, Role, ThreadState, User, become_user},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{error::Failure, name::harmless, talk::Talk};

/// Confinement of a process after its threads have started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct Confinement {
    /// Whether Landlock denies the threads access to files.
    pub landlock: bool,
    pub threads: Vec<ConfinedThread>,
}

/// Confinement of a thread, as the kernel reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema, Deserialize)]
#[expect(missing_docs, reason = "a comment of a field is its description in the schema")]
pub struct ConfinedThread {
    pub name: String,
    pub tid: u32,
    pub uid: u32,
    /// Effective capabilities in hexadecimal digits, as in `/proc`.
    pub cap_eff: String,
    pub no_new_privs: bool,
    pub seccomp: bool,
}

impl From<ThreadState> for ConfinedThread {
    fn from(state: ThreadState) -> Self {
        let ThreadState { name, number, uid, capabilities, no_new_privs, seccomp } = state;
        let cap_eff = format!("{capabilities:016x}");
        Self { name, tid: number, uid, cap_eff, no_new_privs, seccomp }
    }
}

impl Confinement {
    /// Returns a line for each thread.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let landlock = if self.landlock { 1 } else { 0 };
        self.threads.iter().map(move |thread| {
            let name = harmless(&thread.name);
            let ConfinedThread { uid, cap_eff, no_new_privs, seccomp, .. } = thread;
            // `/proc` shows a system call filter as mode 2.
            let (no_new_privs, seccomp) = (u8::from(*no_new_privs), 2 * u8::from(*seccomp));
            format!(
                "{name}: uid {uid}, CapEff {cap_eff}, NoNewPrivs {no_new_privs}, Seccomp {seccomp}, \
                 Landlock {landlock}"
            )
        })
    }

    /// Returns whether every thread has given up all privileges that it can.
    pub fn is_whole(&self) -> bool {
        let is_confined = |thread: &ConfinedThread| thread.no_new_privs && thread.seccomp;
        !self.threads.is_empty() && self.threads.iter().all(is_confined)
    }
}

/// Confinement of this process at the last update.
static KNOWN: Mutex<Confinement> = Mutex::new(Confinement { landlock: false, threads: Vec::new() });

/// Returns the recorded confinement of this process.
pub fn known() -> Confinement {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Updates the recorded confinement of this process after paths have started or ended.
pub fn look() {
    // Threads are not reported if `/proc` is hidden.
    let threads = sandbox::own_threads().unwrap_or_default();
    let threads = threads.into_iter().map(ConfinedThread::from).collect();
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).threads = threads;
}

/// Prepares the process so that each thread can be confined; call it before any thread starts. If `user` is given, the
/// process switches to this user.
pub fn begin(command: &str, user: Option<&str>, talk: &mut Talk) -> Result<(), Failure> {
    if let Some(name) = user {
        User::named(name).and_then(become_user).map_err(|error| no_user(command, name, &error))?;
    }
    sandbox::name_violations().map_err(|error| failed(command, &error))?;
    if !sandbox::is_supported() {
        talk.note(
            "system calls are not filtered, because this kernel does not support seccomp filters",
        );
    }
    Ok(())
}

/// Starts the thread that closes descriptors from other programs, for commands whose ports or sockets may receive
/// descriptors.
pub fn start_closer(command: &str) -> Result<(), Failure> {
    let spawn = |work| spawn("closer", Role::Closer, work).map(drop);
    closer::start(spawn).map_err(|error| failed(command, &error))
}

/// Confines the main thread; call it once the devices are open.
pub fn settle(command: &str) -> Result<(), Failure> {
    let landlock = sandbox::enter(Role::Opener).map_err(|error| failed(command, &error))?;
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).landlock = landlock;
    look();
    Ok(())
}

/// Confines the main thread of a capture. Call it once its files and sockets are open.
pub fn record() -> Result<(), Failure> {
    sandbox::enter(Role::Recording).map(drop).map_err(|error| failed("capture", &error))
}

/// Confines a thread of a path.
pub fn data_thread() -> io::Result<()> {
    path_thread(Role::Data)
}

/// Confines a thread of a path that connects to the socket of another program.
pub fn connecting_thread() -> io::Result<()> {
    path_thread(Role::Connecting)
}

/// Confines a thread of a path that shares memory with a VM.
pub fn machine_thread() -> io::Result<()> {
    path_thread(Role::Machine)
}

fn path_thread(role: Role) -> io::Result<()> {
    sandbox::enter(role)?;
    #[cfg(debug_assertions)]
    fault::inject();
    Ok(())
}

/// Starts a thread, and returns once the thread is confined.
pub fn spawn(
    name: &str,
    role: Role,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    spawn_entering(name, move || sandbox::enter(role), work)
}

/// Starts a thread that creates and writes files in these directories, and returns once the thread is confined.
pub fn spawn_opener(
    name: &str,
    directories: Vec<PathBuf>,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    spawn_entering(name, move || sandbox::enter_files(&directories), work)
}

fn spawn_entering(
    name: &str,
    enter: impl FnOnce() -> io::Result<bool> + Send + 'static,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let (sender, entered) = mpsc::channel();
    let confined = move || {
        let result = enter();
        let is_confined = result.is_ok();
        // The send cannot fail, because the caller waits for the result.
        let _ = sender.send(result);
        if is_confined {
            work();
        }
    };
    let thread = thread::Builder::new().name(name.to_owned()).spawn(confined)?;
    let ended = |_| Err(io::Error::other("the thread ended before it was confined"));
    entered.recv().unwrap_or_else(ended).map(|_| thread)
}

/// Returns the failure of a command that could not switch to the user `name`.
pub fn no_user(command: &str, name: &str, error: &io::Error) -> Failure {
    let message = format!("{command}: user {name}: {error}");
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied => "only root can switch to another user: sudo grosso ...",
        _ => "getent passwd lists the users",
    };
    Failure::environment("environment.user", message).hint(hint)
}

fn failed(command: &str, error: &io::Error) -> Failure {
    let message = format!("{command}: cannot confine the process: {error}");
    Failure::environment("environment.confinement", message)
}

/// Faults that tests inject with `GROSSO_FAULT=KIND THREAD TIMES`. Only builds with assertions read this variable.
#[cfg(debug_assertions)]
mod fault {
    use std::{
        env,
        os::unix::net::UnixDatagram,
        sync::atomic::{AtomicU32, Ordering},
        thread,
    };

    pub(super) fn inject() {
        static TIMES: AtomicU32 = AtomicU32::new(0);
        let wanted = env::var("GROSSO_FAULT").unwrap_or_default();
        let words: Vec<&str> = wanted.split(' ').collect();
        let [kind, name, times] = words[..] else { return };
        let is_here = thread::current().name() == Some(name);
        let times: u32 = times.parse().unwrap_or(0);
        if !is_here || TIMES.fetch_add(1, Ordering::Relaxed) >= times {
            return;
        }
        match kind {
            "panic" => panic!("a panic that a test requested"),
            // A path must not create sockets.
            _ => drop(UnixDatagram::unbound()),
        }
    }
}
