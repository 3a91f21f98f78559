//! One endpoint of a path: a device with options, and the stages around the device.
//!
//! | module | job |
//! |---|---|
//! | `registry` | the macro that lists the kinds of ports |
//! | `kind` | the parts of a kind: the trait of its devices, the form of their names, shared settings |
//! | `setting` | table of the options in configuration files |
//! | `document` | the tables of ports in the documents |
//! | `packet`, `tap`, `xdp`, `passed`, `unix`, `vhost` | one kind each |
//! | `tunnel` | a tunnel as a port |

mod document;
mod kind;
mod registry;
mod setting;
mod tunnel;

use std::io;

use grosso::features::Features;
use grosso_io::live::Opening;

pub use self::{
    document::port_tables,
    kind::{HostSettings, LinkSettings, PortDevice},
    setting::SettingValue,
};
pub(crate) use self::{
    registry::{key, key_names},
    setting::PortKey,
};
use super::{
    device::refused,
    error::Failure,
    needs::Needs,
    refusal,
    stages::{EspSpec, FragmentsMode, FragmentsSpec},
};

registry::devices! {
    packet: PacketDevice { Packet = KIND, "An interface, accessed through packet sockets."; }
    tap: TapDevice { Tap = TAP, "A TAP device."; Tun = TUN, "A TUN device."; }
    xdp: XdpDevice { Xdp = KIND, "An interface, accessed through AF_XDP."; }
    unix: Unix { Unix = KIND, "A Unix socket."; }
    vhost: Vhost { Vhost = KIND, "The device of a VM."; }
    passed: PassedDevice { Passed = KIND, "An inherited descriptor."; }
}

/// Kind of port that a name without a `KIND:` prefix refers to.
const DEFAULT: &str = packet::KIND.word;

impl Device {
    /// Returns the failure of `command` if the kernel refused to open `queues` queues of the device.
    pub(crate) fn refusal(&self, command: &str, queues: usize, error: &io::Error) -> Failure {
        let device = self.port();
        let refused = || refused(command, &refusal::what(&device.name()), "net_admin", error);
        device.refusal(command, queues, error).unwrap_or_else(refused)
    }
}

/// One endpoint of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSpec {
    /// Device, with its options.
    pub device: Device,
    /// Features that the path uses at the device, and offers to the device's host, if they are supported.
    pub features: Features,
    /// Reassembly and fragmentation.
    pub fragments: Option<FragmentsSpec>,
    /// Encryption and decryption of packets.
    pub esp: Option<EspSpec>,
}

impl PortSpec {
    /// Creates a port with the default options.
    pub fn new(device: Device) -> Self {
        Self { features: device.port().features(), device, fragments: None, esp: None }
    }

    /// Returns the capabilities that opening the device requires.
    pub fn needs(&self) -> Needs {
        let device = self.device.port();
        let is_changed = |link: &LinkSettings| link.mtu.is_some() || link.up.is_some();
        let changed: &[&str] = match device.link().is_some_and(is_changed) {
            true => &["net_admin"],
            false => &[],
        };
        Needs::of(device.needs()).and(Needs::of(changed))
    }

    /// Sets an option of the device.
    ///
    /// # Errors
    /// Fails if this kind of port does not have the option, or if the option does not accept this value.
    pub fn set(&mut self, name: &str, value: SettingValue) -> Result<(), String> {
        self.device.set(name, value).unwrap_or_else(|| {
            let ports = registry::ports_with(name);
            Err(format!("option `{name}` applies only to {ports}, not to {}", self.device))
        })
    }

    /// Sets an option of the device if its kind has the option.
    ///
    /// # Errors
    /// Fails if the option does not accept this value.
    pub fn set_if_any(&mut self, name: &str, value: SettingValue) -> Result<(), String> {
        self.device.set(name, value).unwrap_or(Ok(()))
    }

    /// Checks that the options are compatible.
    ///
    /// # Errors
    /// Returns a message that names a wrong option and the reason.
    pub fn check(&self) -> Result<(), String> {
        let device = self.device.port();
        if device.tunnel().is_some() && self.features != Features::ALL {
            return Err(format!(
                "option `features` applies only to devices, not to {}",
                self.device
            ));
        }
        if self.terminates() && self.has_stages() {
            return Err(
                "`terminates` cannot be combined with `fragments` or `esp`, because a port with \
                 either of these options forwards packets and does not terminate TCP"
                    .into(),
            );
        }
        if let Some(fragments) = &self.fragments {
            fragments.check()?;
        }
        device.check()
    }

    /// Returns whether the host behind the device terminates all TCP that it receives from the device, and forwards
    /// none.
    pub fn terminates(&self) -> bool {
        self.device.port().host().is_some_and(|host| host.terminates)
    }

    /// Returns whether the path expands acknowledgments: if the host acknowledges a train once, the path sends one
    /// acknowledgment for each packet of the train.
    pub fn expands_acks(&self) -> bool {
        self.device.port().host().is_some_and(|host| host.expand_acks)
    }

    /// Returns whether the port's packets pass through stages before they reach the path.
    pub fn has_stages(&self) -> bool {
        self.fragments.is_some() || self.esp.is_some()
    }

    /// Returns a note that names the features that are disabled only because they depend on features that were turned
    /// off.
    pub fn features_lost(&self) -> Option<String> {
        let lost = self.features.without(self.features.active());
        let names = Features::NAMES.iter().filter(|(_, one)| lost.contains(*one));
        let names: Vec<_> = names.map(|(name, _)| *name).collect();
        (!names.is_empty()).then(|| {
            let names = names.join(", ");
            format!(
                "{}: these features are also disabled, because they depend on disabled features: \
                 {names}",
                self.device
            )
        })
    }

