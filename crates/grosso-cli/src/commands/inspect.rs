//! `grosso inspect`: is this capture the wire?

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

use grosso_io::capture::{Entry, Packet, PacketMeta, Segmentation};
use grosso_wire::{Kind, LinkType, Ports, Stack, Stop, dissect, ipv4, ipv6};

use crate::{
    arguments::Inspect,
    checksums::{Levels, Verdict, judge},
    error::{Exit, Failure},
    headers::{Transport, is_ip, u16_at, u32_at},
    input::{Ending, Input, Next, Session, Unparsed},
    meta,
    mss::{Flows, Source},
    report::{
        self, InputFacts, Place, Tool,
        inspect::{
            Fragments, InspectInput, InspectReport, Mss, Superframes, Tunnel, Vantage, Verdicts,
        },
    },
};

/// Runs the command: one report a file, and the worst exit code of all.
pub(crate) fn run(options: &Inspect, session: &mut Session) -> Result<Exit, Failure> {
    let mut worst = Exit::Yes;
    for (index, path) in options.files.iter().enumerate() {
        let is_last = index + 1 == options.files.len();
        match inspect(path, session) {
            Ok(Exit::Interrupted) => return Ok(Exit::Interrupted),
            Ok(exit) => worst = worse(worst, exit),
            Err(failure) if is_last && failure.exit as u8 >= worst as u8 => return Err(failure),
            Err(failure) if failure.exit == Exit::BrokenPipe => return Err(failure),
            Err(failure) => {
                session.talk.fail(&failure);
                worst = worse(worst, failure.exit);
            }
        }
    }
    Ok(worst)
}

fn worse(one: Exit, other: Exit) -> Exit {
    if (other as u8) > one as u8 { other } else { one }
}

fn inspect(path: &Path, session: &mut Session) -> Result<Exit, Failure> {
    let mut input = Input::open(path, session.talk.json, session)?;
    let mut facts = Facts::default();
    let mut unparsed = Unparsed::default();
    let links = input.links;
    let ending = input.each(|entry| {
        if let Entry::Packet(packet) = entry {
            facts.count(packet);
            match links.of(packet) {
                Some(link) => facts.look(packet, link),
                None => unparsed.count(packet),
            }
        }
        Ok(Next::Go)
    })?;
    let truncated = match &ending {
        Ending::Damaged(error) => Some(error.to_string()),
        _ => None,
    };
    let mut report = facts.report(&input, truncated);
    report::print(&mut report, &mut session.talk, Place::Standard)?;
    let exit = ending.conclude(&input, session, "processed")?;
    unparsed.conclude(&input, "")?;
    Ok(exit)
}

/// What is gathered on the way through.
#[derive(Default)]
struct Facts {
    bytes: u64,
    first_ns: Option<u64>,
    last_ns: Option<u64>,
    snaplen: u32,
    /// Packets by link type; at most [`LINK_TYPES_MAX`] of them are named.
    link_types: BTreeMap<u32, u64>,
    cut_packets: u64,
    first_cut: Option<(u64, u64)>,
    superframes: Superframes,
    flows: Flows,
    checksums: Verdicts,
    levels: Levels,
    fragments: FragmentSets,
    /// Packets by the tunnels that they are inside of.
    tunnels: BTreeMap<&'static str, u64>,
    parsed: u64,
    plain_partial: u64,
}

impl Facts {
    /// Counts what needs no parsing.
    fn count(&mut self, packet: &Packet<'_>) {
        self.bytes += packet.data.len() as u64;
        self.first_ns = self.first_ns.or(packet.timestamp_ns);
        self.last_ns = packet.timestamp_ns.or(self.last_ns);
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
        let stack = dissect(packet.data, link, &Ports::ASSIGNED);
        let said = packet.meta();
        self.parsed += u64::from(stack.layers().iter().any(is_ip));
        self.look_at_tunnels(&stack);
        if stack.stop == Stop::Fragment {
            self.fragments.count(packet.data, &stack);
        }
        let is_superframe = self.look_at_size(packet, &stack, &said);
        let claim = meta::claim(&said, &stack);
        judge(packet.data, packet.is_cut(), &stack, claim, &mut self.levels);
        if let Some(verdict) = self.levels.worst() {
            self.checksums.count(verdict);
            self.plain_partial += u64::from(verdict == Verdict::Partial && !is_superframe);
        }
    }

    /// Whether the packet is longer than its wire takes.
    fn look_at_size(&mut self, packet: &Packet<'_>, stack: &Stack, said: &PacketMeta) -> bool {
        let Some(transport) = Transport::of(stack, packet.data.len()) else { return false };
        let described = said.offload.as_ref().and_then(|offload| offload.gso.as_ref());
        let recorded = described.and_then(Segmentation::to_engine).and_then(|gso| gso.size());
        let (is_superframe, packets) = if transport.is_tcp() {
            let size = self.flows.learn(packet.data, stack, &transport, recorded);
            (size.is_some(), size.map_or(1, |size| transport.payload.div_ceil(size.bytes as usize)))
        } else if let Some(size) = recorded {
            (true, transport.payload.div_ceil(size as usize))
        } else {
            (transport.payload + transport.overhead() > self.flows.mtu(), 1)
        };
        if is_superframe || described.is_some() {
            let superframes = &mut self.superframes;
            let len = packet.data.len() as u64;
            superframes.packets += 1;
            superframes.bytes += len;
            superframes.largest_bytes = superframes.largest_bytes.max(len);
            superframes.wire_packets_estimate += packets as u64;
            let name = match (transport.is_tcp(), transport.ip.kind) {
                (true, Kind::Ipv4) => "tcp4",
                (true, _) => "tcp6",
                (false, Kind::Ipv4) => "udp4",
                (false, _) => "udp6",
            };
            *superframes.by_proto.entry(name).or_default() += 1;
            return true;
        }
        false
    }

