//! Segmentation of superframes into packets, and of packets into IP fragments.
//!
//! Every packet gets a copy of the superframe's headers, in which the laws set the fields that depend on the packet's
//! index. The payload is either copied and summed in one pass, or left in place.

use grosso_checksum::Sum;
use grosso_wire::{Kind, Layer, LinkType, Ports, Stack, Stop, dissect, gre};

use crate::{
    bytes::u16_at,
    checksum::Checksum,
    meta::{Gso, GsoSize, Meta},
    template::{
        incremental::IncrementalHeader,
        render::{Checksums, Portion, Template},
        shape::Shape,
    },
};

mod fragments;
mod jumbo;
mod payload;

use payload::Payload;

pub use fragments::{FragmentOptions, Fragments, NoFragments};

/// Requirements of the device that transmits the packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outgoing {
    /// Whether to leave the innermost checksum partial. Outer checksums are completed without reading the payload (rule
    /// C40).
    pub partial_checksums: bool,
    /// Whether to produce one packet from all full segments and one from the remaining bytes. The device then repeats
    /// the outer headers (rule S47).
    pub gso_partial: bool,
    /// Whether to complete every checksum. Set this if no later stage completes checksums. If this is false, packets
    /// whose checksums were partial before they were merged ([`Gso::partial_members`]) get partial checksums again.
    pub complete: bool,
}

impl Outgoing {
    /// Requirements of a device that completes checksums.
    pub const PARTIAL_CHECKSUMS: Self =
        Self { partial_checksums: true, gso_partial: false, complete: false };
    /// Requirements of a device with `tx-gso-partial`.
    pub const GSO_PARTIAL: Self =
        Self { partial_checksums: true, gso_partial: true, complete: false };
    /// Requirements of a device without checksum offload, or of the wire.
    pub const COMPLETE: Self =
        Self { partial_checksums: false, gso_partial: false, complete: true };
}

/// Reason why a frame is not segmented. The frame is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoSegments {
    /// The frame has no segmentation parameters, or they contain no segment size.
    NotSuperframe,
    /// The payload already fits into one packet (rule S3).
    Whole,
    /// The headers do not end in TCP or UDP, or are malformed (rule S3, B34).
    Headers,
    /// The first slice does not contain all headers.
    HeadersSplit,
    /// The headers are longer than [`HEADER_BYTES_MAX`].
    HeaderTooLong,
    /// The frame has more than [`IP_LEVELS_MAX`] IP headers (rule S4).
    TooManyIpHeaders,
    /// The partial checksum is not that of the transport header (rule S3).
    ChecksumStart,
    /// Every packet would need its own GRE sequence number (rule S43).
    GreSequence,
    /// The frame is an IP fragment, or must be fragmented instead.
    Fragments,
    /// The frame is longer than IP fragments can express (rule F13), or one of its packets is longer than its headers
    /// can express.
    TooLong,
}

impl NoSegments {
    /// Returns a sentence that explains the reason to users.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::NotSuperframe => "the segment size is unknown",
            Self::Whole => "the payload fits into one packet",
            Self::Headers => "the innermost header is neither TCP nor UDP",
            Self::HeadersSplit => "the headers are not contiguous",
            Self::HeaderTooLong => "the headers are longer than supported",
            Self::TooManyIpHeaders => "the frame has more than five IP headers",
            Self::ChecksumStart => "the partial checksum is outside the TCP or UDP header",
            Self::GreSequence => "each packet would need a separate GRE sequence number",
            Self::Fragments => "the frame is an IP fragment, or requires IP fragmentation instead",
            Self::TooLong => {
                "the frame, or a packet split from it, exceeds the maximum length of an IP datagram"
            }
        }
    }
}

impl core::fmt::Display for NoSegments {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.sentence())
    }
}

impl core::error::Error for NoSegments {}

/// Error: the buffer is too small for the next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferTooSmall {
    /// Required size in bytes.
    pub needed: usize,
}

impl core::fmt::Display for BufferTooSmall {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "the buffer is too small: the next packet needs {} bytes", self.needed)
    }
}

impl core::error::Error for BufferTooSmall {}

/// One packet of a superframe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Length of the headers in bytes.
    pub header_len: usize,
    /// Length of the payload in bytes.
    pub payload_len: usize,
    /// Metadata of the packet.
    pub meta: Meta,
}

impl Segment {
    /// Returns the length of the packet in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.header_len + self.payload_len
    }

    /// Returns false, because every packet has headers.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }
}

