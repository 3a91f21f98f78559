//! Twins: one kernel stream, captured at its sender and on the wire at the same time.

#![cfg(target_os = "linux")]

pub(crate) mod law;
mod tagged;
mod tunnel;

use rustix::process::Signal;

use crate::common::{Bench, Timed, has, packets};
use crate::network::{Running, skip, until};
use crate::vantage::{BYTES, Chain, INSIDE, IPV4, IPV6, Way, attempt, between, ip, is_over};
use law::{Measure, Must, Twins, same};
use tagged::Tagged;
use tunnel::Tunnel;

const ETHERNET: Way = Way { mtu: 1500, behind: None };

/// List of the cases that violated the law, each with the violation.
#[derive(Default)]
struct Table {
    cases: usize,
    broken: Vec<String>,
}

impl Table {
    fn check(&mut self, case: &str, twins: &Twins, options: &str, must: Must) {
        self.count(case, twins.law(options, must));
    }

    fn count(&mut self, case: &str, outcome: Result<(), String>) {
        self.cases += 1;
        match outcome {
            Ok(()) => println!("{case}: holds"),
            Err(why) => self.broken.push(format!("{case}: {why}")),
        }
    }

    /// Checks twins twice: with the SYNs, which contain all necessary information, and without them.
    fn both(&mut self, case: &str, twins: &Twins, options: &str, with_syns: Must) {
        self.check(case, twins, options, with_syns);
        let case = format!("{case}, without SYNs");
        self.check(&case, &twins.without_syns(), options, Must::Say);
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let Self { cases, broken } = self;
            assert!(broken.is_empty(), "{} of {cases}:\n{}", broken.len(), broken.join("\n\n"));
        }
    }
}

/// Captures a stream at the sender and on the wire.
fn twins(chain: &Chain, family: usize, measure: Measure, talk: impl FnOnce()) -> Twins {
    let devices = [(&chain.sender, "s0"), (&chain.bridge, "w0")];
    let [host, wire] = chain.record(&devices, family, talk).try_into().unwrap();
    Twins { host, wire, measure }
}

fn stream(chain: &Chain, family: usize) -> Twins {
    twins(chain, family, Measure::Innermost, || chain.stream(chain.ends(family), BYTES))
}

fn families(mtu: u32) -> impl Iterator<Item = (usize, &'static str)> {
    // IPv6 requires an MTU of 1280 bytes on every link.
    let families = [(IPV4, "IPv4"), (IPV6, "IPv6")];
    families.into_iter().filter(move |(family, _)| *family == IPV4 || mtu >= 1280)
}

#[test]
fn plain_streams_of_every_mtu() {
    let mut table = Table::default();
    for mtu in [576, 1280, 1500, 1508, 4000, 9000, 9216] {
        let Some(chain) = Chain::new(Way { mtu, ..ETHERNET }) else { return };
        for (family, name) in families(mtu) {
            let twins = stream(&chain, family);
            table.both(&format!("{name}, MTU {mtu}"), &twins, "", Must::Know);
            let case = format!("{name}, MTU {mtu} given, without SYNs");
            table.check(&case, &twins.without_syns(), &format!("--mtu {mtu}"), Must::Know);
        }
    }
}

#[test]
fn streams_in_a_vlan() {
    let mut table = Table::default();
    for mtu in [1500, 9000] {
        let Some(tagged) = Tagged::new(mtu) else { return };
        for (family, name) in families(mtu) {
            let twins = tagged.stream(family);
            table.both(&format!("VLAN, {name}, MTU {mtu}"), &twins, "", Must::Know);
        }
    }
}

