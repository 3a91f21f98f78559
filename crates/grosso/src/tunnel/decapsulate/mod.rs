//! Decapsulation of packets, one tunnel at a time.
//!
//! Only the link header is moved (to the start of the inner packet). No other bytes are copied, and no memory is
//! allocated. [`Decapsulation::plan`] only reads: it locates the packet in the outermost tunnel and returns its
//! metadata, or the reason why it must not be decapsulated. [`Decapsulation::apply`] then changes the frame.
//!
//! | module | job |
//! |---|---|
//! | `headers` | tunnel headers, and the receiver's checks on them |
//! | `checksums` | checksums of the tunnel, and the resulting state of the inner ones |
//! | `on_link` | Ethernet frames in a label stack of the link layer |
//! | `left_open` | inner checksums that were left for a device |
//! | `reason` | names and counters of all refusals |
//!
//! ```
//! use grosso::{Meta, tunnel::{Tunnel, decapsulate::{Decapsulation, DecapsulationRules}}};
//! use grosso_wire::{LinkType, Ports, dissect};
//! # use grosso_testkit::Packet;
//! # let frame = Packet::new().ethernet(|e| e).ipv4(|ip| ip).gre(|gre| gre);
//! # let mut frame = frame.ipv4(|ip| ip).udp(|u| u).payload(b"inside").build();
//!
//! let (link, ports) = (LinkType::Ethernet, Ports::ASSIGNED);
//! let stack = dissect(&frame, link, &ports);
//! assert_eq!(stack.to_string(), "eth ip4 gre ip4 udp");
//!
//! let plan = Decapsulation::plan(&frame, &stack, &Meta::default(), link, &DecapsulationRules::default())?;
//! assert_eq!(plan.tunnel, Tunnel::Gre);
//! let packet = plan.apply(&mut frame);
//! assert_eq!(dissect(&frame[packet], link, &ports).to_string(), "eth ip4 udp");
//! # Ok::<(), grosso::tunnel::decapsulate::Refusal>(())
//! ```

mod checksums;
mod headers;
mod left_open;
mod on_link;
mod reason;

use core::{net::IpAddr, ops::Range};

use grosso_checksum::Sum;
use grosso_wire::{Class, Extent, Kind, Layer, LinkType, Ports, Stack, Stop, ethernet};

pub use reason::{DecapsulateStats, Refusal};

use self::{
    headers::{OuterHeaders, declared_end},
    left_open::left_open,
    on_link::Labeled,
};
use crate::{
    bytes::u16_at,
    checksum::{self, Checksum},
    meta::{Gso, GsoSize, IpLevels, Meta},
    remote_checksum::RemoteChecksum,
    tunnel::{
        Tunnel,
        congestion::{Congestion, Unsignaled, traffic_class},
        link,
    },
};

/// Rules for receiving tunneled packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecapsulationRules {
    /// UDP ports with which the frame was dissected. They distinguish GUE from FOU.
    pub ports: Ports,
    /// Treatment of remote checksum offload.
    pub remote_checksum: RemoteChecksumMode,
    /// Whether to accept UDP over IPv6 without a checksum (RFC 6935, rule W32).
    pub ipv6_without_checksum: bool,
    /// Visibility of the outer UDP checksum.
    pub outer_checksum: OuterChecksum,
    /// Link type of the decapsulated packet.
    pub presented: Presented,
    /// Whether to accept critical Geneve options (rule W41, RFC 8926 section 3.5) as if they were understood. Intended
    /// for observers that are not tunnel endpoints. [`Details::critical_option`] reports the option.
    pub critical_options: bool,
    /// Whether an inner checksum field that contains only the pseudo-header sum counts as partial. Packets from a
    /// container on the same host arrive in this form, because no device completes the checksum. [`Details::left_open`]
    /// reports such packets.
    pub completes_left_open: bool,
    /// Whether to ignore reserved bits in VXLAN headers (RFC 7348 section 5). If this is false, packets with a reserved
    /// bit set are refused, as in Linux (rule W30). [`Details::reserved_bits`] reports whether one is set.
    pub reserved_bits: bool,
}

