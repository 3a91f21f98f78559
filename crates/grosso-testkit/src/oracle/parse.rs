//! A naive parser: every header becomes a map from field names to bytes.
//!
//! Longer than 600 lines: the oracle parses every header in one naive pass, independent of the code under test.

use std::collections::BTreeMap;

use super::sum::pseudo_header;

/// The UDP port of VXLAN (RFC 7348).
pub const VXLAN_PORT: u16 = 4789;
/// The UDP port of VXLAN-GPE.
pub const VXLAN_GPE_PORT: u16 = 4790;
/// The UDP port of Geneve (RFC 8926).
pub const GENEVE_PORT: u16 = 6081;
/// The UDP port of GUE, both versions.
pub const GUE_PORT: u16 = 6080;
/// The UDP port that this crate uses for FOU, which carries IP directly; FOU has no assigned port.
pub const FOU_PORT: u16 = 5555;
/// The UDP port of ESP in UDP (RFC 3948).
pub const ESP_PORT: u16 = 4500;
/// Length in bytes of every L2TPv3 session's cookie in this crate. The default sublayer follows the cookie.
pub const L2TP_COOKIE_LEN: usize = 4;

/// Link layer of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// The frame starts with an Ethernet header.
    Ethernet,
    /// The frame starts with an IPv4 or IPv6 header.
    Ip,
}

/// Interpretation of the lengths that the headers of a frame declare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lengths {
    /// The frame was on the wire: bytes beyond a declared length do not belong to the header.
    Declared,
    /// The frame is a superframe, whose lengths may be zero: every header's contents extend to the end of the frame.
    Whole,
}

/// Reason why the parser stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// A transport header was found; its payload follows.
    Transport,
    /// The packet is a fragment, but not an atomic one.
    Fragment,
    /// The remaining bytes are encrypted or of an unknown kind.
    Opaque,
    /// The frame ends inside a header, or a header contradicts itself.
    Broken,
}

/// One header of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// The kind of header: "ethernet", "vlan", "ipv4", "tcp" ...
    pub name: &'static str,
    /// Offset of the header in the frame.
    pub offset: usize,
    /// Length of the header in bytes, with its options.
    pub len: usize,
    /// Offset in the frame at which, according to the header, its contents end; possibly beyond the end of the frame.
    pub declared_end: usize,
    /// Offset in the frame at which the contents really end.
    pub end: usize,
    /// The fields by name.
    pub fields: BTreeMap<&'static str, Vec<u8>>,
}

impl Layer {
    /// Returns the value of a big-endian field; zero if the header has no such field.
    pub fn number(&self, field: &str) -> u64 {
        let bytes = self.fields.get(field).map_or(&[][..], Vec::as_slice);
        bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
    }

    /// Returns the field's bytes; empty if the header has no such field.
    pub fn bytes(&self, field: &str) -> &[u8] {
        self.fields.get(field).map_or(&[], Vec::as_slice)
    }

    /// Returns whether the layer is an IPv4 or IPv6 header.
    pub fn is_ip(&self) -> bool {
        self.name == "ipv4" || self.name == "ipv6"
    }

    /// Returns the offset of the header's contents.
    pub fn inside(&self) -> usize {
        self.offset + self.len
    }
}

/// A parsed frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// The headers, outermost first.
    pub layers: Vec<Layer>,
    /// Reason why there are no more headers.
    pub stop: Stop,
}

impl Parsed {
    /// Returns the innermost header.
    pub fn last(&self) -> Option<&Layer> {
        self.layers.last()
    }

