//! Tests that `decap` removes tunnel headers (with `--recursive`, all of them), and reassembles the fragments in
//! between.

use std::process::Command;

use grosso_capture::Format;
use grosso_testkit::{Packet, flows::assert_conserved, oracle, random::Random};

use crate::common::{Bench, ETHERNET, Timed, capture, capture_of, frames, has, packets};

/// Tunnel types from which the tests extract packets.
#[derive(Clone, Copy, Debug)]
enum Tunnel {
    Vxlan,
    Geneve,
    Gre,
    Ipip,
    Gue,
}

const TUNNELS: [Tunnel; 5] =
    [Tunnel::Vxlan, Tunnel::Geneve, Tunnel::Gre, Tunnel::Ipip, Tunnel::Gue];

/// Port of the innermost datagrams.
const PORT: u16 = 7777;

/// Returns a datagram of one flow.
fn datagram(flow: u16, len: usize) -> Vec<u8> {
    let mut random = Random::new(u64::from(flow) << 32 | len as u64);
    let packet = Packet::new()
        .ethernet(|e| e)
        .ipv4(|ip| ip.id(flow).df(false).source([10, 0, 0, flow as u8]));
    let packet = packet.udp(|u| u.source_port(2000 + flow).destination_port(PORT));
    packet.payload(&random.bytes(len)).build()
}

/// Encapsulates a frame, or its IP packet, in a tunnel.
fn put_in(tunnel: Tunnel, frame: &[u8], vni: u32, id: u16) -> Vec<u8> {
    let outer = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(id));
    let udp = |packet: Packet| packet.udp(|u| u.source_port(50_000));
    match tunnel {
        Tunnel::Vxlan => udp(outer).vxlan(|v| v.vni(vni)).payload(frame),
        Tunnel::Geneve => {
            let options = |g: grosso_testkit::headers::Geneve| g.option(0x0102, 3, &[1, 2, 3, 4]);
            udp(outer).geneve(|g| options(g.vni(vni).protocol_raw(0x6558))).payload(frame)
        }
        Tunnel::Gre => {
            outer.gre(|g| g.key(vni).checksum().protocol_raw(0x0800)).payload(&frame[14..])
        }
        Tunnel::Ipip => {
            let outer = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(id).protocol(4));
            outer.payload(&frame[14..])
        }
        Tunnel::Gue => udp(outer).gue(|g| g.protocol_raw(4)).payload(&frame[14..]),
    }
    .build()
}

/// Splits an IPv4 packet in an Ethernet frame into fragments, as described in RFC 791.
fn cut(frame: &[u8], mtu: usize) -> Vec<Vec<u8>> {
    let (headers, data) = frame.split_at(14 + 20);
    let step = (mtu - 20) / 8 * 8;
    let pieces = data.chunks(step).enumerate().map(|(number, piece)| {
        let mut fragment = [headers, piece].concat();
        let more = if (number + 1) * step < data.len() { 0x2000 } else { 0 };
        let word = (number * step / 8) as u16 | more;
        fragment[16..18].copy_from_slice(&(20 + piece.len() as u16).to_be_bytes());
        fragment[20..22].copy_from_slice(&word.to_be_bytes());
        fragment[24..26].fill(0);
        let checksum = oracle::checksum(&fragment[14..34]);
        fragment[24..26].copy_from_slice(&checksum.to_be_bytes());
        fragment
    });
    pieces.collect()
}

/// Returns a fragmented datagram in a tunnel, whose packets are fragmented again in another tunnel.
fn nested(inside: Tunnel, outside: Tunnel, flow: u16) -> Vec<Vec<u8>> {
    let mut id = flow * 64;
    let mut next_id = || {
        id += 1;
        id
    };
    let fragments = cut(&datagram(flow, 4000 + usize::from(flow)), 1400);
    let inner = fragments.iter().map(|frame| put_in(inside, frame, 7, next_id()));
    let inner: Vec<_> = inner.flat_map(|frame| cut(&frame, 1000)).collect();
    let outer = inner.iter().map(|frame| put_in(outside, frame, 8, next_id()));
    outer.flat_map(|frame| cut(&frame, 576)).collect()
}

