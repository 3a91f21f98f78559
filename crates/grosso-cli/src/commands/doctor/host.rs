//! Checks the host and this process's privileges on it.

use grosso_sys::packet::PacketSocket;
use grosso_sys::userns::{self, Refusal, Surroundings};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::finding::Finding;
use crate::{
    device::{capabilities, setcap},
    needs::CAPABILITIES,
};

/// The host, and this process's privileges on it.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Host {
    kernel: String,
    pub(super) release: String,
    machine: String,
    uid: u32,
    /// Relevant capabilities of this process, with their names from capabilities(7).
    capabilities: Vec<&'static str>,
    #[serde(serialize_with = "as_text")]
    #[schemars(with = "String")]
    surroundings: Surroundings,
}

impl Host {
    /// Gathers facts about the host.
    pub(super) fn look() -> Self {
        let system = rustix::system::uname();
        let text = |text: &core::ffi::CStr| text.to_string_lossy().into_owned();
        Self {
            kernel: text(system.sysname()),
            release: text(system.release()),
            machine: text(system.machine()),
            uid: rustix::process::getuid().as_raw(),
            capabilities: capabilities(),
            surroundings: Surroundings::detect(),
        }
    }

    /// Returns the first line of the report.
    pub(super) fn line(&self) -> String {
        let capabilities = match self.capabilities.len() {
            0 => "none".into(),
            count if count == CAPABILITIES.len() => "all".into(),
            _ => self.capabilities.join(" "),
        };
        format!(
            "{} {} {}, {}; uid {}; capabilities: {capabilities}",
            self.kernel, self.release, self.machine, self.surroundings, self.uid
        )
    }

    /// Returns a command that requires root, in the form in which this user would type it.
    pub(super) fn sudo(&self, command: &str) -> String {
        if self.uid == 0 { command.into() } else { format!("sudo {command}") }
    }

    /// Returns instructions for granting capabilities in this process's environment.
    pub(super) fn grant(&self, capabilities: &[&str]) -> String {
        let upper = |prefix: &'static str| {
            let names =
                capabilities.iter().map(move |name| format!("{prefix}{}", name.to_uppercase()));
            names.collect::<Vec<_>>()
        };
        match self.surroundings {
            Surroundings::Machine | Surroundings::VirtualMachine => {
                self.sudo(&setcap(capabilities, &self.capabilities))
            }
            Surroundings::Container => {
                format!("start the container with {}", upper("--cap-add ").join(" "))
            }
            Surroundings::Pod => {
                format!("add {} to securityContext.capabilities", upper("").join(", "))
            }
        }
    }
}

/// Checks whether packets on the host's own interfaces can be captured.
pub(super) fn capture() -> Finding {
    // The socket is not bound to any interface, and receives nothing.
    match PacketSocket::may_open() {
        Ok(()) => Finding::ok("capture", "packet sockets work on this machine's interfaces"),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Finding::fail("capture", "needs CAP_NET_RAW").needs(&["net_raw"])
        }
        Err(error) => Finding::fail("capture", format!("packet sockets do not work: {error}")),
    }
}

/// Checks whether devices on the host can be created and configured.
pub(super) fn devices(host: &Host) -> Finding {
    if host.capabilities.contains(&"net_admin") {
        Finding::ok("devices", "TUN, TAP and other devices on this machine can be configured")
    } else {
        Finding::fail("devices", "needs CAP_NET_ADMIN").needs(&["net_admin"])
    }
}

/// Returns the TUN finding for the case that there is no network namespace in which to create a device.
pub(super) fn tun_unprobed(host: &Host, why: &str) -> Finding {
    match userns::tap() {
        Ok(()) => Finding::warn("tun", format!("/dev/net/tun is accessible; not probed: {why}")),
        Err(refusal) => tun_refused(host, &refusal),
    }
}

/// Returns the finding that TUN devices cannot be created, and why.
pub(super) fn tun_refused(host: &Host, refusal: &Refusal) -> Finding {
    let fix = match refusal {
        Refusal::TunClosed { .. } => host.sudo("chmod 0666 /dev/net/tun"),
        other => other.remedy(),
    };
    Finding::fail("tun", refusal.to_string()).fix(fix)
}

fn as_text<S: Serializer>(surroundings: &Surroundings, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(surroundings)
}
