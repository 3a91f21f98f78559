//! Converts each captured frame to rows, one for each wire packet in it.

use grosso::meta::Gso;
use grosso_capture::PacketMeta;
use grosso_wire::{Ports, Stack, dissect_into};

use super::{
    FileNames, Headers, StackNames,
    packets::{FrameFinding, Packet, row},
    packets_of,
};
use crate::{
    convert::{Cutter, How, Uncut},
    error::Failure,
    evidence::{Evidence, Nature, Size},
    replay::Seen,
    shard::Shard,
};

/// Converter from frames to rows for wire packets.
pub(crate) struct WireRows {
    files: FileNames,
    shard: Shard,
    stack_names: StackNames,
    stack: Stack,
    cutter: Cutter,
    /// Headers of one packet in a superframe.
    inner: Stack,
}

/// Segment size of a superframe, and the tunnel ports needed to parse it.
struct Segmentation {
    gso: Gso,
    size: Size,
    ports: Ports,
}

impl WireRows {
    /// Creates a converter for the flows in `shard`.
    pub(crate) fn new(files: FileNames, shard: Shard) -> Self {
        Self {
            files,
            shard,
            stack_names: StackNames::default(),
            stack: Stack::new(0),
            cutter: Cutter::default(),
            inner: Stack::new(0),
        }
    }

    /// Calls `take` for each packet in a frame, or for the frame itself if it is not split. `tracked` contains the
    /// findings of the flow tracker.
    ///
    /// # Errors
    /// Fails if a segment is longer than allowed, which would be a bug.
    pub(crate) fn each(
        &mut self,
        seen: &Seen<'_>,
        tracked: FrameFinding,
        take: &mut dyn FnMut(Packet<'_>),
    ) -> Result<(), Failure> {
        let (Some(link), Some(judgment)) = (seen.link, seen.judgment) else {
            if Headers::default().are_in(self.shard) {
                take(row(seen.packet, Headers::default(), FrameFinding::default(), &self.files));
            }
            return Ok(());
        };
        let packet = seen.packet;
        dissect_into(packet.data, link, &seen.ports, &mut self.stack);
        let len = packet.original_len as usize;
        if !self.stack_names.headers(packet.data, len, &self.stack).are_in(self.shard) {
            return Ok(());
        }
        let said = packet.meta();
        let mut finding = FrameFinding {
            evidence: judgment.by.map(Evidence::code),
            is_guess: judgment.is_guess,
            ..tracked
        };
        match judgment.nature {
            Nature::Packet => {}
            Nature::Left(reason) => finding.left = Some(reason),
            Nature::Superframe { gso, size, ports } => {
                match self.cut(seen, &said, &Segmentation { gso, size, ports }, finding, take)? {
                    Ok(()) => return Ok(()),
                    Err(Uncut::Whole) => {}
                    Err(uncut) => finding.left = Some(uncut.name()),
                }
            }
        }
        let headers = self.stack_names.headers(packet.data, len, &self.stack);
        take(row(seen.packet, headers, finding, &self.files));
        Ok(())
    }

    /// Calls `take` for each packet in a superframe, or returns the reason why the superframe is not split.
    fn cut(
        &mut self,
        seen: &Seen<'_>,
        said: &PacketMeta,
        cut: &Segmentation,
        finding: FrameFinding,
        take: &mut dyn FnMut(Packet<'_>),
    ) -> Result<Result<(), Uncut>, Failure> {
        let Self { files, stack_names, inner, cutter, .. } = self;
        let Some(link) = seen.link else { return Ok(Err(Uncut::Whole)) };
        let gso = Gso { partial_members: false, ..cut.gso };
        let (packets, _) = packets_of(seen);
        let mut segment = 0;
        let how = How { gso, link, ports: cut.ports };
        cutter.each(seen.packet, said, how, |meta, bytes, _| {
            segment += 1;
            dissect_into(bytes, link, &seen.ports, inner);
            let headers = stack_names.headers(bytes, bytes.len(), inner);
            let finding = FrameFinding { segment: Some(segment), ..finding };
            take(Packet {
                time_ns: meta.timestamp_ns,
                length: bytes.len() as u32,
                data: bytes,
                segment_size: Some(cut.size.bytes),
                packets: Some(packets),
                ..row(seen.packet, headers, finding, files)
            });
            Ok(())
        })
    }
}
