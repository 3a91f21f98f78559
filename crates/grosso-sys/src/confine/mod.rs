//! Threads that give up what their work does not need: capabilities, system calls, files.
//!
//! | module | job |
//! |---|---|
//! | `roles` | the tables: capabilities and system calls of each kind of thread |
//! | `files` | files, connections and signals that a role never needs (Landlock) |
//! | `filter` | a table as a filter of system calls (seccomp) |
//! | `violation` | the end of a program whose thread makes another system call |
//! | `user` | another user, with the capabilities kept |
//! | `state` | the kernel's account of the confinement of each thread |
//!
//! A thread enters its role once and can never leave it; threads that it starts inherit its confinement.
//!
//! ```no_run
//! use grosso_sys::confine::{Role, enter, name_violations};
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

/// Confines the calling thread to a role: nothing that it starts can gain privileges, it has the capabilities of the
/// role as far as it had them before, and uses the files and makes the system calls of the role, where the kernel has
/// Landlock and filters. Returns whether it has Landlock.
///
/// # Errors
///
/// The kernel's, if it refuses a step; the thread is then confined in part.
pub fn enter(role: Role) -> io::Result<bool> {
    confine(role, &[])
}

/// Confines the calling thread to [`Role::Files`], as [`enter`] does: it makes and writes files in these directories,
/// and in those beneath them.
///
/// # Errors
///
/// As those of [`enter`].
pub fn enter_files(directories: &[PathBuf]) -> io::Result<bool> {
    confine(Role::Files, directories)
}

fn confine(role: Role, directories: &[PathBuf]) -> io::Result<bool> {
    set_no_new_privs(true)?;
    keep_capabilities(role.capabilities())?;
    let has_landlock = files::restrict(role, directories)?;
    filter::install(role).map(|()| has_landlock)
}

/// Gives up all capabilities of the calling thread but these.
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
