//! The MTU of routes, as this host is configured.

use std::io;
use std::net::IpAddr;

use super::Netlink;
use super::address::{family, octets};
use super::message::{Attributes, Request, number};
use crate::abi;

/// Properties of a route that limit its packets.
#[derive(Debug, Default)]
struct Route {
    link: Option<u32>,
    mtu: Option<u32>,
}

impl Netlink {
    /// The longest packet of the route to a host, in bytes from its IP header on: the MTU of its
    /// link, or a lower one of the route itself. What ICMP messages have said of the path beyond is
    /// not in it (Linux 4.13).
    ///
    /// # Errors
    ///
    /// `ENETUNREACH` and similar if there is no route, `ENODEV` if it has no link.
    pub fn route_mtu(&self, destination: IpAddr) -> io::Result<usize> {
        let octets = octets(destination);
        // struct rtmsg: family, lengths of destination and source, type of service, table, origin,
        // scope, type, flags.
        let mut fixed = [0; ROUTE_BYTES];
        fixed[..2].copy_from_slice(&[family(destination), 8 * octets.len() as u8]);
        fixed[8..].copy_from_slice(&abi::RTM_F_FIB_MATCH.to_ne_bytes());
        let mut request = Request::new(abi::RTM_GETROUTE, &fixed).flags(abi::NLM_F_ACK);
        request.attribute(abi::RTA_DST, &octets);
        let mut route = Route::default();
        self.exchange(request, |kind, payload| {
            if kind == abi::RTM_NEWROUTE {
                route = Route::parse(payload.get(ROUTE_BYTES..).unwrap_or_default());
            }
        })?;
        let index = route.link.ok_or_else(|| io::Error::from_raw_os_error(libc::ENODEV))?;
        let link = self.link_mtu(index)?;
        let least = route.mtu.filter(|mtu| *mtu > 0).map_or(link, |mtu| mtu.min(link));
        // No packet is longer than its length field can say.
        Ok(usize::try_from(least).unwrap_or(usize::MAX).min(u16::MAX.into()))
    }
}

impl Route {
    fn parse(attributes: &[u8]) -> Self {
        let mut route = Self::default();
        for (kind, value) in Attributes::new(attributes) {
            match kind {
                abi::RTA_OIF => route.link = number(value),
                // The first of several ways: struct rtnexthop with length, flags, hops and index.
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

/// Length of `struct rtmsg`.
const ROUTE_BYTES: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_route_to_this_host_is_as_long_as_packets_are() {
        let netlink = Netlink::new().unwrap();
        let mtu = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
        let expected = mtu.trim().parse::<usize>().unwrap().min(65535);
        assert_eq!(netlink.route_mtu("127.0.0.1".parse().unwrap()).unwrap(), expected);
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
