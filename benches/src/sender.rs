//! Cutting the superframes of a workload.

use grosso::{
    Meta,
    checksum::Checksum,
    meta::{Cwr, Gso, IpLevels},
    segment::{Outgoing, Segments},
};
use grosso_testkit::workloads::Workload;
use grosso_wire::{LinkType, Ports};

use crate::bench::Step;

/// Cuts superframes into complete packets, over and over: payload copied, checksums computed.
#[derive(Debug)]
pub struct Sender<'a> {
    frames: &'a [Vec<u8>],
    meta: Meta,
    packet: Vec<u8>,
    next: usize,
}

impl<'a> Sender<'a> {
    /// A sender at the first superframe of the workload.
    ///
    /// # Panics
    /// When the workload has no superframes.
    #[must_use]
    pub fn new(workload: &'a Workload) -> Self {
        let declared = workload.gso.expect("a workload of superframes");
        let gso = Gso::every(declared.description.gso_size as u16).map(|gso| Gso {
            segments: declared.segments as u16,
            fixed_ids: IpLevels::from_bits(declared.description.fixed_ids as u8),
            cwr: if declared.description.cwr_on_all { Cwr::Every } else { Cwr::First },
            ..gso
        });
        let checksum = Checksum::Partial {
            start: declared.checksum_start as u16,
            offset: declared.checksum_offset as u16,
        };
        let meta = Meta { checksum, gso, ..Meta::default() };
        Self { frames: &workload.frames, meta, packet: vec![0; 1 << 16], next: 0 }
    }

    /// Cuts every superframe of the workload once.
    pub fn trace(&mut self) -> usize {
        (0..self.frames.len()).map(|_| self.step()).sum()
    }
}

impl Step for Sender<'_> {
    fn upcoming(&self) -> impl Iterator<Item = &[u8]> {
        core::iter::once(self.frames[self.next].as_slice())
    }

    /// One superframe. Gives the packets written.
    #[inline]
    fn step(&mut self) -> usize {
        let slices = [self.frames[self.next].as_slice()];
        let (link, ports) = (LinkType::Ethernet, Ports::ASSIGNED);
        let mut segments = Segments::new(&slices, &self.meta, link, &ports, Outgoing::default())
            .expect("a superframe that can be cut");
        let mut packets = 0;
        while let Ok(Some(_)) = segments.write_next(core::hint::black_box(&mut self.packet)) {
            packets += 1;
        }
        self.next = (self.next + 1) % self.frames.len();
        packets
    }
}
