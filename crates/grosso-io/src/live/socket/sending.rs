//! Sends datagrams. A superframe is sent as one message if the kernel can segment it; other frames are sent in batches.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    ops::Range,
};

use grosso::{
    Meta,
    checksum::{self, Checksum},
    meta::GsoSize,
    segment::{HEADER_BYTES_MAX, Outgoing, Segments},
};
use grosso_sys::{
    datagram::{BATCH_MAX, Datagram, DatagramSocket},
    errno::{ErrorClass, is_device_failure},
};
use grosso_wire::{LinkType, Ports, udp};

use super::{
    CARRIED_IPV4, CARRIED_IPV6, QUEUE_MAX,
    outer::{BuiltHeaders, Outer},
    recent::RecentPackets,
    stats::{SocketEvent, SocketStats},
};
use crate::{live::tx_offload::reused, port::Transmitted};

/// Queue of messages for one socket, with scratch space for building messages.
#[derive(Debug)]
pub(in crate::live) struct SocketSender {
    ports: Ports,
    /// Whether the kernel segments messages.
    segments: bool,
    /// Whether the kernel refused a message of several datagrams. If it then accepts the datagrams one by one, messages
    /// of several datagrams are no longer sent.
    suspects_segments: bool,
    queue: VecDeque<Message>,
    spare: Vec<Vec<u8>>,
    /// The first slice of a superframe, and the headers of its packets, with [`HEADER_BYTES_MAX`] bytes for the headers
    /// of each packet.
    head: Vec<u8>,
    headers: Vec<u8>,
    groups: Vec<DatagramGroup>,
    /// Empty vectors kept for their capacity.
    slices: Vec<&'static [u8]>,
    payload: Vec<&'static [u8]>,
    parts: Vec<IoSlice<'static>>,
    /// For each packet: the index after its last payload slice, the length of its headers, and the length of the packet
    /// without the outer headers.
    packets: Vec<(usize, usize, usize)>,
    recent: RecentPackets,
    sends_long: bool,
}

/// A queued message, with a copy of its bytes.
#[derive(Debug)]
struct Message {
    bytes: Vec<u8>,
    outer: Outer,
    /// Length in bytes of each datagram except the last, or `None` for a single datagram.
    segment_bytes: Option<u16>,
}

/// Datagrams of a superframe that are sent as one message.
#[derive(Clone, Debug)]
struct DatagramGroup {
    parts: Range<usize>,
    datagrams: usize,
    bytes: usize,
    segment_bytes: u16,
}

impl Message {
    fn datagrams(&self) -> usize {
        self.segment_bytes.map_or(1, |bytes| self.bytes.len().div_ceil(bytes.into()))
    }

    fn described<'a>(&self, parts: &'a [IoSlice<'a>]) -> Datagram<'a> {
        datagram(&self.outer, parts, self.segment_bytes)
    }
}

impl SocketSender {
    pub(in crate::live) fn new(ports: Ports, segments: bool) -> Self {
        Self {
            ports,
            segments,
            suspects_segments: false,
            queue: VecDeque::new(),
            spare: Vec::new(),
            head: Vec::new(),
            headers: Vec::new(),
            groups: Vec::new(),
            slices: Vec::new(),
            payload: Vec::new(),
            parts: Vec::new(),
            packets: Vec::new(),
            recent: RecentPackets::default(),
            sends_long: false,
        }
    }

    /// Starts or stops recording long packets.
    pub(in crate::live) fn remember(&mut self, on: bool) {
        self.recent.remember(on);
    }

    /// Returns whether a message quotes a packet that was sent while packets were recorded.
    pub(in crate::live) fn has_sent(&self, quoted: &[u8]) -> bool {
        self.recent.has(quoted)
    }

    /// Returns whether, since the last call, a packet was sent that routers cannot fragment and that is too long for
    /// some paths.
    pub(in crate::live) fn take_sends_long(&mut self) -> bool {
        core::mem::take(&mut self.sends_long)
    }

