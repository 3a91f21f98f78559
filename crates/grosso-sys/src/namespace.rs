//! Private namespaces for a thread or a process: a network of one's own, without and with root.
//!
//! A network namespace belongs to a *thread*; descriptors opened in it stay usable from every
//! other. Its devices' attributes are seen only through a sysfs mounted in it, so
//! [`isolate_thread_network`] mounts one, visible to the calling thread alone. `/proc/net` is the
//! network of the process's first thread: read `/proc/thread-self/net`.

use std::fs;
use std::io;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Gives the calling thread a fresh network namespace and a mount namespace whose `/sys` shows it.
///
/// The thread keeps both until it ends, so it should be one that was started for the purpose.
///
/// # Errors
///
/// `EPERM` without `CAP_SYS_ADMIN`: become root in a user namespace first, see
/// [`isolate_process_user`].
pub fn isolate_thread_network() -> io::Result<()> {
    // SAFETY: descriptors stay shared, since `FILES` is not among the flags.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET | UnshareFlags::NEWNS | UnshareFlags::FS) }?;
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("sysfs", "/sys", "sysfs", flags, None)?;
    Ok(())
}

/// Makes the process root in a user namespace of its own, where it may isolate networks.
///
/// # Errors
///
/// `EINVAL` if the process has more than one thread, `EPERM` or `ENOSPC` if the system allows no
/// user namespaces.
pub fn isolate_process_user() -> io::Result<()> {
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    // SAFETY: descriptors stay shared, since `FILES` is not among the flags.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    // Without this an unprivileged process may not map its group (user_namespaces(7)).
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1"))
}
