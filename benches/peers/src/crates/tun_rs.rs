//! Peers that use tun-rs, which is a Rust port of wireguard-go's coalescing and segmentation. Packets start with an IP
//! header.

use grosso_benches::touch;
use grosso_testkit::{
    oracle::{Lengths, Link, parse},
    workloads::{POLL, Workload},
};
use tun_rs::{
    GROTable, VIRTIO_NET_HDR_GSO_TCPV4, VIRTIO_NET_HDR_GSO_UDP_L4, VIRTIO_NET_HDR_LEN,
    VirtioNetHdr, gso_split, handle_gro,
};

use crate::{
    contender::{About, Boxed, Local, Peer, Turns},
    frame::{ETHERNET_BYTES, plain_transport},
    polls::Polls,
};

/// Returns a coalescer that merges TCP and UDP packets outside tunnels.
pub(super) fn coalescer(workload: &Workload) -> Option<Boxed<'_>> {
    plain_transport(&workload.frames[0])?;
    let about = About::new(Peer::TunRs, "", "parse, copy, verify what joins");
    let turns = Coalesce::new(workload);
    Some(Local::boxed(about, turns, workload.packets, || coalesced(workload)))
}

/// Returns a segmenter of TCP or UDP superframes outside tunnels.
pub(super) fn segmenter(workload: &Workload) -> Option<Boxed<'_>> {
    plain_transport(&workload.frames[0])?;
    let about = About::new(Peer::TunRs, "", "copy, sums; told headers");
    let turns = Segment::new(workload);
    Some(Local::boxed(about, turns, workload.packets, || segmented(workload)))
}

struct Coalesce<'a> {
    polls: Polls<'a>,
    buffers: Vec<Vec<u8>>,
    used: usize,
    table: GROTable,
}

impl<'a> Coalesce<'a> {
    fn new(workload: &'a Workload) -> Self {
        let buffers = (0..POLL).map(|_| Vec::with_capacity(BUFFER_BYTES)).collect();
        Self { polls: Polls::new(workload), buffers, used: 0, table: GROTable::new() }
    }
}

impl Turns for Coalesce<'_> {
    fn prepare(&mut self) {
        let poll = self.polls.take();
        for (buffer, frame) in self.buffers.iter_mut().zip(poll) {
            fill(buffer, frame);
        }
        self.used = poll.len();
    }

    fn turn(&mut self) -> usize {
        let buffers = &mut self.buffers[..self.used];
        self.table.apply_gro(buffers, VIRTIO_NET_HDR_LEN, true).expect("packets that do no harm");
        self.used
    }
}

fn coalesced(workload: &Workload) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for poll in workload.frames.chunks(POLL) {
        let mut buffers = vec![Vec::new(); poll.len()];
        buffers.iter_mut().zip(poll).for_each(|(buffer, frame)| fill(buffer, frame));
        // The types of the tables are not public, so they are inferred.
        let (mut tcp, mut udp, mut written) = (Default::default(), Default::default(), Vec::new());
        handle_gro(&mut buffers, VIRTIO_NET_HDR_LEN, &mut tcp, &mut udp, true, &mut written)
            .expect("packets that do no harm");
        frames.extend(written.iter().map(|index| {
            [&poll[*index][..ETHERNET_BYTES], &buffers[*index][VIRTIO_NET_HDR_LEN..]].concat()
        }));
    }
    frames
}

fn fill(buffer: &mut Vec<u8>, frame: &[u8]) {
    buffer.clear();
    buffer.resize(VIRTIO_NET_HDR_LEN, 0);
    buffer.extend_from_slice(&frame[ETHERNET_BYTES..]);
}

struct Segment {
    packets: Vec<Vec<u8>>,
    header: VirtioNetHdr,
    next: usize,
    buffers: Vec<Vec<u8>>,
    sizes: Vec<usize>,
}

impl Segment {
    fn new(workload: &Workload) -> Self {
        let packets = workload.frames.iter().map(|frame| frame[ETHERNET_BYTES..].to_vec());
        Self {
            packets: packets.collect(),
            header: header(workload),
            next: 0,
            buffers: vec![vec![0; SEGMENT_BYTES_MAX]; SEGMENTS_MAX],
            sizes: vec![0; SEGMENTS_MAX],
        }
    }
}

impl Turns for Segment {
    fn prepare(&mut self) {
        touch(&self.packets[self.next]);
    }

    fn turn(&mut self) -> usize {
        let place = self.next;
        self.next = (place + 1) % self.packets.len();
        let packet = &mut self.packets[place];
        gso_split(packet, self.header, &mut self.buffers, &mut self.sizes, 0, false)
            .expect("a superframe that can be cut")
    }
}

fn segmented(workload: &Workload) -> Vec<Vec<u8>> {
    let mut segment = Segment::new(workload);
    let mut frames = Vec::with_capacity(workload.packets);
    for superframe in &workload.frames {
        let count = segment.turn();
        let sized = segment.buffers.iter().zip(&segment.sizes).take(count);
        frames.extend(
            sized.map(|(buffer, size)| [&superframe[..ETHERNET_BYTES], &buffer[..*size]].concat()),
        );
    }
    frames
}

fn header(workload: &Workload) -> VirtioNetHdr {
    let gso = workload.gso.expect("a workload of superframes");
    let parsed = parse(&workload.frames[0], Link::Ethernet, Lengths::Whole);
    let transport = parsed.last().expect("a transport header");
    let is_tcp = transport.name == "tcp";
    VirtioNetHdr {
        flags: 1,
        gso_type: if is_tcp { VIRTIO_NET_HDR_GSO_TCPV4 } else { VIRTIO_NET_HDR_GSO_UDP_L4 },
        hdr_len: (transport.inside() - ETHERNET_BYTES) as u16,
        gso_size: gso.description.gso_size as u16,
        csum_start: (gso.checksum_start - ETHERNET_BYTES) as u16,
        csum_offset: gso.checksum_offset as u16,
    }
}

/// Size of a buffer for a virtio header and the longest IP packet.
const BUFFER_BYTES: usize = VIRTIO_NET_HDR_LEN + 65535;
const SEGMENT_BYTES_MAX: usize = 1600;
const SEGMENTS_MAX: usize = 64;
