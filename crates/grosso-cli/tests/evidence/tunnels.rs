//! Tests tunnels with complete checksums on the wire, with outer checksums that serve as evidence, and on non-standard
//! ports.

use grosso_testkit::oracle::{Link, is_right};

use super::{
    FAMILIES, PLAIN, Way, assert_is_the_wire, assert_taken_for_the_wire, bench, bytes, longest,
    parsed, stream, without_syns,
};
use crate::{
    common::{Bench, Timed, frames, packets},
    vantage::{BYTES, Chain, INSIDE, IPV4, IPV6},
};

/// Captures a stream in the kernel's VXLAN at the sender and on the wire; `None` without such a device.
fn vxlan(way: Way, words: &str, mtu: u32, family: usize) -> Option<[Vec<Timed>; 2]> {
    let chain = Chain::new(way).filter(|chain| chain.vxlan(words, mtu))?;
    let devices = [(&chain.sender, "s0"), (&chain.bridge, "w0")];
    let inside = [INSIDE[0], INSIDE[1]].map(|end| end[family].parse().unwrap());
    let talk = || chain.stream(inside, BYTES);
    Some(chain.record(&devices, IPV4, talk).try_into().unwrap())
}

const UNDERLAY: Way = Way { mtu: 1600, behind: None };

#[test]
fn a3_overlays_with_an_inner_mtu_of_1500_are_the_wire() {
    for family in FAMILIES {
        for words in ["dstport 4789 udpcsum", "dstport 4789 noudpcsum"] {
            let Some([_, wire]) = vxlan(UNDERLAY, words, 1500, family) else { return };
            assert_eq!(longest(&bytes(&wire)), 1564);
            assert_taken_for_the_wire(words, &without_syns(&wire), "");
        }
    }
    // The kernels of CI hosts lack devices for these tunnels, so Grosso encapsulates packets from the wire instead.
    let Some(chain) = Chain::new(PLAIN) else { return };
    for family in FAMILIES {
        let [_, wire] = stream(&chain, family);
        for kind in ["geneve id 42", "gre", "gretap key 7", "ipip encap gue"] {
            // IPIP holds IPv4, and SIT holds IPv6.
            let kind = if family == IPV4 { kind.into() } else { kind.replace("ipip", "sit") };
            let bench = bench(&[("wire.pcap", &without_syns(&wire))]);
            let ends = "local 192.0.2.1 remote 192.0.2.2";
            bench.ok(&format!("encap --seed 1 -r wire.pcap -w out.pcap type {kind} {ends}"));
            let tunnelled = packets(&bench.get("out.pcap"));
            assert!(longest(&bytes(&tunnelled)) > 1514 + 20, "{kind}");
            assert_taken_for_the_wire(&kind, &tunnelled, "");
        }
    }
}

#[test]
fn b9_outer_checksums_around_neighbour_discovery_are_completed() {
    for (family, inner) in [(IPV4, "arp"), (IPV6, "neighbour discovery")] {
        let words = "dstport 4789 udpcsum";
        let Some([host, wire]) = vxlan(UNDERLAY, words, 1500, family) else { return };
        // The inner packet is neither TCP nor UDP, and the outer checksum is left to the device.
        let is_discovery = |frame: &[u8]| {
            let parsed = parsed(frame);
            let is_inside = parsed.layers.iter().any(|layer| layer.name.starts_with("vxlan"));
            is_inside && parsed.layers.iter().all(|layer| layer.name != "tcp")
        };
        let of = |frames: Vec<Vec<u8>>| -> Vec<Vec<u8>> {
            frames.into_iter().filter(|frame| is_discovery(frame)).collect()
        };
        let before = of(bytes(&host));
        assert!(before.iter().any(|frame| !is_right(frame, Link::Ethernet)), "{inner}: partial");
        let bench = bench(&[("host.pcap", &host)]);
        bench.ok("wire -q -r host.pcap -w out.pcap");
        let output = frames(&bench.get("out.pcap"));
        assert_eq!(of(output), of(bytes(&wire)), "{inner}");
        let report = bench.run("csum verify --json -r out.pcap").json();
        let rows = report["rows"].as_array().unwrap();
        assert!(rows.iter().all(|row| row["verdict"] == "valid"), "{inner}: {rows:?}");
    }
}

const OTHER_PORT: &str = "dstport 8472 udpcsum";

