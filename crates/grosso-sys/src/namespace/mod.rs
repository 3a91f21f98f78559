//! Gives a thread or a process its own namespaces, for example a private network. This works with and without root.
//!
//! A network namespace belongs to a *thread*; descriptors opened in it remain usable in every other thread.
//! [`NetworkNamespace`] is a descriptor of an unnamed namespace, which exists as long as a descriptor, a thread or a
//! process refers to it, and which leaves nothing behind after a crash.
//!
//! The attributes of the devices in a namespace are visible only through a sysfs mounted in it. Therefore
//! [`isolate_thread_network`] and [`show_network_in_sysfs`] mount a sysfs that only the calling thread sees.
//! `/proc/net` shows the namespace of the process's first thread: read `/proc/thread-self/net` instead.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use crate::abi;
use crate::datagram;
use crate::path::kernel;

mod user;

pub use user::{UserNamespaceRefusal, isolate_process_user, user_namespace_refusal};

/// A network namespace, held open by a descriptor.
#[derive(Debug)]
pub struct NetworkNamespace {
    file: OwnedFd,
}

impl NetworkNamespace {
    /// Creates a network namespace that contains only a loopback device, which is down. The calling thread stays in its
    /// own namespace.
    ///
    /// # Errors
    ///
    /// Returns `EPERM` without `CAP_SYS_ADMIN`: become root in a user namespace first; see [`isolate_process_user`].
    /// Returns `ENOSPC` at the limit `user.max_net_namespaces`.
    pub fn new() -> io::Result<Self> {
        on_a_thread(|| {
            // SAFETY: descriptors stay shared, because `FILES` is not among the flags.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
            Self::current()
        })?
    }

    /// Returns the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// Returns `NotFound` if `/proc` is not mounted.
    pub fn current() -> io::Result<Self> {
        Ok(Self { file: kernel::open("/proc/thread-self/ns/net")?.into() })
    }

    /// Returns the network namespace of a process.
    ///
    /// # Errors
    ///
    /// Returns `NotFound` if there is no such process, or `EACCES` for another user's process.
    pub fn of_process(process: u32) -> io::Result<Self> {
        Ok(Self { file: kernel::open(format!("/proc/{process}/ns/net"))?.into() })
    }

    /// Moves the calling thread into the namespace, permanently.
    ///
    /// # Errors
    ///
    /// Returns `EPERM` without `CAP_SYS_ADMIN` in the namespace, or `EINVAL` if the descriptor is of another type.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// Runs `work` in the namespace on a new thread and returns its result. Descriptors that `work` opens remain
    /// usable.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`NetworkNamespace::enter`], and `EAGAIN` if no thread can be started.
    ///
    /// # Panics
    ///
    /// Propagates a panic from `work`.
    pub fn run<Output: Send>(&self, work: impl FnOnce() -> Output + Send) -> io::Result<Output> {
        on_a_thread(|| self.enter().map(|()| work()))?
    }

    /// Makes a command run in the namespace.
    pub fn host<'a>(&self, command: &'a mut Command) -> io::Result<&'a mut Command> {
        let file = self.file.try_clone()?;
        let enter = move || {
            // The `setns(2)` wrapper may be called between fork and exec, because it takes no lock and allocates no
            // memory.
            Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?)
        };
        // SAFETY: `enter` makes one system call and touches no state that another thread could have
        // left inconsistent.
        Ok(unsafe { command.pre_exec(enter) })
    }

    /// Returns whether both values refer to the same namespace.
    ///
    /// # Errors
    ///
    /// Returns any error from `fstat(2)`.
    pub fn is_same(&self, other: &Self) -> io::Result<bool> {
        let (one, two) = (rustix::fs::fstat(&self.file)?, rustix::fs::fstat(&other.file)?);
        Ok((one.st_dev, one.st_ino) == (two.st_dev, two.st_ino))
    }
}

impl AsFd for NetworkNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for NetworkNamespace {
    fn as_raw_fd(&self) -> i32 {
        self.file.as_raw_fd()
    }
}

/// Returns the cookie of the calling thread's network namespace, which is unique until the next reboot
/// (`SO_NETNS_COOKIE`). The inode number is not unique: the kernel reuses it once the namespace is gone.
///
/// # Errors
///
/// Returns `ENOPROTOOPT` before Linux 5.14.
pub fn network_cookie() -> io::Result<u64> {
    let socket = UnixDatagram::unbound()?;
    let [one, two] = datagram::read::<2>(&socket, libc::SOL_SOCKET, abi::SO_NETNS_COOKIE)?;
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&one.to_ne_bytes());
    bytes[4..].copy_from_slice(&two.to_ne_bytes());
    Ok(u64::from_ne_bytes(bytes))
}

/// Moves the calling thread into a new network namespace, and into a mount namespace whose `/sys` shows that network.
///
/// The thread keeps both until it ends, so call it on a dedicated thread.
///
/// # Errors
///
/// Returns `EPERM` without `CAP_SYS_ADMIN`: become root in a user namespace first; see [`isolate_process_user`].
pub fn isolate_thread_network() -> io::Result<()> {
    // SAFETY: descriptors stay shared, because `FILES` is not among the flags.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
    show_network_in_sysfs()
}

/// Moves the calling thread into a mount namespace whose `/sys` shows the thread's network namespace.
///
/// # Errors
///
/// Returns `EPERM` without `CAP_SYS_ADMIN`, or if the network belongs to another user namespace.
pub fn show_network_in_sysfs() -> io::Result<()> {
    // SAFETY: descriptors stay shared, because `FILES` is not among the flags.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) }?;
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("sysfs", "/sys", "sysfs", flags, None)?;
    Ok(())
}

/// Runs `work` on a new thread, whose namespaces end with it.
fn on_a_thread<Output: Send>(work: impl FnOnce() -> Output + Send) -> io::Result<Output> {
    let mut output = None;
    run_boxed(Box::new(|| output = Some(work())))?;
    Ok(output.expect("a thread that ended without a panic has done its work"))
}

/// Runs `work` on a new thread. This function is separate from [`on_a_thread`] because that function is compiled again
/// for each type of work.
fn run_boxed(work: Box<dyn FnOnce() + Send + '_>) -> io::Result<()> {
    thread::scope(|scope| {
        let running = thread::Builder::new().spawn_scoped(scope, work)?;
        running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok(())
    })
}
