//! Coalesces packets into trains, one packet at a time (rules G10 to G64, U10 to U15, T1 to T13).
//!
//! The rules follow Linux 7.2 (G34b), with these choices: the urgent pointer must be equal; a checksum must be exactly
//! the one that segmentation would write; a packet that cannot merge ends the train that is held for its flow (G75);
//! MAC addresses, VLAN priority and the IPv6 flow label are compared but do not belong to the flow. No table can
//! overflow (G2, G3), and no train times out (G71).

use std::collections::BTreeMap;

use super::flow::{Flow, flow_of_parsed};
use super::parse::{Layer, Lengths, Link, Parsed, Stop, parse};
use super::segment::{Description, fit, pseudo_sum, put};
use super::verify::{State, verify};

/// Conditions under which packets are coalesced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Whether plain UDP datagrams are coalesced (rule U3).
    pub udp: bool,
    /// Maximum number of tunnel levels in a coalesced packet (rule T1).
    pub tunnels_max: usize,
    /// Maximum number of headers in a coalesced packet (rule G7).
    pub layers_max: usize,
    /// Maximum length of the outermost IP packet in bytes (rule G60).
    pub bytes_max: usize,
    /// Maximum number of datagrams in a UDP train (rule U13).
    pub datagrams_max: usize,
}

impl Default for Rules {
    /// Returns rules that allow nested tunnels of any depth, and UDP.
    fn default() -> Self {
        Self { udp: true, tunnels_max: 16, layers_max: 16, bytes_max: 65535, datagrams_max: 64 }
    }
}

impl Rules {
    /// Returns rules that allow one tunnel level and no UDP, like Linux by default.
    pub fn linux() -> Self {
        Self { udp: false, tunnels_max: 1, layers_max: 14, ..Self::default() }
    }
}

/// Packets that form one train.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Train {
    /// Indexes of the packets in the input, in order.
    pub packets: Vec<usize>,
    /// Reason why no further packet merged.
    pub closed_by: &'static str,
}

/// Returns the trains that `frames` form if neither holding time nor table size is limited, ordered by their first
/// packets.
pub fn trains<T: AsRef<[u8]>>(frames: &[T], link: Link, rules: Rules) -> Vec<Train> {
    let mut held: BTreeMap<Flow, Held> = BTreeMap::new();
    let mut done = Vec::new();
    for (index, frame) in frames.iter().enumerate() {
        let frame = frame.as_ref();
        let parsed = parse(frame, link, Lengths::Declared);
        let Some(flow) = flow_of_parsed(&parsed) else {
            done.push(Train { packets: vec![index], closed_by: "no flow" });
            continue;
        };
        let packet = Candidate { index, payload: parsed.payload(frame).len(), parsed };
        push(&mut held, &mut done, flow, packet, eligible(frame, link, rules), rules);
    }
    done.extend(held.into_values().map(|train| train.close("the end")));
    done.sort_by_key(|train| train.packets[0]);
    done
}

/// Merges the packets of one train into a superframe, and returns the superframe with the metadata for its segmentation
/// (rules G50 to G52).
///
/// # Panics
/// Panics if `frames` is empty or has no TCP or UDP header.
pub fn join<T: AsRef<[u8]>>(frames: &[T], link: Link) -> (Vec<u8>, Description) {
    let parsed: Vec<Parsed> =
        frames.iter().map(|frame| parse(frame.as_ref(), link, Lengths::Whole)).collect();
    let first = &parsed[0];
    let mut superframe = frames[0].as_ref().to_vec();
    for (frame, parsed) in frames.iter().zip(&parsed).skip(1) {
        superframe.extend(parsed.payload(frame.as_ref()));
        if let Some(tcp) = parsed.last().filter(|last| last.name == "tcp") {
            // The superframe has FIN or PSH if any packet has it (rule G35).
            superframe[tcp.offset + 13] |= tcp.number("offset_flags") as u8 & 0x09;
        }
    }
    describe_lengths(&mut superframe, first);
    let last = first.last().expect("a packet of a train has a transport header");
    let mut description = Description {
        gso_size: first.payload(frames[0].as_ref()).len(),
        fixed_ids: 0,
        cwr_on_all: last.name == "tcp" && last.number("offset_flags") & 0x80 != 0,
    };
    if let Some(second) = parsed.get(1) {
        let levels = first.layers.iter().zip(&second.layers).filter(|(layer, _)| layer.is_ip());
        for (level, (one, two)) in levels.enumerate() {
            let fixed = one.name == "ipv4" && one.number("id") == two.number("id");
            description.fixed_ids |= u32::from(fixed) << level;
        }
    }
    (superframe, description)
}

