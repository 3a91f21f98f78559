//! Queries the routes that are configured on this host, with the link and the MTU of each.

use std::io;
use std::net::IpAddr;

use super::Netlink;
use super::address::{family, octets};
use super::message::{Attributes, Request, number};
use crate::abi;

/// Output link and MTU of a route, as far as the kernel reported them.
#[derive(Debug, Default)]
struct Route {
    link: Option<u32>,
    mtu: Option<u32>,
}

/// A route to another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteFacts {
    /// Index of the output link.
    pub link: u32,
    /// MTU in bytes including the IP header: the MTU of the link, or of the route if that is lower.
    pub mtu: usize,
}

/// Query for the route of packets with these properties. With policy routing, packets to the same host may use
/// different links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteQuery {
    /// Destination address.
    pub destination: IpAddr,
    /// Source address, which must belong to this host.
    pub source: IpAddr,
    /// Destination port of UDP datagrams, or `None` for other packets.
    pub udp_port: Option<u16>,
}

impl Netlink {
    /// Returns the route to a host. The MTU does not reflect path MTUs learned from ICMP (Linux 4.13).
    ///
    /// # Errors
    ///
    /// Returns `ENETUNREACH` or a similar error if there is no route, or `ENODEV` if the route has no link.
    pub fn route(&self, destination: IpAddr) -> io::Result<RouteFacts> {
        let mut request = route_request(destination, abi::RTM_F_FIB_MATCH);
        request.attribute(abi::RTA_DST, &octets(destination));
        let route = self.find_route(request)?;
        let link = route.link.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
        let of_link = self.link_mtu(link)?;
        let least = route.mtu.filter(|mtu| *mtu > 0).map_or(of_link, |mtu| mtu.min(of_link));
        // No packet is longer than its length field can express.
        let mtu = usize::try_from(least).unwrap_or(usize::MAX).min(u16::MAX.into());
        Ok(RouteFacts { link, mtu })
    }

    /// Returns the index of the link through which packets with the properties in `query` leave.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`Netlink::route`], and `EINVAL` if the source is not an address of this host.
    pub fn route_link(&self, query: &RouteQuery) -> io::Result<u32> {
        let mut request = route_request(query.destination, 0);
        request.attribute(abi::RTA_DST, &octets(query.destination));
        request.attribute(abi::RTA_SRC, &octets(query.source));
        if let Some(port) = query.udp_port {
            request.attribute(abi::RTA_IP_PROTO, &[libc::IPPROTO_UDP as u8]);
            request.attribute(abi::RTA_DPORT, &port.to_be_bytes());
        }
        let route = self.find_route(request)?;
        route.link.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))
    }

    fn find_route(&self, request: Request) -> io::Result<Route> {
        let mut route = Route::default();
        self.exchange(request, |kind, payload| {
            if kind == abi::RTM_NEWROUTE {
                route = Route::parse(payload.get(ROUTE_BYTES..).unwrap_or_default());
            }
        })?;
        Ok(route)
    }
}

/// Creates a query for a route between two hosts, without attributes.
fn route_request(destination: IpAddr, flags: u32) -> Request {
    let bits = 8 * octets(destination).len() as u8;
    // struct rtmsg: family, lengths of destination and source, type of service, table, origin,
    // scope, type, flags.
    let mut fixed = [0; ROUTE_BYTES];
    fixed[..2].copy_from_slice(&[family(destination), bits]);
    fixed[8..].copy_from_slice(&flags.to_ne_bytes());
    if flags & abi::RTM_F_FIB_MATCH == 0 {
        fixed[2] = bits;
    }
    Request::new(abi::RTM_GETROUTE, &fixed).flags(abi::NLM_F_ACK)
}

impl Route {
    fn parse(attributes: &[u8]) -> Self {
        let mut route = Self::default();
        for (kind, value) in Attributes::new(attributes) {
            match kind {
                abi::RTA_OIF => route.link = number(value),
                // The first of several next hops: struct rtnexthop with length, flags, hops and index.
                abi::RTA_MULTIPATH => route.link = value.get(4..).and_then(number),
                abi::RTA_METRICS => {
                    let mut metrics = Attributes::new(value);
                    let mtu = metrics.find(|(kind, _)| *kind == abi::RTAX_MTU);
                    route.mtu = mtu.and_then(|(_, value)| number(value));
                }
                _ => {}
            }
        }
        route
    }
}

/// Length of `struct rtmsg` in bytes.
const ROUTE_BYTES: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_route_to_this_host_is_as_long_as_packets_are() {
        let netlink = Netlink::new().unwrap();
        let mtu = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
        let expected = mtu.trim().parse::<usize>().unwrap().min(65535);
        assert_eq!(netlink.route("127.0.0.1".parse().unwrap()).unwrap().mtu, expected);
    }

    #[test]
    fn packets_to_this_host_leave_over_the_loopback_device() {
        let netlink = Netlink::new().unwrap();
        let [source, destination] = ["127.0.0.1", "127.0.0.9"].map(|text| text.parse().unwrap());
        for udp_port in [None, Some(4789)] {
            let query = RouteQuery { destination, source, udp_port };
            assert_eq!(netlink.route_link(&query).unwrap(), 1);
        }
    }

    #[test]
    fn a_route_of_several_ways_has_the_link_of_the_first() {
        let attribute = |kind: u16, value: &[u8]| {
            let len = (4 + value.len()) as u16;
            [&len.to_ne_bytes(), &kind.to_ne_bytes(), value].concat()
        };
        let mtu = attribute(abi::RTAX_MTU, &1300_u32.to_ne_bytes());
        let metrics = attribute(abi::RTA_METRICS, &mtu);
        let way = [&8_u16.to_ne_bytes()[..], &[0, 0], &7_u32.to_ne_bytes()].concat();
        let ways = attribute(abi::RTA_MULTIPATH, &way);
        let route = Route::parse(&[metrics, ways].concat());
        assert_eq!((route.link, route.mtu), (Some(7), Some(1300)));
    }
}