/// Returns the innermost datagrams as tshark decodes them: addresses, ports and data.
fn innermost(bench: &Bench, name: &str) -> Vec<String> {
    let output = Command::new("tshark")
        .args(["-o", "ip.defragment:TRUE", "-Y"])
        .arg(format!("udp.dstport == {PORT}"))
        .args(["-T", "fields", "-E", "occurrence=l", "-e", "ip.src", "-e", "ip.dst"])
        .args(["-e", "udp.srcport", "-e", "udp.dstport", "-e", "udp.payload", "-r"])
        .arg(bench.path(name))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut lines: Vec<_> =
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn nested_tunnels_with_fragments_at_every_level_are_what_tshark_sees_in_them() {
    if !has("tshark") {
        return;
    }
    let bench = Bench::new();
    let mut sent = Vec::new();
    let mut whole = Vec::new();
    let mut flow = 0;
    // tshark does not support GUE, the last tunnel.
    let known = &TUNNELS[..4];
    for &inside in known {
        for &outside in known {
            flow += 1;
            sent.extend(nested(inside, outside, flow));
            whole.push(datagram(flow, 4000 + usize::from(flow)));
        }
    }
    bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &sent));
    let report = bench.ok("decap --recursive --json -r a.pcap -w b.pcap --strict").json();
    let got = frames(&bench.get("b.pcap"));
    assert_eq!(got.len(), whole.len());
    for (got, whole) in got.iter().zip(&whole) {
        assert!(got[14..] == whole[14..]);
    }
    let (before, after) = (innermost(&bench, "a.pcap"), innermost(&bench, "b.pcap"));
    assert_eq!(before.len(), whole.len(), "tshark joins them too");
    assert!(before == after);
    assert_eq!(report["decapsulated"], 16);
    let depths: Vec<_> = (0..3).map(|depth| report["joined"][depth]["depth"].clone()).collect();
    assert_eq!(depths, [0, 1, 2]);
    assert_eq!(report["joined"][2]["datagrams"], 16);
    assert_eq!(report["joined"][2]["fragments"], 48);
}

#[test]
fn fragments_in_any_order_come_out_as_well() {
    let bench = Bench::new();
    for seed in 0..10 {
        let mut random = Random::new(seed);
        let flows = 1..=5;
        let sent = flows.clone().flat_map(|flow| {
            let [inside, outside] = [(); 2].map(|()| *random.choose(&TUNNELS));
            nested(inside, outside, flow)
        });
        let mut sent: Vec<_> = sent.collect();
        random.shuffle(&mut sent);
        bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &sent));
        bench.ok("decap --recursive -q -r a.pcap -w b.pcap --strict");
        let ip = |frame: &[u8]| frame[14..].to_vec();
        let whole: Vec<_> =
            flows.map(|flow| ip(&datagram(flow, 4000 + usize::from(flow)))).collect();
        let output = packets(&bench.get("b.pcap"));
        let got: Vec<_> = output.iter().map(|(_, frame)| ip(frame)).collect();
        assert_conserved(&whole, &got);
        assert!(output.is_sorted_by_key(|(time, _)| *time), "seed {seed}");
    }
}

