//! Receiving of packets into the caller's buffers, with space for headers and tags around each packet.

use core::ops::Range;
use std::io;

use grosso::{
    LinkType, Meta, Ports,
    checksum::{self, Checksum},
    features::{Device, Work},
    segment::Segments,
};
use grosso_wire::Stack;

/// Maximum number of frames per receive call. This many 64 KiB frames already exceed the L1 and L2 caches.
pub(crate) const FRAMES_MAX: usize = 64;

/// Layout of the caller's buffers for [`TunReceiver::recv_into`](crate::TunReceiver::recv_into): space for the header
/// and the tag of a tunnel around each packet.
///
/// ```
/// use grosso_tun::Room;
///
/// let room = Room::new(16, 16) // a WireGuard header and an AEAD tag
///     .frames(8)
///     .packets(64); // the packets of a superframe in one buffer, for `UDP_SEGMENT`
/// # let _ = room;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    head: usize,
    tail: usize,
    pub(crate) frames: usize,
    packets: usize,
}

impl Room {
    /// Returns a layout with one packet per buffer, `head` bytes before the packet and `tail` bytes after it.
    ///
    /// ```
    /// let room = grosso_tun::Room::new(16, 16);
    /// # let _ = room;
    /// ```
    #[must_use]
    pub const fn new(head: usize, tail: usize) -> Self {
        Self { head, tail, frames: FRAMES_MAX, packets: 1 }
    }

    /// Sets the maximum number of frames per call, at least 1. A frame may be up to 64 KiB long and contain many
    /// packets.
    ///
    /// ```
    /// let room = grosso_tun::Room::new(16, 16).frames(1);
    /// # let _ = room;
    /// ```
    #[must_use]
    pub const fn frames(self, frames: usize) -> Self {
        Self { frames, ..self }
    }

    /// Sets the maximum number of packets per buffer, at least 1. The packets of a superframe are then contiguous in
    /// the buffer, as [`Datagram::segmented`](crate::Datagram::segmented) requires. Together with the space around
    /// them, they occupy at most 65,507 bytes.
    ///
    /// ```
    /// let room = grosso_tun::Room::new(16, 16).packets(64);
    /// # let _ = room;
    /// ```
    #[must_use]
    pub const fn packets(self, packets: usize) -> Self {
        Self { packets, ..self }
    }

    const fn around(self, len: usize) -> usize {
        self.head + len + self.tail
    }
}

/// Packets in one of the caller's buffers, evenly spaced.
///
/// ```no_run
/// # use grosso_tun::{Room, Tun, TunOptions};
/// # let (mut receiver, _) = Tun::<Vec<u8>>::open("vpn0", &TunOptions::new())?.split();
/// receiver.recv_into(&Room::new(16, 16), |bytes| vec![0; bytes], |mut filled| {
///     filled.packets().for_each(|range| println!("bytes {range:?}"));
///     filled.buffer.truncate(filled.bytes()); // the sealed packets
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Filled<B> {
    /// The caller's buffer. The bytes before and after each packet are unspecified.
    pub buffer: B,
    /// Metadata that applies to each packet.
    pub meta: Meta,
    head: usize,
    tail: usize,
    /// Distance in bytes between the starts of two adjacent packets.
    stride: usize,
    count: usize,
    last_len: usize,
}

impl<B> Filled<B> {
    /// Returns the ranges of the packets in the buffer, in order. All packets except the last have the same length.
    ///
    /// ```no_run
    /// # fn example(filled: grosso_tun::Filled<Vec<u8>>) {
    /// for range in filled.packets() {
    ///     println!("packet {:?}", &filled.buffer[range]);
    /// }
    /// # }
    /// ```
    pub fn packets(&self) -> impl ExactSizeIterator<Item = Range<usize>> + use<B> {
        let (stride, head, tail) = (self.stride, self.head, self.tail);
        let (last, last_len) = (self.count - 1, self.last_len);
        (0..self.count).map(move |index| {
            let start = index * stride + head;
            let len = if index == last { last_len } else { stride - head - tail };
            start..start + len
        })
    }

