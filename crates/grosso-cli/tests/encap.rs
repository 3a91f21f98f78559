//! Tests the command `grosso encap`: tshark decodes its output, and `decap` reverses it.

use std::process::Command;

use grosso_capture::Format;
use grosso_testkit::{
    Packet,
    oracle::{Link, is_right, verify},
};

use crate::common::{Bench, ETHERNET, capture, frames, has, packets};

const ENDS_V4: &str = "local 192.0.2.1 remote 192.0.2.2";
const ENDS_V6: &str = "local 2001:db8::1 remote 2001:db8::2";

/// Tunnels that carry frames, and tshark's names for their headers.
const OF_FRAMES: [(&str, &str); 4] = [
    ("vxlan id 42", "udp:vxlan"),
    ("vxlan id 42 gbp 7 noudpcsum", "udp:vxlan"),
    ("geneve id 42", "udp:geneve"),
    ("gretap key 9 csum", "gre"),
];

/// Tunnels that carry packets.
const OF_PACKETS: [(&str, &str); 9] = [
    ("ipip", ""),
    ("sit", ""),
    ("gre", "gre"),
    ("gre key 9 csum seq", "gre"),
    ("vxlan id 42 gpe", "udp"),
    ("geneve id 42 innerprotoinherit", "udp:geneve"),
    ("ipip encap gue", "udp"),
    ("gre key 9 encap gue", "udp"),
    ("ipip encap gue encap-variant 1", "udp"),
];

const OVER_IPV6: [(&str, &str); 5] = [
    ("vxlan id 42", "udp:vxlan"),
    ("geneve id 42", "udp:geneve"),
    ("ip6gre key 9 csum", "ipv6.dstopts:gre"),
    ("ip6tnl", "ipv6.dstopts"),
    ("ip6tnl encaplimit none", ""),
];

fn datagram(len: usize) -> Vec<u8> {
    Packet::new().ethernet(|e| e).ipv4(|ip| ip.tos(2)).udp(|u| u).payload_len(len).build()
}

/// Returns packets of both IP versions. They are long enough not to need Ethernet padding, which tunnels of IP packets
/// drop.
fn sent() -> Vec<Vec<u8>> {
    let tcp = |start: Packet| start.tcp(|t| t.timestamps(1, 2)).payload_len(700).build();
    let ethernet = || Packet::new().ethernet(|e| e);
    let ipv4 = tcp(ethernet().ipv4(|ip| ip.df(true)));
    let fragment = ethernet().ipv4(|ip| ip.fragment_offset(9).protocol(17)).payload(&[7; 50]);
    vec![datagram(100), ipv4, tcp(ethernet().ipv6(|ip| ip)), fragment.build()]
}

/// Returns the arguments for every type of tunnel, with tshark's names for its headers.
fn tunnels() -> Vec<(String, &'static str)> {
    let over_ipv4 = OF_FRAMES
        .iter()
        .chain(&OF_PACKETS)
        .map(|(words, headers)| (format!("{words} {ENDS_V4}"), *headers));
    let over_ipv6 =
        OVER_IPV6.iter().map(|(words, headers)| (format!("{words} {ENDS_V6}"), *headers));
    over_ipv4.chain(over_ipv6).collect()
}

#[test]
fn decap_gives_the_capture_back_byte_for_byte() {
    let bench = Bench::new();
    let before = capture(Format::Pcap, ETHERNET, &sent());
    bench.put("a.pcap", &before);
    for (words, _) in tunnels() {
        bench.ok(&format!("encap -q --strict -r a.pcap -w b.pcap type {words}"));
        assert_ne!(bench.get("b.pcap"), before, "{words}");
        bench.ok("decap -q --strict -r b.pcap -w c.pcap");
        assert!(bench.get("c.pcap") == before, "{words}");
    }
    bench.ok(&format!(
        "encap -q -r a.pcap -w b.pcap type ipip {ENDS_V4} encap fou encap-dport 5555"
    ));
    bench.ok("decap -q --strict -r b.pcap -w c.pcap --port fou=5555/4");
    assert!(bench.get("c.pcap") == before);
    // Encapsulates the packets twice, through pipes.
    let vxlan = bench.pipe(&format!("encap -q -r - -w - type vxlan id 1 {ENDS_V4}"), &before);
    let gre = bench.pipe(&format!("encap -q -r - -w - type gre {ENDS_V4}"), &vxlan.bytes);
    let back = bench.pipe("decap -q --recursive -r - -w -", &gre.bytes);
    // The inner fragment belongs to a datagram that is not in the capture.
    assert!(frames(&back.bytes) == sent());
}

