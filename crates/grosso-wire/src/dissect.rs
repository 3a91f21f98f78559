//! One bounded walk over the headers of a frame.
//!
//! The walk is a loop over "which header comes next": no recursion, no allocation, and every turn
//! of the loop either appends a layer or ends, so [`LAYERS_MAX`](crate::LAYERS_MAX) bounds it.
//! Lengths that headers declare narrow the bytes that later headers may use: a TCP header must lie
//! inside the IP payload that announces it, not merely inside the frame.

use core::fmt;

use crate::stack::{Extent, Kind, Layer, Stack, Stop};

/// What the first bytes of a frame are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkType {
    /// Ethernet II.
    Ethernet,
    /// IPv4 or IPv6 without a link-layer header; the version nibble says which.
    Raw,
    /// BSD loopback: 4 bytes of address family, accepted in either byte order.
    Null,
    /// Linux cooked capture, as of `tcpdump -i any`.
    LinuxSll,
    /// Linux cooked capture version 2.
    LinuxSll2,
}

impl LinkType {
    /// The link type for a `LINKTYPE_` number of a capture file; `None` for one that has no view
    /// here.
    ///
    /// 12 and 14 are the `DLT_RAW` values that some systems wrote into files, 108 is OpenBSD
    /// loopback (the same header in network order), 228 and 229 are raw IPv4 and raw IPv6.
    pub const fn from_pcap(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Ethernet),
            12 | 14 | 101 | 228 | 229 => Some(Self::Raw),
            0 | 108 => Some(Self::Null),
            113 => Some(Self::LinuxSll),
            276 => Some(Self::LinuxSll2),
            _ => None,
        }
    }

    /// The `LINKTYPE_` number to write into a capture file.
    pub const fn to_pcap(self) -> u32 {
        match self {
            Self::Ethernet => 1,
            Self::Raw => 101,
            Self::Null => 0,
            Self::LinuxSll => 113,
            Self::LinuxSll2 => 276,
        }
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ethernet => "Ethernet",
            Self::Raw => "RAW",
            Self::Null => "NULL",
            Self::LinuxSll => "LINUX_SLL",
            Self::LinuxSll2 => "LINUX_SLL2",
        })
    }
}

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
    /// Foo over UDP: a port and the IP protocol that its payload is (rules W10, W24).
    pub fou: Option<(u16, u8)>,
}

impl Ports {
    /// No UDP port means a tunnel: every UDP header ends the walk.
    pub const NONE: Self = Self { vxlan: 0, vxlan_gpe: 0, geneve: 0, gue: 0, esp: 0, fou: None };