/// Link type on which a decapsulated packet is delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Presented {
    /// The link type of the frame, as in a capture.
    #[default]
    OnItsLink,
    /// The link type inside the tunnel, for delivery to the tunnel's device. This is Ethernet for Ethernet frames; any
    /// other packet starts with its IP header.
    Alone,
}

/// Visibility of the checksum in a tunnel's UDP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OuterChecksum {
    /// The frame contains the checksum; zero means that there is none.
    #[default]
    InFrame,
    /// The checksum is not visible, but it was verified: the frame comes from a UDP socket with a filter, which
    /// delivers only datagrams with a valid checksum. The checksum protects the inner packet (rules C52, C54), but no
    /// sum can be derived from it.
    VerifiedBelow,
    /// The capture truncated the packet. No checksum that covers it can be verified, and its length fields determine
    /// where it ends.
    CapturedShort,
}

/// Treatment of a packet whose tunnel header requests remote checksum offload (rules C53, C56).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RemoteChecksumMode {
    /// Refuses the packet.
    Refuse,
    /// Makes the inner checksum partial, without reading the payload.
    Partial,
    /// Completes the inner checksum. In a superframe, it becomes partial instead.
    Complete,
}

impl Default for DecapsulationRules {
    /// Returns Linux's defaults, which refuse every feature that is not configured explicitly.
    fn default() -> Self {
        Self {
            ports: Ports::ASSIGNED,
            remote_checksum: RemoteChecksumMode::Refuse,
            ipv6_without_checksum: false,
            outer_checksum: OuterChecksum::InFrame,
            presented: Presented::OnItsLink,
            critical_options: false,
            completes_left_open: false,
            reserved_bits: false,
        }
    }
}

/// Plan for decapsulating a frame from its outermost tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decapsulation {
    /// Kind of tunnel.
    pub tunnel: Tunnel,
    /// Identity of the tunnel. Addresses and fragments in different tunnels are unrelated.
    pub path: Path,
    /// Other contents of the tunnel header.
    pub details: Details,
    /// ECN change that the packet inherits from the tunnel.
    pub congestion: Congestion,
    /// Metadata of the decapsulated packet (rule W4): the state of the inner checksums, the segmentation parameters,
    /// and the VLAN tag if the link header is kept. The receive hash is removed, because it was computed over the outer
    /// packet.
    pub meta: Meta,
    /// Part of the link layer that is kept.
    front: Front,
    /// Start and end of the packet after the link layer, in bytes from the start of the frame.
    start: usize,
    end: usize,
    /// First IP header in the packet, which inherits congestion marks.
    network: Option<Layer>,
    /// Checksum to complete.
    completed: Option<RemoteChecksum>,
}

/// One direction of a tunnel between two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    /// Address of the encapsulating host, or the unspecified address if there is no outer IP header.
    pub source: IpAddr,
    /// Address of the decapsulating host, or the unspecified address if there is no outer IP header.
    pub destination: IpAddr,
    /// Network identifier of VXLAN or Geneve, GRE key, or MPLS label on a link.
    pub identifier: Option<u32>,
}

/// Contents of a tunnel header other than the tunnel's identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Details {
    /// Payload type of the tunnel: Ethernet, IPv4, IPv6 or MPLS.
    pub carried: Option<Kind>,
    /// VXLAN group policy (rule W31).
    pub policy: Option<u16>,
    /// Whether the policy forbids learning addresses from this packet (rule W31).
    pub dont_learn: bool,
    /// Whether the GRE header had a checksum, which was valid.
    pub gre_checksum: bool,
    /// GRE sequence number (RFC 2890).
    pub sequence: Option<u32>,
    /// Class and type of the first critical Geneve option.
    pub critical_option: Option<(u16, u8)>,
    /// Whether the inner checksum was left for a device and is therefore partial
    /// ([`DecapsulationRules::completes_left_open`]).
    pub left_open: bool,
    /// Whether the tunnel header has reserved bits set.
    pub reserved_bits: bool,
}

impl Details {
    /// Details of a tunnel header without any of these fields.
    const NONE: Self = Self {
        carried: None,
        policy: None,
        dont_learn: false,
        gre_checksum: false,
        sequence: None,
        critical_option: None,
        left_open: false,
        reserved_bits: false,
    };
}