/// Writer of the packets of one superframe, in order.
///
/// ```
/// use grosso::{LinkType, Meta, Ports, meta::Gso, segment::{Outgoing, Segments}};
/// # let frame = grosso_testkit::Packet::new().ipv4(|ip| ip).tcp(|t| t).payload_len(2500).build();
///
/// let (slices, meta) = ([&frame[..]], Meta { gso: Gso::every(1000), ..Meta::default() });
/// let mut segments = Segments::new(&slices, &meta, LinkType::Raw, &Ports::ASSIGNED, Outgoing::COMPLETE)?;
/// let mut packet = [0; 1500];
/// while let Some(segment) = segments.write_next(&mut packet)? {
///     println!("send {} bytes", packet[..segment.len()].len());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    header: [u8; HEADER_BYTES_MAX],
    shape: Shape,
    /// Headers of a packet other than the first or last one. Once such a packet has been written, the headers of the
    /// following packets are derived from them.
    incremental: Option<IncrementalHeader>,
    meta: Meta,
    gso: Gso,
    /// Whether the innermost checksum stays partial, either because the device completes it or because it was partial
    /// before the packets were merged.
    leaves_partial: bool,
    /// Whether some checksum needs the sum of the payload. None does if the innermost checksum stays a pseudo-header
    /// sum and each outer checksum is absent or completed by a receiver.
    sums_payload: bool,
    /// Whether the device repeats the outer headers.
    repeats_headers: bool,
    payload: Payload<'a>,
    index: u32,
    before: usize,
    payload_len: usize,
    count: u32,
}

