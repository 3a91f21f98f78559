//! What fits on the way to another host, as the kernel knows it.

use core::net::{IpAddr, SocketAddr};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, connect_unspec, socket_with};

use super::address::Address;
use super::read;

/// Asks for the MTU of paths, in the network namespace of the thread that made it.
#[derive(Debug)]
pub struct PathMtu {
    file: OwnedFd,
    is_ipv4: bool,
}

impl PathMtu {
    /// For paths of this family.
    ///
    /// # Errors
    ///
    /// Those of `socket(2)`.
    pub fn new(is_ipv4: bool) -> io::Result<Self> {
        let family = if is_ipv4 { AddressFamily::INET } else { AddressFamily::INET6 };
        let file = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        Ok(Self { file, is_ipv4 })
    }

    /// The longest packet, in bytes from its IP header on, that gets to a host: the MTU of the
    /// route, or what was learned of the path since (`IP_MTU`). Nothing is sent.
    ///
    /// # Errors
    ///
    /// `ENETUNREACH` and the like if there is no route.
    pub fn to(&self, remote: IpAddr) -> io::Result<usize> {
        self.connect(remote)?;
        let (level, option) = match self.is_ipv4 {
            true => (libc::IPPROTO_IP, libc::IP_MTU),
            false => (libc::IPPROTO_IPV6, libc::IPV6_MTU),
        };
        let [mtu] = read(&self.file, level, option)?;
        usize::try_from(mtu).map_err(io::Error::other)
    }

    /// The address that this host has on the way to another.
    ///
    /// # Errors
    ///
    /// As [`PathMtu::to`].
    pub fn source(&self, remote: IpAddr) -> io::Result<IpAddr> {
        self.connect(remote)?;
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
        address.map(|address| address.ip()).ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }

    /// Any port does: a datagram socket is connected without a packet. It would keep the address
    /// that it had on the way to another host.
    fn connect(&self, remote: IpAddr) -> io::Result<()> {
        connect_unspec(&self.file)?;
        Ok(connect(&self.file, &SocketAddr::new(remote, DISCARD))?)
    }
}

/// The port of a service that takes everything (RFC 863).
const DISCARD: u16 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_to_this_host_is_that_of_the_loopback_device() {
        let mtu = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
        for host in ["127.0.0.1", "127.0.0.9"] {
            let (paths, host): (_, IpAddr) = (PathMtu::new(true).unwrap(), host.parse().unwrap());
            // No IPv4 packet is longer.
            assert_eq!(paths.to(host).unwrap(), mtu.trim().parse::<usize>().unwrap().min(65535));
            assert_eq!(paths.source(host).unwrap(), "127.0.0.1".parse::<IpAddr>().unwrap());
        }
    }
}
