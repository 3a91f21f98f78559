//! Benchmark steps that segment the superframes of a workload.

use core::hint::black_box;

use grosso::{
    Meta,
    checksum::Checksum,
    meta::{Cwr, Gso, IpLevels},
    segment::{Outgoing, Segments},
};
use grosso_testkit::workloads::Workload;
use grosso_wire::{LinkType, Ports};

use crate::step::Step;

/// A step that repeatedly segments superframes into complete packets: it copies the payload and computes checksums.
#[derive(Debug)]
pub struct Sender<'a> {
    superframes: Superframes<'a>,
    packet: Vec<u8>,
}

impl<'a> Sender<'a> {
    /// Creates a sender at the first superframe of the workload.
    ///
    /// # Panics
    /// Panics if the workload has no superframes.
    #[must_use]
    pub fn new(workload: &'a Workload) -> Self {
        Self { superframes: Superframes::new(workload), packet: vec![0; 1 << 16] }
    }

    /// Segments every superframe of the workload once.
    pub fn trace(&mut self) -> usize {
        (0..self.superframes.frames.len()).map(|_| self.step()).sum()
    }

    /// Returns the packets of every superframe of the workload.
    #[must_use]
    pub fn packets(&self) -> Vec<Vec<u8>> {
        let mut packet = vec![0; 1 << 16];
        self.superframes.cut_all(|segments, packets| {
            while let Ok(Some(segment)) = segments.write_next(&mut packet) {
                packets.push(packet[..segment.len()].to_vec());
            }
        })
    }
}

impl Step for Sender<'_> {
    fn upcoming(&self) -> impl Iterator<Item = &[u8]> {
        core::iter::once(self.superframes.upcoming())
    }

    /// Segments one superframe. Returns the number of packets written.
    #[inline]
    fn step(&mut self) -> usize {
        let packet = &mut self.packet;
        self.superframes.cut(|segments| {
            let mut packets = 0;
            while let Ok(Some(_)) = segments.write_next(black_box(packet)) {
                packets += 1;
            }
            packets
        })
    }
}

/// A step that segments superframes repeatedly: it writes headers and computes checksums, but leaves the payload in
/// place.
#[derive(Debug)]
pub struct Scatterer<'a> {
    superframes: Superframes<'a>,
    headers: Vec<u8>,
    payload_bytes: u64,
}

impl<'a> Scatterer<'a> {
    /// Creates a scatterer at the first superframe of the workload.
    ///
    /// # Panics
    /// Panics if the workload has no superframes.
    #[must_use]
    pub fn new(workload: &'a Workload) -> Self {
        let headers = vec![0; SEGMENTS_MAX * HEADER_BYTES];
        Self { superframes: Superframes::new(workload), headers, payload_bytes: 0 }
    }

    /// Segments every superframe of the workload once.
    pub fn trace(&mut self) -> usize {
        (0..self.superframes.frames.len()).map(|_| self.step()).sum()
    }

    /// Returns the packets of every superframe of the workload, assembled.
    #[must_use]
    pub fn packets(&self) -> Vec<Vec<u8>> {
        let mut header = vec![0; HEADER_BYTES];
        self.superframes.cut_all(|segments, packets| {
            let mut payload = Vec::new();
            while let Ok(Some(segment)) = segments.scatter_next(&mut header, |slice| {
                payload.extend_from_slice(slice);
            }) {
                packets.push([&header[..segment.header_len], &payload].concat());
                payload.clear();
            }
        })
    }
}

impl Step for Scatterer<'_> {
    fn upcoming(&self) -> impl Iterator<Item = &[u8]> {
        core::iter::once(self.superframes.upcoming())
    }

    /// Segments one superframe, and writes a separate header for each packet. Returns the number of packets.
    #[inline]
    fn step(&mut self) -> usize {
        let (headers, payload_bytes) = (&mut self.headers, &mut self.payload_bytes);
        self.superframes.cut(|segments| {
            let mut packets = 0;
            for header in headers.chunks_mut(HEADER_BYTES) {
                let segment = segments
                    .scatter_next(black_box(header), |slice| *payload_bytes += slice.len() as u64);
                if !matches!(segment, Ok(Some(_))) {
                    break;
                }
                packets += 1;
            }
            packets
        })
    }
}

/// The superframes of a workload, repeated, with the metadata that describes them.
#[derive(Debug)]
pub(crate) struct Superframes<'a> {
    pub(crate) frames: &'a [Vec<u8>],
    pub(crate) meta: Meta,
    next: usize,
}

impl<'a> Superframes<'a> {
    pub(crate) fn new(workload: &'a Workload) -> Self {
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
        Self { frames: &workload.frames, meta, next: 0 }
    }

    pub(crate) fn upcoming(&self) -> &'a [u8] {
        &self.frames[self.next]
    }

    /// Returns the next superframe, and advances to the one after it.
    #[inline]
    pub(crate) fn take(&mut self) -> &'a [u8] {
        let superframe = self.upcoming();
        self.next = (self.next + 1) % self.frames.len();
        superframe
    }

    /// Calls `cut` with the next superframe.
    #[inline]
    fn cut(&mut self, cut: impl FnOnce(&mut Segments<'_>) -> usize) -> usize {
        let slices = [self.take()];
        cut(&mut self.plan(&slices))
    }

    /// Calls `cut` with each superframe, and assembles the resulting packets.
    fn cut_all(&self, mut cut: impl FnMut(&mut Segments<'_>, &mut Vec<Vec<u8>>)) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        for frame in self.frames {
            cut(&mut self.plan(&[frame.as_slice()]), &mut packets);
        }
        packets
    }

    #[inline]
    fn plan<'s>(&self, slices: &'s [&'s [u8]]) -> Segments<'s> {
        let (link, ports) = (LinkType::Ethernet, Ports::ASSIGNED);
        Segments::new(slices, &self.meta, link, &ports, Outgoing::default())
            .expect("a superframe that can be cut")
    }
}

/// Upper bound on the number of segments of a superframe.
const SEGMENTS_MAX: usize = 64;
/// Upper bound on the length of the headers of a workload, in bytes.
const HEADER_BYTES: usize = 192;
