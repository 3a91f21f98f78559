//! Generates the conformance vectors for segmentation. A vector contains a superframe, and the packets into which an
//! implementation must segment it.

use grosso::{
    meta::{Cwr, IpLevels},
    segment::Outgoing,
};
use grosso_rig::{engine::cut, superframe::Superframe};
use grosso_testkit::{
    Packet,
    headers::{Ipv4, Tcp, Udp},
    oracle::{self, Link},
};
use grosso_wire::LinkType;
use serde::Serialize;
use serde_json::Value;

use super::{
    book::{Book, Pair, Span},
    superframe::Description,
};

#[derive(Serialize)]
struct Vector {
    name: &'static str,
    rules: &'static [&'static str],
    shows: &'static str,
    r#in: In,
    /// The packets, each with complete checksums.
    out: Span,
}

#[derive(Serialize)]
struct In {
    frame: usize,
    superframe: Description,
}

/// Builds the pair of files.
pub(crate) fn book() -> Book {
    let mut book = Book::new("segment");
    for (name, rules, shows, superframe) in cases() {
        let frame = book.frame(&superframe.bytes);
        let described = Description::of(&superframe.bytes, &superframe.meta);
        let out = book.frames(&superframe.packets());
        book.vector(&Vector { name, rules, shows, r#in: In { frame, superframe: described }, out });
    }
    book
}

/// Asserts that the engine and the literal oracle segment a vector's superframe into exactly its packets.
pub(crate) fn assert_passes(pair: &Pair, vector: &Value) {
    let name = &vector["name"];
    let bytes = pair.frame(&vector["in"]["frame"]);
    let superframe = &vector["in"]["superframe"];
    let meta = Description::meta(superframe);
    let packets = pair.frames(&vector["out"]);
    let found =
        cut(&[bytes], &meta, LinkType::Ethernet, Outgoing::default()).expect("a superframe");
    let found: Vec<_> = found.into_iter().map(|(bytes, _)| bytes).collect();
    assert_eq!(found, packets, "{name}");
    let gso = meta.gso.expect("a superframe");
    let description = oracle::Description {
        gso_size: gso.size().expect("a size").into(),
        fixed_ids: gso.fixed_ids.bits().into(),
        cwr_on_all: gso.cwr == Cwr::Every,
    };
    assert_eq!(oracle::segment(bytes, Link::Ethernet, description), Ok(packets), "{name}");
}

type Case = (&'static str, &'static [&'static str], &'static str, Superframe);

/// Returns TCP over IPv4 with changes, in segments of 100 bytes.
fn tcp4(len: usize, ip: impl Fn(Ipv4) -> Ipv4, tcp: impl Fn(Tcp) -> Tcp) -> Superframe {
    counted(Packet::new().ethernet(|e| e).ipv4(ip).tcp(tcp), len, 100)
}

/// Returns a superframe with a segment count that matches its payload.
fn counted(headers: Packet, len: usize, size: u16) -> Superframe {
    let segments = len.div_ceil(size.into()) as u16;
    Superframe::new(&headers.payload_len(len), size).gso(|gso| gso.segments = segments)
}

fn cases() -> Vec<Case> {
    [tcp(), udp(), tunnels()].into_iter().flatten().collect()
}

fn tcp() -> Vec<Case> {
    let same = |ip: Ipv4| ip;
    let all = |tcp: Tcp| tcp;
    let ipv6 = || Packet::new().ethernet(|e| e).ipv6(|ip| ip.flow_label(7));
    vec![
        (
            "s07_exact_multiple",
            &["S7"],
            "A payload of three full segments becomes three packets.",
            tcp4(300, same, all),
        ),
        (
            "s07_last_is_shorter",
            &["S7"],
            "The last packet contains the remaining payload.",
            tcp4(201, same, all),
        ),
        (
            "s10_sequence_wraps",
            &["S10"],
            "The sequence number advances by the payload length, and wraps.",
            tcp4(300, same, |tcp| tcp.sequence(0xffff_ff9c)),
        ),
        (
            "s11_fin_and_psh_on_the_last",
            &["S11"],
            "FIN and PSH are set only on the last packet.",
            tcp4(300, same, |tcp| tcp.fin().psh()),
        ),
        (
            "s11_cwr_on_the_first",
            &["S11"],
            "CWR is set only on the first packet, unless the superframe specifies every packet.",
            tcp4(300, same, Tcp::cwr),
        ),
        (
            "s11_cwr_on_every",
            &["S11"],
            "CWR is set on every packet if the superframe specifies it (AccECN).",
            tcp4(300, same, Tcp::cwr).gso(|gso| gso.cwr = Cwr::Every),
        ),
        (
            "s11_ece_and_ae_on_every",
            &["S11"],
            "All other flags are copied to every packet.",
            tcp4(300, same, |tcp| tcp.ece().ae()),
        ),
        (
            "s11_options_on_every",
            &["S11"],
            "Options, window and urgent pointer are copied to every packet.",
            tcp4(300, same, |tcp| tcp.timestamps(1, 2).window(7).urgent_pointer(3)),
        ),
        (
            "s12_ids_step",
            &["S12"],
            "Identifications increase by one, and wrap.",
            tcp4(300, |ip| ip.id(65535), all),
        ),
        (
            "s12_ids_stay",
            &["S12"],
            "Identifications stay constant if the superframe specifies it.",
            tcp4(300, |ip| ip.id(9), all).gso(|gso| gso.fixed_ids = IpLevels::NONE.with(0)),
        ),
        (
            "s12_tos_ttl_and_df_on_every",
            &["S12"],
            "TOS, TTL and DF are copied to every packet.",
            tcp4(250, |ip| ip.tos(0x2a).ttl(3).df(false), all),
        ),
        (
            "s13_ipv6",
            &["S13"],
            "Each packet has its own IPv6 payload length.",
            counted(ipv6().tcp(|t| t), 250, 100),
        ),
        (
            "s05_extension_headers_on_every",
            &["S5"],
            "Extension headers are copied to every packet.",
            counted(ipv6().hop_by_hop(|h| h).destination_options(|d| d).tcp(|t| t), 250, 100),
        ),
        (
            "s06_vlan_on_every",
            &["S6"],
            "Link-layer headers are copied to every packet.",
            counted(
                Packet::new()
                    .ethernet(|e| e)
                    .vlan(|v| v.id(7).priority(5))
                    .ipv4(|ip| ip)
                    .tcp(|t| t),
                250,
                100,
            ),
        ),
        (
            "s14_odd_segment",
            &["S14"],
            "Packets of odd length have correct checksums.",
            counted(Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t), 303, 101),
        ),
        (
            "s07_greatest",
            &["S7", "S14"],
            "A superframe of the maximum length, 65535 bytes, is split.",
            counted(Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t), 65495, 1448),
        ),
    ]
}

fn udp() -> Vec<Case> {
    let udp = || Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(3)).udp(|udp| udp);
    let zero = summing_to_zero(&udp());
    vec![
        (
            "s20_datagrams",
            &["S20"],
            "Each datagram has its own length and checksum.",
            counted(udp(), 300, 100),
        ),
        (
            "s20_last_is_shorter",
            &["S20", "S23"],
            "The last datagram is shorter, and its length field agrees.",
            counted(udp(), 201, 100),
        ),
        (
            "s20_ipv6",
            &["S20", "S13"],
            "Datagrams over IPv6 are split.",
            counted(Packet::new().ethernet(|e| e).ipv6(|ip| ip).udp(|udp| udp), 250, 100),
        ),
        (
            "s21_checksum_of_zero",
            &["S21", "C3"],
            "A checksum of zero is written as 0xffff: zero means that there is no checksum.",
            Superframe::new(&udp().payload(&zero), 100).gso(|gso| gso.segments = 2),
        ),
    ]
}

