//! Laws of a header stack, compiled once and used for all packets with this stack.

use arrayvec::ArrayVec;
use grosso_wire::{Class, Cover, Ends, Kind, LAYERS_MAX, Law, Layer, Stack};

use crate::{
    bytes::u16_at,
    remote_checksum::{RemoteChecksum, remote_checksum},
};

/// Offsets of the varying fields in a header stack, in bytes from the start of the frame.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) header_len: usize,
    /// Offset of the transport header.
    pub(crate) transport: usize,
    pub(crate) is_tcp: bool,
    /// Innermost IP header.
    pub(crate) ip: Layer,
    /// Offset of the outermost IP header.
    pub(crate) network: usize,
    pub(crate) ip_levels: usize,
    pub(crate) has_pppoe: bool,
    /// Checksum that a tunnel header leaves to the receiver, if any.
    pub(crate) remote_checksum: Option<RemoteChecksum>,
    /// Offset of the sequence number, for TCP only.
    pub(crate) sequence: Option<u16>,
    /// Offset of the byte with flags that only some packets of a train have.
    pub(crate) flags: Option<u16>,
    /// Length fields, outermost first.
    pub(crate) lengths: ArrayVec<Length, LAYERS_MAX>,
    pub(crate) identifications: ArrayVec<IdentificationField, LAYERS_MAX>,
    /// Checksums over a header and everything after it, outermost first. The last is that of the transport header.
    pub(crate) covers: ArrayVec<Covering, LAYERS_MAX>,
}

/// Length field. Its value plus `from` is the end of the packet in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Length {
    pub(crate) at: u16,
    pub(crate) from: u16,
}

/// Identification and checksum of an IPv4 header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdentificationField {
    /// Offset of the header.
    pub(crate) header: u16,
    /// Length of the header, including options.
    pub(crate) header_len: u16,
    /// IP level. The outermost is 0.
    pub(crate) level: u8,
}

/// Checksum over a header and everything after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Covering {
    /// Offset of the header.
    pub(crate) start: u16,
    /// Offset of the checksum field.
    pub(crate) at: u16,
    /// Offsets of the addresses in the pseudo-header.
    pub(crate) ends: Ends,
    /// Protocol in the pseudo-header; zero if there is no pseudo-header.
    pub(crate) protocol: u8,
    /// Whether zero in the field means that there is no checksum (RFC 768).
    pub(crate) zero_means_none: bool,
}

impl Shape {
    /// Compiles the laws for a dissected packet whose innermost header is TCP or UDP.
    pub(crate) fn new(stack: &Stack, header: &[u8]) -> Self {
        let mut shape = Self {
            header_len: stack.header_len(),
            transport: stack.last().map_or(0, |layer| layer.offset as usize),
            is_tcp: stack.last().is_some_and(|layer| layer.kind == Kind::Tcp),
            ip: Layer::default(),
            network: 0,
            ip_levels: 0,
            has_pppoe: false,
            remote_checksum: None,
            sequence: None,
            flags: None,
            lengths: ArrayVec::new(),
            identifications: ArrayVec::new(),
            covers: ArrayVec::new(),
        };
        let mut ends = Ends::of(header, &Layer::default());
        for layer in stack.layers() {
            if layer.kind.is_ip() {
                shape.ip = *layer;
                ends = Ends::of(header, layer);
            }
            shape.enter(layer, &ends, header);
        }
        shape
    }

    /// Returns the innermost checksum that is present and depends on the payload. A checksum that the receiver
    /// completes does not depend on it (rule C52). `is_wanted` says whether the transport checksum is present even if
    /// its field is zero.
    pub(crate) fn made_of_payload(&self, header: &[u8], is_wanted: bool) -> Option<&Covering> {
        let (transport, around) = self.covers.split_last()?;
        let is_there = |covering: &&Covering| {
            !covering.zero_means_none || u16_at(header, covering.at as usize) != 0
        };
        let is_made = self.remote_checksum.is_none() && (is_wanted || is_there(&transport));
        if is_made { Some(transport) } else { around.iter().rev().find(is_there) }
    }

    fn enter(&mut self, layer: &Layer, ends: &Ends, header: &[u8]) {
        let start = header.get(layer.offset as usize..).unwrap_or_default();
        for field in layer.kind.spec().layout(start).fields {
            let at = layer.offset + field.bytes.start as u16;
            match field.law {
                Law::Length { skip } => {
                    self.lengths.push(Length { at, from: layer.offset + skip as u16 });
                    self.has_pppoe |= layer.kind.class() == Class::Link;
                }
                Law::Identification => self.identifications.push(IdentificationField {
                    header: layer.offset,
                    header_len: layer.len,
                    level: self.ip_levels as u8,
                }),
                Law::Checksum(cover) => self.enter_checksum(layer, ends, at, cover),
                Law::Sequence => self.sequence = Some(at),
                Law::Flags => self.flags = Some(at + 1),
                Law::Key { .. } | Law::Equal => {}
            }
        }
        if layer.kind.is_ip() {
            if self.ip_levels == 0 {
                self.network = layer.offset as usize;
            }
            self.ip_levels += 1;
        }
        self.enter_remote_checksum(remote_checksum(layer, header));
    }

    /// Stores the remote checksum that a tunnel header requests. If two headers request one, neither request can be
    /// met.
    fn enter_remote_checksum(&mut self, remote: Option<RemoteChecksum>) {
        if remote.is_some() {
            let is_second = self.remote_checksum.is_some();
            self.remote_checksum = if is_second { Some(RemoteChecksum::NOWHERE) } else { remote };
        }
    }

    fn enter_checksum(&mut self, layer: &Layer, ends: &Ends, at: u16, cover: Cover) {
        // A header checksum is written together with the identification, so it is not stored here.
        if cover == Cover::Header {
            return;
        }
        let (protocol, zero_means_none) = (cover.protocol(), cover.zero_means_none());
        let start = layer.offset;
        self.covers.push(Covering { start, at, ends: *ends, protocol, zero_means_none });
    }
}