    /// The ports that IANA assigned; no FOU, which has none.
    pub const ASSIGNED: Self =
        Self { vxlan: 4789, vxlan_gpe: 4790, geneve: 6081, gue: 6080, esp: 4500, fou: None };
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
    stack.clear();
    let mut walk = Walk {
        stack,
        rest: frame,
        offset: 0,
        end: frame.len(),
        extent: Extent::Exact,
        jumbo: false,
    };
    let stop = walk.run(link, ports);
    let Walk { stack, end, extent, .. } = walk;
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
    stack: &'s mut Stack,
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
            LinkType::Ethernet => Ok(Next::Ethernet),
            LinkType::Raw => Ok(Next::Ip),
            LinkType::Null => self.null(),
            LinkType::LinuxSll => {
                let header = self.peek::<16>()?;
                self.push(Kind::Sll, 16)?;
                Ok(Next::EtherType(u16_at(header, 14)))
            }
            LinkType::LinuxSll2 => {
                let header = self.peek::<20>()?;
                self.push(Kind::Sll2, 20)?;
                Ok(Next::EtherType(u16_at(header, 0)))
            }
        }
    }

    #[inline(always)]
    fn null(&mut self) -> Step {
        let family = u32::from_be_bytes(*self.peek::<4>()?);
        self.push(Kind::Null, 4)?;
        // The capturing host's order is not recorded, and every family is below 256: the smaller
        // reading is the meant one.
        match family.min(family.swap_bytes()) {
            2 => Ok(Next::Ipv4),
            10 | 24 | 28 | 30 => Ok(Next::Ipv6),
            _ => Err(Stop::Unknown),
        }
    }

    #[inline(always)]
    fn ethernet(&mut self) -> Step {
        let header = self.peek::<14>()?;
        self.push(Kind::Ethernet, 14)?;
        match u16_at(header, 12) {
            0x0800 => self.ipv4(),
            0x86dd => self.ipv6(),
            other => Ok(Next::EtherType(other)),
        }
    }

    #[inline(always)]
    fn ethertype(&mut self, ethertype: u16) -> Step {
        match ethertype {
            0x0800 => Ok(Next::Ipv4),
            0x86dd => Ok(Next::Ipv6),
            0x8100 | 0x88a8 | 0x9100 => {
                let header = self.peek::<4>()?;
                self.push(Kind::Vlan, 4)?;
                Ok(Next::EtherType(u16_at(header, 2)))
            }
            0x8864 => self.pppoe(),
            0x8847 | 0x8848 => Ok(Next::Mpls),
            _ => Err(Stop::Unknown),
        }
    }

    #[inline(always)]
    fn pppoe(&mut self) -> Step {
        let header = self.peek::<8>()?;
        // The length counts the two bytes of PPP protocol (RFC 2516 section 4).
        let length = u16_at(header, 4) as usize;
        if header[0] != 0x11 || length < 2 {
            return Err(Stop::Malformed);
        }
        if header[1] != 0 {
            return Err(Stop::Unknown);
        }
        self.declare(6 + length);
        self.push(Kind::Pppoe, 8)?;
        match u16_at(header, 6) {
            0x0021 => Ok(Next::Ipv4),
            0x0057 => Ok(Next::Ipv6),
            _ => Err(Stop::Unknown),
        }
    }

    #[inline(always)]
    fn mpls(&mut self) -> Step {
        let entry = self.peek::<4>()?;
        self.push(Kind::Mpls, 4)?;
        let bottom = entry[2] & 1 != 0;
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
        let header = self.peek::<20>()?;
        let header_len = (header[0] & 0x0f) as usize * 4;
        let total_len = u16_at(header, 2) as usize;
        self.jumbo = total_len == 0;
        if header[0] >> 4 != 4 || header_len < 20 || (total_len < header_len && !self.jumbo) {
            return Err(Stop::Malformed);
        }
        if header_len > self.rest.len() {
            return Err(Stop::Cut);
        }
        self.declare_ip(total_len);
        self.push(Kind::Ipv4, header_len)?;
        // More fragments, or an offset: 0x4000 (DF) and 0x8000 do not make a fragment.
        if u16_at(header, 6) & 0x3fff != 0 {
            return Err(Stop::Fragment);
        }
        match header[9] {
            6 => self.tcp(),
            17 => self.udp(),
            other => Ok(Next::Protocol(other)),
        }
    }

    #[inline(always)]
    fn ipv6(&mut self) -> Step {
        let header = self.peek::<40>()?;
        if header[0] >> 4 != 6 {
            return Err(Stop::Malformed);
        }
        let payload_len = u16_at(header, 4) as usize;
        self.jumbo = payload_len == 0;
        self.declare_ip(if self.jumbo { 0 } else { 40 + payload_len });
        self.push(Kind::Ipv6, 40)?;
        match header[6] {
            6 => self.tcp(),
            17 => self.udp(),
            other => Ok(Next::AfterIpv6(other)),
        }
    }

    #[inline(always)]
    fn ipv6_next(&mut self, protocol: u8) -> Step {
        match protocol {
            0 | 43 | 60 => self.ipv6_extension(protocol),
            44 => {
                let header = self.peek::<8>()?;
                self.push(Kind::Ipv6Fragment, 8)?;
                // An atomic fragment is a whole packet (RFC 6946); the two bits between are
                // reserved.
                let atomic = u16_at(header, 2) & 0xfff9 == 0;
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
        let follows_ipv6 = self.stack.last().is_some_and(|layer| layer.kind == Kind::Ipv6);
        if protocol == 0 && self.jumbo && follows_ipv6 {
            match jumbo_payload_len(options) {
                // RFC 2675 section 3: the option is for payloads that the fixed header cannot
                // express.
                Some(payload_len) if payload_len <= 0xffff => return Err(Stop::Malformed),
                Some(payload_len) => self.declare(payload_len as usize),
                None => {}
            }
        }
        self.push(Kind::Ipv6Extension, header_len)?;
        Ok(Next::AfterIpv6(header[0]))
    }

    #[inline(always)]
    fn protocol(&mut self, protocol: u8) -> Step {
        match protocol {
            6 => self.tcp(),
            17 => self.udp(),
            1 | 58 => {
                self.peek::<8>()?;
                self.push(Kind::Icmp, 8)?;
                Err(Stop::Payload)
            }
            4 => Ok(Next::Ipv4),
            41 => Ok(Next::Ipv6),
            47 => self.gre(),
            50 => self.esp(),
            137 => Ok(Next::Mpls),
            _ => Err(Stop::Unknown),
        }
    }

    #[inline(always)]
    fn tcp(&mut self) -> Step {
        let header = self.peek::<20>()?;
        let header_len = (header[12] >> 4) as usize * 4;
        if header_len < 20 {
            return Err(Stop::Malformed);
        }
        if header_len > self.rest.len() {
            return Err(Stop::Cut);
        }
        self.push(Kind::Tcp, header_len)?;
        Err(Stop::Payload)
    }

    #[inline(always)]
    fn udp(&mut self) -> Step {
        let header = self.peek::<8>()?;
        let length = u16_at(header, 4) as usize;
        // RFC 2675 section 4: a UDP length of zero in a jumbogram means "to the end".
        let jumbo = length == 0 && self.jumbo;
        if length >= 8 {
            self.declare(length);
        }
        self.push(Kind::Udp, 8)?;
        if length < 8 && !jumbo {
            return Err(Stop::Malformed);
        }
        Ok(Next::UdpPayload(u16_at(header, 2)))
    }

    #[inline(always)]
    fn udp_payload(&mut self, port: u16, ports: &Ports) -> Step {
        match port {
            0 => Err(Stop::Payload),
            _ if port == ports.vxlan => {
                self.peek::<8>()?;
                self.push(Kind::Vxlan, 8)?;
                Ok(Next::Ethernet)
            }
            _ if port == ports.geneve => self.geneve(),
            _ if port == ports.vxlan_gpe => self.vxlan_gpe(),
            _ if port == ports.gue => self.gue(),
            _ if port == ports.esp => self.udp_esp(),
            _ => match ports.fou {
                Some((fou, protocol)) if port == fou => Ok(Next::Protocol(protocol)),
                _ => Err(Stop::Payload),
            },
        }
    }

    #[inline(always)]
    fn vxlan_gpe(&mut self) -> Step {
        let header = self.peek::<8>()?;
        self.push(Kind::VxlanGpe, 8)?;
        // Version 0, P set, O clear; the other bits do not change what follows.
        if header[0] & 0x35 != 0x04 {
            return Err(Stop::Unknown);
        }
        match header[3] {
            1 => Ok(Next::Ipv4),
            2 => Ok(Next::Ipv6),
            3 => Ok(Next::Ethernet),
            5 => Ok(Next::Mpls),
            _ => Err(Stop::Unknown),
        }
    }

    #[inline(always)]
    fn geneve(&mut self) -> Step {
        let header = self.peek::<8>()?;
        if header[0] >> 6 != 0 {
            return Err(Stop::Malformed);
        }
        let header_len = 8 + (header[0] & 0x3f) as usize * 4;
        if header_len > self.rest.len() {
            return Err(Stop::Cut);
        }
        self.push(Kind::Geneve, header_len)?;
        match u16_at(header, 2) {
            0x6558 => Ok(Next::Ethernet),
            0x0800 => Ok(Next::Ipv4),
            0x86dd => Ok(Next::Ipv6),
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
        let header = self.peek::<4>()?;
        let fields_len = (header[0] & 0x1f) as usize * 4;
        let fields = self.rest.get(4..4 + fields_len).ok_or(Stop::Cut)?;
        let private = match u16_at(header, 2) {
            0 => Some(0),
            1 => {
                let word = fields.first_chunk::<4>().ok_or(Stop::Malformed)?;
                Some(u32::from_be_bytes(*word))
            }
            _ => None,
        };
        // Rule W21: remote checksum offload is the only private field, and its word must be there.
        if private == Some(0x8000_0000) && fields.len() < 8 {
            return Err(Stop::Malformed);
        }
        self.push(Kind::Gue, 4 + fields_len)?;
        let control = header[0] & 0x20 != 0;
        match private {
            Some(0 | 0x8000_0000) if !control => Ok(Next::Protocol(header[1])),
            _ => Err(Stop::Unknown),
        }
    }

    #[inline(always)]
    fn udp_esp(&mut self) -> Step {
        // RFC 3948 section 2: one byte 0xff keeps a NAT binding alive, four zero bytes announce
        // IKE.
        if self.rest == [0xff] || self.rest.starts_with(&[0; 4]) {
            return Err(Stop::Payload);
        }
        self.esp()
    }

    #[inline(always)]
    fn esp(&mut self) -> Step {
        self.peek::<8>()?;
        self.push(Kind::Esp, 8)?;
        Err(Stop::Encrypted)
    }

    #[inline(always)]
    fn gre(&mut self) -> Step {
        let header = self.peek::<4>()?;
        let flags = u16_at(header, 0);
        // Routing (RFC 1701) and other versions change the layout, so only the base word is known.
        if flags & 0x4007 != 0 {
            self.push(Kind::Gre, 4)?;
            return Err(Stop::Unknown);
        }
        let fields = (flags & 0xb000).count_ones() as usize;
        let header_len = 4 + 4 * fields;
        if header_len > self.rest.len() {
            return Err(Stop::Cut);
        }
        self.push(Kind::Gre, header_len)?;
        match u16_at(header, 2) {
            0x0800 => Ok(Next::Ipv4),
            0x86dd => Ok(Next::Ipv6),
            0x6558 => Ok(Next::Ethernet),
            0x8847 => Ok(Next::Mpls),
            _ => Err(Stop::Unknown),
        }
    }

    /// Appends a header of `len` bytes, which the caller has seen to be there, and steps over it.
    #[inline(always)]
    fn push(&mut self, kind: Kind, len: usize) -> Result<(), Stop> {
        self.rest = self.rest.get(len..).ok_or(Stop::Cut)?;
        // The longest header has 2048 bytes and LAYERS_MAX of them come before this one at most, so
        // both numbers fit in 16 bits.
        let layer = Layer { kind, offset: self.offset as u16, len: len as u16 };
        self.offset += len;
        if self.stack.push(layer) { Ok(()) } else { Err(Stop::TooDeep) }
    }

    /// Takes the length that an IP header declares, counted from its first byte; 0 declares none.
    #[inline(always)]
    fn declare_ip(&mut self, len: usize) {
        if len == 0 {
            self.extent = self.extent.combine(Extent::Jumbo);
        } else {
            self.declare(len);
        }
    }

    /// Takes a declared length, counted from the next header's first byte.
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
fn jumbo_payload_len(mut options: &[u8]) -> Option<u32> {
    loop {
        options = match *options {
            [0, ref rest @ ..] => rest,
            [0xc2, 4, a, b, c, d, ..] => return Some(u32::from_be_bytes([a, b, c, d])),
            [_, len, ref rest @ ..] => rest.get(len as usize..)?,
            _ => return None,
        };
    }
}

#[inline]
fn u16_at<const N: usize>(bytes: &[u8; N], offset: usize) -> u16 {
    u16::from_be_bytes([bytes[offset], bytes[offset + 1]])
}
