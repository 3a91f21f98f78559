//! Creates, changes, lists and deletes network interfaces, which netlink calls links.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd};

use super::Netlink;
use super::message::{Attributes, Request, number, text};
use crate::abi;
use crate::interface::InterfaceName;

/// Length of `struct ifinfomsg` in bytes.
const LINK_BYTES: usize = 16;

/// Properties to set on a new or existing link. Other properties keep their values.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkChange<'a> {
    up: Option<bool>,
    namespace: Option<BorrowedFd<'a>>,
    address: Option<[u8; 6]>,
    queues: Option<u32>,
    /// Attributes with a numeric value, in the order in which the kernel must process them.
    numbers: [Option<u32>; NUMBERS.len()],
}

/// Attributes of [`LinkChange`] with a numeric value.
const NUMBERS: [u16; 7] = [
    abi::IFLA_MTU,
    abi::IFLA_TXQLEN,
    abi::IFLA_GSO_MAX_SIZE,
    abi::IFLA_GSO_MAX_SEGS,
    // Setting the sizes for IPv6 also sets the sizes for IPv4 while both are at most 65536, so the sizes for IPv4 come
    // last.
    abi::IFLA_GRO_MAX_SIZE,
    abi::IFLA_GSO_IPV4_MAX_SIZE,
    abi::IFLA_GRO_IPV4_MAX_SIZE,
];

impl<'a> LinkChange<'a> {
    /// Creates an empty change.
    pub fn new() -> Self {
        Self::default()
    }

    /// Brings the link up or takes it down.
    pub fn up(mut self, up: bool) -> Self {
        self.up = Some(up);
        self
    }

    /// Moves the link into a network namespace, where it may get another index. The link loses its addresses and goes
    /// down.
    pub fn namespace(mut self, namespace: BorrowedFd<'a>) -> Self {
        self.namespace = Some(namespace);
        self
    }

    /// Sets the Ethernet address.
    pub fn hardware_address(mut self, address: [u8; 6]) -> Self {
        self.address = Some(address);
        self
    }

    /// Sets both the number of transmit queues and the number of receive queues of a new link to `queues`.
    pub fn queues(mut self, queues: u32) -> Self {
        self.queues = Some(queues);
        self
    }

    /// Sets the MTU in bytes, without the link-layer header.
    pub fn mtu(self, bytes: u32) -> Self {
        self.number(abi::IFLA_MTU, bytes)
    }

    /// Sets the number of packets that may wait for transmission. For a TAP device, these are the packets that wait to
    /// be read.
    pub fn transmit_queue_length(self, packets: u32) -> Self {
        self.number(abi::IFLA_TXQLEN, packets)
    }

    /// Sets the maximum length in bytes of a superframe that is passed to the device. The limit applies to IPv6. It
    /// also applies to IPv4 if it is at most 65536.
    pub fn gso_max_size(self, bytes: u32) -> Self {
        self.number(abi::IFLA_GSO_MAX_SIZE, bytes)
    }

    /// Sets the maximum number of segments of a superframe passed to the device.
    pub fn gso_max_segments(self, segments: u32) -> Self {
        self.number(abi::IFLA_GSO_MAX_SEGS, segments)
    }

    /// Sets the maximum length in bytes of an IPv4 superframe passed to the device (Linux 6.3).
    pub fn gso_ipv4_max_size(self, bytes: u32) -> Self {
        self.number(abi::IFLA_GSO_IPV4_MAX_SIZE, bytes)
    }

    /// Sets the maximum length in bytes of a superframe that GRO builds (rule G60, Linux 5.19). The limit applies to
    /// IPv6. It also applies to IPv4 if it is at most 65536.
    pub fn gro_max_size(self, bytes: u32) -> Self {
        self.number(abi::IFLA_GRO_MAX_SIZE, bytes)
    }

    /// Sets the maximum length in bytes of an IPv4 superframe that GRO builds (Linux 6.3).
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

    /// Returns the `struct ifinfomsg` for the link with this index; index 0 means a new link.
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

/// Endpoints of a VXLAN device; see [`Netlink::add_vxlan_between`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VxlanEnds {
    /// Network identifier, 24 bits.
    pub identifier: u32,
    /// Source address of sent packets.
    pub local: Ipv4Addr,
    /// Destination address of sent packets.
    pub remote: Ipv4Addr,
    /// UDP port on which both endpoints receive.
    pub port: u16,
}