    /// Records a packet of `len` bytes, not counting the headers that the socket builds.
    fn note(&mut self, outer: &Outer, len: usize) {
        let least = if outer.destination.is_ipv6() { CARRIED_IPV6 } else { CARRIED_IPV4 };
        let is_whole = outer.dont_fragment || outer.destination.is_ipv6();
        self.sends_long |= is_whole && outer.len + len > least;
    }

    /// Returns the number of queued messages.
    pub(in crate::live) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Accepts a frame, which is sent by the next [`SocketSender::flush`] at the latest.
    pub(in crate::live) fn send(
        &mut self,
        socket: &mut DatagramSocket,
        slices: &[&[u8]],
        meta: &Meta,
        outer: Outer,
        stats: &mut SocketStats,
    ) -> io::Result<Transmitted> {
        if meta.gso.is_some()
            && let Some(sent) = self.send_superframe(socket, slices, meta, outer, stats)?
        {
            return Ok(sent);
        }
        if self.waiting() >= QUEUE_MAX
            && self.flush(socket, stats)? == Transmitted::NoRoom
            && self.waiting() >= QUEUE_MAX
        {
            return Ok(Transmitted::NoRoom);
        }
        self.enqueue(slices, meta, outer);
        Ok(Transmitted::Taken)
    }

    /// Queues a copy of one packet for [`SocketSender::flush`]. The kernel computes the outer
    /// checksum.
    fn enqueue(&mut self, slices: &[&[u8]], meta: &Meta, outer: Outer) {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        let mut skipped = outer.len;
        for slice in slices {
            bytes.extend_from_slice(slice.get(skipped..).unwrap_or_default());
            skipped = 0;
        }
        if let Checksum::Partial { start, offset } = meta.checksum
            && let Some(start) = usize::from(start).checked_sub(outer.len)
        {
            // If the checksum cannot be completed, it stays wrong, and the receiver drops the packet.
            let _ = checksum::complete(&mut bytes, start as u16, offset);
        }
        self.note(&outer, bytes.len());
        self.recent.sent(outer.built, [&bytes[..]].into_iter());
        self.queue.push_back(Message { bytes, outer, segment_bytes: None });
    }

    /// Sends the packets of a superframe without copying the payload. If the frame cannot be segmented, returns `None`
    /// and does not accept it.
    fn send_superframe(
        &mut self,
        socket: &mut DatagramSocket,
        slices: &[&[u8]],
        meta: &Meta,
        outer: Outer,
        stats: &mut SocketStats,
    ) -> io::Result<Option<Transmitted>> {
        if self.flush(socket, stats)? == Transmitted::NoRoom {
            return Ok(Some(Transmitted::NoRoom));
        }
        let mut head = core::mem::take(&mut self.head);
        let mut headers = core::mem::take(&mut self.headers);
        let (first, rest) = slices.split_first().map_or((&[][..], slices), |(f, r)| (*f, r));
        // If each slice contains one packet, the slices are copied as a whole.
        let is_slice = meta.gso.is_some_and(|gso| gso.size == GsoSize::Parts);
        let copied = if is_slice { first.len() } else { first.len().min(HEADER_BYTES_MAX) };
        let (first, behind) = first.split_at(copied);
        head.clear();
        head.extend_from_slice(first);
        // The kernel computes the outer UDP checksum, so it need not be summed here.
        if outer.built == BuiltHeaders::Udp
            && let Some(field) = head.get_mut(outer.len - udp::HEADER_LEN..outer.len)
        {
            field[udp::field::CHECKSUM].fill(0);
        }
        let mut whole: Vec<&[u8]> = crate::egress::reused(core::mem::take(&mut self.slices));
        whole.extend([&head[..], behind]);
        whole.extend_from_slice(rest);
        let cut = Segments::new(&whole, meta, LinkType::Raw, &self.ports, Outgoing::COMPLETE);
        let sent = match cut {
            Ok(segments) => {
                self.send_segments(socket, segments, &mut headers, outer, stats).map(Some)
            }
            Err(_) => Ok(None),
        };
        self.slices = crate::egress::reused(whole);
        (self.head, self.headers) = (head, headers);
        sent
    }

