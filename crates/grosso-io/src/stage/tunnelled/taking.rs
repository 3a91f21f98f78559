//! The receiving half of a tunnel.

use grosso::{
    Frame, Meta,
    tunnel::{
        NotAdmitted,
        decapsulate::{Decapsulation, DecapsulationRules, Presented, Refusal},
    },
};
use grosso_wire::{LinkType, Stack, dissect_into, ethernet};

use super::{TunnelledOptions, TunnelledStats, forwarding::Unlearnable, peers::Peers};
use crate::buffer::{PortBuffer, Spare};

/// Decapsulation of the frames of a port.
#[derive(Debug)]
pub(super) struct Taking {
    /// Link type of the outer frames.
    link: LinkType,
    rules: DecapsulationRules,
    address: Option<[u8; 6]>,
    stack: Stack,
    pub(super) spare: Spare,
    /// Buffers to return to the port after its current call.
    pub(super) returned: Vec<PortBuffer>,
    pub(super) stats: TunnelledStats,
}

/// Reason that a received frame is dropped.
enum Dropped {
    Refused(Refusal),
    NotAdmitted(NotAdmitted),
    OwnAddress,
    Unlearnable(Unlearnable),
}

impl Taking {
    pub(super) fn new(options: &TunnelledOptions, link: LinkType) -> Self {
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
            stats: TunnelledStats::default(),
        }
    }

    /// Decapsulates a frame, within its buffer unless the packet has to be changed; `None` if it
    /// was dropped.
    pub(super) fn take(
        &mut self,
        frame: Frame<PortBuffer>,
        peers: &mut Peers,
    ) -> Option<Frame<PortBuffer>> {
        let Frame { buffer, meta } = frame;
        let planned = self.plan(buffer.as_ref(), &meta, peers);
        let taken_out = &mut self.stats.taken_out;
        match planned {
            Ok(plan) => {
                taken_out.count(&Ok(plan));
                self.stats.left_open += u64::from(plan.details.left_open);
                let meta = plan.meta;
                let buffer = if plan.is_change() {
                    let mut bytes = self.spare.take();
                    bytes.extend_from_slice(buffer.as_ref());
                    let frame = plan.apply(&mut bytes);
                    self.returned.push(buffer);
                    PortBuffer::made(bytes, frame)
                } else {
                    buffer.part(plan.inner())
                };
                return Some(Frame { buffer, meta });
            }
            Err(Dropped::Refused(reason)) => taken_out.count(&Err(reason)),
            Err(Dropped::NotAdmitted(reason)) => self.stats.foreign[reason.index()] += 1,
            Err(Dropped::OwnAddress) => self.stats.own_address += 1,
            Err(Dropped::Unlearnable(Unlearnable::Source)) => self.stats.no_device += 1,
            Err(Dropped::Unlearnable(Unlearnable::Moved)) => self.stats.moved += 1,
        }
        self.returned.push(buffer);
        None
    }

    /// Plans the decapsulation of a frame, if it came through this tunnel.
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
