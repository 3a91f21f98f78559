//! Driver settings other than features: interrupt coalescing, ring sizes, and numbers of queues.

use std::io;

use super::strings::text;
use crate::abi;
use crate::interface::{Control, InterfaceName};
use crate::netlink::ask_ethtool;

/// Parameters of `ethtool -C`, in the order of `struct ethtool_coalesce`.
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

/// Parameters that the ioctl lacks, in the order in which netlink adds them.
const COALESCE_NAMES_SINCE: [&str; 2] = ["cqe-mode-tx", "cqe-mode-rx"];

/// Length of `struct ethtool_drvinfo` in words: the command, five 32-byte strings, twelve reserved bytes, and five
/// counts.
const DRIVER_WORDS: usize = 1 + 5 * 8 + 3 + 5;

/// Interrupt coalescing: how long, and for how many packets, a device delays its interrupt. Parameters have the same
/// names as in `ethtool -C`; times are in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coalesce([u32; COALESCE_NAMES.len()]);

impl Coalesce {
    /// Sets a parameter and returns whether it exists.
    pub fn set(&mut self, parameter: &str, value: u32) -> bool {
        let position = COALESCE_NAMES.iter().position(|name| *name == parameter);
        position.map(|position| self.0[position] = value).is_some()
    }

    /// Returns a parameter, if it exists.
    pub fn value(&self, parameter: &str) -> Option<u32> {
        self.iter().find(|(name, _)| *name == parameter).map(|(_, value)| value)
    }

    /// Returns all parameters with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u32)> {
        COALESCE_NAMES.into_iter().zip(self.0)
    }
}

/// Number of descriptors in a device's rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rings {
    /// Maximum number of receive descriptors.
    pub receive_max: u32,
    /// Maximum number of transmit descriptors.
    pub transmit_max: u32,
    /// Number of receive descriptors.
    pub receive: u32,
    /// Number of transmit descriptors.
    pub transmit: u32,
}

/// Number of queues of a device. A combined queue receives and transmits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    /// Maximum number of receive-only queues.
    pub receive_max: u32,
    /// Maximum number of transmit-only queues.
    pub transmit_max: u32,
    /// Maximum number of combined queues.
    pub combined_max: u32,
    /// Number of receive-only queues.
    pub receive: u32,
    /// Number of transmit-only queues.
    pub transmit: u32,
    /// Number of combined queues.
    pub combined: u32,
}

/// Driver of a device, as `ethtool -i` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    /// Driver name, for example `veth`.
    pub name: String,
    /// Driver version.
    pub version: String,
    /// Firmware version of the device.
    pub firmware: String,
    /// Location on the bus, for example `0000:00:03.0`.
    pub bus: String,
}

/// Returns the interrupt coalescing of a device.
///
/// # Errors
///
/// Returns `EOPNOTSUPP` if the driver does not support it, or `ENODEV` if there is no such device.
pub fn coalesce(control: &Control, name: &InterfaceName) -> io::Result<Coalesce> {
    let mut command = [0; 1 + COALESCE_NAMES.len()];
    command[0] = abi::ETHTOOL_GCOALESCE;
    let [_, values @ ..] = exchange(control, name, command)?;
    Ok(Coalesce(values))
}

/// Returns the name (as in `ethtool -C`) and value of each interrupt coalescing parameter that the driver supports.
/// Omits the parameters that it does not support, which [`coalesce`] reports as zero. The value of a switch is 0 or 1.
///
/// # Errors
///
/// Returns `EOPNOTSUPP` if the driver does not support it, `ENODEV` if there is no such device, or `ENOENT` before
/// Linux 5.6.
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

/// Sets the interrupt coalescing of a device. To change only some of the parameters, start from the result of
/// [`coalesce`].
///
/// # Errors
///
/// Returns `EOPNOTSUPP` if the driver lacks a nonzero parameter, `EINVAL` or `ERANGE` for a value out of range, or
/// `EPERM` without `CAP_NET_ADMIN` in the namespace.
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

/// Returns the number of descriptors in a device's rings.
///
/// # Errors
///
/// Returns `EOPNOTSUPP` if the driver does not report them, or `ENODEV` if there is no such device.
pub fn rings(control: &Control, name: &InterfaceName) -> io::Result<Rings> {
    let [_, receive_max, _, _, transmit_max, receive, _, _, transmit] =
        exchange(control, name, [abi::ETHTOOL_GRINGPARAM, 0, 0, 0, 0, 0, 0, 0, 0])?;
    Ok(Rings { receive_max, transmit_max, receive, transmit })
}

/// Sets the number of descriptors in a device's rings; ignores the maximum fields.
///
/// # Errors
///
/// Returns `EOPNOTSUPP` if the numbers are fixed, `EINVAL` above the maximum, or `EPERM` without `CAP_NET_ADMIN`.
pub fn set_rings(control: &Control, name: &InterfaceName, rings: &Rings) -> io::Result<()> {
    let mut command = exchange(control, name, [abi::ETHTOOL_GRINGPARAM, 0, 0, 0, 0, 0, 0, 0, 0])?;
    command[0] = abi::ETHTOOL_SRINGPARAM;
    (command[5], command[8]) = (rings.receive, rings.transmit);
    exchange(control, name, command).map(|_| ())
}

/// Returns the number of queues of a device.
///
/// # Errors
///
/// Returns `EOPNOTSUPP` if the driver does not report them, or `ENODEV` if there is no such device.
pub fn channels(control: &Control, name: &InterfaceName) -> io::Result<Channels> {
    let [_, receive_max, transmit_max, _, combined_max, receive, transmit, _, combined] =
        exchange(control, name, [abi::ETHTOOL_GCHANNELS, 0, 0, 0, 0, 0, 0, 0, 0])?;
    Ok(Channels { receive_max, transmit_max, combined_max, receive, transmit, combined })
}

/// Sets the number of queues of a device; ignores the maximum fields.
///
/// # Errors
///
/// Returns `EOPNOTSUPP` if the numbers are fixed, `EINVAL` above the maximum, or `EPERM` without `CAP_NET_ADMIN`.
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

/// Returns the driver of a device.
///
/// # Errors
///
/// Returns `EOPNOTSUPP` if neither the driver nor the bus reports a driver name, or `ENODEV` if there is no such
/// device.
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

/// Executes an ethtool command. Only commands in this file are permitted, because their structures have a fixed number
/// of words.
fn exchange<const WORDS: usize>(
    control: &Control,
    name: &InterfaceName,
    mut command: [u32; WORDS],
) -> io::Result<[u32; WORDS]> {
    // SAFETY: the structure of each of these commands has a fixed length, which equals the array's.
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
