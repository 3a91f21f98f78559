//! Packed rings, as the front end's driver uses them.

use super::{
    DATA_BYTES, FrontEnd, GUEST, PIECES_MAX, SIZE, SLOTS, Shape, descriptor, rings, slot_at,
};

/// The driver's state for a packed ring.
#[derive(Clone, Debug)]
pub(super) struct Packed {
    /// Number of descriptors made available so far.
    next: u32,
    /// Number of descriptors returned so far.
    seen: u32,
    /// Value of `next` before the latest entry was made available.
    last: u32,
    /// Number of descriptors that the entry in each slot uses.
    slots: [u8; SLOTS as usize],
}

impl Default for Packed {
    fn default() -> Self {
        Self { next: 0, seen: 0, last: 0, slots: [0; SLOTS as usize] }
    }
}

impl Packed {
    /// Returns the position of the first descriptor that has not been returned yet, in the encoding of vhost-user
    /// messages.
    pub(super) fn base(&self) -> u32 {
        u32::from(bits(self.seen)) << 16 | u32::from(bits(self.seen))
    }

    /// Returns whether a device with this event suppression area requests a notification for the entries that were made
    /// available last.
    pub(super) fn is_asked(&self, [place, flags]: [u16; 2]) -> bool {
        match flags {
            0 => true,
            2 => place == bits(self.last),
            _ => false,
        }
    }

    /// Returns the event suppression area of a driver that wants a notification for the next used entry.
    pub(super) fn wanted(&self) -> Vec<u8> {
        [bits(self.seen), 2].map(u16::to_le_bytes).concat()
    }
}

impl FrontEnd {
    /// Makes the entry in a slot available with this many bytes. Writes the first descriptor last.
    pub(super) fn put_packed(
        &mut self,
        ring: usize,
        (slot, bytes): (u16, usize),
        shape: Shape,
        writes: u16,
    ) {
        let at = slot_at(ring, slot.into());
        let (Shape::Direct(count) | Shape::Table(count)) = shape;
        let each = bytes.div_ceil(count);
        let pieces = (0..count).map(|piece| {
            let start = (piece * each).min(bytes);
            (at + start as u64, each.min(bytes - start) as u32, writes)
        });
        let chain: Vec<_> = match shape {
            Shape::Direct(_) => pieces.take(PIECES_MAX).collect(),
            Shape::Table(count) => {
                for (number, (at_piece, length, flags)) in pieces.enumerate() {
                    let words = descriptor((at_piece, length, 0, flags));
                    self.write(at + DATA_BYTES + 16 * number as u64, &words);
                }
                vec![(at + DATA_BYTES, 16 * count as u32, 4)]
            }
        };
        let first = self.packed[ring].next;
        for (number, (address, length, flags)) in chain.iter().enumerate().rev() {
            let flags = flags | u16::from(number + 1 < chain.len());
            self.write_packed(ring, first + number as u32, (*address, *length, flags), slot);
        }
        let packed = &mut self.packed[ring];
        packed.slots[usize::from(slot)] = chain.len() as u8;
        (packed.last, packed.next) = (first, first + chain.len() as u32);
        self.available[ring] = self.available[ring].wrapping_add(1);
    }

    /// Writes one available descriptor with this address, length and flags into a packed ring.
    fn write_packed(
        &self,
        ring: usize,
        number: u32,
        (address, bytes, flags): (u64, u32, u16),
        entry: u16,
    ) {
        let [table, ..] = rings(ring).map(|at| GUEST + at);
        let laps = if is_odd(number) { AVAILABLE } else { USED };
        let words = descriptor((address, bytes, entry, flags | laps));
        self.write(table + 16 * u64::from(number % u32::from(SIZE)), &words);
    }

    /// Returns the slot of the next used entry and the number of bytes written to it.
    pub(super) fn returned_packed(&mut self, ring: usize) -> Option<(u16, usize)> {
        let (slot, bytes) = self.used_packed(ring, self.packed[ring].seen)?;
        let packed = &mut self.packed[ring];
        packed.seen += u32::from(packed.slots[usize::from(slot)]);
        self.used[ring] = self.used[ring].wrapping_add(1);
        Some((slot, bytes))
    }

    /// Returns the number of used entries so far.
    pub(super) fn count_packed(&self, ring: usize) -> u16 {
        let Packed { mut seen, slots, .. } = self.packed[ring].clone();
        let mut count = self.used[ring];
        while let Some((slot, _)) = self.used_packed(ring, seen) {
            seen += u32::from(slots[usize::from(slot)]);
            count = count.wrapping_add(1);
        }
        count
    }

    /// Returns the slot of the used entry at a position, and the number of bytes written to it.
    fn used_packed(&self, ring: usize, place: u32) -> Option<(u16, usize)> {
        if place == self.packed[ring].next {
            return None;
        }
        let [table, ..] = rings(ring).map(|at| GUEST + at);
        let words = self.read(table + 16 * u64::from(place % u32::from(SIZE)) + 8, 8);
        let number = |at: usize| u16::from_le_bytes(*words[at..].first_chunk().expect("2 bytes"));
        let laps = if is_odd(place) { AVAILABLE | USED } else { 0 };
        let is_used = number(6) & (AVAILABLE | USED) == laps;
        let bytes = u32::from_le_bytes(*words.first_chunk().expect("4 bytes"));
        is_used.then(|| (number(4), bytes as usize))
    }
}

/// Returns whether a descriptor belongs to an odd lap of the ring; the first lap is odd.
fn is_odd(number: u32) -> bool {
    (number / u32::from(SIZE)).is_multiple_of(2)
}

/// Returns a descriptor's position in the encoding of messages and events.
fn bits(number: u32) -> u16 {
    (number % u32::from(SIZE)) as u16 | u16::from(is_odd(number)) << 15
}

/// Descriptor flag whose value alternates with the laps in which the driver makes descriptors available.
const AVAILABLE: u16 = 1 << 7;
/// Descriptor flag whose value alternates with the laps in which the device uses descriptors.
const USED: u16 = 1 << 15;
