//! Transmits to a device: writes virtio headers, queues frames that the kernel has no room for, and handles frames that
//! the kernel refuses.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
};

use grosso::{
    Meta,
    checksum::Checksum,
    features::{self, Features},
    meta::VlanTag,
    segment::{self, Segments},
    vnet::{VnetError, describe},
};
use grosso_sys::errno::{ErrorClass, is_device_failure};
use grosso_wire::{
    LinkType, Ports, Stack,
    virtio::{FLAG_NEEDS_CHECKSUM, Form, Order},
};

use super::stats::{LiveEvent, LiveStats};
use crate::port::Transmitted;

/// Sink for frames, each preceded by its virtio header.
pub(crate) trait Wire {
    /// Sends one frame from its parts.
    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<()>;

    /// Sends frames from the front of the queue and returns the number of frames sent. An error applies to the first
    /// frame.
    fn send_some(&mut self, frames: &VecDeque<Queued>) -> io::Result<usize> {
        let Some(first) = frames.front() else { return Ok(0) };
        self.send(&[IoSlice::new(&first.bytes)]).map(|()| 1)
    }

    /// Returns the event to count for a frame that was lost because it was too long. `_frame` does not include the
    /// virtio header.
    fn too_long(&self, _frame: &[u8]) -> LiveEvent {
        LiveEvent::TransmitTooLong
    }
}

/// A queued frame with its metadata.
#[derive(Debug)]
pub(crate) struct Queued {
    /// The virtio header and the frame.
    pub(crate) bytes: Vec<u8>,
    meta: Meta,
}

/// Sender that prepares frames for a device and queues frames that the kernel has no room for.
#[derive(Debug)]
pub(crate) struct TxOffload {
    link: LinkType,
    ports: Ports,
    form: Option<Form>,
    features: Features,
    /// Features that may be the reason why the kernel refused a superframe. They are disabled if the kernel then
    /// accepts the packets of this superframe.
    suspect: Features,
    queue: VecDeque<Queued>,
    spare: Vec<Vec<u8>>,
    stack: Stack,
    /// Virtio header, followed by the modified start of the frame.
    head: Vec<u8>,
    /// An empty vector kept for its capacity.
    parts: Vec<IoSlice<'static>>,
    pub(crate) stats: LiveStats,
}

/// A frame that is ready to be sent, with its first bytes in [`TxOffload::head`].
struct Prepared {
    /// Number of bytes that were copied from the first slice to `head`.
    copied: usize,
    /// The metadata of the frame as sent.
    meta: Meta,
}

impl TxOffload {
    pub(crate) fn new(
        link: LinkType,
        ports: Ports,
        form: Option<Form>,
        features: Features,
    ) -> Self {
        Self {
            link,
            ports,
            form,
            features,
            suspect: Features::NONE,
            queue: VecDeque::new(),
            spare: Vec::new(),
            stack: Stack::new(0),
            head: Vec::new(),
            parts: Vec::new(),
            stats: LiveStats::default(),
        }
    }

    /// Switches to another device, with its own features and header format. Drops the frames that are queued for the
    /// previous device.
    #[cfg(feature = "vhost")]
    pub(crate) fn renew(&mut self, form: Option<Form>, features: Features) {
        self.stats.count(LiveEvent::TransmitDown, self.queue.len() as u64);
        self.queue.clear();
        (self.form, self.features, self.suspect) = (form, features, Features::NONE);
    }

