//! Superframes in forms that no device in these tests creates: GSO_PARTIAL, and the large sends of Windows.

use grosso_capture::Format;
use grosso_testkit::{
    Packet,
    oracle::{self, Description, Lengths, Link, checksum, pseudo_header, sum},
};

use crate::common::{Bench, ETHERNET, capture, frames};

/// Number of payload bytes in a segment.
const SIZE: usize = 1448;
const SEGMENTS: usize = 44;

/// Returns the header stacks to test, each with a name.
fn stacks() -> Vec<(&'static str, Packet)> {
    let tcp = |packet: Packet| packet.tcp(|tcp| tcp.sequence(7).timestamps(1, 1));
    let ethernet = || Packet::new().ethernet(|e| e);
    let vxlan = || ethernet().ipv4(|ip| ip.id(9)).udp(|udp| udp).vxlan(|v| v).ethernet(|e| e);
    vec![
        ("IPv4", tcp(ethernet().ipv4(|ip| ip.id(100)))),
        ("IPv6", tcp(ethernet().ipv6(|ip| ip))),
        ("VXLAN, IPv4", tcp(vxlan().ipv4(|ip| ip.id(100)))),
        ("VXLAN, IPv6", tcp(vxlan().ipv6(|ip| ip))),
    ]
}

/// Returns a superframe whose headers have the lengths of its first segment (rule S47), and the packets into which the
/// device segments it. The TCP checksum field holds the pseudo-header sum of the whole superframe; an outer checksum is
/// already complete (rule C40).
fn partial(packet: &Packet) -> (Vec<u8>, Vec<Vec<u8>>) {
    let (whole, tcp, offset) = packet.clone().payload_len(SIZE * SEGMENTS).build_superframe();
    let description = Description { gso_size: SIZE, ..Description::default() };
    let segments = oracle::segment(&whole, Link::Ethernet, description).unwrap();
    let mut frame = whole.clone();
    let one = segments[0].len();
    let parsed = oracle::parse(&whole, Link::Ethernet, Lengths::Whole);
    for layer in &parsed.layers {
        let (place, len) = match layer.name {
            "ipv4" => (2, one - layer.offset),
            "ipv6" => (4, one - layer.inside()),
            "udp" => (4, one - layer.offset),
            _ => continue,
        };
        let place = layer.offset + place;
        frame[place..place + 2].copy_from_slice(&(len as u16).to_be_bytes());
        if layer.name == "ipv4" {
            let header = layer.offset..layer.inside();
            frame[layer.offset + 10..layer.offset + 12].fill(0);
            let complete = checksum(&frame[header]);
            frame[layer.offset + 10..layer.offset + 12].copy_from_slice(&complete.to_be_bytes());
        }
    }
    if let Some(udp) = parsed.layers.iter().position(|layer| layer.name == "udp") {
        let layer = &parsed.layers[udp];
        let network = parsed.network_of(udp).unwrap();
        let (source, destination) = (network.bytes("source"), network.bytes("destination"));
        let place = layer.offset + 6;
        frame[place..place + 2].fill(0);
        // The bytes that a completed inner checksum covers, including the checksum, add up to the complement of the
        // pseudo-header sum.
        let seed = u16::from_be_bytes([frame[tcp + offset], frame[tcp + offset + 1]]);
        // Both pseudo-headers cover the whole packet, so their lengths are equal.
        let mut bytes = pseudo_header(source, destination, 17, whole.len() - layer.offset);
        bytes.extend_from_slice(&frame[layer.offset..tcp]);
        bytes.extend_from_slice(&(!seed).to_be_bytes());
        frame[place..place + 2].copy_from_slice(&(!sum(&bytes)).to_be_bytes());
        assert_eq!(frame[place..place + 2], segments[0][place..place + 2], "as on the wire");
    }
    (frame, segments)
}

#[test]
fn a6_superframes_with_the_headers_of_their_first_segment() {
    for (case, packet) in stacks() {
        let (frame, segments) = partial(&packet);
        assert!(frame.len() > 60_000 && segments.len() == SEGMENTS, "{case}");
        let bench = Bench::new();
        bench.put("host.pcap", &capture(Format::Pcap, ETHERNET, &[frame.clone(), frame]));
        let run = bench.run("inspect --json host.pcap");
        let report = run.json();
        assert_eq!(report["superframes"]["packets"], 2, "{case}: {report}");
        assert_eq!(report["checksums"]["bad"], 0, "{case}: {report}");
        assert_eq!(report["verdict"]["wire_faithful"], false, "{case}: {report}");
        assert_ne!(report["verdict"]["vantage"], "receiver-host", "{case}: {report}");
        assert_eq!(run.code, 1, "{case}");
        let run = bench.run("wire --json -r host.pcap -w out.pcap");
        assert_eq!(run.code, 0, "{case}: {}", run.stdout);
        let output = frames(&bench.get("out.pcap"));
        assert_eq!(output.len(), 2 * SEGMENTS, "{case}: {}", run.stdout);
        let told = bench.ok("wire --json -r host.pcap -w told.pcap --mtu 1600");
        assert_eq!(told.json()["superframes"]["split"], 2, "{case}: {}", told.stdout);
        assert!(output[..SEGMENTS] == segments && output[SEGMENTS..] == segments, "{case}");
    }
}