/// Part of the link layer that is kept before the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Front {
    len: usize,
    /// Header with the type of the packet, and the type to write.
    named: Option<(Layer, u16)>,
    /// PPPoE header, which contains the length of the packet.
    pppoe: Option<Layer>,
    /// Length in bytes of the decapsulated packet minus the length of the outer packet. It is never positive.
    grown: isize,
}

impl Front {
    const NONE: Self = Self { len: 0, named: None, pppoe: None, grown: 0 };
}

impl Decapsulation {
    /// Finds the packet in the outermost tunnel of `frame`, whose dissection is `stack`. Performs all checks that a
    /// receiver must make: lengths, flags, options, and the checksums that have not been verified.
    ///
    /// With [`Presented::OnItsLink`] on an Ethernet link, an Ethernet frame in the tunnel becomes the packet. Any other
    /// packet, and the payload of an Ethernet frame on another link, is placed after the frame's link header, which
    /// keeps its VLAN tags and gets a new EtherType. On a link without a header, the packet is the first IP packet in
    /// the tunnel.
    ///
    /// # Errors
    /// Returns the reason why there is no tunnel or the packet must not be decapsulated.
    pub fn plan(
        frame: &[u8],
        stack: &Stack,
        meta: &Meta,
        link: LinkType,
        rules: &DecapsulationRules,
    ) -> Result<Self, Refusal> {
        if let Some(labeled) = Labeled::find(stack) {
            return labeled.plan(frame, stack, meta, link, rules.presented);
        }
        let outer = OuterHeaders::find(frame, stack, rules, meta.gso.is_some())?;
        let gso = match meta.gso {
            Some(gso) => Some(gso_inside(gso, stack)?),
            None => None,
        };
        let inside = stack.layers().get(outer.inner..).unwrap_or_default();
        let is_frame = inside.first().is_some_and(|layer| layer.kind == Kind::Ethernet);
        let link = match (rules.presented, is_frame) {
            (Presented::OnItsLink, _) => link,
            (Presented::Alone, true) => LinkType::Ethernet,
            (Presented::Alone, false) => LinkType::Raw,
        };
        let packet = InnerPacket::find(frame, &outer, inside, link, gso.is_some())?;
        let front = match rules.presented {
            Presented::OnItsLink => packet.front(frame, stack, &outer, link)?,
            Presented::Alone => Front::NONE,
        };
        if !(front.len <= packet.start && packet.start <= packet.end && packet.end <= frame.len()) {
            // The stack is that of another frame.
            return Err(Refusal::Malformed);
        }
        let start = inside.first().map_or(outer.end, |layer| usize::from(layer.offset));
        let network = packet.network.map(|layer| usize::from(layer.offset));
        let covered = checksums::Covered { start, network, end: packet.end };
        let verified = checksums::verify(frame, &outer, meta, &covered, rules.outer_checksum)?;
        let may_lack_checksum = outer.ip.kind == Kind::Ipv4 || rules.ipv6_without_checksum;
        if verified.lacks_udp_checksum && !may_lack_checksum {
            return Err(Refusal::UdpChecksumNone);
        }
        let class = traffic_class(at(frame, outer.ip.offset.into()), outer.ip.kind);
        let congestion = match packet.network {
            Some(ip) => congestion(frame, &ip, class)?,
            None => Congestion::Unchanged,
        };
        let mut plan = Self {
            tunnel: outer.tunnel,
            path: outer.path(frame, stack),
            details: outer.details(frame, stack),
            congestion,
            meta: Meta {
                checksum: verified.inside,
                gso,
                vlan: meta.vlan.filter(|_| front.len > 0),
                hash: None,
                timestamp_ns: meta.timestamp_ns,
                fragmented: None,
            },
            front,
            start: packet.start,
            end: packet.end,
            network: packet.network,
            completed: None,
        };
        plan.follow_congestion(frame);
        if let Some(remote) = outer.remote_checksum {
            plan.resolve(remote, verified.is_protected, rules.remote_checksum)?;
        } else if rules.completes_left_open {
            plan.find_left_open(frame, inside);
        }
        plan.shift_partial()?;
        Ok(plan)
    }

