//! `grosso inspect`: reports whether a capture shows packets as they were on the wire.

use std::collections::{BTreeMap, HashMap, HashSet};

use grosso::checksum::Checksum;
use grosso_capture::{Entry, Packet};
use grosso_wire::{Class, Kind, LinkType, Stack, Stop, dissect, ipv4, ipv6};

use crate::{
    capture::{
        CaptureCommand, End, EndWording, Ending, Files, Input, Next, Outcome, Session, Unparsed,
        survey_of,
    },
    checksums::{Level, Levels, Verdict, is_seeded_without_length, judge},
    error::Failure,
    evidence::{Given, Judge, Judgment, Nature, Side, Sight, Size, Tally, Vantages, side_said},
    headers::{Endpoints, is_ip, u16_at, u32_at},
    replay::{FlowReplay, Purpose, Rules, Seen},
    report::Place,
    reports::inspect::{
        Fragments, InspectInput, InspectReport, Mss, OnLink, Superframes, TunnelPackets, Vantage,
        Verdicts,
    },
    slowdown::Connections,
    suspicion::Suspicions,
};

/// Options for `grosso inspect`, which reports whether a capture shows packets as they were on the wire.
#[derive(Default)]
pub struct Inspect {
    /// Assumptions about facts that the capture does not record.
    pub given: Given,
    /// Empty table of TCP connections that already knows which flows to list.
    pub connections: Connections,
}

impl CaptureCommand for Inspect {
    type Report = InspectReport;

    fn run(self, mut files: Files, session: &Session) -> Result<Outcome<InspectReport>, Failure> {
        files.captures.keep(session)?;
        let judge = survey_of(&mut files.captures.first_pass(session)?, self.given)?;
        let mut input = files.input(session)?;
        let mut connections = self.connections;
        let replay = FlowReplay::listing(&Rules::default(), &mut connections)?;
        let mut facts = CaptureFacts { judge, connections, replay, ..CaptureFacts::default() };
        let mut unparsed = Unparsed::default();
        let links = input.links;
        let ending = input.each(|entry| {
            match entry {
                Entry::Packet(packet) => {
                    facts.count(packet);
                    match links.of(packet) {
                        Some(link) => facts.look(packet, link),
                        None => unparsed.count(packet),
                    }
                }
                Entry::Block(block) if block.is_section_header() => facts.end_section(),
                Entry::Block(_) => {}
            }
            Ok(Next::Go)
        })?;
        facts.end_section();
        let truncated = match &ending {
            Ending::Damaged(_, error) => Some(error.to_string()),
            _ => None,
        };
        facts.tally.notes().for_each(|note| session.note(note));
        for (note, hint) in facts.suspicions.notes() {
            session.note(note);
            session.hint(&hint);
        }
        let report = facts.report(&input, truncated);
        let is_no = !report.verdict.wire_faithful;
        let end = End::new(ending, unparsed, input, EndWording::PROCESSED).no_if(is_no);
        Ok(Outcome { report, place: Place::Standard, end })
    }
}

/// Facts gathered from a capture.
#[derive(Default)]
struct CaptureFacts {
    bytes: u64,
    first_ns: Option<u64>,
    last_ns: Option<u64>,
    snaplen: u32,
    /// Number of packets by link type; at most [`LINK_TYPES_MAX`] types.
    link_types: BTreeMap<u32, u64>,
    cut_packets: u64,
    first_cut: Option<(u64, u64)>,
    judge: Judge,
    superframes: Superframes,
    on_link: OnLink,
    sizes: HashMap<Size, SizeFlows>,
    undecided: u64,
    tally: Tally,
    suspicions: Suspicions,
    vantages: Vantages,
    connections: Connections,
    /// Replay that finds each flow's trains for the flow table; `None` if no table was requested.
    replay: Option<FlowReplay>,
    checksums: Verdicts,
    levels: Levels,
    fragments: FragmentSets,
    /// Number of packets by tunnel kind.
    tunnels: BTreeMap<&'static str, u64>,
    parsed: u64,
    plain_partial: u64,
    /// Number of packets whose checksums `wire` would complete.
    unfinished: u64,
    /// Number of packets with a payload and at least one verifiable checksum.
    verified: u64,
}

/// Number of flows with the same segment size, and number of IP ID steps that agree with it.
#[derive(Default)]
struct SizeFlows {
    flows: HashSet<Endpoints>,
    agree: u64,
    pairs: u64,
}

