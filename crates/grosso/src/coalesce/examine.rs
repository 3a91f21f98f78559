//! Whether a packet can be in a train at all: what is asked of a packet alone, before any other is looked at.

use grosso_checksum::Sum;
use grosso_wire::{Extent, Kind, Layer, Stack, Stop, geneve, gre, ipv4, tcp, udp};

use crate::{
    bytes::u16_at,
    checksum::Checksum,
    coalesce::{profile::Profile, reason::Pass},
    flow::FlowHasher,
    meta::{Cwr, IpLevels, Meta},
    template::render::pseudo_header,
    tunnel::{RemoteChecksum, remote_checksum},
};

/// A packet that may join or start a train.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) flow: u64,
    pub(crate) pair: u32,
    pub(crate) header_len: usize,
    pub(crate) payload_len: usize,
    /// Where the transport header starts.
    pub(crate) transport: usize,
    pub(crate) is_tcp: bool,
    /// Wire packets that the frame stands for.
    pub(crate) packets: u16,
    /// Payload bytes of each of them but the last.
    pub(crate) size: u16,
    /// The last of them is shorter than the others, so nothing may follow.
    pub(crate) short_tail: bool,
    /// Its checksum is partial.
    pub(crate) partial: bool,
    /// The IP levels at which a superframe's identifications are fixed.
    pub(crate) fixed_ids: IpLevels,
    /// Most payload bytes that a train of this kind may have.
    pub(crate) payload_max: usize,
    /// Its checksums were verified here, in software, and are `levels` + 1.
    pub(crate) verified_levels: u8,
    pub(crate) remote_checksum: bool,
}

/// A packet that can be in no train.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    pub(crate) reason: Pass,
    pub(crate) barrier: Barrier,
}

/// Which held trains a packet in none must not overtake (rule G75).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Barrier {
    /// None: no train can be of its flow.
    None,
    /// The train of its flow.
    Flow(u64),
    /// All trains between its outermost addresses: its flow cannot be read.
    Pair(u32),
}

/// Examines a packet that was dissected into `stack`.
#[inline]
pub(crate) fn examine(
    packet: &[u8],
    stack: &Stack,
    meta: &Meta,
    profile: &Profile,
    hasher: &FlowHasher,
) -> Result<Candidate, Refused> {
    let hash = hasher.hash(packet, stack.layers());
    check(packet, stack, meta, profile)
        .map(|candidate| Candidate { flow: hash.flow, pair: hash.pair, ..candidate })
        .map_err(|reason| Refused { reason, barrier: barrier(stack, hash.flow, hash.pair) })
}

/// A packet whose ports were read waits for the train of its flow only; one whose innermost headers could not be read
/// may be of any flow between its addresses.
#[cold]
fn barrier(stack: &Stack, flow: u64, pair: u32) -> Barrier {
    let kind = stack.last().map(|layer| layer.kind);
    let ip_levels = stack.layers().iter().filter(|l| matches!(l.kind, Kind::Ipv4 | Kind::Ipv6)).count();
    match (stack.stop, kind) {
        (Stop::Payload, Some(Kind::Tcp | Kind::Udp)) => Barrier::Flow(flow),
        (Stop::Payload, Some(Kind::Icmp)) => Barrier::None,
        (Stop::Unknown, Some(Kind::Ipv4)) if ip_levels == 1 => Barrier::None,
        _ if pair == 0 => Barrier::None,
        _ => Barrier::Pair(pair),
    }
}

