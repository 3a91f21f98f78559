//! Classifies frames by weighing the evidence.

use grosso::{
    checksum::Checksum,
    meta::{Cwr, Gso, IpLevels},
};
use grosso_capture::{Offload, Packet, PacketMeta, SegmentTransport};
use grosso_wire::{Extent, Kind, Layer, LinkType, Ports, Stack, dissect};

use super::{
    Evidence, Given, MTU_DEFAULT, Size,
    flows::Flows,
    judgment::{Contradiction, Judgment, Nature},
    sight::{Seal, Sight, seal},
    strides,
    tcp::Tcp,
};
use crate::{
    checksums::{self, Claim, Level, Levels, Verdict, is_seeded, is_seeded_anywhere},
    headers::{Transport, is_ip},
    meta,
};

/// Classifier for the frames of a capture.
#[derive(Debug, Default)]
pub struct Judge {
    given: Given,
    /// Flows known so far.
    pub flows: Flows,
    /// Whether the flows were learned in an earlier pass.
    pub is_surveyed: bool,
    levels: Levels,
}

impl Judge {
    /// Creates a classifier that initially knows only the user's configuration, and learns from the frames that it
    /// classifies.
    pub fn new(given: Given) -> Self {
        Self { given, ..Self::default() }
    }

    /// Returns the UDP ports that identify tunnels in a packet.
    pub fn ports(&self, said: &PacketMeta) -> Ports {
        meta::ports(said, self.given.ports)
    }

    /// Returns a packet's metadata, the UDP ports that identify tunnels in it, and its headers.
    pub fn parse(&self, packet: &Packet<'_>, link: LinkType) -> (PacketMeta, Ports, Stack) {
        let said = packet.meta();
        let ports = self.ports(&said);
        let stack = dissect(packet.data, link, &ports);
        (said, ports, stack)
    }

    /// Classifies a frame. Also learns from it, unless an earlier pass has already done so.
    pub fn judge(&mut self, sight: &Sight<'_>) -> Judgment {
        if !self.is_surveyed {
            self.learn(sight);
        }
        let judgment = self.weigh(sight);
        if !matches!(judgment.nature, Nature::Superframe { .. }) {
            return judgment;
        }
        match self.damage(sight) {
            Some(reason) => Judgment::left(reason, Some(Evidence::Checksum)),
            None => judgment,
        }
    }

    /// Returns the state of the frame's innermost transport checksum. Reads the payload.
    pub fn seal(&mut self, sight: &Sight<'_>) -> Seal {
        seal(sight, &mut self.levels)
    }

    /// Returns the judgment with the strongest evidence for it: weaker evidence is replaced by a valid checksum.
    /// ([`Self::judge`] verifies the checksum only if the packet is longer than others in its flow.)
    pub fn testify(&mut self, sight: &Sight<'_>, judgment: Judgment) -> Judgment {
        let is_weak = judgment.by.is_none_or(|by| by > Evidence::Checksum);
        let is_sealed =
            judgment.nature == Nature::Packet && is_weak && matches!(self.seal(sight), Seal::Valid);
        if is_sealed { Judgment::packet(Some(Evidence::Checksum)) } else { judgment }
    }

    /// Returns the work needed to convert a single-packet frame to the wire packet. If no frame needs any, the capture
    /// shows the packets as they were on the wire.
    pub fn finish(&mut self, sight: &Sight<'_>) -> Finish {
        let Sight { packet, said, stack, .. } = sight;
        let claim = meta::claim(said, stack);
        if packet.is_cut() && (said.is_partial() || is_seeded_anywhere(packet.data, stack)) {
            return Finish { completes: false, left: Some(CAPTURED_SHORT) };
        }
        checksums::judge(packet.data, packet.is_cut(), stack, claim, &mut self.levels);
        let is_partial = |level: &Level| level.verdict == Verdict::Partial;
        Finish {
            completes: self.levels.iter().any(is_partial),
            left: self.levels.iter().find_map(Level::damage),
        }
    }

    /// Returns two counts for the frame's flow: superframes with informative ID steps that agree with `size`, and all
    /// superframes with informative ID steps.
    pub fn agreement(&self, sight: &Sight<'_>, size: Size) -> (u64, u64) {
        let Some(flow) = self.flows.get(&sight.endpoints) else { return (0, 0) };
        let identifications = &flow.era(sight.packet.number).identifications;
        (identifications.agreeing(size.bytes.into()), identifications.steps())
    }

    /// Learns from a frame that will be classified later.
    pub fn learn(&mut self, sight: &Sight<'_>) {
        let levels = &mut self.levels;
        self.flows.learn(sight, || seal(sight, levels));
    }