#[test]
fn streams_in_the_kernels_vxlan() {
    let mut table = Table::default();
    for (port, words) in [(4789, "udpcsum"), (4789, "noudpcsum"), (8472, "udpcsum")] {
        // Outer and inner MTUs. In the third case, the kernel passes the inner MTU to TCP directly, so no packet shows
        // it.
        for (outer, inner, must) in
            [(1600, 1500, Must::Know), (1500, 1450, Must::Know), (1500, 1500, Must::Say)]
        {
            let Some(chain) = Chain::new(Way { mtu: outer, ..ETHERNET }) else { return };
            if !chain.vxlan(&format!("dstport {port} {words}"), inner) {
                return;
            }
            for (family, name) in families(outer) {
                let inside = [INSIDE[0], INSIDE[1]].map(|end| end[family].parse().unwrap());
                let talk = || chain.stream(inside, BYTES);
                let twins = twins(&chain, IPV4, Measure::Innermost, talk);
                let options = if port == 4789 { "" } else { "--port vxlan=8472" };
                let case = format!("VXLAN {port} {words}, MTU {inner} in {outer}, {name}");
                table.both(&case, &twins, options, must);
            }
        }
    }
}

#[test]
fn a_path_mtu_below_the_mss() {
    let mut table = Table::default();
    for (mtu, behind) in [(1500, 1300), (9000, 1500)] {
        let Some(chain) = Chain::new(Way { mtu, behind: Some(behind) }) else { return };
        for (family, name) in families(mtu) {
            let case = format!("{name}, {mtu} before {behind}");
            let twins = stream(&chain, family);
            table.both(&case, &twins, "", Must::Say);
            table.both(&format!("{case}, no ICMP"), &twins.without_icmp(), "", Must::Say);
            // The kernel has cached the path MTU, and no packet in this capture shows it.
            let twins = stream(&chain, family);
            let given = format!("--mtu {behind}");
            table.both(&format!("{case}, known before"), &twins, "", Must::Say);
            let case = format!("{case}, known before and given");
            table.check(&case, &twins, &given, Must::Know);
            table.check(&format!("{case}, no SYNs"), &twins.without_syns(), &given, Must::Know);
        }
    }
}

#[test]
fn a_clamped_mss() {
    let mut table = Table::default();
    for (mtu, mss) in [(1500, 1200), (1500, 1360), (9000, 1440)] {
        let Some(chain) = Chain::new(Way { mtu, behind: Some(mtu) }) else { return };
        if !clamp(&chain, mss) {
            return;
        }
        for (family, name) in families(mtu) {
            let twins = stream(&chain, family);
            table.both(&format!("{name}, MSS {mss} of {mtu}"), &twins, "", Must::Know);
        }
    }
}

/// Makes the router change the MSS in all SYNs.
fn clamp(chain: &Chain, mss: u32) -> bool {
    if !has("nft") {
        return false;
    }
    let rules = format!(
        "table inet clamp {{\n chain forward {{\n type filter hook forward priority 0\n tcp flags syn \
         tcp option maxseg size set {mss}\n }}\n}}\n"
    );
    std::fs::write(chain.path("clamp"), rules).unwrap();
    let file = chain.path("clamp");
    match attempt(&chain.router, &format!("nft -f {}", file.display())) {
        Ok(()) => true,
        Err(error) => {
            skip(&format!("this machine has no rules that set an MSS: {error}"));
            false
        }
    }
}

#[test]
fn a_sender_that_announces_less_than_it_sends() {
    let mut table = Table::default();
    let Some(chain) = Chain::new(ETHERNET) else { return };
    ip(&chain.sender, "route change 10.9.0.0/24 dev s0 src 10.9.0.1 advmss 1000");
    ip(&chain.sender, "-6 route replace fd09::/64 dev s0 proto kernel metric 256 advmss 1000");
    for (family, name) in families(1500) {
        let twins = stream(&chain, family);
        table.both(&format!("{name}, advmss 1000"), &twins, "", Must::Know);
    }
}

