//! Tests decisions on captures of real kernel traffic: the cases in section A of the known errors, and tunnels that
//! `wire` and other commands did not recognize.

#![cfg(target_os = "linux")]

mod checksums;
mod crafted;
mod fraglist;
mod headers_only;
mod identifications;
mod tunnels;

use grosso_capture::Format;
use grosso_testkit::oracle::{self, Lengths, Link, Parsed};
use serde_json::Value;

use crate::common::{Bench, ETHERNET, Timed, capture_of, frames};
use crate::vantage::{BYTES, Chain, IPV4, IPV6, Way, ip, set, without_offloads};

const PLAIN: Way = Way { mtu: 1500, behind: None };
const FAMILIES: [usize; 2] = [IPV4, IPV6];

/// Captures a stream at the sender and on the wire.
fn stream(chain: &Chain, family: usize) -> [Vec<Timed>; 2] {
    let devices = [(&chain.sender, "s0"), (&chain.bridge, "w0")];
    let talk = || chain.stream(chain.ends(family), BYTES);
    chain.record(&devices, family, talk).try_into().unwrap()
}

/// Creates a directory with these captures, as tcpdump writes them.
fn bench(captures: &[(&str, &[Timed])]) -> Bench {
    let bench = Bench::new();
    for (name, packets) in captures {
        bench.put(name, &capture_of(Format::Pcap, ETHERNET, packets));
    }
    bench
}

fn bytes(packets: &[Timed]) -> Vec<Vec<u8>> {
    packets.iter().map(|(_, frame)| frame.clone()).collect()
}

fn parsed(frame: &[u8]) -> Parsed {
    oracle::parse(frame, Link::Ethernet, Lengths::Declared)
}

fn tcp_of(frame: &[u8]) -> Option<usize> {
    parsed(frame).last().filter(|last| last.name == "tcp").map(|tcp| tcp.offset)
}

fn is_syn(frame: &[u8]) -> bool {
    tcp_of(frame).is_some_and(|tcp| frame[tcp + 13] & 2 != 0)
}

/// Returns the number of payload bytes of a TCP packet; zero for other packets.
fn payload(frame: &[u8]) -> usize {
    let parsed = parsed(frame);
    parsed.last().filter(|last| last.name == "tcp").map_or(0, |tcp| tcp.end - tcp.inside())
}

fn without_syns(packets: &[Timed]) -> Vec<Timed> {
    packets.iter().filter(|(_, frame)| !is_syn(frame)).cloned().collect()
}

/// Returns the TCP packets in each direction of their flow: first the sender's, then the receiver's.
fn by_direction(frames: &[Vec<u8>]) -> [Vec<Vec<u8>>; 2] {
    let tcp: Vec<_> = frames.iter().filter(|frame| tcp_of(frame).is_some()).cloned().collect();
    let sender = tcp.iter().max_by_key(|frame| frame.len()).map(|frame| frame[6..12].to_vec());
    tcp.into_iter().partition(|frame| sender.as_deref() == Some(&frame[6..12])).into()
}

/// Asserts that `wire` wrote the packets that the wire carried.
fn assert_is_the_wire(case: &str, output: &[Vec<u8>], wire: &[Timed]) {
    for (found, expected) in by_direction(output).iter().zip(by_direction(&bytes(wire))) {
        let lengths = |frames: &[Vec<u8>]| {
            frames.iter().map(|frame| payload(frame)).filter(|&len| len > 0).collect::<Vec<_>>()
        };
        assert_eq!(lengths(found), lengths(&expected), "{case}: where it was cut");
        assert!(*found == expected, "{case}: other bytes than on the wire");
    }
}

fn longest(frames: &[Vec<u8>]) -> usize {
    frames.iter().map(Vec::len).max().unwrap_or(0)
}

/// Runs `inspect`, and returns its exit code and its report.
fn inspect(bench: &Bench, file: &str) -> (i32, Value) {
    let run = bench.run(&format!("inspect --json {file}"));
    (run.code, run.json())
}

