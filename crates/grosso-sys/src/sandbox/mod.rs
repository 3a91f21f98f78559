//! Sandboxing of threads: each gives up the capabilities, system calls and files that its work does not need.
//!
//! | module | job |
//! |---|---|
//! | `roles` | capabilities and system calls of each role |
//! | `files` | denial of files, connections and signals (Landlock) |
//! | `filter` | compilation of a role's system calls to a seccomp filter |
//! | `violation` | termination of the program if a thread makes a forbidden system call |
//! | `user` | change of the user, keeping capabilities |
//! | `state` | the sandbox state of each thread as the kernel reports it |
//!
//! A thread enters its role once and can never leave it. Threads that it starts inherit the sandbox.
//!
//! ```no_run
//! use grosso_sys::sandbox::{Role, enter, name_violations};
//!
//! # fn main() -> std::io::Result<()> {
//! name_violations()?;
//! std::thread::spawn(|| enter(Role::Data)).join().unwrap()?;
//! enter(Role::Opener)?;
//! # Ok(())
//! # }
//! ```

mod files;
mod filter;
mod roles;
mod state;
mod user;
mod violation;

use std::{io, path::PathBuf};

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities,
    set_no_new_privs,
};

pub use self::{
    filter::is_supported,
    roles::Role,
    state::{ThreadState, own_threads},
    user::{User, become_user},
    violation::name_violations,
};

/// Confines the calling thread to a role: no process that it starts can gain privileges, and its capabilities are
/// limited to the role's. If the kernel supports Landlock and seccomp, the thread may use only the files and system
/// calls of the role. Returns whether Landlock is active.
///
/// # Errors
///
/// Returns errors from the kernel. After an error, the thread is only partially confined.
pub fn enter(role: Role) -> io::Result<bool> {
    sandbox(role, &[])
}

/// Confines the calling thread to [`Role::Files`], as [`enter`] does. The thread may create and write files below
/// `directories`.
///
/// # Errors
///
/// Returns the same errors as [`enter`].
pub fn enter_files(directories: &[PathBuf]) -> io::Result<bool> {
    sandbox(Role::Files, directories)
}

fn sandbox(role: Role, directories: &[PathBuf]) -> io::Result<bool> {
    set_no_new_privs(true)?;
    keep_capabilities(role.capabilities())?;
    let has_landlock = files::restrict(role, directories)?;
    filter::install(role).map(|()| has_landlock)
}

/// Gives up all capabilities of the calling thread except those in `kept`.
fn keep_capabilities(kept: CapabilitySet) -> io::Result<()> {
    // Kernels before 4.3 have no ambient capabilities.
    match clear_ambient_capability_set() {
        Ok(()) | Err(rustix::io::Errno::INVAL) => {}
        Err(error) => return Err(error.into()),
    }
    let kept = kept & capabilities(None)?.permitted;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: none };
    Ok(set_capabilities(None, sets)?)
}
