//! Tests checksums of SCTP and UDP-Lite, UDP over IPv6 without a checksum, and packets in which no checksum can be
//! verified.

use grosso_capture::Format;
use grosso_testkit::{
    Packet,
    oracle::{pseudo_header, sum},
};
use serde_json::Value;

use crate::common::{Bench, ETHERNET, capture};

/// Returns an Ethernet frame of IPv4 with this protocol.
fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    Packet::new().ethernet(|e| e).ipv4(|ip| ip.protocol(protocol)).payload(payload).build()
}

/// Computes CRC32c, bit by bit (RFC 9260 appendix A).
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _: u32| if crc & 1 != 0 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// Returns an SCTP packet with one DATA chunk.
fn sctp(data: usize) -> Vec<u8> {
    let mut packet = vec![0x30, 0x39, 0x1f, 0x90, 0, 0, 0, 7, 0, 0, 0, 0];
    packet.extend_from_slice(&[0, 3]);
    packet.extend_from_slice(&((16 + data) as u16).to_be_bytes());
    packet.resize(packet.len() + 12, 0);
    packet.resize(packet.len() + data.next_multiple_of(4), 0x5a);
    let crc = crc32c(&packet);
    packet[8..12].copy_from_slice(&crc.to_le_bytes());
    packet
}

/// Returns a UDP-Lite packet over IPv4 whose checksum covers `coverage` bytes.
fn udp_lite(coverage: u16) -> Vec<u8> {
    let mut packet = vec![0x30, 0x39, 0x1f, 0x90];
    packet.extend_from_slice(&coverage.to_be_bytes());
    packet.extend_from_slice(&[0, 0]);
    packet.extend_from_slice(b"thirteen byte");
    let frame = ipv4(136, &packet);
    let mut bytes = pseudo_header(&frame[26..30], &frame[30..34], 136, packet.len());
    let covered = if coverage == 0 { packet.len() } else { usize::from(coverage) };
    bytes.extend_from_slice(&packet[..covered.min(packet.len())]);
    let checksum = !sum(&bytes);
    packet[6..8].copy_from_slice(&checksum.to_be_bytes());
    ipv4(136, &packet)
}

/// Runs `csum verify` on frames, and returns its report and exit code.
fn verify(frames: &[Vec<u8>]) -> (i32, Value) {
    let bench = Bench::new();
    bench.put("in.pcap", &capture(Format::Pcap, ETHERNET, frames));
    let run = bench.run("csum verify --json in.pcap");
    (run.code, run.json())
}

fn bad_packets(report: &Value) -> Vec<u64> {
    let rows = report["rows"].as_array().unwrap().iter();
    rows.filter(|row| row["verdict"] == "bad").map(|row| row["packet"].as_u64().unwrap()).collect()
}

#[test]
fn sctp_is_verified_by_its_crc() {
    let right = ipv4(132, &sctp(100));
    let mut wrong = right.clone();
    *wrong.last_mut().unwrap() ^= 1;
    let mut open = right.clone();
    open[42..46].fill(0);
    let (code, report) = verify(&[right.clone(), wrong.clone(), open.clone()]);
    let checksums = &report["checksums"];
    assert_eq!(
        (&checksums["valid"], &checksums["bad"], &checksums["partial"]),
        (&1.into(), &1.into(), &1.into()),
        "{report}"
    );
    assert_eq!((code, bad_packets(&report)), (1, vec![2]));
    // The previous packet has the correct value.
    let bench = Bench::new();
    bench.put("in.pcap", &capture(Format::Pcap, ETHERNET, &[wrong, open.clone()]));
    bench.ok("csum fix --only all -r in.pcap -w out.pcap");
    assert_eq!(bench.run("csum verify --json out.pcap").code, 0);
    // A checksum that was left to a device is completed on the wire.
    bench.put("in.pcap", &capture(Format::Pcap, ETHERNET, &[open]));
    assert_eq!(bench.run("inspect in.pcap").code, 1);
    bench.ok("wire -r in.pcap -w wire.pcap");
    assert_eq!(crate::common::frames(&bench.get("wire.pcap")), [right]);
}

