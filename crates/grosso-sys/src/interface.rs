//! Network interfaces: names, state, addresses, bridges and their attributes in sysfs.

use core::fmt;
use core::ops::Range;
use core::sync::atomic::Ordering;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::ioctl::{Opcode, Updater, ioctl};
use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};

use crate::abi;
use crate::mapping::Mapping;
use crate::path::kernel;

/// Length of the kernel's name field in bytes, including its terminating zero (`IFNAMSIZ`).
const NAME_BYTES: usize = 16;

/// Name of a network interface: 1 to 15 bytes, without control characters, slashes, colons and white space, and with
/// `%` only in a single `%d`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct InterfaceName {
    bytes: [u8; NAME_BYTES],
    length: usize,
}

impl InterfaceName {
    /// Checks a name against the kernel's rules.
    ///
    /// # Errors
    ///
    /// Returns [`io::ErrorKind::InvalidInput`] if the kernel would reject the name.
    pub fn new(name: &str) -> io::Result<Self> {
        // The kernel's white space is that of Latin-1, where 0xa0 is a space.
        let legal = |byte: u8| !matches!(byte, 0..=b' ' | b'/' | b':' | 0x7f | 0xa0);
        let refused = |why: &str| {
            let message = format!("not an interface name: {name:?}{why}");
            Err(io::Error::new(io::ErrorKind::InvalidInput, message))
        };
        if name.len() >= NAME_BYTES {
            return refused(" is longer than 15 bytes");
        }
        let is_reserved = matches!(name, "" | "." | "..");
        if is_reserved || !name.bytes().all(legal) || name.replacen("%d", "", 1).contains('%') {
            return refused("");
        }
        let mut bytes = [0; NAME_BYTES];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Ok(Self { bytes, length: name.len() })
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }

    /// Returns the name that the kernel wrote into a request. For a name such as `tap%d`, the kernel chooses the
    /// number.
    pub(crate) fn from_kernel(bytes: [u8; NAME_BYTES]) -> io::Result<Self> {
        let length = bytes.iter().position(|&byte| byte == 0).unwrap_or(NAME_BYTES);
        let text = core::str::from_utf8(&bytes[..length]).map_err(io::Error::other)?;
        Self::new(text)
    }
}

impl fmt::Debug for InterfaceName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), formatter)
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// A socket for configuring the interfaces in the network namespace of the thread that created it.
#[derive(Debug)]
pub struct Control {
    socket: OwnedFd,
}

impl Control {
    /// Opens a control socket in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// Returns any error from `socket(2)`.
    pub fn new() -> io::Result<Self> {
        let socket =
            socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        Ok(Self { socket })
    }

    /// Returns the index of an interface.
    ///
    /// # Errors
    ///
    /// Returns `ENODEV` if there is no such interface.
    pub fn index(&self, name: &InterfaceName) -> io::Result<u32> {
        Ok(netdevice::name_to_index(&self.socket, name.as_str())?)
    }

    /// Brings an interface up or takes it down.
    ///
    /// # Errors
    ///
    /// Returns `EPERM` without `CAP_NET_ADMIN` in the namespace, `ENODEV` if there is no such interface, or an error
    /// from the device.
    pub fn set_up(&self, name: &InterfaceName, up: bool) -> io::Result<()> {
        let mut request = InterfaceRequest::new(name);
        self.call::<{ abi::SIOCGIFFLAGS }>(&mut request)?;
        let flags = request.flags();
        let flags = if up { flags | abi::IFF_UP } else { flags & !abi::IFF_UP };
        self.call::<{ abi::SIOCSIFFLAGS }>(&mut request.with(&flags.to_ne_bytes()))
    }

    /// Returns the MTU in bytes, without the link-layer header.
    ///
    /// # Errors
    ///
    /// Returns `ENODEV` if there is no such interface.
    pub fn mtu(&self, name: &InterfaceName) -> io::Result<u32> {
        let mut request = InterfaceRequest::new(name);
        self.call::<{ abi::SIOCGIFMTU }>(&mut request)?;
        Ok(request.number())
    }

    /// Sets the MTU in bytes, without the link-layer header.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if the device does not support it; otherwise the same errors as [`Control::set_up`].
    pub fn set_mtu(&self, name: &InterfaceName, bytes: u16) -> io::Result<()> {
        let mut request = InterfaceRequest::new(name).with(&i32::from(bytes).to_ne_bytes());
        self.call::<{ abi::SIOCSIFMTU }>(&mut request)
    }

    /// Sets the number of packets that the device queues for transmission. For a TAP device, this is the number of
    /// packets that wait to be read.
    ///
    /// # Errors
    ///
    /// Returns `EPERM` outside the initial user namespace; otherwise the same errors as [`Control::set_up`].
    pub fn set_transmit_queue_length(&self, name: &InterfaceName, packets: i32) -> io::Result<()> {
        let mut request = InterfaceRequest::new(name).with(&packets.to_ne_bytes());
        self.call::<{ abi::SIOCSIFTXQLEN }>(&mut request)
    }

