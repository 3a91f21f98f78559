//! A port that accesses an interface through packet sockets. It receives from a mapped ring and sends in batches.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use grosso::{
    Frame, Meta,
    checksum::Checksum,
    fair::FairShare,
    features::{Device, Features},
    meta::VlanTag,
    vnet::{VnetError, unflagged_partial},
};
use grosso_sys::{
    errno::ErrorClass,
    interface::{Control, InterfaceName},
    packet::{
        self, Fanout, PacketSocket, PacketSocketBuilder, ReceiveRing, RingFrame, RingLayout, Status,
    },
    secret,
};
use grosso_wire::{LinkType, Ports, virtio::Form};

use super::{
    broken,
    fair_ring::FairRing,
    incoming::Incoming,
    stats::{LiveEvent, LiveStats},
    transmitter::{BATCH, Transmitter},
    tx_offload::TxOffload,
};
use crate::{
    buffer::{Buffers, PortBuffer},
    port::{Port, PortCounter, PortError, Transmitted},
};

/// Options of a packet port.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PacketOptions {
    /// Whether frames have virtio headers. Without them, only packets with complete checksums can be sent.
    pub virtio_header: bool,
    /// Offloads that may be passed to the interface's driver. Offloads that packet sockets do not support are ignored.
    pub transmit: Features,
    /// Number of slots of the receive ring. `None` chooses 4096 slots for packets of 1500 bytes (7 MiB), fewer slots
    /// for longer packets, and 2048 slots for superframes.
    pub slots: Option<usize>,
    /// Slot length in bytes; see [`RingLayout::slot_bytes`]. With `None`, slots are as long as the interface's MTU if
    /// the socket buffer can be enlarged to 64 MiB to hold superframes, which requires `CAP_NET_ADMIN` on the host.
    /// Otherwise they are as long as a superframe. A frame longer than a slot is dropped if the socket buffer has no
    /// room for it.
    pub slot_bytes: Option<usize>,
    /// Whether to drop frames of flows above their fair share when only half of the ring is free (in a long ring, 1024
    /// slots), so that slots remain for other flows.
    pub fair: bool,
    /// Whether to send batches from a mapped ring if the kernel supports this. Otherwise they are sent with
    /// `sendmmsg(2)`.
    pub transmit_ring: bool,
    /// Number of slots of the transmit ring, a power of two. This is the maximum number of packets that the driver
    /// holds.
    pub transmit_slots: usize,
    /// Whether to bypass the queueing discipline and send directly to the driver.
    pub qdisc_bypass: bool,
    /// Whether to receive no frames, because another socket receives the interface's frames.
    pub transmit_only: bool,
    /// Whether to receive frames for other hosts, as a bridge must.
    pub promiscuous: bool,
    /// Settings for distributing the interface's frames among several ports; `None` if this port receives all frames.
    pub fanout: Option<Fanout>,
    /// UDP ports that identify tunnels.
    pub ports: Ports,
}

impl Default for PacketOptions {
    /// Returns options for superframes in both directions, with a receive ring that holds 5 ms of 1500-byte packets at
    /// 10 Gb/s.
    fn default() -> Self {
        Self {
            virtio_header: true,
            transmit: Features::ALL,
            slots: None,
            slot_bytes: None,
            fair: true,
            transmit_ring: true,
            transmit_slots: TRANSMIT_SLOTS,
            qdisc_bypass: false,
            transmit_only: false,
            promiscuous: false,
            fanout: None,
            ports: Ports::ASSIGNED,
        }
    }
}

/// A port on an interface.
///
/// ```no_run
/// use grosso_io::live::{PacketOptions, PacketPort};
///
/// let port = PacketPort::open("eth1", &PacketOptions::default())?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct PacketPort {
    name: InterfaceName,
    /// Socket for queries about the interface. It belongs to the network namespace that the port was opened in.
    control: Control,
    ring: FairRing,
    /// Memory for frames longer than a slot.
    long: Buffers,
    transmitter: Transmitter,
    device: Device,
    incoming: Incoming,
    malformed: u64,
    /// Time in nanoseconds at which to check again whether an interface that is down still exists.
    look_ns: Option<u64>,
    tx_offload: TxOffload,
}