#[inline]
fn check(packet: &[u8], stack: &Stack, meta: &Meta, profile: &Profile) -> Result<Candidate, Pass> {
    let transport = transport(stack)?;
    let is_tcp = transport.kind == Kind::Tcp;
    let walk = Walk::over(packet, stack)?;
    if stack.extent != Extent::Exact && !(stack.extent == Extent::Jumbo && meta.gso.is_some()) {
        return Err(match stack.extent {
            Extent::Padded => Pass::Padded,
            Extent::Short => Pass::Short,
            _ => Pass::LengthZero,
        });
    }
    if walk.ip_levels > profile.tunnels_max as usize + 1 {
        return Err(Pass::TunnelLevels);
    }
    let header_len = transport.end();
    let payload_len = packet.len().saturating_sub(header_len);
    if header_len > HEADER_BYTES_MAX {
        return Err(Pass::HeaderTooLong);
    }
    if is_tcp {
        let flags = u16_at(packet, transport.offset as usize + tcp::field::OFFSET_FLAGS.start);
        if flags & (tcp::SYN | tcp::RST | tcp::URG) != 0 {
            return Err(tcp_refusal(flags));
        }
    } else if !profile.udp {
        return Err(Pass::UdpOff);
    }
    if payload_len == 0 {
        return Err(Pass::Empty);
    }
    let trust = walk.verify(packet, &transport, meta.checksum)?;
    let units = Units::of(packet, &transport, payload_len, meta)?;
    Ok(Candidate {
        flow: 0,
        pair: 0,
        header_len,
        payload_len,
        transport: transport.offset as usize,
        is_tcp,
        packets: units.packets,
        size: units.size,
        short_tail: units.short_tail,
        partial: trust.partial,
        fixed_ids: meta.gso.map_or(IpLevels::NONE, |gso| gso.fixed_ids),
        payload_max: walk.payload_max(header_len, is_tcp, profile),
        verified_levels: trust.levels,
        remote_checksum: walk.remote.is_some(),
    })
}

#[inline]
fn transport(stack: &Stack) -> Result<Layer, Pass> {
    let reason = match (stack.stop, stack.last()) {
        (Stop::Payload, Some(layer)) if matches!(layer.kind, Kind::Tcp | Kind::Udp) => {
            return Ok(layer);
        }
        (Stop::Fragment, _) => Pass::Fragment,
        (Stop::Encrypted, _) => Pass::Encrypted,
        (Stop::Cut, _) => Pass::Cut,
        (Stop::Malformed, _) => Pass::Malformed,
        (Stop::TooDeep, _) => Pass::TooDeep,
        (Stop::Payload | Stop::Unknown, _) => Pass::Protocol,
    };
    let has_ip = stack.layers().iter().any(|layer| matches!(layer.kind, Kind::Ipv4 | Kind::Ipv6));
    Err(if has_ip || reason != Pass::Protocol { reason } else { Pass::NotIp })
}

#[cold]
fn tcp_refusal(flags: u16) -> Pass {
    if flags & tcp::SYN != 0 {
        Pass::TcpSynchronize
    } else if flags & tcp::RST != 0 {
        Pass::TcpReset
    } else {
        Pass::TcpUrgent
    }
}

/// What one walk over the headers gathers.
struct Walk {
    first_ip: Option<usize>,
    ip: Layer,
    ip_levels: usize,
    /// Tunnel headers outside the transport that carry a checksum, outermost first.
    covers: [Layer; COVERS_MAX],
    /// The IP header around each of them.
    cover_ips: [Layer; COVERS_MAX],
    cover_count: usize,
    pppoe: bool,
    /// Where remote checksum offload says that the checksum starts, and where it lies.
    remote: Option<RemoteChecksum>,
}

/// What the checksums of a packet turned out to be.
struct Trust {
    partial: bool,
    levels: u8,
}

impl Walk {
    #[inline]
    fn over(packet: &[u8], stack: &Stack) -> Result<Self, Pass> {
        let mut walk = Self {
            first_ip: None,
            ip: Layer::default(),
            ip_levels: 0,
            covers: [Layer::default(); COVERS_MAX],
            cover_ips: [Layer::default(); COVERS_MAX],
            cover_count: 0,
            pppoe: false,
            remote: None,
        };
        for layer in stack.layers() {
            let start = layer.offset as usize;
            match layer.kind {
                Kind::Ipv4 => {
                    check_ipv4(packet, layer)?;
                    walk.enter_ip(layer);
                }
                Kind::Ipv6 => walk.enter_ip(layer),
                Kind::Ipv6Fragment => return Err(Pass::Fragment),
                Kind::Gre => walk.enter_gre(packet, layer)?,
                Kind::Geneve if packet.get(start + 1).is_some_and(|byte| byte & geneve::CONTROL != 0) => {
                    return Err(Pass::GeneveControl);
                }
                Kind::Vxlan | Kind::Gue => walk.enter_remote(remote_checksum(layer, packet))?,
                Kind::Pppoe => walk.pppoe = true,
                Kind::Udp if layer.end() < stack.header_len() => walk.enter_udp(packet, layer)?,
                _ => {}
            }
        }
        Ok(walk)
    }

