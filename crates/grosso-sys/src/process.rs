//! Starts processes that end when their parent ends.

use std::{io, os::unix::process::CommandExt, process::Command};

use rustix::{
    mount::{MountFlags, MountPropagationFlags, mount, mount_change},
    process::{Signal, set_parent_process_death_signal},
    thread::{UnshareFlags, unshare_unsafe},
};

/// Makes the next child process the first of a new PID namespace: when this child ends for any reason, the kernel kills
/// all of its descendants.
///
/// # Errors
///
/// Returns `EPERM` without `CAP_SYS_ADMIN`: become root in a user namespace first; see
/// [`crate::namespace::isolate_process_user`].
pub fn isolate_children() -> io::Result<()> {
    // SAFETY: descriptors stay shared, because `FILES` is not among the flags.
    Ok(unsafe { unshare_unsafe(UnshareFlags::NEWPID) }?)
}

/// Makes the kernel kill a command when the thread that started it ends.
pub fn die_with_parent(command: &mut Command) -> &mut Command {
    let bind = || Ok(set_parent_process_death_signal(Some(Signal::KILL))?);
    // SAFETY: `bind` makes one system call and touches no state that another thread could have left
    // inconsistent.
    unsafe { command.pre_exec(bind) }
}

/// Returns whether this process is the first of a PID namespace.
#[must_use]
pub fn is_first() -> bool {
    std::process::id() == 1
}

/// Moves the process into a mount namespace whose `/proc` shows only the processes of its PID namespace. Call it before
/// a second thread starts.
///
/// # Errors
///
/// Returns `EPERM` without `CAP_SYS_ADMIN`, or if parts of `/proc` are hidden from containers.
pub fn show_in_proc() -> io::Result<()> {
    // SAFETY: descriptors stay shared, because `FILES` is not among the flags.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(mount("proc", "/proc", "proc", flags, None)?)
}
