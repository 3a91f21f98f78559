//! Batches of packets to send, which also keep unused buffers.

use std::collections::VecDeque;

/// Maximum number of unused buffers that a batch keeps. Further buffers are dropped.
///
/// ```
/// use grosso_tun::{Batch, SPARES_MAX};
///
/// let mut batch = Batch::new();
/// (0..2 * SPARES_MAX).for_each(|_| batch.recycle(Vec::<u8>::new()));
/// assert_eq!(std::iter::from_fn(|| batch.spare()).count(), SPARES_MAX);
/// ```
pub const SPARES_MAX: usize = 1024;

/// List of packets to send, in order, together with unused buffers.
///
/// A send call removes exactly the packets that the device accepted and keeps their buffers for reuse. After an error,
/// and after a canceled call, the batch contains exactly the packets that were not sent: repeat the call, or
/// [`Batch::clear`] the batch to drop them.
///
/// ```
/// use grosso_tun::Batch;
///
/// let mut batch = Batch::new();
/// batch.push_copy(&[0x45; 40]);
/// batch.push(vec![0x45; 60]);
/// assert_eq!(batch.packets().map(Vec::len).collect::<Vec<_>>(), [40, 60]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch<B = Vec<u8>> {
    packets: VecDeque<B>,
    spares: Vec<B>,
}

impl<B> Batch<B> {
    /// Creates an empty batch.
    ///
    /// ```
    /// let batch = grosso_tun::Batch::<Vec<u8>>::new();
    /// assert!(batch.is_empty());
    /// ```
    #[must_use]
    pub const fn new() -> Self {
        Self { packets: VecDeque::new(), spares: Vec::new() }
    }

    /// Appends a packet.
    ///
    /// ```
    /// let mut batch = grosso_tun::Batch::new();
    /// batch.push([0x45; 40]);
    /// assert_eq!(batch.len(), 1);
    /// ```
    pub fn push(&mut self, packet: B) {
        self.packets.push_back(packet);
    }

    /// Returns the number of packets to send.
    ///
    /// ```
    /// let batch = grosso_tun::Batch::from_iter([vec![0x45; 40]]);
    /// assert_eq!(batch.len(), 1);
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Returns whether the batch contains no packets to send.
    ///
    /// ```
    /// let batch = grosso_tun::Batch::from_iter([vec![0x45; 40]]);
    /// assert!(!batch.is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Returns the packets to send, in order.
    ///
    /// ```
    /// let batch = grosso_tun::Batch::from_iter([vec![1], vec![2]]);
    /// assert!(batch.packets().eq([&[1], &[2]]));
    /// ```
    pub fn packets(&self) -> impl Iterator<Item = &B> {
        self.packets.iter()
    }

    /// Removes all packets without sending them, and keeps their buffers for reuse.
    ///
    /// ```
    /// let mut batch = grosso_tun::Batch::from_iter([vec![0x45; 40]]);
    /// batch.clear();
    /// assert!(batch.is_empty() && batch.spare().is_some());
    /// ```
    pub fn clear(&mut self) {
        while let Some(buffer) = self.packets.pop_front() {
            self.recycle(buffer);
        }
    }

    /// Takes an unused buffer out of the batch, if there is one. The buffer may still contain an old packet.
    ///
    /// ```
    /// let mut batch = grosso_tun::Batch::<Vec<u8>>::new();
    /// let buffer = batch.spare().unwrap_or_default();
    /// assert_eq!(buffer.capacity(), 0);
    /// ```
    pub fn spare(&mut self) -> Option<B> {
        self.spares.pop()
    }

    /// Adds an unused buffer. The batch keeps at most [`SPARES_MAX`] unused buffers.
    ///
    /// ```
    /// let mut batch = grosso_tun::Batch::new();
    /// batch.recycle(vec![0; 1500]);
    /// assert_eq!(batch.buffer().capacity(), 1500);
    /// ```
    pub fn recycle(&mut self, buffer: B) {
        if self.spares.len() < SPARES_MAX {
            self.spares.push(buffer);
        }
    }

    /// Removes and returns the first packet.
    pub(crate) fn pop(&mut self) -> Option<B> {
        self.packets.pop_front()
    }

    /// Moves the packets of a list to the front of the batch, in the same order.
    pub(crate) fn put_back(&mut self, packets: &mut Vec<B>) {
        packets.drain(..).rev().for_each(|packet| self.packets.push_front(packet));
    }
}

impl Batch {
    /// Returns an empty buffer, which reuses the memory of an earlier packet if possible.
    ///
    /// ```
    /// let mut batch = grosso_tun::Batch::new();
    /// let mut packet = batch.buffer();
    /// packet.extend_from_slice(&[0x45; 40]); // decrypt into it
    /// batch.push(packet);
    /// ```
    #[must_use]
    pub fn buffer(&mut self) -> Vec<u8> {
        let mut buffer = self.spare().unwrap_or_default();
        buffer.clear();
        buffer
    }

    /// Appends a copy of a packet.
    ///
    /// ```
    /// let mut batch = grosso_tun::Batch::new();
    /// batch.push_copy(&[0x45; 40]);
    /// assert_eq!(batch.len(), 1);
    /// ```
    pub fn push_copy(&mut self, packet: &[u8]) {
        let mut buffer = self.buffer();
        buffer.extend_from_slice(packet);
        self.push(buffer);
    }
}

impl<B> Default for Batch<B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<B> Extend<B> for Batch<B> {
    fn extend<I: IntoIterator<Item = B>>(&mut self, packets: I) {
        self.packets.extend(packets);
    }
}

impl<B> FromIterator<B> for Batch<B> {
    fn from_iter<I: IntoIterator<Item = B>>(packets: I) -> Self {
        Self { packets: packets.into_iter().collect(), spares: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_holds_no_old_packet() {
        let mut batch = Batch::from_iter([vec![7; 100]]);
        batch.clear();
        let buffer = batch.buffer();
        assert_eq!((buffer.len(), buffer.capacity()), (0, 100));
    }

    #[test]
    fn unused_buffers_are_bounded() {
        let mut batch = Batch::from_iter((0..2 * SPARES_MAX).map(|_| vec![0]));
        batch.clear();
        let kept = core::iter::from_fn(|| batch.spare()).count();
        assert_eq!(kept, SPARES_MAX);
    }
}
