//! What a driver can be told beside its features: interrupt coalescing, rings, channels.

use std::io;

use super::strings::text;
use crate::abi;
use crate::interface::{Control, InterfaceName};
use crate::netlink::ask_ethtool;

/// The parameters of `ethtool -C`, in the order of `struct ethtool_coalesce`.
const COALESCE_NAMES: [&str; 22] = [
    "rx-usecs",
    "rx-frames",
    "rx-usecs-irq",
    "rx-frames-irq",
    "tx-usecs",
    "tx-frames",
    "tx-usecs-irq",
    "tx-frames-irq",
    "stats-block-usecs",
    "adaptive-rx",
    "adaptive-tx",
    "pkt-rate-low",
    "rx-usecs-low",
    "rx-frames-low",
    "tx-usecs-low",
    "tx-frames-low",
    "pkt-rate-high",
    "rx-usecs-high",
    "rx-frames-high",
    "tx-usecs-high",
    "tx-frames-high",
    "sample-interval",
];

/// The parameters that the ioctl cannot tell, in the order in which netlink adds them.
const COALESCE_NAMES_SINCE: [&str; 2] = ["cqe-mode-tx", "cqe-mode-rx"];

/// Words of `struct ethtool_drvinfo`: the command, five texts of 32 bytes, twelve reserved bytes,
/// five counts.
const DRIVER_WORDS: usize = 1 + 5 * 8 + 3 + 5;

/// Interrupt coalescing: how long and for how many packets a device waits before it interrupts.
/// Parameters have the names of `ethtool -C`; times are in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coalesce([u32; COALESCE_NAMES.len()]);

impl Coalesce {
    /// Sets a parameter, and says whether there is one of that name.
    pub fn set(&mut self, parameter: &str, value: u32) -> bool {
        let position = COALESCE_NAMES.iter().position(|name| *name == parameter);
        position.map(|position| self.0[position] = value).is_some()
    }

    /// A parameter, if there is one of that name.
    pub fn value(&self, parameter: &str) -> Option<u32> {
        self.iter().find(|(name, _)| *name == parameter).map(|(_, value)| value)
    }

    /// All parameters with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u32)> {
        COALESCE_NAMES.into_iter().zip(self.0)
    }
}

/// How many descriptors a device's rings have, and can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rings {
    /// The most for receiving.
    pub receive_max: u32,
    /// The most for transmitting.
    pub transmit_max: u32,
    /// For receiving.
    pub receive: u32,
    /// For transmitting.
    pub transmit: u32,
}

/// How many queues a device uses, and can use. A combined one receives and transmits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    /// The most for receiving only.
    pub receive_max: u32,
    /// The most for transmitting only.
    pub transmit_max: u32,
    /// The most for both.
    pub combined_max: u32,
    /// For receiving only.
    pub receive: u32,
    /// For transmitting only.
    pub transmit: u32,
    /// For both.
    pub combined: u32,
}

/// Who drives a device (`ethtool -i`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    /// The driver's name, such as `veth`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The version of the device's firmware.
    pub firmware: String,
    /// Where the device is, such as `0000:00:03.0`.
    pub bus: String,
}

/// Interrupt coalescing of a device.
///
/// # Errors
///
/// `EOPNOTSUPP` if the driver has none, `ENODEV`.
pub fn coalesce(control: &Control, name: &InterfaceName) -> io::Result<Coalesce> {
    let mut command = [0; 1 + COALESCE_NAMES.len()];
    command[0] = abi::ETHTOOL_GCOALESCE;
    let [_, values @ ..] = exchange(control, name, command)?;
    Ok(Coalesce(values))
}

/// The parameters of interrupt coalescing that a driver has, by the names of `ethtool -C`, with
/// their values: what [`coalesce`] cannot tell from zero is left out here. Switches are 0 or 1.
///
/// # Errors
///
/// `EOPNOTSUPP` if the driver has none, `ENODEV`, `ENOENT` before Linux 5.6.
pub fn coalesce_parameters(name: &InterfaceName) -> io::Result<Vec<(&'static str, u32)>> {
    let answer = ask_ethtool(name, abi::ETHTOOL_MSG_COALESCE_GET)?;
    let parameter = |(kind, value): (u16, Vec<u8>)| {
        let place = usize::from(kind.checked_sub(abi::ETHTOOL_A_COALESCE_RX_USECS)?);
        let name = COALESCE_NAMES.iter().chain(&COALESCE_NAMES_SINCE).nth(place)?;
        let number = match value.first_chunk() {
            Some(bytes) => u32::from_ne_bytes(*bytes),
            None => u32::from(*value.first()?),
        };
        Some((*name, number))
    };
    Ok(answer.into_iter().filter_map(parameter).collect())
}

