//! Records of the packets in a coalescer.

use grosso_io::PortBuffer;

/// Records of the packets in a coalescer: what a capture says of them, beside what merging asks for.
///
/// A record stands at a place that is written in front of its packet, in the packet's buffer. A buffer keeps its place,
/// so that none is allocated once there are enough.
#[derive(Debug)]
pub(crate) struct Records<R> {
    records: Vec<R>,
    /// Memory of packets that left, each with its place.
    free: Vec<Vec<u8>>,
}

impl<R> Default for Records<R> {
    fn default() -> Self {
        Self { records: Vec::new(), free: Vec::new() }
    }
}

impl<R: Default> Records<R> {
    /// A buffer with a copy of a packet, and its record to fill, which may be that of a packet that left.
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

    /// The record of a packet.
    ///
    /// # Panics
    /// If the buffer is not from here.
    pub(crate) fn of(&self, buffer: &PortBuffer) -> &R {
        &self.records[place(buffer)]
    }

    /// The same, to change it.
    ///
    /// # Panics
    /// If the buffer is not from here.
    pub(crate) fn of_mut(&mut self, buffer: &PortBuffer) -> &mut R {
        &mut self.records[place(buffer)]
    }

    /// Takes back the buffer of a packet that left, whose record is another's from here on.
    pub(crate) fn give_back(&mut self, buffer: PortBuffer) {
        self.free.extend(buffer.into_own());
    }
}

/// The place that is written in front of a packet; none that there is if there is no room for one.
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
