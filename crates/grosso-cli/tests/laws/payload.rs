//! Law: the payload bytes of all packets are in the output, complete and unchanged, or in packets that the report
//! names.
//!
//! A command copies the packets that it refuses, so its input is in the output. Only duplicate fragments are missing
//! from the output; `reassemble` counts them.

use grosso_capture::Format;
use grosso_testkit::{
    Packet, Traffic,
    oracle::{GUE_PORT, Link},
    random::Random,
};
use proptest::prelude::*;
use serde_json::Value;

use super::{
    captures::{Captured, Recipe, capture, interleave, read, recipe},
    carried::{Carried, Fou, atomic, fragmentable, payload},
    cases,
    flows::{self, Medium},
};
use crate::common::Bench;

proptest! {
    #![proptest_config(cases(16))]

    #[test]
    fn no_payload_is_lost_or_invented(recipe in recipe()) {
        of_packets(&recipe);
    }

    #[test]
    fn no_payload_of_merged_packets_is_lost_or_invented(recipe in recipe()) {
        of_merged_packets(&recipe);
    }

    /// No command can parse these packets, so every command copies them.
    #[test]
    fn other_link_types_pass(seed in any::<u64>().no_shrink()) {
        let mut random = Random::new(seed);
        let frames = (0..20).map(|_| Captured::whole(IEEE802_11, noise(&mut random)));
        let frames: Vec<Captured> = frames.collect();
        let bench = Bench::new();
        bench.put("a", &capture(Format::Pcap, &frames));
        for command in COMMANDS {
            let (line, _) = line_of(command, 1280);
            let run = bench.run(&line);
            assert_eq!(run.code, 3, "{line}: {}", run.stderr);
            let data = |packets: &[Captured]| packets.iter().map(|p| p.data.clone()).collect();
            let (before, after): (Vec<_>, Vec<_>) = (data(&frames), data(&read(&bench.get("b"))));
            assert!(before == after, "{line}");
        }
    }
}

/// Tests eight packets of 9000 bytes, each truncated to 206 bytes of payload. Their superframe would be too long for
/// its length field.
#[test]
fn truncated_jumbo_packets_keep_their_payload() {
    let seeds = vec![16_479_430_908_611_551_258];
    let medium = Medium { link: Link::Ip, mtu: 9000 };
    of_packets(&Recipe { seeds, medium, is_pcapng: false });
}

pub(crate) fn of_packets(recipe: &Recipe) {
    let mixture = Mixture::new(recipe, Fou::Read);
    let bench = Bench::new();
    bench.put("a", &capture(recipe.format(), &mixture.packets));
    mixture.check(&bench, &mut recipe.random());
}

pub(crate) fn of_merged_packets(recipe: &Recipe) {
    // A UDP superframe with FOU inside has many packets, but shows only the headers of the first.
    let mixture = Mixture::new(recipe, Fou::Opaque);
    let bench = Bench::new();
    bench.put("wire", &capture(recipe.format(), &mixture.packets));
    run(&bench, "coalesce -r wire -w a");
    let merged = Mixture { packets: read(&bench.get("a")), ..mixture };
    merged.check(&bench, &mut recipe.random());
}

/// Tests the superframes that Grosso's own tunnels pass to their device, as `tcpdump` captures them. Each
/// is a UDP datagram with several tunnel headers, each followed by a packet. No segment size is recorded.
#[test]
fn b8_no_packet_of_a_tunnel_superframe_is_lost() {
    let inside = |index: u32| {
        let packet = Packet::new().gue(|g| g).ipv4(|ip| ip.id(index as u16));
        packet.tcp(|t| t.sequence(index * 1000)).payload_len(1000).build()
    };
    let inside: Vec<u8> = (0..45).flat_map(inside).collect();
    let around = Packet::new().ethernet(|e| e).ipv4(|ip| ip);
    let around = around.udp(|u| u.destination_port(GUE_PORT)).payload(&inside);
    let superframe = Captured::whole(1, around.build_superframe().0);
    let bench = Bench::new();
    bench.put("a", &capture(Format::Pcap, std::slice::from_ref(&superframe)));
    for command in COMMANDS {
        let (line, balance) = line_of(command, 1280);
        if matches!(balance, "fragment" | "reassemble" | "encap") {
            continue;
        }
        let report = run(&bench, &line);
        let written = read(&bench.get("b"));
        if balance == "fix" {
            assert_eq!(written[0].data[42..], superframe.data[42..], "{line}");
            continue;
        }
        let bytes: u64 = written.iter().map(|packet| payload(packet, Fou::Opaque).bytes).sum();
        // Either the frame is unchanged and the report names it, or all of its packets are in the output.
        let stayed = written.len() == 1 && written[0].data == superframe.data;
        let named = ["left", "refused", "passed"]
            .iter()
            .any(|field| report[field].as_object().is_some_and(|reasons| !reasons.is_empty()));
        let named = named || report["undescribed"].as_u64().is_some_and(|count| count > 0);
        assert!(stayed && named || bytes == 45_000, "{line}: {bytes} of 45000\n{report:#}");
    }
}

