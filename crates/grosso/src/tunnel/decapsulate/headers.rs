//! Headers of the outermost tunnel, and the checks that a receiver makes before removing them.

use core::{net::IpAddr, ops::Range};

use grosso_wire::{
    Class, Kind, Layer, Ports, Stack, Stop, geneve, geneve::GeneveOption, gre, ipv4, ipv6, udp,
    vxlan,
};

use super::{DecapsulationRules, Details, Path, reason::Refusal};
use crate::{
    bytes::{u16_at, u32_at},
    remote_checksum::{RemoteChecksum, remote_checksum},
    tunnel::{Tunnel, kind::CarriedBy},
};

/// Headers of one tunnel.
#[derive(Clone, Copy, Debug)]
pub(super) struct OuterHeaders {
    pub(super) tunnel: Tunnel,
    /// Outermost IP header.
    pub(super) ip: Layer,
    /// Number of link-layer headers before the IP header.
    pub(super) links: usize,
    /// Index of the first header inside the tunnel.
    pub(super) inner: usize,
    /// End of the tunnel's payload according to the headers around it, in bytes from the start of the frame.
    pub(super) end: usize,
    pub(super) udp: Option<Layer>,
    pub(super) gre: Option<Layer>,
    pub(super) remote_checksum: Option<RemoteChecksum>,
    /// Whether a tunnel header has reserved bits set.
    has_reserved: bool,
}

impl OuterHeaders {
    /// Finds the headers of the outermost tunnel. In a superframe, a length that does not fit into its field may be
    /// zero.
    pub(super) fn find(
        frame: &[u8],
        stack: &Stack,
        rules: &DecapsulationRules,
        is_superframe: bool,
    ) -> Result<Self, Refusal> {
        let layers = stack.layers();
        let is_ip = |layer: &Layer| layer.kind.is_ip();
        let links = layers.iter().position(is_ip).ok_or(Refusal::NoTunnel)?;
        let ip = layers[links];
        let is_extension =
            |layer: &&Layer| matches!(layer.kind, Kind::Ipv6Extension | Kind::Ipv6Fragment);
        let extensions = layers[links + 1..].iter().take_while(is_extension).count();
        let next = links + 1 + extensions;
        let mut walk = Walk { frame, stack, rules, next, has_reserved: false };
        let (tunnel, udp, gre, remote_checksum) = walk.tunnel(&ip)?;
        let Walk { next: inner, has_reserved, .. } = walk;
        let mut outer =
            Self { tunnel, ip, links, inner, end: 0, udp, gre, remote_checksum, has_reserved };
        let inner = layers.get(outer.inner).ok_or_else(|| walk.refusal_inside())?;
        outer.end = outer.end(frame, is_superframe)?;
        // A transport header directly in GUE or FOU is not a packet, because no link layer could carry it.
        let is_on_links = !inner.kind.spec().announced.ethertypes.is_empty();
        if inner.kind != Kind::Ethernet && !is_on_links {
            return Err(Refusal::Protocol);
        }
        if usize::from(inner.offset) > outer.end {
            return Err(Refusal::Malformed);
        }
        Ok(outer)
    }

    /// Returns the path of the tunnel: the addresses of the endpoints, and the identifier.
    pub(super) fn path(&self, frame: &[u8], stack: &Stack) -> Path {
        let start = usize::from(self.ip.offset);
        let address = |v4: Range<usize>, v6: Range<usize>| {
            let at = |field: Range<usize>| frame.get(start + field.start..).unwrap_or_default();
            if self.ip.kind == Kind::Ipv4 {
                IpAddr::from(at(v4).first_chunk::<4>().copied().unwrap_or_default())
            } else {
                IpAddr::from(at(v6).first_chunk::<16>().copied().unwrap_or_default())
            }
        };
        let headers = stack.layers().get(self.links..self.inner).unwrap_or_default();
        Path {
            source: address(ipv4::field::SOURCE, ipv6::field::SOURCE),
            destination: address(ipv4::field::DESTINATION, ipv6::field::DESTINATION),
            identifier: headers.iter().find_map(|layer| identifier(frame, layer)),
        }
    }

    /// Returns the contents of the tunnel header apart from the path.
    pub(super) fn details(&self, frame: &[u8], stack: &Stack) -> Details {
        let headers = stack.layers().get(self.links..self.inner).unwrap_or_default();
        let vxlan = headers.iter().find(|layer| layer.kind == Kind::Vxlan);
        let flags = vxlan.map_or(0, |layer| {
            u32_at(frame, usize::from(layer.offset) + vxlan::field::FLAGS.start)
        });
        let gre = self.gre.map(|layer| frame.get(usize::from(layer.offset)..).unwrap_or_default());
        let fields =
            gre.and_then(|bytes| gre::GreHeader::parse(bytes).ok()).map(|(_, fields, _)| fields);
        let fields = fields.unwrap_or_default();
        Details {
            carried: stack.layers().get(self.inner).map(|layer| layer.kind),
            policy: (flags & vxlan::FLAG_POLICY != 0).then_some(flags as u16),
            dont_learn: flags & DONT_LEARN == DONT_LEARN,
            gre_checksum: fields.checksum.is_some(),
            sequence: fields.sequence,
            critical_option: match self.tunnel {
                Tunnel::Geneve => critical_option(frame, headers),
                _ => None,
            },
            left_open: false,
            reserved_bits: self.has_reserved,
        }
    }

