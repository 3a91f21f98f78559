//! Transmits frames with metadata: segments them and completes checksums as the receiver's features require, and queues
//! frames that the receiver has no room for.

use std::collections::VecDeque;

use grosso::{
    Delivery, Meta,
    checksum::{self, Checksum},
    expand::{Expansion, Unexpanded},
    features::{Device, Features, Work},
    segment::{Outgoing, Segments},
};
use grosso_wire::{LinkType, Ports, Stack};

use crate::{
    counts::{DirectionStats, Protocol, RxCsum, WireSize},
    port::{PortError, Transmit, Transmitted},
};

/// Sender of frames to a port, or to any other receiver that implements [`Transmit`]. It segments superframes and
/// completes checksums as the receiver's features require, and queues frames while the receiver has no room.
///
/// The queue holds the rejected frames of one call. The queue grows if the caller sends more frames before
/// [`Egress::drain`] has emptied it.
///
/// ```
/// use grosso::{LinkType, Meta, Ports, features::{Device, Features}};
/// use grosso_io::{Port, egress::Egress, memory::wire};
///
/// let (mut port, _peer) = wire(LinkType::Ethernet, Device::new(Features::NONE), 64);
/// let mut egress = Egress::new(LinkType::Ethernet, Port::device(&port), Ports::ASSIGNED);
/// egress.send(&[&[0; 60]], &Meta::default(), &mut port)?;
/// # Ok::<(), grosso_io::PortError>(())
/// ```
#[derive(Debug)]
pub struct Egress {
    link: LinkType,
    /// Features and limits that the caller permits.
    wanted: Device,
    /// Features and limits in use. They shrink if the port finds that its device supports fewer features than it
    /// reported.
    device: Device,
    ports: Ports,
    stack: Stack,
    /// Vectors kept for their capacity: the slices of a superframe, of a packet segmented from it, and of the payload
    /// of this packet.
    slices: Vec<&'static [u8]>,
    packet: Vec<&'static [u8]>,
    payload: Vec<&'static [u8]>,
    /// Frames that the port had no room for, oldest first. Nothing is received while frames are queued, so the queue
    /// holds at most the output of one poll, the expanded acknowledgments, and the held trains.
    backlog: VecDeque<Waiting>,
    /// Buffers for the backlog, and one in which frames are changed.
    spare: Vec<Vec<u8>>,
    scratch: Vec<u8>,
    pub(crate) stats: DirectionStats,
}

/// A frame waiting for room.
#[derive(Debug)]
struct Waiting {
    frame: Vec<u8>,
    meta: Meta,
    wire: WireSize,
}

impl Egress {
    /// Creates an egress for frames of this link type. The egress never uses a feature that `device` lacks, even if the
    /// receiver reports it.
    #[must_use]
    pub fn new(link: LinkType, device: Device, ports: Ports) -> Self {
        Self {
            link,
            wanted: device,
            device,
            ports,
            stack: Stack::new(0),
            slices: Vec::new(),
            packet: Vec::new(),
            payload: Vec::new(),
            backlog: VecDeque::new(),
            spare: Vec::new(),
            scratch: Vec::new(),
            stats: DirectionStats::default(),
        }
    }

    /// Returns whether frames are queued.
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Sends queued frames. Returns true once the queue is empty.
    ///
    /// # Errors
    /// Returns errors from the port.
    pub fn drain(&mut self, to: &mut dyn Transmit) -> Result<bool, PortError> {
        for _ in 0..RENEWALS_MAX {
            self.renew(to)?;
            if self.send_waiting(to)? {
                return Ok(true);
            }
            if !self.is_outdated(to) {
                break;
            }
        }
        Ok(false)
    }

    /// Rebuilds waiting frames for a port that now accepts fewer features. The port may already have room for the
    /// rebuilt frames, but would not signal this.
    pub(crate) fn drain_outdated(&mut self, to: &mut dyn Transmit) -> Result<(), PortError> {
        if self.has_waiting() && self.is_outdated(to) {
            self.drain(to)?;
        }
        Ok(())
    }

    /// Returns whether the port no longer accepts all features that the waiting frames use, because its guest has
    /// restarted or the kernel has refused a kind of frame.
    fn is_outdated(&self, to: &dyn Transmit) -> bool {
        self.device.features.without(to.device().features) != Features::NONE
    }

