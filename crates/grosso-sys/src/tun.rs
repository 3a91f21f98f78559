//! TUN and TAP devices: a network interface whose wire is a file descriptor.
//!
//! One read or write is one packet. With the virtio header ([`TunBuilder::virtio_header`]) each
//! packet has in front of it the header of `docs/rules.md` section 6.1: 10 bytes unless
//! [`Tun::set_header_bytes`] said otherwise.

use core::ops::BitOr;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, open};
use rustix::ioctl::{IntegerSetter, Setter, ioctl};

use crate::abi;
use crate::interface::{InterfaceName, InterfaceRequest};

/// What the reader of a TUN or TAP device can take (`TUNSETOFFLOAD`, rule V30). Writes are not
/// limited by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads(u32);

impl Offloads {
    /// Nothing: the kernel completes checksums and segments before a packet is read.
    pub const NONE: Self = Self(0);
    /// Packets whose checksum is still to be completed. Every other offload needs it.
    pub const CHECKSUM: Self = Self(abi::TUN_F_CSUM);
    /// TCP superframes over IPv4.
    pub const TCP_IPV4: Self = Self(abi::TUN_F_TSO4);
    /// TCP superframes over IPv6.
    pub const TCP_IPV6: Self = Self(abi::TUN_F_TSO6);
    /// TCP superframes with the CWR flag on the first segment. Needs one of the two TCP offloads.
    pub const TCP_ECN: Self = Self(abi::TUN_F_TSO_ECN);
    /// UDP superframes over IPv4 and IPv6; the kernel takes only both together (Linux 6.2).
    pub const UDP: Self = Self(abi::TUN_F_USO4_USO6);
    /// Superframes inside UDP tunnels (Linux 6.17, with the 24-byte header).
    pub const UDP_TUNNEL: Self = Self(abi::TUN_F_UDP_TUNNEL_GSO);
    /// Superframes inside UDP tunnels whose outer checksum is set. Needs [`Offloads::UDP_TUNNEL`].
    pub const UDP_TUNNEL_CHECKSUM: Self = Self(abi::TUN_F_UDP_TUNNEL_GSO_CSUM);
}

impl BitOr for Offloads {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// How a TUN or TAP device is opened. Without `CAP_NET_ADMIN` only an existing device of one's own
/// can be attached.
#[derive(Clone, Debug)]
pub struct TunBuilder {
    name: InterfaceName,
    flags: u16,
    nonblocking: bool,
}

impl TunBuilder {
    /// A TAP device: packets are Ethernet frames. `%d` in the name lets the kernel choose a number.
    pub fn tap(name: InterfaceName) -> Self {
        Self { name, flags: abi::IFF_TAP | abi::IFF_NO_PI, nonblocking: false }
    }

    /// A TUN device: packets are IP packets. `%d` in the name lets the kernel choose a number.
    pub fn tun(name: InterfaceName) -> Self {
        Self { name, flags: abi::IFF_TUN | abi::IFF_NO_PI, nonblocking: false }
    }

    /// Puts a virtio header before each packet, in both directions (`IFF_VNET_HDR`).
    pub fn virtio_header(self, on: bool) -> Self {
        self.flag(abi::IFF_VNET_HDR, on)
    }

    /// Lets written packets pass NAPI and with it the kernel's GRO (`IFF_NAPI`, rule V32).
    pub fn napi(self, on: bool) -> Self {
        self.flag(abi::IFF_NAPI, on)
    }

    /// Lets written vectors become page fragments (`IFF_NAPI_FRAGS`, TAP with NAPI only, rule V32).
    pub fn napi_fragments(self, on: bool) -> Self {
        self.flag(abi::IFF_NAPI_FRAGS, on)
    }

    /// Lets several descriptors be queues of the one device (`IFF_MULTI_QUEUE`); each queue opens
    /// with the same flags.
    pub fn multi_queue(self, on: bool) -> Self {
        self.flag(abi::IFF_MULTI_QUEUE, on)
    }

    /// Makes a read without a packet fail with [`io::ErrorKind::WouldBlock`] instead of waiting.
    pub fn nonblocking(mut self, on: bool) -> Self {
        self.nonblocking = on;
        self
    }

