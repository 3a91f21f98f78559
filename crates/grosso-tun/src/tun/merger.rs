//! Sending side, for any device. It merges the packets of a batch and counts exactly how many of them the port
//! accepted.

use core::cell::Cell;
use std::{
    hash::{BuildHasher, Hasher, RandomState},
    time::Instant,
};

use grosso::{
    CoalesceOptions, Coalescer, Delivery, Frame, LinkType, Meta, Ports, Profile,
    features::{Device, Features},
};
use grosso_io::{PortError, Transmitted, egress::Egress, port::Transmit};

use crate::{
    batch::Batch,
    joiner::{Trust, unjoined},
};

/// Sender that merges packets before passing them to a port.
#[derive(Debug)]
pub(crate) struct Merger<B, P> {
    pub(super) port: P,
    coalescer: Coalescer<B>,
    egress: Egress,
    /// Metadata of each packet.
    meta: Meta,
    epoch: Instant,
    /// Buffers of accepted packets. Empty between calls; kept for its capacity.
    spent: Vec<B>,
    /// Packets that were not accepted. Empty between calls; kept for its capacity.
    unsent: Vec<B>,
}

impl<B: AsRef<[u8]>, P: Transmit> Merger<B, P> {
    pub(crate) fn new(link: LinkType, port: P, trust: Trust) -> Self {
        let device = port.device();
        let mut profile = Profile::linux();
        profile.udp = device.features.contains(Features::UDP_SEGMENTATION);
        let seed = RandomState::new().build_hasher().finish();
        Self {
            port,
            coalescer: Coalescer::new(CoalesceOptions::new(link, seed).profile(profile)),
            egress: Egress::new(link, device, Ports::ASSIGNED),
            meta: unjoined(trust),
            epoch: Instant::now(),
            spent: Vec::new(),
            unsent: Vec::new(),
        }
    }

    /// Sends packets from the batch until the port is full or fails. Returns the number of packets that the port
    /// accepted; exactly these are removed from the batch, even after an error. Packets of a flow keep their order.
    pub(crate) fn try_send(&mut self, batch: &mut Batch<B>) -> Result<usize, PortError> {
        if !self.try_flush()? {
            return Ok(0);
        }
        let Self { port, coalescer, egress, meta, epoch, spent, unsent } = self;
        let progress = Progress::default();
        let mut exact = Exact { port, progress: &progress };
        // A single packet has nothing to merge with, so the coalescer would only cost time.
        if batch.len() == 1
            && let Some(packet) = batch.pop()
        {
            let sent = egress.send(&[packet.as_ref()], meta, &mut exact);
            let taken = progress.accepted.get();
            if taken > 0 {
                batch.recycle(packet);
            } else {
                batch.push(packet);
            }
            return if progress.is_full.get() { Ok(taken) } else { sent.map(|()| taken) };
        }
        let now_ns = epoch.elapsed().as_nanos() as u64;
        let (mut taken, mut result) = (0, Ok(()));
        let mut sink = |delivery: Delivery<'_, B>| {
            if progress.is_stopped.get() {
                unsent.extend(delivery.into_parts().map(|part| part.buffer));
                return;
            }
            progress.accepted.set(0);
            let mut index = 0;
            // Part `index` of the delivery is packet `index` of the frame. Packets are accepted in this order.
            let sent = egress.deliver(delivery, &mut exact, |buffer| {
                let is_accepted = index < progress.accepted.get();
                if is_accepted {
                    spent.push(buffer)
                } else {
                    unsent.push(buffer)
                }
                index += 1;
                taken += usize::from(is_accepted);
            });
            if let Err(error) = sent {
                progress.is_stopped.set(true);
                result = if progress.is_full.get() { Ok(()) } else { Err(error) };
            }
        };
        while !progress.is_stopped.get()
            && let Some(buffer) = batch.pop()
        {
            coalescer.push(Frame { buffer, meta: *meta }, now_ns, &mut sink);
        }
        coalescer.poll_end(now_ns, &mut sink);
        coalescer.finish(&mut sink);
        batch.put_back(unsent);
        spent.drain(..).for_each(|buffer| batch.recycle(buffer));
        result.map(|()| taken)
    }

    /// Repeats [`Merger::try_send`] for a caller that waits. Returns `None` while packets remain.
    pub(crate) fn try_send_all(&mut self, batch: &mut Batch<B>) -> Result<Option<()>, PortError> {
        self.try_send(batch)?;
        Ok((batch.is_empty() && self.try_flush()?).then_some(()))
    }

    /// Sends one frame, and queues the segments for which the port has no room. While segments of an earlier frame are
    /// queued, refuses the frame and returns `None`.
    pub(crate) fn try_send_frame(
        &mut self,
        slices: &[&[u8]],
        meta: &Meta,
    ) -> Result<Option<()>, PortError> {
        if !self.try_flush()? {
            return Ok(None);
        }
        self.egress.send(slices, meta, &mut self.port).map(Some)
    }

    /// Sends queued segments. Returns true once none is queued.
    pub(crate) fn try_flush(&mut self) -> Result<bool, PortError> {
        let Self { port, egress, .. } = self;
        Ok(egress.drain(port)? && port.flush()? == Transmitted::Taken)
    }
}

/// Progress with a batch, shared by the sink and the port.
#[derive(Debug, Default)]
struct Progress {
    /// Number of packets of the current frame that the port has accepted.
    accepted: Cell<usize>,
    /// Whether the port had no room for a frame.
    is_full: Cell<bool>,
    /// Whether the port is full or has failed. If so, no more packets of the batch are offered to it.
    is_stopped: Cell<bool>,
}

/// Port that counts packets, and fails when it is full so that nothing is queued.
struct Exact<'a> {
    port: &'a mut dyn Transmit,
    progress: &'a Progress,
}

impl Transmit for Exact<'_> {
    fn device(&self) -> Device {
        self.port.device()
    }

    fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError> {
        let mut sent = self.port.transmit(slices, meta)?;
        // A port that collects frames in a batch may have room again after sending the batch.
        if sent == Transmitted::NoRoom && self.port.flush()? == Transmitted::Taken {
            sent = self.port.transmit(slices, meta)?;
        }
        if sent == Transmitted::NoRoom {
            self.progress.is_full.set(true);
            return Err(PortError::Closed);
        }
        let packets = meta.gso.map_or(1, |gso| usize::from(gso.segments));
        self.progress.accepted.set(self.progress.accepted.get() + packets);
        Ok(Transmitted::Taken)
    }

    fn flush(&mut self) -> Result<Transmitted, PortError> {
        self.port.flush()
    }
}

#[cfg(test)]
mod tests;