/// A network interface as the kernel describes it. Attributes that the kernel lacks are `None`.
#[derive(Clone, Debug)]
pub struct Link {
    /// Index of the device in its network namespace.
    pub index: u32,
    /// Interface name.
    pub name: InterfaceName,
    /// Link type, for example `veth` or `tun`, or `None` for loopback and most hardware.
    pub kind: Option<String>,
    /// Index of the lower link, for example of a VLAN device or a bound tunnel. For a veth device, this is the index of
    /// its peer.
    pub parent: Option<u32>,
    /// Remote address of a kernel tunnel.
    pub remote: Option<IpAddr>,
    /// Link-layer type as an ARP hardware type (`ARPHRD_*`): 1 is Ethernet, 772 loopback, 65534 no link-layer header.
    pub hardware_type: u16,
    /// Whether the link is administratively up.
    pub up: bool,
    /// Whether the link has carrier.
    pub carrier: bool,
    /// Ethernet address.
    pub hardware_address: Option<[u8; 6]>,
    /// MTU in bytes, without the link-layer header.
    pub mtu: u32,
    /// Number of packets that may wait for transmission.
    pub transmit_queue_length: u32,
    /// Number of transmit queues.
    pub transmit_queues: u32,
    /// Number of receive queues.
    pub receive_queues: u32,
    /// Maximum length in bytes of a superframe passed to the device (IPv6, and IPv4 before Linux 6.3).
    pub gso_max_size: Option<u32>,
    /// Maximum number of segments of a superframe passed to the device.
    pub gso_max_segments: Option<u32>,
    /// Maximum length in bytes of an IPv4 superframe passed to the device.
    pub gso_ipv4_max_size: Option<u32>,
    /// Maximum length in bytes of a superframe that GRO builds (IPv6, and IPv4 before Linux 6.3).
    pub gro_max_size: Option<u32>,
    /// Maximum length in bytes of an IPv4 superframe that GRO builds.
    pub gro_ipv4_max_size: Option<u32>,
    /// Counters of the link.
    pub statistics: LinkStatistics,
}