/// `decap` reads a capture and is not a tunnel endpoint: options that an endpoint would have to understand are
/// reported, but do not prevent decapsulation.
#[test]
fn d16_decap_reads_the_critical_options_that_encap_wrote() {
    let bench = Bench::new();
    let before = capture(Format::Pcap, ETHERNET, &sent());
    bench.put("a.pcap", &before);
    let words = "geneve id 42 geneve_opts 0102:83:01020304";
    bench.ok(&format!("encap -q --strict -r a.pcap -w b.pcap type {words} {ENDS_V4}"));
    let run = bench.ok("decap --strict -r b.pcap -w c.pcap");
    assert!(bench.get("c.pcap") == before);
    assert!(run.stderr.contains("the critical Geneve option 0x0102 0x83"), "{}", run.stderr);
}

/// Returns one line per packet: the headers that tshark finds, and its warnings.
fn seen_by_tshark(bench: &Bench, name: &str) -> Vec<(String, String)> {
    let checks = ["ip.check_checksum", "udp.check_checksum", "tcp.check_checksum"];
    let mut command = Command::new("tshark");
    for check in checks {
        command.args(["-o", &format!("{check}:TRUE")]);
    }
    let fields = ["frame.protocols", "_ws.malformed", "_ws.expert.severity", "_ws.expert.message"];
    command.args(["-T", "fields", "-E", "occurrence=a"]);
    fields.iter().for_each(|field| {
        command.args(["-e", field]);
    });
    let output = command.arg("-r").arg(bench.path(name)).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let split = |line: &str| {
        let (protocols, complaints) = line.split_once('\t').unwrap_or((line, ""));
        (protocols.to_owned(), complaints.trim().to_owned())
    };
    text.lines().map(split).collect()
}

#[test]
fn tshark_dissects_every_format_without_complaint() {
    if !has("tshark") {
        return;
    }
    let bench = Bench::new();
    bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &sent()));
    let plain = seen_by_tshark(&bench, "a.pcap");
    for (words, headers) in tunnels() {
        bench.ok(&format!("encap -q --strict -r a.pcap -w b.pcap type {words}"));
        let seen = seen_by_tshark(&bench, "b.pcap");
        assert_eq!(seen.len(), plain.len());
        for ((protocols, complaints), (inside, before)) in seen.iter().zip(&plain) {
            assert_eq!(complaints, before, "{words}: {protocols}");
            let is_ipv6 = words.contains("::");
            let outer = if is_ipv6 { "eth:ethertype:ipv6" } else { "eth:ethertype:ip" };
            let outer =
                if headers.is_empty() { outer.into() } else { format!("{outer}:{headers}") };
            assert!(protocols.starts_with(&outer), "{words}: {protocols}");
            // tshark does not support GUE.
            if !words.contains("encap gue") {
                let transport = inside.rsplit(':').find(|name| ["tcp", "udp"].contains(name));
                assert!(protocols.contains(transport.unwrap_or("data")), "{words}: {protocols}");
            }
        }
    }
}

/// Tests that superframes with partial checksums result in the same packets whether they are segmented before or after
/// encapsulation.
#[test]
fn superframes_stay_superframes_and_are_cut_into_the_same_packets() {
    let bench = Bench::new();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/captures/iperf3.pcapng");
    bench.put("host.pcapng", &std::fs::read(file).unwrap());
    bench.ok("wire -q -r host.pcapng -w wire.pcapng");
    bench.ok("coalesce -q -r wire.pcapng -w gro.pcapng");
    bench.ok("segment -q -r gro.pcapng -w cut.pcapng --strict");
    for words in ["vxlan id 3", "ipip encap gue", "gre csum", "geneve id 3"] {
        let encap = |from: &str, to: &str| {
            let line = format!("encap --json --seed 5 -r {from} -w {to} type {words} {ENDS_V4}");
            bench.ok(&line).json()
        };
        let report = encap("gro.pcapng", "around.pcapng");
        assert!(report["superframes"].as_u64().unwrap() > 5, "{report}");
        assert_eq!(report["refused"], serde_json::json!({}));
        bench.ok("segment -q -r around.pcapng -w after.pcapng --strict");
        encap("cut.pcapng", "before.pcapng");
        let (after, before) =
            (frames(&bench.get("after.pcapng")), frames(&bench.get("before.pcapng")));
        assert_eq!(after.len(), before.len());
        assert!(after == before, "{words}");
        bench.ok("csum verify -q -r after.pcapng");
    }
    let run = bench.ok(&format!("encap -r gro.pcapng -w around.pcapng type gre seq {ENDS_V4}"));
    assert!(run.stdout.contains("superframe_numbered"), "{}", run.stdout);
    assert!(run.stderr.contains("grosso wire"), "{}", run.stderr);
}

