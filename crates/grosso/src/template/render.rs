//! The laws applied: the headers of one packet of a train, or of the whole train as one superframe.

use grosso_checksum::{Sum, nonzero, pseudo_v4, pseudo_v6};
use grosso_wire::{Kind, LAYERS_MAX, Layer, Stack, ipv4, ipv6, tcp};

use crate::{
    bytes::{put_u16, put_u32, u16_at, u32_at},
    meta::{Cwr, IpLevels},
    template::{
        compare::{ON_LAST_ONLY, has_checksum},
        laws::{self, Cover, Field, Law},
    },
};

/// The headers of a train, and the modes of those laws that have more than one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Template<'a> {
    /// What the headers are.
    pub(crate) stack: &'a Stack,
    /// The headers of the first packet, or of the superframe.
    pub(crate) header: &'a [u8],
    /// The IP levels whose identification is fixed.
    pub(crate) fixed_ids: IpLevels,
    /// Which packets carry CWR.
    pub(crate) cwr: Cwr,
    /// The receiver completes the innermost checksum (remote checksum offload): on the wire it is a seed (rule S45).
    pub(crate) remote_checksum: bool,
}

/// Which part of the train a header is written for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Packets of the train before this one.
    pub(crate) index: u32,
    /// Payload bytes of the train before this packet.
    pub(crate) before: u32,
    /// Payload bytes of this packet.
    pub(crate) payload: usize,
    /// Whether the train ends with this packet.
    pub(crate) last: bool,
}

/// How the checksums that cover the payload are written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Checksums {
    /// Complete; the sum of the payload is known.
    Complete(Sum),
    /// The innermost as the seed that a device completes, those around it complete: local checksum offload (C40).
    Partial,
    /// All as seeds, as a superframe has them (rules G51, T11).
    Seeds,
}

impl Template<'_> {
    /// Writes the headers of the packet at `place` into `header`, which holds a copy of the template's.
    #[inline]
    pub(crate) fn render(&self, place: Place, checksums: Checksums, header: &mut [u8]) {
        let mut writer = Writer {
            template: self,
            place,
            end: header.len() + place.payload,
            header,
            ip: None,
            ip_level: 0,
            pending: [Pending::default(); LAYERS_MAX],
            pending_count: 0,
        };
        for layer in self.stack.layers() {
            writer.layer(layer);
        }
        writer.checksums(checksums);
    }
}

/// A checksum that can be written only when everything behind its header is.
#[derive(Clone, Copy, Default)]
struct Pending {
    /// Where the header starts: the checksum covers everything from here on.
    start: usize,
    /// Where the checksum lies.
    at: usize,
    /// The enclosing IP header, for the pseudo-header.
    ip: Layer,
    protocol: u8,
    zero_means_none: bool,
}

struct Writer<'a> {
    template: &'a Template<'a>,
    place: Place,
    /// Where the packet ends.
    end: usize,
    header: &'a mut [u8],
    ip: Option<Layer>,
    ip_level: usize,
    pending: [Pending; LAYERS_MAX],
    pending_count: usize,
}

