//! Queries the path MTU that the kernel knows for a remote host.

use core::net::{IpAddr, SocketAddr};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, connect_unspec, socket_with};

use super::address::Address;
use super::{EchoSocket, read};
use crate::netlink::{Netlink, RouteFacts};

/// A socket for path MTU queries in the network namespace of the thread that created it.
#[derive(Debug)]
pub struct PathMtu {
    file: OwnedFd,
    routes: Netlink,
    is_ipv4: bool,
}

impl PathMtu {
    /// Creates a socket for paths of this address family.
    ///
    /// # Errors
    ///
    /// Returns any error from `socket(2)`.
    pub fn new(is_ipv4: bool) -> io::Result<Self> {
        let family = if is_ipv4 { AddressFamily::INET } else { AddressFamily::INET6 };
        let file = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        Ok(Self { file, routes: Netlink::new()?, is_ipv4 })
    }

    /// Returns the route to another host with its MTU, as determined by link and route. No message from the network can
    /// change this MTU.
    ///
    /// # Errors
    ///
    /// Returns `ENETUNREACH` or a similar error if there is no route.
    pub fn of_route(&self, remote: IpAddr) -> io::Result<RouteFacts> {
        self.routes.route(remote)
    }

    /// Returns the path MTU to a host in bytes: the MTU of the route, or a lower one learned since (`IP_MTU`). The
    /// value is only a hint, because ICMP messages can be forged. The call sends no packet.
    ///
    /// # Errors
    ///
    /// Returns `ENETUNREACH` or a similar error if there is no route.
    pub fn to(&self, remote: IpAddr) -> io::Result<usize> {
        self.connect(remote)?;
        let (level, option) = match self.is_ipv4 {
            true => (libc::IPPROTO_IP, libc::IP_MTU),
            false => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
        };
        let [mtu] = read(&self.file, level, option)?;
        usize::try_from(mtu).map_err(io::Error::other)
    }

    /// Sets the kernel's IPv6 path MTU to a host to `mtu` bytes, at least 1280, for ten minutes
    /// (`net.ipv6.route.mtu_expires`), so that the kernel fragments longer datagrams to that host.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`PathMtu::to`], and [`io::ErrorKind::InvalidInput`] for IPv4.
    pub fn report_mtu(&self, remote: IpAddr, mtu: u16, messenger: &EchoSocket) -> io::Result<()> {
        self.connect(remote)?;
        messenger.send_mtu_error(self.local()?, SocketAddr::new(remote, DISCARD), mtu)
    }

    /// Returns the address and port of the connected socket.
    fn local(&self) -> io::Result<SocketAddr> {
        let mut address = Address::EMPTY;
        let mut length = Address::CAPACITY as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes, which is the size of the address.
        let result = unsafe {
            libc::getsockname(self.file.as_raw_fd(), (&raw mut address).cast(), &raw mut length)
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        let address = address.parse(length as usize);
        address.ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }

    /// Connects the socket. Connecting a datagram socket sends no packet, so any port is suitable. The socket is
    /// disconnected first, because it would otherwise keep the source address chosen for the previous host.
    fn connect(&self, remote: IpAddr) -> io::Result<()> {
        connect_unspec(&self.file)?;
        Ok(connect(&self.file, &SocketAddr::new(remote, DISCARD))?)
    }
}

/// The port of the discard service (RFC 863).
const DISCARD: u16 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_to_this_host_is_that_of_the_loopback_device() {
        let mtu = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
        for host in ["127.0.0.1", "127.0.0.9"] {
            let (paths, host): (_, IpAddr) = (PathMtu::new(true).unwrap(), host.parse().unwrap());
            // An IPv4 packet cannot be longer than 65535 bytes.
            assert_eq!(paths.to(host).unwrap(), mtu.trim().parse::<usize>().unwrap().min(65535));
            paths.connect(host).unwrap();
            assert_eq!(paths.local().unwrap().ip(), "127.0.0.1".parse::<IpAddr>().unwrap());
        }
    }
}