    /// Weighs the evidence, starting with the strongest.
    fn weigh(&mut self, sight: &Sight<'_>) -> Judgment {
        let Some(transport) = sight.transport else {
            return match sight.recorded() {
                Some((_, gso)) => recorded(sight, gso, 0, sight.ports),
                None => self
                    .by_stride(sight)
                    .or_else(|| self.sctp(sight))
                    .unwrap_or(Judgment::packet(None)),
            };
        };
        let recorded = sight.recorded().map(|(segmentation, gso)| {
            let (payload, ports) = scope(sight, segmentation, &transport);
            (recorded(sight, gso, payload, ports), ports)
        });
        // If the recorded size applies to the innermost header, repeated outer tunnel headers outweigh it.
        match recorded {
            Some((judgment, ports)) if ports != sight.ports => return judgment,
            Some(_) => {}
            None => {
                let repeated =
                    self.by_stride(sight).or_else(|| self.by_repeated_headers(sight, &transport));
                if let Some(judgment) = repeated {
                    return judgment;
                }
            }
        }
        if let Some(judgment) = self.by_the_user(sight, &transport) {
            return judgment;
        }
        if let Some((judgment, _)) = recorded {
            return judgment;
        }
        if transport.payload == 0 {
            return Judgment::packet(None);
        }
        if let Some(judgment) = self.by_prefix(sight, &transport) {
            return judgment;
        }
        if transport.is_tcp() { self.tcp(sight, &transport) } else { self.udp(sight, &transport) }
    }

    /// Classifies a frame whose checksum is valid only over its first packet. If several packet sizes make it valid,
    /// the size supported by other evidence is used, or else the smallest.
    fn by_prefix(&mut self, sight: &Sight<'_>, transport: &Transport) -> Option<Judgment> {
        let Seal::Prefix(smallest) = self.seal(sight) else { return None };
        let shown = transport.is_tcp().then(|| Tcp::new(&self.flows, sight, transport).size());
        let mut sizes = checksums::prefix_sizes(sight.packet.data, sight.stack);
        let is_shown = |size: &Size| sizes.any(|it| it == usize::from(size.bytes));
        let bytes = shown.filter(is_shown).map_or(smallest, |size| size.bytes);
        let size = Size { bytes, by: Evidence::Prefix, is_guess: false };
        let gso = self.with_identifications(Gso::every(bytes)?, sight);
        Some(Judgment::superframe(gso, size, sight.ports))
    }

    /// Classifies a frame according to the user's configuration, which outweighs all evidence. Reports a checksum that
    /// contradicts it.
    fn by_the_user(&mut self, sight: &Sight<'_>, transport: &Transport) -> Option<Judgment> {
        let Given { mss, mtu, uso_size, .. } = self.given;
        let room = mtu.map(|mtu| usize::from(mtu).saturating_sub(transport.overhead()));
        let bytes = if transport.is_tcp() {
            match (mss, room) {
                (Some(mss), _) => mss,
                (None, Some(room)) => u16::try_from(room).unwrap_or(u16::MAX),
                (None, None) => return None,
            }
        } else {
            let is_too_long = transport.payload + transport.overhead() > self.link_mtu();
            match uso_size {
                Some(size) if is_too_long => size,
                _ => return None,
            }
        };
        if transport.payload <= usize::from(bytes) {
            return Some(Judgment::packet(Some(Evidence::Given)));
        }
        let Some(gso) = Gso::every(bytes) else {
            return Some(Judgment::left("mtu_below_headers", Some(Evidence::Given)));
        };
        let size = Size { bytes, by: Evidence::Given, is_guess: false };
        let against = (self.seal(sight) == Seal::Valid)
            .then_some(Contradiction { by: Evidence::Checksum, bytes: None });
        let gso = self.with_identifications(gso, sight);
        Some(Judgment { against, ..Judgment::superframe(gso, size, sight.ports) })
    }

    /// Returns whether a frame has the headers of its first segment but the data of several segments. Senders pass such
    /// frames to devices that repeat the headers (rule S47).
    pub fn repeats_headers(&self, sight: &Sight<'_>) -> bool {
        let Sight { packet, stack, .. } = sight;
        let behind = packet.data.len().saturating_sub(stack.end as usize);
        // A smaller difference may be padding (in frames of up to 60 bytes) or a trailer such as a tag and a frame
        // check sequence.
        sight.transport.is_some()
            && stack.extent == Extent::Padded
            && behind >= FOREIGN_BYTES_MIN
            && (is_seeded(packet.data, stack)
                || checksums::is_seeded_to_the_end(packet.data, stack))
            && strides::find(sight).is_none()
    }

