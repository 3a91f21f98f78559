//! Every tunnel format that an endpoint can have, with the outer headers that the test kit writes for it.

use std::net::IpAddr;

use grosso::tunnel::{Carrier, Endpoint, Header, RemoteChecksumUse, Udp};
use grosso_testkit::{Packet, headers::Ipv4};

/// Kind of packet that a tunnel carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carried {
    Ethernet,
    Ipv4,
    Ipv6,
}

impl Carried {
    const fn protocol(self) -> u8 {
        match self {
            Self::Ipv4 => 4,
            _ => 41,
        }
    }

    const fn ethertype(self) -> u16 {
        match self {
            Self::Ethernet => 0x6558,
            Self::Ipv4 => 0x0800,
            Self::Ipv6 => 0x86dd,
        }
    }
}

pub(crate) const V4: [IpAddr; 2] = [
    IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 2)),
];
pub(crate) const V6: [IpAddr; 2] = [
    IpAddr::V6(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
    IpAddr::V6(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2)),
];

pub(crate) fn udp(destination: u16) -> Udp {
    Udp {
        source: 49152..=65535,
        destination,
        checksum: true,
        ipv6_without_checksum: true,
        remote_checksum: RemoteChecksumUse::default(),
    }
}

pub(crate) fn without_checksum(destination: u16) -> Udp {
    Udp { checksum: false, ..udp(destination) }
}

pub(crate) fn with_remote_checksum(destination: u16) -> Udp {
    let remote_checksum = RemoteChecksumUse { transmit: true, receive: true, complete: false };
    Udp { remote_checksum, ..udp(destination) }
}

pub(crate) fn gre(key: Option<u32>, checksum: bool, sequence: bool, ethernet: bool) -> Header {
    Header::Gre { key, checksum, sequence, ethernet }
}

pub(crate) const VXLAN: Header =
    Header::Vxlan { identifier: 0x00ab_cdef, policy: None, generic_protocol: false };

pub(crate) fn geneve(inherit_protocol: bool) -> Header {
    let options = vec![0x01, 0x02, 0x03, 0x01, 0xde, 0xad, 0xbe, 0xef];
    Header::Geneve { identifier: 42, options, inherit_protocol }
}

/// Returns every format over IPv4 and IPv6, with a flow label that the kit can write too.
pub(crate) fn all() -> Vec<Endpoint> {
    let key = Some(0x1122_3344);
    let gpe = Header::Vxlan { identifier: 7, policy: None, generic_protocol: true };
    let policy = Header::Vxlan { identifier: 8, policy: Some(0x99), generic_protocol: false };
    let formats = [
        (Header::Ip, Carrier::Ip),
        (gre(None, false, false, false), Carrier::Ip),
        (gre(key, false, false, false), Carrier::Ip),
        (gre(key, true, false, false), Carrier::Ip),
        (gre(None, true, false, true), Carrier::Ip),
        (gre(key, true, true, false), Carrier::Ip),
        (Header::Ip, Carrier::Udp(udp(5555))),
        (gre(key, false, false, false), Carrier::Udp(without_checksum(5555))),
        (Header::Ip, Carrier::Gue(udp(6080))),
        (Header::Ip, Carrier::Gue(without_checksum(6080))),
        (gre(key, false, false, false), Carrier::Gue(udp(6080))),
        (gre(None, true, false, true), Carrier::Gue(udp(6080))),
        (Header::Ip, Carrier::DirectGue(udp(6080))),
        (VXLAN, Carrier::Udp(udp(4789))),
        (VXLAN, Carrier::Udp(without_checksum(4789))),
        (policy, Carrier::Udp(udp(4789))),
        (gpe, Carrier::Udp(udp(4790))),
        (geneve(false), Carrier::Udp(udp(6081))),
        (geneve(true), Carrier::Udp(without_checksum(6081))),
    ];
    let mut endpoints = Vec::new();
    for [local, remote] in [V4, V6] {
        for (header, carrier) in &formats {
            let mut endpoint = Endpoint::new(local, remote, header.clone(), carrier.clone());
            endpoint.flow_label = Some(0x4_2424);
            if header == &Header::Ip && carrier == &Carrier::Ip && local.is_ipv6() {
                let mut limited = endpoint.clone();
                limited.encapsulation_limit = Some(4);
                endpoints.push(limited);
            }
            endpoints.push(endpoint);
        }
    }
    endpoints
}

