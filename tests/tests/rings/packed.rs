//! Tests packed rings where they differ from split rings.

use std::collections::VecDeque;

use grosso_vhost::{
    features,
    ring::{Addresses, Base, ChainFault, Ring, SIZE_MAX, Sent},
};
use proptest::prelude::*;

use crate::{
    AVAILABLE, AVAILABLE_FLAG, FORMS, Guest, LAPS, MEMORY_BYTES, NEXT, PLACES, TABLE, TABLED, USED,
    USED_FLAG, WRITTEN, data, give, received,
};

const PACKED: u64 = FORMS[1];
/// Position at which a ring started, as QEMU reports it for a ring whose back end has died. It is not trusted.
const BEGAN: Base = Base::Told(0x8000_8000);

#[test]
fn a_ring_has_any_size_and_its_parts_are_aligned_and_in_memory() {
    let guest = Guest::new(PACKED, 8, 0);
    let memory = guest.memory();
    let with = |size, places: Addresses| Ring::new(&memory, &places, size, BEGAN, PACKED).is_some();
    for (size, is_right) in
        [(0, false), (1, true), (3, true), (255, true), (SIZE_MAX, true), (SIZE_MAX + 1, false)]
    {
        assert_eq!(with(size, PLACES), is_right, "{size}");
    }
    for by in [0_u64, 1, 2, 4, 8, 16] {
        let aligned = |to| by.is_multiple_of(to);
        assert_eq!(with(8, Addresses { descriptors: by, ..PLACES }), aligned(16), "{by}");
        assert_eq!(with(8, Addresses { available: AVAILABLE + by, ..PLACES }), aligned(4), "{by}");
        assert_eq!(with(8, Addresses { used: USED + by, ..PLACES }), aligned(4), "{by}");
    }
    for (bytes, place) in [
        (16 * 5, (|at| Addresses { descriptors: at, ..PLACES }) as fn(u64) -> Addresses),
        (4, |at| Addresses { available: at, ..PLACES }),
        (4, |at| Addresses { used: at, ..PLACES }),
    ] {
        let last = (MEMORY_BYTES - bytes) / 16 * 16;
        assert!(with(5, place(last)) && !with(5, place(last + 16)), "{bytes}");
        assert!(!with(5, place(u64::MAX - 15)));
    }
}

#[test]
fn a_driver_is_notified_at_its_descriptor_and_wrap() {
    for size in [1, 2, 3, 5] {
        let cases = (0..2 * size).flat_map(|first| (1..=size).map(move |count| (first, count)));
        for ((first, count), event) in
            cases.flat_map(|case| (0..2 * size).map(move |event| (case, event)))
        {
            let mut guest = Guest::new(PACKED, size, first);
            let mut ring = guest.ring(true);
            guest.want(event);
            (0..count).for_each(|number| guest.offer_plain(number, 9, 0));
            (0..count).for_each(|_| assert!(received(&mut ring).unwrap().is_some()));
            let is_told = (first..first + count).any(|used| used % (2 * size) == event);
            assert_eq!(ring.publish(), is_told, "{count} of {size} from {first}: {event}");
        }
    }
    // A driver that does not use the event index is always notified, and so is a driver with undefined flags.
    for (event_index, flags) in [(false, 2), (false, 3), (true, 3), (true, 0xfffc)] {
        let mut guest = Guest::new(PACKED, 8, 0);
        let mut ring = guest.ring(event_index);
        guest.want(5);
        guest.put(AVAILABLE + 2, &u16::to_le_bytes(flags));
        guest.offer_plain(0, 9, 0);
        assert!(received(&mut ring).unwrap().is_some() && ring.publish(), "{flags}");
    }
}

/// A step of a driver, or of its device.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Makes a chain with this many descriptors, or a table, available. If the last flag is set, the device is replaced
    /// before the first descriptor is written.
    Offer(u16, bool, bool),
    Receive,
    Publish,
    /// The device dies, and another one replaces it.
    Replace,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1..5_u16, any::<bool>(), prop::bool::weighted(0.2))
            .prop_map(|(count, is_table, is_cut)| Step::Offer(count, is_table, is_cut)),
        4 => Just(Step::Receive),
        2 => Just(Step::Publish),
        1 => Just(Step::Replace),
    ];
    prop::collection::vec(step, 0..300)
}