#[test]
fn sctp_longer_than_the_mtu_is_undecided_unless_its_checksum_is_right() {
    let bench = Bench::new();
    let whole = ipv4(132, &sctp(8000));
    let mut open = whole.clone();
    open[42..46].fill(0);
    bench.put("open.pcap", &capture(Format::Pcap, ETHERNET, &[open.clone()]));
    let run = bench.run("wire --json -r open.pcap -w out.pcap");
    assert_eq!(run.json()["left"]["sctp_size_unknown"], 1, "{}", run.stdout);
    assert_eq!(bench.run("wire --strict -r open.pcap -w out.pcap").code, 1);
    assert_eq!(crate::common::frames(&bench.get("out.pcap")), [open]);
    assert_ne!(bench.run("inspect open.pcap").code, 0);
    bench.put("jumbo.pcap", &capture(Format::Pcap, ETHERNET, &[whole]));
    bench.ok("wire --strict -r jumbo.pcap -w out.pcap");
    bench.ok("inspect jumbo.pcap");
}

#[test]
fn udp_lite_is_verified_over_its_coverage() {
    let mut damaged_inside = udp_lite(20);
    damaged_inside[43] ^= 1;
    let mut damaged_behind = udp_lite(8);
    damaged_behind[45] ^= 1;
    let (code, report) = verify(&[
        udp_lite(8),
        udp_lite(20),
        udp_lite(0),
        damaged_behind,
        damaged_inside,
        // The coverage is shorter than the header or exceeds the packet, or there is no checksum.
        udp_lite(7),
        udp_lite(900),
        {
            let mut none = udp_lite(0);
            none[40..42].fill(0);
            none
        },
    ]);
    assert_eq!(report["checksums"]["valid"], 4, "{report}");
    assert_eq!((code, bad_packets(&report)), (1, vec![5, 6, 7, 8]), "{report}");
}

#[test]
fn packets_of_which_nothing_is_verified_are_not_called_valid() {
    let mut lying =
        Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|tcp| tcp).payload_len(9).build();
    lying[14 + 20 + 12] = 0xf0;
    let (code, report) = verify(&[ipv4(89, &[0; 44]), lying]);
    assert_eq!(report["checksums"]["not_verified"], 2, "{report}");
    assert_eq!(report["checksums"]["valid"], 0, "{report}");
    assert_eq!(code, 0);
    let bench = Bench::new();
    bench.put("in.pcap", &capture(Format::Pcap, ETHERNET, &[ipv4(89, &[0; 44])]));
    let text = bench.ok("csum verify in.pcap").stdout;
    assert!(text.contains("1 not verified"), "{text}");
    assert!(!text.contains("1 valid"), "{text}");
}

/// RFC 8200 section 8.1: only tunnels may omit the checksum of UDP over IPv6 (RFC 6936).
#[test]
fn udp_over_ipv6_needs_a_checksum_outside_of_tunnels() {
    let plain =
        Packet::new().ethernet(|e| e).ipv6(|ip| ip).udp(|udp| udp.checksum_raw(0)).payload_len(64);
    let tunnel = Packet::new().ethernet(|e| e).ipv6(|ip| ip).udp(|udp| udp.checksum_raw(0));
    let tunnel = tunnel.vxlan(|v| v).ethernet(|e| e).ipv4(|ip| ip).udp(|udp| udp).payload_len(64);
    let over_ipv4 =
        Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|udp| udp.checksum_raw(0)).payload_len(64);
    let (code, report) = verify(&[plain.build(), tunnel.build(), over_ipv4.build()]);
    assert_eq!((code, bad_packets(&report)), (1, vec![1]), "{report}");
    assert_eq!(report["checksums"]["zero_udp"], 2, "{report}");
    assert_eq!(report["rows"][0]["why"], "missing");
    let bench = Bench::new();
    bench.put("in.pcap", &capture(Format::Pcap, ETHERNET, &[plain.build()]));
    bench.ok("csum fix --only bad -r in.pcap -w out.pcap");
    bench.ok("csum verify out.pcap");
}
