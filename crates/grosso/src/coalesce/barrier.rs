//! Packets that are in no train, and the trains that they must not overtake.

use grosso_wire::{Kind, Layer, Stack, Stop, ipv4};

use crate::{
    coalesce::{
        Coalescer, Pass, Sink, Verdict,
        reason::{Close, Release},
        reorder::Whose,
    },
    flow::{Found, Keys},
    frame::Frame,
};

impl<B: AsRef<[u8]>> Coalescer<B> {
    /// Lets a packet through whose flow cannot be read in full, behind every held train that it
    /// might be of (rule G75).
    #[inline(never)]
    pub(super) fn pass_unknown(
        &mut self,
        frame: Frame<B>,
        reason: Pass,
        sink: &mut (impl Sink<B> + ?Sized),
    ) -> Verdict {
        self.close_behind(frame.buffer.as_ref(), frame.meta.hash, sink);
        self.pass(frame, reason, sink)
    }

    /// Closes the trains that the packet which was just dissected must not overtake.
    pub(super) fn close_behind(
        &mut self,
        packet: &[u8],
        device_hash: Option<u32>,
        sink: &mut (impl Sink<B> + ?Sized),
    ) {
        let keys = Keys::of(self.stack.layers(), packet);
        match barrier(&self.stack, packet) {
            Barrier::None => {}
            Barrier::Flow => {
                let flow = self.hasher.flow(packet, &keys);
                self.let_go_of(Whose::Flow(flow), Release::Barrier, sink);
                if let Found::Slot(slot) = self.table.find(flow, device_hash) {
                    self.close(slot, Close::Barrier, sink);
                }
            }
            Barrier::Pair => {
                let pair = self.hasher.pair(packet, &keys);
                self.let_go_of(Whose::Pair(pair), Release::Barrier, sink);
                while let Some(slot) = self.trains.between(pair) {
                    self.close(slot, Close::Barrier, sink);
                }
            }
        }
    }
}

/// Which held trains a packet in none must not overtake (rule G75).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Barrier {
    /// None: no train can be of its flow.
    None,
    /// The train of its flow.
    Flow,
    /// All trains between its outermost addresses: its flow cannot be read.
    Pair,
}

/// A packet whose ports were read waits for the train of its flow only; one whose innermost headers
/// could not be read may be of any flow between its addresses, unless its protocol is one that no
/// train has.
pub(super) fn barrier(stack: &Stack, packet: &[u8]) -> Barrier {
    let Some(last) = stack.last() else { return Barrier::None };
    let is_ip = |layer: &&Layer| matches!(layer.kind, Kind::Ipv4 | Kind::Ipv6);
    match (stack.stop, last.kind, stack.layers().iter().filter(is_ip).count()) {
        (_, _, 0) | (Stop::Payload, Kind::Icmp, _) => Barrier::None,
        (Stop::Payload, Kind::Tcp | Kind::Udp, _) => Barrier::Flow,
        (Stop::Unknown, Kind::Ipv4, 1) => {
            let at = last.offset as usize + ipv4::field::PROTOCOL.start;
            let hides_another = packet.get(at) == Some(&AUTHENTICATION_HEADER);
            if hides_another { Barrier::Pair } else { Barrier::None }
        }
        _ => Barrier::Pair,
    }
}

/// The protocol number of the IPsec authentication header, behind which the transport of a train
/// may stand.
const AUTHENTICATION_HEADER: u8 = 51;
