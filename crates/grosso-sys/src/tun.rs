//! TUN and TAP devices: network interfaces whose packets a program reads from and writes to a file descriptor.
//!
//! Each read or write transfers one packet. With the virtio header ([`TunBuilder::virtio_header`]) each packet is
//! preceded by the header of `docs/rules.md` section 6.1: 10 bytes unless changed by [`Tun::set_header_bytes`].
//!
//! Offloads, carrier, persistence and the length of the header belong to the device rather than the queue, and remain
//! set on a persistent device. Set all of them after opening such a device.

use core::ops::{BitOr, Sub};
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::ioctl::{Getter, IntegerSetter, Opcode, Setter, ioctl};

use crate::abi;
use crate::calls::seen;
use crate::interface::{InterfaceName, InterfaceRequest};
use crate::path::kernel;

/// Offloads that the reader of a TUN or TAP device accepts (`TUNSETOFFLOAD`, rule V30). They do not restrict the
/// packets that may be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads(u32);

impl Offloads {
    /// No offloads: the kernel completes checksums and segments superframes before a packet is read.
    pub const NONE: Self = Self(0);
    /// Packets with a partial checksum. Every other offload requires it.
    pub const CHECKSUM: Self = Self(abi::TUN_F_CSUM);
    /// TCP superframes over IPv4.
    pub const TCP_IPV4: Self = Self(abi::TUN_F_TSO4);
    /// TCP superframes over IPv6.
    pub const TCP_IPV6: Self = Self(abi::TUN_F_TSO6);
    /// TCP superframes with the CWR flag on the first segment. Requires one of the two TCP
    /// offloads.
    pub const TCP_ECN: Self = Self(abi::TUN_F_TSO_ECN);
    /// UDP superframes over IPv4 and IPv6 (Linux 6.2). The kernel does not accept one without the other.
    pub const UDP: Self = Self(abi::TUN_F_USO4_USO6);
    /// Superframes inside UDP tunnels (Linux 6.17, with the 24-byte header).
    pub const UDP_TUNNEL: Self = Self(abi::TUN_F_UDP_TUNNEL_GSO);
    /// Superframes inside UDP tunnels with outer checksums. Requires [`Offloads::UDP_TUNNEL`].
    pub const UDP_TUNNEL_CHECKSUM: Self = Self(abi::TUN_F_UDP_TUNNEL_GSO_CSUM);
}

impl Offloads {
    /// Returns whether all offloads of `other` are in this set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Offloads {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl Sub for Offloads {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// Layer of a device's packets.
///
/// ```
/// use grosso_sys::tun::Layer;
///
/// let header_bytes = |layer| if layer == Layer::Ethernet { 14 } else { 0 };
/// # assert_eq!([Layer::Ip, Layer::Ethernet].map(header_bytes), [0, 14]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// Ethernet frames: a TAP device.
    Ethernet,
    /// IP packets: a TUN device.
    Ip,
}

/// Features of the kernel's TUN and TAP devices (`TUNGETFEATURES`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features(u32);

impl Features {
    /// Queries the running kernel, without creating a device.
    ///
    /// # Errors
    ///
    /// Returns `NotFound` if the kernel lacks TUN/TAP, or `EACCES` if the caller may not open the device file.
    pub fn of_kernel() -> io::Result<Self> {
        let file = kernel::open_device("/dev/net/tun")?;
        // SAFETY: the opcode writes one 32-bit number.
        let getter = unsafe { Getter::<{ abi::TUNGETFEATURES }, u32>::new() };
        // SAFETY: the opcode writes one 32-bit number.
        Ok(Self(unsafe { ioctl(&file, getter) }?))
    }

    /// Returns whether virtio headers are supported.
    pub fn virtio_header(self) -> bool {
        self.has(abi::IFF_VNET_HDR)
    }

    /// Returns whether a device can have several queues.
    pub fn multi_queue(self) -> bool {
        self.has(abi::IFF_MULTI_QUEUE)
    }

