//! User namespaces, in which an unprivileged process gets root privileges over its own private namespaces.

use core::fmt;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{DumpableBehavior, dumpable_behavior, set_dumpable_behavior};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::path::kernel;

/// Makes the process root in a new user namespace, in which it may create network namespaces.
///
/// # Errors
///
/// Returns `EINVAL` if the process has more than one thread, or `EPERM`, `EACCES` or `ENOSPC` if the system permits no
/// user namespaces. [`user_namespace_refusal`] returns the reason.
pub fn isolate_process_user() -> io::Result<()> {
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    // SAFETY: descriptors stay shared, because `FILES` is not among the flags.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }?;
    let was_dumpable = dumpable_behavior()? == DumpableBehavior::Dumpable;
    own_process_files()?;
    kernel::write("/proc/self/uid_map", format!("0 {user} 1"))?;
    // Without this an unprivileged process may not map its group (user_namespaces(7)).
    kernel::write("/proc/self/setgroups", "deny")?;
    kernel::write("/proc/self/gid_map", format!("0 {group} 1"))?;
    if !was_dumpable {
        // The process may hold keys, so other processes must not read its memory.
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    }
    Ok(())
}

/// Makes the process's user the owner of the process's files in `/proc`. The files of a program with file capabilities
/// belong to root, so only root may map the users of such a program.
fn own_process_files() -> rustix::io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::Dumpable)
}

/// Reason why an unprivileged process cannot create a user namespace with a network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserNamespaceRefusal {
    /// The kernel was built without user namespaces.
    NotBuilt,
    /// `user.max_user_namespaces` is 0.
    LimitIsZero,
    /// `kernel.unprivileged_userns_clone` is 0 (Debian and older distributions).
    Switch,
    /// AppArmor removes the privileges (`kernel.apparmor_restrict_unprivileged_userns`, Ubuntu
    /// 23.10 and later).
    AppArmor,
    /// The reason is unknown. It may be a container's seccomp filter, SELinux, or chroot.
    Unknown,
}

impl fmt::Display for UserNamespaceRefusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::NotBuilt => "the kernel has no user namespaces (CONFIG_USER_NS)",
            Self::LimitIsZero => "user.max_user_namespaces is 0",
            Self::Switch => "kernel.unprivileged_userns_clone is 0",
            Self::AppArmor => "kernel.apparmor_restrict_unprivileged_userns is 1",
            Self::Unknown => "a container or a security module forbids user namespaces",
        })
    }
}

impl UserNamespaceRefusal {
    /// Returns a command that an administrator can run to remove the restriction, or `None` if there is no such
    /// command.
    pub fn remedy(self) -> Option<&'static str> {
        match self {
            Self::LimitIsZero => Some("sysctl -w user.max_user_namespaces=10000"),
            Self::Switch => Some("sysctl -w kernel.unprivileged_userns_clone=1"),
            Self::AppArmor => Some("sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"),
            Self::NotBuilt | Self::Unknown => None,
        }
    }
}

/// Tests in a short-lived child process whether a process with the same privileges can create a user namespace with a
/// network namespace; `None` means that it can.
///
/// # Errors
///
/// Returns an error if the child cannot be started.
pub fn user_namespace_refusal() -> io::Result<Option<UserNamespaceRefusal>> {
    let mut child = Command::new("/proc/self/exe");
    let user = rustix::process::geteuid().as_raw();
    let map = format!("0 {user} 1");
    let attempt = move || {
        // SAFETY: descriptors stay shared, because `FILES` is not among the flags.
        unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }?;
        own_process_files()?;
        // AppArmor either makes this call fail, or permits a namespace without privileges and makes the call below
        // fail.
        let file = kernel::open_with("/proc/self/uid_map", rustix::fs::OFlags::WRONLY)?;
        rustix::io::write(&file, map.as_bytes())?;
        // SAFETY: descriptors stay shared, because `FILES` is not among the flags.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
        // The program is never started: this error code reports success.
        Err(io::Error::from_raw_os_error(libc::ECANCELED))
    };
    // SAFETY: `attempt` makes system calls on memory that was prepared before the fork; it takes no
    // lock and allocates nothing.
    unsafe { child.pre_exec(attempt) };
    match child.spawn() {
        Ok(mut started) => {
            started.wait()?;
            Err(io::Error::other(
                "internal error: the probe started a program, which it must never do",
            ))
        }
        Err(error) => match error.raw_os_error() {
            Some(libc::ECANCELED) => Ok(None),
            Some(libc::EPERM | libc::EACCES | libc::ENOSPC | libc::EINVAL | libc::EUSERS) => {
                Ok(Some(reason()))
            }
            _ => Err(error),
        },
    }
}

/// Returns the first known setting that forbids user namespaces.
fn reason() -> UserNamespaceRefusal {
    let is = |path: &str, value: &str| kernel::read(path).is_ok_and(|text| text.trim() == value);
    if !kernel::is_there("/proc/self/ns/user") {
        UserNamespaceRefusal::NotBuilt
    } else if is("/proc/sys/user/max_user_namespaces", "0") {
        UserNamespaceRefusal::LimitIsZero
    } else if is("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        UserNamespaceRefusal::Switch
    } else if is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
        UserNamespaceRefusal::AppArmor
    } else {
        UserNamespaceRefusal::Unknown
    }
}
