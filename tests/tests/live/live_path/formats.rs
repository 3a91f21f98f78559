//! Kernel TCP through tunnels of every format between two Grosso endpoints, over the wire between two kernels.

use std::net::IpAddr;

use grosso::tunnel::{Carrier, Endpoint, Header, RemoteChecksumUse, Udp};
use grosso_io::{
    live::{IpPort, TapPort},
    runner::RunOptions,
    stage::TunnelStage,
};
use grosso_sys::{
    interface::write_attribute,
    namespace::{NetworkNamespace, show_network_in_sysfs},
};

use super::{
    sockets::exchange,
    tunnel::{assert_nothing_lost, checksum_errors, count, device, over_ip, over_udp},
    tunnels::INSIDE,
    vxlan::{capture, end_capture, tshark},
    world::{A, B, Running, World, name, start},
};

/// Number of bytes in each stream.
const BYTES: usize = 1 << 20;

/// A tunnel format and its name.
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

    /// Returns the tunnel formats that run directly over IP.
    fn in_ip() -> Vec<Self> {
        let plain = Header::Gre { key: None, checksum: false, sequence: false, ethernet: false };
        vec![
            Self::new("ip", Header::Ip, Carrier::Ip),
            Self::new("gre", plain, Carrier::Ip),
            Self::new("gre with key and checksum", gre(false, true, false), Carrier::Ip),
            Self::new("gretap", gre(true, false, false), Carrier::Ip),
            Self::new("numbered gretap", gre(true, true, true), Carrier::Ip),
        ]
    }

    /// Returns the formats over UDP, each with all its options.
    fn in_udp() -> Vec<Self> {
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
            // A GRE checksum would cover the inner checksum, which is left to the receiver.
            Self::new("gretap in gue, remcsum", gre(true, false, false), Carrier::Gue(udp(true))),
            Self::new("vxlan gbp", vxlan(Some(9), false), Carrier::Udp(udp(true))),
            Self::new("vxlan gpe", vxlan(None, true), Carrier::Udp(udp(false))),
            Self::new("geneve", geneve(options, false), Carrier::Udp(udp(false))),
            Self::new("geneve of ip", geneve(Vec::new(), true), Carrier::Udp(udp(false))),
        ]
    }

    fn endpoint(&self, local: IpAddr, remote: IpAddr) -> Endpoint {
        let mut endpoint = Endpoint::new(local, remote, self.header.clone(), self.carrier.clone());
        if local.is_ipv6() && matches!(self.carrier, Carrier::Ip) {
            endpoint.encapsulation_limit = Some(4);
        }
        endpoint
    }

    /// Returns whether packets have sequence numbers. If so, superframes are segmented before encapsulation (rule S43),
    /// and the kernel merges no packets (rule T21).
    fn is_numbered(&self) -> bool {
        matches!(self.header, Header::Gre { sequence: true, .. })
    }
}

fn gre(ethernet: bool, checksum: bool, sequence: bool) -> Header {
    Header::Gre { key: Some(7), checksum, sequence, ethernet }
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

// Rules: W51
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
                let (sent, sends) = (number("socket_tx_datagrams"), number("socket_tx_messages"));
                match format.is_numbered() {
                    true => assert_eq!(sent, sends, "{name}"),
                    false => assert!(sent > 2 * sends, "{name}: {sent} in {sends}"),
                }
                for joined in &snapshot.right_to_left.joined[..2] {
                    assert!(joined.wire.packets > 2 * joined.frames, "{name}: {joined:?}");
                }
                let offloads = near.udp().is_some_and(|udp| udp.remote_checksum.transmit);
                assert_eq!(number("tunnel_out_remote_checksums") > 0, offloads, "{name}");
            }
            for host in [&world.a, &world.engine, &world.b] {
                assert_eq!(checksum_errors(host), [], "{}", format.name);
            }
        }
    }
}

/// Creates the paths of both hosts to the endpoints of a tunnel directly in IP.
fn between(world: &World, ends: [&Endpoint; 2]) -> [Running<TapPort, TunnelStage<IpPort>>; 2] {
    let hosts = [(&world.a, &world.a), (&world.b, &world.engine)];
    core::array::from_fn(|side| {
        let ((host, outside), end) = (hosts[side], ends[side]);
        start(device(host, end, side), over_ip(outside, end), RunOptions::new(1))
    })
}