    /// Returns whether written packets can be processed through NAPI.
    pub fn napi(self) -> bool {
        self.has(abi::IFF_NAPI)
    }

    fn has(self, flag: u16) -> bool {
        self.0 & u32::from(flag) != 0
    }
}

/// Options for opening a TUN or TAP device. Without `CAP_NET_ADMIN` only an existing device owned
/// by the caller can be attached.
#[derive(Clone, Debug)]
pub struct TunBuilder {
    name: InterfaceName,
    flags: u16,
    nonblocking: bool,
}

impl TunBuilder {
    /// Creates options for a TAP device: packets are Ethernet frames. The kernel replaces `%d` in the name with a
    /// number.
    pub fn tap(name: InterfaceName) -> Self {
        Self { name, flags: abi::IFF_TAP | abi::IFF_NO_PI, nonblocking: false }
    }

    /// Creates options for a TUN device: packets are IP packets. The kernel replaces `%d` in the name with a number.
    pub fn tun(name: InterfaceName) -> Self {
        Self { name, flags: abi::IFF_TUN | abi::IFF_NO_PI, nonblocking: false }
    }

    /// Puts a virtio header before each packet, in both directions (`IFF_VNET_HDR`).
    pub fn virtio_header(self, on: bool) -> Self {
        self.flag(abi::IFF_VNET_HDR, on)
    }

    /// Processes written packets through NAPI and therefore through the kernel's GRO (`IFF_NAPI`, rule V32).
    pub fn napi(self, on: bool) -> Self {
        self.flag(abi::IFF_NAPI, on)
    }

    /// Turns the parts of a written packet into page fragments (`IFF_NAPI_FRAGS`, only for TAP devices with NAPI, rule
    /// V32).
    pub fn napi_fragments(self, on: bool) -> Self {
        self.flag(abi::IFF_NAPI_FRAGS, on)
    }

    /// Allows several descriptors to be queues of one device (`IFF_MULTI_QUEUE`); each queue must
    /// be opened with the same flags.
    pub fn multi_queue(self, on: bool) -> Self {
        self.flag(abi::IFF_MULTI_QUEUE, on)
    }

    /// Makes a read fail with [`io::ErrorKind::WouldBlock`] if there is no packet, instead of blocking.
    pub fn nonblocking(mut self, on: bool) -> Self {
        self.nonblocking = on;
        self
    }

    /// Creates the device in the calling thread's network namespace, or attaches to it.
    ///
    /// # Errors
    ///
    /// Returns `NotFound` if the kernel lacks TUN/TAP, `EPERM` without the privilege, `EBUSY` if the device is attached
    /// and not multi-queue, or `EINVAL` if it exists with other flags.
    pub fn open(self) -> io::Result<Tun> {
        let mut access = OFlags::RDWR | OFlags::CLOEXEC;
        access.set(OFlags::NONBLOCK, self.nonblocking);
        let file = kernel::open_with("/dev/net/tun", access)?;
        let mut request = InterfaceRequest::new(&self.name).with(&self.flags.to_ne_bytes());
        request.call::<{ abi::TUNSETIFF }>(&file)?;
        Ok(Tun { file, name: InterfaceName::from_kernel(request.name)?, flags: self.flags })
    }

    fn flag(mut self, flag: u16, on: bool) -> Self {
        self.flags = if on { self.flags | flag } else { self.flags & !flag };
        self
    }
}

/// One open queue of a TUN or TAP device. A device that is not persistent is removed with its last queue.
#[derive(Debug)]
pub struct Tun {
    file: OwnedFd,
    name: InterfaceName,
    flags: u16,
}

