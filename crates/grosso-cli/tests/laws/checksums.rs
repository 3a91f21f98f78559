//! Law: the output of a command has no wrong checksum if its input has none.

use grosso_testkit::{flows::hex, random::Random};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    captures::{Captured, Recipe, capture, read, recipe},
    carried::{is_complete, is_remote, link_of, wrong},
    cases, flows,
};
use crate::common::Bench;

proptest! {
    #![proptest_config(cases(16))]

    #[test]
    fn nothing_bad_comes_of_packets(recipe in recipe()) {
        of_packets(&recipe);
    }

    #[test]
    fn nothing_bad_comes_of_merged_packets(recipe in recipe()) {
        of_merged_packets(&recipe);
    }

    #[test]
    fn nothing_bad_comes_of_what_a_host_sends(recipe in recipe()) {
        of_host_frames(&recipe);
    }
}

pub(crate) fn of_packets(recipe: &Recipe) {
    let bench = Bench::new();
    let name = format!("a.{}", recipe.extension());
    put(&bench, &name, recipe, &recipe.frames(flows::on_wire));
    check(&bench, &name, recipe, "", TUNNELS);
}

pub(crate) fn of_merged_packets(recipe: &Recipe) {
    let bench = Bench::new();
    let name = format!("wire.{}", recipe.extension());
    put(&bench, &name, recipe, &recipe.frames(flows::on_wire));
    bench.ok(&format!("coalesce -q -r {name} -w a.pcapng --hold 1ms"));
    check(&bench, "a.pcapng", recipe, "", TUNNELS);
}

pub(crate) fn of_host_frames(recipe: &Recipe) {
    let bench = Bench::new();
    let name = format!("a.{}", recipe.extension());
    put(&bench, &name, recipe, &recipe.frames(flows::on_host));
    let size = *recipe.random().choose(&["", "--uso-size 1200", "--uso-size 537"]);
    // Unless its port is given, FOU around a partial checksum is read as UDP with a wrong checksum.
    let told: Vec<&str> = TUNNELS.iter().copied().filter(|words| !words.contains("fou")).collect();
    check(&bench, &name, recipe, size, &told);
}

fn put(bench: &Bench, name: &str, recipe: &Recipe, frames: &[Vec<u8>]) {
    let packets = frames.iter().map(|frame| Captured::whole(recipe.link_type(), frame.clone()));
    bench.put(name, &capture(recipe.format(), &packets.collect::<Vec<_>>()));
}

/// Runs every command on a capture, and again on the outputs; `size` is the option that gives `wire` the UDP segment
/// size.
fn check(bench: &Bench, name: &str, recipe: &Recipe, size: &str, tunnels: &[&str]) {
    nothing_bad(bench, name, "the input");
    let mut random = recipe.random();
    let fou = "--port fou=5555/4";
    let fragment = |random: &mut Random, from: &str, to: &str| {
        let mtu = random.within(576, 1500);
        format!("fragment --mtu {mtu} --ignore-df --seed 7 -r {from} -w {to}")
    };
    let words = *random.choose(tunnels);

    is_wire(bench, &format!("wire {size} -r {name} -w wire.pcapng"), "wire.pcapng");
    run(bench, &format!("segment -r {name} -w segment.pcapng"), "segment.pcapng");
    run(bench, &fragment(&mut random, name, "fragment.pcapng"), "fragment.pcapng");
    run(bench, "reassemble -r fragment.pcapng -w again.pcapng", "again.pcapng");
    run(bench, &format!("decap {fou} -r {name} -w decap.pcapng"), "decap.pcapng");
    run(bench, &format!("decap {fou} --recursive -r {name} -w decap.pcapng"), "decap.pcapng");
    is_wire(bench, &format!("wire {size} -r decap.pcapng -w bare.pcapng"), "bare.pcapng");

    run(bench, &format!("encap --seed 7 -r {name} -w around.pcapng type {words}"), "around.pcapng");
    // Unless its port is given, a FOU packet is read as UDP, and a size option would make `wire` split it.
    let size = if words.contains("fou") { "" } else { size };
    is_wire(bench, &format!("wire {size} -r around.pcapng -w tunnel.pcapng"), "tunnel.pcapng");
    run(bench, "segment -r around.pcapng -w segment.pcapng", "segment.pcapng");
    run(bench, &format!("decap {fou} -r around.pcapng -w decap.pcapng"), "decap.pcapng");
    run(bench, &fragment(&mut random, "tunnel.pcapng", "fragment.pcapng"), "fragment.pcapng");
    let line = format!("decap {fou} --recursive -r fragment.pcapng -w decap.pcapng");
    run(bench, &line, "decap.pcapng");
}