/// A driver, its device, and all outstanding entries.
struct World {
    guest: Guest,
    ring: Ring,
    /// Frames that were made available and have not been returned yet, in order. The device has received the first
    /// `taken` of them.
    out: VecDeque<Vec<u8>>,
    taken: usize,
    count: u8,
}

impl World {
    fn new(size: u16) -> Self {
        let guest = Guest::new(PACKED, size, 0);
        let ring = guest.ring_at(BEGAN, true);
        Self { guest, ring, out: VecDeque::new(), taken: 0, count: 0 }
    }

    fn replace(&mut self) {
        self.ring = self.guest.ring_at(BEGAN, true);
        self.taken = 0;
        assert_eq!(self.ring.base(), self.guest.base(self.guest.seen), "where the driver is");
    }

    fn offer(&mut self, count: u16, is_table: bool, is_cut: bool) {
        let slots = if is_table { 1 } else { count };
        let Guest { size, offered, seen, .. } = self.guest;
        if offered - seen + slots > size {
            return;
        }
        self.count = self.count.wrapping_add(1);
        let at = data(u16::from(self.count % 64));
        let frame: Vec<u8> = (0..count as u8).map(|number| self.count ^ number << 6).collect();
        self.guest.put(at, &frame);
        for number in 0..count {
            // The device ignores flags other than the direction in a table.
            let flags = if is_table { NEXT | TABLED } else { NEXT * u16::from(number + 1 < count) };
            let table = if is_table { at + 64 } else { TABLE };
            let words = (at + u64::from(number), 1, flags, (number + 1) % size.max(1));
            self.guest.describe(table, number, words);
        }
        if is_table {
            self.guest.describe(TABLE, 0, (at + 64, 16 * u32::from(count), TABLED, 0));
        }
        let mut writes = self.guest.lay_out(0);
        let first = writes.pop().unwrap();
        writes.into_iter().for_each(|(at, words)| self.guest.write(at, words));
        // A chain that is as long as the ring cannot be recognized while it is being written.
        if is_cut && slots < size {
            self.replace();
        }
        self.guest.write(first.0, first.1);
        self.out.push_back(frame);
    }

    fn receive(&mut self) {
        let expected = self.out.get(self.taken).cloned();
        self.taken += usize::from(expected.is_some());
        assert_eq!(received(&mut self.ring), Ok(expected));
    }

