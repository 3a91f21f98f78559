//! Kernel TCP through tunnels of every format between two ends of ours, over the wire of two kernels.

use std::net::IpAddr;

use grosso::tunnel::{Carrier, Endpoint, Header, RemoteChecksumUse, Udp};
use grosso_io::runner::RunOptions;

use crate::{
    sockets::exchange,
    tunnelled::{assert_nothing_lost, checksum_errors, count, device, over_udp},
    tunnels::INSIDE,
    world::{A, B, World, start},
};

/// Bytes of each stream.
const BYTES: usize = 1 << 20;

/// A format, by its name.
#[derive(Clone, Debug)]
struct Format {
    name: &'static str,
    header: Header,
    carrier: Carrier,
}

impl Format {
    fn new(name: &'static str, header: Header, carrier: Carrier) -> Self {
        Self { name, header, carrier }
    }

    /// Everything that UDP carries, each with what makes it most.
    fn in_udp() -> Vec<Self> {
        let gre = |ethernet, checksum, sequence| Header::Gre {
            key: Some(7),
            checksum,
            sequence,
            ethernet,
        };
        let vxlan =
            |policy, generic_protocol| Header::Vxlan { identifier: 7, policy, generic_protocol };
        let options = vec![1, 2, 3, 1, 4, 5, 6, 7];
        let geneve =
            |options, inherit_protocol| Header::Geneve { identifier: 7, options, inherit_protocol };
        vec![
            Self::new("ip in fou", Header::Ip, Carrier::Udp(udp(false))),
            Self::new("ip in gue", Header::Ip, Carrier::Gue(udp(false))),
            Self::new("ip in gue, remcsum", Header::Ip, Carrier::Gue(udp(true))),
            Self::new("ip in gue, variant 1", Header::Ip, Carrier::DirectGue(udp(false))),
            Self::new("gre in fou", gre(false, true, false), Carrier::Udp(udp(false))),
            Self::new("gre in gue", gre(false, true, false), Carrier::Gue(udp(false))),
            Self::new("numbered gretap in gue", gre(true, true, true), Carrier::Gue(udp(false))),
            // A checksum of GRE would cover what is left to be made inside.
            Self::new("gretap in gue, remcsum", gre(true, false, false), Carrier::Gue(udp(true))),
            Self::new("vxlan gbp", vxlan(Some(9), false), Carrier::Udp(udp(true))),
            Self::new("vxlan gpe", vxlan(None, true), Carrier::Udp(udp(false))),
            Self::new("geneve", geneve(options, false), Carrier::Udp(udp(false))),
            Self::new("geneve of ip", geneve(Vec::new(), true), Carrier::Udp(udp(false))),
        ]
    }

    fn endpoint(&self, local: IpAddr, remote: IpAddr) -> Endpoint {
        Endpoint::new(local, remote, self.header.clone(), self.carrier.clone())
    }
}

fn udp(offload: bool) -> Udp {
    let remote_checksum =
        RemoteChecksumUse { transmit: offload, receive: offload, complete: false };
    Udp {
        source: 49152..=65535,
        destination: 6080,
        checksum: true,
        ipv6_without_checksum: false,
        remote_checksum,
    }
}

#[test]
fn streams_pass_as_superframes_in_every_format_in_udp() {
    for format in Format::in_udp() {
        for (a, b) in A.into_iter().zip(B) {
            let Some(world) = World::with_addresses() else { return };
            let (near, far) = (format.endpoint(a, b), format.endpoint(b, a));
            let paths = [(&world.a, &world.a, &near, 0), (&world.b, &world.engine, &far, 1)].map(
                |(host, outside, end, side)| {
                    let (left, right) = (device(host, end, side), over_udp(outside, end));
                    start(left, right, RunOptions::new(1))
                },
            );
            for (a, b) in INSIDE[0].into_iter().zip(INSIDE[1]) {
                exchange((&world.a, a), (&world.b, b), BYTES);
            }
            for snapshot in paths.map(|path| path.stop().snapshot) {
                let name = format.name;
                assert_nothing_lost(&snapshot);
                let number = |name| count(&snapshot, name);
                let (sent, sends) = (number("socket-tx-datagrams"), number("socket-tx-messages"));
                // Packets with numbers are cut before, and go as a batch of messages (rule S43).
                match format.header {
                    Header::Gre { sequence: true, .. } => assert_eq!(sent, sends, "{name}"),
                    _ => assert!(sent > 2 * sends, "{name}: {sent} in {sends}"),
                }
                for joined in &snapshot.right_to_left.joined[..2] {
                    assert!(joined.wire.packets > 2 * joined.frames, "{name}: {joined:?}");
                }
                let offloads = near.udp().is_some_and(|udp| udp.remote_checksum.transmit);
                assert_eq!(number("tunnel-out-remote-checksums") > 0, offloads, "{name}");
            }
            for host in [&world.a, &world.engine, &world.b] {
                assert_eq!(checksum_errors(host), [], "{}", format.name);
            }
        }
    }
}
