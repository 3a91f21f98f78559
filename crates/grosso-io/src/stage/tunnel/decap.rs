//! The receiving half of a tunnel, which decapsulates packets.

use grosso::{
    Frame, Meta,
    meta::Gso,
    segment::{Outgoing, Segments},
    tunnel::{
        NotAdmitted,
        decapsulate::{Decapsulation, DecapsulationRules, Presented, Refusal},
    },
};
use grosso_wire::{Kind, LinkType, Stack, dissect_into, ethernet};

use super::{TunnelOptions, TunnelStageStats, forwarding::Unlearnable, peers::Peers};
use crate::buffer::{PortBuffer, Spare};

/// Receiving half of a tunnel, which decapsulates the frames from a port.
#[derive(Debug)]
pub(super) struct Decap {
    /// Link type of the outer frames.
    link: LinkType,
    rules: DecapsulationRules,
    address: Option<[u8; 6]>,
    stack: Stack,
    pub(super) spare: Spare,
    /// Buffers to return to the port after its current call has returned.
    pub(super) returned: Vec<PortBuffer>,
    pub(super) stats: TunnelStageStats,
}

/// Reason why a received frame is dropped.
enum Dropped {
    Refused(Refusal),
    NotAdmitted(NotAdmitted),
    OwnAddress,
    Unlearnable(Unlearnable),
}

impl Decap {
    pub(super) fn new(options: &TunnelOptions, link: LinkType) -> Self {
        let mut rules = options.endpoint.rules();
        rules.outer_checksum = options.outer_checksum;
        rules.presented = Presented::Alone;
        rules.completes_left_open = true;
        Self {
            link,
            rules,
            address: options.address.filter(|_| options.endpoint.carries_ethernet()),
            stack: Stack::new(0),
            spare: Spare::default(),
            returned: Vec::new(),
            stats: TunnelStageStats::default(),
        }
    }

    /// Decapsulates a frame, and passes on the inner packet unless it is dropped. A superframe made of several outer
    /// datagrams (B29) is segmented, and each datagram is decapsulated. `mtu` is the length of the longest packet that
    /// the tunnel carries, if it is known.
    pub(super) fn take(
        &mut self,
        frame: Frame<PortBuffer>,
        mtu: Option<usize>,
        peers: &mut Peers,
        each: &mut dyn FnMut(Frame<PortBuffer>),
    ) {
        let Frame { buffer, meta } = frame;
        match self.plan(buffer.as_ref(), &meta, peers) {
            Ok(plan) => {
                let left_whole = self.left_whole(buffer.as_ref(), &plan, mtu);
                let mut taken = self.open(buffer, &plan);
                if left_whole.is_some() {
                    taken.meta.gso = left_whole;
                    self.stats.left_whole += 1;
                }
                each(taken);
            }
            Err(reason) => {
                let is_many = matches!(reason, Dropped::Refused(Refusal::Superframe));
                if !(is_many && self.take_cut(buffer.as_ref(), &meta, peers, each)) {
                    self.count(reason);
                }
                self.give_back(buffer);
            }
        }
    }

    /// Decapsulates the packets of a superframe one by one. Returns false if the superframe cannot be segmented.
    fn take_cut(
        &mut self,
        frame: &[u8],
        meta: &Meta,
        peers: &mut Peers,
        each: &mut dyn FnMut(Frame<PortBuffer>),
    ) -> bool {
        let (slices, partial) = ([frame], Outgoing::PARTIAL_CHECKSUMS);
        let ports = self.rules.ports;
        let Ok(mut segments) = Segments::new(&slices, meta, self.link, &ports, partial) else {
            return false;
        };
        if segments.remaining() > DATAGRAMS_MAX {
            return false;
        }
        self.stats.cut_inbound += 1;
        let bytes_max = segments.packet_len_max();
        loop {
            let mut bytes = self.spare.take();
            bytes.resize(bytes_max, 0);
            let Ok(Some(segment)) = segments.write_next(&mut bytes) else {
                self.spare.put_back(bytes);
                return true;
            };
            let packet = PortBuffer::made(bytes, 0..segment.len());
            match self.plan(packet.as_ref(), &segment.meta, peers) {
                Ok(plan) => each(self.open(packet, &plan)),
                Err(reason) => {
                    self.count(reason);
                    self.give_back(packet);
                }
            }
        }
    }