/// Packets of all kinds, including some that no host should send.
struct Mixture {
    packets: Vec<Captured>,
    /// Payload after every complete datagram has been reassembled.
    joined: Carried,
    /// Number of duplicate fragments of complete datagrams, and the number of bytes in them.
    duplicates: (u64, u64),
    /// Whether FOU is parsed.
    fou: Fou,
}

impl Mixture {
    fn new(recipe: &Recipe, fou: Fou) -> Self {
        let mut mixture =
            Self { packets: Vec::new(), joined: Carried::default(), duplicates: (0, 0), fou };
        let (medium, link_type) = (recipe.medium, recipe.link_type());
        let flows = recipe.seeds.iter().zip(0..).map(|(&seed, number)| {
            let mut random = Random::new(seed);
            let whole = |frame| Captured::whole(link_type, frame);
            let flow: Vec<Captured> = match random.below(6) {
                0 => {
                    let count = random.within(1, 4);
                    let stacks: Vec<_> =
                        (0..count).map(|_| flows::any_stack(&mut random, medium.link)).collect();
                    let traffic = Traffic::of(&stacks, seed).deviations_percent(40);
                    traffic.take(80).map(whole).collect()
                }
                1 => flows::on_host(seed, number, medium).into_iter().map(whole).collect(),
                2 => flows::packets(seed, number, medium).into_iter().map(whole).collect(),
                3 => return mixture.fragments(number, medium, link_type, &mut random),
                4 => {
                    // Merged packets may be reported as a count only.
                    let is_merged = fou == Fou::Opaque;
                    let snaplen = if is_merged { usize::MAX } else { random.within(1, 300) };
                    let flow = flows::packets(seed, number, medium).into_iter().map(whole);
                    flow.map(|packet| cut_off(packet, snaplen)).collect()
                }
                _ if recipe.is_pcapng => {
                    let frames = (0..9).map(|_| Captured::whole(IEEE802_11, noise(&mut random)));
                    frames.collect()
                }
                _ => flows::packets(seed, number, medium).into_iter().map(whole).collect(),
            };
            mixture.joined += flow.iter().map(|packet| payload(packet, fou)).sum();
            flow
        });
        let flows = flows.collect();
        mixture.packets = interleave(flows, &mut recipe.random());
        mixture
    }

    /// Returns fragments in random order: all fragments of some datagrams, with a few duplicates, and only some
    /// fragments of others.
    fn fragments(
        &mut self,
        number: u16,
        medium: Medium,
        link_type: u32,
        random: &mut Random,
    ) -> Vec<Captured> {
        let mut all = Vec::new();
        for (datagram, mut pieces) in flows::fragments(number, medium, random) {
            let of = |frame: &Vec<u8>| Captured::whole(link_type, frame.clone());
            if random.one_in(4) {
                drop(pieces.remove(random.below(pieces.len())));
                self.joined += pieces.iter().map(|piece| payload(&of(piece), self.fou)).sum();
                all.extend(pieces.iter().map(of));
                continue;
            }
            self.joined += payload(&of(&datagram), self.fou);
            if random.percent(60) {
                random.shuffle(&mut pieces);
            }
            // The last fragment is not repeated: a fragment after it belongs to one of the next datagrams.
            let again = random.below(pieces.len() - 1);
            if random.percent(30) {
                pieces.insert(again, pieces[again].clone());
                self.duplicates.0 += 1;
                self.duplicates.1 += fragmentable(&of(&pieces[again]));
            }
            all.extend(pieces.iter().map(of));
        }
        all
    }

    /// Runs every command, and checks that its input and output contain the same payload.
    fn check(&self, bench: &Bench, random: &mut Random) {
        let parts: u64 = self.packets.iter().map(fragmentable).sum();
        for command in COMMANDS {
            let (line, balance) = line_of(command, random.within(576, 2000));
            let line = match self.fou {
                Fou::Read => line,
                Fou::Opaque => line.replace("--port fou=5555/4", ""),
            };
            let report = run(bench, &line);
            let written = read(&bench.get("b"));
            self.count(balance, &report, written.len() as u64, &line);
            // FOU has no assigned port: without the option it is UDP.
            let fou = if line.contains("fou=") { Fou::Read } else { Fou::Opaque };
            let carried = |packets: &[Captured]| -> Carried {
                packets.iter().map(|packet| payload(packet, fou)).sum()
            };
            let (before, after) = (carried(&self.packets), carried(&written));
            match balance {
                "fragment" => assert_eq!(sum(&written), parts, "{line}"),
                "reassemble" => {
                    let headers = |packets: &[Captured]| packets.iter().map(atomic).sum::<u64>();
                    let gone = headers(&self.packets) - headers(&written) + self.duplicates.1;
                    assert_eq!(sum(&written) + gone, parts, "{line}: {report:#}");
                }
                "decap-recursive" => assert_eq!(after, self.joined, "{line}: {report:#}"),
                _ => assert_eq!(after, before, "{line}: {report:#}"),
            }
            if matches!(balance, "segment" | "wire") && report["left"] == serde_json::json!({}) {
                self.untouched(&written, &report, &line);
            }
        }
    }