    /// Decapsulates the frame for which the plan was made and returns the range of the packet in it, starting with the
    /// link header. The bytes before the range are then meaningless.
    pub fn apply(&self, frame: &mut [u8]) -> Range<usize> {
        if let Some(network) = self.network
            && let Some(packet) = frame.get_mut(usize::from(network.offset)..self.end)
        {
            self.congestion.apply(packet, network.kind);
        }
        if let Some(remote) = self.completed
            && let Some(packet) = frame.get_mut(..self.end)
        {
            // The plan has checked that both offsets lie in the packet, so they fit into 16 bits.
            let offset = (remote.at - remote.start) as u16;
            let _ = checksum::complete(packet, remote.start as u16, offset);
        }
        let start = self.start - self.front.len;
        if self.end <= frame.len() && self.front.len > 0 {
            frame.copy_within(..self.front.len, start);
            let front = frame.get_mut(start..self.start).unwrap_or_default();
            if let Some((layer, ethertype)) = self.front.named {
                let _ = link::name_payload(front, &layer, ethertype);
            }
            if let Some(pppoe) = self.front.pppoe {
                let _ = link::lengthen(front, &[pppoe], self.front.grown);
            }
        }
        start..self.end
    }

    /// Returns whether [`Decapsulation::apply`] would change any byte. If not, the packet is already at
    /// [`Decapsulation::inner`].
    #[must_use]
    pub fn is_change(&self) -> bool {
        let tells = matches!(self.congestion, Congestion::Capable1 | Congestion::Experienced);
        self.front.len > 0 || self.completed.is_some() || tells
    }

    /// Returns the length of the decapsulated packet in bytes.
    #[must_use]
    pub const fn packet_len(&self) -> usize {
        self.end - self.start + self.front.len
    }

    /// Returns the range of the packet in the original frame, without the link header if that belongs to the outer
    /// frame.
    #[must_use]
    pub const fn inner(&self) -> Range<usize> {
        self.start..self.end
    }

    /// Updates the sum over the packet for a changed IPv6 traffic class. IPv4 does not need this, because its header
    /// checksum compensates for the change.
    fn follow_congestion(&mut self, frame: &[u8]) {
        let (Checksum::Complete { sum }, Some(network)) = (self.meta.checksum, self.network) else {
            return;
        };
        if network.kind != Kind::Ipv6 {
            return;
        }
        let start = usize::from(network.offset);
        let mut header = [0; 4];
        let old = frame.get(start..start + 4).unwrap_or(&[0; 4]);
        header.copy_from_slice(old);
        self.congestion.apply(&mut header, network.kind);
        let sum = Sum::from_word(sum).subtract(Sum::of(old)) + Sum::of(&header);
        self.meta.checksum = Checksum::Complete { sum: sum.fold() };
    }

    /// Looks for a checksum that was left for a device to complete, if the state of the inner checksums is unknown.
    fn find_left_open(&mut self, frame: &[u8], inside: &[Layer]) {
        let is_unknown = matches!(self.meta.checksum, Checksum::None | Checksum::Complete { .. });
        if is_unknown && let Some(partial) = left_open(frame, inside, self.end) {
            self.meta.checksum = partial;
            self.details.left_open = true;
        }
    }

    /// Applies remote checksum offload. The outer checksum must already be verified.
    fn resolve(
        &mut self,
        remote: RemoteChecksum,
        is_protected: bool,
        mode: RemoteChecksumMode,
    ) -> Result<(), Refusal> {
        if mode == RemoteChecksumMode::Refuse {
            return Err(Refusal::RemoteChecksumOff);
        }
        let is_partial = matches!(self.meta.checksum, Checksum::Partial { .. });
        if !is_protected && !is_partial {
            return Err(Refusal::RemoteChecksumUnprotected);
        }
        let RemoteChecksum { start, at } = remote;
        let is_even = (start ^ self.start) & 1 == 0 && (at ^ self.start) & 1 == 0;
        let is_inside = start >= self.start && at >= start && at.saturating_add(2) <= self.end;
        let partial = u16::try_from(start).ok().zip(u16::try_from(at.wrapping_sub(start)).ok());
        let Some((start, offset)) = partial.filter(|_| is_even && is_inside) else {
            return Err(Refusal::RemoteChecksumPlace);
        };
        let partial = Checksum::Partial { start, offset };
        if is_partial && self.meta.checksum != partial {
            return Err(Refusal::RemoteChecksumPlace);
        }
        if mode == RemoteChecksumMode::Complete && self.meta.gso.is_none() {
            self.completed = Some(remote);
            self.meta.checksum = Checksum::None;
        } else {
            self.meta.checksum = partial;
        }
        Ok(())
    }

