//! Explains why a device cannot be opened, and what the user can do about it.

use std::io;

use grosso_sys::userns::{self, Refusal};
use grosso_sys::{errno::ErrorClass, interface::Control};

use crate::{
    device::{find, forbidden},
    error::Failure,
};

/// Capabilities that AF_XDP requires.
pub(super) const XDP_NEEDS: &[&str] = &["net_admin", "net_raw", "bpf"];

pub(super) fn what(name: &str) -> String {
    format!("opening {name}")
}

/// Returns the failure of `command` if the interface `name` does not exist; `None` if it exists.
pub(super) fn interface(command: &str, name: &str) -> Option<Failure> {
    let control = Control::new().ok()?;
    find(command, &control, name).err()
}

pub(super) fn tun(command: &str, name: &str, queues: usize, error: &io::Error) -> Option<Failure> {
    if let Err(refusal @ (Refusal::NoTun(_) | Refusal::TunClosed { .. })) = userns::tap() {
        let hint = match &refusal {
            Refusal::NoTun(_) => refusal.remedy(),
            _ => "sudo chmod 0666 /dev/net/tun (the usual mode), or run as root".into(),
        };
        let message = format!("{command}: {refusal}");
        return Some(Failure::environment("environment.tun", message).hint(hint));
    }
    let (code, why, hint) = match ErrorClass::of(error) {
        ErrorClass::Later => (
            "environment.busy",
            "another program has opened the device".to_owned(),
            format!(
                "stop that program (sudo lsof /dev/net/tun lists it), or choose a name other than \
                 {name}"
            ),
        ),
        ErrorClass::Malformed => {
            let needs = if queues > 1 { ", or has only one queue" } else { "" };
            let mode = if queues > 1 { " multi_queue" } else { "" };
            (
                "environment.device_kind",
                format!("the existing device is not of the requested type{needs}"),
                format!(
                    "see ip -d link show {name}; create one with ip tuntap add dev {name} mode \
                     tap{mode}"
                ),
            )
        }
        _ => return None,
    };
    let message = format!("{command}: {}: {why}", what(name));
    Some(Failure::environment(code, message).hint(hint))
}

pub(super) fn passed(command: &str, device: &str, error: &io::Error) -> Option<Failure> {
    let (code, why) = match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::BADF) => ("environment.descriptor", "the descriptor is not open"),
        Some(rustix::io::Errno::NOTTY) => {
            ("environment.descriptor", "the descriptor is not a TUN or TAP device")
        }
        Some(rustix::io::Errno::BADFD) => (
            "environment.descriptor",
            "the descriptor is not attached to a device, or the device was removed",
        ),
        _ => return None,
    };
    let hint = "the parent program must leave the descriptor of /dev/net/tun open";
    Some(Failure::environment(code, format!("{command}: {device}: {why}")).hint(hint))
}

pub(super) fn unix(command: &str, name: &str, error: &io::Error) -> Failure {
    let (code, why, hint) = match error.kind() {
        io::ErrorKind::AddrInUse => (
            "environment.busy",
            "another program uses this socket, or the file is not a socket".to_owned(),
            "find the program with ss -xlp; use another path, or add the connect option if that \
             program listens",
        ),
        io::ErrorKind::PermissionDenied => (
            "environment.permission",
            "permission denied".to_owned(),
            "set the permissions in the listening program (in Grosso: mode=660 after the path), or \
             choose another directory",
        ),
        io::ErrorKind::NotFound => (
            "environment.socket",
            "the directory does not exist".to_owned(),
            "create it with mkdir -p",
        ),
        _ => ("environment.socket", error.to_string(), "choose another path for the socket"),
    };
    Failure::environment(code, format!("{command}: opening {name}: {why}")).hint(hint)
}

pub(super) fn xdp(command: &str, name: &str, queues: usize, error: &io::Error) -> Option<Failure> {
    let what = what(name);
    let errno = error.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
    let (code, why, hint) = match errno? {
        rustix::io::Errno::PERM | rustix::io::Errno::ACCESS => {
            return Some(forbidden(command, &what, XDP_NEEDS));
        }
        rustix::io::Errno::BUSY | rustix::io::Errno::EXIST => (
            "environment.busy",
            ": another XDP program or AF_XDP socket is attached".to_owned(),
            format!("stop that program, or: sudo ip link set dev {name} xdp off"),
        ),
        rustix::io::Errno::INVAL => (
            "environment.queues",
            format!(
                ": the interface has fewer than {queues} queues, counted from the first requested \
                 queue"
            ),
            format!("ethtool -l {name} shows the number of queues"),
        ),
        rustix::io::Errno::NOBUFS | rustix::io::Errno::NOMEM => (
            "environment.memory",
            ": the limit on locked memory is too low for the frames of the socket".to_owned(),
            "raise the limit with ulimit -l unlimited, or use fewer --queues".to_owned(),
        ),
        _ => return None,
    };
    Some(Failure::environment(code, format!("{command}: {what}{why}")).hint(hint))
}
