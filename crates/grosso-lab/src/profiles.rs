//! Runs a trace through every profile. The result shows how many packets each profile merges, how many of them
//! irreversibly, and how long this takes.

use std::{sync::Arc, time::Instant};

use grosso::{CoalesceOptions, Delivery, Frame, Meta, Profile, Sink, checksum::Checksum};
use grosso_io::{PortBuffer, PortCoalescer};
use grosso_wire::{LinkType, Ports};
use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    statistics::{thousands, whole},
    table::{self, Column},
};

/// Results of all profiles for the trace.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct Results {
    /// Number of packets in the trace.
    pub packets: usize,
    /// Number of packets without payload in the trace.
    pub acknowledgments: usize,
    /// One row for each profile.
    pub rows: Vec<ProfileRow>,
}

/// Results of one profile.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct ProfileRow {
    /// Name of the profile.
    pub profile: String,
    /// Number of delivered frames.
    pub frames: usize,
    /// Number of superframes among the delivered frames.
    pub superframes: usize,
    /// Median number of packets per frame with data.
    pub segments_p50: u32,
    /// 99th percentile of the number of packets per frame with data.
    pub segments_p99: u32,
    /// Number of delivered frames without payload.
    pub acknowledgments: usize,
    /// Number of packets in superframes that do not record where to split them, so that the original packets cannot be
    /// restored.
    pub melted: usize,
    /// Nanoseconds per packet, in the fastest of several runs.
    pub ns_per_packet: f64,
}

impl Results {
    /// Runs the trace through every built-in profile and through `more`.
    #[must_use]
    pub fn measure(more: Vec<Profile>) -> Self {
        let trace: Vec<_> = trace().into_iter().map(Arc::new).collect();
        let profiles = Profile::all().into_iter().chain(more);
        Self {
            packets: trace.len(),
            acknowledgments: trace.iter().filter(|packet| packet.len() == HEADER_BYTES).count(),
            rows: profiles.map(|profile| ProfileRow::measure(&profile, &trace)).collect(),
        }
    }

    /// Formats the results as text.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!(
            "lab profiles: {} packets of {} connections, including {} acknowledgments;\n\
             {} packets per poll, one packet every {} ns\n\n",
            thousands(self.packets as f64),
            FLOWS,
            thousands(self.acknowledgments as f64),
            POLL_PACKETS,
            GAP_NS,
        );
        table::write(&COLUMNS, &self.rows, &mut text);
        text + NOTES
    }
}

impl ProfileRow {
    fn measure(profile: &Profile, trace: &[Arc<Vec<u8>>]) -> Self {
        let mut seen = Seen::default();
        let mut fastest_ns = f64::INFINITY;
        for _ in 0..RUNS {
            seen = Seen::default();
            let started = Instant::now();
            seen.take(profile, trace);
            fastest_ns = fastest_ns.min(started.elapsed().as_nanos() as f64);
        }
        seen.segments.sort_unstable();
        let rank = |share: usize| {
            let last = seen.segments.len().saturating_sub(1);
            seen.segments.get(last * share / 100).copied().unwrap_or_default()
        };
        Self {
            profile: profile.name.to_string(),
            frames: seen.frames,
            superframes: seen.superframes,
            segments_p50: rank(50),
            segments_p99: rank(99),
            acknowledgments: seen.acknowledgments,
            melted: seen.melted,
            ns_per_packet: fastest_ns / trace.len().max(1) as f64,
        }
    }
}

/// Counters for delivered frames.
#[derive(Debug, Default)]
struct Seen {
    frames: usize,
    superframes: usize,
    acknowledgments: usize,
    melted: usize,
    /// Number of packets in each frame with data.
    segments: Vec<u32>,
}