impl PacketPort {
    /// Opens an Ethernet interface in the calling thread's network namespace. The interface must be up to receive
    /// frames. Frames for other hosts are received only if the interface accepts such frames (promiscuous mode).
    ///
    /// # Errors
    /// Returns the errors of [`grosso_sys::packet::PacketSocketBuilder::bind`].
    pub fn open(name: &str, options: &PacketOptions) -> io::Result<Self> {
        let name = InterfaceName::new(name)?;
        let form = options.virtio_header.then_some(Form::Short);
        let builder = PacketSocket::builder().virtio_header(form.is_some());
        let receiver = builder.ignore_outgoing(true).promiscuous(options.promiscuous);
        let receiver = receiver.transmit_only(options.transmit_only);
        let mut receiver = receiver.keep_long(true).receive_buffer_bytes(LONG_QUEUE_BYTES / 2);
        if let Some(fanout) = options.fanout {
            receiver = receiver.fanout(fanout);
        }
        let sender = builder.transmit_only(true).qdisc_bypass(options.qdisc_bypass);
        let features = (possible(form) & options.transmit).active();
        let share = |seed| FairShare::new(LinkType::Ethernet, options.ports, seed);
        let fair = options.fair.then(secret::random).transpose()?.map(share);
        let control = Control::new()?;
        let ring = open_ring(receiver, &control, &name, options)?;
        let slots = options.transmit_ring.then_some(options.transmit_slots);
        let transmitter = Transmitter::open(sender, &control, &name, slots)?;
        let mut tx_offload = TxOffload::new(LinkType::Ethernet, options.ports, form, features);
        if options.transmit_ring && !transmitter.has_ring() {
            tx_offload.stats.count(LiveEvent::TransmitNoRing, 1);
        }
        Ok(Self {
            control,
            ring: FairRing::new(ring, fair),
            long: Buffers::new(LONG_BYTES),
            transmitter,
            device: Device::new(features),
            incoming: Incoming::new(LinkType::Ethernet, options.ports, form),
            malformed: 0,
            look_ns: None,
            tx_offload,
            name,
        })
    }

    /// Returns the interface name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Returns the number of the fanout group that shares the interface's frames, or `None` if no fanout is configured.
    ///
    /// # Errors
    /// Returns any error from `getsockopt(2)`.
    pub fn fanout_group(&self) -> io::Result<Option<u16>> {
        self.ring.ring.fanout_group()
    }

    /// Returns the counters of this port, including frames that the kernel dropped because a buffer was full.
    ///
    /// # Errors
    /// Returns any error from `getsockopt(2)`.
    pub fn stats(&mut self) -> io::Result<LiveStats> {
        let drops = u64::from(self.ring.ring.take_statistics()?.drops);
        let malformed = self.ring.ring.malformed();
        let shed = core::mem::take(&mut self.ring.shed);
        let stats = &mut self.tx_offload.stats;
        stats.count(LiveEvent::ReceiveRingFull, drops);
        stats.count(LiveEvent::ReceiveRingShare, shed);
        stats.count(LiveEvent::ReceiveMalformed, malformed - self.malformed);
        self.malformed = malformed;
        Ok(*stats)
    }

    /// Passes a frame to `each` unless the frame is dropped. A frame that is longer than its slot is read from the
    /// socket's queue.
    #[inline]
    fn take(&mut self, frame: RingFrame, each: &mut dyn FnMut(Frame<PortBuffer>)) {
        if frame.truncated() {
            let status = frame.status();
            drop(frame);
            self.take_long(status).into_iter().for_each(each);
            return;
        }
        match self.incoming.understand_packet_apart(frame.virtio_header(), frame.as_ref()) {
            Some(Ok(meta)) => {
                let vlan = frame.vlan().map(beside);
                each(Frame { meta: Meta { vlan, ..meta }, buffer: frame.into() });
            }
            Some(Err(error)) => self.tx_offload.stats.refuse(error),
            None => self.take_superframe(frame, each),
        }
    }

    /// Passes on a frame in its slot, if it is a superframe or the socket has no virtio headers.
    #[inline(never)]
    fn take_superframe(&mut self, frame: RingFrame, each: &mut dyn FnMut(Frame<PortBuffer>)) {
        let meta = self.understand(frame.virtio_header(), frame.as_ref(), frame.status());
        match meta {
            Ok(meta) => {
                let vlan = frame.vlan().map(beside);
                each(Frame { meta: Meta { vlan, ..meta }, buffer: frame.into() });
            }
            Err(error) => self.tx_offload.stats.refuse(error),
        }
    }

