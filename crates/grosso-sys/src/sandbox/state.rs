//! Reads the sandbox state of threads from the kernel.

use std::io;

use rustix::process::{Pid, getpid};

use crate::{path::kernel, scheduling};

/// Sandbox state of a thread, from `/proc`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadState {
    /// Thread name.
    pub name: String,
    /// Thread ID.
    pub number: u32,
    /// Effective user ID.
    pub uid: u32,
    /// Effective capabilities as bits.
    pub capabilities: u64,
    /// Whether processes that the thread starts are kept from gaining privileges.
    pub no_new_privs: bool,
    /// Whether seccomp filters the thread's system calls.
    pub seccomp: bool,
}

/// Returns the states of this process's threads, ordered by ID.
///
/// # Errors
///
/// Returns any error from reading `/proc`.
pub fn own_threads() -> io::Result<Vec<ThreadState>> {
    let state = |thread: Pid| {
        // A thread may end in the meantime.
        parse(&kernel::read(format!("/proc/self/task/{thread}/status")).ok()?)
    };
    Ok(scheduling::threads(getpid())?.into_iter().filter_map(state).collect())
}

/// Parses `/proc/PID/task/TID/status`.
fn parse(text: &str) -> Option<ThreadState> {
    let value = |key: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        found.map(str::trim)
    };
    Some(ThreadState {
        name: value("Name")?.to_owned(),
        number: value("Pid")?.parse().ok()?,
        uid: value("Uid")?.split_whitespace().nth(1)?.parse().ok()?,
        capabilities: u64::from_str_radix(value("CapEff")?, 16).ok()?,
        // Kernels without filters do not have these lines.
        no_new_privs: value("NoNewPrivs") == Some("1"),
        seccomp: value("Seccomp") == Some("2"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calling_thread_is_among_the_threads_of_the_process() {
        let own = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        let states = own_threads().unwrap();
        let state = states.iter().find(|state| state.number == own).unwrap();
        assert_eq!(state.uid, rustix::process::geteuid().as_raw());
    }

    #[test]
    fn a_text_of_another_form_is_no_state() {
        assert_eq!(parse("Name:\tx\nPid:\t1\n"), None);
    }
}
