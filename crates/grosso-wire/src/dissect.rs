//! One bounded walk over the headers of a frame.
//!
//! The walk is a loop over "which header comes next": no recursion, no allocation, and every turn
//! of the loop either appends a layer or ends, so [`LAYERS_MAX`](crate::LAYERS_MAX) bounds it.
//! Lengths that headers declare narrow the bytes that later headers may use: a TCP header must lie
//! inside the IP payload that announces it, not merely inside the frame.

use crate::ipv6_extension::{Ipv6Option, Options};
use crate::link_type::LinkType;
use crate::stack::{Extent, Kind, LAYERS_MAX, Layer, Stack, Stop};
use crate::{
    esp, ethernet, geneve, gre, gue, icmp, ipv4, ipv6, ipv6_fragment, mpls, null, pppoe, sll, sll2,
    tcp, udp, vlan, vxlan,
};

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
enum Next {
    Ethernet,
    EtherType(u16),
    Mpls,
    /// IPv4 or IPv6: the version nibble decides.
    Ip,
    Ipv4,
    Ipv6,
    /// An IP protocol where IPv6 extension headers have no place.
    Protocol(u8),
    /// What an IPv6 next-header field announces.
    AfterIpv6(u8),
    /// The payload of a UDP datagram to this port.
    UdpPayload(u16),
}

/// A step of the walk: the next header, or the reason to stop.
type Step = Result<Next, Stop>;

struct Walk<'a, 's> {
    layers: &'s mut [Layer; LAYERS_MAX],
    /// How many headers were found: here and not in the stack, so that it stays in a register.
    count: usize,
    /// The bytes from the next header to the nearest end: the frame's or a declared one.
    rest: &'a [u8],
    /// Where `rest` starts in the frame.
    offset: usize,
    /// Where the innermost declared payload ends; beyond the frame when it was cut.
    end: usize,
    extent: Extent,
    /// The innermost IP header declares no length.
    jumbo: bool,
}

