//! Where a superframe was cut on the wire, and how that is known.
//!
//! A capture of a host shows TCP packets that no wire ever carried. Their segment size is taken, in
//! this order, from: what the capture recorded; the MSS that the SYNs announced, less the options
//! of the packet; the steps of the IPv4 identification; the largest plain segment of the flow; what
//! the user says; an MTU of 1500. Only the first two are knowledge, the others are guesses.

use std::collections::HashMap;

use grosso_wire::{Kind, Stack, tcp};
use serde::Serialize;

use crate::headers::{Endpoints, Transport, u16_at};

/// How a segment size is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Source {
    /// The capture says it.
    Recorded,
    /// The SYNs of the flow announced it.
    Syn,
    /// The steps of the IPv4 identification fit no other.
    IpId,
    /// No plain segment of the flow is larger.
    LargestPlain,
    /// The user says it.
    Given,
    /// What fits into 1500 bytes.
    Default,
}

impl Source {
    /// The words for people.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Recorded => "recorded",
            Self::Syn => "from SYN",
            Self::IpId => "from IP-ID steps",
            Self::LargestPlain => "largest plain segment",
            Self::Given => "as given",
            Self::Default => "guessed from MTU 1500",
        }
    }

    /// Whether it is a guess, which `--strict` refuses.
    pub(crate) const fn is_guess(self) -> bool {
        !matches!(self, Self::Recorded | Self::Syn)
    }
}

/// The segment size of a packet's flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    /// Payload bytes of each segment but the last.
    pub(crate) bytes: u16,
    pub(crate) source: Source,
}

/// What the user says where the capture tells nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Given {
    pub(crate) mss: Option<u16>,
    pub(crate) mtu: Option<u16>,
}

/// What is known about the TCP flows of a capture; at most [`FLOWS_MAX`] of them.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    flows: HashMap<Endpoints, Flow>,
    given: Given,
    /// Packets of flows that found no room.
    pub(crate) overflowed: u64,
}

/// One direction of a TCP connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Flow {
    /// The MSS that its sender announced: what the sender takes, and a hint at its MTU.
    announced: Option<u16>,
    largest_plain: u16,
    last: Option<Last>,
    range: Range,
    /// Superframes of the flow.
    pub(crate) superframes: u64,
    /// Neighbouring packets whose identifications can be compared.
    pub(crate) pairs: u64,
    /// Those whose identifications step as the segment size says.
    pub(crate) agree: u64,
    /// Neighbours with one identification.
    fixed: u64,
    /// The segment size at the last superframe.
    pub(crate) size: Option<(u16, Source)>,
}

/// The packet before.
#[derive(Clone, Copy, Debug)]
struct Last {
    identification: u16,
    payload: u32,
    options: u16,
    sequence_end: u32,
}

/// The segment sizes that explain every step of the identification seen so far.
#[derive(Clone, Copy, Debug)]
struct Range {
    low: u32,
    high: u32,
    /// A size that divides a superframe without a rest.
    exact: Option<u32>,
    steps: u64,
}

impl Default for Range {
    fn default() -> Self {
        Self { low: 1, high: u32::MAX, exact: None, steps: 0 }
    }
}

impl Flows {
    /// Knows nothing yet but what the user says.
    pub(crate) fn new(given: Given) -> Self {
        Self { given, ..Self::default() }
    }

    /// Learns from a packet. `recorded` is what the capture says about its segment size.
    ///
    /// Says the size by which to cut the packet when it is a superframe.
    pub(crate) fn learn(
        &mut self,
        packet: &[u8],
        stack: &Stack,
        transport: &Transport,
        recorded: Option<u16>,
    ) -> Option<Size> {
        let endpoints = transport.endpoints(packet, stack);
        if transport.flags(packet) & tcp::SYN != 0 {
            let announced = announced_mss(packet, transport);
            if let Some(flow) = self.flow_mut(endpoints) {
                *flow = Flow { announced, ..Flow::default() };
            }
        }
        let size = self.size(packet, stack, transport, recorded);
        let plain = self.plain_max(&endpoints, transport);
        let Some(flow) = self.flow_mut(endpoints) else { return size };
        let from_syn = Some(plain).filter(|plain| plain.source == Source::Syn);
        flow.step(packet, transport, size.or(from_syn));
        match size {
            Some(size) => {
                flow.superframes += 1;
                flow.size = Some((size.bytes, size.source));
            }
            None => {
                let payload = u16::try_from(transport.payload).unwrap_or(u16::MAX);
                flow.largest_plain = flow.largest_plain.max(payload);
            }
        }
        size
    }