    fn send_segments(
        &mut self,
        socket: &mut DatagramSocket,
        mut segments: Segments<'_>,
        headers: &mut Vec<u8>,
        outer: Outer,
        stats: &mut SocketStats,
    ) -> io::Result<Transmitted> {
        let room = segments.remaining() as usize * HEADER_BYTES_MAX;
        if headers.len() < room {
            headers.resize(room, 0);
        }
        let mut payload: Vec<&[u8]> = crate::egress::reused(core::mem::take(&mut self.payload));
        self.packets.clear();
        for header in headers.chunks_exact_mut(HEADER_BYTES_MAX) {
            let Ok(Some(segment)) = segments.scatter_next(header, |slice| payload.push(slice))
            else {
                break;
            };
            let len = segment.len().saturating_sub(outer.len);
            self.note(&outer, len);
            self.packets.push((payload.len(), segment.header_len, len));
        }
        let mut parts: Vec<IoSlice<'_>> = reused(core::mem::take(&mut self.parts));
        self.group(headers, &payload, &outer, &mut parts);
        let sent = self.send_groups(socket, &parts, outer, stats);
        self.parts = reused(parts);
        self.payload = crate::egress::reused(payload);
        sent
    }

    /// Groups packets of equal length into messages, up to the kernel's limits.
    fn group<'a>(
        &mut self,
        headers: &'a [u8],
        payload: &[&'a [u8]],
        outer: &Outer,
        parts: &mut Vec<IoSlice<'a>>,
    ) {
        self.groups.clear();
        let mut from = 0;
        for ((to, header_len, len), header) in
            self.packets.iter().zip(headers.chunks_exact(HEADER_BYTES_MAX))
        {
            let slices = payload.get(from..*to).unwrap_or_default();
            from = *to;
            let start = parts.len();
            parts.push(IoSlice::new(header.get(outer.len..*header_len).unwrap_or_default()));
            parts.extend(slices.iter().map(|slice| IoSlice::new(slice)));
            let end = parts.len();
            if self.recent.is_remembering() {
                self.recent.sent(outer.built, parts[start..].iter().map(|part| &part[..]));
            }
            if let Some(group) = self.groups.last_mut()
                && self.segments
                && group.takes(*len, end)
            {
                group.parts.end = end;
                group.datagrams += 1;
                group.bytes += len;
            } else {
                let segment_bytes = u16::try_from(*len).unwrap_or(u16::MAX);
                self.groups.push(DatagramGroup {
                    parts: start..end,
                    datagrams: 1,
                    bytes: *len,
                    segment_bytes,
                });
            }
        }
    }