impl CaptureFacts {
    /// Counts properties that do not require parsing.
    fn count(&mut self, packet: &Packet<'_>) {
        self.bytes += packet.data.len() as u64;
        self.on_link.bytes += on_link(packet);
        let time = packet.timestamp_ns;
        self.first_ns = self.first_ns.into_iter().chain(time).min();
        self.last_ns = self.last_ns.max(time);
        self.snaplen = self.snaplen.max(packet.description.snaplen);
        let link_type = packet.description.link_type;
        if self.link_types.contains_key(&link_type) || self.link_types.len() < LINK_TYPES_MAX {
            *self.link_types.entry(link_type).or_default() += 1;
        }
        if packet.is_cut() {
            self.cut_packets += 1;
            let lengths = (packet.data.len() as u64, u64::from(packet.original_len));
            self.first_cut.get_or_insert(lengths);
        }
    }

    fn look(&mut self, packet: &Packet<'_>, link: LinkType) {
        let said = packet.meta();
        let ports = self.judge.ports(&said);
        let stack = dissect(packet.data, link, &ports);
        let ip = stack.layers().iter().find(|layer| is_ip(layer));
        self.parsed += u64::from(ip.is_some());
        if let Some(ip) = ip {
            self.on_link.count(on_link(packet), ip.offset.into());
        }
        self.look_at_tunnels(&stack);
        self.suspicions.observe(packet.data, &stack);
        if stack.stop == Stop::Fragment {
            self.fragments.count(packet.data, &stack);
        }
        let sight = Sight::new(packet, &said, &stack, link, ports);
        let judgment = self.judge.judge(&sight);
        self.tally.count(&judgment);
        let is_superframe = judgment.nature != Nature::Packet;
        if is_superframe {
            self.look_at_superframe(&sight, &judgment);
        }
        if !is_superframe {
            self.unfinished += u64::from(self.judge.finish(&sight).completes);
        }
        let claim = self.judge.claim(&sight);
        judge(packet.data, packet.is_cut(), &stack, claim, &mut self.levels);
        let verdict = self.levels.worst();
        if let Some(verdict) = verdict {
            self.checksums.count(verdict);
            self.plain_partial += u64::from(verdict == Verdict::Partial && !is_superframe);
            let is_read = |level: &Level| {
                level.layer.kind != Kind::Ipv4 && level.verdict != Verdict::Unverifiable
            };
            let has_data = sight.transport.is_some_and(|transport| transport.payload > 0);
            self.verified += u64::from(has_data && self.levels.iter().any(is_read));
        }
        let mark = self.connections.mark(&sight, &judgment, verdict == Some(Verdict::Bad));
        if let Some(replay) = &mut self.replay {
            let mut seen = Seen::judged(packet, &sight, judgment, Purpose::Looks, &mut self.judge);
            if verdict == Some(Verdict::Valid) && seen.meta.checksum == Checksum::None {
                // The engine does not need to verify the checksum again.
                seen.meta.checksum = Checksum::Unnecessary { levels: u8::MAX };
            }
            replay.push(&seen, mark, &mut self.connections);
        }
        if sight.transport.is_some() {
            // Only captures from the sending host contain headers that a device has yet to repeat, or checksums to
            // which it has yet to add a length.
            let is_left_to_device = self.judge.repeats_headers(&sight)
                || is_superframe && is_seeded_without_length(packet.data, &stack);
            // Only a superframe that was merged on receipt has its first packet's checksum.
            let is_merged = self.levels.prefix.is_some();
            let by_checksum = match (is_left_to_device, is_merged) {
                (true, _) => Some(Side::Sender),
                (false, true) => Some(Side::Receiver),
                (false, false) => None,
            };
            let side = side_said(packet.data, &stack, &said).or(by_checksum);
            self.vantages.count(sight.endpoints, is_superframe, verdict, side);
        }
    }

    /// Ends all trains at the end of the capture or of a section.
    fn end_section(&mut self) {
        if let Some(replay) = &mut self.replay {
            replay.finish(&mut self.connections);
        }
    }