#[test]
fn datagrams_that_the_kernel_cuts() {
    let mut table = Table::default();
    for (mtu, size, lengths) in [
        (1500, 1200, [12_345, 60_000, 2401, 48_000]),
        (1500, 1472 - 20, [58_080, 14_520, 2904, 60_000]),
        (9000, 8000, [64_000, 40_001, 16_000, 63_999]),
    ] {
        let Some(chain) = Chain::new(Way { mtu, ..ETHERNET }) else { return };
        for (family, name) in families(mtu) {
            let talk = || chain.datagrams(chain.ends(family), size, &lengths);
            let twins = twins(&chain, family, Measure::Innermost, talk);
            let case = format!("{name}, datagrams of {size}, MTU {mtu}");
            table.check(&case, &twins, "", Must::Say);
            table.check(&case, &twins, &format!("--uso-size {size}"), Must::Know);
        }
    }
}

#[test]
fn what_grosso_tunnel_sends() {
    let mut table = Table::default();
    for (kind, outer) in [
        ("vxlan id 42", IPV4),
        ("vxlan id 42", IPV6),
        ("ipip encap gue", IPV4),
        ("ip6tnl encap gue", IPV6),
        ("ip6tnl encap gue encap-remcsum", IPV6),
        ("gretap key 9 encap gue encap-csum", IPV4),
    ] {
        let Some(chain) = Chain::new(ETHERNET) else { return };
        let tunnels = [0, 1].map(|side| Tunnel::new(&chain, kind, outer, side));
        let inside = [INSIDE[0], INSIDE[1]].map(|end| end[IPV4].parse().unwrap());
        let talk = || chain.stream(inside, BYTES);
        let twins = twins(&chain, outer, Measure::Outermost, talk);
        drop(tunnels);
        table.both(&format!("grosso tunnel, {kind}"), &twins, "", Must::Know);
    }
}

/// The metadata that `grosso capture` records with each superframe leaves no ambiguity.
#[test]
fn what_grosso_capture_records() {
    let mut table = Table::default();
    for kind in ["", "vxlan id 42", "ipip encap gue", "gretap key 9 encap gue encap-csum"] {
        let Some(chain) = Chain::new(ETHERNET) else { return };
        let tunnels =
            (!kind.is_empty()).then(|| [0, 1].map(|side| Tunnel::new(&chain, kind, IPV4, side)));
        let stream = match &tunnels {
            Some(_) => [INSIDE[0], INSIDE[1]].map(|end| end[IPV4].parse().unwrap()),
            None => chain.ends(IPV4),
        };
        let talk = || {
            chain.stream(stream, BYTES);
            chain.datagrams(chain.ends(IPV4), 1200, &[12_345, 60_000]);
        };
        let (bench, wire) = recorded(&chain, talk);
        drop(tunnels);
        let run = bench.run("wire --strict --json -r host.pcapng -w out.pcapng");
        let report = run.json();
        let is_known = run.code == 0 && report["guessed"] == 0;
        let output = between(&packets(&bench.get("out.pcapng")));
        let outcome = same(&wire, &output).and(if is_known { Ok(()) } else { Err(String::new()) });
        table.count(kind, outcome.map_err(|why| format!("{why}{report}")));
    }
}

/// Returns the sender's recorded capture of a stream, and the packets on the wire.
fn recorded(chain: &Chain, talk: impl FnOnce()) -> (Bench, Vec<Timed>) {
    let bench = Bench::new();
    let file = bench.path("host.pcapng");
    let mut command = bench.command("capture -q -i s0 -w host.pcapng");
    let capture = Running::spawn(chain.sender.host(&mut command).unwrap());
    until(|| std::fs::metadata(&file).is_ok_and(|metadata| metadata.len() >= 24));
    let devices = [(&chain.bridge, "w0")];
    let [wire] = chain.record(&devices, IPV4, talk).try_into().unwrap();
    until(|| is_over(&file));
    assert_eq!(capture.stop(Signal::INT).code, Some(130), "Ctrl-C");
    (bench, wire)
}