/// Counters of a link since it was created (`struct rtnl_link_stats64`).
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
    /// Creates a veth pair from the name and properties of each device. [`LinkChange::namespace`] creates a device in
    /// another namespace. Only the first device can be up from the start; bring up the second from within its
    /// namespace.
    ///
    /// # Errors
    ///
    /// Returns `ENOTCONN` if the second device should be up, because the kernel creates it before its peer. Also
    /// returns `EEXIST` if a name is in use, `EOPNOTSUPP` if the kernel lacks veth, or `EPERM` without `CAP_NET_ADMIN`
    /// in each namespace.
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

    /// Creates a VXLAN device that accepts every network identifier, over IPv4 and IPv6, on this UDP port (`external`
    /// in `ip link`).
    ///
    /// # Errors
    ///
    /// Returns `EOPNOTSUPP` if the kernel lacks VXLAN, `EEXIST` if the name is in use or another VXLAN device uses the
    /// port, or `EPERM` without `CAP_NET_ADMIN`.
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

    /// Creates a VXLAN device between two addresses. The device sends and accepts a single network identifier. Its
    /// socket is created in the namespace of this netlink socket and stays in that namespace, wherever
    /// [`LinkChange::namespace`] moves the device. Sent packets have outer checksums.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Netlink::add_vxlan`].
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

    /// Creates a link of a type that needs no further properties, for example `ipip` or `dummy`. The kernel tries to
    /// load the module of an unknown type.
    ///
    /// # Errors
    ///
    /// Returns `EOPNOTSUPP` if the kernel lacks the type, `EINVAL` if the type needs properties, `EEXIST` if the name
    /// is in use, or `EPERM` without `CAP_NET_ADMIN`.
    pub fn add_link(&self, name: &InterfaceName, kind: &str) -> io::Result<()> {
        let mut request = creation(name, &LinkChange::new());
        request.nested(abi::IFLA_LINKINFO, |info| info.text(abi::IFLA_INFO_KIND, kind));
        self.execute(request)
    }

    /// Applies all changes to a link in one request; a change of namespace takes effect first.
    ///
    /// # Errors
    ///
    /// Returns `ENODEV` if there is no such link, `EINVAL` for a value that the device does not support, or `EPERM`
    /// without `CAP_NET_ADMIN`.
    pub fn change_link(&self, index: u32, change: LinkChange<'_>) -> io::Result<()> {
        let mut request = Request::new(abi::RTM_NEWLINK, &change.fixed(index));
        change.attributes(&mut request);
        self.execute(request)
    }

    /// Sets the maximum length in bytes of the superframes that GRO builds on an interface: `ipv6` for IPv6 and `ipv4`
    /// for IPv4 (rule G60).
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` above 524,280, or `EPERM` without `CAP_NET_ADMIN`. Kernels before 6.3 ignore the IPv4 size.
    pub fn set_gro_max_size(&self, index: u32, ipv6: u32, ipv4: u32) -> io::Result<()> {
        self.change_link(index, LinkChange::new().gro_max_size(ipv6).gro_ipv4_max_size(ipv4))
    }

    /// Deletes a link. Deleting one device of a veth pair deletes both.
    ///
    /// # Errors
    ///
    /// Returns `ENODEV` if there is no such link, `EOPNOTSUPP` for hardware, or `EPERM` without `CAP_NET_ADMIN`.
    pub fn delete_link(&self, index: u32) -> io::Result<()> {
        self.execute(Request::new(abi::RTM_DELLINK, &LinkChange::new().fixed(index)))
    }

    /// Returns all links of the namespace, ordered by index. Omits links whose name is not a valid [`InterfaceName`],
    /// because no function in this crate could accept the name.
    ///
    /// # Errors
    ///
    /// Returns errors from the netlink socket.
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

    /// Returns the link with this name.
    ///
    /// # Errors
    ///
    /// Returns `ENODEV` if there is no such link.
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

    /// Returns the link with this index.
    ///
    /// # Errors
    ///
    /// Returns `ENODEV` if there is no such link.
    pub fn link_at(&self, index: u32) -> io::Result<Link> {
        let request = Request::new(abi::RTM_GETLINK, &LinkChange::new().fixed(index));
        let mut found = None;
        self.exchange(request.flags(abi::NLM_F_ACK), |kind, payload| {
            if kind == abi::RTM_NEWLINK {
                found = Link::parse(payload);
            }
        })?;
        found.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))
    }

    pub(super) fn link_mtu(&self, index: u32) -> io::Result<u32> {
        let request = Request::new(abi::RTM_GETLINK, &LinkChange::new().fixed(index));
        let mut mtu = None;
        self.exchange(request.flags(abi::NLM_F_ACK), |kind, payload| {
            if kind == abi::RTM_NEWLINK {
                let attributes = payload.get(LINK_BYTES..).unwrap_or_default();
                let found = Attributes::new(attributes).find(|(kind, _)| *kind == abi::IFLA_MTU);
                mtu = found.and_then(|(_, value)| number(value));
            }
        })?;
        mtu.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))
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
            parent: None,
            remote: None,
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
                abi::IFLA_LINK => link.parent = number(value),
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
                    let find = |wanted| {
                        let mut parts = Attributes::new(value);
                        parts.find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
                    };
                    link.kind = find(abi::IFLA_INFO_KIND).map(text);
                    let data = find(abi::IFLA_INFO_DATA);
                    link.remote = link.kind.as_deref().zip(data).and_then(remote);
                }
                _ => {}
            }
        }
        name.map(|name| Self { name, ..link })
    }
}

/// Returns the remote address of a tunnel. `kind` is the type of the tunnel, and `data` contains the attributes of its
/// link.
fn remote((kind, data): (&str, &[u8])) -> Option<IpAddr> {
    let wanted: &[u16] = match kind {
        "vxlan" => &[abi::IFLA_VXLAN_GROUP, abi::IFLA_VXLAN_GROUP6],
        "geneve" => &[abi::IFLA_GENEVE_REMOTE, abi::IFLA_GENEVE_REMOTE6],
        "gre" | "gretap" | "ip6gre" | "ip6gretap" | "erspan" | "ip6erspan" => {
            &[abi::IFLA_GRE_REMOTE]
        }
        "ipip" | "sit" | "ip6tnl" => &[abi::IFLA_IPTUN_REMOTE],
        _ => return None,
    };
    let (_, value) = Attributes::new(data).find(|(kind, _)| wanted.contains(kind))?;
    let address = match value {
        [a, b, c, d] => Ipv4Addr::new(*a, *b, *c, *d).into(),
        _ => Ipv6Addr::from(<[u8; 16]>::try_from(value).ok()?).into(),
    };
    Some(address).filter(|address: &IpAddr| !address.is_unspecified())
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
        fn any_message_about_a_link_is_parsed_without_a_panic(bytes: Vec<u8>) {
            let _ = Link::parse(&bytes);
        }
    }
}