    /// Sends a frame immediately, without a copy.
    pub(crate) fn transmit(
        &mut self,
        slices: &[&[u8]],
        meta: &Meta,
        wire: &mut impl Wire,
    ) -> io::Result<Transmitted> {
        if self.flush(wire)? == Transmitted::NoRoom {
            return Ok(Transmitted::NoRoom);
        }
        let prepared = match self.prepare(slices, meta) {
            Ok(prepared) if slices.len() < PARTS_MAX => prepared,
            _ => {
                self.enqueue(slices, meta);
                let _ = self.flush(wire);
                return Ok(Transmitted::Taken);
            }
        };
        let Err(error) = self.send(slices, &prepared, wire) else {
            return Ok(Transmitted::Taken);
        };
        match ErrorClass::of(&error) {
            ErrorClass::Later => return Ok(Transmitted::NoRoom),
            // The device failed. The frame is not accepted, so that the caller may offer it to another device.
            ErrorClass::Gone | ErrorClass::Other => return Err(error),
            _ => {}
        }
        self.enqueue_prepared(slices, prepared);
        self.refused(error, wire)?;
        // The frame counts as accepted even if its packets are lost. If the device has failed, the next call reports
        // the error.
        let _ = self.flush(wire);
        Ok(Transmitted::Taken)
    }

    /// Queues a copy of a frame for [`TxOffload::flush`]. A frame that a virtio header cannot describe is dropped and
    /// counted. A superframe is dropped only if it cannot be segmented either.
    pub(crate) fn enqueue(&mut self, slices: &[&[u8]], meta: &Meta) {
        match self.prepare(slices, meta) {
            Ok(prepared) => self.enqueue_prepared(slices, prepared),
            Err(error) => {
                let packets = meta.gso.map(|_| self.cut(slices, meta)).unwrap_or_default();
                if packets.is_empty() {
                    self.stats.refuse(error);
                } else {
                    self.stats.count(LiveEvent::TransmitCutAgain, 1);
                }
                self.queue.extend(packets);
            }
        }
    }

    /// Sends queued frames. A superframe that the kernel refuses is segmented; any other refused frame is dropped and
    /// counted. The frames after it are sent in both cases.
    pub(crate) fn flush(&mut self, wire: &mut impl Wire) -> io::Result<Transmitted> {
        while !self.queue.is_empty() {
            match wire.send_some(&self.queue) {
                Ok(0) => return Ok(Transmitted::NoRoom),
                Ok(sent) => {
                    for frame in self.queue.drain(..sent.min(self.queue.len())) {
                        self.spare.push(frame.bytes);
                    }
                    self.give_up_suspect();
                }
                Err(error) if ErrorClass::of(&error) == ErrorClass::Later => {
                    return Ok(Transmitted::NoRoom);
                }
                Err(error) => self.refused(error, wire)?,
            }
        }
        Ok(Transmitted::Taken)
    }

    /// Returns the number of queued frames.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Returns the length of the first queued frame in bytes, including its virtio header.
    pub(crate) fn next_len(&self) -> usize {
        self.queue.front().map_or(0, |frame| frame.bytes.len())
    }

    /// Returns the features that the device is known to support.
    pub(crate) fn features(&self) -> Features {
        self.features
    }

    /// Handles the kernel's error for the first frame of the queue.
    fn refused(&mut self, error: io::Error, wire: &impl Wire) -> io::Result<()> {
        let class = ErrorClass::of(&error);
        if matches!(class, ErrorClass::Later | ErrorClass::Gone | ErrorClass::Other) {
            return Err(error);
        }
        let Some(frame) = self.queue.pop_front() else { return Ok(()) };
        let header_len = self.form.map_or(0, Form::len);
        let bytes = frame.bytes.get(header_len..).unwrap_or_default();
        let packets = frame.meta.gso.map(|_| self.cut(&[bytes], &frame.meta)).unwrap_or_default();
        if packets.is_empty() {
            self.suspect = Features::NONE;
            let event = match class {
                ErrorClass::TooLong => wire.too_long(bytes),
                ErrorClass::Down | ErrorClass::Unreachable => LiveEvent::TransmitDown,
                ErrorClass::Exhausted => LiveEvent::TransmitNoMemory,
                _ => LiveEvent::TransmitRefused,
            };
            self.stats.count(event, 1);
        } else {
            // Only these errors mean that the device does not support the superframe. A lack of memory is temporary,
            // and an interface that is down (`ENETDOWN`) may come up again.
            let cannot = matches!(
                class,
                ErrorClass::Malformed | ErrorClass::Unsupported | ErrorClass::TooLong
            ) || is_device_failure(&error);
            self.suspect = match cannot {
                true => self.suspect_of(bytes, &frame.meta),
                false => Features::NONE,
            };
            self.stats.count(LiveEvent::TransmitCutAgain, 1);
            packets.into_iter().rev().for_each(|packet| self.queue.push_front(packet));
        }
        self.spare.push(frame.bytes);
        Ok(())
    }