    /// Asserts that the numbers in a report add up to the number of packets.
    fn count(&self, balance: &str, report: &Value, written: u64, line: &str) {
        let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{line}: {report:#}"));
        let came = self.packets.len() as u64;
        let foreign = self.packets.iter().filter(|p| p.link_type == IEEE802_11).count() as u64;
        let refused = || {
            let reasons = report["refused"].as_object().unwrap().values();
            reasons.map(|reason| number(&reason["count"])).sum::<u64>()
        };
        let expected = match balance {
            "wire" => {
                let superframes = &report["superframes"];
                came - number(&superframes["split"]) + number(&superframes["segments"])
            }
            "segment" => came - number(&report["cut"]) + number(&report["segments"]),
            "fragment" => came - number(&report["cut"]) + number(&report["fragments"]),
            "reassemble" => {
                assert_eq!(number(&report["duplicates"]), self.duplicates.0, "{line}");
                let gone = number(&report["fragments"]) + number(&report["duplicates"]);
                came - gone + number(&report["datagrams"])
            }
            "encap" => number(&report["encapsulated"]) + refused() + foreign,
            "decap" => {
                number(&report["decapsulated"]) + number(&report["plain"]) + refused() + foreign
            }
            "fix" => came,
            _ => written,
        };
        assert_eq!(written, expected, "{line}: {report:#}");
        assert_eq!(number(&report["input"]["packets"]), came, "{line}");
        assert_eq!(number(&report["output"]["packets"]), written, "{line}");
    }

    /// Asserts that a command that split no superframe and completed no checksum has changed no packet.
    fn untouched(&self, written: &[Captured], report: &Value, line: &str) {
        let split =
            if report["cut"].is_null() { &report["superframes"]["split"] } else { &report["cut"] };
        let completed = report["checksums_completed"].as_u64().unwrap_or(0);
        if split == 0 && completed == 0 {
            let data = |packets: &[Captured]| -> Vec<Vec<u8>> {
                packets.iter().map(|packet| packet.data.clone()).collect()
            };
            assert!(data(&self.packets) == data(written), "{line}");
        }
    }
}

fn sum(packets: &[Captured]) -> u64 {
    packets.iter().map(fragmentable).sum()
}

/// Returns the command line that reads `a` and writes `b`, and the name of the check for its report.
fn line_of(command: &'static str, mtu: usize) -> (String, &'static str) {
    let (line, balance) = command.split_once('|').unwrap();
    (line.replace("FROM", "a").replace("TO", "b").replace("MTU", &mtu.to_string()), balance)
}

/// Runs a command that may give a negative answer, or may not parse some link types.
fn run(bench: &Bench, line: &str) -> Value {
    let run = bench.run(&format!("{line} --json"));
    assert!(matches!(run.code, 0 | 1 | 3), "{line}: {}\n{}", run.code, run.stderr);
    assert!(run.code != 3 || run.stderr.contains("link type"), "{line}: {}", run.stderr);
    run.json()
}

/// Truncates a packet to `snaplen` bytes, as a capture does.
fn cut_off(mut packet: Captured, snaplen: usize) -> Captured {
    packet.data.truncate(snaplen);
    packet
}

fn noise(random: &mut Random) -> Vec<u8> {
    let len = random.within(10, 300);
    random.bytes(len)
}

/// Commands that write captures, each with the name of the check for its report.
const COMMANDS: &[&str] = &[
    "wire -r FROM -w TO|wire",
    "segment -r FROM -w TO|segment",
    "coalesce -r FROM -w TO|coalesce",
    "coalesce --hold 1ms --max-size 100000 -r FROM -w TO|coalesce",
    "csum fix --only all -r FROM -w TO|fix",
    "fragment --mtu MTU --ignore-df --seed 7 -r FROM -w TO|fragment",
    "fragment --mtu MTU --seed 7 -r FROM -w TO|fragment",
    "reassemble -r FROM -w TO|reassemble",
    "decap --port fou=5555/4 -r FROM -w TO|decap",
    "decap --port fou=5555/4 --recursive -r FROM -w TO|decap-recursive",
    "encap --seed 7 -r FROM -w TO type vxlan id 42 local 192.0.2.1 remote 192.0.2.2|encap",
    "encap --seed 7 -r FROM -w TO type gre key 9 csum local 192.0.2.1 remote 192.0.2.2|encap",
    "encap --seed 7 -r FROM -w TO type ipip local 192.0.2.1 remote 192.0.2.2 encap gue|encap",
    "encap --seed 7 -r FROM -w TO type ip6tnl local 2001:db8::1 remote 2001:db8::2|encap",
];

/// A link type that the dissector does not support.
const IEEE802_11: u32 = 105;