/// Writes the lengths of a superframe, and the pseudo-header sums in its checksum fields.
fn describe_lengths(superframe: &mut [u8], first: &Parsed) {
    for (index, layer) in first.layers.iter().enumerate() {
        let len = superframe.len() - layer.offset;
        let at = layer.offset;
        let seed = |protocol| pseudo_sum(first, index, protocol, len);
        match layer.name {
            "pppoe" => put(superframe, at + 4, fit(len - 6)),
            "ipv4" => {
                put(superframe, at + 2, fit(len));
                put(superframe, at + 10, 0);
                let right = super::sum::checksum(&superframe[at..layer.inside()]);
                put(superframe, at + 10, right);
            }
            "ipv6" => put(superframe, at + 4, fit(len - 40)),
            "tcp" => put(superframe, at + 16, seed(6)),
            "udp" => {
                put(superframe, at + 4, fit(len));
                if layer.number("checksum") != 0 {
                    put(superframe, at + 6, seed(17));
                }
            }
            "gre" if layer.number("flags") & 0x8000 != 0 => put(superframe, at + 4, 0),
            _ => {}
        }
    }
}

struct Candidate {
    index: usize,
    parsed: Parsed,
    payload: usize,
}

/// A train that can still grow.
struct Held {
    first: Parsed,
    packets: Vec<usize>,
    segment: usize,
    payload: usize,
    /// Whether the identification is the same in all packets, for each layer. Known from the second packet on.
    fixed: Vec<bool>,
}

impl Held {
    fn new(packet: Candidate) -> Self {
        let fixed = vec![false; packet.parsed.layers.len()];
        let (segment, payload) = (packet.payload, packet.payload);
        Self { first: packet.parsed, packets: vec![packet.index], segment, payload, fixed }
    }

    fn close(self, closed_by: &'static str) -> Train {
        Train { packets: self.packets, closed_by }
    }

    fn add(&mut self, packet: &Candidate) {
        if self.packets.len() == 1 {
            let pairs = self.first.layers.iter().zip(&packet.parsed.layers);
            self.fixed = pairs.map(|(one, two)| one.number("id") == two.number("id")).collect();
        }
        self.packets.push(packet.index);
        self.payload += packet.payload;
    }
}

/// Offers one packet to the train of its flow.
fn push(
    held: &mut BTreeMap<Flow, Held>,
    done: &mut Vec<Train>,
    flow: Flow,
    packet: Candidate,
    eligible: Result<(), &'static str>,
    rules: Rules,
) {
    let (index, ends) = (packet.index, ends_train(&packet.parsed));
    if let Err(reason) = eligible {
        done.extend(held.remove(&flow).map(|train| train.close(reason)));
        done.push(Train { packets: vec![index], closed_by: reason });
        return;
    }
    let refusal = match held.get(&flow) {
        None => Err("nothing is held"),
        Some(train) => joins(train, &packet, rules),
    };
    match (refusal, held.remove(&flow)) {
        (Ok(()), Some(mut train)) => {
            train.add(&packet);
            let is_udp = train.first.last().is_some_and(|last| last.name == "udp");
            if ends {
                done.push(train.close("a flag"));
            } else if packet.payload < train.segment {
                done.push(train.close("a shorter segment"));
            } else if is_udp && train.packets.len() == rules.datagrams_max {
                done.push(train.close("the number of datagrams"));
            } else {
                held.insert(flow, train);
            }
        }
        (refusal, train) => {
            let reason = refusal.err().unwrap_or("nothing is held");
            done.extend(train.map(|train| train.close(reason)));
            if ends {
                done.push(Train { packets: vec![index], closed_by: "a flag" });
            } else {
                held.insert(flow, Held::new(packet));
            }
        }
    }
}

/// Checks whether a train may contain the packet, even as its only one. The error is the reason why not.
fn eligible(frame: &[u8], link: Link, rules: Rules) -> Result<(), &'static str> {
    let parsed = parse(frame, link, Lengths::Declared);
    let last = parsed.last().ok_or("no headers")?;
    if parsed.stop != Stop::Transport || !matches!(last.name, "tcp" | "udp") {
        return Err("no TCP or UDP");
    }
    if last.name == "udp" && (!rules.udp || last.number("checksum") == 0) {
        return Err("UDP that the rules do not merge");
    }
    if parsed.layers.len() > rules.layers_max {
        return Err("too many headers");
    }
    if parsed.layers.iter().filter(|layer| layer.is_ip()).count() > rules.tunnels_max + 1 {
        return Err("too many tunnels");
    }
    if parsed.layers.iter().any(|layer| layer.declared_end != frame.len()) {
        return Err("a length field that does not match the frame");
    }
    for verdict in verify(frame, link) {
        let canonical = verdict.state == State::Right && verdict.found == verdict.expected;
        if !canonical && !matches!(verdict.state, State::Absent | State::Remote) {
            return Err("a checksum");
        }
    }
    parsed.layers.iter().try_for_each(eligible_header)?;
    if parsed.has_remote_checksum() && !remote_checksum_is_plain(&parsed) {
        return Err("unverified remote checksum offload");
    }
    if parsed.payload(frame).is_empty() { Err("no payload") } else { Ok(()) }
}

