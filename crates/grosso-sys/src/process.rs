//! Processes that end with the one that started them.

use std::{io, os::unix::process::CommandExt, process::Command};

use rustix::{
    mount::{MountFlags, MountPropagationFlags, mount, mount_change},
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

/// Whether this process is the first of a process namespace.
#[must_use]
pub fn is_first() -> bool {
    std::process::id() == 1
}

/// Gives the process a mount namespace whose `/proc` shows the processes of its own namespace. To be
/// called before it has a second thread.
///
/// # Errors
///
/// `EPERM` without `CAP_SYS_ADMIN`, or where parts of `/proc` are hidden from containers.
pub fn show_in_proc() -> io::Result<()> {
    // SAFETY: descriptors stay shared, since `FILES` is not among the flags.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(mount("proc", "/proc", "proc", flags, None)?)
}
