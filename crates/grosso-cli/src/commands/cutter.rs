//! Cutting one superframe and writing what comes of it.

use grosso::{
    Meta,
    meta::Gso,
    segment::{NoCut, Outgoing, Segments},
};
use grosso_io::capture::{self, Packet, PacketMeta};
use grosso_wire::{LinkType, Ports, dissect};

use crate::{arguments::Spacing, error::Failure, meta, output::Output};

/// Cuts superframes, in buffers that it keeps.
#[derive(Debug, Default)]
pub(crate) struct Cutter {
    segment: Vec<u8>,
    /// Superframes cut.
    pub(crate) cut: u64,
    /// Packets that they gave.
    pub(crate) segments: u64,
}

/// How a superframe is cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    pub(crate) gso: Gso,
    pub(crate) link: LinkType,
    /// The tunnels outside of the header behind which it is cut.
    pub(crate) ports: Ports,
    /// The times of its packets, where the capture did not record them.
    pub(crate) spacing: Option<Spacing>,
}

/// Why a superframe stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uncut {
    /// It is no superframe: its payload fits into one packet.
    Whole,
    /// The capture cut it, so its last packets are not all there.
    Snaplen,
    /// The parts that it says do not add up to what is there.
    Parts,
    /// The engine refuses.
    Refused(NoCut),
}

impl Uncut {
    /// The name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Whole => "fits-one-packet",
            Self::Snaplen => "captured-short",
            Self::Parts => "parts-do-not-add-up",
            Self::Refused(refusal) => match refusal {
                NoCut::NotSuperframe => "no-size",
                NoCut::Whole => "fits-one-packet",
                NoCut::HeadersSplit | NoCut::Headers => "headers",
                NoCut::HeaderTooLong => "header-too-long",
                NoCut::TooManyIpHeaders => "too-many-ip-headers",
                NoCut::ChecksumStart => "checksum-start",
                NoCut::GreSequence => "gre-sequence",
                NoCut::Fragments => "ip-fragments",
                _ => "other",
            },
        }
    }
}

impl Cutter {
    /// Cuts `packet` and writes the packets. Nothing is written when it stays whole.
    ///
    /// The packets have the times that the capture recorded for them; else the time of the
    /// superframe, or those of `spacing` from there on.
    pub(crate) fn cut(
        &mut self,
        packet: &Packet<'_>,
        said: &PacketMeta,
        how: How,
        output: &mut Output,
    ) -> Result<Result<(), Uncut>, Failure> {
        let How { gso, link, ports, spacing } = how;
        if packet.is_cut() {
            return Ok(Err(Uncut::Snaplen));
        }
        let stack = dissect(packet.data, link, &ports);
        let Some(slices) = slices(packet.data, stack.header_len(), said) else {
            return Ok(Err(Uncut::Parts));
        };
        let state = said.offload.as_ref().map(|offload| offload.checksum).unwrap_or_default();
        let meta = Meta { checksum: state.to_engine(&stack), gso: Some(gso), ..Meta::default() };
        let planned = Segments::new(slices.as_slice(), &meta, link, &ports, Outgoing::default());
        let mut segments = match planned {
            Ok(segments) => segments,
            Err(NoCut::Whole) => return Ok(Err(Uncut::Whole)),
            Err(refusal) => return Ok(Err(Uncut::Refused(refusal))),
        };
        self.cut += 1;
        let mut written = meta::of_segment(said, gso.partial_members);
        let mut clock = Clock::new(said, spacing, segments.remaining());
        self.segment.resize(segments.packet_len_max(), 0);
        while let Some(segment) = segments
            .write_next(&mut self.segment)
            .map_err(|error| Failure::internal(format!("a segment outgrew its bound: {error}")))?
        {
            let bytes = &self.segment[..segment.len()];
            written.timestamp_ns = clock.tick(bytes.len());
            output.write(&written, bytes)?;
            self.segments += 1;
        }
        Ok(Ok(()))
    }
}

/// The pieces of a superframe whose packets are of unequal size: the first with the headers.
/// `None` when they are not what is there.
fn slices<'a>(data: &'a [u8], header_len: usize, said: &PacketMeta) -> Option<Pieces<'a>> {
    let gso = said.offload.as_ref().and_then(|offload| offload.gso.as_ref());
    let Some(capture::Segmentation { cut: capture::Cut::Parts(lengths), .. }) = gso else {
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

/// Slices without an allocation in the usual case.
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

/// The times of the packets of one superframe.
struct Clock<'a> {
    now_ns: Option<u64>,
    /// Recorded steps that are still to come.
    arrivals_ns: core::slice::Iter<'a, u32>,
    bits_per_second: Option<u64>,
    /// What the packet before takes on the line.
    last_ns: u64,
    is_first: bool,
}

impl<'a> Clock<'a> {
    fn new(said: &'a PacketMeta, spacing: Option<Spacing>, packets: u32) -> Self {
        let recorded: &[u32] = said.offload.as_ref().map_or(&[], |offload| &offload.arrivals_ns);
        // A list of another length is about other packets.
        let is_complete = recorded.len() + 1 == packets as usize;
        let arrivals_ns = if is_complete { recorded } else { &[] }.iter();
        let bits_per_second = match spacing {
            Some(Spacing::Line(bits)) if !is_complete => Some(bits),
            _ => None,
        };
        let now_ns = said.timestamp_ns;
        Self { now_ns, arrivals_ns, bits_per_second, last_ns: 0, is_first: true }
    }

    /// The time of the next packet, which has `len` bytes.
    fn tick(&mut self, len: usize) -> Option<u64> {
        let step = if core::mem::take(&mut self.is_first) {
            0
        } else if self.bits_per_second.is_some() {
            self.last_ns
        } else {
            self.arrivals_ns.next().map_or(0, |&step| u64::from(step))
        };
        if let Some(bits_per_second) = self.bits_per_second {
            let bits = (len.max(FRAME_BYTES_MIN) + GAP_BYTES) as u128 * 8;
            let nanoseconds = bits * 1_000_000_000 / u128::from(bits_per_second.max(1));
            self.last_ns = u64::try_from(nanoseconds).unwrap_or(u64::MAX);
        }
        self.now_ns = self.now_ns.map(|now| now.saturating_add(step));
        self.now_ns
    }
}

/// Preamble, check sequence and gap between two frames of Ethernet (IEEE 802.3 section 4.4.2).
const GAP_BYTES: usize = 8 + 4 + 12;
/// The shortest frame without its check sequence.
const FRAME_BYTES_MIN: usize = 60;