    /// Reads a whole frame whose slot contains only its start. `status` is the slot's status.
    #[inline(never)]
    fn take_long(&mut self, status: Status) -> Option<Frame<PortBuffer>> {
        if !status.kept() {
            self.tx_offload.stats.count(LiveEvent::ReceiveTruncated, 1);
            return None;
        }
        let mut bytes = self.long.take();
        let Ok(Some(whole)) = self.ring.ring.receive_long(&mut bytes) else {
            self.tx_offload.stats.count(LiveEvent::ReceiveMalformed, 1);
            self.long.put_back(bytes);
            return None;
        };
        if whole.truncated {
            self.tx_offload.stats.count(LiveEvent::ReceiveTruncated, 1);
            self.long.put_back(bytes);
            return None;
        }
        let (header, frame) = bytes.split_at(self.incoming.header_len());
        let frame = frame.get(..whole.length - header.len()).unwrap_or_default();
        match self.understand(header, frame, status) {
            Ok(meta) => {
                let meta = Meta { vlan: whole.vlan.map(beside), ..meta };
                let frame = self.incoming.header_len()..whole.length;
                Some(Frame { meta, buffer: PortBuffer::filled(bytes, frame) })
            }
            Err(error) => {
                self.tx_offload.stats.refuse(error);
                self.long.put_back(bytes);
                None
            }
        }
    }

    /// Returns the metadata of a received frame.
    #[inline]
    fn understand(
        &mut self,
        header: &[u8],
        frame: &[u8],
        status: Status,
    ) -> Result<Meta, VnetError> {
        match self.incoming.form {
            Some(form) => self.incoming.understand_apart(header, frame, form),
            None => Ok(self.status(frame, status)),
        }
    }

    /// Derives the metadata from the checksum state of the slot, for sockets without virtio headers. The checksum state
    /// does not show which checksum is partial.
    #[inline(never)]
    fn status(&mut self, frame: &[u8], status: Status) -> Meta {
        let checksum = if status.checksum_not_ready() {
            unflagged_partial(frame, self.incoming.dissect(frame)).unwrap_or_default()
        } else if status.checksum_valid() {
            Checksum::Unnecessary { levels: 0 }
        } else {
            Checksum::None
        };
        Meta { checksum, ..Meta::default() }
    }

    /// Checks why no frames arrive. The interface may be down, which the socket reports once, or it may have been
    /// removed, which is an error.
    fn check(&mut self, now_ns: u64) -> Result<(), PortError> {
        let error = self.ring.ring.take_error();
        match error.map_err(|error| broken(self.name(), "receive", error))? {
            Some(error) if ErrorClass::of(&error) != ErrorClass::Down => {
                return Err(broken(self.name(), "receive", error));
            }
            None if self.look_ns.is_none_or(|look_ns| now_ns < look_ns) => return Ok(()),
            _ => {}
        }
        // An interface goes down before it is removed, and the socket does not report the removal.
        self.look_ns = Some(now_ns.saturating_add(LOOK_AGAIN_NS));
        match self.control.index(&self.name) {
            Ok(_) => Ok(()),
            Err(_) => Err(PortError::Gone { name: self.name().to_owned() }),
        }
    }
}

impl Port for PacketPort {
    fn link(&self) -> LinkType {
        LinkType::Ethernet
    }

    fn device(&self) -> Device {
        let mut device = self.device;
        device.features = self.tx_offload.features();
        device
    }

    fn receive(
        &mut self,
        now_ns: u64,
        max: usize,
        each: &mut dyn FnMut(Frame<PortBuffer>),
    ) -> Result<usize, PortError> {
        let mut received = 0;
        self.ring.relieve(now_ns);
        while received < max {
            let Some(frame) = self.ring.receive() else { break };
            received += 1;
            self.take(frame, each);
        }
        if received == 0 {
            self.check(now_ns)?;
        } else {
            self.look_ns = None;
        }
        Ok(received)
    }

    /// Returns a slot to the kernel, or keeps a buffer for reuse.
    fn recycle(&mut self, buffer: PortBuffer) {
        self.long.recycle(buffer);
    }

    fn transmit(&mut self, slices: &[&[u8]], meta: &Meta) -> Result<Transmitted, PortError> {
        if self.tx_offload.waiting() >= BATCH
            && self.flush()? == Transmitted::NoRoom
            && self.tx_offload.waiting() >= BATCH
        {
            return Ok(Transmitted::NoRoom);
        }
        self.tx_offload.enqueue(slices, meta);
        Ok(Transmitted::Taken)
    }

    fn flush(&mut self) -> Result<Transmitted, PortError> {
        let sent = self.tx_offload.flush(&mut self.transmitter);
        sent.map_err(|error| broken(self.name(), "send", error))
    }