/// A partial checksum stays partial, and the outer checksums are correct for the packet after a device has completed
/// it.
#[test]
fn partial_checksums_stay_partial_or_are_left_to_the_receiver() {
    let bench = Bench::new();
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t).payload_len(900);
    let (partial, ..) = packet.build_partial();
    // pcap cannot record that the checksum is partial.
    bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, core::slice::from_ref(&partial)));
    bench.ok(&format!("encap -q -r a.pcap -w b.pcapng type vxlan id 1 {ENDS_V4}"));
    bench.ok("wire -q -r b.pcapng -w c.pcapng");
    bench.ok("csum verify -q -r c.pcapng");
    bench.ok("decap -q --strict -r c.pcapng -w d.pcap -F pcap");
    assert_eq!(frames(&bench.get("d.pcap")), [packet.build()]);
    let line =
        format!("encap --json -r a.pcap -w b.pcap type vxlan id 1 remcsumtx remcsumrx {ENDS_V4}");
    assert_eq!(bench.ok(&line).json()["remote_checksums"], 1);
    let sent = &frames(&bench.get("b.pcap"))[0];
    assert_eq!(sent[42..50], [0x08, 0x20, 0, 0, 0, 0, 1, 0x11]);
    assert_eq!(sent[50..], partial);
    bench.ok("csum verify -q -r b.pcap");
    bench.ok("decap -q --strict -r b.pcap -w c.pcap");
    assert_eq!(frames(&bench.get("c.pcap")), [packet.build()]);
}

#[test]
fn the_report_counts_encapsulated_and_skipped_packets() {
    let bench = Bench::new();
    let tagged = Packet::new().ethernet(|e| e).vlan(|v| v.id(3)).ipv4(|ip| ip).udp(|u| u);
    let arp = Packet::new().ethernet(|e| e.ethertype_raw(0x0806)).payload(&[0; 46]).build();
    let sent = [datagram(100), tagged.payload_len(100).build(), arp.clone()];
    bench.put("a.pcapng", &capture(Format::Pcapng, ETHERNET, &sent));
    let line = format!("encap -r a.pcapng -w b.pcapng --strict type sit {ENDS_V4}");
    let run = bench.run(&line);
    assert_eq!(run.code, 1, "one packet stays");
    for words in ["b.pcapng: 3 packets; 2 encapsulated in sit", "ip 20", "not_ip 1 (packet 3)"] {
        assert!(run.stdout.contains(words), "{words}: {}", run.stdout);
    }
    assert!(run.stdout.lines().all(|line| line.len() <= 80), "{}", run.stdout);
    let got = frames(&bench.get("b.pcapng"));
    assert_eq!(got[2], arp);
    assert_eq!(got[1][..18], sent[1][..18], "the tag stays in front");
    let report =
        bench.ok(&format!("encap --json -r a.pcapng -w b.pcapng type sit {ENDS_V4}")).json();
    assert_eq!(report["schema"], "grosso.encap/1");
    assert_eq!(report["overhead"], serde_json::json!([["ip", 20]]));
    assert_eq!(report["refused"]["not_ip"]["packets"], serde_json::json!([3]));
    assert_eq!(packets(&bench.get("b.pcapng"))[0].0, packets(&bench.get("a.pcapng"))[0].0);
}

/// A PPPoE header has a length field and its own protocol number for IP, so the packet after it cannot be encapsulated
/// unchanged.
#[test]
fn a_packet_that_stays_is_not_counted_as_put_into_the_tunnel() {
    let bench = Bench::new();
    let session = Packet::new().ethernet(|e| e).pppoe(|p| p).ipv4(|ip| ip).udp(|u| u);
    let labelled = Packet::new().ethernet(|e| e).mpls(|m| m).ipv4(|ip| ip).udp(|u| u);
    let sent = [datagram(100), session.payload_len(100).build(), labelled.payload_len(9).build()];
    bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &sent));
    let line = format!("encap --json -r a.pcap -w b.pcap type gre {ENDS_V4}");
    let report = bench.ok(&line).json();
    assert_eq!(report["encapsulated"], 1, "{report:#}");
    assert_eq!(report["refused"]["link_family"]["packets"], serde_json::json!([2, 3]));
    assert_eq!(frames(&bench.get("b.pcap"))[1..], sent[1..]);
}

