//! Does the work that a NIC would do before transmission: segments superframes, and completes partial checksums. Relies
//! on the kernel's metadata for each frame and never guesses.

use grosso::meta::{Gso, GsoSize};
use grosso_analysis::convert::{CutFrame, Cutter, How, Uncut};
use grosso_capture::PacketMeta;
use grosso_wire::{LinkType, Ports, Stack, dissect_into};

use crate::{
    checksums::{Levels, complete},
    error::Failure,
    evidence::around,
    headers::Transport,
    line::Timing,
    meta,
    report::Counts,
};

/// Converter from captured frames to the packets that a NIC would send.
pub(super) struct Unloader {
    /// UDP ports of tunnels.
    ports: Ports,
    stack: Stack,
    cutter: Cutter,
    packet: Vec<u8>,
    levels: Levels,
    /// Packets whose checksum was completed, excluding packets segmented from superframes.
    completed: u64,
    /// Frames left unchanged, by reason.
    left: Counts,
}

/// Counts of processed superframes and packets.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub(super) struct Unloaded {
    pub(super) superframes: u64,
    /// Packets into which superframes were split.
    pub(super) segments: u64,
    pub(super) checksums_completed: u64,
    /// Frames left unchanged, by reason.
    pub(super) left: Counts,
}

impl Unloader {
    pub(super) fn new(ports: Ports) -> Self {
        Self {
            ports,
            stack: Stack::new(0),
            cutter: Cutter::default(),
            packet: Vec::new(),
            levels: Levels::default(),
            completed: 0,
            left: Counts::new(),
        }
    }

    /// Outputs the wire packets that a frame stands for.
    pub(super) fn each(
        &mut self,
        said: PacketMeta,
        data: &[u8],
        link: LinkType,
        mut show: impl FnMut(PacketMeta, &[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let gso = said.gso();
        if gso.is_none() && !said.is_partial() {
            return show(said, data);
        }
        let ports = meta::ports(&said, self.ports);
        dissect_into(data, link, &ports, &mut self.stack);
        let is_cut = said.original_len as usize > data.len();
        if let (Some(gso), Some(offload)) = (gso, &said.offload) {
            let left = match gso.size {
                GsoSize::Unknown => Some("no_size"),
                _ => {
                    let gso = Gso { partial_members: false, ..gso };
                    let transport = Transport::of(&self.stack, data.len());
                    let around =
                        transport.and_then(|transport| around(&self.stack, offload, &transport));
                    let ports = if around.is_some() { Ports::NONE } else { ports };
                    let how = How { gso, link, ports };
                    let frame = CutFrame { data, is_short: is_cut };
                    let segment = |written: &PacketMeta, bytes: &[u8], _: Timing| {
                        show(
                            PacketMeta { original_len: bytes.len() as u32, ..written.clone() },
                            bytes,
                        )
                    };
                    match self.cutter.each_of(frame, &said, how, segment)? {
                        Ok(()) => return Ok(()),
                        Err(Uncut::Whole) => None,
                        Err(uncut) => Some(uncut.name()),
                    }
                }
            };
            if let Some(reason) = left {
                *self.left.entry(reason).or_default() += 1;
                return show(said, data);
            }
        }
        if is_cut {
            *self.left.entry("captured_short").or_default() += 1;
            return show(said, data);
        }
        self.packet.clear();
        self.packet.extend_from_slice(data);
        let claim = meta::claim(&said, &self.stack);
        let fixed = complete(&mut self.packet, false, &self.stack, claim, &mut self.levels);
        self.completed += u64::from(fixed > 0);
        let written =
            PacketMeta { original_len: said.original_len, ..meta::of_segment(&said, false) };
        show(written, &self.packet)
    }

    /// Returns the counts.
    pub(super) fn counts(self) -> Unloaded {
        let Self { cutter, completed, left, .. } = self;
        Unloaded {
            superframes: cutter.cut,
            segments: cutter.segments,
            checksums_completed: completed,
            left,
        }
    }
}