impl<'a> Segments<'a> {
    /// Prepares the segmentation of the frame in `slices`; the first slice must contain all headers.
    ///
    /// If length fields disagree with the length of the frame, the latter is used: superframes longer than 64 KB cannot
    /// express their length, and guests leave length fields unset.
    ///
    /// # Errors
    /// Returns the reason why the frame cannot or need not be segmented.
    pub fn new(
        slices: &'a [&'a [u8]],
        meta: &Meta,
        link: LinkType,
        ports: &Ports,
        outgoing: Outgoing,
    ) -> Result<Self, NoSegments> {
        let gso = meta.gso.ok_or(NoSegments::NotSuperframe)?;
        let head = slices.first().copied().unwrap_or_default();
        let mut frame_stack = Stack::new(0);
        meta.dissect_into(head, link, ports, &mut frame_stack);
        let frame_header_len = frame_stack.header_len();
        let transport = transport(&frame_stack)?;
        if frame_header_len > HEADER_BYTES_MAX {
            return Err(NoSegments::HeaderTooLong);
        }
        check_stack(&frame_stack, head)?;
        if let Checksum::Partial { start, .. } = meta.checksum
            && start != transport.offset
        {
            return Err(NoSegments::ChecksumStart);
        }
        let frame_len: usize = slices.iter().map(|slice| slice.len()).sum();
        let payload_len = frame_len.saturating_sub(frame_header_len);
        let (count, longest) = packets(&gso, slices, frame_header_len, payload_len)?;
        let mut header = [0; HEADER_BYTES_MAX];
        header[..frame_header_len].copy_from_slice(&head[..frame_header_len]);
        let stack = match jumbo::remove(&mut header[..frame_header_len], &frame_stack) {
            Some(header_len) => dissect(&header[..header_len], link, ports),
            None => frame_stack,
        };
        let shape = Shape::new(&stack, &header);
        let len_max = shape.header_len + longest;
        if shape.lengths.iter().any(|length| len_max - length.from as usize > u16::MAX.into()) {
            return Err(NoSegments::TooLong);
        }
        let completes = can_be_completed(&shape, &header, meta);
        let is_partial = matches!(meta.checksum, Checksum::Partial { .. });
        let sums_payload = shape.made_of_payload(&header, is_partial).is_some();
        let was_partial = gso.partial_members && !outgoing.complete;
        let leaves_partial = completes && (outgoing.partial_checksums || was_partial);
        Ok(Self {
            sums_payload: !leaves_partial && sums_payload,
            shape,
            incremental: None,
            header,
            meta: *meta,
            gso,
            leaves_partial,
            repeats_headers: completes && outgoing.gso_partial,
            payload: Payload { slices, slice: 0, offset: frame_header_len },
            index: 0,
            before: 0,
            payload_len,
            count,
        })
    }

    /// Writes the next packet to `out`. The payload is copied and summed in one pass. Returns `None` after the last
    /// packet.
    ///
    /// # Errors
    /// Returns [`BufferTooSmall`] if `out` is too short; call again with a larger buffer.
    #[inline]
    pub fn write_next(&mut self, out: &mut [u8]) -> Result<Option<Segment>, BufferTooSmall> {
        let Some(next) = self.next_span() else { return Ok(None) };
        let header_len = self.shape.header_len;
        let needed = header_len + next.payload;
        let Some((header, rest)) = out.split_at_mut_checked(header_len) else {
            return Err(BufferTooSmall { needed });
        };
        let Some(payload) = rest.get_mut(..next.payload) else {
            return Err(BufferTooSmall { needed });
        };
        let sum = self.payload.copy_summed(payload);
        Ok(Some(self.finish(next, sum, header)))
    }

    /// Writes the headers of the next packet to `header` and passes its payload slices to `payload` in order, without
    /// copying them. Returns `None` after the last packet.
    ///
    /// # Errors
    /// Returns [`BufferTooSmall`] if `header` is too short; call again with a larger buffer.
    #[inline]
    pub fn scatter_next(
        &mut self,
        header: &mut [u8],
        mut payload: impl FnMut(&'a [u8]),
    ) -> Result<Option<Segment>, BufferTooSmall> {
        let Some(next) = self.next_span() else { return Ok(None) };
        let needed = self.shape.header_len;
        let Some(header) = header.get_mut(..needed) else { return Err(BufferTooSmall { needed }) };
        let wants_sum = self.sums_payload;
        let mut sum = Sum::ZERO;
        let mut len = 0;
        self.payload.take(next.payload, |slice| {
            if wants_sum {
                sum = sum.append(len, Sum::of(slice));
                len += slice.len();
            }
            payload(slice);
        });
        Ok(Some(self.finish(next, sum, header)))
    }

    /// Returns the number of remaining packets.
    #[must_use]
    pub fn remaining(&self) -> u32 {
        self.count - self.index
    }

    /// Returns the length in bytes of the longest packet. A buffer of this size suffices.
    #[must_use]
    pub fn packet_len_max(&self) -> usize {
        let payload = match self.gso.size {
            GsoSize::Every(size) if !self.repeats_headers => size.get() as usize,
            _ => self.payload_len,
        };
        self.shape.header_len + payload.min(self.payload_len)
    }

    /// Returns the payload range of the next packet.
    #[inline]
    fn next_span(&self) -> Option<SegmentSpan> {
        let left = self.payload_len - self.before;
        if left == 0 {
            return None;
        }
        let (payload, unit) = match self.gso.size {
            GsoSize::Every(size) => {
                let size = size.get() as usize;
                let whole = left / size * size;
                if self.repeats_headers && whole > size {
                    (whole, size)
                } else {
                    (size.min(left), size.min(left))
                }
            }
            GsoSize::Parts | GsoSize::Fragments(_) | GsoSize::Unknown => {
                let part = self.payload.slice_len().min(left);
                (part, part)
            }
        };
        Some(SegmentSpan { payload, unit, last: payload == left })
    }

    /// Writes the headers of the packet whose payload was just consumed.
    ///
    /// Always inlined, so that computing the metadata costs nothing if the caller does not use it.
    #[inline(always)]
    fn finish(&mut self, span: SegmentSpan, sum: Sum, header: &mut [u8]) -> Segment {
        let repeats = span.unit < span.payload;
        let portion = Portion {
            index: self.index,
            before: self.before as u32,
            payload: span.unit,
            last: span.last,
        };
        match &self.incremental {
            Some(incremental) if incremental.includes(portion) && !repeats => {
                incremental.render(&self.shape, self.gso.fixed_ids, portion, sum, header);
            }
            _ => self.render(portion, repeats, sum, header),
        }
        let packets = if repeats { (span.payload / span.unit.max(1)) as u32 } else { 1 };
        self.index += packets;
        self.before += span.payload;
        let meta = self.segment_meta(repeats, packets);
        Segment { header_len: header.len(), payload_len: span.payload, meta }
    }

    /// Writes all headers of a packet anywhere in the superframe. If possible, also stores incremental headers, from
    /// which the headers of the next packets are derived.
    fn render(&mut self, portion: Portion, repeats: bool, sum: Sum, header: &mut [u8]) {
        let template = Template {
            shape: &self.shape,
            header: &self.header[..header.len()],
            fixed_ids: self.gso.fixed_ids,
            cwr: self.gso.cwr,
            checksum_wanted: matches!(self.meta.checksum, Checksum::Partial { .. }),
        };
        let checksums = if repeats {
            Checksums::PseudoHeader
        } else if self.leaves_partial {
            Checksums::Partial
        } else {
            Checksums::Complete(sum)
        };
        header.copy_from_slice(template.header);
        template.render(portion, checksums, header);
        // Deriving incremental headers pays off only if at least two more packets follow, because the last packet does
        // not use them.
        if !repeats && !portion.last && self.count - self.index > 2 {
            self.incremental = IncrementalHeader::learn(&template, portion, checksums, header);
        }
    }

    #[inline]
    fn segment_meta(&self, repeats: bool, packets: u32) -> Meta {
        let transport = self.shape.covers.last().map_or((0, 0), |cover| (cover.start, cover.at));
        let checksum = if self.leaves_partial || repeats {
            Checksum::Partial { start: transport.0, offset: transport.1 - transport.0 }
        } else {
            Checksum::None
        };
        // A segment count that does not fit into the field is written as 0 (rule S3).
        let segments = u16::try_from(packets).unwrap_or(0);
        let gso = repeats.then_some(Gso { segments, ..self.gso });
        Meta { checksum, gso, ..self.meta }
    }
}