    /// Returns the rarest of the features that a refused superframe needs. This is the one that the device most likely
    /// lacks.
    fn suspect_of(&mut self, frame: &[u8], meta: &Meta) -> Features {
        let Some(gso) = meta.gso else { return Features::NONE };
        meta.dissect_into(frame, self.link, &self.ports, &mut self.stack);
        let needed = features::needed(frame, &self.stack, &gso);
        let rarest = BY_RARITY.into_iter().find(|group| needed & *group != Features::NONE);
        rarest.unwrap_or(Features::NONE)
    }

    /// Disables the suspected feature. The kernel refused a superframe but accepted its packets, so it does not support
    /// this type of superframe.
    fn give_up_suspect(&mut self) {
        let suspect = core::mem::take(&mut self.suspect);
        if self.features & suspect != Features::NONE {
            self.features = self.features.without(suspect);
            self.stats.count(LiveEvent::TransmitNarrowed, 1);
        }
    }

    /// Returns the packets of a superframe. The result is empty if the superframe cannot be segmented.
    fn cut(&mut self, slices: &[&[u8]], meta: &Meta) -> Vec<Queued> {
        let takes_partial = self.features.contains(Features::CHECKSUM_GENERIC);
        let outgoing = if takes_partial {
            segment::Outgoing::PARTIAL_CHECKSUMS
        } else {
            segment::Outgoing::COMPLETE
        };
        let ports = self.ports;
        let Ok(mut segments) = Segments::new(slices, meta, self.link, &ports, outgoing) else {
            return Vec::new();
        };
        let mut packets = Vec::new();
        let mut buffer = vec![0; segments.packet_len_max()];
        while let Ok(Some(segment)) = segments.write_next(&mut buffer) {
            let packet = buffer.get(..segment.len()).unwrap_or_default();
            let Ok(prepared) = self.prepare(&[packet], &segment.meta) else { return Vec::new() };
            packets.push(self.queued(&[packet], prepared));
        }
        packets
    }

    /// Sends a prepared frame: the head, and the slices after it. A short list of slices is built on the stack, because
    /// for a short frame, an allocation would cost more than everything else.
    fn send(
        &mut self,
        slices: &[&[u8]],
        prepared: &Prepared,
        wire: &mut impl Wire,
    ) -> io::Result<()> {
        let (first, rest) = slices.split_first().map_or((&[][..], slices), |(f, r)| (*f, r));
        let front = [&self.head, first.get(prepared.copied..).unwrap_or_default()];
        if rest.len() <= REST_FEW {
            let mut few = [IoSlice::new(&[]); 2 + REST_FEW];
            for (part, slice) in few.iter_mut().zip(front.iter().chain(rest)) {
                *part = IoSlice::new(slice);
            }
            return wire.send(few.get(..2 + rest.len()).unwrap_or_default());
        }
        let mut parts: Vec<IoSlice<'_>> = reused(core::mem::take(&mut self.parts));
        parts.extend(front.iter().chain(rest).map(|slice| IoSlice::new(slice)));
        let result = wire.send(&parts);
        self.parts = reused(parts);
        result
    }

    fn enqueue_prepared(&mut self, slices: &[&[u8]], prepared: Prepared) {
        let queued = self.queued(slices, prepared);
        self.queue.push_back(queued);
    }

    fn queued(&mut self, slices: &[&[u8]], prepared: Prepared) -> Queued {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(&self.head);
        let mut skipped = prepared.copied;
        for slice in slices {
            bytes.extend_from_slice(slice.get(skipped..).unwrap_or_default());
            skipped = 0;
        }
        Queued { bytes, meta: prepared.meta }
    }

