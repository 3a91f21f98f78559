//! The law of twins, two captures of one stream: for the sender's capture, `wire` must output exactly the packets
//! captured on the wire, or its report must admit a guess.

use std::collections::BTreeMap;

use grosso_capture::Format;
use grosso_testkit::{
    flows::hex,
    oracle::{self, Lengths, Link, Parsed, flow_of},
};
use serde_json::Value;

use crate::common::{Bench, ETHERNET, Timed, capture_of, frames, packets};

/// One stream, captured on its host and on the wire.
#[derive(Clone, Debug)]
pub(crate) struct Twins {
    pub(crate) host: Vec<Timed>,
    pub(crate) wire: Vec<Timed>,
    /// The header after which superframes and their packets have the same payload.
    pub(crate) measure: Measure,
}

/// The header whose payload is unchanged by segmentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// The innermost transport header, because the kernel repeats the outer headers.
    Innermost,
    /// The outermost header, because the socket received many datagrams in one call.
    Outermost,
}

/// Requirement on a command: whether it may guess, and what it must report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Must {
    /// The file or the user provides all facts: nothing may be guessed.
    Know,
    /// Guesses and packets left unchanged must be reported.
    Say,
}

impl Twins {
    /// Returns the captures without the SYNs, as if they had been started later.
    pub(crate) fn without_syns(&self) -> Self {
        let keep = |packets: &[Timed]| {
            packets.iter().filter(|(_, frame)| !is_syn(frame)).cloned().collect()
        };
        Self { host: keep(&self.host), wire: keep(&self.wire), ..*self }
    }

    /// Returns the captures without ICMP, like captures with a filter.
    pub(crate) fn without_icmp(&self) -> Self {
        let keep = |packets: &[Timed]| {
            packets.iter().filter(|(_, frame)| is_compared(frame)).cloned().collect()
        };
        Self { host: keep(&self.host), wire: keep(&self.wire), ..*self }
    }

    /// Checks the law; the error describes the violation.
    pub(crate) fn law(&self, options: &str, must: Must) -> Result<(), String> {
        self.is_a_test()?;
        let bench = Bench::new();
        bench.put("host.pcap", &pcap(&self.host));
        bench.put("wire.pcap", &pcap(&self.wire));
        self.host_becomes_wire(&bench, options, must)?;
        self.wire_stays(&bench, options)
    }

    /// Checks that the host's capture has superframes; otherwise it would prove nothing.
    fn is_a_test(&self) -> Result<(), String> {
        let [host, wire] = [&self.host, &self.wire].map(|packets| compared(packets));
        let longest = |frames: &[Vec<u8>]| frames.iter().map(Vec::len).max().unwrap_or(0);
        let (superframe, packet) = (longest(&host), longest(&wire));
        if superframe <= packet || wire.len() <= host.len() {
            return Err(format!("no twins: {superframe} bytes on the host, {packet} on the wire"));
        }
        Ok(())
    }

    fn host_becomes_wire(&self, bench: &Bench, options: &str, must: Must) -> Result<(), String> {
        let run = bench.run(&format!("wire --json -r host.pcap -w out.pcap {options}"));
        if run.code != 0 {
            return Err(format!("wire: exit {}: {}", run.code, run.stderr));
        }
        let report = run.json();
        let guessed = number(&report, "guessed")?;
        let contradictions = number(&report, "contradictions")?;
        let left = left(&report);
        let rows = report["superframes"]["sizes"].as_array().ok_or("no sizes")?;
        let by_guess = rows.iter().filter(|row| row["guess"] == true);
        let by_guess: u64 = by_guess.filter_map(|row| row["superframes"].as_u64()).sum();
        if by_guess > guessed {
            return Err(format!("{by_guess} superframes in rows that guess, but guessed {report}"));
        }
        if guessed == 0 && left == 0 {
            same(&self.wire, &packets(&bench.get("out.pcap")))
                .map_err(|text| format!("{text}\nof {report}"))?;
            let code = bench.run(&format!("wire -q --strict -r host.pcap -w s {options}")).code;
            let expected = i32::from(contradictions > 0);
            return if code == expected { Ok(()) } else { Err(format!("--strict: exit {code}")) };
        }
        if must == Must::Know {
            return Err(format!("{guessed} guessed, {left} left: {report}"));
        }
        self.strict_leaves_whole(bench, options)
    }