    /// Makes the offset of a partial checksum relative to the start of the decapsulated packet.
    fn shift_partial(&mut self) -> Result<(), Refusal> {
        if let Checksum::Partial { start, .. } = &mut self.meta.checksum {
            if usize::from(*start) < self.start {
                return Err(Refusal::ChecksumOutside);
            }
            *start -= (self.start - self.front.len) as u16;
        }
        Ok(())
    }
}

/// Adapts the parameters of a superframe to the inner packet, which is segmented in the same way but has one IP header
/// fewer.
fn gso_inside(gso: Gso, stack: &Stack) -> Result<Gso, Refusal> {
    let last = stack.last().map(|layer| layer.kind);
    let is_transport = stack.stop == Stop::Payload && matches!(last, Some(Kind::Tcp | Kind::Udp));
    // In a superframe of tunnel datagrams, each datagram has an inner length of its own (B29).
    let is_whole = matches!(stack.extent, Extent::Exact | Extent::Jumbo);
    if !is_transport || !is_whole || matches!(gso.size, GsoSize::Fragments(_)) {
        return Err(Refusal::Superframe);
    }
    Ok(Gso { fixed_ids: IpLevels::from_bits(gso.fixed_ids.bits() >> 1), ..gso })
}

/// Inner packet as the caller receives it on the presented link.
struct InnerPacket {
    start: usize,
    end: usize,
    /// EtherType of the packet, or `None` for an Ethernet frame that is the whole packet.
    ethertype: Option<u16>,
    /// First IP header in the packet, at the start or after VLAN tags.
    network: Option<Layer>,
}

impl InnerPacket {
    fn find(
        frame: &[u8],
        outer: &OuterHeaders,
        inside: &[Layer],
        link: LinkType,
        is_superframe: bool,
    ) -> Result<Self, Refusal> {
        let first = inside.first().ok_or(Refusal::Protocol)?;
        let is_tag = |layer: &&Layer| matches!(layer.kind, Kind::Ethernet | Kind::Vlan);
        let network = inside.iter().find(|layer| !is_tag(layer)).filter(|layer| is_ip(layer));
        // The header is MPLS or a tunnel header that a link layer can carry.
        let is_label = |layer: &Layer| {
            let spec = layer.kind.spec();
            let is_on_links = !spec.announced.ethertypes.is_empty();
            layer.kind == Kind::Mpls || spec.class == Class::Tunnel && is_on_links
        };
        // If no link header gives the payload type, only IP can be recognized.
        let has_names = !matches!(link, LinkType::Raw | LinkType::Null);
        let shown = if has_names {
            first
        } else {
            inside
                .iter()
                .take_while(|layer| is_tag(layer) || is_label(layer) || is_ip(layer))
                .find(|layer| is_ip(layer))
                .ok_or(Refusal::LinkFamily)?
        };
        let ip_end = match network.or_else(|| Some(shown).filter(|layer| is_ip(layer))) {
            Some(ip) => declared_end(frame, ip, is_superframe)?.unwrap_or(outer.end),
            None => outer.end,
        };
        if ip_end > outer.end {
            return Err(Refusal::InnerLength);
        }
        let network = network.copied();
        let (start, ethertype, end) = match shown.kind {
            Kind::Ethernet if link == LinkType::Ethernet => (shown.offset.into(), None, outer.end),
            Kind::Ethernet => {
                let at = usize::from(shown.offset) + ethernet::field::ETHERTYPE.start;
                (shown.end(), Some(ethertype_of(u16_at(frame, at))), outer.end)
            }
            kind => {
                let ethertype =
                    kind.spec().announced.ethertypes.first().ok_or(Refusal::Protocol)?;
                let end = if kind.is_ip() { ip_end } else { outer.end };
                (shown.offset.into(), Some(*ethertype), end)
            }
        };
        Ok(Self { start, end, ethertype, network })
    }