    /// Adopts the port's features. Waiting frames are rebuilt if the port now has fewer features.
    fn renew(&mut self, to: &dyn Transmit) -> Result<(), PortError> {
        let features = self.wanted.features & to.device().features;
        let before = core::mem::replace(&mut self.device.features, features);
        if features.contains(before) || self.backlog.is_empty() {
            return Ok(());
        }
        let no_room = self.stats.no_room;
        for Waiting { mut frame, meta, .. } in core::mem::take(&mut self.backlog) {
            self.look(&frame, &meta);
            self.make(&[&frame], &meta, &mut Full)?;
            frame.clear();
            self.spare.push(frame);
        }
        // Restore `no_room`, because these frames were refused by `Full`, not by the port.
        self.stats.no_room = no_room;
        Ok(())
    }

    fn send_waiting(&mut self, to: &mut dyn Transmit) -> Result<bool, PortError> {
        while let Some(Waiting { frame, meta, .. }) = self.backlog.front() {
            if self.offer(to, &[frame], meta)? == Transmitted::NoRoom {
                self.stats.no_room += 1;
                return Ok(false);
            }
            if let Some(Waiting { mut frame, wire, .. }) = self.backlog.pop_front() {
                self.count_sent(frame.len(), wire);
                frame.clear();
                self.spare.push(frame);
            }
        }
        Ok(true)
    }

    /// Counts a frame received for a coalescer.
    pub(crate) fn count_received(&mut self, frame: &[u8], meta: &Meta) {
        if meta.gso.is_some() {
            meta.dissect_into(frame, self.link, &self.ports, &mut self.stack);
        }
        self.count_dissected(frame, meta);
    }

    /// Counts a received frame and sends it at once, dissecting its headers only once.
    pub(crate) fn forward(
        &mut self,
        frame: &[u8],
        meta: &Meta,
        to: &mut dyn Transmit,
    ) -> Result<(), PortError> {
        self.look(frame, meta);
        self.count_dissected(frame, meta);
        self.dispatch(&[frame], meta, to)
    }

    fn count_dissected(&mut self, frame: &[u8], meta: &Meta) {
        self.stats.rx_bytes += frame.len() as u64;
        self.stats.rx_wire.add(WireSize::of(frame.len(), meta, &self.stack));
        self.stats.rx_checksums[RxCsum::of(meta.checksum) as usize] += 1;
    }

    /// Sends a delivery of the coalescer and passes its buffers to `done` for reuse.
    ///
    /// # Errors
    /// Returns errors from the port.
    pub fn deliver<B: AsRef<[u8]>>(
        &mut self,
        mut delivery: Delivery<'_, B>,
        to: &mut dyn Transmit,
        mut done: impl FnMut(B),
    ) -> Result<(), PortError> {
        let mut slices: Vec<&[u8]> = reused(core::mem::take(&mut self.slices));
        slices.extend(delivery.slices());
        let sent = self.send(&slices, &delivery.meta, to);
        self.slices = reused(slices);
        if delivery.is_joined() {
            // The headers of a superframe were dissected when it was sent.
            let packets = u64::from(delivery.packets);
            let wire = WireSize::shared(delivery.len, delivery.header().len(), packets);
            self.stats.joined[Protocol::of(&self.stack) as usize].count(delivery.len, wire);
        }
        while let Some(part) = delivery.next_part() {
            done(part.buffer);
        }
        sent
    }

