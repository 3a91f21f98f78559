//! Checks whether this process may create networks, and gives advice if it may not.

use core::fmt;
use std::{io, os::unix::fs::PermissionsExt, path::Path};

use rustix::io::Errno;

use crate::{
    namespace::{UserNamespaceRefusal, isolate_process_user, user_namespace_refusal},
    path::{self, kernel},
};

/// Reason why this process may not create networks or devices.
#[derive(Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// Only root may create network namespaces here.
    UserNamespaces(UserNamespaceRefusal),
    /// TAP devices are not available: the kernel module is not loaded, or a container hides them.
    NoTun(Surroundings),
    /// Only root may create TAP devices.
    TunClosed {
        /// Mode of the device file.
        mode: u32,
    },
    /// Any other error.
    Other(io::Error),
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UserNamespaces(refusal) => {
                write!(formatter, "unprivileged user namespaces are disabled ({refusal})")
            }
            Self::NoTun(_) => write!(formatter, "{TUN}: no such device"),
            Self::TunClosed { mode } => {
                write!(formatter, "{TUN}: permission denied (mode {mode:04o})")
            }
            Self::Other(error) => {
                write!(formatter, "cannot create a private network namespace: {error}")
            }
        }
    }
}

impl core::error::Error for Refusal {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Other(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Other(error)
    }
}

/// Environment of a process, which determines the remedy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surroundings {
    /// A Kubernetes pod.
    Pod,
    /// A container.
    Container,
    /// A virtual machine, outside a container.
    VirtualMachine,
    /// A physical machine, outside a container.
    Machine,
}

impl Surroundings {
    /// Returns the environment of this process.
    #[must_use]
    pub fn detect() -> Self {
        if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
            Self::Pod
        } else if is_container() {
            Self::Container
        } else if is_virtual() {
            Self::VirtualMachine
        } else {
            Self::Machine
        }
    }
}

impl fmt::Display for Surroundings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Pod => "pod",
            Self::Container => "container",
            Self::VirtualMachine => "virtual machine",
            Self::Machine => "machine",
        })
    }
}

/// Returns whether a file that container runtimes create exists, and the process is outside the initial namespaces. The
/// namespaces are checked too, because a machine may boot from a former container file system.
fn is_container() -> bool {
    let is_marked =
        ["/.dockerenv", "/run/.containerenv"].iter().any(|mark| path::is_there(Path::new(mark)));
    is_marked
        && FIRST_NAMESPACES.iter().any(|(kind, number)| {
            let own = kernel::read_link(format!("/proc/self/ns/{kind}"));
            own.is_ok_and(|own| own != Path::new(&format!("{kind}:[{number}]")))
        })
}

/// Returns whether the CPU or the firmware reports a virtual machine.
fn is_virtual() -> bool {
    let says = |path: &str, words: &[&str]| {
        let text = kernel::read(path).unwrap_or_default();
        words.iter().any(|word| text.contains(word))
    };
    says("/proc/cpuinfo", &[" hypervisor"])
        || says("/sys/class/dmi/id/sys_vendor", &["QEMU", "Amazon EC2", "VMware", "Xen", "innotek"])
}

impl Refusal {
    /// Returns advice on how to obtain the permission.
    #[must_use]
    pub fn remedy(&self) -> String {
        match self {
            Self::UserNamespaces(refusal) => match refusal.remedy() {
                Some(command) => format!("sudo {command}; or run the lab as root"),
                None => "run the lab as root, and outside a container".into(),
            },
            Self::NoTun(Surroundings::Machine | Surroundings::VirtualMachine) => {
                "sudo modprobe tun".into()
            }
            Self::NoTun(Surroundings::Container) => {
                format!("start the container with --device {TUN} --cap-add NET_ADMIN")
            }
            Self::NoTun(Surroundings::Pod) => {
                format!("mount {TUN} into the pod and add NET_ADMIN in its securityContext")
            }
            Self::TunClosed { .. } => {
                format!("sudo chmod 0666 {TUN} (the usual mode), or omit --device")
            }
            Self::Other(_) => "run the lab as root".into(),
        }
    }
}

