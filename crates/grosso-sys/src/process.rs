//! Processes that end with the one that started them.

use std::{
    io,
    os::unix::process::{CommandExt, parent_id},
    process::Command,
};

use rustix::{
    process::{Signal, set_parent_process_death_signal},
    thread::{UnshareFlags, unshare_unsafe},
};

/// Lets the next process that this one starts be the first of a process namespace: when it ends,
/// however it ends, the kernel ends all that descend from it.
///
/// # Errors
///
/// `EPERM` without `CAP_SYS_ADMIN`: become root in a user namespace first, see
/// [`crate::namespace::isolate_process_user`].
pub fn isolate_children() -> io::Result<()> {
    // SAFETY: descriptors stay shared, since `FILES` is not among the flags.
    Ok(unsafe { unshare_unsafe(UnshareFlags::NEWPID) }?)
}

/// Has a command killed when the thread that starts it ends.
pub fn die_with_parent(command: &mut Command) -> &mut Command {
    let bind = || Ok(set_parent_process_death_signal(Some(Signal::KILL))?);
    // SAFETY: `bind` makes one system call and touches nothing that another thread could have left
    // half done.
    unsafe { command.pre_exec(bind) }
}

/// Whether this process is the first of a process namespace whose parent is outside.
#[must_use]
pub fn is_first() -> bool {
    std::process::id() == 1 && parent_id() == 0
}
