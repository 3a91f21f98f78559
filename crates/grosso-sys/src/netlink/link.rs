//! Links: making, changing, listing and deleting network interfaces.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::Netlink;
use super::message::{Attributes, Request, number, text};
use crate::abi;
use crate::interface::InterfaceName;

/// Bytes of `struct ifinfomsg`.
const LINK_BYTES: usize = 16;

/// What is to be changed of a link, or how it is to be made. What is not named stays as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkChange<'a> {
    up: Option<bool>,
    namespace: Option<BorrowedFd<'a>>,
    address: Option<[u8; 6]>,
    queues: Option<u32>,
    /// Attributes that are a number, in the order in which the kernel should see them.
    numbers: [Option<u32>; NUMBERS.len()],
}

/// The attributes of [`LinkChange`] that are one number.
const NUMBERS: [u16; 7] = [
    abi::IFLA_MTU,
    abi::IFLA_TXQLEN,
    abi::IFLA_GSO_MAX_SIZE,
    abi::IFLA_GSO_MAX_SEGS,
    // Setting the sizes for IPv6 also sets those for IPv4 while both are at most 65536, so the
    // latter come last.
    abi::IFLA_GRO_MAX_SIZE,
    abi::IFLA_GSO_IPV4_MAX_SIZE,
    abi::IFLA_GRO_IPV4_MAX_SIZE,
];

impl<'a> LinkChange<'a> {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Brings the link up or takes it down.
    pub fn up(mut self, up: bool) -> Self {
        self.up = Some(up);
        self
    }

    /// Moves the link into a network namespace, where it may get another index. Its addresses are
    /// lost, and it goes down.
    pub fn namespace(mut self, namespace: BorrowedFd<'a>) -> Self {
        self.namespace = Some(namespace);
        self
    }

    /// Sets the Ethernet address.
    pub fn hardware_address(mut self, address: [u8; 6]) -> Self {
        self.address = Some(address);
        self
    }

    /// Sets how many transmit and receive queues a new link has.
    pub fn queues(mut self, queues: u32) -> Self {
        self.queues = Some(queues);
        self
    }

    /// Sets the MTU in bytes, which excludes the link-layer header.
    pub fn mtu(self, bytes: u32) -> Self {
        self.number(abi::IFLA_MTU, bytes)
    }

    /// Sets how many packets wait for transmission; for a TAP, how many wait to be read.
    pub fn transmit_queue_length(self, packets: u32) -> Self {
        self.number(abi::IFLA_TXQLEN, packets)
    }

    /// Sets the longest superframe in bytes that is handed to the device, for IPv6 and, up to
    /// 65536, for IPv4.
    pub fn gso_max_size(self, bytes: u32) -> Self {
        self.number(abi::IFLA_GSO_MAX_SIZE, bytes)
    }

    /// Sets how many segments a superframe that is handed to the device has at most.
    pub fn gso_max_segments(self, segments: u32) -> Self {
        self.number(abi::IFLA_GSO_MAX_SEGS, segments)
    }

    /// Sets the longest IPv4 superframe in bytes that is handed to the device (Linux 6.3).
    pub fn gso_ipv4_max_size(self, bytes: u32) -> Self {
        self.number(abi::IFLA_GSO_IPV4_MAX_SIZE, bytes)
    }

    /// Sets the longest superframe in bytes that GRO builds, for IPv6 and, up to 65536, for IPv4
    /// (rule G60, Linux 5.19).
    pub fn gro_max_size(self, bytes: u32) -> Self {
        self.number(abi::IFLA_GRO_MAX_SIZE, bytes)
    }

    /// Sets the longest IPv4 superframe in bytes that GRO builds (Linux 6.3).
    pub fn gro_ipv4_max_size(self, bytes: u32) -> Self {
        self.number(abi::IFLA_GRO_IPV4_MAX_SIZE, bytes)
    }

    fn number(mut self, attribute: u16, value: u32) -> Self {
        for (kind, number) in NUMBERS.into_iter().zip(&mut self.numbers) {
            if kind == attribute {
                *number = Some(value);
            }
        }
        self
    }

    /// `struct ifinfomsg` for a link's index, or for a new one with 0.
    fn fixed(&self, index: u32) -> [u8; LINK_BYTES] {
        let mut fixed = [0; LINK_BYTES];
        fixed[4..8].copy_from_slice(&index.to_ne_bytes());
        if let Some(up) = self.up {
            let flag = u32::from(abi::IFF_UP).to_ne_bytes();
            fixed[8..12].copy_from_slice(if up { &flag } else { &[0; 4] });
            fixed[12..16].copy_from_slice(&flag);
        }
        fixed
    }

