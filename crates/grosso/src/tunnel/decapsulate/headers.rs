//! The headers of the outermost tunnel, and the checks that a receiver makes before removing them.

use core::{net::IpAddr, ops::Range};

use grosso_wire::{
    Class, Kind, Layer, Ports, Stack, Stop, geneve, geneve::GeneveOption, gre, gue, ipv4, ipv6,
    udp, vxlan,
};

use super::{DecapsulationRules, Details, Path, reason::Refusal};
use crate::{
    bytes::{u16_at, u32_at},
    remote_checksum::{RemoteChecksum, remote_checksum},
    tunnel::{Tunnel, kind::CarriedBy},
};

/// The headers of one tunnel.
#[derive(Clone, Copy, Debug)]
pub(super) struct OuterHeaders {
    pub(super) tunnel: Tunnel,
    /// The outermost IP header.
    pub(super) ip: Layer,
    /// Number of link-layer headers in front of it.
    pub(super) links: usize,
    /// Index of the first header inside the tunnel.
    pub(super) inner: usize,
    /// End of the tunnel's payload by the headers around it, in bytes from the start of the frame.
    pub(super) end: usize,
    pub(super) udp: Option<Layer>,
    pub(super) gre: Option<Layer>,
    pub(super) remote_checksum: Option<RemoteChecksum>,
}

impl OuterHeaders {
    /// Finds the headers. A superframe may have zero in a length that does not fit its field.
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
        let mut walk = Walk { frame, stack, rules, next: links + 1 + extensions };
        let (tunnel, udp, gre, remote_checksum) = walk.tunnel(&ip)?;
        let mut outer =
            Self { tunnel, ip, links, inner: walk.next, end: 0, udp, gre, remote_checksum };
        let inner = layers.get(outer.inner).ok_or_else(|| walk.refusal_inside())?;
        outer.end = outer.end(frame, is_superframe)?;
        // A transport header directly in GUE or FOU is no packet of its own: no link layer could carry it.
        let is_on_links = !inner.kind.spec().announced.ethertypes.is_empty();
        if inner.kind != Kind::Ethernet && !is_on_links {
            return Err(Refusal::Protocol);
        }
        if usize::from(inner.offset) > outer.end {
            return Err(Refusal::Malformed);
        }
        Ok(outer)
    }

    /// Returns the tunnel's path: its ends and its identifier.
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

    /// Returns the other contents of its header.
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
        }
    }

    /// End of the payload: IP and UDP have to agree with each other and with the frame. Bytes behind it are padding.
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

/// Identifier in a tunnel header.
fn identifier(frame: &[u8], layer: &Layer) -> Option<u32> {
    if layer.kind.class() != Class::Tunnel {
        return None;
    }
    let header = frame.get(layer.offset.into()..layer.end())?;
    layer.kind.spec().identifier(header).map(|(_, number)| number)
}

/// End of an IP packet by its own length; `None` for a superframe without a length.
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
}

type Found = (Tunnel, Option<Layer>, Option<Layer>, Option<RemoteChecksum>);

impl Walk<'_> {
    /// Steps over the headers of a tunnel inside the IP header `ip`.
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

    /// Steps over a tunnel header in UDP, or finds that the datagram is no tunnel's.
    fn udp(&mut self, ip: &Layer, udp: &Layer) -> Result<Found, Refusal> {
        let ports = &self.rules.ports;
        let port = u16_at(self.frame, usize::from(udp.offset) + udp::field::DESTINATION_PORT.start);
        self.next += 1;
        let Some(layer) = self.layer() else { return Err(self.refusal_behind_udp(port, ports)) };
        let header = self.frame.get(usize::from(layer.offset)..layer.end()).unwrap_or_default();
        let remote_checksum = remote_checksum(&layer, self.frame);
        let tunnel = match layer.kind {
            Kind::Vxlan => {
                check_vxlan(header)?;
                Tunnel::Vxlan
            }
            Kind::VxlanGpe => {
                check_vxlan_gpe(header)?;
                Tunnel::VxlanGpe
            }
            Kind::Geneve => {
                check_geneve(header, self.rules.critical_options)?;
                Tunnel::Geneve
            }
            Kind::Esp => return Err(Refusal::Encrypted),
            Kind::Gue => {
                check_gue(header)?;
                self.next += 1;
                let (tunnel, gre) = self.protocol(ip, CarriedBy::Gue)?;
                return Ok((tunnel, Some(*udp), gre, remote_checksum));
            }
            // GUE variant 1 and FOU have no header; the port tells them apart (rules W10, W22).
            _ => {
                let carried_by =
                    if port == ports.port(Kind::Gue) { CarriedBy::Gue } else { CarriedBy::Fou };
                let (tunnel, gre) = self.protocol(ip, carried_by)?;
                return Ok((tunnel, Some(*udp), gre, None));
            }
        };
        self.next += 1;
        Ok((tunnel, Some(*udp), None, remote_checksum))
    }

    /// Returns the tunnel that an IP protocol number announces: GRE, which is stepped over, or a packet without a
    /// tunnel header.
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
        check_gre(self.frame, &layer)?;
        self.next += 1;
        Ok((tunnel, Some(layer)))
    }

    fn layer(&self) -> Option<Layer> {
        self.stack.layers().get(self.next).copied()
    }

    /// Reason why nothing follows an IP header and its extension headers.
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

    /// Reason why nothing follows a UDP header: most ports are no tunnel's, and the port of ESP also carries IKE.
    fn refusal_behind_udp(&self, port: u16, ports: &Ports) -> Refusal {
        if ports.on(port).is_some() && self.stack.stop != Stop::Payload {
            self.refusal_inside()
        } else {
            Refusal::NoTunnel
        }
    }

    /// Reason why nothing follows a tunnel header.
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

