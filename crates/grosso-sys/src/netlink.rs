//! The few things that only rtnetlink can do. One request, one acknowledgement.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::net::{bind, recv, send, socket_with};

use crate::abi;
use crate::interface::InterfaceName;

/// Bytes of `struct nlmsghdr`.
const HEADER_BYTES: usize = 16;
/// Bytes of `struct rtattr`, and of the alignment of every part.
const ATTRIBUTE_BYTES: usize = 4;

/// An rtnetlink socket of one network namespace: the one its creator's thread was in.
#[derive(Debug)]
pub struct Netlink {
    socket: OwnedFd,
}

impl Netlink {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// Those of `socket(2)`.
    pub fn new() -> io::Result<Self> {
        // No protocol is 0, which is `NETLINK_ROUTE`.
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self { socket })
    }

    /// Sets the greatest length in bytes that GRO builds on an interface, for IPv6 and for IPv4
    /// (rule G60).
    ///
    /// # Errors
    ///
    /// `EINVAL` above 524 280, `EPERM` without `CAP_NET_ADMIN`. Kernels before 6.3 ignore the size
    /// for IPv4.
    pub fn set_gro_max_size(&self, index: u32, ipv6: u32, ipv4: u32) -> io::Result<()> {
        let mut request = Request::link(index, 0);
        // Setting the first also sets the second while both are at most 65536, so the order
        // matters.
        request.attribute(abi::IFLA_GRO_MAX_SIZE, &ipv6.to_ne_bytes());
        request.attribute(abi::IFLA_GRO_IPV4_MAX_SIZE, &ipv4.to_ne_bytes());
        self.execute(request)
    }

    /// Creates a VXLAN device that takes every network identifier, over IPv4 and IPv6, on a UDP
    /// port once it is up (`external`, as `ip link` says).
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the kernel has no VXLAN, `EEXIST`, `EPERM` without `CAP_NET_ADMIN`.
    pub fn add_vxlan(&self, name: &InterfaceName, port: u16) -> io::Result<()> {
        let mut request = Request::link(0, abi::NLM_F_CREATE | abi::NLM_F_EXCL);
        request.attribute(abi::IFLA_IFNAME, &terminated(name.as_str()));
        request.nested(abi::IFLA_LINKINFO, |info| {
            info.attribute(abi::IFLA_INFO_KIND, &terminated("vxlan"));
            info.nested(abi::IFLA_INFO_DATA, |data| {
                data.attribute(abi::IFLA_VXLAN_COLLECT_METADATA, &[1]);
                data.attribute(abi::IFLA_VXLAN_PORT, &port.to_be_bytes());
            });
        });
        self.execute(request)
    }

    fn execute(&self, request: Request) -> io::Result<()> {
        send(&self.socket, &request.finish(), SendFlags::empty())?;
        let mut answer = [0; 4096];
        let (length, _) = recv(&self.socket, &mut answer[..], RecvFlags::empty())?;
        acknowledgement(&answer[..length])
    }
}

/// A message being built: header, fixed part, attributes, each padded to four bytes.
struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// `RTM_NEWLINK` with a `struct ifinfomsg`, for the interface of an index or, with 0, for one
    /// to be created.
    fn link(index: u32, flags: u16) -> Self {
        let mut bytes = vec![0; HEADER_BYTES + 16];
        bytes[4..6].copy_from_slice(&abi::RTM_NEWLINK.to_ne_bytes());
        let flags = flags | abi::NLM_F_REQUEST | abi::NLM_F_ACK;
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes[HEADER_BYTES + 4..HEADER_BYTES + 8].copy_from_slice(&index.to_ne_bytes());
        Self { bytes }
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.nested(kind, |request| request.bytes.extend_from_slice(value));
    }

    fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; ATTRIBUTE_BYTES]);
        fill(self);
        let length = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.bytes[start + 2..start + 4].copy_from_slice(&kind.to_ne_bytes());
        self.bytes.resize(self.bytes.len().next_multiple_of(ATTRIBUTE_BYTES), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        let length = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes
    }
}

fn terminated(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    bytes
}

/// The kernel answers a request with `NLMSG_ERROR` and a negated error, or zero.
fn acknowledgement(answer: &[u8]) -> io::Result<()> {
    let kind = answer.get(4..6).map(|bytes| u16::from_ne_bytes([bytes[0], bytes[1]]));
    let code = answer.get(HEADER_BYTES..HEADER_BYTES + 4);
    match (kind, code) {
        (Some(abi::NLMSG_ERROR), Some(code)) => {
            match i32::from_ne_bytes([code[0], code[1], code[2], code[3]]) {
                0 => Ok(()),
                error => Err(io::Error::from_raw_os_error(error.saturating_neg())),
            }
        }
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "not a netlink acknowledgement")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nested_attribute_covers_what_is_in_it_and_is_padded() {
        let mut request = Request::link(7, 0);
        request.nested(18, |info| info.attribute(1, b"vxlan\0"));
        let bytes = request.finish();
        assert_eq!(bytes.len(), 32 + 4 + 12);
        assert_eq!(bytes[..4], 48_u32.to_ne_bytes());
        assert_eq!(bytes[20..24], 7_u32.to_ne_bytes());
        assert_eq!(bytes[32..34], 16_u16.to_ne_bytes());
        assert_eq!(bytes[36..38], 10_u16.to_ne_bytes());
        assert_eq!(&bytes[40..48], b"vxlan\0\0\0");
    }

    #[test]
    fn an_error_in_the_acknowledgement_is_the_error() {
        let mut answer = vec![0; 36];
        answer[4..6].copy_from_slice(&abi::NLMSG_ERROR.to_ne_bytes());
        assert!(acknowledgement(&answer).is_ok());
        answer[16..20].copy_from_slice(&(-libc::EPERM).to_ne_bytes());
        assert_eq!(acknowledgement(&answer).unwrap_err().raw_os_error(), Some(libc::EPERM));
        assert!(acknowledgement(&answer[..10]).is_err());
    }

    #[test]
    fn the_kernel_refuses_an_interface_that_is_not_there() {
        let refused = Netlink::new().unwrap().set_gro_max_size(u32::MAX >> 1, 65_536, 65_536);
        let error = refused.unwrap_err().raw_os_error();
        assert!(matches!(error, Some(libc::ENODEV | libc::EPERM | libc::EINVAL)), "{error:?}");
    }
}