    fn deadline(&self) -> Option<u64> {
        self.look_ns
    }

    fn counters(&mut self, each: &mut dyn FnMut(PortCounter, u64)) {
        // A socket that cannot be queried will fail at its next receive call.
        let stats = self.stats().unwrap_or(self.tx_offload.stats);
        stats.counters().for_each(|(counter, value)| each(counter, value));
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ring.ring.as_fd())
    }

    fn transmit_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.transmitter.blocked(self.tx_offload.next_len())
    }
}

/// Opens the receive ring. If superframes may wait in the socket's queue, the slots only have to hold single packets.
fn open_ring(
    socket: PacketSocketBuilder,
    control: &Control,
    name: &InterfaceName,
    options: &PacketOptions,
) -> io::Result<ReceiveRing> {
    let layout = |usual: RingLayout| RingLayout {
        slot_bytes: options.slot_bytes.unwrap_or(usual.slot_bytes),
        slots: options.slots.unwrap_or(usual.slots),
    };
    let packets = layout(layout_of(control.mtu(name)? as usize));
    let ring = socket.bind_receive_ring(name, packets)?;
    if options.slot_bytes.is_some() || ring.queue_bytes()? >= LONG_QUEUE_BYTES {
        return Ok(ring);
    }
    drop(ring);
    let superframes = layout(RingLayout::superframes(SUPERFRAME_SLOTS));
    socket.bind_receive_ring(name, superframes).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => io::Error::new(
            error.kind(),
            format!(
                "{error}: without CAP_NET_ADMIN on the host, superframes must fit into the slots of the \
                 ring; use fewer slots, or slots of 1664 bytes if no superframes arrive"
            ),
        ),
        _ => error,
    })
}

/// Converts the description of a VLAN tag that the kernel removed from the frame.
fn beside(tag: packet::VlanTag) -> VlanTag {
    VlanTag { protocol: tag.protocol, tci: tag.control }
}

/// Returns a layout for packets of `mtu` bytes plus headers: 4096 slots for packets of common lengths, and at least
/// 1024 slots for longer packets.
fn layout_of(mtu: usize) -> RingLayout {
    let usual = RingLayout::PACKETS;
    let wanted = mtu.saturating_add(SLOT_HEADERS_BYTES).clamp(usual.slot_bytes, SLOT_BYTES_MAX);
    RingLayout::fitting(wanted, (usual.slot_bytes * usual.slots / wanted).max(SLOTS_MIN))
}

/// Returns the features that a packet socket's virtio header can express. The header has no fields for tunnels (rule
/// V21).
fn possible(form: Option<Form>) -> Features {
    if form.is_none() {
        return Features::SCATTER_GATHER;
    }
    Features::SCATTER_GATHER
        | Features::CHECKSUM_GENERIC
        | Features::TCP_SEGMENTATION
        | Features::TCP_ECN_SEGMENTATION
        | Features::TCP6_SEGMENTATION
        | Features::UDP_SEGMENTATION
        | Features::GSO_ROBUST
}

/// Interval between checks of an interface that is down, in nanoseconds.
const LOOK_AGAIN_NS: u64 = 100_000_000;
/// Size in bytes of the socket's queue for long frames, including the kernel's bookkeeping (the kernel doubles the
/// requested size to cover it). The queue holds 30 ms of superframes at 10 Gb/s. It uses memory only for waiting
/// frames.
const LONG_QUEUE_BYTES: usize = 64 << 20;
/// Size in bytes of a buffer for a virtio header and the longest superframe with its tags.
const LONG_BYTES: usize = 66 << 10;
/// Number of slots for superframes if they may not wait in the queue. The slots hold 100 ms of superframes or 2.5 ms of
/// 1500-byte packets at 10 Gb/s.
const SUPERFRAME_SLOTS: usize = 2048;
/// Minimum number of slots for packets.
const SLOTS_MIN: usize = 1024;
/// Maximum slot length for packets in bytes: the longer the packets, the less the cost of a system call per packet
/// matters.
const SLOT_BYTES_MAX: usize = 16 << 10;
/// Number of slot bytes that are needed in addition to the packet: the kernel's header, the virtio header, the Ethernet
/// header and tags.
const SLOT_HEADERS_BYTES: usize = 160;
/// Default number of slots of a transmit ring: enough for 0.3 ms of 1500-byte packets at 10 Gb/s.
const TRANSMIT_SLOTS: usize = 256;
