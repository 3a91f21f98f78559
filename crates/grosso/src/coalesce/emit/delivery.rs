//! Deliveries: the frames that leave the coalescer.

use crate::{
    acknowledge::{Record, Summary},
    coalesce::{
        emit::reason::Close,
        slots::pool::{List, Part, Pool},
    },
    meta::Meta,
};

/// Receiver of a coalescer's output, in order. Every `FnMut(Delivery<'_, B>)` implements this trait.
pub trait Sink<B> {
    /// Receives one frame: a superframe or an unchanged packet.
    fn deliver(&mut self, delivery: Delivery<'_, B>);

    /// Receives acknowledgments of one flow that are delivered together. The default implementation passes each packet
    /// to [`Self::deliver`]. Implement this function to use the records of the acknowledgments.
    fn deliver_vector(&mut self, mut vector: Vector<'_, B>)
    where
        B: AsRef<[u8]>,
    {
        while let Some(packet) = vector.next_packet() {
            self.deliver(packet);
        }
    }

    /// Receives the buffer of an acknowledgment that was dropped because a later one made it redundant.
    fn discard(&mut self, buffer: B) {
        drop(buffer);
    }
}

impl<B, F: FnMut(Delivery<'_, B>) + ?Sized> Sink<B> for F {
    #[inline]
    fn deliver(&mut self, delivery: Delivery<'_, B>) {
        self(delivery);
    }
}

/// A superframe or an unchanged packet: headers and parts, ready for a vectored write (`writev`).
///
/// The receiver owns the buffers and takes them with [`Delivery::next_part`] or [`Delivery::into_parts`]; buffers that
/// it does not take are dropped with the delivery.
///
/// ```
/// use grosso::{CoalesceOptions, Coalescer, Delivery, Frame, LinkType};
///
/// let mut coalescer = Coalescer::new(CoalesceOptions::new(LinkType::Ethernet, 0x5eed));
/// let mut free = Vec::new();
/// coalescer.push(Frame::new(vec![0; 60]), 0, &mut |delivery: Delivery<'_, Vec<u8>>| {
///     let bytes: usize = delivery.slices().map(<[u8]>::len).sum(); // or write the slices
///     free.extend(delivery.into_parts().map(|part| part.buffer));
/// #   assert_eq!(bytes, 60);
/// });
/// ```
#[must_use]
#[derive(Debug)]
pub struct Delivery<'a, B> {
    header: &'a [u8],
    first: Option<Part<B>>,
    rest: List,
    pool: &'a mut Pool<B>,
    summary: Option<&'a Summary>,
    /// Metadata of the frame. A superframe has [`Meta::gso`] and a partial checksum.
    pub meta: Meta,
    /// Number of wire packets that the frame represents.
    pub packets: u32,
    /// Length of the frame in bytes.
    pub len: usize,
    /// Reason for the delivery.
    pub closed: Close,
}

impl<'a, B: AsRef<[u8]>> Delivery<'a, B> {
    pub(crate) fn single(
        part: Part<B>,
        meta: Meta,
        packets: u32,
        closed: Close,
        pool: &'a mut Pool<B>,
    ) -> Self {
        let len = part.range().len();
        Self {
            header: &[],
            first: Some(part),
            rest: List::EMPTY,
            pool,
            summary: None,
            meta,
            packets,
            len,
            closed,
        }
    }

    pub(crate) fn train(
        header: &'a [u8],
        first: Part<B>,
        rest: List,
        pool: &'a mut Pool<B>,
        closing: Closing<'a>,
    ) -> Self {
        let Closing { summary, meta, packets, len, closed } = closing;
        Self { header, first: Some(first), rest, pool, summary, meta, packets, len, closed }
    }

    /// Returns whether the frame is a superframe. If not, the delivery has only one part, which is the unchanged
    /// packet.
    #[must_use]
    pub fn is_joined(&self) -> bool {
        !self.header.is_empty()
    }

