//! Tests tunnels on non-standard UDP ports: the output of `encap` is read without an option, and other programs'
//! tunnels with `--port`.

use grosso_capture::{Format, TunnelPort};
use grosso_testkit::Packet;

use crate::common::{Bench, ETHERNET, capture, each, frames};

const ENDS: &str = "local 192.0.2.1 remote 192.0.2.2";

/// Tunnels on unassigned ports, and their recorded form.
const TUNNELS: [(&str, &str); 7] = [
    ("vxlan id 42 dstport 8472", "vxlan=8472"),
    ("vxlan id 42 gpe dstport 8473", "vxlan-gpe=8473"),
    ("geneve id 42 dstport 7000", "geneve=7000"),
    ("ipip encap gue encap-dport 9999", "gue=9999"),
    ("ipip encap gue encap-dport 9999 encap-variant 1", "gue=9999"),
    ("ipip encap fou encap-dport 5555", "fou=5555/4"),
    ("gre key 9 encap fou encap-dport 5556", "fou=5556/47"),
];

/// Returns packets of a stream with equal lengths, except for the last.
fn sent() -> Vec<Vec<u8>> {
    let segment = |index: u32| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(index as u16).df(true));
        packet.tcp(|t| t.sequence(index * 900)).payload_len(900).build()
    };
    (0..12).map(segment).collect()
}

/// Returns the tunnels recorded with each packet, in the format of `--port`.
fn recorded(bytes: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    each(bytes, |packet| {
        let tunnels = packet.meta().offload.map(|offload| offload.tunnel_ports).unwrap_or_default();
        let words: Vec<_> = tunnels.iter().map(TunnelPort::to_string).collect();
        found.push(words.join(" "));
    });
    found
}

#[test]
fn b10_tunnels_from_encap_on_any_port_are_read_without_options() {
    let bench = Bench::new();
    bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &sent()));
    for (words, port) in TUNNELS {
        bench.ok(&format!("encap -q --strict -r a.pcap -w b.pcapng type {words} {ENDS}"));
        assert!(recorded(&bench.get("b.pcapng")).iter().all(|said| said == port), "{words}");
        let report = bench.ok("decap --json --strict -r b.pcapng -w c.pcapng").json();
        assert_eq!(report["decapsulated"], 12, "{words}: {report}");
        assert_eq!(frames(&bench.get("c.pcapng")), sent(), "{words}");
        assert!(recorded(&bench.get("c.pcapng")).iter().all(String::is_empty), "{words}");
    }
    // An assigned port is not recorded.
    bench.ok(&format!("encap -q -r a.pcap -w b.pcapng type vxlan id 42 dstport 4789 {ENDS}"));
    assert!(recorded(&bench.get("b.pcapng")).iter().all(String::is_empty));
}

/// Tests three nested tunnels of one type on three ports; the outermost uses the assigned port.
#[test]
fn b10_nested_tunnels_are_read_by_their_own_ports() {
    let bench = Bench::new();
    bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &sent()));
    let mut from = "a.pcap".to_owned();
    for (level, port) in [8472, 8472, 9000, 4789].into_iter().enumerate() {
        let to = format!("{level}.pcapng");
        let tunnel = format!("type vxlan id {level} dstport {port} {ENDS}");
        bench.ok(&format!("encap -q --strict -r {from} -w {to} {tunnel}"));
        from = to;
    }
    let around = recorded(&bench.get("3.pcapng"));
    assert_eq!(around[0], "vxlan=4789 vxlan=9000 vxlan=8472 vxlan=8472");
    bench.ok("decap -q --strict --recursive -r 3.pcapng -w all.pcapng");
    assert_eq!(frames(&bench.get("all.pcapng")), sent());
    assert!(recorded(&bench.get("all.pcapng")).iter().all(String::is_empty));
    for level in (1..4).rev() {
        bench.ok(&format!("decap -q --strict -r {level}.pcapng -w one.pcapng"));
        let before = bench.get(&format!("{}.pcapng", level - 1));
        let one = bench.get("one.pcapng");
        assert_eq!(frames(&one), frames(&before));
        assert_eq!(recorded(&one), recorded(&before));
    }
}

