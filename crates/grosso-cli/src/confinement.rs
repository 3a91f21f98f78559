//! The confinement of the process: each thread gives up what its work does not need.
//!
//! | thread | capabilities | system calls |
//! |---|---|---|
//! | of a path | none | packets, and nothing that opens or makes |
//! | `grosso-observe` | none | requests for counters |
//! | `signals` | none | waiting |
//! | the main one | those with which devices are opened | opening, for a reload |
//!
//! Threads of paths are confined before their first packet, the main one when the devices are open.

use std::{
    io,
    sync::mpsc,
    thread::{self, JoinHandle},
};

use grosso_sys::confine::{self, Role};

use crate::{error::Failure, talk::Talk};

/// Makes ready for the confinement, before any thread is started.
pub(crate) fn begin(command: &str, talk: &mut Talk) -> Result<(), Failure> {
    confine::name_violations().map_err(|error| failed(command, &error))?;
    if !confine::is_supported() {
        talk.note("system calls are not filtered: this kernel has no seccomp filters");
    }
    Ok(())
}

/// Confines the main thread, when the devices are open.
pub(crate) fn settle(command: &str) -> Result<(), Failure> {
    confine::enter(Role::Opener).map_err(|error| failed(command, &error))
}

/// Confines a thread of a path.
pub(crate) fn data_thread() -> io::Result<()> {
    confine::enter(Role::Data)?;
    #[cfg(debug_assertions)]
    fault::inject();
    Ok(())
}

/// Starts a thread, and returns once it is confined.
pub(crate) fn spawn(
    name: &str,
    role: Role,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let (sender, entered) = mpsc::channel();
    let confined = move || {
        let result = confine::enter(role);
        let is_confined = result.is_ok();
        // The caller waits for it.
        let _ = sender.send(result);
        if is_confined {
            work();
        }
    };
    let thread = thread::Builder::new().name(name.to_owned()).spawn(confined)?;
    let ended = |_| Err(io::Error::other("it ended at once"));
    entered.recv().unwrap_or_else(ended).map(|()| thread)
}

fn failed(command: &str, error: &io::Error) -> Failure {
    let message = format!("{command}: the process cannot be confined: {error}");
    Failure::environment("environment.confinement", message)
}

/// Faults that tests ask for by `GROSSO_FAULT=KIND THREAD TIMES`, in builds with assertions only.
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
            "panic" => panic!("a fault that a test asked for"),
            // A new socket is none of a path's business.
            _ => drop(UnixDatagram::unbound()),
        }
    }
}