    /// Returns how the port treats fragments on a path to another port; `None` if it passes them unchanged.
    pub fn fragments_mode(&self, to: &Self) -> Option<FragmentsMode> {
        // Fragments of encrypted packets are reassembled where the packets are decrypted.
        let ends = self.esp.is_some() || to.terminates();
        let usual = if ends { FragmentsMode::Local } else { FragmentsMode::Forward };
        self.fragments.as_ref()?.mode_or(usual)
    }

    /// Returns whether the port accepts packets of any length, because it fragments long packets, or because a host
    /// receives them through its own device.
    pub fn takes_any_length(&self) -> bool {
        let has_host = self.device.port().host().is_some();
        has_host || self.fragments.as_ref().is_some_and(FragmentsSpec::cuts)
    }

    /// Returns the port to open; `None` for a tunnel.
    pub fn opening(&self) -> Option<Opening> {
        self.device.port().opening(self.features)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_names_are_parsed_and_printed_unchanged() {
        for word in [
            "eth1",
            "tap:t0",
            "tun:tn%d",
            "xdp:eth1",
            "xdp:eth1:3",
            "unix:/s,vnet",
            "vhost-user:/s",
            "fd:3",
        ] {
            let device: Device = word.parse().unwrap();
            assert_eq!(device.to_string(), word);
        }
        assert_eq!("packet:eth1".parse(), "eth1".parse::<Device>());
        assert_eq!("xdp:eth1:0".parse(), "xdp:eth1".parse::<Device>());
    }

    #[test]
    fn invalid_device_names_are_refused_with_valid_forms() {
        let wrong =
            ["", "tap:", "veth:x", "tap:a/b", "xdp:e:64", "xdp:e:x", "fd:2", "fd:-1", "fd:"];
        for word in wrong {
            assert!(word.parse::<Device>().is_err(), "{word}");
        }
        assert!("a23456789012345".parse::<Device>().is_ok());
        assert!("a234567890123456".parse::<Device>().unwrap_err().contains("expected IFACE"));
    }

    #[test]
    fn options_of_other_kinds_of_port_are_refused_by_name() {
        use SettingValue::{Bytes, Count, Switch};
        let refused = |word: &str, settings: &[(&str, SettingValue)]| {
            let mut spec = PortSpec::new(word.parse().unwrap());
            let mut set = settings.iter().map(|(name, value)| spec.set(name, *value));
            set.find_map(Result::err).or_else(|| spec.check().err())
        };
        assert_eq!(
            refused("eth1", &[("persist", Switch(true))]).as_deref(),
            Some("option `persist` applies only to tap, tun and fd ports, not to eth1")
        );
        let expands = [("terminates", Switch(true)), ("expand-acks", Switch(true))];
        for (word, settings, why) in [
            (
                "tap:t",
                &[("promisc", Switch(false))][..],
                "option `promisc` applies only to packet ports, not to",
            ),
            ("fd:3", &[("mtu", Bytes(1500))], "option `mtu` applies only to packet, tap, tun"),
            ("xdp:e", &[("rx", Count(64))], "option `rx` applies only to packet ports"),
            (
                "e",
                &[("partial-checksums", Switch(true))],
                "option `partial-checksums` applies only to xdp ports",
            ),
            ("e", &expands, "option `terminates` applies only to tap, tun and fd ports"),
            ("tap:t", &expands[1..], "expand-acks needs a port with terminates = true"),
            ("e", &[("rx", Count(100))], "invalid ring of 100 slots"),
            ("e", &[("rx-buf-len", Count(128))], "invalid ring of 4096 slots of 128 bytes"),
            ("e", &[("rx", Count(1 << 20))], "invalid ring of 1048576 slots"),
            ("e", &[("tx", Count(0))], "tx: "),
            ("e", &[("tx", Count(1))], "tx: "),
            ("e", &[("tx", Count(100))], "tx: "),
            ("e", &[("tx", Count(16384))], "tx: "),
            ("tap:t", &[("tx", Count(64))], "option `tx` applies only to packet ports"),
            (
                "tap:t",
                &[("mtu", Bytes(65522))],
                "mtu 65522 is out of range: tap:t accepts 68 to 65521",
            ),
            ("tun:t", &[("mtu", Bytes(67))], "mtu 67 is out of range: tun:t accepts 68 to 65535"),
            ("unix:/s", &[("mtu", Bytes(9000))], "option `mtu` applies only to"),
            (
                "vhost-user:/s",
                &[("vnet_hdr", Count(10))],
                "option `vnet_hdr` applies only to tap, tun, unix",
            ),
            (
                "unix:/s,offloads=csum",
                &[],
                "unix:/s,offloads=csum: offloads require virtio headers",
            ),
        ] {
            let found = refused(word, settings).unwrap();
            assert!(found.starts_with(why), "{word}: {found}");
        }
        for (word, settings) in [
            ("e", &[("rx", Count(1024))][..]),
            ("e", &[("tx", Count(64))]),
            ("tap:t", &[("mtu", Bytes(9000))]),
            ("tap:t", &[("mtu", Bytes(65521))]),
            ("tun:t", &[("mtu", Bytes(65535))]),
            ("unix:/s", &[("vnet_hdr", Count(10))]),
            ("fd:3", &expands[..1]),
            ("tap:t", &expands),
        ] {
            assert_eq!(refused(word, settings), None, "{word}");
        }
    }
}