    /// Returns the end of the payload. The IP and UDP lengths must agree with each other and with the frame. Bytes
    /// after the payload are padding.
    fn end(&self, frame: &[u8], is_superframe: bool) -> Result<usize, Refusal> {
        let end = declared_end(frame, &self.ip, is_superframe)?.unwrap_or(frame.len());
        if end > frame.len() {
            return Err(Refusal::Short);
        }
        let Some(udp) = self.udp else { return Ok(end) };
        let start = usize::from(udp.offset);
        match u16_at(frame, start + udp::field::LENGTH.start) {
            0 if is_superframe => Ok(end),
            length if start + usize::from(length) > end => Err(Refusal::Malformed),
            length => Ok(start + usize::from(length)),
        }
    }
}

/// Returns the tunnel identifier in a header.
fn identifier(frame: &[u8], layer: &Layer) -> Option<u32> {
    if layer.kind.class() != Class::Tunnel {
        return None;
    }
    let header = frame.get(layer.offset.into()..layer.end())?;
    layer.kind.spec().identifier(header).map(|(_, number)| number)
}

/// Returns the end of an IP packet according to its length field, or `None` for a superframe without a length.
pub(super) fn declared_end(
    frame: &[u8],
    ip: &Layer,
    is_superframe: bool,
) -> Result<Option<usize>, Refusal> {
    let start = usize::from(ip.offset);
    let (declared, before) = if ip.kind == Kind::Ipv4 {
        (u16_at(frame, start + ipv4::field::TOTAL_LENGTH.start), 0)
    } else {
        (u16_at(frame, start + ipv6::field::PAYLOAD_LENGTH.start), ipv6::HEADER_LEN)
    };
    let next_header = frame.get(start + ipv6::field::NEXT_HEADER.start);
    let is_empty = ip.kind == Kind::Ipv6 && next_header == Some(&ipv6::NEXT_NONE);
    match declared {
        0 if is_empty => Ok(Some(start + before)),
        0 if is_superframe => Ok(None),
        0 => Err(Refusal::LengthZero),
        _ => Ok(Some(start + before + usize::from(declared))),
    }
}

/// Cursor over the headers of a tunnel.
struct Walk<'a> {
    frame: &'a [u8],
    stack: &'a Stack,
    rules: &'a DecapsulationRules,
    /// Index of the next header in the stack.
    next: usize,
    has_reserved: bool,
}

type Found = (Tunnel, Option<Layer>, Option<Layer>, Option<RemoteChecksum>);

