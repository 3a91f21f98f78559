//! Segments a superframe and writes its packets.

use grosso::{
    Meta,
    meta::{Gso, GsoSize},
    segment::{NoSegments, Outgoing, Segments},
};
use grosso_capture::{Offload, Packet, PacketMeta};
use grosso_wire::{LinkType, Ports, dissect};

use crate::{capture::Output, error::Failure, line::Timing, meta};

/// Segmenter with reused buffers.
#[derive(Debug, Default)]
pub struct Cutter {
    segment: Vec<u8>,
    /// Number of superframes segmented.
    pub cut: u64,
    /// Number of packets produced by segmentation.
    pub segments: u64,
}

/// Parameters for segmenting a superframe.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Segment size and protocol.
    pub gso: Gso,
    /// Link type used to parse the frame.
    pub link: LinkType,
    /// UDP ports of the tunnels whose headers are repeated in every segment.
    pub ports: Ports,
}

/// Bytes of a superframe.
#[derive(Clone, Copy, Debug)]
pub struct CutFrame<'a> {
    /// The captured bytes.
    pub data: &'a [u8],
    /// Whether part of the superframe was not captured.
    pub is_short: bool,
}

/// Reason why a frame is not segmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uncut {
    /// The frame is not a superframe, because its payload fits into one packet.
    Whole,
    /// The superframe is truncated in the capture, so its last packets are incomplete.
    Snaplen,
    /// The recorded parts do not add up to the length of the superframe.
    Parts,
    /// The engine refused to segment the frame.
    Refused(NoSegments),
}

impl Uncut {
    /// Returns the reason's name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Whole => "fits_one_packet",
            Self::Snaplen => "captured_short",
            Self::Parts => "parts_do_not_add_up",
            Self::Refused(refusal) => match refusal {
                NoSegments::NotSuperframe => "no_size",
                NoSegments::Whole => "fits_one_packet",
                NoSegments::HeadersSplit | NoSegments::Headers => "headers",
                NoSegments::HeaderTooLong => "header_too_long",
                NoSegments::TooManyIpHeaders => "too_many_ip_headers",
                NoSegments::ChecksumStart => "checksum_start",
                NoSegments::GreSequence => "gre_sequence",
                NoSegments::Fragments => "ip_fragments",
                _ => "other",
            },
        }
    }
}

impl Cutter {
    /// Segments `packet` and writes the resulting packets. Writes nothing if `packet` cannot be segmented.
    ///
    /// Each packet gets its recorded timestamp if the capture has one. Otherwise, it gets the superframe's timestamp or
    /// the time at which the output's simulated link becomes free. The first packet also gets the superframe's
    /// comments.
    pub(crate) fn cut(
        &mut self,
        packet: &Packet<'_>,
        said: &PacketMeta,
        how: How,
        output: &mut Output,
    ) -> Result<Result<(), Uncut>, Failure> {
        let mut from = Some(packet);
        self.each(packet, said, how, |meta, bytes, timing| {
            output.write_part(meta, bytes, timing, from.take())
        })
    }

    /// Segments `packet` and calls `show` for each resulting packet. Does not call `show` if `packet` cannot be
    /// segmented.
    pub fn each(
        &mut self,
        packet: &Packet<'_>,
        said: &PacketMeta,
        how: How,
        show: impl FnMut(&PacketMeta, &[u8], Timing) -> Result<(), Failure>,
    ) -> Result<Result<(), Uncut>, Failure> {
        let frame = CutFrame { data: packet.data, is_short: packet.is_cut() };
        self.each_of(frame, said, how, show)
    }