/// Returns the payload of two datagrams of 100 bytes. The checksum of the first one is zero.
fn summing_to_zero(headers: &Packet) -> Vec<u8> {
    let mut payload = [vec![0, 0], vec![7; 198]].concat();
    let first = headers.clone().payload(&payload[..100]).build();
    let checksum = first[first.len() - 100 - 2..first.len() - 100].to_vec();
    payload[..2].copy_from_slice(&checksum);
    payload
}

fn tunnels() -> Vec<Case> {
    let vxlan = |udp: fn(Udp) -> Udp| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(5)).udp(udp).vxlan(|v| v);
        packet.ethernet(|e| e).ipv4(|ip| ip.id(500)).tcp(|t| t)
    };
    let ip_in_ip = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(5)).ipv4(|ip| ip.id(500));
    vec![
        (
            "s40_outer_checksum_stays_absent",
            &["S40"],
            "The fields of both levels advance; an outer checksum of zero stays zero.",
            counted(vxlan(Udp::checksum_zero), 250, 100),
        ),
        (
            "s40_outer_checksum_is_made",
            &["S40"],
            "Each packet gets its own outer checksum.",
            counted(vxlan(|udp| udp), 250, 100),
        ),
        (
            "s41_each_level_has_its_law",
            &["S41", "S44"],
            "Outer identifications stay constant while inner ones increase.",
            counted(ip_in_ip.tcp(|t| t), 250, 100)
                .gso(|gso| gso.fixed_ids = IpLevels::NONE.with(0)),
        ),
        (
            "s43_gre_checksum",
            &["S43"],
            "Each packet gets its own GRE checksum.",
            counted(
                Packet::new()
                    .ethernet(|e| e)
                    .ipv4(|ip| ip)
                    .gre(|g| g.checksum())
                    .ipv4(|ip| ip)
                    .tcp(|t| t),
                250,
                100,
            ),
        ),
    ]
}