    #[inline]
    fn enter_ip(&mut self, layer: &Layer) {
        self.first_ip.get_or_insert(layer.offset as usize);
        self.ip = *layer;
        self.ip_levels += 1;
    }

    fn enter_gre(&mut self, packet: &[u8], layer: &Layer) -> Result<(), Pass> {
        let flags = u16_at(packet, layer.offset as usize + gre::field::FLAGS.start);
        if flags & !(gre::FLAG_CHECKSUM | gre::FLAG_KEY) != 0 {
            return Err(Pass::GreFlags);
        }
        if flags & gre::FLAG_CHECKSUM != 0 { self.add_cover(layer) } else { Ok(()) }
    }

    fn enter_udp(&mut self, packet: &[u8], layer: &Layer) -> Result<(), Pass> {
        let checksum = u16_at(packet, layer.offset as usize + udp::field::CHECKSUM.start);
        if checksum != 0 { self.add_cover(layer) } else { Ok(()) }
    }

    fn add_cover(&mut self, layer: &Layer) -> Result<(), Pass> {
        if self.cover_count == COVERS_MAX {
            return Err(Pass::TooDeep);
        }
        self.covers[self.cover_count] = *layer;
        self.cover_ips[self.cover_count] = self.ip;
        self.cover_count += 1;
        Ok(())
    }

    /// The sum that remote checksum offload needs is there only when an outer checksum was verified (rule C54).
    fn enter_remote(&mut self, remote: Option<RemoteChecksum>) -> Result<(), Pass> {
        if remote.is_some() {
            if self.remote.is_some() || self.cover_count == 0 {
                return Err(Pass::RemoteChecksum);
            }
            self.remote = remote;
        }
        Ok(())
    }

    /// Verifies every checksum that nobody has verified, reading the payload at most once: an outer sum is the inner
    /// one and the header bytes in between (rules C20 to C22, C30).
    #[inline]
    fn verify(&self, packet: &[u8], transport: &Layer, state: Checksum) -> Result<Trust, Pass> {
        let start = transport.offset as usize;
        let is_tcp = transport.kind == Kind::Tcp;
        let (at, protocol) = if is_tcp {
            (start + tcp::field::CHECKSUM.start, ipv4::PROTOCOL_TCP)
        } else {
            (start + udp::field::CHECKSUM.start, ipv4::PROTOCOL_UDP)
        };
        let field = u16_at(packet, at);
        if !is_tcp && field == 0 {
            return Err(Pass::ChecksumNone);
        }
        let pseudo = || pseudo_header(packet, &self.ip, protocol, (packet.len() - start) as u32);
        if let Checksum::Partial { start: partial, offset } = state {
            if (partial as usize, partial as usize + offset as usize) != (start, at) {
                return Err(Pass::ChecksumPartial);
            }
            let is_seed = field == pseudo().fold();
            return if is_seed { Ok(Trust { partial: true, levels: 0 }) } else { Err(Pass::ChecksumForm) };
        }
        if let Some(remote) = self.remote {
            if (remote.start, remote.at) != (start, at) {
                return Err(Pass::RemoteChecksum);
            }
            if field != pseudo().fold() {
                return Err(Pass::ChecksumForm);
            }
        } else if is_tcp && field == 0xffff {
            // A sum that is never zero has a complement that is never all ones.
            return Err(Pass::ChecksumForm);
        }
        let verified = match state {
            Checksum::Unnecessary { levels } => levels as usize + 1,
            _ => 0,
        };
        // The remote checksum is not there yet, so it is not one of those that a device may have verified.
        let own = usize::from(self.remote.is_none());
        if verified < self.cover_count + own {
            self.verify_sums(packet, transport, pseudo(), verified, state)?;
        }
        Ok(Trust { partial: false, levels: (self.cover_count + own).saturating_sub(1) as u8 })
    }

    #[inline]
    fn verify_sums(
        &self,
        packet: &[u8],
        transport: &Layer,
        pseudo: Sum,
        verified: usize,
        state: Checksum,
    ) -> Result<(), Pass> {
        let start = transport.offset as usize;
        let behind = match (state, self.first_ip) {
            (Checksum::Complete { sum }, Some(network)) => {
                Sum::from_word(sum).subtract(sum_between(packet, network, start))
            }
            _ => sum_between(packet, start, packet.len()),
        };
        if self.remote.is_none() && !(behind + pseudo).is_valid() {
            return Err(Pass::Checksum);
        }
        self.verify_covers(packet, start, behind, verified)
    }