    /// Writes the virtio header and the modified start of the frame. If the device completes checksums, a verified
    /// checksum is replaced by the pseudo-header sum. If the frame has a VLAN tag, the tag is inserted.
    fn prepare(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Prepared, VnetError> {
        let first = slices.first().copied().unwrap_or_default();
        let mut meta = *meta;
        let mut pseudo_sum = None;
        self.head.clear();
        if let Some(form) = self.form {
            self.head.resize(form.len(), 0);
            let says_nothing = match meta.checksum {
                Checksum::None | Checksum::Complete { .. } => true,
                Checksum::Unnecessary { .. } => !self.features.contains(Features::CHECKSUM_GENERIC),
                Checksum::Partial { .. } => false,
            };
            if meta.gso.is_some() || !says_nothing {
                meta.dissect_into(first, self.link, &self.ports, &mut self.stack);
                let len = slices.iter().map(|slice| slice.len()).sum();
                let described = describe(first, len, &self.stack, &meta, form)?;
                let header = described.header;
                header.emit(form, Order::NATIVE, &mut self.head).map_err(|_| VnetError::Short)?;
                if header.has(FLAG_NEEDS_CHECKSUM) {
                    let (start, offset) = (header.checksum_start, header.checksum_offset);
                    meta.checksum = Checksum::Partial { start, offset };
                }
                pseudo_sum = described.pseudo_sum;
            }
        } else if meta.gso.is_some() || matches!(meta.checksum, Checksum::Partial { .. }) {
            return Err(VnetError::Inexpressible);
        }
        let copied = match pseudo_sum {
            Some((at, _)) => at + 2,
            None if meta.vlan.is_some() => ADDRESSES_LEN,
            None => 0,
        };
        let header_len = self.head.len();
        self.head.extend_from_slice(first.get(..copied).ok_or(VnetError::Short)?);
        if let Some((at, pseudo_sum)) = pseudo_sum
            && let Some(field) = self.head.get_mut(header_len + at..header_len + at + 2)
        {
            field.copy_from_slice(&pseudo_sum);
        }
        if let Some(tag) = meta.vlan.take() {
            self.insert(tag, header_len + ADDRESSES_LEN)?;
        }
        Ok(Prepared { copied, meta })
    }

    fn insert(&mut self, tag: VlanTag, at: usize) -> Result<(), VnetError> {
        if self.link != LinkType::Ethernet {
            return Err(VnetError::Inexpressible);
        }
        let [protocol, control] = [tag.protocol.to_be_bytes(), tag.tci.to_be_bytes()];
        let tag = [protocol[0], protocol[1], control[0], control[1]];
        let behind = self.head.len().checked_sub(at).ok_or(VnetError::Short)?;
        self.head.extend_from_slice(&tag);
        self.head.get_mut(at..).map(|moved| moved.rotate_left(behind)).ok_or(VnetError::Short)
    }
}

/// Empties a vector, and returns it for elements with another lifetime. Collecting in place keeps the allocation.
pub(super) fn reused<'a>(mut list: Vec<IoSlice<'_>>) -> Vec<IoSlice<'a>> {
    list.clear();
    list.into_iter().map(|_| IoSlice::new(&[])).collect()
}

/// Features in the order in which they are disabled.
const BY_RARITY: [Features; 5] = [
    Features::UDP_TUNNEL_SEGMENTATION,
    Features::UDP_TUNNEL_CHECKSUM_SEGMENTATION,
    Features::UDP_SEGMENTATION,
    Features::TCP6_SEGMENTATION,
    Features::TCP_SEGMENTATION,
];

/// Length in bytes of an Ethernet frame's addresses, which precede the tag or the EtherType.
const ADDRESSES_LEN: usize = 12;
/// Maximum number of slices, not counting the first, in a list that is built on the stack.
const REST_FEW: usize = 4;
/// Maximum number of slices of one vectored write, without the headers (`UIO_MAXIOV` is 1024).
const PARTS_MAX: usize = 1000;

#[cfg(test)]
mod tests;