    /// Counts a frame that is not a single wire packet.
    fn look_at_superframe(&mut self, sight: &Sight<'_>, judgment: &Judgment) {
        let payload = match judgment.nature {
            Nature::Superframe { ports, .. } => {
                let headers = dissect(sight.packet.data, sight.link, &ports).header_len();
                (sight.packet.original_len as usize).saturating_sub(headers)
            }
            Nature::Packet | Nature::Left(_) => 0,
        };
        let superframes = &mut self.superframes;
        let len = on_link(sight.packet);
        superframes.packets += 1;
        superframes.bytes += len;
        superframes.largest_bytes = superframes.largest_bytes.max(len);
        superframes.wire_packets_estimate += judgment.packets(payload.max(1)) as u64;
        let name = match sight.transport {
            Some(transport) => match (transport.is_tcp(), transport.ip.kind) {
                (true, Kind::Ipv4) => "tcp4",
                (true, _) => "tcp6",
                (false, Kind::Ipv4) => "udp4",
                (false, _) => "udp6",
            },
            None => "other",
        };
        *superframes.by_proto.entry(name).or_default() += 1;
        match judgment.nature {
            Nature::Superframe { size, .. } => {
                let is_known = self.sizes.contains_key(&size) || self.sizes.len() < MSS_LINES_MAX;
                if !is_known {
                    return;
                }
                let sizes = self.sizes.entry(size).or_default();
                if sizes.flows.len() < SETS_MAX && sizes.flows.insert(sight.endpoints) {
                    let (agree, pairs) = self.judge.agreement(sight, size);
                    sizes.agree += agree;
                    sizes.pairs += pairs;
                }
            }
            Nature::Left(_) => self.undecided += 1,
            Nature::Packet => {}
        }
    }

    fn look_at_tunnels(&mut self, stack: &Stack) {
        let mut above = None;
        for layer in stack.layers() {
            let class = layer.kind.class();
            let name = match (class, above.replace(class)) {
                (Class::Tunnel | Class::Security, _) => layer.kind.name(),
                (Class::Network, Some(Class::Network | Class::Extension)) => "ip-in-ip",
                (Class::Network, Some(Class::Transport)) => "ip-in-udp",
                _ => continue,
            };
            *self.tunnels.entry(name).or_default() += 1;
        }
    }

    fn report(mut self, input: &Input, truncated: Option<String>) -> InspectReport {
        let verdict = self.verdict();
        self.superframes.mss = self.mss();
        self.superframes.undecided = self.undecided;
        self.superframes.guessed = self.tally.guessed;
        self.superframes.contradictions = self.tally.contradictions();
        let names = self.link_types.keys().map(|&number| link_name(number));
        let linktype = if self.link_types.is_empty() {
            link_name(input.reader.interfaces().first().map_or(1, |first| first.link_type))
        } else {
            names.collect::<Vec<_>>().join(" and ")
        };
        let tunnels = self.tunnels.iter();
        InspectReport {
            input: InspectInput {
                facts: input.facts(self.bytes),
                linktype,
                snaplen: self.snaplen,
                first_ts_ns: self.first_ns,
                last_ts_ns: self.last_ns,
                truncated,
                cut_packets: self.cut_packets,
                first_cut: self.first_cut,
            },
            superframes: self.superframes,
            checksums: self.checksums,
            fragments: self.fragments.summary(),
            tunnels: tunnels.map(|(&kind, &packets)| TunnelPackets { kind, packets }).collect(),
            slowdown: self.connections.conclude(),
            verdict,
            on_link: self.on_link,
        }
    }

    /// Returns the capture point. Superframes and partial checksums never appear on the wire; the single packets in
    /// both directions show which host captured them.
    fn verdict(&self) -> Vantage {
        let has_superframes = self.superframes.packets > 0;
        let has_partial = self.checksums.partial > 0 || self.unfinished > 0;
        let is_read =
            self.verified > 0 || self.cut_packets == 0 || self.checksums.unverifiable == 0;
        let mut reasons = Vec::new();
        if has_superframes {
            reasons.push("superframes");
        }
        if has_partial {
            reasons.push("partial_checksums");
        }
        if !is_read {
            reasons.push("checksums_unverifiable");
        }
        let is_empty = self.link_types.is_empty();
        if self.parsed == 0 && !is_empty {
            reasons.push("nothing_parsed");
        }
        let vantage = match self.vantages.side() {
            _ if is_empty => "empty",
            _ if self.parsed == 0 => "unknown",
            Some(Side::Sender) if has_superframes => "sender-host",
            Some(Side::Receiver) if has_superframes => "receiver-host",
            _ if has_superframes => "host",
            _ if has_partial => "sender-host",
            _ if !is_read => "undecided",
            _ => "wire",
        };
        Vantage { wire_faithful: reasons.is_empty(), vantage, reasons }
    }