    /// Returns the partial checksum that the capture records for a frame, or that a frame with repeated headers is
    /// bound to have.
    pub fn claim(&self, sight: &Sight<'_>) -> Claim {
        if self.repeats_headers(sight) {
            meta::claim_of_transport(sight.stack)
        } else {
            meta::claim(sight.said, sight.stack)
        }
    }

    fn by_repeated_headers(&self, sight: &Sight<'_>, transport: &Transport) -> Option<Judgment> {
        if !self.repeats_headers(sight) {
            return None;
        }
        let bytes = u16::try_from(transport.payload).ok()?;
        let size = Size { bytes, by: Evidence::Stride, is_guess: false };
        let gso = self.with_identifications(Gso::every(bytes)?, sight);
        Some(Judgment::superframe(gso, size, sight.ports))
    }

    /// Classifies a frame whose tunnel headers repeat after one UDP header. Such a frame consists of datagrams that a
    /// tunnel sent together.
    fn by_stride(&mut self, sight: &Sight<'_>) -> Option<Judgment> {
        let bytes = strides::find(sight)?;
        let outer = dissect(sight.packet.data, sight.link, &Ports::NONE);
        let around = Sight::new(sight.packet, sight.said, &outer, sight.link, Ports::NONE);
        if self.seal(&around) == Seal::Valid {
            return Some(Judgment::packet(Some(Evidence::Checksum)));
        }
        let size = Size { bytes, by: Evidence::Stride, is_guess: false };
        Some(Judgment::superframe(Gso::every(bytes)?, size, Ports::NONE))
    }

    fn tcp(&mut self, sight: &Sight<'_>, transport: &Transport) -> Judgment {
        let evidence = Tcp::new(&self.flows, sight, transport);
        let size = evidence.size();
        if transport.payload <= usize::from(size.bytes) {
            let against = evidence.limit().filter(|limit| limit.is_exceeded(transport.payload));
            let is_doubtful = size.is_guess && transport.payload > evidence.beyond_doubt();
            let is_guess = is_doubtful
                && match self.seal(sight) {
                    Seal::Seed => true,
                    // If a packet of at least this length has been seen in the flow, the checksum is trusted, although
                    // it also equals the pseudo-header sum.
                    Seal::Either => !evidence.is_known_packet(),
                    _ => false,
                };
            return Judgment { against, is_guess, ..Judgment::packet(Some(size.by)) };
        }
        let (limit, is_plateau) = (evidence.limit(), evidence.is_plateau(&size));
        let against = evidence.against(&size);
        // If the checksum cannot be read, the next kind of evidence decides, unless it would only be a guess.
        let is_told = !size.is_guess && self.seal(sight) == Seal::Unread;
        if !is_told && let Some(judgment) = self.by_checksum(sight) {
            let exceeded = limit.filter(|limit| {
                judgment.nature == Nature::Packet && limit.is_exceeded(transport.payload)
            });
            return Judgment { against: exceeded, ..judgment };
        }
        if is_plateau {
            let plain = Judgment::packet(Some(Evidence::PlainSegments));
            return Judgment { is_guess: true, ..plain };
        }
        let Some(gso) = Gso::every(size.bytes) else {
            return Judgment::left("segment_size_unknown", None);
        };
        let gso = self.with_identifications(gso, sight);
        Judgment { against, ..Judgment::superframe(gso, size, sight.ports) }
    }

    /// Classifies a UDP packet. A packet longer than the link allows is a superframe unless other evidence contradicts
    /// this. Only its sender knows the segment size.
    fn udp(&mut self, sight: &Sight<'_>, transport: &Transport) -> Judgment {
        if transport.payload + transport.overhead() <= self.link_mtu() {
            return Judgment::packet(Some(Evidence::Mtu));
        }
        if let Some(judgment) = self.by_checksum(sight) {
            return judgment;
        }
        Judgment::left(UDP_SIZE_UNKNOWN, None)
    }

    /// Classifies an SCTP packet. A packet longer than the link allows is a superframe if its checksum is not complete,
    /// but it is unknown how its chunks were divided into packets.
    fn sctp(&mut self, sight: &Sight<'_>) -> Option<Judgment> {
        let stack = sight.stack;
        let _ = stack.last().filter(|last| last.kind == Kind::Sctp)?;
        let ip = stack.layers().iter().rfind(|layer| is_ip(layer))?;
        let end = if stack.end == 0 { sight.packet.data.len() } else { stack.end as usize };
        if end.saturating_sub(ip.offset.into()) <= self.link_mtu() {
            return None;
        }
        Some(self.by_checksum(sight).unwrap_or(Judgment::left(SCTP_SIZE_UNKNOWN, None)))
    }