    /// Returns the part of the link layer that is kept before the packet.
    fn front(
        &self,
        frame: &[u8],
        stack: &Stack,
        outer: &OuterHeaders,
        link: LinkType,
    ) -> Result<Front, Refusal> {
        let nothing = Front::NONE;
        let Some(ethertype) = self.ethertype else { return Ok(nothing) };
        let mut links = stack.layers().get(..outer.links).unwrap_or_default();
        let is_frame = |layer: &Layer| layer.kind == Kind::Ethernet;
        if stack.layers().get(outer.inner).is_some_and(is_frame) {
            // The VLAN tags of the outer frame do not apply to the inner frame.
            links = links.get(..1).unwrap_or_default();
        }
        let Some(last) = links.last() else { return Ok(nothing) };
        let len = last.end();
        let is_same =
            usize::from(outer.ip.offset) == len && ethertype == version_ethertype(outer.ip.kind);
        let named = (!is_same).then_some((*last, ethertype));
        if link == LinkType::Null && !is_same || last.kind == Kind::Mpls && !is_ip_type(ethertype) {
            return Err(Refusal::LinkFamily);
        }
        // The bottom label of an MPLS stack does not give the payload type; the first bits of the packet determine its
        // version.
        let named = named.filter(|_| last.kind != Kind::Mpls);
        if named.is_some_and(|(layer, name)| !link::can_name(layer.kind, name)) {
            return Err(Refusal::LinkFamily);
        }
        let pppoe = links.iter().find(|layer| layer.kind == Kind::Pppoe).copied();
        let before = outer_len(frame, outer);
        let grown = self.end.saturating_sub(self.start) as isize - before as isize;
        Ok(Front { len, named, pppoe, grown })
    }
}

/// Returns the change to the ECN field of the packet at the IP header `ip`, if the traffic class of the outer header is
/// `class`.
fn congestion(frame: &[u8], ip: &Layer, class: u8) -> Result<Congestion, Refusal> {
    let inner = traffic_class(at(frame, ip.offset.into()), ip.kind);
    Congestion::leaving(inner, class).map_err(|Unsignaled| Refusal::CongestionUntold)
}

/// Returns the length of the outermost IP packet in bytes.
fn outer_len(frame: &[u8], outer: &OuterHeaders) -> usize {
    let start = usize::from(outer.ip.offset);
    match declared_end(frame, &outer.ip, true) {
        Ok(Some(end)) => end.saturating_sub(start),
        _ => outer.end.saturating_sub(start),
    }
}

/// Returns the EtherType for a field. If the field contains a length, an LLC header follows, for which Linux uses a
/// special number.
fn ethertype_of(field: u16) -> u16 {
    if field < ETHERTYPE_MIN { ETHERTYPE_LLC } else { field }
}

const fn version_ethertype(kind: Kind) -> u16 {
    match kind {
        Kind::Ipv4 => ethernet::ETHERTYPE_IPV4,
        _ => ethernet::ETHERTYPE_IPV6,
    }
}

fn is_ip(layer: &Layer) -> bool {
    layer.kind.is_ip()
}

fn is_ip_type(ethertype: u16) -> bool {
    matches!(ethertype, ethernet::ETHERTYPE_IPV4 | ethernet::ETHERTYPE_IPV6)
}

fn at(frame: &[u8], start: usize) -> &[u8] {
    frame.get(start..).unwrap_or_default()
}

/// Lowest EtherType. Lower values are lengths (IEEE 802.3 section 3.2.6).
const ETHERTYPE_MIN: u16 = 0x0600;
/// Linux's `ETH_P_802_2`, the number for LLC in a cooked capture.
const ETHERTYPE_LLC: u16 = 0x0004;
