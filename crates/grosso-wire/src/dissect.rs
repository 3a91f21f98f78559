//! One bounded walk over the headers of a frame.
//!
//! The walk is a loop over "which header comes next": no recursion, no allocation, and every turn
//! of the loop either appends a layer or ends, so [`LAYERS_MAX`](crate::LAYERS_MAX) bounds it.
//! Lengths that headers declare narrow the bytes that later headers may use: a TCP header must lie
//! inside the IP payload that announces it, not merely inside the frame.

use crate::header::{Kind, esp, geneve, gue, ipv4, ipv6, ipv6_extension, vxlan};
use crate::link_type::LinkType;
use crate::stack::{Extent, LAYERS_MAX, Layer, Stack, Stop};

/// The UDP destination ports that mean a tunnel. Port 0 disables an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ports {
    /// VXLAN (RFC 7348), 4789.
    pub vxlan: u16,
    /// VXLAN with the generic protocol extension, 4790.
    pub vxlan_gpe: u16,
    /// Geneve (RFC 8926), 6081.
    pub geneve: u16,
    /// Generic UDP encapsulation, 6080.
    pub gue: u16,
    /// ESP in UDP (RFC 3948), 4500.
    pub esp: u16,
    /// Foo over UDP: a port and the IP protocol that its payload is (rules W10, W24). At that of
    /// one version of IP the other is found too.
    pub fou: Option<(u16, u8)>,
}

impl Ports {
    /// No UDP port means a tunnel: every UDP header ends the walk.
    pub const NONE: Self = Self { vxlan: 0, vxlan_gpe: 0, geneve: 0, gue: 0, esp: 0, fou: None };

    /// The ports that IANA assigned; no FOU, which has none.
    pub const ASSIGNED: Self = Self {
        vxlan: vxlan::PORT,
        vxlan_gpe: vxlan::PORT_GPE,
        geneve: geneve::PORT,
        gue: gue::PORT,
        esp: esp::PORT,
        fou: None,
    };
}

impl Default for Ports {
    fn default() -> Self {
        Self::ASSIGNED
    }
}

/// Finds the headers of `frame`, outermost first.
///
/// Never fails: what is there is listed, and [`Stack::stop`] says why nothing more is. A header is
/// listed only when all its bytes are present, inside the frame and inside every length that an
/// outer header declares. Checksums are not looked at.
#[inline]
pub fn dissect(frame: &[u8], link: LinkType, ports: &Ports) -> Stack {
    let mut stack = Stack::new(0);
    dissect_into(frame, link, ports, &mut stack);
    stack
}

/// As [`dissect`], into a stack that the caller keeps: what it held is forgotten, not overwritten,
/// which makes this the faster form in a loop over packets.
pub fn dissect_into(frame: &[u8], link: LinkType, ports: &Ports, stack: &mut Stack) {
    let mut walk = Walk {
        layers: stack.slots(),
        count: 0,
        rest: frame,
        offset: 0,
        end: frame.len(),
        extent: Extent::Exact,
        jumbo: false,
    };
    let stop = walk.run(link, ports);
    let Walk { count, end, extent, .. } = walk;
    stack.set_count(count);
    stack.stop = stop;
    stack.extent = extent;
    stack.end = u32::try_from(end).unwrap_or(u32::MAX);
}

/// The header that the walk meets next.
#[derive(Clone, Copy)]
pub(crate) enum Next {
    Header(Kind),
    /// What an EtherType of a link layer announces.
    EtherType(u16),
    /// What an EtherType of a tunnel header announces.
    Tunnelled(u16),
    /// What a next protocol of VXLAN-GPE announces.
    Numbered(u8),
    /// IPv4 or IPv6: the version nibble decides.
    Ip,
    /// An IP protocol where IPv6 extension headers have no place.
    Protocol(u8),
    /// What an IPv6 next-header field announces.
    AfterIpv6(u8),
    /// The payload of a UDP datagram to this port.
    UdpPayload(u16),
}

/// A step of the walk: the next header, or the reason to stop.
pub(crate) type Step = Result<Next, Stop>;

pub(crate) struct Walk<'a, 's> {
    layers: &'s mut [Layer; LAYERS_MAX],
    /// How many headers were found: here and not in the stack, so that it stays in a register.
    count: usize,
    /// The bytes from the next header to the nearest end: the frame's or a declared one.
    pub(crate) rest: &'a [u8],
    /// Where `rest` starts in the frame.
    offset: usize,
    /// Where the innermost declared payload ends; beyond the frame when it was cut.
    end: usize,
    extent: Extent,
    /// The innermost IP header declares no length.
    pub(crate) jumbo: bool,
}