    fn verify_covers(
        &self,
        packet: &[u8],
        transport: usize,
        behind: Sum,
        verified: usize,
    ) -> Result<(), Pass> {
        for i in verified..self.cover_count {
            let start = self.covers[i].offset as usize;
            let sum = behind + sum_between(packet, start, transport);
            let (pseudo, form) = if self.covers[i].kind == Kind::Udp {
                let len = (packet.len() - start) as u32;
                (pseudo_header(packet, &self.cover_ips[i], ipv4::PROTOCOL_UDP, len), false)
            } else {
                (Sum::ZERO, u16_at(packet, start + gre::field::CHECKSUM.start) == 0xffff)
            };
            if !(sum + pseudo).is_valid() {
                return Err(Pass::Checksum);
            }
            if form {
                return Err(Pass::ChecksumForm);
            }
        }
        Ok(())
    }

    /// A train is as long as every length field can say, and only a TCP packet in no tunnel can say more than 65535
    /// bytes (rules G60 to G63, T13).
    #[inline]
    fn payload_max(&self, header_len: usize, is_tcp: bool, profile: &Profile) -> usize {
        let beyond = is_tcp && self.ip_levels == 1 && !self.pppoe;
        let mut packet_max = profile.limits.size_bytes as usize - 1;
        if !beyond {
            // PPPoE counts the two bytes of its protocol field too.
            packet_max = packet_max.min(usize::from(u16::MAX) - if self.pppoe { 2 } else { 0 });
        }
        packet_max.saturating_sub(header_len - self.first_ip.unwrap_or(0))
    }
}

#[inline]
fn sum_between(packet: &[u8], from: usize, to: usize) -> Sum {
    packet.get(from..to).map_or(Sum::ZERO, Sum::of)
}

#[inline]
fn check_ipv4(packet: &[u8], layer: &Layer) -> Result<(), Pass> {
    let start = layer.offset as usize;
    if layer.len as usize != ipv4::HEADER_LEN {
        return Err(Pass::Ipv4Options);
    }
    let header = packet.get(start..start + ipv4::HEADER_LEN).unwrap_or_default();
    if !Sum::of(header).is_valid() {
        return Err(Pass::Ipv4Checksum);
    }
    if u16_at(header, ipv4::field::FRAGMENT.start) & 0x8000 != 0 {
        return Err(Pass::Ipv4ReservedBit);
    }
    // The complement of a header's sum is never all ones, so cutting would not write this form again.
    if u16_at(header, ipv4::field::CHECKSUM.start) == 0xffff {
        return Err(Pass::ChecksumForm);
    }
    Ok(())
}

/// The wire packets that a frame stands for.
struct Units {
    packets: u16,
    size: u16,
    short_tail: bool,
}

impl Units {
    /// An ordinary packet is one; a superframe is as many as it says, if its geometry is right (rules G8, G77).
    #[inline]
    fn of(packet: &[u8], transport: &Layer, payload_len: usize, meta: &Meta) -> Result<Self, Pass> {
        let Some(gso) = meta.gso else {
            let size = u16::try_from(payload_len).map_err(|_| Pass::LengthZero)?;
            return Ok(Self { packets: 1, size, short_tail: false });
        };
        let size = gso.size().ok_or(Pass::Superframe)?;
        let packets = payload_len.div_ceil(size as usize);
        let flags = u16_at(packet, transport.offset as usize + tcp::field::OFFSET_FLAGS.start);
        let cwr_on_first = flags & tcp::CWR != 0 && gso.cwr == Cwr::First;
        let told = gso.segments as usize;
        if gso.untrusted || transport.kind != Kind::Tcp || packets < 2 || told != packets || cwr_on_first {
            return Err(Pass::Superframe);
        }
        let packets = u16::try_from(packets).map_err(|_| Pass::Superframe)?;
        Ok(Self { packets, size, short_tail: payload_len % size as usize != 0 })
    }
}

/// Most bytes of headers that a train keeps: six levels of tunnels, or one with all of Geneve's options.
pub const HEADER_BYTES_MAX: usize = 512;

/// Most tunnel checksums around one transport header.
const COVERS_MAX: usize = 4;