    /// Segments a frame that does not come from a file, and calls `show` for each resulting packet.
    pub fn each_of(
        &mut self,
        frame: CutFrame<'_>,
        said: &PacketMeta,
        how: How,
        mut show: impl FnMut(&PacketMeta, &[u8], Timing) -> Result<(), Failure>,
    ) -> Result<Result<(), Uncut>, Failure> {
        let How { gso, link, ports } = how;
        if frame.is_short {
            return Ok(Err(Uncut::Snaplen));
        }
        let stack = dissect(frame.data, link, &ports);
        let Some(slices) = slices(frame.data, stack.header_len(), said) else {
            return Ok(Err(Uncut::Parts));
        };
        let checksum = said.known(&stack).checksum;
        let meta = Meta { checksum, gso: Some(gso), ..Meta::default() };
        let planned = Segments::new(slices.as_slice(), &meta, link, &ports, Outgoing::default());
        let mut segments = match planned {
            Ok(segments) => segments,
            Err(NoSegments::Whole) => return Ok(Err(Uncut::Whole)),
            Err(refusal) => return Ok(Err(Uncut::Refused(refusal))),
        };
        self.cut += 1;
        let mut written = meta::of_segment(said, gso.partial_members);
        let mut clock = Clock::new(said, segments.remaining());
        self.segment.resize(segments.packet_len_max(), 0);
        while let Some(segment) = segments.write_next(&mut self.segment).map_err(|error| {
            Failure::internal(format!("a segment exceeded its size limit: {error}"))
        })? {
            let bytes = &self.segment[..segment.len()];
            let timing;
            (written.timestamp_ns, timing) = clock.tick();
            show(&written, bytes, timing)?;
            self.segments += 1;
        }
        Ok(Ok(()))
    }
}

/// Returns the parts of a superframe whose packets differ in size, or `None` if the parts do not add up to the data.
/// The first part includes the headers.
fn slices<'a>(data: &'a [u8], header_len: usize, said: &PacketMeta) -> Option<Pieces<'a>> {
    let recorded = said.offload.as_ref();
    let in_parts =
        |offload: &&Offload| offload.meta.gso.is_some_and(|gso| gso.size == GsoSize::Parts);
    let Some(Offload { parts: lengths, .. }) = recorded.filter(in_parts) else {
        return Some(Pieces::One([data]));
    };
    let mut pieces = Vec::with_capacity(lengths.len());
    let mut start = 0;
    let mut end = header_len;
    for &length in lengths {
        end = end.checked_add(length as usize)?;
        pieces.push(data.get(start..end)?);
        start = end;
    }
    (end == data.len()).then_some(Pieces::Many(pieces))
}

/// Slices of a frame. A single slice, the common case, needs no allocation.
enum Pieces<'a> {
    One([&'a [u8]; 1]),
    Many(Vec<&'a [u8]>),
}

impl<'a> Pieces<'a> {
    fn as_slice(&self) -> &[&'a [u8]] {
        match self {
            Self::One(one) => one,
            Self::Many(many) => many,
        }
    }
}

/// Timestamps of the packets in one superframe.
struct Clock<'a> {
    now_ns: Option<u64>,
    /// Recorded time steps, starting with a zero for the first packet; `None` if none were recorded for these packets.
    steps_ns: Option<core::iter::Chain<core::iter::Once<&'a u32>, core::slice::Iter<'a, u32>>>,
}

impl<'a> Clock<'a> {
    fn new(said: &'a PacketMeta, packets: u32) -> Self {
        let recorded: &[u32] = said.offload.as_ref().map_or(&[], |offload| &offload.arrivals_ns);
        // A list with a different length does not describe these packets.
        let is_complete = recorded.len() + 1 == packets as usize;
        let steps_ns = is_complete.then(|| core::iter::once(&0).chain(recorded));
        Self { now_ns: said.timestamp_ns, steps_ns }
    }

    /// Returns the timestamp of the next packet, and how it was chosen.
    fn tick(&mut self) -> (Option<u64>, Timing) {
        let Some(steps_ns) = &mut self.steps_ns else { return (self.now_ns, Timing::Superframe) };
        let step_ns = u64::from(steps_ns.next().copied().unwrap_or(0));
        self.now_ns = self.now_ns.map(|now_ns| now_ns.saturating_add(step_ns));
        (self.now_ns, Timing::Recorded)
    }
}