    /// Returns the expansion of an acknowledgment for trains, if there is one. Counts the expansion, or the reason why
    /// there is none.
    pub(crate) fn count_expansion<'a>(
        &mut self,
        expansion: Result<Expansion<'a>, Unexpanded>,
    ) -> Option<Expansion<'a>> {
        match &expansion {
            Ok(expansion) => {
                self.stats.acknowledgments_expanded += 1;
                self.stats.acknowledgments_expanded_into += expansion.count() as u64;
            }
            Err(reason) => self.stats.acknowledgments_unexpanded[reason.index()] += 1,
        }
        expansion.ok()
    }

    /// Sends the acknowledgments that precede the original in its expansion, back to back.
    pub(crate) fn send_copies(
        &mut self,
        expansion: &Expansion<'_>,
        to: &mut dyn Transmit,
    ) -> Result<(), PortError> {
        let mut copy = self.spare.pop().unwrap_or_default();
        copy.resize(expansion.len(), 0);
        let sent = (0..expansion.count() - 1).try_for_each(|index| {
            // `copy` is long enough for every acknowledgment, so this cannot fail.
            let _ = expansion.write(index, &mut copy);
            self.send(&[&copy], expansion.meta(), to)
        });
        copy.clear();
        self.spare.push(copy);
        sent
    }

    /// Sends a frame unchanged, with its checksum completed, or split into packets, depending on what the port accepts.
    /// The first slice must contain all headers.
    ///
    /// # Errors
    /// Returns errors from the port.
    pub fn send(
        &mut self,
        slices: &[&[u8]],
        meta: &Meta,
        to: &mut dyn Transmit,
    ) -> Result<(), PortError> {
        self.look(slices.first().copied().unwrap_or_default(), meta);
        self.dispatch(slices, meta, to)
    }

    /// Dissects the headers of a frame that may have to be changed.
    fn look(&mut self, head: &[u8], meta: &Meta) {
        if may_need_work(meta) {
            meta.dissect_into(head, self.link, &self.ports, &mut self.stack);
        }
    }

    /// Sends a frame. If the frame may have to be changed, the caller must already have dissected its headers.
    fn dispatch(
        &mut self,
        slices: &[&[u8]],
        meta: &Meta,
        to: &mut dyn Transmit,
    ) -> Result<(), PortError> {
        match meta.checksum {
            Checksum::Partial { .. } => self.stats.tx_partial += 1,
            _ => self.stats.tx_complete += 1,
        }
        self.make(slices, meta, to)
    }

    /// Converts a frame to one or more frames that the port accepts, and sends them.
    fn make(
        &mut self,
        slices: &[&[u8]],
        meta: &Meta,
        to: &mut dyn Transmit,
    ) -> Result<(), PortError> {
        match self.work(slices, meta) {
            Work::Nothing => self.transmit_whole(slices, meta, to),
            Work::Complete => self.complete(slices, meta, to),
            Work::Segment(outgoing) => self.segment(slices, meta, outgoing, to),
        }
    }

    fn work(&self, slices: &[&[u8]], meta: &Meta) -> Work {
        if !may_need_work(meta) {
            return Work::Nothing;
        }
        let head = slices.first().copied().unwrap_or_default();
        let len = slices.iter().map(|slice| slice.len()).sum();
        self.device.work(head, len, &self.stack, meta)
    }

    fn complete(
        &mut self,
        slices: &[&[u8]],
        meta: &Meta,
        to: &mut dyn Transmit,
    ) -> Result<(), PortError> {
        let mut scratch = core::mem::take(&mut self.scratch);
        scratch.clear();
        slices.iter().for_each(|slice| scratch.extend_from_slice(slice));
        let mut meta = *meta;
        if let Checksum::Partial { start, offset } = meta.checksum
            && checksum::complete(&mut scratch, start, offset).is_ok()
        {
            self.stats.completed += 1;
            meta.checksum = Checksum::None;
        }
        let sent = self.transmit_whole(&[&scratch], &meta, to);
        self.scratch = scratch;
        sent
    }

    fn segment(
        &mut self,
        slices: &[&[u8]],
        meta: &Meta,
        outgoing: Outgoing,
        to: &mut dyn Transmit,
    ) -> Result<(), PortError> {
        let Ok(mut segments) = Segments::new(slices, meta, self.link, &self.ports, outgoing) else {
            self.stats.uncut += 1;
            return self.transmit_whole(slices, meta, to);
        };
        self.stats.cut += 1;
        self.stats.cut_bytes += slices.iter().map(|slice| slice.len() as u64).sum::<u64>();
        let mut scratch = core::mem::take(&mut self.scratch);
        scratch.resize(segments.packet_len_max(), 0);
        // If the payload must be summed, it is copied in the same pass; otherwise it stays in place.
        let result = match outgoing.partial_checksums {
            true => self.scatter(&mut segments, &mut scratch, to),
            false => self.copy(&mut segments, &mut scratch, to),
        };
        self.scratch = scratch;
        result
    }

    fn copy(
        &mut self,
        segments: &mut Segments<'_>,
        scratch: &mut [u8],
        to: &mut dyn Transmit,
    ) -> Result<(), PortError> {
        while let Ok(Some(segment)) = segments.write_next(scratch) {
            let packet = scratch.get(..segment.len()).unwrap_or_default();
            let wire = WireSize::packet(packet.len());
            self.stats.cut_wire.add(wire);
            self.transmit(&[packet], &segment.meta, wire, to)?;
        }
        Ok(())
    }

    fn scatter(
        &mut self,
        segments: &mut Segments<'_>,
        header: &mut [u8],
        to: &mut dyn Transmit,
    ) -> Result<(), PortError> {
        let mut result = Ok(());
        let mut payload = reused(core::mem::take(&mut self.payload));
        while let (Ok(()), Ok(Some(segment))) =
            (&result, segments.scatter_next(header, |slice| payload.push(slice)))
        {
            let mut packet = reused(core::mem::take(&mut self.packet));
            packet.push(header.get(..segment.header_len).unwrap_or_default());
            packet.extend_from_slice(&payload);
            payload.clear();
            let wire = WireSize::packet(segment.len());
            self.stats.cut_wire.add(wire);
            result = self.transmit(&packet, &segment.meta, wire, to);
            self.packet = reused(packet);
        }
        self.payload = reused(payload);
        result
    }

    /// Transmits a frame unchanged. If the frame is a superframe, `stack` holds its headers.
    fn transmit_whole(
        &mut self,
        slices: &[&[u8]],
        meta: &Meta,
        to: &mut dyn Transmit,
    ) -> Result<(), PortError> {
        let len = slices.iter().map(|slice| slice.len()).sum();
        let wire = WireSize::of(len, meta, &self.stack);
        self.transmit(slices, meta, wire, to)
    }

    /// Hands a finished frame to the port, or queues it after the waiting frames.
    fn transmit(
        &mut self,
        slices: &[&[u8]],
        meta: &Meta,
        wire: WireSize,
        to: &mut dyn Transmit,
    ) -> Result<(), PortError> {
        if self.backlog.is_empty() {
            if self.offer(to, slices, meta)? == Transmitted::Taken {
                self.count_sent(slices.iter().map(|slice| slice.len()).sum(), wire);
                return Ok(());
            }
            self.stats.no_room += 1;
        }
        let mut frame = self.spare.pop().unwrap_or_default();
        slices.iter().for_each(|slice| frame.extend_from_slice(slice));
        self.backlog.push_back(Waiting { frame, meta: *meta, wire });
        Ok(())
    }

    /// Offers a frame to the port. If there is no room, flushes the port and offers the frame once more, because a
    /// batching port may have room once its batch is sent. Does not offer a frame that uses features the port no longer
    /// accepts.
    fn offer(
        &self,
        to: &mut dyn Transmit,
        slices: &[&[u8]],
        meta: &Meta,
    ) -> Result<Transmitted, PortError> {
        if to.transmit(slices, meta)? == Transmitted::Taken {
            return Ok(Transmitted::Taken);
        }
        let _ = to.flush()?;
        if self.is_outdated(to) {
            return Ok(Transmitted::NoRoom);
        }
        to.transmit(slices, meta)
    }

    fn count_sent(&mut self, len: usize, wire: WireSize) {
        self.stats.tx_frames += 1;
        self.stats.tx_bytes += len as u64;
        self.stats.tx_wire.add(wire);
    }
}