    /// Returns the innermost payload.
    pub fn payload<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        self.last().map_or(frame, |last| &frame[last.inside().min(last.end)..last.end])
    }

    /// Returns the IP header that most closely encloses the layer at `index`.
    pub fn network_of(&self, index: usize) -> Option<&Layer> {
        self.layers[..index].iter().rev().find(|layer| layer.is_ip())
    }

    /// Returns the pseudo-header that the checksum of the layer at `index` covers, for a length of `len` bytes; `None`
    /// if no IP header encloses the layer.
    ///
    /// The destination is the final one. A source route with hops left (RFC 9293 section 3.9.2.1) or a routing header
    /// with segments left (RFC 8200 section 8.1) specifies it; the IP header then contains the next hop. The source is
    /// the home address if an option contains one (RFC 6275 section 11.3.1).
    pub fn pseudo_header_of(&self, index: usize, protocol: u8, len: usize) -> Option<Vec<u8>> {
        let network = self.layers[..index].iter().rposition(Layer::is_ip)?;
        let mut source = self.layers[network].bytes("source");
        let mut destination = self.layers[network].bytes("destination");
        destination = end_of_route(&self.layers[network]).unwrap_or(destination);
        for layer in &self.layers[network + 1..index] {
            if let Some(stop) = last_stop(layer) {
                destination = stop;
            }
            if let Some(home) = home_address(layer) {
                source = home;
            }
        }
        Some(pseudo_header(source, destination, protocol, len))
    }

    /// Returns whether a tunnel header announces remote checksum offload (rules C50, C51).
    pub fn has_remote_checksum(&self) -> bool {
        self.layers.iter().any(|layer| match layer.name {
            "vxlan" => layer.number("flags") & 0x0020_0000 != 0,
            "gue" => {
                layer.number("flags") & 1 != 0
                    && layer.bytes("options").first().is_some_and(|byte| byte & 0x80 != 0)
            }
            _ => false,
        })
    }
}

/// Returns the final destination if the options of an IPv4 header contain a source route with hops left.
fn end_of_route(layer: &Layer) -> Option<&[u8]> {
    if layer.name != "ipv4" {
        return None;
    }
    let mut options = layer.bytes("options");
    loop {
        let (kind, len) = match *options {
            [1, ..] => (1, 1),
            [kind, len, ..] if kind != 0 && len >= 2 => (kind, usize::from(len)),
            _ => return None,
        };
        let option;
        (option, options) = options.split_at_checked(len)?;
        if kind == 131 || kind == 137 {
            let (fixed, list) = option.split_at_checked(3)?;
            let pointer = usize::from(fixed[2]);
            let is_route = list.len().is_multiple_of(4) && pointer >= 4 && pointer <= len;
            return list.last_chunk::<4>().filter(|_| is_route).map(<[u8; 4]>::as_slice);
        }
    }
}

/// Returns the final destination if a routing header has segments left.
fn last_stop(layer: &Layer) -> Option<&[u8]> {
    // The data consists of the length, the type, the segments left, four bytes that depend on the type, and the
    // addresses.
    let data = layer.bytes("data");
    if layer.name != "routing" || data[2] == 0 {
        return None;
    }
    let addresses: Vec<&[u8]> = data[7..].chunks_exact(16).collect();
    match data[1] {
        // A list that ends within an address is malformed (RFC 2460 section 4.4).
        0 | 2 if (data.len() - 7).is_multiple_of(16) => addresses.last().copied(),
        // Segment routing lists the addresses in reverse order (RFC 8754 section 2).
        4 => addresses.first().copied(),
        _ => None,
    }
}

/// Returns the home address option among destination options.
fn home_address(layer: &Layer) -> Option<&[u8]> {
    if layer.name != "destination_options" {
        return None;
    }
    let mut options = &layer.bytes("data")[1..];
    loop {
        options = match options {
            // Pad1 has no length byte.
            [0, rest @ ..] => rest,
            [0xc9, 16, rest @ ..] => return rest.get(..16),
            [_, len, rest @ ..] => rest.get(usize::from(*len)..)?,
            _ => return None,
        }
    }
}

/// The next header, as the previous header announces it.
enum Next {
    EtherType(u16),
    Protocol(u8),
    /// IPv4 or IPv6, depending on the first nibble of the header.
    Nibble,
    Udp(u16),
    Stop(Stop),
}

/// Returns the header that a next-protocol field of VXLAN-GPE or NSH announces.
fn next_protocol(number: u64) -> Next {
    match number {
        1 => Next::EtherType(0x0800),
        2 => Next::EtherType(0x86dd),
        3 => Next::EtherType(0x6558),
        4 => Next::EtherType(0x894f),
        5 => Next::EtherType(0x8847),
        _ => Next::Stop(Stop::Opaque),
    }
}