    /// The size by which to cut a packet; `None` when it is no superframe.
    pub(crate) fn size(
        &self,
        packet: &[u8],
        stack: &Stack,
        transport: &Transport,
        recorded: Option<u16>,
    ) -> Option<Size> {
        if let Some(bytes) = recorded {
            let size = Size { bytes, source: Source::Recorded };
            return (transport.payload > bytes as usize).then_some(size);
        }
        let endpoints = transport.endpoints(packet, stack);
        let plain = self.plain_max(&endpoints, transport);
        if transport.payload <= plain.bytes as usize {
            return None;
        }
        if plain.source == Source::Syn {
            return Some(plain);
        }
        let flow = self.flows.get(&endpoints);
        if let Some(bytes) =
            flow.and_then(|flow| flow.range.size(plain.bytes, from_mtu(MTU_DEFAULT, transport)))
        {
            return Some(Size { bytes, source: Source::IpId });
        }
        match flow.map(|flow| flow.largest_plain) {
            Some(bytes @ PLAIN_BYTES_MIN..) => Some(Size { bytes, source: Source::LargestPlain }),
            _ => Some(plain),
        }
    }

    /// Whether the packets of a flow share one identification, as some senders leave it.
    pub(crate) fn has_fixed_ids(&self, endpoints: &Endpoints) -> bool {
        self.flows.get(endpoints).is_some_and(|flow| flow.fixed > flow.agree)
    }

    /// The flows that had superframes.
    pub(crate) fn with_superframes(&self) -> impl Iterator<Item = &Flow> {
        self.flows.values().filter(|flow| flow.superframes > 0)
    }

    /// The MTU of the link as far as SYNs tell, at least that of Ethernet.
    pub(crate) fn mtu(&self) -> usize {
        if let Some(mtu) = self.given.mtu {
            return mtu as usize;
        }
        let announced = self.flows.values().filter_map(|flow| flow.announced).max().unwrap_or(0);
        (announced as usize + HEADERS_IPV4).max(MTU_DEFAULT)
    }

    /// How many flows are known.
    pub(crate) fn len(&self) -> usize {
        self.flows.len()
    }

    /// The largest payload that a packet of the flow can have on the wire, and how that is known.
    ///
    /// The sender keeps to what the peer announced and to its own MTU, which its own announcement
    /// tells; options count against both (RFC 6691 section 2).
    fn plain_max(&self, endpoints: &Endpoints, transport: &Transport) -> Size {
        let announced = |ends: &Endpoints| self.flows.get(ends).and_then(|flow| flow.announced);
        let (own, peer) = (announced(endpoints), announced(&endpoints.reversed()));
        let options = transport.options();
        if let Some(mss) = own.into_iter().chain(peer).min() {
            let bytes = (mss as usize).saturating_sub(options).max(1) as u16;
            return Size { bytes, source: Source::Syn };
        }
        match (self.given.mss, self.given.mtu) {
            (Some(bytes), _) => Size { bytes, source: Source::Given },
            (None, Some(mtu)) => {
                Size { bytes: from_mtu(mtu as usize, transport), source: Source::Given }
            }
            (None, None) => {
                Size { bytes: from_mtu(MTU_DEFAULT, transport), source: Source::Default }
            }
        }
    }

    fn flow_mut(&mut self, endpoints: Endpoints) -> Option<&mut Flow> {
        if self.flows.len() >= FLOWS_MAX && !self.flows.contains_key(&endpoints) {
            self.overflowed += 1;
            return None;
        }
        Some(self.flows.entry(endpoints).or_default())
    }
}

impl Flow {
    /// Compares the identification with that of the packet before, if nothing was lost in between.
    fn step(&mut self, packet: &[u8], transport: &Transport, size: Option<Size>) {
        let Some(identification) = transport.identification(packet) else { return };
        let start = transport.layer.offset as usize;
        let word = |at| u32::from(u16_at(packet, start + at)) << 16;
        let sequence = word(tcp::field::SEQUENCE.start)
            | u32::from(u16_at(packet, start + tcp::field::SEQUENCE.start + 2));
        let payload = transport.payload as u32;
        let last = self.last.replace(Last {
            identification,
            payload,
            options: transport.options() as u16,
            sequence_end: sequence.wrapping_add(payload),
        });
        let Some(last) = last else { return };
        let step = u32::from(identification.wrapping_sub(last.identification));
        if step == 0 {
            self.fixed += 1;
            return;
        }
        // Without a gap in the stream the packet before is the one that used up the identifications.
        if last.payload == 0 || last.sequence_end != sequence {
            return;
        }
        if let Some(size) = size {
            self.pairs += 1;
            let same_options = last.options as usize == transport.options();
            let expected = last.payload.div_ceil(u32::from(size.bytes));
            self.agree += u64::from(same_options && step == expected);
        }
        if last.payload > u32::from(PLAIN_BYTES_MIN) && step > 1 {
            self.range.narrow(last.payload, step);
        }
    }
}

impl Range {
    /// A packet of `payload` bytes was cut into `step` segments.
    fn narrow(&mut self, payload: u32, step: u32) {
        let (low, high) = (payload.div_ceil(step), (payload - 1) / (step - 1));
        let (low, high) = (self.low.max(low), self.high.min(high));
        // A step that contradicts the others is that of another flow or of a lost packet.
        if low > high || low < u32::from(PLAIN_BYTES_MIN) {
            return;
        }
        (self.low, self.high) = (low, high);
        self.steps += 1;
        if payload.is_multiple_of(step) {
            self.exact = Some(payload / step);
        }
    }