impl Seen {
    /// Runs the trace through a profile, and counts the delivered frames.
    fn take(&mut self, profile: &Profile, trace: &[Arc<Vec<u8>>]) {
        let options = CoalesceOptions::new(LinkType::Ethernet, 1);
        let mut coalescer = PortCoalescer::new(options.profile(profile.clone()).ports(Ports::NONE));
        let sink: &mut dyn Sink<PortBuffer> = &mut |out: Delivery<'_, _>| self.count(&out);
        let mut now_ns = 0;
        for (i, packet) in trace.iter().enumerate() {
            let meta = Meta { checksum: Checksum::Unnecessary { levels: 0 }, ..Meta::default() };
            let buffer = PortBuffer::shared(Arc::clone(packet), 0..packet.len());
            coalescer.push(Frame { buffer, meta }, now_ns, sink);
            now_ns += GAP_NS;
            if (i + 1).is_multiple_of(POLL_PACKETS) {
                coalescer.poll_end(now_ns, sink);
            }
        }
        coalescer.finish(sink);
    }

    fn count(&mut self, delivery: &Delivery<'_, PortBuffer>) {
        self.frames += 1;
        if delivery.len == HEADER_BYTES {
            self.acknowledgments += 1;
        } else {
            self.segments.push(delivery.packets);
        }
        if delivery.is_joined() {
            self.superframes += 1;
            if delivery.meta.gso.is_none() {
                self.melted += delivery.packets as usize;
            }
        }
    }
}

/// State of one connection.
#[derive(Clone, Copy, Debug)]
struct Connection {
    kind: Kind,
    sequence: u32,
    acknowledgment: u32,
}

/// Kind of traffic on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Full-size data packets.
    Bulk,
    /// Data packets from a sender with a small MTU.
    Small,
    /// Data packets that also acknowledge data.
    Both,
    /// Acknowledgments of data that this host sent, one for every two packets.
    Acknowledging,
}

impl Connection {
    fn new(flow: usize) -> Self {
        let kind = match flow % 12 {
            0 | 1 => Kind::Small,
            2 => Kind::Both,
            3 => Kind::Acknowledging,
            _ => Kind::Bulk,
        };
        Self { kind, sequence: 1, acknowledgment: 1 }
    }

    /// Returns the next packet of the connection.
    fn next(&mut self, flow: usize, now_ns: u64, dice: &mut fastrand::Rng) -> Vec<u8> {
        let payload = match self.kind {
            Kind::Bulk | Kind::Both => 1428,
            Kind::Small => 516,
            Kind::Acknowledging => 0,
        };
        if matches!(self.kind, Kind::Both | Kind::Acknowledging) {
            self.acknowledgment = self.acknowledgment.wrapping_add(2 * 1428);
        }
        let is_marked = dice.u32(..1000) == 0;
        let pushes = payload > 0 && dice.u32(..45) == 0;
        let packet = self.packet(flow, now_ns, payload, is_marked, pushes);
        self.sequence = self.sequence.wrapping_add(payload.into());
        packet
    }

    /// Returns an Ethernet frame with IPv6, TCP and a timestamp in milliseconds. Its checksum is not computed, because
    /// the device is assumed to have verified it.
    fn packet(
        &self,
        flow: usize,
        now_ns: u64,
        payload: u16,
        is_marked: bool,
        pushes: bool,
    ) -> Vec<u8> {
        let mut bytes = vec![2; 12];
        // The traffic class contains either ECT(0) or CE.
        let class = if is_marked { 0x30 } else { 0x20 };
        bytes.extend([0x86, 0xdd, 0x60, class, 0, 0]);
        bytes.extend((32 + payload).to_be_bytes());
        bytes.extend([6, 64]);
        bytes.extend([0x20; 32]);
        bytes.extend((1024 + flow as u16).to_be_bytes());
        bytes.extend([0x14, 0x51]);
        bytes.extend(self.sequence.to_be_bytes());
        bytes.extend(self.acknowledgment.to_be_bytes());
        bytes.extend([0x80, if pushes { 0x18 } else { 0x10 }, 1, 0, 0, 0, 0, 0, 1, 1, 8, 10]);
        bytes.extend(((now_ns / 1_000_000) as u32).to_be_bytes());
        bytes.extend([0, 0, 0, 9]);
        bytes.resize(bytes.len() + usize::from(payload), 7);
        bytes
    }
}