/// Asserts that `inspect` classifies a capture as the wire, and that no command changes it.
fn assert_taken_for_the_wire(case: &str, packets: &[Timed], options: &str) {
    let bench = bench(&[("wire.pcap", packets)]);
    let run = bench.run(&format!("inspect --json wire.pcap {options}"));
    let report = run.json();
    assert_eq!(report["verdict"]["vantage"], "wire", "{case}: {report}");
    assert_eq!(report["verdict"]["wire_faithful"], true, "{case}: {report}");
    assert_eq!(run.code, 0, "{case}");
    let run = bench.run(&format!("wire --strict --json -r wire.pcap -w out.pcap {options}"));
    assert_eq!(run.code, 0, "{case}: {}", run.stdout);
    assert_eq!(run.json()["superframes"]["split"], 0, "{case}: {}", run.stdout);
    assert!(bench.get("out.pcap") == bench.get("wire.pcap"), "{case}: wire changed the wire");
}

/// Returns the segment sizes that `wire` used, with the evidence for each.
fn sizes(report: &Value) -> Vec<(u64, String)> {
    let rows = report["superframes"]["sizes"].as_array().unwrap();
    let row =
        |row: &Value| (row["bytes"].as_u64().unwrap(), row["source"].as_str().unwrap().into());
    rows.iter().map(row).collect()
}

#[test]
fn a1_path_mtu_below_the_mss() {
    let Some(chain) = Chain::new(Way { mtu: 1500, behind: Some(1300) }) else { return };
    for (family, size) in [(IPV4, 1248), (IPV6, 1228)] {
        let [host, wire] = stream(&chain, family);
        let most = bytes(&wire).iter().filter(|frame| payload(frame) == size).count();
        assert!(most > 300 && longest(&bytes(&wire)) == 1514, "the path MTU was found on the way");
        let icmp = |name: &str| bytes(&host).iter().any(|frame| is_too_big(frame, name));
        assert!(icmp("ipv4") || icmp("ipv6"), "and recorded in capture");
        let bench = bench(&[("host.pcap", &host)]);
        let (code, report) = inspect(&bench, "host.pcap");
        assert_eq!((code, &report["verdict"]["vantage"]), (1, &"sender-host".into()), "{report}");
        let rows = report["superframes"]["mss"].as_array().unwrap();
        assert!(rows.iter().any(|row| row["bytes"] == size), "{report}");
        let run = bench.run("wire --json -r host.pcap -w out.pcap");
        let output = frames(&bench.get("out.pcap"));
        if run.json()["guessed"] == 0 {
            assert_is_the_wire(&run.stdout, &output, &wire);
        }
        // A guess is allowed only for segments sent while the message was in flight.
        let carried = bytes(&wire);
        let right = output.iter().filter(|frame| carried.contains(frame)).count();
        assert!(right * 20 > carried.len() * 19, "{right} of {}: {}", carried.len(), run.stdout);
    }
}

/// Returns whether a frame is an ICMP "fragmentation needed" or ICMPv6 "packet too big" message.
fn is_too_big(frame: &[u8], network: &str) -> bool {
    let parsed = parsed(frame);
    let Some(ip) = parsed.layers.iter().find(|layer| layer.name == network) else { return false };
    let kind = frame.get(ip.inside()..ip.inside() + 2);
    match network {
        "ipv4" => ip.number("protocol") == 1 && kind == Some(&[3, 4]),
        _ => ip.number("next_header") == 58 && kind == Some(&[2, 0]),
    }
}

/// Configures routes with a small MTU on the sender. Its SYNs still announce the segment size for the device MTU.
fn narrow(chain: &Chain) {
    for (family, route) in [(IPV4, "10.9.0.0/24"), (IPV6, "fd09::/64")] {
        let advertised = [1460, 1440][family];
        let old = ["src 10.9.0.1", "proto kernel metric 256"][family];
        let six = ["", "-6 "][family];
        ip(
            &chain.sender,
            &format!("{six}route replace {route} dev s0 {old} mtu 1300 advmss {advertised}"),
        );
    }
}