/// Payload range of one packet.
#[derive(Clone, Copy)]
struct SegmentSpan {
    /// Payload length in bytes.
    payload: usize,
    /// Payload length in bytes according to the headers. It is smaller than `payload` if a device repeats the headers.
    unit: usize,
    last: bool,
}

/// Returns the transport header. The first slice may end with the headers, so the length fields may exceed this slice.
fn transport(stack: &Stack) -> Result<Layer, NoSegments> {
    match (stack.stop, stack.last()) {
        (Stop::Payload, Some(layer)) if layer.kind.is_transport() => Ok(layer),
        (Stop::Fragment, _) => Err(NoSegments::Fragments),
        (Stop::Truncated, _) => Err(NoSegments::HeadersSplit),
        _ => Err(NoSegments::Headers),
    }
}

fn check_stack(stack: &Stack, head: &[u8]) -> Result<(), NoSegments> {
    let mut ip_levels = 0;
    for layer in stack.layers() {
        match layer.kind {
            Kind::Ipv4 | Kind::Ipv6 => ip_levels += 1,
            Kind::Ipv6Fragment => return Err(NoSegments::Fragments),
            Kind::Gre => {
                let flags = u16_at(head, layer.offset as usize + gre::field::FLAGS.start);
                if flags & gre::FLAG_SEQUENCE != 0 {
                    return Err(NoSegments::GreSequence);
                }
            }
            _ => {}
        }
    }
    if ip_levels > IP_LEVELS_MAX { Err(NoSegments::TooManyIpHeaders) } else { Ok(()) }
}

/// Returns whether a device can complete the innermost checksum. It can if the checksum is present and not left to the
/// receiver.
fn can_be_completed(shape: &Shape, header: &[u8], meta: &Meta) -> bool {
    let is_partial = matches!(meta.checksum, Checksum::Partial { .. });
    let is_there = shape.covers.last().is_some_and(|transport| {
        is_partial || !transport.zero_means_none || u16_at(header, transport.at as usize) != 0
    });
    is_there && shape.remote_checksum.is_none()
}

/// Returns the number of packets, and the length of the longest payload in bytes.
fn packets(
    gso: &Gso,
    slices: &[&[u8]],
    header_len: usize,
    payload_len: usize,
) -> Result<(u32, usize), NoSegments> {
    let (count, longest) = match gso.size {
        GsoSize::Every(size) => {
            let size = size.get() as usize;
            (payload_len.div_ceil(size), size)
        }
        GsoSize::Parts => {
            let in_first = slices.first().map_or(0, |slice| slice.len().saturating_sub(header_len));
            let others = slices.iter().skip(1).map(|slice| slice.len());
            let parts = core::iter::once(in_first).chain(others).filter(|&len| len > 0);
            (parts.clone().count(), parts.max().unwrap_or_default())
        }
        GsoSize::Fragments(_) => return Err(NoSegments::Fragments),
        GsoSize::Unknown => return Err(NoSegments::NotSuperframe),
    };
    if count < 2 { Err(NoSegments::Whole) } else { Ok((count as u32, longest)) }
}

/// Maximum number of IP headers in a superframe (rule S4).
pub const IP_LEVELS_MAX: usize = 5;

pub use crate::template::HEADER_BYTES_MAX;

/// Returns whether the innermost checksum stays a pseudo-header sum on the wire, because a tunnel header asks the
/// receiver to complete it (rules C50, C51).
pub(crate) fn remote_checksum(stack: &Stack, header: &[u8]) -> bool {
    stack
        .layers()
        .iter()
        .any(|layer| crate::remote_checksum::remote_checksum(layer, header).is_some())
}

#[cfg(test)]
mod tests;