impl Tun {
    /// Adopts an open queue that another program created, for example a service manager. The device may belong to a
    /// network namespace other than the calling thread's.
    ///
    /// The queue must have been created with `IFF_NO_PI`. Otherwise four bytes precede each packet, and the kernel does
    /// not report this: `TUNGETIFF` returns `IFF_NO_PI` for every device (observed on 6.18).
    ///
    /// # Errors
    ///
    /// Returns `ENOTTY` if the descriptor does not belong to `/dev/net/tun`, or `EBADFD` if no device is attached (not
    /// yet, or no longer).
    pub fn adopt(file: OwnedFd) -> io::Result<Self> {
        let request = InterfaceRequest::read::<{ abi::TUNGETIFF }>(&file)?;
        let (name, flags) = (InterfaceName::from_kernel(request.name)?, request.flags());
        Ok(Self { file, name, flags })
    }

    /// Sets whether an operation that would block fails with [`io::ErrorKind::WouldBlock`] instead: a read if there is
    /// no packet, and a write if there is no room.
    ///
    /// # Errors
    ///
    /// Returns any error from `fcntl(2)`.
    pub fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        let mut flags = fcntl_getfl(&self.file)?;
        flags.set(OFlags::NONBLOCK, on);
        Ok(fcntl_setfl(&self.file, flags)?)
    }

    /// Attaches this queue to the device or detaches it. A detached queue receives no packets but can still write.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if the device is not multi-queue, or the queue is already in that state.
    pub fn set_attached(&self, attached: bool) -> io::Result<()> {
        let flag = if attached { abi::IFF_ATTACH_QUEUE } else { abi::IFF_DETACH_QUEUE };
        let mut request = InterfaceRequest::new(&self.name).with(&flag.to_ne_bytes());
        request.call::<{ abi::TUNSETQUEUE }>(&self.file)
    }

    /// Limits the memory of packets that this queue has written and the kernel still holds, in bytes including the
    /// kernel's bookkeeping. At the limit a write would block.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` for zero.
    pub fn set_send_buffer_bytes(&self, bytes: u32) -> io::Result<()> {
        self.set_number::<{ abi::TUNSETSNDBUF }>(i32::try_from(bytes).unwrap_or(i32::MAX))
    }

    /// Sets whether the device has carrier (Linux 5.0).
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` on kernels before 5.0, or `EBADFD` if the device is gone.
    pub fn set_carrier(&self, on: bool) -> io::Result<()> {
        self.set_number::<{ abi::TUNSETCARRIER }>(i32::from(on))
    }

    /// Sets whether the device continues to exist after its last queue is closed.
    ///
    /// # Errors
    ///
    /// Returns `EBADFD` if the device is gone.
    pub fn set_persistent(&self, on: bool) -> io::Result<()> {
        self.set_value::<{ abi::TUNSETPERSIST }>(usize::from(on))
    }

    /// Sets the length of the virtio header in bytes: 10, 12, 20 and 24 are the defined formats, and the kernel accepts
    /// any length of at least 10 (rule V31).
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` for a length below 10.
    pub fn set_header_bytes(&self, bytes: u8) -> io::Result<()> {
        self.set_number::<{ abi::TUNSETVNETHDRSZ }>(i32::from(bytes))
    }

    /// Sets the offloads that this reader accepts.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if the kernel lacks an offload, or a required one is missing (rule V30).
    pub fn set_offloads(&self, offloads: Offloads) -> io::Result<()> {
        self.set_value::<{ abi::TUNSETOFFLOAD }>(offloads.0 as usize)
    }

    /// Reads one packet, starting with its virtio header. Bytes that do not fit in the buffer are lost.
    ///
    /// # Errors
    ///
    /// Returns [`io::ErrorKind::WouldBlock`] if the device is nonblocking and there is no packet, `EINVAL` for a packet
    /// that the header cannot express (V20), or `EBADFD` if the device is gone.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(seen(|| rustix::io::read(&self.file, &mut *buffer))?)
    }

    /// Reads one packet into several buffers, which are filled in order. Bytes that do not fit are lost.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Tun::read`].
    pub fn read_vectored(&self, parts: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        Ok(seen(|| rustix::io::readv(&self.file, parts))?)
    }

    /// Writes one packet, starting with its virtio header.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` for an invalid header (rules V1 to V8), `EIO` while the interface is down, `EBADFD` if the
    /// device is gone, or [`io::ErrorKind::WouldBlock`] at the limit of [`Tun::set_send_buffer_bytes`].
    /// [`crate::errno::ErrorClass`] distinguishes these errors.
    pub fn write(&self, packet: &[u8]) -> io::Result<usize> {
        Ok(seen(|| rustix::io::write(&self.file, packet))?)
    }

    /// Writes one packet from parts.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Tun::write`], and `EMSGSIZE` for too many parts with
    /// [`TunBuilder::napi_fragments`].
    pub fn write_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(seen(|| rustix::io::writev(&self.file, parts))?)
    }

    /// Returns the interface name, with `%d` replaced by the kernel. Another program may have renamed it since.
    pub fn name(&self) -> &InterfaceName {
        &self.name
    }

    /// Returns the current interface name.
    ///
    /// # Errors
    ///
    /// Returns `EBADFD` if the device is gone.
    pub fn current_name(&self) -> io::Result<InterfaceName> {
        let request = InterfaceRequest::read::<{ abi::TUNGETIFF }>(&self.file)?;
        InterfaceName::from_kernel(request.name)
    }

    /// Returns the layer of the device's packets.
    pub fn layer(&self) -> Layer {
        if self.flags & abi::IFF_TAP != 0 { Layer::Ethernet } else { Layer::Ip }
    }

    /// Returns whether the device was created for several queues.
    pub fn multi_queue(&self) -> bool {
        self.flags & abi::IFF_MULTI_QUEUE != 0
    }

    /// Returns the length of the virtio header before each packet in bytes, or 0 if there is no header.
    ///
    /// # Errors
    ///
    /// Returns `EBADFD` if the device is gone.
    pub fn header_bytes(&self) -> io::Result<usize> {
        if self.flags & abi::IFF_VNET_HDR == 0 {
            return Ok(0);
        }
        // SAFETY: the opcode writes one `int`.
        let getter = unsafe { Getter::<{ abi::TUNGETVNETHDRSZ }, i32>::new() };
        // SAFETY: the opcode writes one `int`.
        let bytes = unsafe { ioctl(&self.file, getter) }?;
        usize::try_from(bytes).map_err(io::Error::other)
    }

    /// Calls one of the ioctls in `abi` that read an `int` through a pointer.
    fn set_number<const OPCODE: Opcode>(&self, number: i32) -> io::Result<()> {
        // SAFETY: the opcode reads one `int` through the pointer that `Setter` makes of its value.
        let setter = unsafe { Setter::<OPCODE, i32>::new(number) };
        // SAFETY: the opcode reads one `int`, which lives in `setter` until the call returns.
        unsafe { ioctl(&self.file, setter) }?;
        Ok(())
    }

    /// Calls one of the ioctls in `abi` that take a number by value.
    fn set_value<const OPCODE: Opcode>(&self, value: usize) -> io::Result<()> {
        // SAFETY: the opcode takes its argument by value, not through a pointer.
        let setter = unsafe { IntegerSetter::<OPCODE>::new_usize(value) };
        // SAFETY: the opcode takes its argument by value, not through a pointer.
        unsafe { ioctl(&self.file, setter) }?;
        Ok(())
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
        assert_eq!(abi::TUNGETVNETHDRSZ, libc::TUNGETVNETHDRSZ as u32);
        assert_eq!(abi::TUNGETFEATURES, libc::TUNGETFEATURES as u32);
        assert_eq!(abi::TUNGETIFF, libc::TUNGETIFF as u32);
        assert_eq!(abi::TUNSETPERSIST, libc::TUNSETPERSIST as u32);
        assert_eq!(abi::TUNSETSNDBUF, libc::TUNSETSNDBUF as u32);
        assert_eq!(abi::TUNSETQUEUE, libc::TUNSETQUEUE as u32);
        assert_eq!(abi::TUNSETCARRIER, libc::TUNSETCARRIER as u32);
    }
}