    fn attributes(&self, request: &mut Request) {
        if let Some(namespace) = self.namespace {
            request.attribute(abi::IFLA_NET_NS_FD, &namespace.as_raw_fd().to_ne_bytes());
        }
        if let Some(address) = self.address {
            request.attribute(abi::IFLA_ADDRESS, &address);
        }
        if let Some(queues) = self.queues {
            request.number(abi::IFLA_NUM_TX_QUEUES, queues);
            request.number(abi::IFLA_NUM_RX_QUEUES, queues);
        }
        for (kind, value) in NUMBERS.into_iter().zip(self.numbers) {
            if let Some(value) = value {
                request.number(kind, value);
            }
        }
    }
}

/// Between whom a VXLAN device is, see [`Netlink::add_vxlan_between`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VxlanEnds {
    /// The network identifier, of 24 bits.
    pub identifier: u32,
    /// The address that is sent from.
    pub local: Ipv4Addr,
    /// The address that is sent to.
    pub remote: Ipv4Addr,
    /// The UDP port that both receive at.
    pub port: u16,
}

/// A network interface as the kernel describes it. Of what a kernel does not tell there is none.
#[derive(Clone, Debug)]
pub struct Link {
    /// Its index in its network namespace.
    pub index: u32,
    /// Its name.
    pub name: InterfaceName,
    /// What made it, such as `veth` or `tun`; none for loopback and most hardware.
    pub kind: Option<String>,
    /// What its packets start with, as ARP numbers it (`ARPHRD_*`): 1 is Ethernet, 772 loopback,
    /// 65534 nothing before the IP header.
    pub hardware_type: u16,
    /// Whether it is meant to work.
    pub up: bool,
    /// Whether it has carrier, so that it does work if it is up.
    pub carrier: bool,
    /// The Ethernet address.
    pub hardware_address: Option<[u8; 6]>,
    /// Bytes of the longest packet, without the link-layer header.
    pub mtu: u32,
    /// Packets that may wait for transmission.
    pub transmit_queue_length: u32,
    /// Queues for transmission.
    pub transmit_queues: u32,
    /// Queues for receiving.
    pub receive_queues: u32,
    /// Bytes of the longest superframe the device is handed (IPv6, and IPv4 before Linux 6.3).
    pub gso_max_size: Option<u32>,
    /// Segments of the longest superframe the device is handed.
    pub gso_max_segments: Option<u32>,
    /// Bytes of the longest IPv4 superframe the device is handed.
    pub gso_ipv4_max_size: Option<u32>,
    /// Bytes of the longest superframe that GRO builds (IPv6, and IPv4 before Linux 6.3).
    pub gro_max_size: Option<u32>,
    /// Bytes of the longest IPv4 superframe that GRO builds.
    pub gro_ipv4_max_size: Option<u32>,
    /// What passed.
    pub statistics: LinkStatistics,
}

/// What passed through a link since it was made (`struct rtnl_link_stats64`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of `ip -s link`")]
pub struct LinkStatistics {
    pub receive_packets: u64,
    pub transmit_packets: u64,
    pub receive_bytes: u64,
    pub transmit_bytes: u64,
    pub receive_errors: u64,
    pub transmit_errors: u64,
    pub receive_dropped: u64,
    pub transmit_dropped: u64,
}