/// Checks rules W50, W51. Linux ignores the bits that RFC 2784 section 2.3 requires to be zero; here only those are
/// ignored that it says must be ignored.
fn check_gre(frame: &[u8], layer: &Layer) -> Result<(), Refusal> {
    let flags = u16_at(frame, usize::from(layer.offset) + gre::field::FLAGS.start);
    if flags & (gre::FLAG_ROUTING | GRE_RESERVED | gre::VERSION_MASK) != 0 {
        return Err(Refusal::GreFlags);
    }
    Ok(())
}

/// Checks rules W30, W31: an unknown bit may change the layout behind it, so none is ignored.
fn check_vxlan(header: &[u8]) -> Result<(), Refusal> {
    let flags = u32_at(header, vxlan::field::FLAGS.start);
    let mut known = vxlan::FLAG_VNI | vxlan::FLAG_REMOTE_CHECKSUM;
    if flags & vxlan::FLAG_POLICY != 0 {
        known |= vxlan::FLAG_POLICY
            | vxlan::FLAG_POLICY_DONT_LEARN
            | vxlan::FLAG_POLICY_APPLIED
            | VXLAN_LOW_HALF;
    }
    let uses_reserved = flags & vxlan::FLAG_REMOTE_CHECKSUM != 0;
    let reserved = header.get(vxlan::field::RESERVED.start).copied().unwrap_or(0);
    let is_known = flags & !known == 0 && (uses_reserved || reserved == 0);
    if flags & vxlan::FLAG_VNI == 0 || !is_known {
        return Err(Refusal::VxlanFlags);
    }
    Ok(())
}

/// Checks rule W31.
fn check_vxlan_gpe(header: &[u8]) -> Result<(), Refusal> {
    let flags = u32_at(header, vxlan::field::FLAGS.start);
    if flags & (vxlan::GPE_VERSION_MASK | vxlan::FLAG_OPERATIONS) != 0 {
        return Err(Refusal::VxlanGpeFlags);
    }
    let required = vxlan::FLAG_VNI | vxlan::FLAG_NEXT_PROTOCOL;
    let reserved = header.get(vxlan::field::RESERVED.start).copied().unwrap_or(0);
    if flags & !VXLAN_LOW_BYTE != required || reserved != 0 {
        return Err(Refusal::VxlanFlags);
    }
    Ok(())
}

/// Checks rules W40, W41.
fn check_geneve(header: &[u8], takes_critical: bool) -> Result<(), Refusal> {
    let flags = header.get(geneve::field::FLAGS.start).copied().unwrap_or(0);
    if flags & geneve::CONTROL != 0 {
        return Err(Refusal::Control);
    }
    let mut is_critical = flags & geneve::CRITICAL != 0;
    for option in geneve_options(header) {
        is_critical |= option.map_err(|_| Refusal::GeneveOptions)?.is_critical();
    }
    if is_critical && !takes_critical { Err(Refusal::GeneveCritical) } else { Ok(()) }
}

/// Class and type of the first option that an end of the tunnel must understand.
fn critical_option(frame: &[u8], headers: &[Layer]) -> Option<(u16, u8)> {
    let layer = headers.iter().find(|layer| layer.kind == Kind::Geneve)?;
    let header = frame.get(usize::from(layer.offset)..layer.end())?;
    let option = geneve_options(header).flatten().find(GeneveOption::is_critical)?;
    Some((option.class, option.kind))
}

fn geneve_options(header: &[u8]) -> geneve::GeneveOptions<'_> {
    geneve::GeneveOptions::new(header.get(geneve::HEADER_LEN..).unwrap_or_default())
}

/// Checks rules W20, W21.
fn check_gue(header: &[u8]) -> Result<(), Refusal> {
    let (version_length, flags) = (header.first().copied(), u16_at(header, 2));
    if version_length.is_none_or(|byte| byte & gue::CONTROL != 0) {
        return Err(Refusal::Control);
    }
    let is_known = match flags {
        0 => true,
        gue::FLAG_PRIVATE => {
            u32_at(header, gue::HEADER_LEN) & !gue::PRIVATE_FLAG_REMOTE_CHECKSUM == 0
        }
        _ => false,
    };
    if is_known { Ok(()) } else { Err(Refusal::GueFlags) }
}

/// Bits 4 and 5 of GRE's flags: a receiver without support for RFC 1701 discards packets that have them set.
const GRE_RESERVED: u16 = 0x0c00;
const VXLAN_LOW_HALF: u32 = 0xffff;
const VXLAN_LOW_BYTE: u32 = 0xff;

/// A group policy that forbids learning.
const DONT_LEARN: u32 = vxlan::FLAG_POLICY | vxlan::FLAG_POLICY_DONT_LEARN;