/// Fragments in two virtual networks with the same addresses are reassembled independently.
#[test]
fn fragments_of_different_tunnels_are_not_joined() {
    for tunnel in [Tunnel::Vxlan, Tunnel::Geneve, Tunnel::Gre] {
        let bench = Bench::new();
        let of = |vni: u32| {
            let mut frame = datagram(1, 3000);
            frame[2000..].fill(vni as u8);
            // The checksum is omitted, because it is irrelevant here.
            frame[40..42].fill(0);
            frame
        };
        let fragments =
            |vni| cut(&of(vni), 1000).into_iter().map(move |f| put_in(tunnel, &f, vni, 9));
        let sent: Vec<_> =
            fragments(1).zip(fragments(2)).flat_map(|(one, other)| [one, other]).collect();
        bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &sent));
        let run = bench.run("decap --recursive -r a.pcap -w b.pcap --strict");
        assert_eq!(run.code, 0, "{tunnel:?}: {}", run.stdout);
        let got = frames(&bench.get("b.pcap"));
        assert_eq!(got.len(), 2, "{tunnel:?}");
        assert!(got[0][14..] == of(1)[14..] && got[1][14..] == of(2)[14..], "{tunnel:?}");
    }
}

#[test]
fn missing_fragments_are_reported_per_depth_and_stay_in_place() {
    let bench = Bench::new();
    let inner = cut(&datagram(1, 3000), 1000);
    let mut sent: Vec<_> = inner.iter().map(|frame| put_in(Tunnel::Vxlan, frame, 1, 9)).collect();
    sent.remove(1);
    let plain = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t).build();
    sent.insert(1, plain.clone());
    bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &sent));
    let run = bench.run("decap --recursive --json -r a.pcap -w b.pcap --strict");
    assert_eq!(run.code, 1);
    let report = run.json();
    assert_eq!(report["plain"], 1);
    let depth = &report["joined"][0];
    assert_eq!((depth["depth"].as_u64(), depth["datagrams"].as_u64()), (Some(1), Some(0)));
    assert_eq!(depth["sets"][0]["packets"], serde_json::json!([1, 3, 4]));
    assert_eq!(depth["sets"][0]["missing"], serde_json::json!([{"start": 976, "end": 1952}]));
    let expected = [inner[0].clone(), plain, inner[2].clone(), inner[3].clone()];
    assert!(frames(&bench.get("b.pcap")) == expected);
    let text = bench.ok("decap --recursive -r a.pcap -w b.pcap").stdout;
    for words in ["not in a tunnel", "at depth 1: 0 datagrams", "packets 1, 3-4", "bytes 976-1951"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
}

#[test]
fn one_tunnel_comes_off_unless_all_are_asked_for() {
    let bench = Bench::new();
    let inner = put_in(Tunnel::Gre, &datagram(1, 50), 1, 1);
    let sent = put_in(Tunnel::Vxlan, &inner, 1, 1);
    let encrypted =
        Packet::new().ethernet(|e| e).ipv4(|ip| ip).esp(|e| e).payload(&[0; 40]).build();
    bench.put("a.pcapng", &capture(Format::Pcapng, ETHERNET, &[sent, encrypted.clone()]));
    let run = bench.run("decap --json -r a.pcapng -w b.pcapng --strict");
    assert_eq!(run.code, 1, "ESP stays");
    let report = run.json();
    assert_eq!(
        report["tunnels"],
        serde_json::json!([{"tunnel": "vxlan", "depth": 1, "packets": 1}])
    );
    assert_eq!(report["refused"], serde_json::json!({"encrypted": {"count": 1, "packets": [2]}}));
    let (before, after) = (packets(&bench.get("a.pcapng")), packets(&bench.get("b.pcapng")));
    assert_eq!(after[0], (before[0].0, inner));
    assert_eq!(after[1], before[1]);
    let report = bench.ok("decap --recursive --json -r a.pcapng -w b.pcapng").json();
    assert_eq!(
        report["tunnels"][1],
        serde_json::json!({"tunnel": "gre", "depth": 2, "packets": 1})
    );
    assert_eq!(frames(&bench.get("b.pcapng")), [datagram(1, 50), encrypted]);
}

#[test]
fn without_tunnels_nothing_changes() {
    let bench = Bench::new();
    let sent = capture(Format::Pcapng, ETHERNET, &[datagram(1, 10), datagram(2, 3000)]);
    bench.put("a.pcapng", &sent);
    for options in ["", "--recursive"] {
        let line = format!("decap {options} --json -r a.pcapng -w b.pcapng --strict");
        assert_eq!(bench.ok(&line).json()["plain"], 2);
        assert_eq!(packets(&bench.get("b.pcapng")), packets(&sent));
    }
}