    fn send_groups(
        &mut self,
        socket: &mut DatagramSocket,
        parts: &[IoSlice<'_>],
        outer: Outer,
        stats: &mut SocketStats,
    ) -> io::Result<Transmitted> {
        socket.set_dont_fragment(outer.dont_fragment)?;
        let mut sent = 0;
        let refused = loop {
            let left = self.groups.get(sent..).unwrap_or_default();
            if left.is_empty() {
                return Ok(Transmitted::Taken);
            }
            let mut messages = [datagram(&outer, &[], None); BATCH_MAX];
            for (message, group) in messages.iter_mut().zip(left) {
                message.parts = parts.get(group.parts.clone()).unwrap_or_default();
                message.segment_bytes = (group.datagrams > 1).then_some(group.segment_bytes);
            }
            match socket.send_batch(&messages[..left.len().min(BATCH_MAX)]) {
                Ok(count) => {
                    let datagrams: usize = left.iter().take(count).map(|g| g.datagrams).sum();
                    stats.count(SocketEvent::TransmitMessage, count as u64);
                    stats.count(SocketEvent::TransmitDatagram, datagrams as u64);
                    sent += count;
                }
                Err(error) => break error,
            }
        };
        if sent == 0 && ErrorClass::of(&refused) == ErrorClass::Later {
            return Ok(Transmitted::NoRoom);
        }
        // The remaining messages are queued; `flush` sends them, or drops and counts them.
        for group in self.groups.get(sent..).unwrap_or_default() {
            let mut bytes = self.spare.pop().unwrap_or_default();
            bytes.clear();
            let parts = parts.get(group.parts.clone()).unwrap_or_default();
            parts.iter().for_each(|part| bytes.extend_from_slice(part));
            let segment_bytes = (group.datagrams > 1).then_some(group.segment_bytes);
            self.queue.push_back(Message { bytes, outer, segment_bytes });
        }
        let _ = self.flush(socket, stats)?;
        Ok(Transmitted::Taken)
    }

    /// Sends queued messages. A message that the kernel refuses is split into datagrams, or dropped and counted; the
    /// messages after it are still sent.
    pub(in crate::live) fn flush(
        &mut self,
        socket: &mut DatagramSocket,
        stats: &mut SocketStats,
    ) -> io::Result<Transmitted> {
        while let Some(first) = self.queue.front() {
            let dont_fragment = first.outer.dont_fragment;
            socket.set_dont_fragment(dont_fragment)?;
            let mut parts = [[IoSlice::new(&[])]; BATCH_MAX];
            let mut messages = [first.described(&[]); BATCH_MAX];
            let alike = self.queue.iter();
            let alike = alike.take_while(|message| message.outer.dont_fragment == dont_fragment);
            let mut count = 0;
            for (part, message) in parts.iter_mut().zip(alike.clone()) {
                *part = [IoSlice::new(&message.bytes)];
                count += 1;
            }
            for ((described, part), message) in messages.iter_mut().zip(&parts).zip(alike) {
                *described = message.described(part);
            }
            match socket.send_batch(&messages[..count]) {
                Ok(0) => return Ok(Transmitted::NoRoom),
                Ok(sent) => {
                    stats.count(SocketEvent::TransmitMessage, sent as u64);
                    for message in self.queue.drain(..sent.min(self.queue.len())) {
                        stats.count(SocketEvent::TransmitDatagram, message.datagrams() as u64);
                        self.spare.push(message.bytes);
                    }
                    if core::mem::take(&mut self.suspects_segments) {
                        self.segments = false;
                        stats.count(SocketEvent::TransmitNarrowed, 1);
                    }
                }
                Err(error) if ErrorClass::of(&error) == ErrorClass::Later => {
                    return Ok(Transmitted::NoRoom);
                }
                Err(error) => self.refused(error, stats)?,
            }
        }
        Ok(Transmitted::Taken)
    }

    /// Handles the kernel's error for the first queued message.
    fn refused(&mut self, error: io::Error, stats: &mut SocketStats) -> io::Result<()> {
        let class = ErrorClass::of(&error);
        let event = match class {
            ErrorClass::Malformed | ErrorClass::Forbidden | ErrorClass::Unsupported => {
                SocketEvent::TransmitRefused
            }
            ErrorClass::TooLong => SocketEvent::TransmitTooLong,
            ErrorClass::Down | ErrorClass::Unreachable => SocketEvent::TransmitUnreachable,
            ErrorClass::Exhausted => SocketEvent::TransmitNoMemory,
            ErrorClass::Later | ErrorClass::Gone | ErrorClass::Other => return Err(error),
        };
        let Some(message) = self.queue.pop_front() else { return Ok(()) };
        let datagrams = message.datagrams();
        let Message { bytes, outer, segment_bytes } = message;
        // `EIO` means that the device cannot compute checksums, `EINVAL` that the kernel accepts fewer datagrams or
        // none (rule S22), and `EMSGSIZE` that the datagrams must be fragmented. An interface that is down (`ENETDOWN`)
        // may come up again.
        let suspects = matches!(class, ErrorClass::Malformed | ErrorClass::Unsupported)
            || is_device_failure(&error);
        let is_too_long = class == ErrorClass::TooLong;
        self.suspects_segments = suspects && segment_bytes.is_some();
        match segment_bytes.filter(|_| suspects || is_too_long) {
            Some(segment_bytes) => {
                stats.count(SocketEvent::TransmitCutAgain, 1);
                for datagram in bytes.chunks(segment_bytes.into()).rev() {
                    let mut bytes = self.spare.pop().unwrap_or_default();
                    bytes.clear();
                    bytes.extend_from_slice(datagram);
                    self.queue.push_front(Message { bytes, outer, segment_bytes: None });
                }
            }
            // The MTU of the link has decreased since the packet was encapsulated.
            None if is_too_long && outer.dont_fragment => {
                stats.count(SocketEvent::TransmitFragmented, 1);
                let outer = Outer { dont_fragment: false, ..outer };
                self.queue.push_front(Message { bytes, outer, segment_bytes: None });
                return Ok(());
            }
            None => stats.count(event, datagrams as u64),
        }
        self.spare.push(bytes);
        Ok(())
    }
}

impl DatagramGroup {
    /// Returns whether the group can take another datagram of `len` bytes. `end` is the index after the last part of
    /// the group, including this datagram.
    fn takes(&self, len: usize, end: usize) -> bool {
        let size = usize::from(self.segment_bytes);
        // Only the last datagram may be shorter.
        let is_open = self.bytes == self.datagrams * size && len <= size;
        let is_short = self.datagrams < SEGMENTS_MAX && self.bytes + len <= MESSAGE_BYTES_MAX;
        is_open && is_short && end - self.parts.start <= PARTS_MAX
    }
}

/// Creates a message for a socket.
fn datagram<'a>(
    outer: &Outer,
    parts: &'a [IoSlice<'a>],
    segment_bytes: Option<u16>,
) -> Datagram<'a> {
    Datagram {
        parts,
        destination: outer.destination,
        traffic_class: outer.traffic_class,
        hop_limit: outer.hop_limit,
        segment_bytes,
        source: None,
    }
}