#[test]
fn b10_pcap_cannot_record_ports_and_the_note_names_a_format_that_can() {
    let bench = Bench::new();
    bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &sent()));
    for (words, port) in TUNNELS {
        let run = bench.ok(&format!("encap -r a.pcap -w b.pcap type {words} {ENDS}"));
        assert!(run.stderr.contains("pcap cannot record"), "{words}: {}", run.stderr);
        assert!(run.stderr.contains(&format!("--port {port} ")), "{words}: {}", run.stderr);
        bench.ok(&format!("decap -q --strict -r b.pcap -w c.pcap --port {port}"));
        assert_eq!(frames(&bench.get("c.pcap")), sent(), "{words}");
    }
    let told = format!("encap -r a.pcap -w b.pcapng type vxlan id 1 dstport 8472 {ENDS}");
    let assigned = format!("encap -r a.pcap -w b.pcap type vxlan id 1 dstport 4789 {ENDS}");
    for line in [told, assigned] {
        let run = bench.ok(&line);
        assert!(!run.stderr.contains("pcap cannot record"), "{line}: {}", run.stderr);
    }
}

#[test]
fn b10_the_ports_stay_with_packets_that_are_joined_and_cut() {
    let bench = Bench::new();
    bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &sent()));
    let tunnel = format!("type vxlan id 42 dstport 8472 {ENDS}");
    bench.ok(&format!("encap -q --strict --seed 3 -r a.pcap -w b.pcapng {tunnel}"));
    let before = bench.get("b.pcapng");
    let is_kept = |name: &str| recorded(&bench.get(name)).iter().all(|said| said == "vxlan=8472");

    let report = bench.ok("coalesce --json -r b.pcapng -w gro.pcapng").json();
    assert!(report["superframes"].as_u64().unwrap() > 0, "{report}");
    assert!(is_kept("gro.pcapng"));
    bench.ok("segment -q --strict -r gro.pcapng -w cut.pcapng");
    assert_eq!(frames(&bench.get("cut.pcapng")), frames(&before));
    assert!(is_kept("cut.pcapng"));

    bench.ok("fragment -q --ignore-df -r b.pcapng -w fragments.pcapng --mtu 600");
    assert_eq!(recorded(&bench.get("fragments.pcapng")).len(), 24);
    assert!(is_kept("fragments.pcapng"));
    bench.ok("reassemble -q --strict -r fragments.pcapng -w whole.pcapng");
    assert!(is_kept("whole.pcapng"));
    for line in ["decap -r whole.pcapng", "decap --recursive -r fragments.pcapng"] {
        bench.ok(&format!("{line} -q --strict -w c.pcapng"));
        assert_eq!(frames(&bench.get("c.pcapng")), sent());
        assert!(recorded(&bench.get("c.pcapng")).iter().all(String::is_empty));
    }
}

/// Packets with different recorded ports merge into a superframe without recorded ports, so that no packet gets another
/// one's ports.
#[test]
fn b10_a_superframe_has_no_ports_that_one_of_its_packets_has_not() {
    let bench = Bench::new();
    bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &sent()));
    let tunnel = format!("type vxlan id 42 dstport 8472 {ENDS}");
    bench.ok(&format!("encap -q --strict --seed 3 -r a.pcap -w b.pcapng {tunnel}"));
    let plain = frames(&bench.get("b.pcapng"));
    let mut options = grosso_capture::WriterOptions::new(Format::Pcapng);
    options.interface = grosso_capture::Interface::new(ETHERNET);
    let mut writer = grosso_capture::CaptureWriter::new(Vec::new(), options);
    let mut index = 0;
    each(&bench.get("b.pcapng"), |packet| {
        let mut meta = packet.meta();
        meta.offload = meta.offload.filter(|_| index != 5);
        writer.write_packet(&meta, packet.data).unwrap();
        index += 1;
    });
    bench.put("mixed.pcapng", &writer.finish().unwrap());
    bench.ok("coalesce -q -r mixed.pcapng -w gro.pcapng");
    bench.ok("segment -q --strict -r gro.pcapng -w cut.pcapng");
    assert_eq!(frames(&bench.get("cut.pcapng")), plain);
    assert_eq!(recorded(&bench.get("cut.pcapng"))[5], "");
}