    /// Checks that `--strict` leaves frames that would need a guess unchanged, and that all other frames become wire
    /// packets.
    fn strict_leaves_whole(&self, bench: &Bench, options: &str) -> Result<(), String> {
        let line = format!("wire --json --strict -r host.pcap -w strict.pcap {options}");
        let run = bench.run(&line);
        if run.code != 1 {
            return Err(format!("--strict: exit {}: {}{}", run.code, run.stdout, run.stderr));
        }
        let report = run.json();
        let mut missing = balance(&compared(&self.wire));
        let mut own = balance(&compared(&self.host));
        let mut whole: Vec<Vec<u8>> = Vec::new();
        for frame in compared_frames(frames(&bench.get("strict.pcap"))) {
            if take(&mut missing, &frame) {
                continue;
            }
            if !take(&mut own, &frame) {
                return Err(format!("--strict invents {}\nof {report}", hex(&frame)));
            }
            whole.push(frame);
        }
        let rows = report["superframes"]["sizes"].as_array().ok_or("no sizes")?;
        let is_cut_by_guess = rows.iter().any(|row| row["guess"] == true);
        if whole.len() as u64 != left(&report) || is_cut_by_guess {
            return Err(format!("--strict left {} whole, and says {report}", whole.len()));
        }
        let missing = missing.into_iter().flat_map(|(frame, count)| vec![frame; count]);
        let missing: Vec<Vec<u8>> = missing.collect();
        let [kept, cut] = [&whole, &missing].map(|frames| self.measure.sum(frames));
        if kept != cut {
            return Err(format!("--strict: {kept} bytes left whole, {cut} missing: {report}"));
        }
        Ok(())
    }

    /// Checks that a capture of the wire is classified as the wire and is not changed.
    fn wire_stays(&self, bench: &Bench, options: &str) -> Result<(), String> {
        // Only ports apply to the wire: sizes in the options refer to the host's superframes.
        let ports: Vec<_> = options.split("--").filter(|word| word.starts_with("port")).collect();
        let ports = ports.iter().map(|word| format!(" --{word}")).collect::<String>();
        let run = bench.run(&format!("inspect --json wire.pcap{ports}"));
        let verdict = run.json()["verdict"].clone();
        if run.code != 0 || verdict["wire_faithful"] != true || verdict["vantage"] != "wire" {
            return Err(format!("the wire: exit {}: {}", run.code, run.stdout));
        }
        let run = bench.run(&format!("wire --json --strict -r wire.pcap -w same.pcap{ports}"));
        if run.code != 0 || frames(&bench.get("same.pcap")) != frames(&bench.get("wire.pcap")) {
            return Err(format!("the wire is changed, exit {}: {}", run.code, run.stdout));
        }
        Ok(())
    }
}

impl Measure {
    fn sum(self, frames: &[Vec<u8>]) -> usize {
        frames.iter().map(|frame| self.of(frame)).sum()
    }

    fn of(self, frame: &[u8]) -> usize {
        let parsed = parsed(frame);
        let mut transports = parsed.layers.iter().filter(|layer| is_transport(layer.name));
        let layer = match self {
            Self::Innermost => transports.next_back(),
            Self::Outermost => transports.next(),
        };
        layer.map_or(0, |layer| layer.end - layer.inside())
    }
}

/// Compares the packets of every flow, in order.
pub(crate) fn same(wire: &[Timed], ours: &[Timed]) -> Result<(), String> {
    let (expected, found) = (by_flow(&compared(wire)), by_flow(&compared(ours)));
    for flow in expected.keys().chain(found.keys()) {
        let of = |flows: &BTreeMap<String, Vec<Vec<u8>>>| flows.get(flow).cloned();
        let (wire, ours) = (of(&expected).unwrap_or_default(), of(&found).unwrap_or_default());
        let place = (0..wire.len().max(ours.len())).find(|&i| wire.get(i) != ours.get(i));
        if let Some(place) = place {
            let shown =
                |frames: &[Vec<u8>]| frames.get(place).map_or_else(|| "none".into(), |f| hex(f));
            return Err(format!(
                "flow [{flow}], packet {place} of {} and {}\n wire: {}\n ours: {}",
                wire.len(),
                ours.len(),
                shown(&wire),
                shown(&ours)
            ));
        }
    }
    Ok(())
}