    /// Returns the number of bytes used in the buffer: all packets, each with the space before and after it.
    ///
    /// ```no_run
    /// # fn example(filled: grosso_tun::Filled<Vec<u8>>) {
    /// let sealed = &filled.buffer[..filled.bytes()];
    /// # }
    /// ```
    #[must_use]
    pub const fn bytes(&self) -> usize {
        (self.count - 1) * self.stride + self.head + self.last_len + self.tail
    }

    /// Returns the distance in bytes between the starts of two adjacent packets, which is the segment size for
    /// [`Datagram::segmented`](crate::Datagram::segmented).
    ///
    /// ```no_run
    /// # use grosso_tun::Datagram;
    /// # fn example(filled: grosso_tun::Filled<Vec<u8>>, to: std::net::SocketAddr) {
    /// let datagrams = Datagram::new(&filled.buffer[..filled.bytes()], to).segmented(filled.stride());
    /// # }
    /// ```
    #[must_use]
    pub const fn stride(&self) -> usize {
        self.stride
    }
}

/// Writes a frame into the caller's buffers, as packets or as the superframes that `takes` permits.
pub(super) fn fill<B: AsMut<[u8]>>(
    frame: &[u8],
    meta: &Meta,
    link: LinkType,
    (takes, stack): (&Device, &mut Stack),
    room: &Room,
    make: &mut dyn FnMut(usize) -> B,
    out: &mut dyn FnMut(Filled<B>),
) -> io::Result<()> {
    let may_need_work = meta.gso.is_some() || matches!(meta.checksum, Checksum::Partial { .. });
    let work = match may_need_work {
        true => {
            meta.dissect_into(frame, link, &Ports::ASSIGNED, stack);
            takes.work(frame, frame.len(), stack, meta)
        }
        false => Work::Nothing,
    };
    let slices = [frame];
    if let Work::Segment(outgoing) = work
        && let Ok(segments) = Segments::new(&slices, meta, link, &Ports::ASSIGNED, outgoing)
    {
        return fill_segments(segments, room, make, out);
    }
    let mut buffer = make_checked(room.around(frame.len()), make)?;
    let mut meta = *meta;
    let packet = &mut buffer.as_mut()[room.head..room.head + frame.len()];
    packet.copy_from_slice(frame);
    if let (Work::Complete, Checksum::Partial { start, offset }) = (work, meta.checksum)
        && checksum::complete(packet, start, offset).is_ok()
    {
        meta.checksum = Checksum::None;
    }
    out(Filled {
        buffer,
        meta,
        head: room.head,
        tail: room.tail,
        stride: room.around(frame.len()),
        count: 1,
        last_len: frame.len(),
    });
    Ok(())
}

fn fill_segments<B: AsMut<[u8]>>(
    mut segments: Segments<'_>,
    room: &Room,
    make: &mut dyn FnMut(usize) -> B,
    out: &mut dyn FnMut(Filled<B>),
) -> io::Result<()> {
    let len_max = segments.packet_len_max();
    let stride = room.around(len_max);
    let per_buffer = room.packets.min(CONTIGUOUS_BYTES_MAX / stride).max(1);
    while segments.remaining() > 0 {
        let room_for = per_buffer.min(segments.remaining() as usize);
        let mut buffer = make_checked(room_for * stride, make)?;
        let (mut count, mut last) = (0, None);
        for slot in buffer.as_mut().chunks_mut(stride).take(room_for) {
            let Ok(Some(segment)) = segments.write_next(&mut slot[room.head..]) else { break };
            count += 1;
            last = Some(segment);
            if segment.len() < len_max {
                break;
            }
        }
        let Some(last) = last else { return Ok(()) };
        let (head, tail, last_len) = (room.head, room.tail, last.len());
        out(Filled { buffer, meta: last.meta, head, tail, stride, count, last_len });
    }
    Ok(())
}

fn make_checked<B: AsMut<[u8]>>(bytes: usize, make: &mut dyn FnMut(usize) -> B) -> io::Result<B> {
    let mut buffer = make(bytes);
    let len = buffer.as_mut().len();
    if len < bytes {
        let why = format!("a buffer of {bytes} bytes was requested, but `make` returned {len}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    Ok(buffer)
}

/// Maximum number of bytes occupied by the packets in one buffer, equal to the payload of the longest UDP message over
/// IPv4 (rule S21).
const CONTIGUOUS_BYTES_MAX: usize = 65_507;

#[cfg(test)]
mod tests;