/// The inner tunnel ports that the user specified are recorded with the packets when the next tunnel is added.
#[test]
fn b10_encap_records_the_tunnels_inside_that_the_user_named() {
    let bench = Bench::new();
    bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &sent()));
    let inner = format!("type geneve id 42 dstport 7000 {ENDS}");
    let outer = format!("type vxlan id 42 dstport 8472 {ENDS}");
    bench.ok(&format!("encap -q --strict -r a.pcap -w b.pcap {inner}"));
    bench.ok(&format!("encap -q --strict --port geneve=7000 -r b.pcap -w c.pcapng {outer}"));
    assert_eq!(recorded(&bench.get("c.pcapng"))[0], "vxlan=8472 geneve=7000");
    bench.ok("decap -q --strict --recursive -r c.pcapng -w d.pcapng");
    assert_eq!(frames(&bench.get("d.pcapng")), sent());
}

/// A port that the user specifies overrides the capture's.
#[test]
fn b10_a_port_that_the_user_names_wins_over_the_recorded_one() {
    let bench = Bench::new();
    bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &sent()));
    let tunnel = format!("type vxlan id 42 dstport 8472 {ENDS}");
    bench.ok(&format!("encap -q --strict -r a.pcap -w b.pcapng {tunnel}"));
    let report = bench.ok("decap --json -r b.pcapng -w c.pcapng --port vxlan=9000").json();
    assert_eq!(report["decapsulated"], 0, "{report}");
    // A port that belongs to another type of tunnel changes nothing.
    let report = bench.ok("decap --json -r b.pcapng -w c.pcapng --port geneve=9000").json();
    assert_eq!(report["decapsulated"], 12, "{report}");
}

/// Tests two datagrams of three fragments each, inside VXLAN on the old Linux port.
#[test]
fn b10_reassemble_finds_fragments_in_a_tunnel_on_a_port_that_is_named() {
    let bench = Bench::new();
    let datagram = |id| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(id).df(false));
        packet.udp(|u| u).payload_len(2000).build()
    };
    let whole = [datagram(1), datagram(2)];
    bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &whole));
    bench.ok("fragment -q -r a.pcap -w cut.pcap --mtu 800");
    let tunnel = format!("type vxlan id 42 dstport 8472 {ENDS}");
    bench.ok(&format!("encap -q --strict -r cut.pcap -w b.pcap {tunnel}"));
    bench.ok(&format!("encap -q --strict -r cut.pcap -w b.pcapng {tunnel}"));
    let joined = |line: &str| {
        let report = bench.ok(&format!("reassemble --json -w c.pcapng {line}")).json();
        report["datagrams"].as_u64().unwrap()
    };
    assert_eq!(joined("-r b.pcap"), 0);
    assert_eq!(joined("-r b.pcap --port vxlan=8472"), 2);
    assert_eq!(joined("-r b.pcapng"), 2, "the port is recorded");
    bench.ok("decap -q --strict -r c.pcapng -w d.pcapng");
    assert_eq!(frames(&bench.get("d.pcapng")), whole);
}