/// Returns a superframe as Windows passes it to a device (NDIS large send offload), and the packets into which the
/// device segments it. The TCP checksum field holds the pseudo-header sum without the length, the IPv4 header checksum
/// is 0, and the IP length is set or 0.
fn large_send(packet: &Packet, has_length: bool) -> (Vec<u8>, Vec<Vec<u8>>) {
    let (whole, tcp, offset) = packet.clone().payload_len(SIZE * 5 + 100).build_superframe();
    let description = Description { gso_size: SIZE, ..Description::default() };
    let segments = oracle::segment(&whole, Link::Ethernet, description).unwrap();
    let parsed = oracle::parse(&whole, Link::Ethernet, Lengths::Whole);
    let last = parsed.layers.len() - 1;
    let network = parsed.network_of(last).unwrap();
    let sum = sum(&pseudo_header(network.bytes("source"), network.bytes("destination"), 6, 0));
    let mut frame = whole.clone();
    frame[tcp + offset..tcp + offset + 2].copy_from_slice(&sum.to_be_bytes());
    let (length, header_checksum) = (network.offset, network.offset + 10);
    let length = if network.name == "ipv4" { length + 2 } else { length + 4 };
    if network.name == "ipv4" {
        frame[header_checksum..header_checksum + 2].fill(0);
    }
    if !has_length {
        frame[length..length + 2].fill(0);
    }
    (frame, segments)
}

/// All commands handle a large send alike: in a tunnel it stays a superframe, and it is not fragmented.
#[test]
fn large_sends_of_windows_go_through_tunnels_and_are_not_fragmented() {
    let tunnels = [
        "type vxlan id 42 local 192.0.2.1 remote 192.0.2.2",
        "type vxlan id 42 local 192.0.2.1 remote 192.0.2.2 noudpcsum",
        "type vxlan id 42 local 2001:db8::1 remote 2001:db8::2",
        "type gre local 192.0.2.1 remote 192.0.2.2",
        "type gre local 192.0.2.1 remote 192.0.2.2 csum",
    ];
    let cases: Vec<_> =
        stacks().into_iter().filter(|(case, _)| !case.starts_with("VXLAN")).collect();
    for ((case, packet), has_length) in
        cases.iter().flat_map(|case| [true, false].map(|has_length| (case, has_length)))
    {
        let (frame, segments) = large_send(packet, has_length);
        let bench = Bench::new();
        bench.put("host.pcap", &capture(Format::Pcap, ETHERNET, std::slice::from_ref(&frame)));
        for tunnel in tunnels {
            let case = format!("{case}, length {has_length}, {tunnel}");
            let run = bench.ok(&format!("encap --json -r host.pcap -w in.pcapng -- {tunnel}"));
            assert_eq!(run.json()["encapsulated"], 1, "{case}: {}", run.stdout);
            let run = bench.ok("decap --json -r in.pcapng -w out.pcap");
            assert_eq!(run.json()["decapsulated"], 1, "{case}: {}", run.stdout);
            assert!(frames(&bench.get("out.pcap")) == [frame.clone()], "{case}");
            let run = bench.ok("wire --json -r in.pcapng -w wire.pcapng --mss 1448 --strict");
            assert_eq!(run.json()["superframes"]["split"], 1, "{case}: {}", run.stdout);
            assert_eq!(
                bench.ok("csum verify --json wire.pcapng").json()["checksums"]["bad"],
                0,
                "{case}"
            );
            bench.ok("decap -q -r wire.pcapng -w out.pcap");
            assert!(frames(&bench.get("out.pcap")) == segments, "{case}");
        }
        let run = bench.ok("fragment --json --mtu 600 -r host.pcap -w out.pcap");
        assert_eq!(run.json()["left"]["superframe"], 1, "{case}: {}", run.stdout);
        assert!(frames(&bench.get("out.pcap")) == [frame], "{case}");
    }
}

#[test]
fn large_sends_of_windows_are_split_and_place_the_capture_on_the_sender() {
    let cases: Vec<_> =
        stacks().into_iter().filter(|(case, _)| !case.starts_with("VXLAN")).collect();
    for ((case, packet), has_length) in
        cases.iter().flat_map(|case| [true, false].map(|has_length| (case, has_length)))
    {
        let case = format!("{case}, length {has_length}");
        let (frame, segments) = large_send(packet, has_length);
        let bench = Bench::new();
        bench.put("host.pcap", &capture(Format::Pcap, ETHERNET, std::slice::from_ref(&frame)));
        let run = bench.run("inspect --json host.pcap");
        let report = run.json();
        assert_eq!((run.code, &report["checksums"]["partial"]), (1, &1.into()), "{case}: {report}");
        assert_eq!(report["superframes"]["packets"], 1, "{case}: {report}");
        assert_eq!(report["verdict"]["vantage"], "sender-host", "{case}: {report}");
        assert_eq!(
            bench.ok("csum verify --json host.pcap").json()["checksums"]["bad"],
            0,
            "{case}"
        );
        // Without other evidence the MTU decides, and 1448 bytes with IPv6 and timestamps exceed 1500.
        let by_mtu = case.starts_with("IPv4").then_some("");
        for given in by_mtu.into_iter().chain(["--mss 1448 --strict"]) {
            let run = bench.run(&format!("wire --json -r host.pcap -w out.pcap {given}"));
            assert_eq!(run.code, 0, "{case}: {}", run.stdout);
            assert!(frames(&bench.get("out.pcap")) == segments, "{case}: {}", run.stdout);
        }
        // `coalesce` loses nothing: it leaves a large send unchanged.
        bench.ok("coalesce -q -r host.pcap -w gro.pcapng");
        bench.ok("segment -q -r gro.pcapng -w back.pcap");
        assert!(frames(&bench.get("back.pcap")) == [frame], "{case}");
    }
}