#[test]
fn other_ports_are_configured_on_the_command_line() {
    let bench = Bench::new();
    let frame = datagram(1, 50);
    let at_port = |port: u16, payload: &[u8]| {
        let outer = Packet::new().ethernet(|e| e).ipv4(|ip| ip);
        outer.udp(|u| u.destination_port(port)).payload(payload).build()
    };
    let vxlan = [&[8, 0, 0, 0, 0, 0, 1, 0][..], &frame].concat();
    let sent = [at_port(8472, &vxlan), at_port(5555, &frame[14..])];
    bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &sent));
    assert_eq!(bench.ok("decap --json -r a.pcap -w b.pcap").json()["plain"], 2);
    bench.ok("decap -q -r a.pcap -w b.pcap --port vxlan=8472 --port fou=5555/4");
    assert_eq!(frames(&bench.get("b.pcap")), [frame.clone(), frame]);
    let run = bench.run("decap -r a.pcap -w b.pcap --port gre=47");
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("vxlan=PORT"), "{}", run.stderr);
}

/// An outer checksum around a partial one is not complete either, and pcap cannot record that.
#[test]
fn checksums_of_a_sending_host_are_no_reason_to_refuse() {
    let bench = Bench::new();
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).vxlan(|v| v);
    let packet = packet.ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t).payload_len(900);
    let (partial, ..) = packet.build_partial();
    let (superframe, ..) = packet.clone().payload_len(5000).build_superframe();
    let damaged = {
        let mut frame = packet.build();
        *frame.last_mut().unwrap() ^= 1;
        frame
    };
    let sent = [partial.clone(), superframe.clone(), damaged.clone()];
    bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &sent));
    let report = bench.ok("decap --json -r a.pcap -w b.pcap").json();
    assert_eq!(report["refused"]["udp_checksum"]["packets"], serde_json::json!([3]));
    let inner = |frame: &[u8]| frame[14 + 20 + 8 + 8..].to_vec();
    assert_eq!(frames(&bench.get("b.pcap")), [inner(&partial), inner(&superframe), damaged]);
    // pcapng can record a partial checksum.
    bench.ok("decap -q -r a.pcap -w b.pcapng -F pcapng");
    bench.ok("csum fix -q -r b.pcapng -w c.pcapng");
    assert_eq!(frames(&bench.get("c.pcapng"))[0], packet.out_of_tunnel().unwrap().build());
}

/// Tests that superframes of tunneled packets result in the same packets whether they are segmented before or after
/// decapsulation.
#[test]
fn superframes_keep_how_they_are_cut() {
    let bench = Bench::new();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/captures/vxlan.pcapng");
    bench.put("wire.pcapng", &std::fs::read(file).unwrap());
    bench.ok("decap -q -r wire.pcapng -w inner.pcapng --strict");
    bench.ok("coalesce -q -r wire.pcapng -w gro.pcapng");
    let report = bench.ok("decap --json -r gro.pcapng -w merged.pcapng --strict").json();
    assert!(report["decapsulated"].as_u64().unwrap() < 130, "{report}");
    bench.ok("segment -q -r merged.pcapng -w back.pcapng --strict");
    let (inner, back) = (frames(&bench.get("inner.pcapng")), frames(&bench.get("back.pcapng")));
    assert_conserved(&inner, &back);
    assert_eq!(inner.len(), 130);
}