    fn look_at_tunnels(&mut self, stack: &Stack) {
        let mut above = None;
        for layer in stack.layers() {
            let name = match (layer.kind, above) {
                (Kind::Gre | Kind::Vxlan | Kind::VxlanGpe | Kind::Geneve | Kind::Gue, _) => {
                    layer.kind.name()
                }
                (Kind::Ipv4 | Kind::Ipv6, Some(Kind::Ipv4 | Kind::Ipv6 | Kind::Ipv6Extension)) => {
                    "ip-in-ip"
                }
                (Kind::Ipv4 | Kind::Ipv6, Some(Kind::Udp)) => "ip-in-udp",
                (Kind::Esp, _) => "esp",
                _ => {
                    above = Some(layer.kind);
                    continue;
                }
            };
            above = Some(layer.kind);
            *self.tunnels.entry(name).or_default() += 1;
        }
    }

    fn report(mut self, input: &Input, truncated: Option<String>) -> InspectReport {
        let verdict = self.verdict();
        self.superframes.mss = self.mss();
        let names = self.link_types.keys().map(|&number| link_name(number));
        let linktype = if self.link_types.is_empty() {
            link_name(input.reader.interfaces().first().map_or(1, |first| first.link_type))
        } else {
            names.collect::<Vec<_>>().join(" and ")
        };
        let tunnels = self.tunnels.iter();
        InspectReport {
            schema: "grosso.inspect/1",
            tool: Tool::THIS,
            input: InspectInput {
                facts: InputFacts::of(input, self.bytes),
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
            tunnels: tunnels.map(|(&kind, &packets)| Tunnel { kind, packets }).collect(),
            verdict,
            warnings: Vec::new(),
        }
    }

    /// A packet that nobody has sent yet has a partial checksum; one that was received has none,
    /// unless it was merged with others.
    fn verdict(&self) -> Vantage {
        let has_superframes = self.superframes.packets > 0;
        let has_partial = self.checksums.partial > 0;
        let mut reasons = Vec::new();
        if has_superframes {
            reasons.push("superframes");
        }
        if has_partial {
            reasons.push("partial-checksums");
        }
        let vantage = match () {
            () if self.link_types.is_empty() => "empty",
            () if self.parsed == 0 => "unknown",
            () if self.plain_partial > 0 => "sender-host",
            () if has_superframes => "receiver-host",
            () => "wire",
        };
        Vantage { wire_faithful: !has_superframes && !has_partial, vantage, reasons }
    }

    /// The segment sizes of flows with superframes, most flows first.
    fn mss(&self) -> Vec<Mss> {
        let mut groups: HashMap<(u16, Source), Mss> = HashMap::new();
        for flow in self.flows.with_superframes() {
            let Some((bytes, source)) = flow.size else { continue };
            let empty = Mss { bytes, flows: 0, source, ip_id_agree: 0, ip_id_pairs: 0 };
            let group = groups.entry((bytes, source)).or_insert(empty);
            group.flows += 1;
            group.ip_id_agree += flow.agree;
            group.ip_id_pairs += flow.pairs;
        }
        let mut list: Vec<Mss> = groups.into_values().collect();
        list.sort_by_key(|mss| (core::cmp::Reverse(mss.flows), mss.bytes, mss.source));
        list.truncate(MSS_LINES_MAX);
        list
    }
}

/// Fragmented datagrams, at most [`SETS_MAX`] of them at once.
#[derive(Debug, Default)]
struct FragmentSets {
    packets: u64,
    sets: u64,
    complete: u64,
    open: HashMap<([u8; 32], u32, u8), FragmentSet>,
}

/// The fragments of one datagram: complete when their bytes add up to where the last one ends.
#[derive(Clone, Copy, Debug, Default)]
struct FragmentSet {
    bytes: usize,
    end: Option<usize>,
}

impl FragmentSets {
    fn count(&mut self, packet: &[u8], stack: &Stack) {
        self.packets += 1;
        let Some(fragment) = Fragment::of(packet, stack) else { return };
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
struct Fragment {
    /// Addresses, identification, protocol.
    key: ([u8; 32], u32, u8),
    offset: usize,
    bytes: usize,
    is_last: bool,
}

impl Fragment {
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

/// The name of a link type.
fn link_name(number: u32) -> String {
    match LinkType::from_pcap(number) {
        Some(link) => link.to_string(),
        None => format!("link type {number}"),
    }
}

/// Most link types that a report names.
const LINK_TYPES_MAX: usize = 8;
/// Most segment sizes that a report lists.
const MSS_LINES_MAX: usize = 8;
/// Most datagrams whose fragments are followed at once.
const SETS_MAX: usize = 4096;