/// Runs a command and examines its output.
fn run(bench: &Bench, line: &str, to: &str) -> Value {
    let report = bench.ok(&format!("{line} --json")).json();
    nothing_bad(bench, to, line);
    report
}

/// Checks the output of `wire`, which leaves a checksum to a device only in packets that it reports as left.
fn is_wire(bench: &Bench, line: &str, to: &str) {
    let report = run(bench, line, to);
    let left: u64 = report["left"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    let packets = read(&bench.get(to));
    let is_partial = |packet: &&Captured| {
        // A checksum that a tunnel header leaves to the receiver is not left to a device.
        let is_left = |link| !is_complete(&packet.data, link) && !is_remote(&packet.data, link);
        link_of(packet.link_type).is_some_and(is_left)
    };
    let partial: Vec<&Captured> = packets.iter().filter(is_partial).collect();
    assert!(
        partial.len() as u64 <= left,
        "{line}: {left} left, {} partial, the first is {}",
        partial.len(),
        hex(&partial[0].data),
    );
}

/// Asserts that neither the program nor the oracle finds a wrong checksum in a capture.
fn nothing_bad(bench: &Bench, name: &str, made_by: &str) {
    for (packet, number) in read(&bench.get(name)).iter().zip(1..) {
        let Some(link) = link_of(packet.link_type) else { continue };
        if let Some(verdict) = wrong(&packet.data, link) {
            let frame = hex(&packet.data);
            panic!("{made_by}: packet {number} of {name} is wrong: {verdict:x?}\n{frame}");
        }
    }
    let run = bench.run(&format!("csum verify --json -r {name}"));
    let report = run.json();
    let bad = report["rows"].as_array().unwrap().iter().find(|row| row["verdict"] == "bad");
    assert_eq!(report["levels"]["bad"], json!(0), "{made_by}: {bad:#?}");
    assert_eq!(run.code, 0, "{made_by}: {}", run.stderr);
}

/// Tunnels of every type, over both IP versions, with checksums and without.
const TUNNELS: &[&str] = &[
    "vxlan id 42 local 192.0.2.1 remote 192.0.2.2",
    "vxlan id 42 gbp 7 noudpcsum local 192.0.2.1 remote 192.0.2.2",
    "vxlan id 42 remcsumtx remcsumrx local 192.0.2.1 remote 192.0.2.2",
    "vxlan id 42 local 2001:db8::1 remote 2001:db8::2",
    "vxlan id 42 gpe local 192.0.2.1 remote 192.0.2.2",
    "geneve id 42 local 192.0.2.1 remote 192.0.2.2",
    "geneve id 42 innerprotoinherit local 2001:db8::1 remote 2001:db8::2",
    "gretap key 9 csum local 192.0.2.1 remote 192.0.2.2",
    "gre local 192.0.2.1 remote 192.0.2.2",
    "gre key 9 csum seq local 192.0.2.1 remote 192.0.2.2",
    "ip6gre key 9 csum local 2001:db8::1 remote 2001:db8::2",
    "ipip local 192.0.2.1 remote 192.0.2.2",
    "ipip local 192.0.2.1 remote 192.0.2.2 encap gue",
    "ipip local 192.0.2.1 remote 192.0.2.2 encap gue encap-remcsum encap-csum",
    "ipip local 192.0.2.1 remote 192.0.2.2 encap gue encap-variant 1",
    "ipip local 192.0.2.1 remote 192.0.2.2 encap fou encap-dport 5555",
    "gre key 9 local 192.0.2.1 remote 192.0.2.2 encap gue encap-csum",
    "sit local 192.0.2.1 remote 192.0.2.2",
    "ip6tnl local 2001:db8::1 remote 2001:db8::2",
    "ip6tnl encaplimit none local 2001:db8::1 remote 2001:db8::2",
];