    /// Returns the segment sizes of flows with superframes, starting with the size that most flows have.
    fn mss(&self) -> Vec<Mss> {
        let row = |(size, sizes): (&Size, &SizeFlows)| Mss {
            bytes: size.bytes,
            flows: sizes.flows.len() as u64,
            source: size.by,
            guess: size.is_guess,
            ip_id_agree: sizes.agree,
            ip_id_pairs: sizes.pairs,
        };
        let mut list: Vec<Mss> = self.sizes.iter().map(row).collect();
        list.sort_by_key(|mss| (core::cmp::Reverse(mss.flows), mss.bytes, mss.source));
        list
    }
}

/// Fragmented datagrams; at most [`SETS_MAX`] at once.
#[derive(Debug, Default)]
struct FragmentSets {
    packets: u64,
    sets: u64,
    complete: u64,
    open: HashMap<([u8; 32], u32, u8), FragmentSet>,
}

/// Fragments of one datagram. The set is complete if its fragments add up to the end of the last one.
#[derive(Clone, Copy, Debug, Default)]
struct FragmentSet {
    bytes: usize,
    end: Option<usize>,
}

impl FragmentSets {
    fn count(&mut self, packet: &[u8], stack: &Stack) {
        self.packets += 1;
        let Some(fragment) = SeenFragment::of(packet, stack) else { return };
        if self.open.len() >= SETS_MAX && !self.open.contains_key(&fragment.key) {
            self.sets += 1;
            return;
        }
        let is_new = !self.open.contains_key(&fragment.key);
        self.sets += u64::from(is_new);
        let set = self.open.entry(fragment.key).or_default();
        set.bytes += fragment.bytes;
        if fragment.is_last {
            set.end = Some(fragment.offset + fragment.bytes);
        }
        if set.end.is_some_and(|end| set.bytes >= end) {
            self.complete += 1;
            self.open.remove(&fragment.key);
        }
    }

    fn summary(&self) -> Fragments {
        let Self { packets, sets, complete, .. } = *self;
        Fragments { packets, sets, complete, incomplete: sets - complete }
    }
}

/// One fragment.
struct SeenFragment {
    /// Addresses, IP ID and protocol.
    key: ([u8; 32], u32, u8),
    offset: usize,
    bytes: usize,
    is_last: bool,
}

impl SeenFragment {
    fn of(packet: &[u8], stack: &Stack) -> Option<Self> {
        let ip = stack.layers().iter().rfind(|layer| is_ip(layer))?;
        let start = ip.offset as usize;
        let header = packet.get(start..ip.end())?;
        let mut addresses = [0; 32];
        if ip.kind == Kind::Ipv4 {
            addresses[..8].copy_from_slice(header.get(12..20)?);
            let word = u16_at(header, ipv4::field::FRAGMENT.start);
            let total = u16_at(header, ipv4::field::TOTAL_LENGTH.start) as usize;
            let identification = u32::from(u16_at(header, ipv4::field::IDENTIFICATION.start));
            return Some(Self {
                key: (addresses, identification, header[ipv4::field::PROTOCOL.start]),
                offset: (word & 0x1fff) as usize * 8,
                bytes: total.saturating_sub(ip.len as usize),
                is_last: word & 0x2000 == 0,
            });
        }
        addresses.copy_from_slice(header.get(ipv6::field::SOURCE.start..ipv6::HEADER_LEN)?);
        let fragment = stack.layers().iter().find(|layer| layer.kind == Kind::Ipv6Fragment)?;
        let at = fragment.offset as usize;
        let word = u16_at(packet, at + 2);
        let payload = u16_at(header, ipv6::field::PAYLOAD_LENGTH.start) as usize;
        Some(Self {
            key: (addresses, u32_at(packet, at + 4), *packet.get(at)?),
            offset: (word & 0xfff8) as usize,
            bytes: (start + ipv6::HEADER_LEN + payload).saturating_sub(fragment.end()),
            is_last: word & 1 == 0,
        })
    }
}

/// Returns the length of a packet on the link in bytes.
fn on_link(packet: &Packet<'_>) -> u64 {
    u64::from(packet.original_len).max(packet.data.len() as u64)
}

/// Returns the name of a link type, or its number if it is unsupported.
fn link_name(number: u32) -> String {
    match LinkType::from_pcap(number) {
        Some(link) => link.to_string(),
        None => format!("link type {number}"),
    }
}

/// Maximum number of link types listed in a report.
const LINK_TYPES_MAX: usize = 8;
/// Maximum number of segment sizes listed in a report.
const MSS_LINES_MAX: usize = 8;
/// Maximum number of fragmented datagrams tracked at once.
const SETS_MAX: usize = 4096;
