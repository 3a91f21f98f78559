//! Deliveries: what leaves the coalescer.

use crate::{
    acknowledge::{Record, Summary},
    coalesce::{
        pool::{List, Part, Pool},
        reason::Close,
    },
    meta::Meta,
};

/// Takes what a coalescer delivers, in order. Any `FnMut(Delivery<'_, B>)` is one.
pub trait Sink<B> {
    /// Takes one frame: a superframe, or a packet as it came.
    fn deliver(&mut self, delivery: Delivery<'_, B>);

    /// Takes acknowledgments of one flow that leave together; as the packets that they are, unless the sink has a use
    /// for their records.
    fn deliver_vector(&mut self, mut vector: Vector<'_, B>)
    where
        B: AsRef<[u8]>,
    {
        while let Some(packet) = vector.next_packet() {
            self.deliver(packet);
        }
    }

    /// Takes back the buffer of a packet that was dropped: an acknowledgment that a later one replaces.
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

/// A superframe, or a packet as it came: headers and parts, ready for a vectored write.
///
/// Its buffers belong to the receiver, who takes them with [`Delivery::next_part`] or
/// [`Delivery::into_parts`]; those not taken are dropped with the delivery.
#[must_use]
#[derive(Debug)]
pub struct Delivery<'a, B> {
    header: &'a [u8],
    first: Option<Part<B>>,
    rest: List,
    pool: &'a mut Pool<B>,
    summary: Option<&'a Summary>,
    /// Metadata of the frame; a superframe has [`Meta::gso`] and a partial checksum.
    pub meta: Meta,
    /// Wire packets that the frame stands for.
    pub packets: u32,
    /// Bytes of the frame.
    pub len: usize,
    /// Reason for which it left now.
    pub closed: Close,
}

impl<'a, B: AsRef<[u8]>> Delivery<'a, B> {
    #[inline]
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

    #[inline]
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

    /// Whether packets were joined; otherwise the only part is the packet as it came.
    #[inline]
    #[must_use]
    pub fn is_joined(&self) -> bool {
        !self.header.is_empty()
    }

    /// The rewritten headers of a superframe; empty when the packet is as it came.
    #[inline]
    #[must_use]
    pub fn header(&self) -> &[u8] {
        self.header
    }

    /// Summary of what the packets of a superframe acknowledged one by one, if it does not say so itself: by a profile
    /// that lets the last one overwrite the others.
    #[must_use]
    pub fn acknowledged(&self) -> Option<&Summary> {
        self.summary
    }

    /// The frame as slices, header first: what a vectored write wants.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let header = Some(self.header).filter(|header| !header.is_empty());
        header.into_iter().chain(self.parts().map(Part::bytes))
    }

    /// The parts behind the header, in order. The payload of every packet is one part.
    pub fn parts(&self) -> impl Iterator<Item = &Part<B>> {
        self.first.iter().chain(self.pool.iter(self.rest))
    }

    /// Takes the next part, and with it its buffer.
    #[inline]
    pub fn next_part(&mut self) -> Option<Part<B>> {
        self.first.take().or_else(|| self.pool.pop(&mut self.rest))
    }

    /// Takes the parts, and with them the buffers, in the order in which they were pushed.
    pub fn into_parts(mut self) -> impl Iterator<Item = Part<B>> {
        core::iter::from_fn(move || self.next_part())
    }

    /// Copies the frame behind what `out` already holds.
    pub fn copy_to(&self, out: &mut alloc::vec::Vec<u8>) {
        out.reserve(self.len);
        self.slices().for_each(|slice| out.extend_from_slice(slice));
    }
}

impl<B> Drop for Delivery<'_, B> {
    /// Gives the slots of parts that nobody took back to the pool.
    #[inline]
    fn drop(&mut self) {
        while self.pool.pop(&mut self.rest).is_some() {}
    }
}

/// Acknowledgments without data of one flow that leave together: the packets as they came, and their records.
///
/// Its buffers belong to the receiver, who takes them with [`Vector::next_packet`]; those not taken are dropped with
/// the vector.
#[must_use]
#[derive(Debug)]
pub struct Vector<'a, B> {
    first: Option<Part<B>>,
    rest: List,
    pool: &'a mut Pool<B>,
    records: &'a [Record],
    taken: usize,
    meta: Meta,
    /// Reason for which they left now.
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

    /// Records of what they say, in order of arrival, whether their packets were taken or not.
    #[must_use]
    pub fn records(&self) -> &'a [Record] {
        self.records
    }

    /// The packets not taken yet.
    pub fn packets(&self) -> impl Iterator<Item = &[u8]> {
        self.first.iter().chain(self.pool.iter(self.rest)).map(Part::bytes)
    }

    /// Takes the next packet, as it came.
    pub fn next_packet(&mut self) -> Option<Delivery<'_, B>> {
        let part = self.first.take().or_else(|| self.pool.pop(&mut self.rest))?;
        let timestamp_ns = self.records.get(self.taken).and_then(Record::device_ns);
        self.taken += 1;
        let meta = Meta { timestamp_ns, ..self.meta };
        Some(Delivery::single(part, meta, 1, self.closed, self.pool))
    }
}

impl<B> Drop for Vector<'_, B> {
    /// Gives the slots of packets that nobody took back to the pool.
    fn drop(&mut self) {
        while self.pool.pop(&mut self.rest).is_some() {}
    }
}

/// Facts that a train leaves with, beside its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closing<'a> {
    pub(crate) summary: Option<&'a Summary>,
    pub(crate) meta: Meta,
    pub(crate) packets: u32,
    pub(crate) len: usize,
    pub(crate) closed: Close,
}