    /// Returns the rewritten headers of a superframe. The result is empty if the packet is unchanged.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        self.header
    }

    /// Returns a summary of the merged acknowledgments, if the profile keeps only the last one in the superframe.
    #[must_use]
    pub fn acknowledged(&self) -> Option<&Summary> {
        self.summary
    }

    /// Returns the slices of the frame in order, starting with the headers, for a vectored write.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let header = Some(self.header).filter(|header| !header.is_empty());
        header.into_iter().chain(self.parts().map(Part::bytes))
    }

    /// Returns the parts after the headers, in order. Each part is the payload of one packet.
    pub fn parts(&self) -> impl Iterator<Item = &Part<B>> {
        self.first.iter().chain(self.pool.iter(self.rest))
    }

    /// Takes the next part with its buffer.
    pub fn next_part(&mut self) -> Option<Part<B>> {
        self.first.take().or_else(|| self.pool.pop(&mut self.rest))
    }

    /// Takes all parts with their buffers, in the order in which they were pushed.
    pub fn into_parts(mut self) -> impl Iterator<Item = Part<B>> {
        core::iter::from_fn(move || self.next_part())
    }

    /// Appends the whole frame to `out`.
    pub fn copy_to(&self, out: &mut alloc::vec::Vec<u8>) {
        out.reserve(self.len);
        self.slices().for_each(|slice| out.extend_from_slice(slice));
    }
}

impl<B> Drop for Delivery<'_, B> {
    /// Returns the slots of the remaining parts to the pool.
    fn drop(&mut self) {
        while self.pool.pop(&mut self.rest).is_some() {}
    }
}

/// Pure acknowledgments of one flow that are delivered together: the unchanged packets and their records.
///
/// The receiver owns the buffers and takes them with [`Vector::next_packet`]; buffers that it does not take are dropped
/// with the vector.
#[must_use]
#[derive(Debug)]
pub struct Vector<'a, B> {
    first: Option<Part<B>>,
    rest: List,
    pool: &'a mut Pool<B>,
    records: &'a [Record],
    taken: usize,
    meta: Meta,
    /// Reason for the delivery.
    pub closed: Close,
}

impl<'a, B: AsRef<[u8]>> Vector<'a, B> {
    pub(crate) fn new(
        first: Part<B>,
        rest: List,
        pool: &'a mut Pool<B>,
        records: &'a [Record],
        meta: Meta,
        closed: Close,
    ) -> Self {
        Self { first: Some(first), rest, pool, records, taken: 0, meta, closed }
    }

    /// Returns the records of the acknowledgments in order of arrival, including the records of packets that were
    /// taken.
    #[must_use]
    pub fn records(&self) -> &'a [Record] {
        self.records
    }

    /// Returns the packets that have not been taken yet.
    pub fn packets(&self) -> impl Iterator<Item = &[u8]> {
        self.first.iter().chain(self.pool.iter(self.rest)).map(Part::bytes)
    }

    /// Takes the next packet, unchanged.
    pub fn next_packet(&mut self) -> Option<Delivery<'_, B>> {
        let part = self.first.take().or_else(|| self.pool.pop(&mut self.rest))?;
        let timestamp_ns = self.records.get(self.taken).and_then(Record::device_ns);
        self.taken += 1;
        let meta = Meta { timestamp_ns, ..self.meta };
        Some(Delivery::single(part, meta, 1, self.closed, self.pool))
    }
}

impl<B> Drop for Vector<'_, B> {
    /// Returns the slots of the remaining packets to the pool.
    fn drop(&mut self) {
        while self.pool.pop(&mut self.rest).is_some() {}
    }
}

/// Properties of a train at the time of delivery, except its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closing<'a> {
    pub(crate) summary: Option<&'a Summary>,
    pub(crate) meta: Meta,
    pub(crate) packets: u32,
    pub(crate) len: usize,
    pub(crate) closed: Close,
}