/// Configures the kernel's GRO to hold packets for longer, so that it merges packets that arrive one by one. Returns
/// whether the kernel accepts the setting.
fn kernel_joins(host: &NetworkNamespace) -> bool {
    let tell = || {
        show_network_in_sysfs()?;
        write_attribute(&name("e0"), "gro_flush_timeout", "200000")
    };
    let told = host.run(tell).unwrap();
    if let Err(error) = &told {
        println!("the kernel is not told to join for longer: {error}");
    }
    told.is_ok()
}

#[test]
fn streams_pass_as_superframes_in_every_format_directly_in_ip() {
    for format in Format::in_ip() {
        for (a, b) in A.into_iter().zip(B) {
            let Some(world) = World::with_addresses() else { return };
            let kernel_joins = kernel_joins(&world.engine);
            let (near, far) = (format.endpoint(a, b), format.endpoint(b, a));
            let paths = between(&world, [&near, &far]);
            for (a, b) in INSIDE[0].into_iter().zip(INSIDE[1]) {
                exchange((&world.a, a), (&world.b, b), BYTES);
            }
            let [near, far] = paths.map(|path| path.stop().snapshot);
            let name = (format.name, a);
            for snapshot in [&near, &far] {
                assert_nothing_lost(snapshot);
                let number = |counter| count(snapshot, counter);
                let packets = number("tunnel_out_packets");
                assert_eq!(number("socket_tx_datagrams"), packets, "{name:?}");
                match format.is_numbered() {
                    true => assert!(number("tunnel_out_cut_before") > 0, "{name:?}"),
                    false => assert!(packets > 2 * number("tunnel_out_frames"), "{name:?}"),
                }
            }
            // The kernel merges only at the far end of the wire; at the near end, Grosso does.
            let [reads, read] =
                ["socket_rx_messages", "socket_rx_datagrams"].map(|name| count(&far, name));
            if kernel_joins {
                let joins = !format.is_numbered();
                assert_eq!(read > 2 * reads, joins, "{name:?}: {read} in {reads}");
            }
            for joined in &near.right_to_left.joined[..2] {
                assert!(joined.wire.packets > 2 * joined.frames, "{name:?}: {joined:?}");
            }
            for host in [&world.a, &world.engine, &world.b] {
                assert_eq!(checksum_errors(host), [], "{name:?}");
            }
        }
    }
}

#[test]
fn tshark_dissects_every_format_directly_in_ip() {
    for format in Format::in_ip() {
        for (a, b) in A.into_iter().zip(B) {
            let Some(world) = World::with_addresses() else { return };
            let (near, far) = (format.endpoint(a, b), format.endpoint(b, a));
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("wire.pcap");
            let Some(capture) = capture(&world, &file) else { return };
            let paths = between(&world, [&near, &far]);
            for (a, b) in INSIDE[0].into_iter().zip(INSIDE[1]) {
                exchange((&world.a, a), (&world.b, b), BYTES / 4);
            }
            for path in paths {
                path.stop();
            }
            end_capture(capture, &file, BYTES);
            let there = |filter: &str| tshark(&file, filter);
            let name = (format.name, a);
            // A sum of zero is written as 0xffff (rule C3); tshark expects zero.
            let wrong = "_ws.malformed || _ws.unreassembled || ip.checksum.status == Bad \
                         || (tcp.checksum.status == Bad && tcp.checksum != 0xffff) \
                         || gre.checksum.status == Bad";
            assert_eq!(there(wrong), [""; 0], "{name:?}");
            let family = if a.is_ipv4() { "ip" } else { "ipv6" };
            for address in [a, b] {
                let sent = format!("{family}.src == {address} && tcp.checksum.status == Good");
                let all = there(&sent).len();
                assert!(all > 300, "{name:?}: {all} segments from {address}");
                let around = match format.header {
                    Header::Gre { key: Some(_), checksum: true, sequence: true, .. } => {
                        "gre.key == 7 && gre.checksum.status == Good && gre.sequence_number"
                    }
                    Header::Gre { key: Some(_), checksum: true, .. } => {
                        "gre.key == 7 && gre.checksum.status == Good"
                    }
                    Header::Gre { .. } => "gre",
                    _ if a.is_ipv6() => "ipv6.opt.tel == 4",
                    _ => "ip.proto == 4 || ip.proto == 41",
                };
                assert_eq!(there(&format!("{sent} && ({around})")).len(), all, "{name:?}");
            }
        }
    }
}