fn by_flow(frames: &[Vec<u8>]) -> BTreeMap<String, Vec<Vec<u8>>> {
    let mut flows: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
    for frame in frames {
        let flow = flow_of(&readable(frame), Link::Ethernet);
        let flow = flow.map_or_else(|| "of none".into(), |flow| flow.to_string());
        flows.entry(flow).or_default().push(frame.clone());
    }
    flows
}

fn balance(frames: &[Vec<u8>]) -> BTreeMap<Vec<u8>, usize> {
    let mut balance = BTreeMap::new();
    for frame in frames {
        *balance.entry(frame.clone()).or_default() += 1;
    }
    balance
}

fn take(balance: &mut BTreeMap<Vec<u8>, usize>, frame: &[u8]) -> bool {
    match balance.get_mut(frame) {
        Some(count) if *count > 0 => {
            *count -= 1;
            true
        }
        _ => false,
    }
}

/// Returns a number that must be in the report.
fn number(report: &Value, key: &str) -> Result<u64, String> {
    report[key].as_u64().ok_or_else(|| format!("no {key} in {report}"))
}

fn left(report: &Value) -> u64 {
    let left = report["left"].as_object().into_iter().flat_map(|left| left.values());
    left.filter_map(Value::as_u64).sum()
}

/// Encodes a capture as tcpdump does.
pub(crate) fn pcap(packets: &[Timed]) -> Vec<u8> {
    capture_of(Format::Pcap, ETHERNET, packets)
}

fn compared(packets: &[Timed]) -> Vec<Vec<u8>> {
    compared_frames(packets.iter().map(|(_, frame)| frame.clone()).collect())
}

fn compared_frames(mut frames: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    frames.retain(|frame| is_compared(frame));
    frames.iter_mut().for_each(|frame| write_zero_one_way(frame));
    frames
}

/// Gives a zero TCP checksum a single form. Linux writes 0 if it computes checksums during segmentation
/// (`gso_make_checksum`), and 0xffff if they were left to a device that cannot compute them (`skb_checksum_help`). A
/// capture at the host does not show which one the wire will have.
fn write_zero_one_way(frame: &mut [u8]) {
    for tcp in parsed(frame).layers.iter().filter(|layer| layer.name == "tcp") {
        let checksum = &mut frame[tcp.offset + 16..tcp.offset + 18];
        if *checksum == [0xff; 2] {
            checksum.fill(0);
        }
    }
}

/// Returns whether a frame belongs to the stream and not, for example, to neighbor discovery, which may occur at any
/// time.
fn is_compared(frame: &[u8]) -> bool {
    let parsed = parsed(frame);
    parsed.layers.iter().any(|layer| is_transport(layer.name))
}

fn parsed(frame: &[u8]) -> Parsed {
    oracle::parse(&readable(frame), Link::Ethernet, Lengths::Declared)
}

/// Returns the frame in a form that a parser can read which recognizes VXLAN only by its assigned port.
fn readable(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let parsed = oracle::parse(&frame, Link::Ethernet, Lengths::Declared);
    let udp = parsed.layers.iter().find(|layer| layer.name == "udp");
    if let Some(udp) = udp.filter(|udp| udp.number("destination_port") == 8472) {
        frame[udp.offset + 2..udp.offset + 4].copy_from_slice(&4789_u16.to_be_bytes());
    }
    frame
}

fn is_transport(name: &str) -> bool {
    matches!(name, "tcp" | "udp")
}

fn is_syn(frame: &[u8]) -> bool {
    let parsed = parsed(frame);
    let tcp = parsed.layers.iter().rfind(|layer| layer.name == "tcp");
    // The flags follow the data offset.
    tcp.is_some_and(|tcp| frame[tcp.offset + 13] & 2 != 0)
}