impl Netlink {
    /// Creates a pair of virtual Ethernet devices, each with its name and how it is to be. With
    /// [`LinkChange::namespace`] each comes into being where it belongs. Only the first can be up
    /// from the start; the other is brought up from within its network.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if the second is to be up: the kernel makes it before it has its peer. `EEXIST`
    /// if a name is taken, `EOPNOTSUPP` if the kernel has no veth, `EPERM` without
    /// `CAP_NET_ADMIN` in each namespace.
    pub fn add_veth(
        &self,
        first: (&InterfaceName, LinkChange<'_>),
        second: (&InterfaceName, LinkChange<'_>),
    ) -> io::Result<()> {
        let mut request = creation(first.0, &first.1);
        request.nested(abi::IFLA_LINKINFO, |info| {
            info.text(abi::IFLA_INFO_KIND, "veth");
            info.nested(abi::IFLA_INFO_DATA, |data| {
                data.nested(abi::VETH_INFO_PEER, |peer| {
                    peer.raw(&second.1.fixed(0));
                    peer.text(abi::IFLA_IFNAME, second.0.as_str());
                    second.1.attributes(peer);
                });
            });
        });
        self.execute(request)
    }

    /// Creates a VXLAN device that takes every network identifier, over IPv4 and IPv6, on a UDP
    /// port once it is up (`external`, as `ip link` says).
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the kernel has no VXLAN, `EEXIST`, `EPERM` without `CAP_NET_ADMIN`.
    pub fn add_vxlan(&self, name: &InterfaceName, port: u16) -> io::Result<()> {
        let mut request = creation(name, &LinkChange::new());
        request.nested(abi::IFLA_LINKINFO, |info| {
            info.text(abi::IFLA_INFO_KIND, "vxlan");
            info.nested(abi::IFLA_INFO_DATA, |data| {
                data.attribute(abi::IFLA_VXLAN_COLLECT_METADATA, &[1]);
                data.attribute(abi::IFLA_VXLAN_PORT, &port.to_be_bytes());
            });
        });
        self.execute(request)
    }

    /// Creates a VXLAN device between two addresses, which sends and takes one network identifier.
    /// Its socket is in this socket's network, and stays there wherever [`LinkChange::namespace`]
    /// moves the device. Outer checksums are made.
    ///
    /// # Errors
    ///
    /// As [`Netlink::add_vxlan`].
    pub fn add_vxlan_between(
        &self,
        (name, change): (&InterfaceName, LinkChange<'_>),
        ends: &VxlanEnds,
    ) -> io::Result<()> {
        let mut request = creation(name, &change);
        request.nested(abi::IFLA_LINKINFO, |info| {
            info.text(abi::IFLA_INFO_KIND, "vxlan");
            info.nested(abi::IFLA_INFO_DATA, |data| {
                data.number(abi::IFLA_VXLAN_ID, ends.identifier);
                data.attribute(abi::IFLA_VXLAN_GROUP, &ends.remote.octets());
                data.attribute(abi::IFLA_VXLAN_LOCAL, &ends.local.octets());
                data.attribute(abi::IFLA_VXLAN_PORT, &ends.port.to_be_bytes());
                data.attribute(abi::IFLA_VXLAN_UDP_CSUM, &[1]);
            });
        });
        self.execute(request)
    }

    /// Creates a link of a kind of which nothing needs to be said, such as `ipip` or `dummy`. The
    /// kernel looks for a module of a kind that it does not know.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the kernel has no such kind, `EINVAL` if something needs to be said,
    /// `EEXIST`, `EPERM` without `CAP_NET_ADMIN`.
    pub fn add_link(&self, name: &InterfaceName, kind: &str) -> io::Result<()> {
        let mut request = creation(name, &LinkChange::new());
        request.nested(abi::IFLA_LINKINFO, |info| info.text(abi::IFLA_INFO_KIND, kind));
        self.execute(request)
    }

    /// Changes a link, all at once; a change of namespace comes first.
    ///
    /// # Errors
    ///
    /// `ENODEV`, `EINVAL` for a value the device cannot have, `EPERM` without `CAP_NET_ADMIN`.
    pub fn change_link(&self, index: u32, change: LinkChange<'_>) -> io::Result<()> {
        let mut request = Request::new(abi::RTM_NEWLINK, &change.fixed(index));
        change.attributes(&mut request);
        self.execute(request)
    }

    /// Sets the greatest length in bytes that GRO builds on an interface, for IPv6 and for IPv4
    /// (rule G60).
    ///
    /// # Errors
    ///
    /// `EINVAL` above 524 280, `EPERM` without `CAP_NET_ADMIN`. Kernels before 6.3 ignore the size
    /// for IPv4.
    pub fn set_gro_max_size(&self, index: u32, ipv6: u32, ipv4: u32) -> io::Result<()> {
        self.change_link(index, LinkChange::new().gro_max_size(ipv6).gro_ipv4_max_size(ipv4))
    }

    /// Deletes a link; of a veth pair, both.
    ///
    /// # Errors
    ///
    /// `ENODEV`, `EOPNOTSUPP` for hardware, `EPERM` without `CAP_NET_ADMIN`.
    pub fn delete_link(&self, index: u32) -> io::Result<()> {
        self.execute(Request::new(abi::RTM_DELLINK, &LinkChange::new().fixed(index)))
    }

    /// All links of the network, in the order of their indices. A link whose name is not of the
    /// form of [`InterfaceName`] is left out, because nothing here could name it.
    ///
    /// # Errors
    ///
    /// Those of the socket.
    pub fn links(&self) -> io::Result<Vec<Link>> {
        let request = Request::new(abi::RTM_GETLINK, &[0; LINK_BYTES]).flags(abi::NLM_F_DUMP);
        let mut links = Vec::new();
        self.exchange(request, |kind, payload| {
            if kind == abi::RTM_NEWLINK {
                links.extend(Link::parse(payload));
            }
        })?;
        links.sort_by_key(|link| link.index);
        Ok(links)
    }

    /// One link by its name.
    ///
    /// # Errors
    ///
    /// `ENODEV` if there is none.
    pub fn link(&self, name: &InterfaceName) -> io::Result<Link> {
        let mut request = Request::new(abi::RTM_GETLINK, &[0; LINK_BYTES]).flags(abi::NLM_F_ACK);
        request.text(abi::IFLA_IFNAME, name.as_str());
        let mut found = None;
        self.exchange(request, |kind, payload| {
            if kind == abi::RTM_NEWLINK {
                found = Link::parse(payload);
            }
        })?;
        found.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))
    }
}

impl Link {
    fn parse(payload: &[u8]) -> Option<Self> {
        let fixed: &[u8; LINK_BYTES] = payload.first_chunk()?;
        let flags = u32::from_ne_bytes([fixed[8], fixed[9], fixed[10], fixed[11]]);
        let mut name = None;
        let mut link = Self {
            index: u32::from_ne_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]),
            name: InterfaceName::new("?").ok()?,
            kind: None,
            hardware_type: u16::from_ne_bytes([fixed[2], fixed[3]]),
            up: flags & u32::from(abi::IFF_UP) != 0,
            carrier: flags & abi::IFF_LOWER_UP != 0,
            hardware_address: None,
            mtu: 0,
            transmit_queue_length: 0,
            transmit_queues: 1,
            receive_queues: 1,
            gso_max_size: None,
            gso_max_segments: None,
            gso_ipv4_max_size: None,
            gro_max_size: None,
            gro_ipv4_max_size: None,
            statistics: LinkStatistics::default(),
        };
        for (kind, value) in Attributes::new(&payload[LINK_BYTES..]) {
            match kind {
                abi::IFLA_IFNAME => name = InterfaceName::new(&text(value)).ok(),
                abi::IFLA_ADDRESS => link.hardware_address = value.try_into().ok(),
                abi::IFLA_MTU => link.mtu = number(value)?,
                abi::IFLA_TXQLEN => link.transmit_queue_length = number(value)?,
                abi::IFLA_NUM_TX_QUEUES => link.transmit_queues = number(value)?,
                abi::IFLA_NUM_RX_QUEUES => link.receive_queues = number(value)?,
                abi::IFLA_GSO_MAX_SIZE => link.gso_max_size = number(value),
                abi::IFLA_GSO_MAX_SEGS => link.gso_max_segments = number(value),
                abi::IFLA_GSO_IPV4_MAX_SIZE => link.gso_ipv4_max_size = number(value),
                abi::IFLA_GRO_MAX_SIZE => link.gro_max_size = number(value),
                abi::IFLA_GRO_IPV4_MAX_SIZE => link.gro_ipv4_max_size = number(value),
                abi::IFLA_STATS64 => link.statistics = LinkStatistics::parse(value)?,
                abi::IFLA_LINKINFO => {
                    let kind =
                        Attributes::new(value).find(|(kind, _)| *kind == abi::IFLA_INFO_KIND);
                    link.kind = kind.map(|(_, value)| text(value));
                }
                _ => {}
            }
        }
        name.map(|name| Self { name, ..link })
    }
}

impl LinkStatistics {
    fn parse(value: &[u8]) -> Option<Self> {
        let counter = |i: usize| value.get(8 * i..)?.first_chunk().copied().map(u64::from_ne_bytes);
        Some(Self {
            receive_packets: counter(0)?,
            transmit_packets: counter(1)?,
            receive_bytes: counter(2)?,
            transmit_bytes: counter(3)?,
            receive_errors: counter(4)?,
            transmit_errors: counter(5)?,
            receive_dropped: counter(6)?,
            transmit_dropped: counter(7)?,
        })
    }
}

fn creation(name: &InterfaceName, change: &LinkChange<'_>) -> Request {
    let flags = abi::NLM_F_CREATE | abi::NLM_F_EXCL;
    let mut request = Request::new(abi::RTM_NEWLINK, &change.fixed(0)).flags(flags);
    request.text(abi::IFLA_IFNAME, name.as_str());
    change.attributes(&mut request);
    request
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whatever_is_said_of_a_link_is_read_without_a_panic(bytes: Vec<u8>) {
            let _ = Link::parse(&bytes);
        }
    }
}