/// If the capture does not record the segment size, the user specifies it, and the output records it.
#[test]
fn encap_records_the_size_that_the_user_gives() {
    let bench = Bench::new();
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.df(true)).tcp(|t| t).payload_len(5000);
    bench.put("a", &capture(Format::Pcap, ETHERNET, &[packet.build_superframe().0]));
    for (options, cut) in [("", 0), ("--mss 1400", 4), ("--mtu 1440", 4), ("--mss 5000", 0)] {
        let words = format!("type vxlan id 42 {ENDS_V4}");
        bench.ok(&format!("encap -q -F pcapng -r a -w b {options} {words}"));
        let report = bench.ok("segment --json -r b -w c").json();
        assert_eq!(report["segments"], cut, "{options}: {report}");
    }
    let run =
        bench.run(&format!("encap -r a -w b --mss 1460 --mtu 1400 type vxlan id 42 {ENDS_V4}"));
    assert_eq!(run.code, 2, "{}", run.stderr);
}

/// Tests captures from a host with tunnels: a superframe that has a pseudo-header sum at each level, and ARP that has
/// one only in the outer checksum.
#[test]
fn what_a_device_was_to_complete_inside_a_tunnel_is_complete_on_the_wire() {
    let bench = Bench::new();
    let vxlan = |start: Packet| start.udp(|u| u).vxlan(|v| v).ethernet(|e| e);
    let tunnel = || vxlan(Packet::new().ethernet(|e| e).ipv4(|ip| ip));
    let nested = || vxlan(Packet::new().ethernet(|e| e).ipv6(|ip| ip).gre(|g| g).ipv4(|ip| ip));
    let data = |start: Packet| start.ipv4(|ip| ip).tcp(|t| t).payload_len(20_000);
    let arp = |start: Packet| {
        let name = |packet: Packet| packet.payload(&[7; 28]).build_superframe().0;
        let mut frame = name(start);
        let kind = frame.len() - 28 - 2;
        frame[kind..kind + 2].copy_from_slice(&[0x08, 0x06]);
        frame
    };
    let superframe = |start: Packet| data(start).build_superframe().0;
    for sent in [superframe(tunnel()), superframe(nested()), arp(tunnel()), arp(nested())] {
        bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &[sent]));
        for words in ["geneve id 1", "gretap csum", "ipip encap gue encap-csum"] {
            bench.run(&format!("encap -q -r a.pcap -w b.pcapng type {words} {ENDS_V4}"));
            bench.ok("wire -q -r b.pcapng -w c.pcapng");
            for frame in frames(&bench.get("c.pcapng")) {
                let verdicts = verify(&frame, Link::Ethernet);
                assert!(is_right(&frame, Link::Ethernet), "{words}: {verdicts:x?}");
            }
        }
    }
}

#[test]
fn bytes_that_are_missing_are_not_made_up() {
    let bench = Bench::new();
    let mut cut = capture(Format::Pcap, ETHERNET, &[datagram(100)]);
    // Original length of the only packet, in its record header.
    cut[36..40].copy_from_slice(&1000_u32.to_le_bytes());
    bench.put("a.pcap", &cut);
    let line = format!("encap --json -r a.pcap -w b.pcap type vxlan id 1 {ENDS_V4}");
    assert_eq!(bench.ok(&line).json()["refused"]["truncated"]["count"], 1);
    assert_eq!(frames(&bench.get("b.pcap")), [datagram(100)]);
}

#[test]
fn a_tunnel_that_cannot_be_is_a_wrong_command_line() {
    let bench = Bench::new();
    bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &sent()));
    for (words, expected) in [
        ("", "type vxlan"),
        ("vxlan id 1", "type vxlan"),
        ("type vxlan id 1", "local is missing"),
        ("type vxlen id 1", "vxlan"),
        ("type vxlan id 16777216 local 192.0.2.1 remote 192.0.2.2", "16777215"),
        ("type vxlan id 1 local 192.0.2.1 remote ::1", "both be IPv4"),
    ] {
        let run = bench.run(&format!("encap -r a.pcap -w b.pcap {words}"));
        assert_eq!(run.code, 2, "{words}");
        assert!(run.stderr.contains(expected), "{words}: {}", run.stderr);
        assert!(!bench.path("b.pcap").exists(), "{words}");
    }
}

#[test]
fn a_capture_without_a_link_layer_has_none_around_tunnels_either() {
    let bench = Bench::new();
    let ip = datagram(100)[14..].to_vec();
    let raw = capture(Format::Pcap, 101, &[ip]);
    bench.put("a.pcap", &raw);
    bench.ok(&format!("encap -q --strict -r a.pcap -w b.pcap type ip6tnl {ENDS_V6}"));
    assert_eq!(frames(&bench.get("b.pcap"))[0][0], 0x60);
    bench.ok("decap -q --strict -r b.pcap -w c.pcap");
    assert!(bench.get("c.pcap") == raw);
    let run = bench.run(&format!("encap -r a.pcap -w b.pcap --strict type vxlan id 1 {ENDS_V4}"));
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("gpe"), "{}", run.stderr);
}