    /// The size that explains the steps: one that divides a superframe, or one that `likely` says.
    fn size(&self, likely: u16, from_mtu: u16) -> Option<u16> {
        if self.steps < STEPS_MIN {
            return None;
        }
        let likely = [self.exact, Some(u32::from(likely)), Some(u32::from(from_mtu))];
        let is_inside = |size: &u32| (self.low..=self.high).contains(size);
        let size = likely.into_iter().flatten().find(is_inside).unwrap_or(self.high);
        u16::try_from(size).ok()
    }
}

/// What fits into an MTU besides the headers of a packet.
fn from_mtu(mtu: usize, transport: &Transport) -> u16 {
    mtu.saturating_sub(transport.overhead()).max(1) as u16
}

/// The MSS option of a SYN.
fn announced_mss(packet: &[u8], transport: &Transport) -> Option<u16> {
    let start = transport.layer.offset as usize;
    let mut options = packet.get(start + tcp::HEADER_LEN..transport.layer.end())?;
    loop {
        match options {
            [0, ..] | [] => return None,
            [1, rest @ ..] => options = rest,
            [2, 4, high, low, ..] => {
                return Some(u16::from_be_bytes([*high, *low])).filter(|&mss| mss > 0);
            }
            [_, len, ..] => options = options.get((*len as usize).max(2)..)?,
            [_] => return None,
        }
    }
}

/// Whether an IP level's identification can be fixed at all.
pub(crate) fn ipv4_levels(stack: &Stack) -> u8 {
    let ip = stack.layers().iter().filter(|layer| crate::headers::is_ip(layer));
    ip.enumerate()
        .filter(|(_, layer)| layer.kind == Kind::Ipv4)
        .fold(0, |bits, (level, _)| bits | 1_u8.checked_shl(level as u32).unwrap_or(0))
}

/// Most flows that are remembered: about 20 MB.
const FLOWS_MAX: usize = 1 << 16;
/// The MTU of Ethernet.
pub(crate) const MTU_DEFAULT: usize = 1500;
/// IPv4 and TCP without options, which the MSS leaves out.
const HEADERS_IPV4: usize = 40;
/// The MSS that every host takes (RFC 9293 section 3.7.1): a flow whose largest plain segment is
/// smaller has not shown its segment size.
const PLAIN_BYTES_MIN: u16 = 536;
/// How many steps must agree before they say anything.
const STEPS_MIN: u64 = 2;

#[cfg(test)]
mod tests {
    use grosso_testkit::{Packet, headers::Tcp};
    use grosso_wire::{LinkType, Ports, dissect};

    use super::*;

    fn learn(flows: &mut Flows, packet: Packet) -> Option<Size> {
        let bytes = packet.build();
        let stack = dissect(&bytes, LinkType::Ethernet, &Ports::ASSIGNED);
        let transport = Transport::of(&stack, bytes.len()).unwrap();
        flows.learn(&bytes, &stack, &transport, None)
    }

    fn data(id: u16, sequence: u32, len: usize) -> Packet {
        let tcp = |t: Tcp| t.sequence(sequence).timestamps(1, 1);
        Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(id)).tcp(tcp).payload_len(len)
    }

    #[test]
    fn syn_tells_and_options_count_against_it() {
        let mut flows = Flows::default();
        let mss = [2, 4, 0x05, 0xb4];
        let syn = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t.syn().options(&mss));
        assert_eq!(learn(&mut flows, syn), None);
        assert_eq!(learn(&mut flows, data(1, 0, 1448)), None);
        let size = learn(&mut flows, data(2, 1448, 1449));
        assert_eq!(size, Some(Size { bytes: 1448, source: Source::Syn }));
    }

    #[test]
    fn steps_of_the_identification_tell_where_no_syn_does() {
        let mut flows = Flows::default();
        let (mut id, mut sequence) = (65000_u16, 0);
        let mut last = None;
        for len in [14000, 28000, 7000, 14100, 42000] {
            last = learn(&mut flows, data(id, sequence, len));
            id = id.wrapping_add(len.div_ceil(1400) as u16);
            sequence += len as u32;
        }
        assert_eq!(last, Some(Size { bytes: 1400, source: Source::IpId }));
        let flow = flows.with_superframes().next().unwrap();
        assert_eq!(flow.pairs, 4);
    }

    #[test]
    fn largest_plain_segment_tells_before_the_default() {
        let mut flows = Flows::default();
        let size = learn(&mut flows, data(0, 0, 1449));
        assert_eq!(size, Some(Size { bytes: 1448, source: Source::Default }));
        assert_eq!(learn(&mut flows, data(0, 9000, 1400)), None);
        let size = learn(&mut flows, data(0, 90000, 1449));
        assert_eq!(size, Some(Size { bytes: 1400, source: Source::LargestPlain }));
    }
}