/// Returns the formats that use remote checksum offload.
pub(crate) fn remote() -> Vec<Endpoint> {
    let key = gre(Some(5), false, false, false);
    let formats = [
        (VXLAN, Carrier::Udp(with_remote_checksum(4789))),
        (Header::Ip, Carrier::Gue(with_remote_checksum(6080))),
        (key, Carrier::Gue(with_remote_checksum(6080))),
    ];
    let mut endpoints = Vec::new();
    for [local, remote] in [V4, V6] {
        for (header, carrier) in &formats {
            endpoints.push(Endpoint::new(local, remote, header.clone(), carrier.clone()));
        }
    }
    endpoints
}

/// Fields in the kit's outer headers that the endpoint does not determine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Around {
    pub(crate) class: u8,
    pub(crate) source_port: u16,
    pub(crate) id: u16,
    pub(crate) sequence: u32,
}

/// Returns the packet that the kit builds for this tunnel around `inner`.
pub(crate) fn expected(
    endpoint: &Endpoint,
    carried: Carried,
    inner: &[u8],
    around: Around,
) -> Packet {
    let packet = network(endpoint, carried, around);
    let packet = match endpoint.udp() {
        Some(udp) => packet.udp(|header| {
            let header = header.source_port(around.source_port).destination_port(udp.destination);
            if udp.checksum { header } else { header.checksum_zero() }
        }),
        None => packet,
    };
    let packet = match (&endpoint.carrier, &endpoint.header) {
        (Carrier::Gue(_), Header::Gre { .. }) => packet.gue(|gue| gue.protocol_raw(47)),
        (Carrier::Gue(_), _) => packet.gue(|gue| gue.protocol_raw(carried.protocol())),
        _ => packet,
    };
    let packet = match &endpoint.header {
        Header::Ip => packet,
        Header::Gre { key, checksum, sequence, .. } => packet.gre(|mut gre| {
            gre = gre.protocol_raw(carried.ethertype()).with_checksum(*checksum);
            gre = key.map_or(gre.clone(), |key| gre.key(key));
            if *sequence { gre.sequence(around.sequence) } else { gre }
        }),
        Header::Vxlan { identifier, policy, generic_protocol } => packet.vxlan(|mut vxlan| {
            vxlan = vxlan.vni(*identifier);
            if *generic_protocol {
                let next = if carried == Carried::Ipv4 { 1 } else { 2 };
                vxlan = vxlan.flags(0x0c00_0000 | next);
            }
            policy.map_or(vxlan.clone(), |policy| vxlan.gbp(policy))
        }),
        Header::Geneve { identifier, .. } => packet.geneve(|geneve| {
            let geneve = geneve.vni(*identifier).protocol_raw(carried.ethertype());
            geneve.option(0x0102, 3, &[0xde, 0xad, 0xbe, 0xef])
        }),
    };
    packet.payload(inner)
}

fn network(endpoint: &Endpoint, carried: Carried, around: Around) -> Packet {
    let is_gre = matches!(endpoint.header, Header::Gre { .. });
    let protocol = match endpoint.udp() {
        Some(_) => 17,
        None if is_gre => 47,
        None => carried.protocol(),
    };
    match (endpoint.local, endpoint.remote) {
        (IpAddr::V4(local), IpAddr::V4(remote)) => Packet::new().ipv4(|ip: Ipv4| {
            let ip = ip.source(local.octets()).destination(remote.octets()).protocol(protocol);
            ip.ttl(64).tos(around.class).df(true).id(around.id)
        }),
        (IpAddr::V6(local), IpAddr::V6(remote)) => {
            let limit = endpoint.encapsulation_limit;
            let packet = Packet::new().ipv6(|ip| {
                let ip = ip.source(local.octets()).destination(remote.octets());
                let ip = ip.hop_limit(64).traffic_class(around.class).flow_label(0x4_2424);
                ip.next_header(if limit.is_some() { 60 } else { protocol })
            });
            match limit {
                Some(limit) => packet.destination_options(|options| {
                    options.data(&[4, 1, limit, 1, 1, 0]).next_header(protocol)
                }),
                None => packet,
            }
        }
        _ => panic!("one family"),
    }
}