    fn publish(&mut self) {
        self.ring.publish();
        assert_eq!(self.guest.used(), vec![(0, 0); self.taken]);
        self.out.drain(..core::mem::take(&mut self.taken));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_device_goes_on_where_the_one_before_died(size in 1..20_u16, steps in steps()) {
        let mut world = World::new(size);
        for step in steps {
            match step {
                Step::Offer(count, is_table, is_cut) => world.offer(count, is_table, is_cut),
                Step::Receive => world.receive(),
                Step::Publish => world.publish(),
                Step::Replace => world.replace(),
            }
        }
        world.publish();
        while world.taken < world.out.len() {
            world.receive();
        }
        world.publish();
    }
}

/// Lengths, numbers and flags of a ring's descriptors.
fn words(guest: &Guest) -> Vec<[u8; 8]> {
    (0..guest.size).map(|slot| guest.bytes(TABLE + 16 * u64::from(slot) + 8)).collect()
}

/// Tests a device that dies while it marks the descriptors of a frame as used, and its successor. Covers buffers with
/// one or two descriptors, every ring position, and every number of marks that were written.
#[test]
fn a_device_marks_what_another_one_left_unmarked() {
    const SIZE: u16 = 9;
    for (first, more) in (0..2 * SIZE).flat_map(|first| [(first, 4), (first, 2), (first, 1)]) {
        for marked in 0..=5 {
            let mut guest = Guest::new(PACKED, SIZE, 0);
            let mut ring = guest.ring_at(BEGAN, true);
            for _ in 0..first {
                guest.offer_plain(0, 12, WRITTEN);
                assert_eq!(give(&mut ring, 12, true), Sent::Whole);
                ring.publish();
                assert_eq!(guest.used(), [(0, 12)]);
            }
            for number in [0, 4] {
                let words = (data(number), 50, WRITTEN | NEXT, number + 1);
                guest.describe(TABLE, number, words);
                guest.describe(TABLE, number + 1, (data(number + 1), 50, WRITTEN, 0));
            }
            guest.offer(0);
            guest.offer_plain(8, 60, WRITTEN);
            guest.offer(4);
            (0..more).for_each(|_| guest.offer_plain(7, 100, WRITTEN));
            let before = words(&guest);
            assert_eq!(give(&mut ring, 180, true), Sent::Whole);
            assert!(words(&guest) == before, "nothing before publish");
            ring.publish();
            for unmarked in 0..5 - marked {
                let slot = (first + unmarked) % SIZE;
                // The length of an entry with one descriptor was written before the mark.
                let from = if unmarked == 2 { 6 } else { 0 };
                let at = TABLE + 16 * u64::from(slot) + 8 + from;
                guest.put(at, &before[usize::from(slot)][from as usize..]);
            }
            let mut ring = guest.ring_at(BEGAN, true);
            if marked == 0 {
                assert_eq!((guest.used(), give(&mut ring, 180, true)), (vec![], Sent::Whole));
                ring.publish();
            }
            // If the mark was missing, the returned length of an entry with two descriptors is the length of the first
            // descriptor.
            let [whole, last] = [(0, 5), (4, 2)].map(|(number, mark)| {
                let written = if number == 0 { 100 } else { 20 };
                (number, if marked == 0 || marked >= mark { written } else { 50 })
            });
            assert_eq!(guest.used(), [whole, (8, 60), last], "{first} {marked}");
            assert_eq!(give(&mut ring, 30, true), Sent::Whole, "{first} {marked}");
            ring.publish();
            assert_eq!(guest.used(), [(7, 30)], "{first} {marked}");
        }
    }
}

#[test]
fn a_chain_that_does_not_end_breaks_the_ring() {
    for (form, size) in [(0, 8), (WRITTEN, 8), (0, 1)] {
        let mut guest = Guest::new(PACKED, size, 0);
        let mut ring = guest.ring(false);
        guest.describe(TABLE, 0, (data(0), 9, NEXT | form, 0));
        guest.offer(0);
        if form == 0 {
            assert_eq!(received(&mut ring), Err(ChainFault::Overrun));
        } else {
            assert_eq!(give(&mut ring, 30, true), Sent::Fault(ChainFault::Overrun));
        }
        assert!(ring.is_broken() && !ring.ask());
        assert_eq!((received(&mut ring), give(&mut ring, 30, true)), (Ok(None), Sent::NoRoom));
        ring.publish();
        assert_eq!(guest.used(), []);
    }
}

/// Tests a driver that makes descriptors available again before they have been returned.
#[test]
fn at_most_a_ring_is_taken_before_its_driver_is_notified() {
    let mut guest = Guest::new(PACKED, 4, 0);
    let mut ring = guest.ring(true);
    (0..6).for_each(|number| guest.offer_plain(number % 4, 9, 0));
    assert_eq!(received(&mut ring), Ok(None), "they are of another lap");
    let mut guest = Guest::new(PACKED, 4, 0);
    let mut ring = guest.ring(true);
    (0..4).for_each(|number| guest.offer_plain(number, 9, 0));
    (0..3).for_each(|_| assert!(received(&mut ring).unwrap().is_some()));
    (0..3).for_each(|number| guest.offer_plain(number, 9, 0));
    assert!(received(&mut ring).unwrap().is_some());
    assert_eq!(received(&mut ring), Ok(None));
    assert!(!ring.ask(), "it would never sleep");
    // A chain that includes such descriptors never ends.
    let mut guest = Guest::new(PACKED, 4, 0);
    let mut ring = guest.ring(true);
    (0..3).for_each(|number| guest.offer_plain(number, 9, 0));
    (0..3).for_each(|_| assert!(received(&mut ring).unwrap().is_some()));
    guest.describe(TABLE, 3, (data(3), 9, NEXT, 0));
    guest.describe(TABLE, 0, (data(3), 9, 0, 0));
    guest.offer(3);
    assert_eq!(received(&mut ring), Err(ChainFault::Overrun));
}

#[test]
fn numbers_are_handed_back_as_they_are_and_nothing_is_a_length_too() {
    for number in [0, 7, 8, u16::MAX] {
        let mut guest = Guest::new(PACKED, 8, 0);
        let mut ring = guest.ring(false);
        guest.describe(TABLE, 0, (data(0), 0, 0, 0));
        for (at, (address, bytes, flags, _)) in guest.lay_out(0) {
            guest.write(at, (address, bytes, flags, number));
        }
        assert_eq!(received(&mut ring), Ok(Some(vec![])));
        ring.publish();
        assert_eq!(guest.used(), [(number.into(), 0)]);
    }
}

/// Tests that the flags of descriptors after the first one of a chain may have any lap bits.
#[test]
fn a_chain_is_made_available_by_its_first_descriptor() {
    for laps in [0, AVAILABLE_FLAG, USED_FLAG, LAPS] {
        let mut guest = Guest::new(PACKED, 8, 0);
        let mut ring = guest.ring(false);
        guest.describe(TABLE, 0, (data(0), 1, NEXT, 1));
        guest.describe(TABLE, 1, (data(0), 2, 0, 0));
        for (slot, (at, (address, bytes, flags, number))) in (0..2).zip(guest.lay_out(0)) {
            let flags = if slot == 0 { flags & !LAPS | laps } else { flags };
            guest.write(at, (address, bytes, flags, number));
        }
        guest.offer_plain(5, 7, 0);
        assert_eq!(received(&mut ring), Ok(Some(vec![0; 3])));
        assert_eq!(received(&mut ring), Ok(Some(vec![0; 7])));
        ring.publish();
        assert_eq!(guest.used(), [(0, 0), (5, 0)]);
    }
}

#[test]
fn a_table_stands_alone_in_its_chain() {
    for flags in [[NEXT, TABLED], [NEXT | TABLED, 0]] {
        let mut guest = Guest::new(PACKED, 8, 0);
        let mut ring = guest.ring(false);
        guest.describe(data(2), 0, (data(0), 9, 0, 0));
        guest.describe(TABLE, 0, (data(2), 16, flags[0], 1));
        guest.describe(TABLE, 1, (data(2), 16, flags[1], 0));
        guest.offer(0);
        guest.offer_plain(3, 9, 0);
        assert_eq!(received(&mut ring), Err(ChainFault::Table));
        assert_eq!(received(&mut ring), Ok(Some(vec![0; 9])));
        ring.publish();
        assert_eq!(guest.used(), [(0, 0), (3, 0)]);
    }
}

/// Tests a ring with arbitrary flags. The device finds some position in the ring, and accepts the entries that the
/// driver adds from there on.
#[test]
fn any_flags_are_some_place() {
    for bits in 0..1_u32 << 8 {
        let mut guest = Guest::new(PACKED, 4, 0);
        for slot in 0..4 {
            let flags = [0, AVAILABLE_FLAG, USED_FLAG, LAPS][(bits >> (2 * slot) & 3) as usize];
            guest.put(TABLE + 16 * slot + 14, &flags.to_le_bytes());
        }
        let ring = guest.ring_at(BEGAN, true);
        let base = ring.base();
        assert!(base & 0x7fff < 4 && base >> 16 == base & 0xffff, "{bits:b}: {base:x}");
        guest.offered = 0;
        assert_eq!(ring.base(), guest.ring_at(BEGAN, true).base(), "{bits:b}");
    }
    assert_eq!(features::RING_PACKED, 1 << 34);
}