#[test]
fn a1_the_user_s_mss_overrides_the_syn() {
    let Some(chain) = Chain::new(PLAIN) else { return };
    narrow(&chain);
    for (family, size, announced) in [(IPV4, 1248, 1460), (IPV6, 1228, 1440)] {
        let [host, wire] = stream(&chain, family);
        let syn = host.iter().find(|(_, frame)| is_syn(frame)).unwrap();
        let tcp = tcp_of(&syn.1).unwrap();
        let option = u16::from_be_bytes([syn.1[tcp + 22], syn.1[tcp + 23]]);
        assert_eq!((option, longest(&bytes(&wire))), (announced, 1314), "the SYN announces more");
        let bench = bench(&[("host.pcap", &host), ("middle.pcap", &without_syns(&host))]);
        for given in [format!("--mss {size}"), "--mtu 1300".into()] {
            for (file, wire) in [("host.pcap", wire.clone()), ("middle.pcap", without_syns(&wire))]
            {
                let line = format!("wire --strict --json -r {file} -w out.pcap {given}");
                let run = bench.run(&line);
                assert_eq!(run.code, 0, "{line}: {}{}", run.stdout, run.stderr);
                assert_eq!(sizes(&run.json()), [(size, "given".into())], "{line}");
                assert_is_the_wire(&line, &frames(&bench.get("out.pcap")), &wire);
            }
        }
        // If the user gives no size, it is derived from the IP IDs. IPv6 has none, so the size can only be guessed.
        let run = bench.run("wire --json -r host.pcap -w out.pcap");
        if family == IPV4 || run.json()["guessed"] == 0 {
            assert_is_the_wire(&run.stdout, &frames(&bench.get("out.pcap")), &wire);
        }
    }
}

#[test]
fn a2_the_sender_s_own_advmss_is_no_bound() {
    let Some(chain) = Chain::new(PLAIN) else { return };
    without_offloads(&chain.sender, "s0");
    ip(&chain.sender, "route change 10.9.0.0/24 dev s0 src 10.9.0.1 advmss 1000");
    ip(&chain.sender, "-6 route replace fd09::/64 dev s0 proto kernel metric 256 advmss 1000");
    for family in FAMILIES {
        let [host, _] = stream(&chain, family);
        assert_eq!(longest(&bytes(&host)), 1514, "more than the sender announced");
        assert_taken_for_the_wire(&format!("family {family}"), &host, "");
        assert_taken_for_the_wire("without SYNs", &without_syns(&host), "");
    }
}

#[test]
fn a3_jumbo_without_syn_is_the_wire() {
    for mtu in [4000, 9000, 9216] {
        let Some(chain) = Chain::new(Way { mtu, ..PLAIN }) else { return };
        for family in FAMILIES {
            let [_, wire] = stream(&chain, family);
            assert_taken_for_the_wire(&format!("MTU {mtu}"), &without_syns(&wire), "");
        }
    }
}

#[test]
fn a3_baby_giants_without_syn_are_the_wire() {
    let Some(chain) = Chain::new(Way { mtu: 1508, ..PLAIN }) else { return };
    for family in FAMILIES {
        let [_, wire] = stream(&chain, family);
        assert_eq!(longest(&bytes(&wire)), 1522);
        assert_taken_for_the_wire(&format!("family {family}"), &without_syns(&wire), "");
    }
}

#[test]
fn a3_long_datagrams_are_the_wire() {
    let Some(chain) = Chain::new(Way { mtu: 9000, ..PLAIN }) else { return };
    for family in FAMILIES {
        let devices = [(&chain.bridge, "w0")];
        let talk = || chain.datagrams(chain.ends(family), 8000, &[8000, 40_000, 16_000]);
        let [wire] = chain.record(&devices, family, talk).try_into().unwrap();
        assert!(longest(&bytes(&wire)) > 8000);
        assert_taken_for_the_wire(&format!("family {family}"), &wire, "");
    }
}