    /// Returns the segmentation of a TCP superframe that a kernel on this host left for a device to segment, but that
    /// no device segmented. Sockets do not report the segment size; a superframe that exceeds the tunnel's MTU is
    /// segmented to that MTU.
    fn left_whole(&self, frame: &[u8], plan: &Decapsulation, mtu: Option<usize>) -> Option<Gso> {
        if !plan.details.left_open || plan.meta.gso.is_some() {
            return None;
        }
        let mtu = mtu?;
        let (transport, around) = self.stack.layers().split_last()?;
        let ip = around.iter().rfind(|layer| layer.kind.is_ip())?;
        let headers = transport.end().checked_sub(usize::from(ip.offset))?;
        let is_long = plan.inner().end.min(frame.len()) > usize::from(ip.offset) + mtu;
        let size = u16::try_from(mtu.checked_sub(headers)?).ok()?;
        Gso::every(size).filter(|_| transport.kind == Kind::Tcp && is_long)
    }

    /// Decapsulates a packet. The packet stays in its buffer, unless it must be changed.
    fn open(&mut self, buffer: PortBuffer, plan: &Decapsulation) -> Frame<PortBuffer> {
        self.stats.taken_out.count(&Ok(*plan));
        self.stats.left_open += u64::from(plan.details.left_open);
        let meta = plan.meta;
        if !plan.is_change() {
            return Frame { buffer: buffer.part(plan.inner()), meta };
        }
        let mut bytes = self.spare.take();
        bytes.extend_from_slice(buffer.as_ref());
        let frame = plan.apply(&mut bytes);
        self.give_back(buffer);
        Frame { buffer: PortBuffer::made(bytes, frame), meta }
    }

    fn count(&mut self, dropped: Dropped) {
        let stats = &mut self.stats;
        match dropped {
            Dropped::Refused(reason) => stats.taken_out.count(&Err(reason)),
            Dropped::NotAdmitted(reason) => stats.foreign[reason.index()] += 1,
            Dropped::OwnAddress => stats.own_address += 1,
            Dropped::Unlearnable(Unlearnable::Source) => stats.no_device += 1,
            Dropped::Unlearnable(Unlearnable::Moved) => stats.moved += 1,
        }
    }

    /// Keeps a buffer that was created here. Any other buffer returns to the port after its current call has returned.
    fn give_back(&mut self, buffer: PortBuffer) {
        self.returned.extend(self.spare.give(buffer));
    }

    /// Plans the decapsulation of a frame if the frame came through this tunnel.
    fn plan(
        &mut self,
        frame: &[u8],
        meta: &Meta,
        peers: &mut Peers,
    ) -> Result<Decapsulation, Dropped> {
        dissect_into(frame, self.link, &self.rules.ports, &mut self.stack);
        let planned = Decapsulation::plan(frame, &self.stack, meta, self.link, &self.rules);
        let plan = planned.map_err(Dropped::Refused)?;
        let from = peers.admit(&plan).map_err(Dropped::NotAdmitted)?;
        let packet = frame.get(plan.inner()).unwrap_or_default();
        let source = packet.get(ethernet::field::SOURCE);
        if self.address.as_ref().is_some_and(|own| source == Some(own)) {
            return Err(Dropped::OwnAddress);
        }
        if !plan.details.dont_learn {
            peers.learn(packet, from).map_err(Dropped::Unlearnable)?;
        }
        Ok(plan)
    }
}

/// Maximum number of datagrams in a superframe that is segmented. The number is limited because all datagrams are
/// stored until the caller receives them. Linux sends at most this many at once (`UDP_MAX_SEGMENTS` since 6.10).
const DATAGRAMS_MAX: u32 = 128;