/// Lets the process create network namespaces: an unprivileged process becomes root in its own user namespace. Call
/// this before the process starts a second thread.
///
/// # Errors
/// Returns the reason why the process may not create namespaces.
pub fn enter() -> Result<(), Refusal> {
    if is_privileged()? {
        return Ok(());
    }
    if let Some(refusal) = user_namespace_refusal()? {
        return Err(Refusal::UserNamespaces(refusal));
    }
    Ok(isolate_process_user()?)
}

/// Checks that the process may create TAP devices.
///
/// # Errors
/// Returns [`Refusal::NoTun`], [`Refusal::TunClosed`], or another error from opening `/dev/net/tun`.
pub fn tap() -> Result<(), Refusal> {
    let opened = kernel::open_device(TUN);
    opened.map(|_| ()).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::NOENT | Errno::NODEV | Errno::NXIO) => Refusal::NoTun(Surroundings::detect()),
        Some(Errno::ACCESS | Errno::PERM) => {
            let mode = kernel::metadata(TUN).map_or(0, |data| data.permissions().mode() & 0o7777);
            Refusal::TunClosed { mode }
        }
        _ => Refusal::Other(io::Error::new(error.kind(), format!("{TUN}: {error}"))),
    })
}

/// Returns the effective capabilities of the process: bit `n` is capability `n` of `capabilities(7)`. A container's
/// root often lacks some.
///
/// # Errors
/// Returns `NotFound` if `/proc` is not mounted.
pub fn capabilities() -> io::Result<u64> {
    let status = kernel::read("/proc/self/status")?;
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|word| u64::from_str_radix(word.trim(), 16).ok());
    Ok(effective.unwrap_or(0))
}

/// Returns whether the process has the capabilities in [`NEEDED`] without a user namespace.
fn is_privileged() -> io::Result<bool> {
    Ok(capabilities()? & NEEDED == NEEDED)
}

/// Device file for TUN and TAP devices.
const TUN: &str = "/dev/net/tun";
/// The kernel's initial namespaces, by inode number (`linux/proc_ns.h`).
const FIRST_NAMESPACES: [(&str, u32); 4] =
    [("cgroup", 0xefff_fffb), ("pid", 0xefff_fffc), ("uts", 0xefff_fffe), ("ipc", 0xefff_ffff)];
/// `CAP_NET_ADMIN`, `CAP_NET_RAW` and `CAP_SYS_ADMIN` (capabilities(7)).
const NEEDED: u64 = 1 << 12 | 1 << 13 | 1 << 21;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_a_cause_and_a_remedy() {
        let closed = Refusal::TunClosed { mode: 0o600 };
        assert_eq!(closed.to_string(), "/dev/net/tun: permission denied (mode 0600)");
        assert!(closed.remedy().starts_with("sudo chmod 0666 /dev/net/tun"));
        let off = Refusal::UserNamespaces(UserNamespaceRefusal::AppArmor);
        assert_eq!(
            off.to_string(),
            "unprivileged user namespaces are disabled \
             (kernel.apparmor_restrict_unprivileged_userns is 1)"
        );
        assert!(off.remedy().contains("sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"));
        let places = [
            (Surroundings::Machine, "modprobe tun"),
            (Surroundings::VirtualMachine, "modprobe tun"),
            (Surroundings::Container, "--device /dev/net/tun --cap-add NET_ADMIN"),
            (Surroundings::Pod, "securityContext"),
        ];
        for (place, advice) in places {
            let refusal = Refusal::NoTun(place);
            assert_eq!(refusal.to_string(), "/dev/net/tun: no such device");
            assert!(refusal.remedy().contains(advice), "{place:?}");
        }
    }
}