/// Maximum number of datagrams of one message (`UDP_MAX_SEGMENTS` before Linux 6.9).
const SEGMENTS_MAX: usize = 64;
/// Maximum length of one message in bytes: the payload of an IPv4 datagram.
const MESSAGE_BYTES_MAX: usize = 65535 - 20 - 8;
/// Maximum number of parts of one message (`UIO_MAXIOV` is 1024).
const PARTS_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};

    use super::*;

    /// Linux error codes.
    const EIO: i32 = 5;
    const EAGAIN: i32 = 11;
    const ENETDOWN: i32 = 100;
    const ENOBUFS: i32 = 105;

    /// Returns a sender with one queued message that contains three datagrams.
    fn sender() -> SocketSender {
        let mut sender = SocketSender::new(Ports::ASSIGNED, true);
        let outer = Outer {
            built: BuiltHeaders::Udp,
            source_port: 1,
            destination: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9),
            protocol: 17,
            traffic_class: 0,
            hop_limit: 64,
            dont_fragment: false,
            len: 28,
        };
        let message = Message { bytes: vec![7; 250], outer, segment_bytes: Some(100) };
        sender.queue.push_back(message);
        sender
    }

    #[test]
    fn an_interface_that_is_down_loses_the_message_and_keeps_segmentation() {
        let (mut sender, mut stats) = (sender(), SocketStats::default());
        sender.refused(io::Error::from_raw_os_error(ENETDOWN), &mut stats).unwrap();
        assert_eq!((sender.waiting(), sender.suspects_segments), (0, false));
        assert_eq!(stats.events(SocketEvent::TransmitUnreachable), 3);
        assert_eq!(stats.events(SocketEvent::TransmitCutAgain), 0);
    }

    #[test]
    fn a_device_that_fails_gets_the_datagrams_one_by_one() {
        let (mut sender, mut stats) = (sender(), SocketStats::default());
        sender.refused(io::Error::from_raw_os_error(EIO), &mut stats).unwrap();
        assert_eq!((sender.waiting(), sender.suspects_segments), (3, true));
        assert_eq!(stats.events(SocketEvent::TransmitCutAgain), 1);
    }

    #[test]
    fn a_full_queue_keeps_the_message() {
        for code in [ENOBUFS, EAGAIN] {
            let (mut sender, mut stats) = (sender(), SocketStats::default());
            let error = io::Error::from_raw_os_error(code);
            assert_eq!(
                ErrorClass::of(&error),
                ErrorClass::Later,
                "flush returns NoRoom for this error"
            );
            assert!(sender.refused(error, &mut stats).is_err(), "the error is not a refusal");
            assert_eq!((sender.waiting(), sender.suspects_segments), (1, false));
            assert_eq!(stats, SocketStats::default());
        }
    }
}