/// Checks whether a train may contain a packet with this header. The error is the reason why not.
fn eligible_header(layer: &Layer) -> Result<(), &'static str> {
    let refused = match layer.name {
        "ipv4" => layer.number("version_ihl") != 0x45 || layer.number("fragment") & 0x8000 != 0,
        "fragment" => true,
        "tcp" => layer.number("offset_flags") >> 12 != layer.len as u64 / 4,
        // GRE may have only flags C and K (rule T21).
        "gre" => layer.number("flags") & !0xa000 != 0,
        // Control packets never merge (rule T6).
        "geneve" => layer.number("bits") & 0x80 != 0,
        // The only supported private flag is remote checksum offload (rule W21).
        "gue" => {
            layer.number("flags") & 1 != 0
                && (layer.bytes("options")[0] & 0x7f != 0 || layer.bytes("options")[1..4] != [0; 3])
        }
        _ => false,
    };
    if refused { Err("a header that the rules do not merge") } else { Ok(()) }
}

/// Returns whether remote checksum offload is used in the simplest way: exactly one header announces it, refers to the
/// innermost transport checksum, and follows an outer checksum that was verified (rule C54).
fn remote_checksum_is_plain(parsed: &Parsed) -> bool {
    let Some(transport) = parsed.last() else { return false };
    let field = if transport.name == "tcp" { 16 } else { 6 };
    let mut announcing = 0;
    for (index, layer) in parsed.layers.iter().enumerate() {
        let start = (transport.offset - layer.offset).saturating_sub(layer.len);
        let means_it = match layer.name {
            "vxlan" if layer.number("flags") & 0x0020_0000 != 0 => {
                let byte = layer.number("reserved") as usize;
                byte == (start / 2) | (if field == 6 { 0x80 } else { 0 }) && start % 2 == 0
            }
            "gue" if layer.number("flags") & 1 != 0 && layer.bytes("options")[0] & 0x80 != 0 => {
                let place = [(start as u16).to_be_bytes(), ((start + field) as u16).to_be_bytes()];
                layer.bytes("options")[4..8] == place.concat()
            }
            _ => continue,
        };
        announcing += 1;
        let outer = &parsed.layers[index.saturating_sub(1)];
        if !means_it || outer.name != "udp" || outer.number("checksum") == 0 {
            return false;
        }
    }
    announcing == 1
}

/// Returns whether a packet ends its train, or is never part of one (rule G36).
fn ends_train(parsed: &Parsed) -> bool {
    // URG, PSH, RST, SYN, FIN.
    parsed.last().is_some_and(|last| last.name == "tcp" && last.number("offset_flags") & 0x2f != 0)
}

/// Checks whether `packet` continues the train. The error is the reason why not.
fn joins(train: &Held, packet: &Candidate, rules: Rules) -> Result<(), &'static str> {
    if train.first.layers.len() != packet.parsed.layers.len() {
        return Err("other headers");
    }
    for (index, first) in train.first.layers.iter().enumerate() {
        continues(train, index, first, &packet.parsed.layers[index])?;
    }
    if packet.payload > train.segment {
        return Err("a longer segment");
    }
    let (Some(outermost), Some(last)) =
        (train.first.layers.iter().find(|layer| layer.is_ip()), train.first.last())
    else {
        return Err("no IP");
    };
    let bytes = last.inside() - outermost.offset + train.payload + packet.payload;
    let pppoe = train.first.layers.iter().any(|layer| layer.name == "pppoe");
    if bytes > rules.bytes_max || pppoe && bytes + 2 > 0xffff {
        return Err("the size");
    }
    Ok(())
}

/// Compares a packet's header with the same header of the train's first packet, field by field, to check whether it
/// continues the train. The error is the reason why not.
fn continues(train: &Held, index: usize, first: &Layer, next: &Layer) -> Result<(), &'static str> {
    if first.name != next.name || first.fields.len() != next.fields.len() {
        return Err("other headers");
    }
    for (field, value) in &first.fields {
        let number = (first.number(field), next.number(field));
        let holds = match (first.name, *field) {
            ("ipv4", "total_len" | "checksum") | ("ipv6", "payload_len") => true,
            ("udp" | "pppoe", "len") | ("tcp" | "gre", "checksum") => true,
            // Packets with and without a checksum never merge with each other (rules U11, T2).
            ("udp", "checksum") => (number.0 == 0) == (number.1 == 0),
            ("ipv4", "id") => {
                let step = (number.1 as u16).wrapping_sub(number.0 as u16) as usize;
                let count = train.packets.len();
                match count {
                    1 => step <= 1,
                    _ if train.fixed[index] => step == 0,
                    _ => step == count & 0xffff,
                }
            }
            ("tcp", "sequence") => {
                number.1 as u32 == (number.0 as u32).wrapping_add(train.payload as u32)
            }
            // All flags except FIN and PSH are compared (rule G32).
            ("tcp", "offset_flags") => (number.0 ^ number.1) & !0x09 == 0,
            _ => next.bytes(field) == value.as_slice(),
        };
        if !holds {
            return Err(field);
        }
    }
    Ok(())
}