#[test]
fn a_pipe_is_enough_and_times_bound_the_wait() {
    let bench = Bench::new();
    let fragments = cut(&datagram(1, 3000), 1400);
    let at = |second: u64, frame: &Vec<u8>| -> Timed {
        (crate::common::START_NS + second * 1_000_000_000, put_in(Tunnel::Vxlan, frame, 1, 1))
    };
    let sent = [at(0, &fragments[0]), at(1, &fragments[1]), at(9, &fragments[2])];
    let sent = capture_of(Format::Pcap, ETHERNET, &sent);
    let run = bench.pipe("decap --recursive -q -r - -w -", &sent);
    assert!(frames(&run.bytes) == [datagram(1, 3000)]);
    let run = bench.pipe("decap --recursive --json -r - -w b.pcap --timeout 5s", &sent);
    assert_eq!(run.json()["joined"][0]["left"]["timeout"], 1, "{}", run.stdout);
    assert!(frames(&bench.get("b.pcap")) == fragments);
}

/// The output has only one link type, which may have no room for the addresses and tags of an inner frame.
#[test]
fn headers_of_links_inside_are_left_out_by_name_where_the_capture_has_no_place_for_them() {
    let bench = Bench::new();
    let tagged = {
        let mut frame = datagram(1, 40);
        frame.splice(12..12, [0x81, 0, 0, 7]);
        frame
    };
    let inside = [datagram(1, 40), tagged.clone(), datagram(2, 40)];
    let outside: Vec<_> = inside.iter().map(|frame| put_in(Tunnel::Vxlan, frame, 1, 1)).collect();
    let ip: Vec<_> = outside.iter().map(|frame| frame[14..].to_vec()).collect();
    // The header of an incoming packet in a Linux cooked capture: direction, device type, address and protocol.
    let cooked_header = [0, 0, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 8, 0];
    let cooked: Vec<_> = ip.iter().map(|packet| [&cooked_header, &packet[..]].concat()).collect();
    let note = |what: &str| {
        format!("inner headers omitted, because the capture's link type cannot store them: {what}")
    };
    for (link, sent, left_out, said) in [
        (101, &ip, serde_json::json!({ "eth": 3, "vlan": 1 }), "eth 3, vlan 1"),
        (113, &cooked, serde_json::json!({ "eth": 3 }), "eth 3"),
    ] {
        bench.put("a.pcap", &capture(Format::Pcap, link, sent));
        for recursive in ["", "--recursive"] {
            let report = bench.ok(&format!("decap {recursive} --json -r a.pcap -w b.pcap")).json();
            assert_eq!(report["left_out"], left_out, "{link}");
            assert_eq!(report["warnings"], serde_json::json!([note(said)]), "{link}");
            let run = bench.ok(&format!("decap {recursive} -r a.pcap -w b.pcap"));
            assert!(
                run.stdout.contains(&format!("\n  omitted headers  {said}\n")),
                "{}",
                run.stdout
            );
            assert_eq!(run.stderr, format!("grosso: note: {}\n", note(said)));
        }
    }
    // No header is lost if the output's link type is Ethernet, or if the tunnel carries IP packets.
    bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &outside));
    let report = bench.ok("decap --json -r a.pcap -w b.pcap").json();
    assert_eq!(
        (&report["left_out"], &report["warnings"]),
        (&serde_json::json!({}), &serde_json::json!([]))
    );
    assert!(frames(&bench.get("b.pcap"))[1] == tagged);
    let ipip = put_in(Tunnel::Gre, &datagram(1, 40), 1, 1)[14..].to_vec();
    bench.put("a.pcap", &capture(Format::Pcap, 101, &[ipip]));
    let report = bench.ok("decap --json -r a.pcap -w b.pcap").json();
    assert_eq!((&report["left_out"], &report["decapsulated"]), (&serde_json::json!({}), &1.into()));
}

#[test]
fn raw_captures_show_ip() {
    let bench = Bench::new();
    let sent = put_in(Tunnel::Vxlan, &datagram(1, 40), 1, 1)[14..].to_vec();
    bench.put("a.pcap", &capture(Format::Pcap, 101, &[sent]));
    bench.ok("decap -q -r a.pcap -w b.pcap --strict");
    assert_eq!(frames(&bench.get("b.pcap")), [datagram(1, 40)[14..].to_vec()]);
}
