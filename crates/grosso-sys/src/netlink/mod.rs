//! Links, addresses, routes and neighbors through rtnetlink. Each call sends one request and receives one reply.
//!
//! Few requests are needed and their layout never changes, so this module builds them itself instead of depending on a
//! crate for the whole protocol.
//!
//! ```no_run
//! use std::os::fd::AsFd;
//!
//! use grosso_sys::interface::InterfaceName;
//! use grosso_sys::namespace::NetworkNamespace;
//! use grosso_sys::netlink::{LinkChange, Netlink};
//!
//! # fn main() -> std::io::Result<()> {
//! let (host, other) = (NetworkNamespace::new()?, NetworkNamespace::new()?);
//! let here = LinkChange::new().up(true).namespace(host.as_fd());
//! let there = LinkChange::new().mtu(9000).namespace(other.as_fd());
//! let name = InterfaceName::new("wire")?;
//! Netlink::new()?.add_veth((&name, here), (&name, there))?;
//!
//! let netlink = host.run(Netlink::new)??;
//! let link = netlink.link(&name)?;
//! netlink.add_address(link.index, "10.0.0.1".parse().unwrap(), 24)?;
//! # Ok(())
//! # }
//! ```

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::net::{bind, recv, send, socket_with};

use crate::abi;

mod address;
mod generic;
mod link;
mod message;
mod route;
mod socket;

use message::{Messages, Request};

pub(crate) use generic::ask_ethtool;
pub use generic::has_generic_family;
pub use link::{Link, LinkChange, LinkStatistics, VxlanEnds};
pub use route::{RouteFacts, RouteQuery};

/// Maximum length in bytes of one part of a reply. The parts that the kernel sends are at most half as long.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// An rtnetlink socket in the network namespace of the thread that created it. Requests from several threads are
/// serialized.
#[derive(Debug)]
pub struct Netlink {
    socket: OwnedFd,
    /// Sequence number of the last request, which the reply repeats.
    sequence: Mutex<u32>,
}

impl Netlink {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// Returns any error from `socket(2)`.
    pub fn new() -> io::Result<Self> {
        // The default protocol is 0, which is `NETLINK_ROUTE`.
        Self::of(None)
    }

    fn of(protocol: Option<Protocol>) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self { socket, sequence: Mutex::new(0) })
    }

    fn execute(&self, request: Request) -> io::Result<()> {
        self.exchange(request.flags(abi::NLM_F_ACK), |_, _| ())
    }

    /// Sends a request and passes the type and the payload of each message in the reply to `see`.
    fn exchange(&self, request: Request, mut see: impl FnMut(u16, &[u8])) -> io::Result<()> {
        // A panic cannot leave the number inconsistent.
        let mut sequence = self.sequence.lock().unwrap_or_else(PoisonError::into_inner);
        *sequence = sequence.wrapping_add(1);
        send(&self.socket, &request.finish(*sequence), SendFlags::empty())?;
        let mut answer = vec![0; ANSWER_BYTES_MAX];
        loop {
            let length = match recv(&self.socket, &mut answer[..], RecvFlags::TRUNC) {
                Err(Errno::INTR) => continue,
                result => result?.1,
            };
            let Some(part) = answer.get(..length) else {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the netlink reply is too long",
                ));
            };
            // Messages left over from a request that failed halfway have another sequence number.
            for message in Messages::new(part).filter(|m| m.sequence == *sequence) {
                match message.kind {
                    abi::NLMSG_ERROR => return message.acknowledgement(),
                    abi::NLMSG_DONE => return Ok(()),
                    kind => see(kind, message.payload),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_refuses_an_interface_that_is_not_there() {
        let refused = Netlink::new().unwrap().set_gro_max_size(u32::MAX >> 1, 65_536, 65_536);
        let error = refused.unwrap_err().raw_os_error();
        assert!(matches!(error, Some(libc::ENODEV | libc::EPERM | libc::EINVAL)), "{error:?}");
    }

    #[test]
    fn every_network_has_a_loopback() {
        let links = Netlink::new().unwrap().links().unwrap();
        let loopback = links.iter().find(|link| link.name.as_str() == "lo").unwrap();
        assert_eq!((loopback.index, loopback.kind.as_deref()), (1, None));
        assert!(loopback.mtu >= 65_535 && loopback.gso_max_segments.is_some());
    }
}