/// Parses a frame.
pub fn parse(frame: &[u8], link: Link, lengths: Lengths) -> Parsed {
    let mut walk = Walk { frame, offset: 0, end: frame.len(), lengths, layers: Vec::new() };
    let mut next = match link {
        Link::Ethernet => walk.ethernet(),
        Link::Ip => Some(Next::Nibble),
    };
    loop {
        next = match next {
            None => return Parsed { layers: walk.layers, stop: Stop::Broken },
            Some(Next::Stop(stop)) => return Parsed { layers: walk.layers, stop },
            Some(step) => walk.step(step),
        };
    }
}

struct Walk<'a> {
    frame: &'a [u8],
    offset: usize,
    end: usize,
    lengths: Lengths,
    layers: Vec<Layer>,
}

impl Walk<'_> {
    /// Reads the header that `next` announces. Every header is at least 4 bytes long, so the parser always terminates.
    fn step(&mut self, next: Next) -> Option<Next> {
        match next {
            Next::EtherType(0x8100 | 0x88a8 | 0x9100) => self.vlan(),
            Next::EtherType(0x8864) => self.pppoe(),
            Next::EtherType(0x8847) | Next::Protocol(137) => self.mpls(),
            Next::EtherType(0x0800) | Next::Protocol(4) => self.ipv4(),
            Next::EtherType(0x86dd) | Next::Protocol(41) => self.ipv6(),
            Next::EtherType(0x6558) | Next::Protocol(143) => self.ethernet(),
            Next::Protocol(kind @ (0 | 43 | 60)) if self.inside_v6() => self.extension(kind),
            Next::Protocol(44) if self.inside_v6() => self.fragment(),
            Next::Protocol(6) => self.tcp(),
            Next::Protocol(17) => self.udp(),
            Next::Protocol(1) if !self.inside_v6() => self.icmp("icmp"),
            Next::Protocol(58) if self.inside_v6() => self.icmp("icmp6"),
            Next::Protocol(132) => self.sctp(),
            Next::Protocol(136) => self.udp_lite(),
            Next::EtherType(0x894f) => self.nsh(),
            Next::Protocol(47) => self.gre(),
            Next::Protocol(50) => self.esp(),
            Next::Protocol(115) => self.l2tp(),
            Next::Nibble => self.nibble(),
            Next::Udp(port) => self.behind_udp(port),
            Next::EtherType(_) | Next::Protocol(_) => Some(Next::Stop(Stop::Opaque)),
            Next::Stop(stop) => Some(Next::Stop(stop)),
        }
    }

    fn ethernet(&mut self) -> Option<Next> {
        self.layer("ethernet", 14, &[("destination", 0, 6), ("source", 6, 6), ("type", 12, 2)])?;
        Some(Next::EtherType(self.number("type") as u16))
    }

    fn vlan(&mut self) -> Option<Next> {
        self.layer("vlan", 4, &[("tag", 0, 2), ("type", 2, 2)])?;
        Some(Next::EtherType(self.number("type") as u16))
    }

    fn pppoe(&mut self) -> Option<Next> {
        let fields = [
            ("version_type", 0, 1),
            ("code", 1, 1),
            ("session", 2, 2),
            ("len", 4, 2),
            ("protocol", 6, 2),
        ];
        let start = self.offset;
        self.layer("pppoe", 8, &fields)?;
        self.declare(start + 6 + self.number("len") as usize)?;
        Some(match (self.number("version_type"), self.number("code"), self.number("protocol")) {
            (0x11, 0, 0x0021) => Next::EtherType(0x0800),
            (0x11, 0, 0x0057) => Next::EtherType(0x86dd),
            (0x11, 0, 0x0281) => Next::EtherType(0x8847),
            _ => Next::Stop(Stop::Opaque),
        })
    }

    fn mpls(&mut self) -> Option<Next> {
        self.layer("mpls", 4, &[("entry", 0, 4)])?;
        let bottom = self.number("entry") & 0x100 != 0;
        Some(if bottom { Next::Nibble } else { Next::EtherType(0x8847) })
    }

    fn ipv4(&mut self) -> Option<Next> {
        let first = *self.rest().first()?;
        let len = usize::from(first & 15) * 4;
        if first >> 4 != 4 || len < 20 {
            return None;
        }
        let start = self.offset;
        self.layer(
            "ipv4",
            len,
            &[
                ("version_ihl", 0, 1),
                ("tos", 1, 1),
                ("total_len", 2, 2),
                ("id", 4, 2),
                ("fragment", 6, 2),
                ("ttl", 8, 1),
                ("protocol", 9, 1),
                ("checksum", 10, 2),
                ("source", 12, 4),
                ("destination", 16, 4),
                ("options", 20, len - 20),
            ],
        )?;
        self.declare(start + self.length_or_jumbo("total_len", self.frame.len() - start))?;
        if self.number("fragment") & 0x3fff != 0 {
            return Some(Next::Stop(Stop::Fragment));
        }
        Some(Next::Protocol(self.number("protocol") as u8))
    }

    fn ipv6(&mut self) -> Option<Next> {
        if self.rest().first()? >> 4 != 6 {
            return None;
        }
        let start = self.offset;
        self.layer(
            "ipv6",
            40,
            &[
                ("word", 0, 4),
                ("payload_len", 4, 2),
                ("next_header", 6, 1),
                ("hop_limit", 7, 1),
                ("source", 8, 16),
                ("destination", 24, 16),
            ],
        )?;
        let present = self.frame.len() - start - 40;
        self.declare(start + 40 + self.length_or_jumbo("payload_len", present))?;
        Some(Next::Protocol(self.number("next_header") as u8))
    }

    fn extension(&mut self, kind: u8) -> Option<Next> {
        let len = usize::from(*self.rest().get(1)?) * 8 + 8;
        let name = match kind {
            0 => "hop_by_hop",
            43 => "routing",
            _ => "destination_options",
        };
        self.layer(name, len, &[("next_header", 0, 1), ("data", 1, len - 1)])?;
        Some(Next::Protocol(self.number("next_header") as u8))
    }

    fn fragment(&mut self) -> Option<Next> {
        let fields = [("next_header", 0, 1), ("reserved", 1, 1), ("offset", 2, 2), ("id", 4, 4)];
        self.layer("fragment", 8, &fields)?;
        if self.number("offset") & 0xfff9 != 0 {
            return Some(Next::Stop(Stop::Fragment));
        }
        Some(Next::Protocol(self.number("next_header") as u8))
    }

    fn tcp(&mut self) -> Option<Next> {
        let words = usize::from(self.rest().get(12)? >> 4);
        // The ports are readable even if the data offset is wrong; the header is then treated as one without options.
        let len = if words < 5 || words * 4 > self.end - self.offset { 20 } else { words * 4 };
        self.layer(
            "tcp",
            len,
            &[
                ("source_port", 0, 2),
                ("destination_port", 2, 2),
                ("sequence", 4, 4),
                ("ack", 8, 4),
                ("offset_flags", 12, 2),
                ("window", 14, 2),
                ("checksum", 16, 2),
                ("urgent_pointer", 18, 2),
                ("options", 20, len - 20),
            ],
        )?;
        Some(Next::Stop(Stop::Transport))
    }

    fn udp(&mut self) -> Option<Next> {
        let start = self.offset;
        let fields =
            [("source_port", 0, 2), ("destination_port", 2, 2), ("len", 4, 2), ("checksum", 6, 2)];
        self.layer("udp", 8, &fields)?;
        self.declare(start + self.number("len") as usize)?;
        Some(Next::Udp(self.number("destination_port") as u16))
    }

    fn behind_udp(&mut self, port: u16) -> Option<Next> {
        match port {
            VXLAN_PORT | VXLAN_GPE_PORT => self.vxlan(port == VXLAN_GPE_PORT),
            GENEVE_PORT => self.geneve(),
            GUE_PORT => match self.rest().first()? >> 6 {
                0 => self.gue(),
                1 => Some(Next::Nibble),
                _ => Some(Next::Stop(Stop::Opaque)),
            },
            FOU_PORT => Some(Next::Nibble),
            // Four zero bytes mean IKE, and a single byte is a keepalive (rule T9): both are plain payload.
            ESP_PORT if self.rest().len() >= 8 && self.rest()[..4] != [0; 4] => self.esp(),
            _ => Some(Next::Stop(Stop::Transport)),
        }
    }

    fn sctp(&mut self) -> Option<Next> {
        let fields = [("source", 0, 2), ("destination", 2, 2), ("tag", 4, 4), ("checksum", 8, 4)];
        self.layer("sctp", 12, &fields)?;
        Some(Next::Stop(Stop::Transport))
    }

    fn udp_lite(&mut self) -> Option<Next> {
        let fields =
            [("source", 0, 2), ("destination", 2, 2), ("coverage", 4, 2), ("checksum", 6, 2)];
        self.layer("udplite", 8, &fields)?;
        Some(Next::Stop(Stop::Transport))
    }

    fn icmp(&mut self, name: &'static str) -> Option<Next> {
        self.layer(name, 8, &[("type_code", 0, 2), ("checksum", 2, 2), ("rest", 4, 4)])?;
        Some(Next::Stop(Stop::Transport))
    }

    fn esp(&mut self) -> Option<Next> {
        self.layer("esp", 8, &[("spi", 0, 4), ("sequence", 4, 4)])?;
        Some(Next::Stop(Stop::Opaque))
    }

    fn gre(&mut self) -> Option<Next> {
        let flags = u16::from_be_bytes([*self.rest().first()?, *self.rest().get(1)?]);
        let mut fields = vec![("flags", 0, 2), ("protocol", 2, 2)];
        let mut len = 4;
        if flags & 0x8000 != 0 {
            fields.extend([("checksum", len, 2), ("reserved", len + 2, 2)]);
            len += 4;
        }
        if flags & 0x2000 != 0 {
            fields.push(("key", len, 4));
            len += 4;
        }
        if flags & 0x1000 != 0 {
            fields.push(("sequence", len, 4));
            len += 4;
        }
        self.layer("gre", len, &fields)?;
        // If the R bit is set or the version is not 0, the contents are unknown (rule W50).
        if flags & 0x4007 != 0 {
            return Some(Next::Stop(Stop::Opaque));
        }
        Some(Next::EtherType(self.number("protocol") as u16))
    }

    fn vxlan(&mut self, gpe: bool) -> Option<Next> {
        let name = if gpe { "vxlan-gpe" } else { "vxlan" };
        self.layer(name, 8, &[("flags", 0, 4), ("vni", 4, 3), ("reserved", 7, 1)])?;
        let flags = self.number("flags");
        Some(match (gpe, flags & 0xff) {
            (false, _) => Next::EtherType(0x6558),
            // Only version 0 with P set and O clear is parsed (rule T5).
            _ if flags & 0x3500_0000 != 0x0400_0000 => Next::Stop(Stop::Opaque),
            (true, next) => next_protocol(next),
        })
    }

    fn nsh(&mut self) -> Option<Next> {
        let [first, second, kind, ..] = *self.rest() else { return None };
        let (len, kind) = (usize::from(second & 0x3f) * 4, kind & 0x0f);
        if first >> 6 != 0 || len < 8 || kind == 1 && len != 24 {
            return None;
        }
        self.layer(
            "nsh",
            len,
            &[
                ("first", 0, 2),
                ("kind", 2, 1),
                ("next", 3, 1),
                ("path", 4, 3),
                ("index", 7, 1),
                ("context", 8, len - 8),
            ],
        )?;
        let is_read = first & 0x20 == 0 && matches!(kind, 1 | 2);
        Some(if is_read { next_protocol(self.number("next")) } else { Next::Stop(Stop::Opaque) })
    }

    fn geneve(&mut self) -> Option<Next> {
        let first = *self.rest().first()?;
        let len = 8 + usize::from(first & 0x3f) * 4;
        self.layer(
            "geneve",
            len,
            &[
                ("version_len", 0, 1),
                ("bits", 1, 1),
                ("protocol", 2, 2),
                ("vni", 4, 3),
                ("reserved", 7, 1),
                ("options", 8, len - 8),
            ],
        )?;
        if first >> 6 != 0 {
            return Some(Next::Stop(Stop::Opaque));
        }
        Some(Next::EtherType(self.number("protocol") as u16))
    }

    fn gue(&mut self) -> Option<Next> {
        let first = *self.rest().first()?;
        let len = 4 + usize::from(first & 0x1f) * 4;
        let fields =
            [("first", 0, 1), ("protocol", 1, 1), ("flags", 2, 2), ("options", 4, len - 4)];
        self.layer("gue", len, &fields)?;
        // This is a control message, or it has unknown flags or too little space for the fields of its flags (rule
        // W21).
        let flags = self.number("flags");
        let private = self.layers.last()?.bytes("options").first().copied();
        let bad_private =
            flags == 1 && len < if private.is_some_and(|p| p & 0x80 != 0) { 12 } else { 8 };
        if first & 0x20 != 0 || flags > 1 || bad_private {
            return Some(Next::Stop(Stop::Opaque));
        }
        Some(Next::Protocol(self.number("protocol") as u8))
    }

    fn l2tp(&mut self) -> Option<Next> {
        if self.rest().first_chunk() == Some(&[0; 4]) {
            // This is a control message (RFC 3931 section 4.1.1.2).
            self.layer("l2tp", 4, &[("session", 0, 4)])?;
            return Some(Next::Stop(Stop::Opaque));
        }
        let sublayer = 4 + L2TP_COOKIE_LEN;
        self.layer(
            "l2tp",
            sublayer + 4,
            &[("session", 0, 4), ("cookie", 4, L2TP_COOKIE_LEN), ("sublayer", sublayer, 4)],
        )?;
        // The sequence number (RFC 3931 section 4.6) makes every header unique.
        let is_numbered = self.number("sublayer") & 0x4000_0000 != 0;
        Some(if is_numbered { Next::Stop(Stop::Opaque) } else { Next::EtherType(0x6558) })
    }

    fn nibble(&mut self) -> Option<Next> {
        match self.rest().first()? >> 4 {
            4 => self.ipv4(),
            6 => self.ipv6(),
            _ => Some(Next::Stop(Stop::Opaque)),
        }
    }

    /// Appends a header of `len` bytes with these fields (name, offset, length), and advances past the header.
    fn layer(
        &mut self,
        name: &'static str,
        len: usize,
        fields: &[(&'static str, usize, usize)],
    ) -> Option<()> {
        let header = self.rest().get(..len)?;
        let fields = fields.iter().map(|(name, at, len)| (*name, header[*at..at + len].to_vec()));
        let (offset, end) = (self.offset, self.end);
        let fields = fields.collect();
        self.layers.push(Layer { name, offset, len, declared_end: end, end, fields });
        self.offset += len;
        Some(())
    }

    /// Records that the contents of the last header end at `declared`, which must not lie inside the header.
    fn declare(&mut self, declared: usize) -> Option<()> {
        if self.lengths == Lengths::Whole {
            return Some(());
        }
        let broken = declared < self.offset;
        self.end = self.end.min(declared.max(self.offset));
        let last = self.layers.last_mut()?;
        last.declared_end = declared;
        last.end = self.end;
        (!broken).then_some(())
    }

    /// Returns a length field, or `present` if the field is zero because it cannot hold `present` (rule G50).
    fn length_or_jumbo(&self, field: &str, present: usize) -> usize {
        match self.number(field) as usize {
            0 if present > 0xffff => present,
            len => len,
        }
    }

    fn number(&self, field: &str) -> u64 {
        self.layers.last().map_or(0, |layer| layer.number(field))
    }

    fn rest(&self) -> &[u8] {
        &self.frame[self.offset..self.end]
    }

    fn inside_v6(&self) -> bool {
        self.layers.iter().rev().find(|layer| layer.is_ip()).is_some_and(|ip| ip.name == "ipv6")
    }
}
