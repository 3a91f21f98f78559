//! Creates endpoints for every kind of tunnel between two addresses.

use std::net::IpAddr;

use grosso::tunnel::{Carrier, Endpoint, Header, RemoteChecksumUse, Udp};

/// Returns the UDP header of a tunnel, with or without outer checksums and remote checksum offload.
pub(crate) fn udp(destination: u16, checksum: bool, remote_checksum: bool) -> Udp {
    Udp {
        source: 49152..=65535,
        destination,
        checksum,
        ipv6_without_checksum: !checksum,
        remote_checksum: RemoteChecksumUse {
            transmit: remote_checksum,
            receive: remote_checksum,
            complete: false,
        },
    }
}

pub(crate) const VXLAN: Header =
    Header::Vxlan { identifier: 7, policy: None, generic_protocol: false };

/// Returns, for each format, its name and an endpoint whose local address is the first address.
pub(crate) fn formats([local, remote]: [IpAddr; 2]) -> Vec<(String, Endpoint)> {
    let gre = |key, checksum, sequence, ethernet| Header::Gre { key, checksum, sequence, ethernet };
    let plain_gre = || gre(None, false, false, false);
    let vxlan =
        |policy, generic_protocol| Header::Vxlan { identifier: 7, policy, generic_protocol };
    let geneve = |options: &[u8], inherit_protocol| Header::Geneve {
        identifier: 9,
        options: options.to_vec(),
        inherit_protocol,
    };
    let mut formats = vec![
        ("ip", Header::Ip, Carrier::Ip),
        ("gre", plain_gre(), Carrier::Ip),
        ("gre with checksum, key and numbers", gre(Some(5), true, true, false), Carrier::Ip),
        ("gretap with key", gre(Some(5), false, false, true), Carrier::Ip),
    ];
    for checksum in [true, false] {
        let plain = |port| Carrier::Udp(udp(port, checksum, false));
        let gue = || Carrier::Gue(udp(6080, checksum, false));
        formats.extend([
            ("vxlan", VXLAN, plain(4789)),
            ("vxlan with policy", vxlan(Some(3), false), plain(4789)),
            ("vxlan-gpe", vxlan(None, true), plain(4790)),
            ("geneve", geneve(&[], false), plain(6081)),
            ("geneve with options", geneve(&[1, 2, 3, 1, 4, 5, 6, 7], true), plain(6081)),
            ("ip in fou", Header::Ip, plain(5555)),
            ("gre in fou", plain_gre(), plain(5555)),
            ("ip in gue", Header::Ip, gue()),
            ("gre in gue", plain_gre(), gue()),
            ("ip in direct gue", Header::Ip, Carrier::DirectGue(udp(6080, checksum, false))),
        ]);
    }
    formats.extend([
        ("vxlan with remcsum", VXLAN, Carrier::Udp(udp(4789, true, true))),
        ("ip in gue with remcsum", Header::Ip, Carrier::Gue(udp(6080, true, true))),
        ("gre in gue with remcsum", plain_gre(), Carrier::Gue(udp(6080, true, true))),
    ]);
    let named = formats.into_iter().map(|(name, header, carrier)| {
        let checksum = match &carrier {
            Carrier::Udp(udp) | Carrier::Gue(udp) | Carrier::DirectGue(udp) if !udp.checksum => {
                " without checksum"
            }
            _ => "",
        };
        (format!("{name}{checksum}"), Endpoint::new(local, remote, header, carrier))
    });
    named.collect()
}

/// Returns the peer's endpoint of the same tunnel.
pub(crate) fn other_end(endpoint: &Endpoint) -> Endpoint {
    let mut other = endpoint.clone();
    (other.local, other.remote) = (endpoint.remote, endpoint.local);
    other
}