impl<'a> Walk<'a, '_> {
    #[inline(always)]
    fn run(&mut self, link: LinkType, ports: &Ports) -> Stop {
        let mut step = self.link(link);
        loop {
            step = match step {
                Ok(Next::Header(kind)) => self.enter(kind),
                Ok(Next::EtherType(ethertype)) => Self::of_ethertype(ethertype),
                Ok(Next::AfterIpv6(protocol)) => self.after_ipv6(protocol),
                Ok(Next::Protocol(protocol)) => Self::of_protocol(protocol),
                Ok(Next::UdpPayload(port)) => self.udp_payload(port, ports),
                Ok(Next::Tunnelled(ethertype)) => Self::of_tunnel_ethertype(ethertype),
                Ok(Next::Numbered(protocol)) => Self::of_next_protocol(protocol),
                Ok(Next::Ip) => self.ip(),
                Err(stop) => return stop,
            };
        }
    }

    #[inline(always)]
    fn link(&mut self, link: LinkType) -> Step {
        match link {
            LinkType::Ethernet => self.enter(Kind::Ethernet),
            LinkType::Raw => Ok(Next::Ip),
            LinkType::Null => self.enter(Kind::Null),
            LinkType::LinuxSll => self.enter(Kind::Sll),
            LinkType::LinuxSll2 => self.enter(Kind::Sll2),
        }
    }

    #[inline(always)]
    fn ip(&mut self) -> Step {
        match self.rest.first().ok_or(Stop::Cut)? >> 4 {
            4 => Ok(Next::Header(Kind::Ipv4)),
            6 => Ok(Next::Header(Kind::Ipv6)),
            _ => Err(Stop::Unknown),
        }
    }

    #[inline(always)]
    fn after_ipv6(&mut self, protocol: u8) -> Step {
        match protocol {
            ipv6::NEXT_HOP_BY_HOP => ipv6_extension::read_hop_by_hop(self),
            ipv6::NEXT_ROUTING | ipv6::NEXT_DESTINATION_OPTIONS => self.enter(Kind::Ipv6Extension),
            ipv6::NEXT_FRAGMENT => self.enter(Kind::Ipv6Fragment),
            _ => Ok(Next::Protocol(protocol)),
        }
    }

    #[inline(always)]
    fn udp_payload(&mut self, port: u16, ports: &Ports) -> Step {
        if port == 0 {
            return Err(Stop::Payload);
        }
        if let Some(step) = self.enter_port(port, ports) {
            return step;
        }
        match ports.fou {
            // A tunnel of IP packets carries both versions, and their first bits tell them apart.
            Some((fou, ipv4::PROTOCOL_IPV4 | ipv4::PROTOCOL_IPV6)) if port == fou => Ok(Next::Ip),
            Some((fou, protocol)) if port == fou => Ok(Next::Protocol(protocol)),
            _ => Err(Stop::Payload),
        }
    }

    /// The kind of the header that was appended last.
    #[inline(always)]
    pub(crate) fn last(&self) -> Option<Kind> {
        let last = self.count.checked_sub(1).and_then(|last| self.layers.get(last));
        last.map(|layer| layer.kind)
    }

    /// Appends a header of `len` bytes and steps over it, unless it is cut.
    #[inline(always)]
    pub(crate) fn push(&mut self, kind: Kind, len: usize) -> Result<(), Stop> {
        self.rest = self.rest.get(len..).ok_or(Stop::Cut)?;
        // The longest header has 2048 bytes and LAYERS_MAX of them come before this one at most, so
        // both numbers fit in 16 bits.
        let layer = Layer { kind, offset: self.offset as u16, len: len as u16 };
        *self.layers.get_mut(self.count).ok_or(Stop::TooDeep)? = layer;
        self.count += 1;
        self.offset += len;
        Ok(())
    }

    /// Takes the payload length that an IP header declares, unless it declares none.
    #[inline(always)]
    pub(crate) fn declare_ip(&mut self, len: usize) {
        if self.jumbo {
            self.extent = self.extent.combine(Extent::Jumbo);
        } else {
            self.declare(len);
        }
    }

    /// Takes a declared length, counted from the end of the header that declares it.
    #[inline(always)]
    pub(crate) fn declare(&mut self, len: usize) {
        let end = self.offset.saturating_add(len);
        if end == self.end {
            return;
        }
        let extent = if end > self.end { Extent::Short } else { Extent::Padded };
        self.extent = self.extent.combine(extent);
        self.end = end;
        self.rest = self.rest.get(..len).unwrap_or(self.rest);
    }

    /// The next `N` bytes.
    #[inline(always)]
    pub(crate) fn peek<const N: usize>(&self) -> Result<&'a [u8; N], Stop> {
        self.rest.first_chunk().ok_or(Stop::Cut)
    }
}

#[inline]
pub(crate) fn u16_at<const N: usize>(bytes: &[u8; N], offset: usize) -> u16 {
    u16::from_be_bytes([bytes[offset], bytes[offset + 1]])
}
