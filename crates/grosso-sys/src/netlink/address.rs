//! Adds addresses, routes and neighbors to a link.

use std::io;
use std::net::IpAddr;

use rustix::net::AddressFamily;

use super::Netlink;
use super::message::Request;
use crate::abi;

impl Netlink {
    /// Adds an address to a link, with a route to its prefix. An IPv6 address is usable immediately, without duplicate
    /// address detection (`nodad`).
    ///
    /// # Errors
    ///
    /// Returns `EEXIST` if the link already has the address, `EINVAL` for a prefix longer than the address, `EACCES` or
    /// `EOPNOTSUPP` if IPv6 is disabled, or `EPERM` without `CAP_NET_ADMIN`.
    pub fn add_address(&self, index: u32, address: IpAddr, prefix_bits: u8) -> io::Result<()> {
        let flags = if address.is_ipv6() { abi::IFA_F_NODAD } else { 0 };
        // struct ifaddrmsg: family, prefix, flags, scope, index.
        let mut fixed = [family(address), prefix_bits, flags, 0, 0, 0, 0, 0];
        fixed[4..].copy_from_slice(&index.to_ne_bytes());
        let creation = abi::NLM_F_CREATE | abi::NLM_F_EXCL;
        let mut request = Request::new(abi::RTM_NEWADDR, &fixed).flags(creation);
        request.attribute(abi::IFA_LOCAL, &octets(address));
        request.attribute(abi::IFA_ADDRESS, &octets(address));
        self.execute(request)
    }

    /// Adds a route for a prefix through a link. Packets go to the gateway, or directly to each destination if there is
    /// no gateway. A prefix of length 0 is the default route.
    ///
    /// # Errors
    ///
    /// Returns `EEXIST` if the route already exists, `ENETUNREACH` or `EHOSTUNREACH` if the gateway cannot be reached
    /// through the link, `EINVAL` for a destination with bits after its prefix or a gateway of the other family,
    /// `ENETDOWN` while the link is down, or `EPERM` without `CAP_NET_ADMIN`.
    pub fn add_route(
        &self,
        index: u32,
        destination: (IpAddr, u8),
        gateway: Option<IpAddr>,
    ) -> io::Result<()> {
        if gateway.is_some_and(|gateway| gateway.is_ipv4() != destination.0.is_ipv4()) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let on_link = gateway.is_none() && destination.0.is_ipv4();
        let scope = if on_link { abi::RT_SCOPE_LINK } else { abi::RT_SCOPE_UNIVERSE };
        // struct rtmsg: family, lengths of destination and source, type of service, table, origin,
        // scope, type, flags.
        let mut fixed = [0; 12];
        fixed[..2].copy_from_slice(&[family(destination.0), destination.1]);
        fixed[4..8].copy_from_slice(&[
            abi::RT_TABLE_MAIN,
            abi::RTPROT_STATIC,
            scope,
            abi::RTN_UNICAST,
        ]);
        let creation = abi::NLM_F_CREATE | abi::NLM_F_EXCL;
        let mut request = Request::new(abi::RTM_NEWROUTE, &fixed).flags(creation);
        if destination.1 > 0 {
            request.attribute(abi::RTA_DST, &octets(destination.0));
        }
        request.number(abi::RTA_OIF, index);
        if let Some(gateway) = gateway {
            request.attribute(abi::RTA_GATEWAY, &octets(gateway));
        }
        self.execute(request)
    }

    /// Sets the Ethernet address of a neighbor permanently, so that it is not resolved.
    ///
    /// # Errors
    ///
    /// Returns `ENODEV` if there is no such link, `EINVAL` for a link without Ethernet addresses, or `EPERM` without
    /// `CAP_NET_ADMIN`.
    pub fn set_neighbour(
        &self,
        index: u32,
        address: IpAddr,
        hardware_address: [u8; 6],
    ) -> io::Result<()> {
        // struct ndmsg: family, three bytes of padding, index, state, flags, type.
        let mut fixed = [0; 12];
        fixed[0] = family(address);
        fixed[4..8].copy_from_slice(&index.to_ne_bytes());
        fixed[8..10].copy_from_slice(&abi::NUD_PERMANENT.to_ne_bytes());
        let creation = abi::NLM_F_CREATE | abi::NLM_F_REPLACE;
        let mut request = Request::new(abi::RTM_NEWNEIGH, &fixed).flags(creation);
        request.attribute(abi::NDA_DST, &octets(address));
        request.attribute(abi::NDA_LLADDR, &hardware_address);
        self.execute(request)
    }
}

pub(super) fn family(address: IpAddr) -> u8 {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    family.as_raw() as u8
}

pub(super) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