impl Writer<'_> {
    /// The tables are named here one by one so that each loop over one unrolls into straight code.
    #[inline]
    fn layer(&mut self, layer: &Layer) {
        match layer.kind {
            Kind::Ipv4 => {
                self.ip = Some(*layer);
                self.fields(layer, laws::IPV4);
                self.ip_level += 1;
            }
            Kind::Ipv6 => {
                self.ip = Some(*layer);
                self.fields(layer, laws::IPV6);
                self.ip_level += 1;
            }
            Kind::Tcp => self.fields(layer, laws::TCP),
            Kind::Udp => self.fields(layer, laws::UDP),
            Kind::Gre => self.fields(layer, laws::GRE),
            Kind::Pppoe => self.fields(layer, laws::PPPOE),
            _ => {}
        }
    }

    #[inline(always)]
    fn fields(&mut self, layer: &Layer, fields: &[Field]) {
        let start = layer.offset as usize;
        for field in fields {
            let at = start + field.bytes.start;
            match field.law {
                Law::Key(_) | Law::Equal(_) => {}
                Law::Length { skip } => {
                    let length = u16::try_from(self.end - start - skip).unwrap_or(0);
                    put_u16(self.header, at, length);
                }
                Law::Identification => self.identification(at),
                Law::Sequence => {
                    let sequence = u32_at(self.template.header, at).wrapping_add(self.place.before);
                    put_u32(self.header, at, sequence);
                }
                Law::Flags(_) => self.flags(at + 1),
                Law::Checksum(Cover::Header) => {
                    put_u16(self.header, at, 0);
                    let sum = self.header.get(start..layer.end()).map_or(Sum::ZERO, Sum::of);
                    put_u16(self.header, at, sum.checksum());
                }
                Law::Checksum(Cover::Packet) => {
                    if self.template.header.get(start..).is_some_and(has_checksum) {
                        self.postpone(layer, at, 0, false);
                    }
                }
                Law::Checksum(Cover::Transport) => self.postpone(layer, at, ipv4::PROTOCOL_TCP, false),
                Law::Checksum(Cover::Datagram) => {
                    if u16_at(self.template.header, at) != 0 {
                        self.postpone(layer, at, ipv4::PROTOCOL_UDP, true);
                    }
                }
            }
        }
    }

    #[inline]
    fn identification(&mut self, at: usize) {
        if !self.template.fixed_ids.contains(self.ip_level) {
            let first = u16_at(self.template.header, at);
            put_u16(self.header, at, first.wrapping_add(self.place.index as u16));
        }
    }

    #[inline]
    fn flags(&mut self, at: usize) {
        let Some(flags) = self.header.get_mut(at) else { return };
        if !self.place.last {
            *flags &= !ON_LAST_ONLY;
        }
        if self.place.index > 0 && self.template.cwr == Cwr::First {
            *flags &= !(tcp::CWR as u8);
        }
    }

    #[inline]
    fn postpone(&mut self, layer: &Layer, at: usize, protocol: u8, zero_means_none: bool) {
        put_u16(self.header, at, 0);
        let pending = Pending {
            start: layer.offset as usize,
            at,
            ip: self.ip.unwrap_or_default(),
            protocol,
            zero_means_none,
        };
        if let Some(slot) = self.pending.get_mut(self.pending_count) {
            *slot = pending;
            self.pending_count += 1;
        }
    }

    /// Writes the postponed checksums, innermost first, because each covers the ones inside it.
    #[inline]
    fn checksums(&mut self, checksums: Checksums) {
        let header_end = self.header.len();
        // The sum of everything from `from` to the end of the packet.
        let (mut from, mut behind) = match checksums {
            Checksums::Complete(payload) => (header_end, payload),
            Checksums::Partial | Checksums::Seeds => (header_end, Sum::ZERO),
        };
        for i in (0..self.pending_count).rev() {
            let pending = self.pending[i];
            let innermost = i + 1 == self.pending_count;
            let pseudo = self.pseudo_header(&pending);
            let seed = matches!(checksums, Checksums::Seeds)
                || innermost
                    && (matches!(checksums, Checksums::Partial) || self.template.remote_checksum);
            if seed {
                put_u16(self.header, pending.at, pseudo.fold());
                behind = match checksums {
                    // Once the device has completed it, the innermost part sums to the complement of its seed.
                    Checksums::Partial => Sum::from_word(!pseudo.fold()),
                    _ => self.sum(pending.start, from) + behind,
                };
            } else {
                behind += self.sum(pending.start, from);
                let checksum = (behind + pseudo).checksum();
                let checksum = if pending.zero_means_none { nonzero(checksum) } else { checksum };
                put_u16(self.header, pending.at, checksum);
                behind += Sum::from_word(checksum);
            }
            from = pending.start;
        }
    }

    #[inline]
    fn sum(&self, from: usize, to: usize) -> Sum {
        self.header.get(from..to).map_or(Sum::ZERO, Sum::of)
    }

    #[inline]
    fn pseudo_header(&self, pending: &Pending) -> Sum {
        if pending.protocol == 0 {
            return Sum::ZERO;
        }
        let len = (self.end - pending.start) as u32;
        pseudo_header(self.header, &pending.ip, pending.protocol, len)
    }
}

/// The pseudo-header sum of a transport header of `len` bytes with its payload, inside the IP header `ip`.
#[inline]
pub(crate) fn pseudo_header(packet: &[u8], ip: &Layer, protocol: u8, len: u32) -> Sum {
    let start = ip.offset as usize;
    match ip.kind {
        Kind::Ipv6 => {
            let addresses = packet.get(start + ipv6::field::SOURCE.start..).and_then(|rest| {
                Some((rest.first_chunk::<16>()?, rest.get(16..)?.first_chunk::<16>()?))
            });
            addresses.map_or(Sum::ZERO, |(source, destination)| {
                pseudo_v6(source, destination, protocol, len)
            })
        }
        _ => {
            let source = u32_at(packet, start + ipv4::field::SOURCE.start).to_be_bytes();
            let destination = u32_at(packet, start + ipv4::field::DESTINATION.start).to_be_bytes();
            pseudo_v4(source, destination, protocol, len)
        }
    }
}