/// Sets interrupt coalescing of a device: read it, change it, set it.
///
/// # Errors
///
/// `EOPNOTSUPP` if the driver lacks one of the parameters that are not zero, `EINVAL` or `ERANGE`
/// for a value it cannot have, `EPERM` without `CAP_NET_ADMIN` in the namespace.
pub fn set_coalesce(
    control: &Control,
    name: &InterfaceName,
    coalesce: &Coalesce,
) -> io::Result<()> {
    let mut command = [0; 1 + COALESCE_NAMES.len()];
    command[0] = abi::ETHTOOL_SCOALESCE;
    command[1..].copy_from_slice(&coalesce.0);
    exchange(control, name, command).map(|_| ())
}

/// The rings of a device.
///
/// # Errors
///
/// `EOPNOTSUPP` if the driver does not tell, `ENODEV`.
pub fn rings(control: &Control, name: &InterfaceName) -> io::Result<Rings> {
    let [_, receive_max, _, _, transmit_max, receive, _, _, transmit] =
        exchange(control, name, [abi::ETHTOOL_GRINGPARAM, 0, 0, 0, 0, 0, 0, 0, 0])?;
    Ok(Rings { receive_max, transmit_max, receive, transmit })
}

/// Sets how many descriptors the rings of a device have; the greatest figures are ignored.
///
/// # Errors
///
/// `EOPNOTSUPP` if they are fixed, `EINVAL` above the most, `EPERM`.
pub fn set_rings(control: &Control, name: &InterfaceName, rings: &Rings) -> io::Result<()> {
    let mut command = exchange(control, name, [abi::ETHTOOL_GRINGPARAM, 0, 0, 0, 0, 0, 0, 0, 0])?;
    command[0] = abi::ETHTOOL_SRINGPARAM;
    (command[5], command[8]) = (rings.receive, rings.transmit);
    exchange(control, name, command).map(|_| ())
}

/// The channels of a device.
///
/// # Errors
///
/// `EOPNOTSUPP` if the driver does not tell, `ENODEV`.
pub fn channels(control: &Control, name: &InterfaceName) -> io::Result<Channels> {
    let [_, receive_max, transmit_max, _, combined_max, receive, transmit, _, combined] =
        exchange(control, name, [abi::ETHTOOL_GCHANNELS, 0, 0, 0, 0, 0, 0, 0, 0])?;
    Ok(Channels { receive_max, transmit_max, combined_max, receive, transmit, combined })
}

/// Sets how many channels a device uses; the greatest figures are ignored.
///
/// # Errors
///
/// `EOPNOTSUPP` if they are fixed, `EINVAL` above the most, `EPERM`.
pub fn set_channels(
    control: &Control,
    name: &InterfaceName,
    channels: &Channels,
) -> io::Result<()> {
    let mut command = exchange(control, name, [abi::ETHTOOL_GCHANNELS, 0, 0, 0, 0, 0, 0, 0, 0])?;
    command[0] = abi::ETHTOOL_SCHANNELS;
    (command[5], command[6], command[8]) = (channels.receive, channels.transmit, channels.combined);
    exchange(control, name, command).map(|_| ())
}

/// Who drives a device.
///
/// # Errors
///
/// `EOPNOTSUPP` if nobody tells, `ENODEV`.
pub fn driver(control: &Control, name: &InterfaceName) -> io::Result<Driver> {
    let mut command = [0; DRIVER_WORDS];
    command[0] = abi::ETHTOOL_GDRVINFO;
    let answer = exchange(control, name, command)?;
    let field = |number: usize| {
        let words = &answer[1 + 8 * number..1 + 8 * (number + 1)];
        text(&words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>())
    };
    Ok(Driver { name: field(0), version: field(1), firmware: field(2), bus: field(3) })
}

/// One of the commands of this file, each of which has a structure of words and nothing behind it.
fn exchange<const WORDS: usize>(
    control: &Control,
    name: &InterfaceName,
    mut command: [u32; WORDS],
) -> io::Result<[u32; WORDS]> {
    // SAFETY: the structure of each of these commands has a fixed length, which is that of the
    // array.
    unsafe { control.ethtool(name, &mut command) }?;
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_as_long_as_in_the_kernel_header() {
        assert_eq!(DRIVER_WORDS * 4, 196);
        assert_eq!(1 + COALESCE_NAMES.len(), 23);
    }

    #[test]
    fn a_parameter_is_set_by_its_name() {
        let mut coalesce = Coalesce::default();
        assert!(coalesce.set("rx-usecs", 50) && coalesce.set("sample-interval", 1));
        assert!(!coalesce.set("rx-parsecs", 1));
        assert_eq!((coalesce.value("rx-usecs"), coalesce.value("tx-usecs")), (Some(50), Some(0)));
        assert_eq!((coalesce.0[0], coalesce.0[21]), (50, 1));
        assert_eq!(coalesce.value("rx-parsecs"), None);
    }
}