impl<'a> Walk<'a, '_> {
    #[inline(always)]
    fn run(&mut self, link: LinkType, ports: &Ports) -> Stop {
        let mut step = self.link(link);
        loop {
            step = match step {
                Ok(Next::Ethernet) => self.ethernet(),
                Ok(Next::EtherType(ethertype)) => self.ethertype(ethertype),
                Ok(Next::Ipv4) => self.ipv4(),
                Ok(Next::Ipv6) => self.ipv6(),
                Ok(Next::AfterIpv6(protocol)) => self.ipv6_next(protocol),
                Ok(Next::Protocol(protocol)) => self.protocol(protocol),
                Ok(Next::UdpPayload(port)) => self.udp_payload(port, ports),
                Ok(Next::Ip) => self.ip(),
                Ok(Next::Mpls) => self.mpls(),
                Err(stop) => return stop,
            };
        }
    }

    #[inline(always)]
    fn link(&mut self, link: LinkType) -> Step {
        match link {
            LinkType::Ethernet => self.ethernet(),
            LinkType::Raw => Ok(Next::Ip),
            LinkType::Null => self.null(),
            LinkType::LinuxSll => {
                let header = self.peek::<{ sll::HEADER_LEN }>()?;
                self.push(Kind::Sll, sll::HEADER_LEN)?;
                Ok(Next::EtherType(u16_at(header, 14)))
            }
            LinkType::LinuxSll2 => {
                let header = self.peek::<{ sll2::HEADER_LEN }>()?;
                self.push(Kind::Sll2, sll2::HEADER_LEN)?;
                Ok(Next::EtherType(u16_at(header, 0)))
            }
        }
    }

    #[inline(always)]
    fn null(&mut self) -> Step {
        let header = null::Header { family: *self.peek()? };
        self.push(Kind::Null, null::HEADER_LEN)?;
        match header.family() {
            null::FAMILY_IPV4 => Ok(Next::Ipv4),
            null::FAMILY_IPV6_LINUX
            | null::FAMILY_IPV6_NETBSD
            | null::FAMILY_IPV6_FREEBSD
            | null::FAMILY_IPV6_MACOS => Ok(Next::Ipv6),
            _ => Err(Stop::Unknown),
        }
    }

    #[inline(always)]
    fn ethernet(&mut self) -> Step {
        let header = self.peek::<{ ethernet::HEADER_LEN }>()?;
        self.push(Kind::Ethernet, ethernet::HEADER_LEN)?;
        match u16_at(header, 12) {
            ethernet::ETHERTYPE_IPV4 => self.ipv4(),
            ethernet::ETHERTYPE_IPV6 => self.ipv6(),
            other => Ok(Next::EtherType(other)),
        }
    }

    #[inline(always)]
    fn ethertype(&mut self, ethertype: u16) -> Step {
        match ethertype {
            ethernet::ETHERTYPE_IPV4 => Ok(Next::Ipv4),
            ethernet::ETHERTYPE_IPV6 => Ok(Next::Ipv6),
            ethernet::ETHERTYPE_VLAN
            | ethernet::ETHERTYPE_VLAN_SERVICE
            | ethernet::ETHERTYPE_VLAN_OLD => {
                let header = self.peek::<{ vlan::HEADER_LEN }>()?;
                self.push(Kind::Vlan, vlan::HEADER_LEN)?;
                Ok(Next::EtherType(u16_at(header, 2)))
            }
            ethernet::ETHERTYPE_PPPOE_SESSION => self.pppoe(),
            ethernet::ETHERTYPE_MPLS | ethernet::ETHERTYPE_MPLS_MULTICAST => Ok(Next::Mpls),
            _ => Err(Stop::Unknown),
        }
    }

    #[inline(always)]
    fn pppoe(&mut self) -> Step {
        let header = self.peek::<{ pppoe::HEADER_LEN }>()?;
        let length = u16_at(header, 4) as usize;
        if header[0] != pppoe::VERSION_TYPE || length < pppoe::PROTOCOL_LEN {
            return Err(Stop::Malformed);
        }
        if header[1] != pppoe::CODE_SESSION {
            return Err(Stop::Unknown);
        }
        self.push(Kind::Pppoe, pppoe::HEADER_LEN)?;
        self.declare(length - pppoe::PROTOCOL_LEN);
        match u16_at(header, 6) {
            pppoe::PROTOCOL_IPV4 => Ok(Next::Ipv4),
            pppoe::PROTOCOL_IPV6 => Ok(Next::Ipv6),
            _ => Err(Stop::Unknown),
        }
    }

    #[inline(always)]
    fn mpls(&mut self) -> Step {
        let entry = self.peek::<{ mpls::HEADER_LEN }>()?;
        self.push(Kind::Mpls, mpls::HEADER_LEN)?;
        let bottom = u32::from_be_bytes(*entry) & mpls::BOTTOM_OF_STACK != 0;
        Ok(if bottom { Next::Ip } else { Next::Mpls })
    }

    #[inline(always)]
    fn ip(&mut self) -> Step {
        match self.rest.first().ok_or(Stop::Cut)? >> 4 {
            4 => Ok(Next::Ipv4),
            6 => Ok(Next::Ipv6),
            _ => Err(Stop::Unknown),
        }
    }

    #[inline(always)]
    fn ipv4(&mut self) -> Step {
        let header = self.peek::<{ ipv4::HEADER_LEN }>()?;
        let header_len = (header[0] & 0x0f) as usize * 4;
        let total_len = u16_at(header, 2) as usize;
        self.jumbo = total_len == 0;
        let lengths_agree = total_len >= header_len || self.jumbo;
        if header[0] >> 4 != 4 || header_len < ipv4::HEADER_LEN || !lengths_agree {
            return Err(Stop::Malformed);
        }
        self.push(Kind::Ipv4, header_len)?;
        self.declare_ip(total_len.wrapping_sub(header_len));
        // The reserved bit and DF do not make a fragment.
        if u16_at(header, 6) & (ipv4::MORE_FRAGMENTS | ipv4::OFFSET_MASK) != 0 {
            return Err(Stop::Fragment);
        }
        match header[9] {
            ipv4::PROTOCOL_TCP => self.tcp(),
            ipv4::PROTOCOL_UDP => self.udp(),
            other => Ok(Next::Protocol(other)),
        }
    }

    #[inline(always)]
    fn ipv6(&mut self) -> Step {
        let header = self.peek::<{ ipv6::HEADER_LEN }>()?;
        if header[0] >> 4 != 6 {
            return Err(Stop::Malformed);
        }
        let payload_len = u16_at(header, 4) as usize;
        // Where nothing follows the header, a length of zero is a length.
        self.jumbo = payload_len == 0 && header[6] != ipv6::NEXT_NONE;
        self.push(Kind::Ipv6, ipv6::HEADER_LEN)?;
        self.declare_ip(payload_len);
        match header[6] {
            ipv4::PROTOCOL_TCP => self.tcp(),
            ipv4::PROTOCOL_UDP => self.udp(),
            other => Ok(Next::AfterIpv6(other)),
        }
    }

    #[inline(always)]
    fn ipv6_next(&mut self, protocol: u8) -> Step {
        match protocol {
            ipv6::NEXT_HOP_BY_HOP | ipv6::NEXT_ROUTING | ipv6::NEXT_DESTINATION_OPTIONS => {
                self.ipv6_extension(protocol)
            }
            ipv6::NEXT_FRAGMENT => {
                let header = self.peek::<{ ipv6_fragment::HEADER_LEN }>()?;
                self.push(Kind::Ipv6Fragment, ipv6_fragment::HEADER_LEN)?;
                // An atomic fragment is a whole packet (RFC 6946); two bits are reserved.
                let place = ipv6_fragment::OFFSET_MASK | ipv6_fragment::MORE_FRAGMENTS;
                let atomic = u16_at(header, 2) & place == 0;
                if atomic { Ok(Next::AfterIpv6(header[0])) } else { Err(Stop::Fragment) }
            }
            _ => Ok(Next::Protocol(protocol)),
        }
    }

    #[inline(always)]
    fn ipv6_extension(&mut self, protocol: u8) -> Step {
        let header = self.peek::<8>()?;
        let header_len = (header[1] as usize + 1) * 8;
        let options = self.rest.get(2..header_len).ok_or(Stop::Cut)?;
        let last = self.count.checked_sub(1).and_then(|last| self.layers.get(last));
        let follows_ipv6 = last.is_some_and(|layer| layer.kind == Kind::Ipv6);
        let mut declared = None;
        if protocol == ipv6::NEXT_HOP_BY_HOP && self.jumbo && follows_ipv6 {
            declared = jumbo_payload_len(options);
            // RFC 2675 section 3: the option is for payloads that the fixed header cannot express.
            if declared.is_some_and(|payload_len| payload_len <= 0xffff) {
                return Err(Stop::Malformed);
            }
        }
        self.push(Kind::Ipv6Extension, header_len)?;
        if let Some(payload_len) = declared {
            self.declare(payload_len as usize - header_len);
        }
        Ok(Next::AfterIpv6(header[0]))
    }

    #[inline(always)]
    fn protocol(&mut self, protocol: u8) -> Step {
        match protocol {
            ipv4::PROTOCOL_TCP => self.tcp(),
            ipv4::PROTOCOL_UDP => self.udp(),
            ipv4::PROTOCOL_ICMP | ipv6::NEXT_ICMP => {
                self.push(Kind::Icmp, icmp::HEADER_LEN)?;
                Err(Stop::Payload)
            }
            ipv4::PROTOCOL_IPV4 => Ok(Next::Ipv4),
            ipv4::PROTOCOL_IPV6 => Ok(Next::Ipv6),
            ipv4::PROTOCOL_GRE => self.gre(),
            ipv4::PROTOCOL_ESP => self.esp(),
            ipv4::PROTOCOL_MPLS => Ok(Next::Mpls),
            _ => Err(Stop::Unknown),
        }
    }

    #[inline(always)]
    fn tcp(&mut self) -> Step {
        let header = self.peek::<{ tcp::HEADER_LEN }>()?;
        let header_len = (header[12] >> 4) as usize * 4;
        if header_len < tcp::HEADER_LEN {
            return Err(Stop::Malformed);
        }
        self.push(Kind::Tcp, header_len)?;
        Err(Stop::Payload)
    }

    #[inline(always)]
    fn udp(&mut self) -> Step {
        let header = self.peek::<{ udp::HEADER_LEN }>()?;
        let length = u16_at(header, 4) as usize;
        self.push(Kind::Udp, udp::HEADER_LEN)?;
        match length.checked_sub(udp::HEADER_LEN) {
            Some(payload_len) => self.declare(payload_len),
            // RFC 2675 section 4: a UDP length of zero in a jumbogram means "to the end".
            None if length == 0 && self.jumbo => {}
            None => return Err(Stop::Malformed),
        }
        Ok(Next::UdpPayload(u16_at(header, 2)))
    }

    #[inline(always)]
    fn udp_payload(&mut self, port: u16, ports: &Ports) -> Step {
        match port {
            0 => Err(Stop::Payload),
            _ if port == ports.vxlan => {
                self.push(Kind::Vxlan, vxlan::HEADER_LEN)?;
                Ok(Next::Ethernet)
            }
            _ if port == ports.geneve => self.geneve(),
            _ if port == ports.vxlan_gpe => self.vxlan_gpe(),
            _ if port == ports.gue => self.gue(),
            _ if port == ports.esp => self.udp_esp(),
            _ => match ports.fou {
                // A tunnel of IP packets carries both versions, and their first bits tell them apart.
                Some((fou, ipv4::PROTOCOL_IPV4 | ipv4::PROTOCOL_IPV6)) if port == fou => {
                    Ok(Next::Ip)
                }
                Some((fou, protocol)) if port == fou => Ok(Next::Protocol(protocol)),
                _ => Err(Stop::Payload),
            },
        }
    }

    #[inline(always)]
    fn vxlan_gpe(&mut self) -> Step {
        let header = self.peek::<{ vxlan::HEADER_LEN }>()?;
        self.push(Kind::VxlanGpe, vxlan::HEADER_LEN)?;
        // Version 0, P set, O clear (rule T5); the other bits do not change what follows.
        let flags = u32::from(u16_at(header, 0)) << 16;
        let decided = vxlan::GPE_VERSION_MASK | vxlan::FLAG_NEXT_PROTOCOL | vxlan::FLAG_OPERATIONS;
        if flags & decided != vxlan::FLAG_NEXT_PROTOCOL {
            return Err(Stop::Unknown);
        }
        match header[3] {
            vxlan::NEXT_IPV4 => Ok(Next::Ipv4),
            vxlan::NEXT_IPV6 => Ok(Next::Ipv6),
            vxlan::NEXT_ETHERNET => Ok(Next::Ethernet),
            vxlan::NEXT_MPLS => Ok(Next::Mpls),
            _ => Err(Stop::Unknown),
        }
    }

    #[inline(always)]
    fn geneve(&mut self) -> Step {
        let header = self.peek::<{ geneve::HEADER_LEN }>()?;
        if header[0] >> 6 != 0 {
            return Err(Stop::Malformed);
        }
        self.push(Kind::Geneve, geneve::HEADER_LEN + (header[0] & 0x3f) as usize * 4)?;
        match u16_at(header, 2) {
            ethernet::ETHERTYPE_BRIDGING => Ok(Next::Ethernet),
            ethernet::ETHERTYPE_IPV4 => Ok(Next::Ipv4),
            ethernet::ETHERTYPE_IPV6 => Ok(Next::Ipv6),
            _ => Err(Stop::Unknown),
        }
    }

    #[inline(always)]
    fn gue(&mut self) -> Step {
        match self.rest.first().ok_or(Stop::Cut)? >> 6 {
            0 => self.gue_variant_0(),
            // The version nibble of the IP header that takes the place of a GUE header (rule W22).
            1 => Ok(Next::Ip),
            _ => Err(Stop::Malformed),
        }
    }

    #[inline(always)]
    fn gue_variant_0(&mut self) -> Step {
        let header = self.peek::<{ gue::HEADER_LEN }>()?;
        let header_len = gue::HEADER_LEN + (header[0] & 0x1f) as usize * 4;
        let fields = self.rest.get(gue::HEADER_LEN..header_len).ok_or(Stop::Cut)?;
        let private = match u16_at(header, 2) {
            0 => Some(0),
            gue::FLAG_PRIVATE => {
                let word = fields.first_chunk::<4>().ok_or(Stop::Malformed)?;
                Some(u32::from_be_bytes(*word))
            }
            _ => None,
        };
        // Rule W21: remote checksum offload is the only private field, and its word must be there.
        if private == Some(gue::PRIVATE_FLAG_REMOTE_CHECKSUM) && fields.len() < 8 {
            return Err(Stop::Malformed);
        }
        self.push(Kind::Gue, header_len)?;
        let control = header[0] & gue::CONTROL != 0;
        match private {
            Some(0 | gue::PRIVATE_FLAG_REMOTE_CHECKSUM) if !control => {
                Ok(Next::Protocol(header[1]))
            }
            _ => Err(Stop::Unknown),
        }
    }

    #[inline(always)]
    fn udp_esp(&mut self) -> Step {
        if esp::is_esp_in_udp(self.rest) { self.esp() } else { Err(Stop::Payload) }
    }

    #[inline(always)]
    fn esp(&mut self) -> Step {
        self.push(Kind::Esp, esp::HEADER_LEN)?;
        Err(Stop::Encrypted)
    }

    #[inline(always)]
    fn gre(&mut self) -> Step {
        let header = self.peek::<{ gre::HEADER_LEN }>()?;
        let flags = u16_at(header, 0);
        // Routing (RFC 1701) and other versions change the layout, so only the base word is known.
        if flags & (gre::FLAG_ROUTING | gre::VERSION_MASK) != 0 {
            self.push(Kind::Gre, gre::HEADER_LEN)?;
            return Err(Stop::Unknown);
        }
        let optional = flags & (gre::FLAG_CHECKSUM | gre::FLAG_KEY | gre::FLAG_SEQUENCE);
        self.push(Kind::Gre, gre::HEADER_LEN + 4 * optional.count_ones() as usize)?;
        match u16_at(header, 2) {
            ethernet::ETHERTYPE_IPV4 => Ok(Next::Ipv4),
            ethernet::ETHERTYPE_IPV6 => Ok(Next::Ipv6),
            ethernet::ETHERTYPE_BRIDGING => Ok(Next::Ethernet),
            ethernet::ETHERTYPE_MPLS | ethernet::ETHERTYPE_MPLS_MULTICAST => Ok(Next::Mpls),
            _ => Err(Stop::Unknown),
        }
    }

    /// Appends a header of `len` bytes and steps over it, unless it is cut.
    #[inline(always)]
    fn push(&mut self, kind: Kind, len: usize) -> Result<(), Stop> {
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
    fn declare_ip(&mut self, len: usize) {
        if self.jumbo {
            self.extent = self.extent.combine(Extent::Jumbo);
        } else {
            self.declare(len);
        }
    }

    /// Takes a declared length, counted from the end of the header that declares it.
    #[inline(always)]
    fn declare(&mut self, len: usize) {
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
    fn peek<const N: usize>(&self) -> Result<&'a [u8; N], Stop> {
        self.rest.first_chunk().ok_or(Stop::Cut)
    }
}

/// The value of the jumbo payload option (RFC 2675 section 2) among hop-by-hop options.
fn jumbo_payload_len(options: &[u8]) -> Option<u32> {
    Options::new(options).find_map(|option| match option {
        Ok(Ipv6Option::JumboPayload(payload_len)) => Some(payload_len),
        _ => None,
    })
}

#[inline]
fn u16_at<const N: usize>(bytes: &[u8; N], offset: usize) -> u16 {
    u16::from_be_bytes([bytes[offset], bytes[offset + 1]])
}