#[test]
fn a4_big_tcp_without_syn() {
    let Some(chain) = Chain::new(PLAIN) else { return };
    ip(&chain.sender, "link set s0 gso_max_size 180000");
    // The buffers have room for two superframes in flight.
    for (host, limits) in [(&chain.sender, "tcp_wmem"), (&chain.receiver, "tcp_rmem")] {
        let file = format!("/proc/sys/net/ipv4/{limits}");
        host.run(|| std::fs::write(file, "4096 4000000 8000000")).unwrap().unwrap();
    }
    // The kernel sends a millisecond's worth of paced data as one superframe. With the highest pacing ratio, it does so
    // even if a busy host acknowledges late.
    for phase in ["ss", "ca"] {
        let file = format!("/proc/sys/net/ipv4/tcp_pacing_{phase}_ratio");
        chain.sender.run(|| std::fs::write(file, "1000")).unwrap().unwrap();
    }
    let devices = [(&chain.sender, "s0"), (&chain.bridge, "w0")];
    let talk = || chain.stream(chain.ends(IPV6), 8 * BYTES);
    // A busy host may still need several streams.
    let long_enough = (0..20).find_map(|_| {
        let [host, wire] = chain.record(&devices, IPV6, talk).try_into().unwrap();
        // As in a capture whose filter excludes all other packets, no plain segment shows the size.
        let longer = host.into_iter().filter(|(_, f)| f.len() > JUMBOGRAM);
        Some((longer.collect::<Vec<Timed>>(), wire)).filter(|(longer, _)| longer.len() > 1)
    });
    let (jumbograms, wire) = long_enough.expect("packets longer than a length field says");
    let bench = bench(&[("host.pcap", &jumbograms)]);
    let run = bench.run("wire --json -r host.pcap -w out.pcap");
    assert_eq!(run.code, 0, "{}", run.stdout);
    let sizes = sizes(&run.json());
    assert!(sizes.iter().all(|(bytes, _)| *bytes == 1428), "{sizes:?}");
    let (output, wire) = (frames(&bench.get("out.pcap")), bytes(&wire));
    assert!(output.len() > 2 * 45 && output.iter().all(|frame| wire.contains(frame)));
}

/// The length of an Ethernet frame whose IPv6 payload is too long for the length field.
const JUMBOGRAM: usize = 14 + 40 + (1 << 16);

#[test]
fn a5_a_receiver_that_merges_is_the_receiver() {
    let Some(chain) = Chain::new(PLAIN) else { return };
    // The receiver sends acknowledgments with partial checksums, as every host does.
    set(&chain.receiver, "d0", "tx-checksum-ip-generic", true);
    set(&chain.receiver, "d0", "rx-gro", true);
    for family in FAMILIES {
        let devices = [(&chain.receiver, "d0")];
        let talk = || chain.stream(chain.ends(family), BYTES);
        let [seen] = chain.record(&devices, family, talk).try_into().unwrap();
        assert!(longest(&bytes(&seen)) > 3000, "GRO has merged");
        for packets in [seen.clone(), without_syns(&seen)] {
            let (code, report) = inspect(&bench(&[("r.pcap", &packets)]), "r.pcap");
            let verdict = &report["verdict"];
            assert_eq!((code, &verdict["vantage"]), (1, &"receiver-host".into()), "{report}");
        }
    }
}

#[test]
fn a5_a_sender_of_datagram_superframes_is_the_sender() {
    let Some(chain) = Chain::new(PLAIN) else { return };
    for family in FAMILIES {
        let devices = [(&chain.sender, "s0")];
        let talk = || chain.datagrams(chain.ends(family), 1200, &[12_345, 60_000]);
        let [seen] = chain.record(&devices, family, talk).try_into().unwrap();
        assert!(longest(&bytes(&seen)) > 60_000);
        let (code, report) = inspect(&bench(&[("s.pcap", &seen)]), "s.pcap");
        let verdict = &report["verdict"];
        assert_eq!((code, &verdict["vantage"]), (1, &"sender-host".into()), "{report}");
        // If the capture has no other packets, for example because it was filtered, a receiver could have merged these
        // packets, but nothing shows that it did.
        let alone: Vec<Timed> = seen.into_iter().filter(|(_, f)| f.len() > 1514).collect();
        let (code, report) = inspect(&bench(&[("s.pcap", &alone)]), "s.pcap");
        let verdict = &report["verdict"];
        assert!(code == 1 && verdict["vantage"] != "receiver-host", "{report}");
    }
}