#[test]
fn b10_every_command_that_reads_captures_takes_ports() {
    let Some([host, wire]) = vxlan(UNDERLAY, OTHER_PORT, 1500, IPV4) else { return };
    let bench = bench(&[("host.pcap", &host), ("wire.pcap", &wire)]);
    for line in [
        "inspect host.pcap",
        "wire -r host.pcap -w out.pcap",
        "segment -r host.pcap -w out.pcap",
        "decap -r host.pcap -w out.pcap",
        "csum verify -r host.pcap",
        "csum fix -r host.pcap -w out.pcap",
        "coalesce -r wire.pcap -w out.pcapng",
        "whatif wire.pcap",
        "explain wire.pcap -n 9",
    ] {
        let run = bench.run(&format!("{line} --port vxlan=8472"));
        assert!(run.code < 2, "{line}: {}", run.stderr);
    }
    let report = bench.run("inspect --json host.pcap --port vxlan=8472").json();
    assert_eq!(report["tunnels"][0]["kind"], "vxlan", "{report}");
    // The tunnel endpoints may resolve each other's Ethernet addresses outside the tunnel.
    let has_port = |(_, frame): &&Timed| frame.get(36..38) == Some(&8472_u16.to_be_bytes());
    assert_eq!(report["tunnels"][0]["packets"], host.iter().filter(has_port).count(), "{report}");
    let report = bench.ok("coalesce --json -r wire.pcap -w out.pcapng --port vxlan=8472").json();
    assert!(report["superframe_packets"].as_u64() > Some(100), "{report}");
    let report = bench.ok("explain --json wire.pcap -n 9 --port vxlan=8472").json();
    assert!(report["packet"]["protocol"].as_str().unwrap().contains("vxlan"), "{report}");
}

#[test]
fn b10_superframes_in_vxlan_on_another_port_become_the_wire() {
    for family in FAMILIES {
        let Some([host, wire]) = vxlan(UNDERLAY, OTHER_PORT, 1500, family) else { return };
        let bench = bench(&[("host.pcap", &host)]);
        let run = bench.ok("wire --strict --json -r host.pcap -w out.pcap --port vxlan=8472");
        let [mut found, mut expected] = [frames(&bench.get("out.pcap")), bytes(&wire)];
        found.sort();
        expected.sort();
        assert!(found == expected, "{}", run.stdout);
    }
}

/// A superframe in a tunnel on an unknown port must not be segmented as if a socket had sent plain datagrams.
#[test]
fn b10_without_the_port_superframes_are_left_and_the_hint_is_the_port() {
    let Some([host, wire]) = vxlan(UNDERLAY, OTHER_PORT, 1500, IPV4) else { return };
    let bench = bench(&[("host.pcap", &host)]);
    let (code, report) = super::inspect(&bench, "host.pcap");
    assert_eq!((code, &report["verdict"]["wire_faithful"]), (1, &false.into()), "{report}");
    let run = bench.run("wire --strict -r host.pcap -w out.pcap");
    assert_eq!(run.code, 1);
    assert!(!run.stderr.contains("--uso-size") && run.stderr.contains("--port"), "{}", run.stderr);
    let known: Vec<Vec<u8>> = bytes(&host).into_iter().chain(bytes(&wire)).collect();
    let output = frames(&bench.get("out.pcap"));
    assert!(output.iter().all(|frame| known.contains(frame)), "nothing is invented");
}

/// Encapsulates the superframes of a stream: `decap` must return them unchanged, and `wire` must segment them
/// correctly.
fn there_and_back(words: &str, bench: &Bench, original: &[Vec<u8>]) {
    let ends = "local 192.0.2.1 remote 192.0.2.2";
    bench.ok(&format!("encap -q --seed 1 -r host.pcap -w in.pcapng type {words} {ends}"));
    bench.ok("decap -q --strict -r in.pcapng -w again.pcapng");
    let again = frames(&bench.get("again.pcapng"));
    assert!(again == original, "{words}: {} and {} packets", again.len(), original.len());
    let run = bench.ok("wire --json -r in.pcapng -w wire.pcapng");
    let output = frames(&bench.get("wire.pcapng"));
    assert!(longest(&output) < 1700, "{words}: {}", run.stdout);
    assert!(output.iter().all(|frame| is_right(frame, Link::Ethernet)), "{words}");
    bench.ok("decap -q --strict -r wire.pcapng -w inner.pcapng");
    let inner = frames(&bench.get("inner.pcapng"));
    assert_is_the_wire(words, &inner, &packets(&bench.get("wire.pcap")));
}

#[test]
fn b10_what_encap_wrote_to_another_port_can_be_read() {
    let Some(chain) = Chain::new(PLAIN) else { return };
    for family in FAMILIES {
        let [mut host, mut wire] = stream(&chain, family);
        for packets in [&mut host, &mut wire] {
            packets.retain(|(_, frame)| parsed(frame).layers.iter().any(|l| l.name == "tcp"));
        }
        let bench = bench(&[("host.pcap", &host), ("wire.pcap", &wire)]);
        let fou = ["ipip encap fou encap-dport 5555", "sit encap fou encap-dport 5555"][family];
        for words in ["vxlan id 42 dstport 8472", "geneve id 42 dstport 6000", fou] {
            there_and_back(words, &bench, &bytes(&host));
        }
    }
}