/// The checksum that a device was to complete is the inner one.
#[test]
fn b10_fragment_completes_checksums_in_a_tunnel_on_a_port_that_is_named() {
    let bench = Bench::new();
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t).payload_len(900);
    let (partial, ..) = packet.build_partial();
    bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &[partial]));
    let tunnel = format!("type vxlan id 42 dstport 8472 {ENDS}");
    bench.ok(&format!("encap -q --strict -r a.pcap -w b.pcap {tunnel} noudpcsum"));
    let cut = "fragment -q -r b.pcap -w c.pcap --mtu 600 --ignore-df";
    bench.ok(&format!("{cut} --port vxlan=8472"));
    bench.ok("reassemble -q --strict -r c.pcap -w whole.pcap");
    bench.ok("decap -q --strict -r whole.pcap -w d.pcap --port vxlan=8472");
    assert_eq!(frames(&bench.get("d.pcap")), [packet.build()]);
}

#[test]
fn b10_the_ports_stay_with_a_packet_whose_checksum_is_completed() {
    let bench = Bench::new();
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t).payload_len(900);
    let (partial, ..) = packet.build_partial();
    bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &[partial]));
    let tunnel = format!("type vxlan id 42 dstport 8472 {ENDS}");
    bench.ok(&format!("encap -q --strict -r a.pcap -w b.pcapng {tunnel} noudpcsum"));
    bench.ok("csum fix -q -r b.pcapng -w c.pcapng");
    assert_eq!(recorded(&bench.get("c.pcapng")), ["vxlan=8472"]);
    bench.ok("decap -q --strict -r c.pcapng -w d.pcap");
    assert_eq!(frames(&bench.get("d.pcap")), [packet.build()]);
}

#[test]
fn b10_what_looks_like_a_tunnel_is_hinted_at_and_left_alone() {
    let bench = Bench::new();
    let plain = |port| {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip);
        packet.udp(|u| u.destination_port(port)).payload_len(300).build()
    };
    bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &sent()));
    bench.put("plain.pcap", &capture(Format::Pcap, ETHERNET, &[plain(8472), plain(5555)]));
    for (words, port) in TUNNELS {
        bench.ok(&format!("encap -q -r a.pcap -w b.pcap type {words} {ENDS}"));
        let run = bench.ok("decap -r b.pcap -w c.pcap");
        assert_eq!(bench.get("c.pcap"), bench.get("b.pcap"), "{words}");
        match port {
            // Without the port, nothing shows that the payload is GRE.
            "fou=5556/47" => assert!(!run.stderr.contains("--port"), "{}", run.stderr),
            // GUE variant 1 has no header, so it looks like FOU.
            _ if words.ends_with("encap-variant 1") => {
                assert!(run.stderr.contains("--port fou=9999/4\n"), "{}", run.stderr);
            }
            _ => assert!(run.stderr.contains(&format!("--port {port}\n")), "{}", run.stderr),
        }
    }
    let run = bench.ok("decap -r plain.pcap -w c.pcap");
    assert!(!run.stderr.contains("--port"), "{}", run.stderr);
}

#[test]
fn b10_conflicting_options_are_refused_by_name() {
    let bench = Bench::new();
    bench.put("a.pcap", &capture(Format::Pcap, ETHERNET, &sent()));
    for (command, words) in [
        ("decap", "--port vxlan=8472 --port gue=8472"),
        ("reassemble", "--port fou=5555/4 --port vxlan=5555"),
        ("fragment --mtu 600", "--port fou=5555/4 --port fou=5555/47"),
    ] {
        let run = bench.run(&format!("{command} -r a.pcap -w b.pcap {words}"));
        assert_eq!(run.code, 2, "{words}: {}", run.stderr);
        for word in words.split("--port ").skip(1) {
            assert!(run.stderr.contains(&format!("--port {}", word.trim())), "{}", run.stderr);
        }
        assert!(!bench.path("b.pcap").exists(), "{words}");
    }
    let run = bench.run("decap --json -r a.pcap -w b.pcap --port vxlan=1 --port gue=1");
    assert_eq!(run.json_error()["code"], "usage");
}
