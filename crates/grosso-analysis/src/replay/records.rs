//! Stores metadata for the packets held by a coalescer.

use grosso_io::PortBuffer;

/// Capture metadata that merging does not need, for the packets in a coalescer.
///
/// Each packet's buffer begins with the index of its record. Buffers are reused along with their index, so no memory is
/// allocated once there are enough of them.
#[derive(Debug)]
pub(crate) struct Records<R> {
    records: Vec<R>,
    /// Buffers of packets that have been delivered, each with its index.
    free: Vec<Vec<u8>>,
}

impl<R> Default for Records<R> {
    fn default() -> Self {
        Self { records: Vec::new(), free: Vec::new() }
    }
}

impl<R: Default> Records<R> {
    /// Copies a packet into a buffer. Returns the buffer and its record, which may still contain the data of an earlier
    /// packet.
    pub(crate) fn add(&mut self, packet: &[u8]) -> (PortBuffer, &mut R) {
        let mut memory = self.free.pop().unwrap_or_else(|| {
            self.records.push(R::default());
            (self.records.len() - 1).to_ne_bytes().to_vec()
        });
        memory.truncate(PLACE_BYTES);
        memory.extend_from_slice(packet);
        let frame = PLACE_BYTES..memory.len();
        let buffer = PortBuffer::filled(memory, frame);
        let record = self.of_mut(&buffer);
        (buffer, record)
    }

    /// Returns the record of the packet in `buffer`.
    ///
    /// # Panics
    /// Panics if the buffer is not from [`Self::add`].
    pub(crate) fn of(&self, buffer: &PortBuffer) -> &R {
        &self.records[place(buffer)]
    }

    /// Returns a mutable reference to the record of the packet in `buffer`.
    ///
    /// # Panics
    /// Panics if the buffer is not from [`Self::add`].
    pub(crate) fn of_mut(&mut self, buffer: &PortBuffer) -> &mut R {
        &mut self.records[place(buffer)]
    }

    /// Returns the buffer of a delivered packet to the pool. Its record can then be used for another packet.
    pub(crate) fn give_back(&mut self, buffer: PortBuffer) {
        self.free.extend(buffer.into_own());
    }
}

/// Returns the index stored in front of a packet, or `usize::MAX` if the buffer is too small to contain one.
fn place(buffer: &PortBuffer) -> usize {
    buffer.before().first_chunk().map_or(usize::MAX, |place| usize::from_ne_bytes(*place))
}

const PLACE_BYTES: usize = size_of::<usize>();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_has_its_record_until_its_buffer_comes_back() {
        let mut records = Records::<u64>::default();
        let add = |records: &mut Records<u64>, packet: &[u8], number| {
            let (buffer, record) = records.add(packet);
            *record = number;
            assert_eq!(buffer.as_ref(), packet);
            buffer
        };
        let one = add(&mut records, &[1; 9], 1);
        let two = add(&mut records, &[], 2);
        assert_eq!((*records.of(&one), *records.of(&two)), (1, 2));
        records.give_back(one);
        let three = add(&mut records, &[3; 99], 3);
        assert_eq!((*records.of(&two), *records.of(&three), records.records.len()), (2, 3, 2));
    }
}