    /// Sets the Ethernet address.
    ///
    /// # Errors
    ///
    /// Returns `EADDRNOTAVAIL` for a multicast or zero address; otherwise the same errors as [`Control::set_up`].
    pub fn set_hardware_address(&self, name: &InterfaceName, address: [u8; 6]) -> io::Result<()> {
        let mut value = [0; 8];
        value[..2].copy_from_slice(&abi::ARPHRD_ETHER.to_ne_bytes());
        value[2..].copy_from_slice(&address);
        self.call::<{ abi::SIOCSIFHWADDR }>(&mut InterfaceRequest::new(name).with(&value))
    }

    /// Sets the IPv4 address and its prefix length in bits (at most 32).
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Control::set_up`].
    pub fn set_ipv4_address(
        &self,
        name: &InterfaceName,
        address: Ipv4Addr,
        prefix_bits: u8,
    ) -> io::Result<()> {
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix_bits.min(32))).unwrap_or(0);
        let request = InterfaceRequest::new(name);
        self.call::<{ abi::SIOCSIFADDR }>(&mut request.with(&internet_address(address)))?;
        self.call::<{ abi::SIOCSIFNETMASK }>(&mut request.with(&internet_address(mask.into())))
    }

    /// Creates a bridge.
    ///
    /// # Errors
    ///
    /// Returns `ENOPKG` if the kernel has no bridge support; otherwise the same errors as [`Control::set_up`].
    pub fn add_bridge(&self, name: &InterfaceName) -> io::Result<()> {
        // The kernel reads only the name, which is at the start of the request.
        self.call::<{ abi::SIOCBRADDBR }>(&mut InterfaceRequest::new(name))
    }

    /// Adds an interface to a bridge.
    ///
    /// # Errors
    ///
    /// Returns `EBUSY` if it already is a bridge port; otherwise the same errors as [`Control::set_up`].
    pub fn add_bridge_port(&self, bridge: &InterfaceName, port: &InterfaceName) -> io::Result<()> {
        let index = self.index(port)?;
        let mut request = InterfaceRequest::new(bridge).with(&index.to_ne_bytes());
        self.call::<{ abi::SIOCBRADDIF }>(&mut request)
    }

    /// Passes a buffer to the driver through `SIOCETHTOOL`.
    ///
    /// # Safety
    ///
    /// `buffer` must be at least as long as the kernel reads and writes for the `ethtool` command
    /// in its first word.
    pub(crate) unsafe fn ethtool(
        &self,
        name: &InterfaceName,
        buffer: &mut [u32],
    ) -> io::Result<()> {
        let address = buffer.as_mut_ptr().expose_provenance();
        // SAFETY: the caller guarantees the length of the buffer.
        unsafe { self.ethtool_at(name, address) }
    }

    /// Works like [`Control::ethtool`], for a request of unknown length, which therefore lies in guarded memory.
    pub(crate) fn ethtool_guarded(&self, name: &InterfaceName, buffer: &Guarded) -> io::Result<()> {
        // SAFETY: the kernel reads and writes from the start of the buffer, and fails after its end. `Guarded` lends no
        // reference that could observe the change.
        unsafe { self.ethtool_at(name, buffer.address()) }
    }

    /// Calls `SIOCETHTOOL` with the address of a request.
    ///
    /// # Safety
    ///
    /// The caller must meet the requirements of [`Control::ethtool`].
    unsafe fn ethtool_at(&self, name: &InterfaceName, address: usize) -> io::Result<()> {
        self.call::<{ abi::SIOCETHTOOL }>(
            &mut InterfaceRequest::new(name).with(&address.to_ne_bytes()),
        )
    }

    /// Calls one of the ioctls in `abi` that take a `struct ifreq`; this module uses no others.
    fn call<const OPCODE: Opcode>(&self, request: &mut InterfaceRequest) -> io::Result<()> {
        request.call::<OPCODE>(&self.socket)
    }
}

/// Writes an interface attribute in sysfs, below `/sys/class/net/<name>/`.
///
/// The mounted sysfs must belong to the interface's namespace; see [`crate::namespace`].
///
/// # Errors
///
/// Returns `NotFound` if the kernel lacks the attribute, or `EPERM` if it requires a privilege in the initial
/// namespace.
pub fn write_attribute(name: &InterfaceName, attribute: &str, value: &str) -> io::Result<()> {
    kernel::write(format!("/sys/class/net/{name}/{attribute}"), value)
}

/// Memory for a result whose length the kernel chooses. The memory ends at a guard page, so the kernel cannot write
/// past its end.
pub(crate) struct Guarded(Mapping);

impl Guarded {
    /// Creates memory that holds these words and at least `bytes` more bytes.
    pub(crate) fn new(words: &[u32], bytes: usize) -> io::Result<Self> {
        let mapping = Mapping::guarded(size_of_val(words) + bytes)?;
        for (i, word) in words.iter().enumerate() {
            mapping.atomic(4 * i).store(*word, Ordering::Relaxed);
        }
        Ok(Self(mapping))
    }

    /// Returns a copy of the bytes that the kernel wrote.
    pub(crate) fn bytes(&self, range: Range<usize>) -> Vec<u8> {
        // SAFETY: the kernel writes only during a call, which has ended, and nothing else refers to the mapping.
        unsafe { self.0.slice(range) }.to_vec()
    }

    fn address(&self) -> usize {
        self.0.address() as usize
    }
}

/// `struct ifreq`: a name and a union, which is as long here as the longest of its values. A kernel whose union is
/// shorter copies fewer bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct InterfaceRequest {
    pub(crate) name: [u8; NAME_BYTES],
    value: RequestValue,
}

#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct RequestValue([u8; 24]);

impl InterfaceRequest {
    pub(crate) fn new(name: &InterfaceName) -> Self {
        Self { name: name.bytes, value: RequestValue([0; 24]) }
    }

    /// Returns the request with a value of at most 24 bytes.
    pub(crate) fn with(mut self, value: &[u8]) -> Self {
        self.value.0[..value.len()].copy_from_slice(value);
        self
    }

    /// Returns the result of an ioctl that only writes to its argument.
    pub(crate) fn read<const OPCODE: Opcode>(file: impl AsFd) -> io::Result<Self> {
        let mut request = Self { name: [0; NAME_BYTES], value: RequestValue([0; 24]) };
        request.call::<OPCODE>(file)?;
        Ok(request)
    }

    /// Returns the value as flags.
    pub(crate) fn flags(&self) -> u16 {
        u16::from_ne_bytes([self.value.0[0], self.value.0[1]])
    }

    /// Returns the value as a number.
    fn number(&self) -> u32 {
        u32::from_ne_bytes([self.value.0[0], self.value.0[1], self.value.0[2], self.value.0[3]])
    }

    pub(crate) fn call<const OPCODE: Opcode>(&mut self, file: impl AsFd) -> io::Result<()> {
        // SAFETY: every opcode from `abi` used here reads and writes a `struct ifreq` or a prefix of it, and `self` has
        // the length and alignment of the longest.
        let updater = unsafe { Updater::<OPCODE, Self>::new(self) };
        // SAFETY: the opcode accesses only `self`, whose borrow lasts until the call returns.
        unsafe { ioctl(file, updater) }?;
        Ok(())
    }
}

/// Returns a `struct sockaddr_in` without a port.
fn internet_address(address: Ipv4Addr) -> [u8; 8] {
    let mut value = [0; 8];
    value[..2].copy_from_slice(&AddressFamily::INET.as_raw().to_ne_bytes());
    value[4..].copy_from_slice(&address.octets());
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rules_of_the_kernel() {
        for legal in ["a", "eth0", "fifteen-bytes-x", "tap%d", "a.b", "büro"] {
            assert_eq!(InterfaceName::new(legal).unwrap().as_str(), legal);
        }
        for illegal in
            ["", ".", "..", "sixteen-bytes-xx", "a/b", "a b", "a:b", "a\0b", "à", "a%%", "%d%d"]
        {
            assert!(InterfaceName::new(illegal).is_err(), "{illegal:?}");
        }
        let long = InterfaceName::new("sixteen-bytes-xx").unwrap_err().to_string();
        assert!(long.ends_with("is longer than 15 bytes"), "{long}");
    }

    #[test]
    fn loopback_has_an_index_and_an_mtu_and_a_stranger_has_none() {
        let control = Control::new().unwrap();
        let loopback = InterfaceName::new("lo").unwrap();
        assert!(control.index(&loopback).unwrap() > 0);
        let mtu = kernel::read("/sys/class/net/lo/mtu").unwrap();
        assert_eq!(control.mtu(&loopback).unwrap().to_string(), mtu.trim());
        let stranger = InterfaceName::new("no-such-device").unwrap();
        for refused in [control.index(&stranger), control.mtu(&stranger)] {
            assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::ENODEV));
        }
    }

    #[test]
    fn a_request_is_laid_out_as_the_kernel_expects() {
        assert_eq!(size_of::<InterfaceRequest>(), 40);
        assert_eq!(internet_address(Ipv4Addr::new(10, 1, 2, 3))[2..], [0, 0, 10, 1, 2, 3]);
    }
}