impl Walk<'_> {
    /// Steps over the headers of the tunnel that follow the IP header `ip`.
    fn tunnel(&mut self, ip: &Layer) -> Result<Found, Refusal> {
        let Some(layer) = self.layer() else { return Err(self.refusal_behind_ip()) };
        match layer.kind {
            Kind::Udp => self.udp(ip, &layer),
            Kind::Esp => Err(Refusal::Encrypted),
            Kind::Gre | Kind::Mpls | Kind::Ipv4 | Kind::Ipv6 => {
                let (tunnel, gre) = self.protocol(ip, CarriedBy::Ip)?;
                Ok((tunnel, None, gre, None))
            }
            _ => Err(Refusal::NoTunnel),
        }
    }

    /// Steps over a tunnel header in UDP. Returns the reason if the datagram is not part of a tunnel.
    fn udp(&mut self, ip: &Layer, udp: &Layer) -> Result<Found, Refusal> {
        let ports = &self.rules.ports;
        let port = u16_at(self.frame, usize::from(udp.offset) + udp::field::DESTINATION_PORT.start);
        self.next += 1;
        let Some(layer) = self.layer() else { return Err(self.refusal_behind_udp(port, ports)) };
        let remote_checksum = remote_checksum(&layer, self.frame);
        match layer.kind {
            Kind::Esp => Err(Refusal::Encrypted),
            Kind::Gue => {
                self.receive(&layer)?;
                let (tunnel, gre) = self.protocol(ip, CarriedBy::Gue)?;
                Ok((tunnel, Some(*udp), gre, remote_checksum))
            }
            kind if port != 0 && ports.port(kind) == port => {
                self.receive(&layer)?;
                Ok((Tunnel::in_udp(kind), Some(*udp), None, remote_checksum))
            }
            // GUE variant 1 and FOU have no header of their own. Only the port distinguishes them (rules W10, W22).
            _ => {
                let carried_by =
                    if port == ports.port(Kind::Gue) { CarriedBy::Gue } else { CarriedBy::Fou };
                let (tunnel, gre) = self.protocol(ip, carried_by)?;
                Ok((tunnel, Some(*udp), gre, None))
            }
        }
    }

    /// Checks a tunnel header and steps over it. Any other header is the first one inside the tunnel.
    fn receive(&mut self, layer: &Layer) -> Result<(), Refusal> {
        let Some(receive) = layer.kind.spec().receive else { return Ok(()) };
        let header = self.frame.get(usize::from(layer.offset)..layer.end()).unwrap_or_default();
        let received = receive(header).map_err(|refused| Refusal::of(layer.kind, refused))?;
        if received.has_critical && !self.rules.critical_options {
            return Err(Refusal::GeneveCritical);
        }
        if received.has_reserved && !self.rules.reserved_bits {
            return Err(Refusal::VxlanFlags);
        }
        self.has_reserved |= received.has_reserved;
        self.next += 1;
        Ok(())
    }

    /// Returns the tunnel that an IP protocol number announces, and its GRE header if it has one. Skips the GRE
    /// header, and a tunnel header that follows it.
    fn protocol(
        &mut self,
        ip: &Layer,
        carried_by: CarriedBy,
    ) -> Result<(Tunnel, Option<Layer>), Refusal> {
        let Some(layer) = self.layer() else { return Err(self.refusal_inside()) };
        if layer.kind == Kind::Esp {
            return Err(Refusal::Encrypted);
        }
        let tunnel = Tunnel::of(carried_by, ip.kind, layer.kind).ok_or(Refusal::Protocol)?;
        if layer.kind != Kind::Gre {
            return Ok((tunnel, None));
        }
        self.receive(&layer)?;
        // Another tunnel header, which no link layer can carry, may follow the GRE header.
        let Some(inside) = self.layer().filter(|inside| inside.kind.spec().receive.is_some())
        else {
            return Ok((tunnel, Some(layer)));
        };
        self.receive(&inside)?;
        Ok((Tunnel::Header(inside.kind), Some(layer)))
    }

    fn layer(&self) -> Option<Layer> {
        self.stack.layers().get(self.next).copied()
    }

    /// Returns the reason why no header follows an IP header and its extension headers.
    fn refusal_behind_ip(&self) -> Refusal {
        let before = self.next.checked_sub(1).and_then(|last| self.stack.layers().get(last));
        let protocol = before.map_or(0, |layer| {
            let field = match layer.kind {
                Kind::Ipv4 => ipv4::field::PROTOCOL.start,
                Kind::Ipv6 => ipv6::field::NEXT_HEADER.start,
                _ => 0,
            };
            self.frame.get(usize::from(layer.offset) + field).copied().unwrap_or(0)
        });
        let may_be_tunnel = matches!(
            protocol,
            ipv4::PROTOCOL_IPV4
                | ipv4::PROTOCOL_IPV6
                | ipv4::PROTOCOL_GRE
                | ipv4::PROTOCOL_ESP
                | ipv4::PROTOCOL_MPLS
        );
        match self.stack.stop {
            Stop::Fragment if may_be_tunnel || protocol == ipv4::PROTOCOL_UDP => Refusal::Fragment,
            _ if may_be_tunnel => self.refusal_inside(),
            _ => Refusal::NoTunnel,
        }
    }

    /// Returns the reason why no header follows a UDP header: most ports are not tunnel ports, and the ESP port is also
    /// used for IKE.
    fn refusal_behind_udp(&self, port: u16, ports: &Ports) -> Refusal {
        if ports.on(port).is_some() && self.stack.stop != Stop::Payload {
            self.refusal_inside()
        } else {
            Refusal::NoTunnel
        }
    }

    /// Returns the reason why no header follows a tunnel header.
    fn refusal_inside(&self) -> Refusal {
        match self.stack.stop {
            Stop::Truncated => Refusal::Truncated,
            Stop::Malformed => Refusal::Malformed,
            Stop::TooDeep => Refusal::TooDeep,
            Stop::Encrypted => Refusal::Encrypted,
            _ => Refusal::Protocol,
        }
    }
}

/// Returns the class and type of the first option that a tunnel endpoint must understand.
fn critical_option(frame: &[u8], headers: &[Layer]) -> Option<(u16, u8)> {
    let layer = headers.iter().find(|layer| layer.kind == Kind::Geneve)?;
    let header = frame.get(usize::from(layer.offset)..layer.end())?;
    let option = geneve_options(header).flatten().find(GeneveOption::is_critical)?;
    Some((option.class, option.kind))
}

fn geneve_options(header: &[u8]) -> geneve::GeneveOptions<'_> {
    geneve::GeneveOptions::new(header.get(geneve::HEADER_LEN..).unwrap_or_default())
}

/// Group policy flags that forbid learning.
const DONT_LEARN: u32 = vxlan::FLAG_POLICY | vxlan::FLAG_POLICY_DONT_LEARN;