    /// Creates the device in the calling thread's network namespace, or attaches to it.
    ///
    /// # Errors
    ///
    /// Not found if the kernel has no TUN/TAP, `EPERM` without the privilege, `EBUSY` if the device
    /// is attached and not multi-queue, `EINVAL` if it exists with other flags.
    pub fn open(self) -> io::Result<Tun> {
        let mut access = OFlags::RDWR | OFlags::CLOEXEC;
        access.set(OFlags::NONBLOCK, self.nonblocking);
        let file = open("/dev/net/tun", access, Mode::empty())?;
        let mut request = InterfaceRequest::new(&self.name).with(&self.flags.to_ne_bytes());
        request.call::<{ abi::TUNSETIFF }>(&file)?;
        Ok(Tun { file, name: InterfaceName::from_kernel(request.name)? })
    }

    fn flag(mut self, flag: u16, on: bool) -> Self {
        self.flags = if on { self.flags | flag } else { self.flags & !flag };
        self
    }
}

/// One open queue of a TUN or TAP device. The device vanishes with its last queue.
#[derive(Debug)]
pub struct Tun {
    file: OwnedFd,
    name: InterfaceName,
}

impl Tun {
    /// Sets the bytes of the virtio header: 10, 12, 20 or 24 are the known forms, and others of 10
    /// and more are accepted (rule V31).
    ///
    /// # Errors
    ///
    /// `EINVAL` below 10.
    pub fn set_header_bytes(&self, bytes: u8) -> io::Result<()> {
        // SAFETY: the opcode reads one `int` through the pointer that `Setter` makes of its value.
        let setter = unsafe { Setter::<{ abi::TUNSETVNETHDRSZ }, i32>::new(i32::from(bytes)) };
        // SAFETY: as above; the value lives in `setter` until the call returns.
        unsafe { ioctl(&self.file, setter) }?;
        Ok(())
    }

    /// Says what this reader can take.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the kernel does not know an offload or one that it needs is missing (rule V30).
    pub fn set_offloads(&self, offloads: Offloads) -> io::Result<()> {
        // SAFETY: the opcode takes its argument by value and no pointer.
        let setter =
            unsafe { IntegerSetter::<{ abi::TUNSETOFFLOAD }>::new_usize(offloads.0 as usize) };
        // SAFETY: as above.
        unsafe { ioctl(&self.file, setter) }?;
        Ok(())
    }

    /// Reads one packet, its virtio header first; what does not fit is lost.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] if nonblocking and empty, `EINVAL` for a packet the header
    /// cannot express (V20).
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(&self.file, buffer)?)
    }

    /// Writes one packet, its virtio header first.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a header the kernel refuses (rules V1 to V8), `EIO` while the interface is
    /// down.
    pub fn write(&self, packet: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(&self.file, packet)?)
    }

    /// Writes one packet from parts.
    ///
    /// # Errors
    ///
    /// As [`Tun::write`]; `EMSGSIZE` for too many parts with [`TunBuilder::napi_fragments`].
    pub fn write_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(rustix::io::writev(&self.file, parts)?)
    }

    /// The interface's name, as the kernel completed it.
    pub fn name(&self) -> &InterfaceName {
        &self.name
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_of_the_oracle_are_0x5012() {
        let name = InterfaceName::new("tap0").unwrap();
        assert_eq!(TunBuilder::tap(name).virtio_header(true).napi(true).flags, 0x5012);
        assert_eq!(TunBuilder::tap(name).napi(true).napi(false).flags, 0x1002);
        assert_eq!(TunBuilder::tun(name).multi_queue(true).flags, 0x1101);
    }

    #[test]
    fn opcodes_are_those_of_the_kernel_header() {
        assert_eq!(abi::TUNSETIFF, libc::TUNSETIFF as u32);
        assert_eq!(abi::TUNSETOFFLOAD, libc::TUNSETOFFLOAD as u32);
        assert_eq!(abi::TUNSETVNETHDRSZ, libc::TUNSETVNETHDRSZ as u32);
    }
}