/// Returns bursts of packets from all connections, in an order that the seed determines.
fn trace() -> Vec<Vec<u8>> {
    let mut dice = fastrand::Rng::with_seed(SEED);
    let mut connections: Vec<_> = (0..FLOWS).map(Connection::new).collect();
    let mut packets = Vec::with_capacity(PACKETS);
    while packets.len() < PACKETS {
        let flow = dice.usize(..FLOWS);
        let burst = dice.usize(1..=12).min(PACKETS - packets.len());
        for _ in 0..burst {
            let now_ns = packets.len() as u64 * GAP_NS;
            packets.push(connections[flow].next(flow, now_ns, &mut dice));
        }
    }
    packets
}

/// Number of packets in the trace.
const PACKETS: usize = 40_000;
/// Number of connections in the trace.
const FLOWS: usize = 24;
/// Seed of the trace.
const SEED: u64 = 5;
/// Time between two packets in nanoseconds, which corresponds to full-size packets at 10 Gb/s.
const GAP_NS: u64 = 1200;
/// Number of packets per poll, as in NAPI.
const POLL_PACKETS: usize = 64;
/// Total length of the Ethernet header, the IPv6 header, and the TCP header with a timestamp.
const HEADER_BYTES: usize = 14 + 40 + 32;
/// Number of runs; only the fastest counts.
const RUNS: usize = 5;
const COLUMNS: [Column<ProfileRow>; 8] = [
    Column::left(&["profile"], 16, |row| row.profile.clone()),
    Column::right(&["frames"], 8, |row| row.frames.to_string()),
    Column::right(&["superframes"], 12, |row| row.superframes.to_string()),
    Column::right(&["p50"], 5, |row| row.segments_p50.to_string()),
    Column::right(&["p99"], 5, |row| row.segments_p99.to_string()),
    Column::right(&["acks"], 10, |row| row.acknowledgments.to_string()),
    Column::right(&["lossy"], 9, |row| row.melted.to_string()),
    Column::right(&["ns/packet"], 10, |row| whole(row.ns_per_packet)),
];
const NOTES: &str = "
p50, p99: median and 99th percentile of the packets in a data frame.
acks: delivered frames without data. lossy: packets in superframes that cannot
be split into the original packets. Counts are equal on every machine.
ns/packet is the fastest of 5 runs on this machine.
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::assert_text_kept;

    #[test]
    fn counts_are_repeatable_and_follow_the_profiles() {
        let results = Results::measure(Vec::new());
        let without_time = |mut results: Results| {
            results.rows.iter_mut().for_each(|row| row.ns_per_packet = 0.0);
            results
        };
        assert_eq!(without_time(results.clone()), without_time(Results::measure(Vec::new())));
        let row = |name: &str| results.rows.iter().find(|row| row.profile == name).unwrap();
        for profile in Profile::all() {
            let row = row(&profile.name);
            assert_eq!(row.melted == 0, profile.rules.is_invertible(), "{row:?}");
            let is_all = row.acknowledgments == results.acknowledgments;
            let merges = ["myri10ge", "freebsd-2011", "freebsd"].contains(&&*profile.name);
            assert_eq!(is_all, !merges, "{row:?}");
        }
        assert_eq!(row("ndis-uro").frames, PACKETS, "there is no UDP");
        assert!(row("inet-lro-2007").segments_p99 <= 7);
        assert!(row("linux").frames < PACKETS / 2);
        assert!(results.table().lines().all(|line| line.len() <= 80), "{}", results.table());
    }

    #[test]
    fn a_profile_is_a_line_of_the_table() {
        let row = ProfileRow {
            profile: "linux".into(),
            frames: 12_345,
            superframes: 2_345,
            segments_p50: 9,
            segments_p99: 44,
            acknowledgments: 678,
            melted: 12,
            ns_per_packet: 45.6,
        };
        let results = Results { packets: 40_000, acknowledgments: 3_400, rows: vec![row] };
        assert_text_kept("profiles", &results.table());
    }
}