    /// Classifies a frame that is too long for a packet, using its transport checksum.
    fn by_checksum(&mut self, sight: &Sight<'_>) -> Option<Judgment> {
        let by = Some(Evidence::Checksum);
        match self.seal(sight) {
            Seal::Valid | Seal::Absent => Some(Judgment::packet(by)),
            Seal::Unread => Some(Judgment { is_guess: true, ..Judgment::packet(by) }),
            Seal::Wrong => Some(Judgment::left(self.damage(sight).unwrap_or("checksum"), by)),
            Seal::Seed | Seal::Either | Seal::Prefix(_) => None,
        }
    }

    /// Returns the reason name if a checksum is complete but wrong. The frame is then not segmented, because the
    /// segments would get valid checksums.
    fn damage(&mut self, sight: &Sight<'_>) -> Option<&'static str> {
        let Sight { packet, stack, .. } = sight;
        let claim = self.claim(sight);
        checksums::judge(packet.data, packet.is_cut(), stack, claim, &mut self.levels);
        self.levels.iter().find_map(Level::damage)
    }

    /// Returns the link MTU: the configured one, otherwise the largest announced one, but at least that of Ethernet.
    fn link_mtu(&self) -> usize {
        match self.given.mtu {
            Some(mtu) => mtu.into(),
            None => self.flows.announced_mtu().max(MTU_DEFAULT),
        }
    }

    fn with_identifications(&self, gso: Gso, sight: &Sight<'_>) -> Gso {
        let era = self.flows.get(&sight.endpoints).map(|flow| flow.era(sight.packet.number));
        let is_fixed = era.is_some_and(|era| era.identifications.is_fixed());
        let fixed_ids = if is_fixed { ipv4_levels(sight.stack) } else { IpLevels::NONE };
        Gso { fixed_ids, cwr: Cwr::First, ..gso }
    }
}

/// Work needed to convert a single-packet frame to the wire packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finish {
    /// Whether checksums must be completed.
    pub completes: bool,
    /// Reason why the packet still differs from the wire packet afterwards: a wrong checksum, or missing bytes.
    pub left: Option<&'static str>,
}

/// Classifies a frame that the capture records as a superframe.
fn recorded(sight: &Sight<'_>, gso: Gso, payload: usize, ports: Ports) -> Judgment {
    let size = Size { bytes: gso.size().unwrap_or(0), by: Evidence::Recorded, is_guess: false };
    let is_whole = gso.size().is_some_and(|size| payload <= usize::from(size));
    if sight.transport.is_some() && is_whole {
        return Judgment::packet(Some(Evidence::Recorded));
    }
    Judgment::superframe(gso, size, ports)
}

/// Returns the payload length after the header at which a recorded superframe is segmented, and the UDP ports of the
/// tunnels outside that header. The header is the outermost UDP header if a tunnel sent several datagrams at once,
/// otherwise the innermost transport header.
fn scope(sight: &Sight<'_>, recorded: &Offload, transport: &Transport) -> (usize, Ports) {
    match around(sight.stack, recorded, transport) {
        Some(udp) => (sight.packet.data.len().saturating_sub(udp.end()), Ports::NONE),
        None => (transport.payload, sight.ports),
    }
}

/// Returns the tunnel's UDP header if a recorded superframe is to be segmented after that header; `None` if it is to be
/// segmented after the innermost transport header.
pub fn around(stack: &Stack, recorded: &Offload, transport: &Transport) -> Option<Layer> {
    let outermost = stack.layers().iter().find(|layer| layer.kind == Kind::Udp)?;
    let Checksum::Partial { start, .. } = recorded.meta.checksum else { return None };
    let is_around = start == outermost.offset
        && outermost.offset != transport.layer.offset
        && recorded.transport != SegmentTransport::Tcp;
    is_around.then_some(*outermost)
}

/// Returns the levels of a packet at which the IP header is IPv4. Only IPv4 headers have an ID, which may be constant.
fn ipv4_levels(stack: &Stack) -> IpLevels {
    let levels = stack.layers().iter().filter(|layer| is_ip(layer)).enumerate();
    levels
        .filter(|(_, layer)| layer.kind == Kind::Ipv4)
        .fold(IpLevels::NONE, |levels, (level, _)| levels.with(level))
}

/// Reason for not segmenting a UDP superframe: its segment size is not recorded.
pub const UDP_SIZE_UNKNOWN: &str = "udp_size_unknown";
/// Reason for not segmenting an SCTP superframe: its chunks do not show the packet boundaries.
const SCTP_SIZE_UNKNOWN: &str = "sctp_size_unknown";
/// Reason for not completing a checksum: the packet is truncated in the capture.
pub const CAPTURED_SHORT: &str = "captured_short";
/// Minimum number of bytes after a packet that cannot be padding or a trailer, because these are shorter.
const FOREIGN_BYTES_MIN: usize = 64;