/// Returns whether the metadata requests work that a device may not support.
fn may_need_work(meta: &Meta) -> bool {
    meta.gso.is_some() || matches!(meta.checksum, Checksum::Partial { .. })
}

/// Empties a vector, and returns it for elements with another lifetime. Collecting in place keeps the allocation.
pub(crate) fn reused<'a>(mut list: Vec<&[u8]>) -> Vec<&'a [u8]> {
    list.clear();
    list.into_iter().map(|_| &[][..]).collect()
}

/// A port that has every feature but never has room, so that all frames sent to it are queued.
struct Full;

impl Transmit for Full {
    fn device(&self) -> Device {
        Device::new(Features::ALL)
    }

    fn transmit(&mut self, _: &[&[u8]], _: &Meta) -> Result<Transmitted, PortError> {
        Ok(Transmitted::NoRoom)
    }

    fn flush(&mut self) -> Result<Transmitted, PortError> {
        Ok(Transmitted::NoRoom)
    }
}

/// Maximum number of times that waiting frames are rebuilt in one call. A limit is necessary because a guest may change
/// its features at any time.
const RENEWALS_MAX: usize = 2;

#[cfg(test)]
mod tests {
    use super::reused;

    #[test]
    fn the_list_of_slices_keeps_its_memory() {
        let frame = [0; 60];
        let slices = vec![&frame[..]; 46];
        let (place, capacity) = (slices.as_ptr().addr(), slices.capacity());
        let again: Vec<&'static [u8]> = reused(slices);
        assert_eq!((again.as_ptr().addr(), again.capacity(), again.len()), (place, capacity, 0));
    }
}
