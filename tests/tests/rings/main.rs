//! Rings and back ends, tested by an independent driver. Longer than 600 lines: the driver is one program.

#![cfg(target_os = "linux")]

mod dirty;
mod ends;
mod packed;

use std::{
    collections::VecDeque,
    fs::File,
    io::IoSlice,
    iter,
    os::{fd::OwnedFd, unix::fs::FileExt},
    sync::Arc,
};

use grosso_vhost::{
    backend::{BackEnd, PAIRS_MAX, Refused, Way},
    features,
    memory::{MAPPED_BYTES_MAX, Memory, REGIONS_MAX, RegionPlace},
    message::{Message, request},
    ring::{Addresses, Base, ChainFault, Ring, SIZE_MAX, Sent},
};
use rustix::{
    event::{EventfdFlags, eventfd},
    fs::{MemfdFlags, memfd_create},
};

/// Offsets of the parts of a ring and of its buffers. They are the same in the file, the guest and the front end.
const TABLE: u64 = 0;
const AVAILABLE: u64 = 0x8_0000;
const USED: u64 = 0xa_0000;
const DATA: u64 = 0x10_0000;
const MEMORY_BYTES: u64 = 0x20_0000;
/// Flags of a descriptor.
const NEXT: u16 = 1;
const WRITTEN: u16 = 2;
const TABLED: u16 = 4;
/// Packed-ring flags that encode the lap in which a descriptor was made available, or used.
const AVAILABLE_FLAG: u16 = 1 << 7;
const USED_FLAG: u16 = 1 << 15;
const LAPS: u16 = AVAILABLE_FLAG | USED_FLAG;

/// Features of rings of both forms.
const FORMS: [u64; 2] = [0, features::RING_PACKED];

/// A guest that has one ring.
struct Guest {
    file: File,
    /// Whether the ring is packed.
    is_packed: bool,
    size: u16,
    /// Number of entries made available so far, or of descriptors in a packed ring.
    offered: u16,
    /// Number of those that the device has returned so far.
    seen: u16,
    /// Descriptors of a packed ring by their numbers in chains, until they are written to the ring.
    described: Vec<Words>,
    /// Number of descriptors in each outstanding entry.
    slots: VecDeque<u16>,
}

impl Guest {
    /// Creates a guest whose entry numbers start at `first`. In a packed ring with one descriptor per entry, the
    /// descriptors have the same numbers.
    fn new(form: u64, size: u16, first: u16) -> Self {
        let file = File::from(memfd_create("guest", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(MEMORY_BYTES).unwrap();
        let described = vec![(0, 0, 0, 0); size.into()];
        let (is_packed, slots) = (form != 0, VecDeque::new());
        let guest = Self { file, is_packed, size, offered: first, seen: first, described, slots };
        if !is_packed {
            guest.put(AVAILABLE + 2, &first.to_le_bytes());
            guest.put(USED + 2, &first.to_le_bytes());
        }
        guest
    }

    fn memory(&self) -> Arc<Memory> {
        let whole = RegionPlace { guest: 0, bytes: MEMORY_BYTES, user: 0, offset: 0 };
        Memory::map(&[whole], &[OwnedFd::from(self.file.try_clone().unwrap())]).unwrap()
    }

    fn form(&self) -> u64 {
        FORMS[usize::from(self.is_packed)]
    }

    fn ring(&self, event_index: bool) -> Ring {
        let base = Base::Left(self.base(self.offered));
        self.ring_at(base, event_index)
    }

    fn ring_at(&self, base: Base, event_index: bool) -> Ring {
        let events = if event_index { features::EVENT_INDEX } else { 0 };
        Ring::new(&self.memory(), &PLACES, self.size, base, self.form() | events).unwrap()
    }

    /// Returns the number of an entry as encoded in messages.
    fn base(&self, number: u16) -> u32 {
        let bits = u32::from(self.bits(number));
        if self.is_packed { bits << 16 | bits } else { number.into() }
    }

    /// Returns the number of an entry as encoded in events.
    fn bits(&self, number: u16) -> u16 {
        if !self.is_packed {
            return number;
        }
        (number % self.size) | (u16::from(self.is_odd(number)) << 15)
    }

    /// Returns whether the descriptor of a packed ring is in an odd lap; the first lap is odd.
    fn is_odd(&self, number: u16) -> bool {
        (number / self.size).is_multiple_of(2)
    }

    fn put(&self, at: u64, bytes: &[u8]) {
        self.file.write_all_at(bytes, at).unwrap();
    }

    fn bytes<const COUNT: usize>(&self, at: u64) -> [u8; COUNT] {
        let mut bytes = [0; COUNT];
        self.file.read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    fn number(&self, at: u64) -> u16 {
        u16::from_le_bytes(self.bytes(at))
    }

    /// Writes a descriptor to the ring's table or to another table.
    fn describe(&mut self, table: u64, number: u16, words: Words) {
        if self.is_packed && table == TABLE {
            self.described[usize::from(number)] = words;
        } else {
            self.write(table + 16 * u64::from(number), words);
        }
    }

    /// Writes a descriptor. The form of the ring determines the order of its flags and its index.
    fn write(&self, at: u64, (address, bytes, flags, number): Words) {
        self.put(at, &address.to_le_bytes());
        self.put(at + 8, &bytes.to_le_bytes());
        let last = if self.is_packed { [number, flags] } else { [flags, number] };
        self.put(at + 12, &last.map(u16::to_le_bytes).concat());
    }

    fn offer(&mut self, head: u16) {
        if self.is_packed {
            return self.offer_chain(head);
        }
        let entry = u64::from(self.offered & (self.size - 1));
        self.put(AVAILABLE + 4 + 2 * entry, &head.to_le_bytes());
        self.offered = self.offered.wrapping_add(1);
        self.put(AVAILABLE + 2, &self.offered.to_le_bytes());
    }

    /// Writes the chain of described descriptors into a packed ring.
    fn offer_chain(&mut self, head: u16) {
        self.lay_out(head).into_iter().for_each(|(at, words)| self.write(at, words));
    }

    /// Assigns the next position in a packed ring to a chain of described descriptors. Returns the bytes to write, with
    /// the first descriptor's bytes last.
    fn lay_out(&mut self, head: u16) -> Vec<(u64, Words)> {
        let (mut words, mut chain) = (self.described[usize::from(head)], vec![]);
        while chain.len() < usize::from(self.size) {
            chain.push(words);
            if words.2 & NEXT == 0 {
                break;
            }
            words = self.described[usize::from(words.3)];
        }
        let first = self.offered;
        self.slots.push_back(chain.len() as u16);
        self.offered = first.wrapping_add(chain.len() as u16);
        let place = |(slot, (address, bytes, flags, _)): (u16, Words)| {
            let number = first.wrapping_add(slot);
            let laps = if self.is_odd(number) { AVAILABLE_FLAG } else { USED_FLAG };
            let at = TABLE + 16 * u64::from(number % self.size);
            (at, (address, bytes, flags | laps, head))
        };
        let mut writes: Vec<_> = (0..).zip(chain).map(place).collect();
        writes.reverse();
        writes
    }

    /// Makes a descriptor of `bytes` bytes available, at the data of its number.
    fn offer_plain(&mut self, number: u16, bytes: u32, flags: u16) {
        self.describe(TABLE, number, (data(number), bytes, flags, 0));
        self.offer(number);
    }

    /// Returns the used entries, each as head and length.
    fn used(&mut self) -> Vec<(u32, u32)> {
        iter::from_fn(|| self.next_used()).collect()
    }

    fn next_used(&mut self) -> Option<(u32, u32)> {
        let slot = u64::from(self.seen % self.size);
        if !self.is_packed {
            let at = USED + 4 + 8 * slot;
            let entry = [at, at + 4].map(|at| u32::from_le_bytes(self.bytes(at)));
            let is_used = self.seen != self.number(USED + 2);
            self.seen = self.seen.wrapping_add(is_used.into());
            return is_used.then_some(entry.into());
        }
        let at = TABLE + 16 * slot;
        let laps = if self.is_odd(self.seen) { LAPS } else { 0 };
        if self.slots.is_empty() || self.number(at + 14) & LAPS != laps {
            return None;
        }
        let slots = self.slots.pop_front().unwrap();
        self.seen = self.seen.wrapping_add(slots);
        Some((self.number(at + 12).into(), u32::from_le_bytes(self.bytes(at + 8))))
    }

    /// Requests a notification after this used entry.
    fn want(&self, event: u16) {
        let bits = self.bits(event).to_le_bytes();
        if self.is_packed {
            self.put(AVAILABLE, &bits);
            self.put(AVAILABLE + 2, &[2, 0]);
        } else {
            self.put(AVAILABLE + 4 + 2 * u64::from(self.size), &bits);
        }
    }

    /// Disables all notifications, or enables them.
    fn want_none(&self, is_none: bool) {
        let at = if self.is_packed { AVAILABLE + 2 } else { AVAILABLE };
        self.put(at, &u16::from(is_none).to_le_bytes());
    }

    /// Returns the entry for which the device requests a notification, and whether its flag disables notifications.
    fn asked(&self) -> (u16, bool) {
        let [event, flags] = if self.is_packed {
            [USED, USED + 2]
        } else {
            [USED + 4 + 8 * u64::from(self.size), USED]
        };
        (self.number(event), self.number(flags) == 1)
    }
}

/// Address, length, flags, and number of the next descriptor.
type Words = (u64, u32, u16, u16);

const PLACES: Addresses = Addresses { descriptors: TABLE, used: USED, available: AVAILABLE };

fn data(number: u16) -> u64 {
    DATA + 0x1000 * u64::from(number)
}

fn received(ring: &mut Ring) -> Result<Option<Vec<u8>>, ChainFault> {
    let mut into = vec![0; 4096];
    Ok(ring.receive(&mut into)?.map(|bytes| into[..bytes].to_vec()))
}

/// Sends a frame of `bytes` bytes, including a header of twelve bytes.
fn give(ring: &mut Ring, bytes: usize, mergeable: bool) -> Sent {
    let frame: Vec<u8> =
        (0..bytes).map(|number| if number < 12 { 0 } else { number as u8 }).collect();
    ring.send(&[IoSlice::new(&frame[..12]), IoSlice::new(&frame[12..])], 12, mergeable)
}

#[test]
fn frames_go_on_when_the_numbers_go_round() {
    for (form, event_index) in FORMS.into_iter().flat_map(|form| [(form, false), (form, true)]) {
        let mut guest = Guest::new(form, 8, 65_530);
        let mut ring = guest.ring(event_index);
        for round in 0..20_u16 {
            let number = 65_530_u16.wrapping_add(round);
            guest.want(number);
            guest.put(data(round % 8), &[round as u8; 9]);
            guest.offer_plain(round % 8, 9, 0);
            assert_eq!(received(&mut ring), Ok(Some(vec![round as u8; 9])));
            assert_eq!(received(&mut ring), Ok(None));
            assert_eq!(guest.used(), [], "before publish");
            assert!(ring.publish(), "it requests a notification for each entry");
            assert_eq!(guest.used(), [(u32::from(round % 8), 0)]);
            assert_eq!(ring.base(), guest.base(number.wrapping_add(1)));
            assert!(!ring.ask(), "there are no more");
            if event_index {
                assert_eq!(guest.asked().0, guest.bits(guest.offered));
            }
        }
    }
}

#[test]
fn a_driver_is_notified_at_its_event_index_across_the_wrap() {
    for (form, first) in FORMS.into_iter().flat_map(|form| [(form, 100_u16), (form, 65_534)]) {
        for (event, is_told) in
            [(-2, false), (-1, false), (0, true), (3, true), (4, false), (9, false)]
        {
            let mut guest = Guest::new(form, 8, first);
            let mut ring = guest.ring(true);
            guest.want(first.wrapping_add_signed(event));
            (0..4).for_each(|number| guest.offer_plain(number, 9, 0));
            (0..4).for_each(|_| assert!(received(&mut ring).unwrap().is_some()));
            assert_eq!(ring.publish(), is_told, "{form:x} {first} {event}");
            assert!(!ring.publish(), "{form:x} {first} {event}: nothing is new");
        }
    }
}

#[test]
fn a_driver_disables_interrupts_with_a_flag() {
    for form in FORMS {
        let mut guest = Guest::new(form, 8, 0);
        let mut ring = guest.ring(false);
        guest.want_none(true);
        guest.offer_plain(0, 9, 0);
        assert!(received(&mut ring).unwrap().is_some() && !ring.publish());
        ring.hush();
        assert!(guest.asked().1);
        guest.offer_plain(1, 9, 0);
        assert!(ring.ask(), "it came before it was asked for");
        assert!(!guest.asked().1);
        guest.want_none(false);
        assert!(received(&mut ring).unwrap().is_some() && ring.publish());
    }
}

#[test]
fn a_full_ring_is_used_whole_and_one_entry_more_breaks_it() {
    for size in [1, 2, 256] {
        let mut guest = Guest::new(FORMS[0], size, 65_535);
        let mut ring = guest.ring(false);
        (0..size).for_each(|number| guest.offer_plain(number, 9, 0));
        (0..size).for_each(|_| assert!(received(&mut ring).unwrap().is_some()));
        let mut guest = Guest::new(FORMS[0], size, 65_535);
        let mut ring = guest.ring(false);
        (0..size).for_each(|number| guest.offer_plain(number, 90, WRITTEN));
        (0..size).for_each(|_| assert_eq!(give(&mut ring, 20, true), Sent::Whole));
        (0..=size).for_each(|_| guest.offer(0));
        assert_eq!(give(&mut ring, 20, true), Sent::Fault(ChainFault::Overrun));
        assert!(ring.is_broken() && give(&mut ring, 20, true) == Sent::NoRoom);
        let mut guest = Guest::new(FORMS[0], size, 65_535);
        let mut ring = guest.ring(false);
        (0..=size).for_each(|_| guest.offer(0));
        assert_eq!(received(&mut ring), Err(ChainFault::Overrun));
        assert_eq!(received(&mut ring), Ok(None));
    }
}

#[test]
fn a_ring_is_a_power_of_two_and_its_parts_are_aligned_and_in_memory() {
    let guest = Guest::new(FORMS[0], 8, 0);
    let memory = guest.memory();
    let with =
        |size, places: Addresses| Ring::new(&memory, &places, size, Base::Told(0), 0).is_some();
    for (size, is_right) in [
        (0, false),
        (1, true),
        (2, true),
        (3, false),
        (255, false),
        (256, true),
        (SIZE_MAX - 1, false),
        (SIZE_MAX, true),
        (SIZE_MAX + 1, false),
        (65_535, false),
    ] {
        assert_eq!(with(size, PLACES), is_right, "{size}");
    }
    for by in [0_u64, 1, 2, 4, 8, 16] {
        let aligned = |to| by.is_multiple_of(to);
        assert_eq!(with(8, Addresses { descriptors: by, ..PLACES }), aligned(16), "{by}");
        assert_eq!(with(8, Addresses { available: AVAILABLE + by, ..PLACES }), aligned(2), "{by}");
        assert_eq!(with(8, Addresses { used: USED + by, ..PLACES }), aligned(4), "{by}");
    }
    // Each part is accepted at the last aligned address at which it ends inside the memory, but not at the next one.
    for (bytes, place) in [
        (16 * 8, (|at| Addresses { descriptors: at, ..PLACES }) as fn(u64) -> Addresses),
        (4 + 2 * 8 + 2, |at| Addresses { available: at, ..PLACES }),
        (4 + 8 * 8 + 2, |at| Addresses { used: at, ..PLACES }),
    ] {
        let last = (MEMORY_BYTES - bytes) / 16 * 16;
        assert!(with(8, place(last)) && !with(8, place(last + 16)), "{bytes}");
        assert!(!with(8, place(u64::MAX - 15)));
    }
}

/// Wrong entries: the head, the descriptors to write first, and the fault. Entries without a valid head are not
/// returned.
type Wrong = (&'static str, u16, &'static [(u64, u16, Words)], ChainFault);

/// Wrong entries for both forms of rings.
const WRONG: &[Wrong] = &[
    (
        "an address behind the memory",
        0,
        &[(TABLE, 0, (MEMORY_BYTES, 9, 0, 0))],
        ChainFault::Outside,
    ),
    (
        "an end behind the memory",
        0,
        &[(TABLE, 0, (MEMORY_BYTES - 8, 9, 0, 0))],
        ChainFault::Outside,
    ),
    (
        "an address at the end of all",
        0,
        &[(TABLE, 0, (u64::MAX - 3, 9, 0, 0))],
        ChainFault::Outside,
    ),
    (
        "a second piece that is nowhere",
        0,
        &[(TABLE, 0, (DATA, 9, NEXT, 1)), (TABLE, 1, (MEMORY_BYTES, 9, 0, 0))],
        ChainFault::Outside,
    ),
    ("the other direction", 0, &[(TABLE, 0, (DATA, 9, WRITTEN, 0))], ChainFault::Direction),
    (
        "the other direction behind a right one",
        0,
        &[(TABLE, 0, (DATA, 9, NEXT, 1)), (TABLE, 1, (DATA, 9, WRITTEN, 0))],
        ChainFault::Direction,
    ),
    ("an empty table", 0, &[(TABLE, 0, (DATA, 0, TABLED, 0))], ChainFault::Table),
    ("a table of one and a half", 0, &[(TABLE, 0, (DATA, 24, TABLED, 0))], ChainFault::Table),
    (
        "a table that is followed by a descriptor",
        0,
        &[
            (TABLE, 0, (DATA, 16, TABLED | NEXT, 1)),
            (TABLE, 1, (DATA, 9, 0, 0)),
            (DATA, 0, (DATA, 9, 0, 0)),
        ],
        ChainFault::Table,
    ),
    (
        "a table that is nowhere",
        0,
        &[(TABLE, 0, (MEMORY_BYTES - 8, 16, TABLED, 0))],
        ChainFault::Outside,
    ),
    (
        "2^32 bytes",
        0,
        &[(TABLE, 0, (DATA, 1, NEXT, 1)), (TABLE, 1, (DATA, u32::MAX, 0, 0))],
        ChainFault::Length,
    ),
];

/// Wrong entries for a split ring, which numbers descriptors.
const WRONG_NUMBERS: &[Wrong] = &[
    ("a head behind the table", 8, &[], ChainFault::Index),
    ("the greatest head", 65_535, &[], ChainFault::Index),
    ("a next one behind the table", 0, &[(TABLE, 0, (DATA, 9, NEXT, 8))], ChainFault::Index),
    ("a loop", 0, &[(TABLE, 0, (DATA, 9, NEXT, 0))], ChainFault::Endless),
    (
        "a longer loop",
        0,
        &[(TABLE, 0, (DATA, 0, NEXT, 1)), (TABLE, 1, (DATA, 0, NEXT, 0))],
        ChainFault::Endless,
    ),
    (
        "a table in a table",
        0,
        &[(TABLE, 0, (DATA, 16, TABLED, 0)), (DATA, 0, (DATA, 16, TABLED, 0))],
        ChainFault::Table,
    ),
    (
        "a next one behind its table",
        0,
        &[(TABLE, 0, (DATA, 32, TABLED, 0)), (DATA, 0, (DATA, 9, NEXT, 2))],
        ChainFault::Index,
    ),
    (
        "a loop in a table",
        0,
        &[(TABLE, 0, (DATA, 16, TABLED, 0)), (DATA, 0, (DATA, 0, NEXT, 0))],
        ChainFault::Endless,
    ),
];

#[test]
fn each_wrong_entry_is_handed_back_unused_if_it_can_be_named_and_the_next_one_is_right() {
    let of = |wrong: &'static [Wrong], form| wrong.iter().map(move |wrong| (form, wrong));
    let all = of(WRONG_NUMBERS, FORMS[0]).chain(of(WRONG, FORMS[0])).chain(of(WRONG, FORMS[1]));
    for (form, (what, head, descriptors, fault)) in all {
        for written in [0, WRITTEN] {
            let mut guest = Guest::new(form, 8, 0);
            let mut ring = guest.ring(false);
            for (table, number, (address, bytes, flags, next)) in *descriptors {
                let turned = if flags & TABLED == 0 { flags ^ written } else { *flags };
                guest.describe(*table, *number, (*address, *bytes, turned, *next));
            }
            guest.offer(*head);
            guest.put(data(3), &[7; 9]);
            guest.offer_plain(3, 99, written);
            match written {
                0 => assert_eq!(received(&mut ring), Err(*fault), "{what}"),
                _ => assert_eq!(give(&mut ring, 20, true), Sent::Fault(*fault), "{what}"),
            }
            ring.publish();
            let named = ((*head).into(), 0);
            assert_eq!(guest.used(), [named][..usize::from(*head < 8)], "{what}");
            match written {
                0 => assert_eq!(
                    received(&mut ring).map(|got| got.map(|got| got.len())),
                    Ok(Some(99))
                ),
                _ => assert_eq!(give(&mut ring, 20, true), Sent::Whole, "{what}"),
            }
            ring.publish();
            assert_eq!(guest.used(), [(3, if written == 0 { 0 } else { 20 })], "{what}");
        }
    }
}

#[test]
fn nothing_of_a_frame_is_written_where_a_part_of_its_room_is_wrong() {
    for form in FORMS {
        let mut guest = Guest::new(form, 8, 0);
        let mut ring = guest.ring(false);
        guest.describe(TABLE, 0, (data(0), 20, WRITTEN | NEXT, 1));
        guest.describe(TABLE, 1, (MEMORY_BYTES - 4, 20, WRITTEN, 0));
        guest.offer(0);
        assert_eq!(give(&mut ring, 40, true), Sent::Fault(ChainFault::Outside));
        assert_eq!(guest.bytes::<20>(data(0)), [0; 20]);
        // The entry before a wrong one is returned together with it.
        guest.offer_plain(2, 20, WRITTEN);
        guest.offer(0);
        assert_eq!(give(&mut ring, 40, true), Sent::Fault(ChainFault::Outside));
        ring.publish();
        assert_eq!(guest.used(), [(0, 0), (2, 0), (0, 0)]);
    }
}

#[test]
fn a_frame_in_several_buffers_has_their_number_and_lengths() {
    for form in FORMS {
        let mut guest = Guest::new(form, 8, 65_534);
        let mut ring = guest.ring(false);
        (0..4).for_each(|number| guest.offer_plain(number, 100, WRITTEN));
        assert_eq!(give(&mut ring, 250, true), Sent::Whole);
        ring.publish();
        assert_eq!(guest.used(), [(0, 100), (1, 100), (2, 50)]);
        assert_eq!(guest.bytes::<12>(data(0)), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0]);
        let second = core::array::from_fn(|number| (200 + number) as u8);
        assert_eq!(guest.bytes::<50>(data(2)), second);
        assert_eq!(guest.bytes::<50>(data(2) + 50), [0; 50]);
        assert_eq!(give(&mut ring, 30, true), Sent::Whole);
        ring.publish();
        assert_eq!((guest.used(), guest.bytes::<2>(data(3) + 10)), (vec![(3, 30)], [1, 0]));
    }
}

#[test]
fn a_frame_larger_than_all_buffers_is_distinguished_from_one_that_waits() {
    for form in FORMS {
        let mut guest = Guest::new(form, 4, 65_535);
        let mut ring = guest.ring(false);
        let [first, fourth] = [65_535, 3].map(|number| guest.base(number));
        (0..3).for_each(|number| guest.offer_plain(number, 100, WRITTEN));
        let sent = give(&mut ring, 401, true);
        assert_eq!((sent, ring.base(), ring.offered()), (Sent::NoRoom, first, 3));
        guest.offer_plain(3, 100, WRITTEN);
        let sent = give(&mut ring, 401, true);
        assert_eq!((sent, ring.base(), ring.offered()), (Sent::TooLong, first, 4));
        assert_eq!(give(&mut ring, 101, false), Sent::TooLong);
        assert_eq!((give(&mut ring, 100, false), ring.base()), (Sent::Whole, guest.base(0)));
        assert_eq!((give(&mut ring, 300, true), ring.base()), (Sent::Whole, fourth));
        assert_eq!(give(&mut ring, 20, true), Sent::NoRoom);
        ring.publish();
        assert_eq!(guest.used(), [(0, 100), (1, 100), (2, 100), (3, 100)]);
    }
}

#[test]
fn a_frame_that_is_longer_than_the_buffer_for_it_is_handed_back() {
    for form in FORMS {
        let mut guest = Guest::new(form, 8, 0);
        let mut ring = guest.ring(false);
        guest.offer_plain(0, 10, 0);
        guest.offer_plain(1, 9, 0);
        assert_eq!(ring.receive(&mut [0; 9]), Err(ChainFault::TooLong));
        assert_eq!(ring.receive(&mut [0; 9]), Ok(Some(9)));
        ring.publish();
        assert_eq!(guest.used(), [(0, 0), (1, 0)]);
    }
}

#[test]
fn descriptors_are_counted_as_they_are_read() {
    for form in FORMS {
        let mut guest = Guest::new(form, 8, 0);
        let mut ring = guest.ring(false);
        if form == FORMS[0] {
            guest.describe(TABLE, 0, (data(0), 0, NEXT, 0));
            guest.offer(0);
            assert_eq!(received(&mut ring), Err(ChainFault::Endless));
        } else {
            // The chain is read to its end, although its second descriptor is wrong.
            for number in 0..8 {
                let next = if number < 7 { NEXT } else { 0 };
                let direction = if number == 1 { WRITTEN } else { 0 };
                let words = (data(0), 0, next | direction, number + 1);
                guest.describe(TABLE, number, words);
            }
            guest.offer(0);
            assert_eq!(received(&mut ring), Err(ChainFault::Direction));
            ring.publish();
        }
        assert_eq!((ring.take_walked(), ring.take_walked()), (8, 0));
        guest.describe(TABLE, 1, (data(0), 16 * 100, TABLED, 0));
        (0..100).for_each(|number| guest.describe(data(0), number, (data(1), 1, NEXT, number + 1)));
        guest.describe(data(0), 99, (data(1), 1, 0, 0));
        guest.offer(1);
        assert_eq!(received(&mut ring).map(|got| got.map(|got| got.len())), Ok(Some(100)));
        assert_eq!(ring.take_walked(), 100);
    }
}

/// Maps one-page regions of a guest's memory to its file.
fn mapped(guest: &Guest, regions: &[[u64; 2]]) -> Arc<Memory> {
    let place =
        |&[guest, offset]: &[u64; 2]| RegionPlace { guest, bytes: 0x1000, user: guest, offset };
    let places: Vec<_> = regions.iter().map(place).collect();
    let files: Vec<OwnedFd> =
        regions.iter().map(|_| guest.file.try_clone().unwrap().into()).collect();
    Memory::map(&places, &files).unwrap()
}

#[test]
fn bytes_go_on_in_the_next_region_and_nowhere_else() {
    let guest = Guest::new(FORMS[0], 8, 0);
    // Two regions that are adjacent in the guest but in the opposite order in the file, and a separate region.
    let memory = mapped(&guest, &[[0x1_1000, 0x4000], [0x1_0000, 0x8000], [0x1_3000, 0]]);
    assert!(memory.write(0x1_0ffc, b"12345678"));
    assert_eq!((guest.bytes(0x8ffc), guest.bytes(0x4000)), (*b"1234", *b"5678"));
    let mut got = [0; 8];
    assert!(memory.read(0x1_0ffc, &mut got) && got == *b"12345678");
    assert!(memory.has(0x1_0000, 0x2000) && !memory.has(0x1_0000, 0x2001));
    assert!(!memory.has(0xffff, 2) && !memory.has(0x1_2fff, 2) && memory.has(0x1_3000, 0x1000));
    assert!(memory.has(0x5_0000, 0), "nothing is everywhere");
    // Each part of a ring must be in one region.
    assert!(
        memory.place(0x1_0ff0, 0x10, 16).is_some() && memory.place(0x1_0ff0, 0x20, 16).is_none()
    );
}

#[test]
fn regions_that_overlap_have_each_byte_once() {
    let guest = Guest::new(FORMS[0], 8, 0);
    let memory = mapped(&guest, &[[0x1_0000, 0x4000], [0x1_0800, 0x8000]]);
    assert!(memory.write(0x1_0ffe, b"abcd"), "from the first one on in the second");
    assert_eq!((guest.bytes(0x4ffe), guest.bytes(0x8800)), (*b"ab", *b"cd"));
    assert!(memory.has(0x1_0000, 0x1800) && !memory.has(0x1_0000, 0x1801));
}

#[test]
fn memory_that_cannot_be_is_refused_with_its_reason() {
    let guest = Guest::new(FORMS[0], 8, 0);
    let right = RegionPlace { guest: 0, bytes: 0x1000, user: 0, offset: 0 };
    let refusal = |places: &[RegionPlace], file: &File| {
        let files: Vec<OwnedFd> = places.iter().map(|_| file.try_clone().unwrap().into()).collect();
        Memory::map(places, &files).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(refusal(&[right; REGIONS_MAX], &guest.file), Ok(()));
    let sparse = Guest::new(FORMS[0], 8, 0).file;
    sparse.set_len(2 * MAPPED_BYTES_MAX).unwrap();
    let most = RegionPlace { bytes: MAPPED_BYTES_MAX, ..right };
    assert_eq!(refusal(&[most], &sparse), Ok(()));
    for (places, file, why) in [
        (&[][..], &guest.file, "1 to 8"),
        (&[right; REGIONS_MAX + 1], &guest.file, "1 to 8"),
        (&[most, right], &sparse, "more than 1099511627776 bytes"),
        (&[RegionPlace { offset: MAPPED_BYTES_MAX, ..right }], &sparse, "more than 1099511627776"),
        (&[RegionPlace { bytes: 0, ..right }], &guest.file, "empty"),
        (
            &[RegionPlace { offset: MEMORY_BYTES - 0xfff, ..right }],
            &guest.file,
            "file is too short",
        ),
        (&[RegionPlace { offset: u64::MAX, ..right }], &guest.file, "file is too short"),
        (&[RegionPlace { guest: u64::MAX - 0xffe, ..right }], &guest.file, "wraps around"),
        (&[RegionPlace { user: u64::MAX - 0xffe, ..right }], &guest.file, "wraps around"),
        (&[right], &File::open("/proc/self/exe").unwrap(), "not in memory"),
    ] {
        let refused = refusal(places, file).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
    let one_file: [OwnedFd; 1] = [guest.file.try_clone().unwrap().into()];
    assert!(Memory::map(&[right; 2], &one_file).is_err());
}

/// Sends a message to a back end, with files or with its own eventfd.
fn send(
    back: &mut BackEnd,
    request: u32,
    words: &[u64],
    files: Vec<OwnedFd>,
) -> Result<(), Refused> {
    let payload = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let files = files.into_iter().map(Into::into).collect();
    back.obey(Message { request, wants_reply: false, payload, files }).map(drop)
}

fn of_ring(ring: u64, value: u64) -> [u64; 1] {
    [ring | value << 32]
}

/// Configures a guest's memory and its ring for this direction, and enables the ring.
fn set_up(back: &mut BackEnd, guest: &Guest, chosen: u64, way: Way) {
    let ring = way as u64;
    let file = || vec![guest.file.try_clone().unwrap().into()];
    send(back, request::SET_FEATURES, &[chosen | guest.form()], vec![]).unwrap();
    send(back, request::SET_MEM_TABLE, &[1, 0, MEMORY_BYTES, 0, 0], file()).unwrap();
    send(back, request::SET_VRING_NUM, &of_ring(ring, guest.size.into()), vec![]).unwrap();
    send(back, request::SET_VRING_BASE, &of_ring(ring, guest.base(guest.offered).into()), vec![])
        .unwrap();
    send(back, request::SET_VRING_ADDR, &[ring, TABLE, USED, AVAILABLE, 0], vec![]).unwrap();
    let kick = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    send(back, request::SET_VRING_KICK, &[ring], vec![kick]).unwrap();
}

const OFFERED: u64 = features::OF_RINGS | features::OF_MOVES;

#[test]
fn a_ring_begins_at_its_base_and_stops_with_the_number_of_its_next_entry() {
    for (form, first) in [(FORMS[0], 65_533), (FORMS[1], 0)] {
        let mut back = BackEnd::new(OFFERED).unwrap();
        let mut guest = Guest::new(form, 8, first);
        set_up(&mut back, &guest, features::VERSION_1, Way::FromGuest);
        // With 13 entries, the indexes wrap, or the ring starts another lap.
        for number in 0..13 {
            guest.offer_plain(number % 8, 9, 0);
            let ring = back.ring(Way::FromGuest).unwrap();
            assert_eq!(received(ring).map(|got| got.map(|got| got.len())), Ok(Some(9)));
            if number < 12 {
                back.publish(Way::FromGuest);
                assert_eq!(guest.used().len(), 1);
            }
        }
        let payload = vec![1, 0, 0, 0, 0, 0, 0, 0];
        let message = Message { request: 11, wants_reply: false, payload, files: vec![] };
        let answer = back.obey(message).unwrap().unwrap();
        let expected = if form == 0 { 10 } else { 0x0005_0005_u32 };
        assert_eq!(answer[12..], [1, expected].map(u32::to_ne_bytes).concat());
        assert_eq!((guest.used().len(), back.ring(Way::FromGuest).is_none()), (1, true));
        assert!(back.kick(Way::FromGuest).is_none());
    }
}

#[test]
fn a_ring_is_used_while_it_is_enabled() {
    for form in FORMS {
        let mut back = BackEnd::new(OFFERED).unwrap();
        let mut guest = Guest::new(form, 8, 0);
        set_up(
            &mut back,
            &guest,
            features::VERSION_1 | features::PROTOCOL_FEATURES,
            Way::FromGuest,
        );
        assert!(!back.is_running(Way::FromGuest));
        guest.offer_plain(0, 9, 0);
        for (is_enabled, frames) in [(1, 1), (0, 0), (1, 0)] {
            let words = of_ring(1, is_enabled);
            send(&mut back, request::SET_VRING_ENABLE, &words, vec![]).unwrap();
            assert_eq!(back.is_running(Way::FromGuest), is_enabled == 1);
            let count = back
                .ring(Way::FromGuest)
                .map_or(0, |ring| iter::from_fn(|| received(ring).unwrap()).count());
            assert_eq!(count, frames);
        }
        // Without protocol features, the ring needs no message to be enabled.
        set_up(&mut back, &Guest::new(form, 8, 0), features::VERSION_1, Way::FromGuest);
        assert!(back.is_running(Way::FromGuest));
        back.forget();
        assert!(!back.is_running(Way::FromGuest) && back.chosen().is_none());
    }
}

#[test]
fn a_ring_moves_to_other_memory_and_goes_on_where_it_was() {
    for form in FORMS {
        let mut back = BackEnd::new(OFFERED).unwrap();
        let [mut before, mut after] = [0; 2].map(|_| Guest::new(form, 8, 0));
        set_up(&mut back, &before, features::VERSION_1, Way::FromGuest);
        before.offer_plain(0, 9, 0);
        after.offer_plain(0, 9, 0);
        assert_eq!(received(back.ring(Way::FromGuest).unwrap()), Ok(Some(vec![0; 9])));
        let file = vec![after.file.try_clone().unwrap().into()];
        send(&mut back, request::SET_MEM_TABLE, &[1, 0, MEMORY_BYTES, 0, 0], file).unwrap();
        assert_eq!(before.used(), [(0, 0)], "its driver was told in the memory that it had");
        after.put(data(1), &[5; 9]);
        after.offer_plain(1, 9, 0);
        assert_eq!(received(back.ring(Way::FromGuest).unwrap()), Ok(Some(vec![5; 9])));
        // A refused table removes the previous table, and the back end returns the reason once.
        let files = vec![after.file.try_clone().unwrap().into()];
        assert!(send(&mut back, request::SET_MEM_TABLE, &[1, 0, 0, 0, 0], files).is_err());
        assert!(back.ring(Way::FromGuest).is_none());
        assert!(back.refused_memory().is_some() && back.refused_memory().is_none());
    }
}

#[test]
fn features_that_were_not_offered_are_refused() {
    let mut back = BackEnd::new(OFFERED & !features::EVENT_INDEX).unwrap();
    assert!(send(&mut back, request::SET_FEATURES, &[OFFERED], vec![]).is_err());
    assert_eq!(back.chosen(), None);
    send(&mut back, request::SET_FEATURES, &[OFFERED & !features::EVENT_INDEX], vec![]).unwrap();
    let of_guest = OFFERED & !features::EVENT_INDEX & !features::LOG_ALL;
    assert_eq!(back.chosen(), Some(of_guest));
}

#[test]
fn rings_of_wrong_sizes_and_numbers_are_not_begun() {
    for (what, request, words) in [
        ("no power of two", request::SET_VRING_NUM, &of_ring(1, 7)[..]),
        ("no entries", request::SET_VRING_NUM, &of_ring(1, 0)),
        ("an address that is not aligned", request::SET_VRING_ADDR, &[1, 8, USED, AVAILABLE, 0]),
        ("an address nowhere", request::SET_VRING_ADDR, &[1, 0, MEMORY_BYTES, AVAILABLE, 0]),
    ] {
        let mut back = BackEnd::new(OFFERED).unwrap();
        set_up(&mut back, &Guest::new(FORMS[0], 8, 0), features::VERSION_1, Way::FromGuest);
        send(&mut back, request, words, vec![]).unwrap();
        assert!(!back.is_running(Way::FromGuest), "{what}");
    }
    for (request, words) in [
        (request::SET_VRING_NUM, of_ring(1, 1 << 16)),
        (request::SET_VRING_NUM, of_ring(2, 8)),
        (request::SET_VRING_BASE, of_ring(1, 1 << 16)),
        (request::SET_VRING_ENABLE, of_ring(2, 1)),
        (request::SET_VRING_KICK, [2 | 1 << 8]),
        (request::SET_VRING_CALL, [2 | 1 << 8]),
    ] {
        let mut back = BackEnd::new(OFFERED).unwrap();
        set_up(&mut back, &Guest::new(FORMS[0], 8, 0), features::VERSION_1, Way::FromGuest);
        assert!(send(&mut back, request, &words, vec![]).is_err(), "{request}");
    }
}

#[test]
fn a_driver_with_multiqueue_has_its_number_of_rings() {
    let mut back = BackEnd::new(OFFERED).unwrap();
    let ask = |back: &mut BackEnd, request| {
        let message = Message { request, wants_reply: false, payload: vec![], files: vec![] };
        let answer = back.obey(message).unwrap().unwrap();
        u64::from_ne_bytes(*answer[12..].first_chunk().unwrap())
    };
    assert_eq!(ask(&mut back, request::GET_PROTOCOL_FEATURES) & 1, 1);
    assert_eq!(ask(&mut back, request::GET_QUEUE_NUM), PAIRS_MAX as u64);
    let rings = 2 * PAIRS_MAX as u64;
    send(&mut back, request::SET_PROTOCOL_FEATURES, &[1], vec![]).unwrap();
    for (ring, is_known) in [(1, true), (2, true), (rings - 1, true), (rings, false)] {
        for (request, words) in [
            (request::SET_VRING_NUM, of_ring(ring, 8)),
            (request::SET_VRING_ENABLE, of_ring(ring, 1)),
            (request::SET_VRING_KICK, [ring | 1 << 8]),
            (request::SET_VRING_CALL, [ring | 1 << 8]),
            (request::GET_VRING_BASE, of_ring(ring, 0)),
        ] {
            let said = send(&mut back, request, &words, vec![]);
            assert_eq!(said.is_ok(), is_known, "{ring} {request}");
        }
    }
    // Rings that have only been enabled are not started.
    assert!((0..2).all(|_| back.ring(Way::ToGuest).is_none()) && back.pairs() == 1);
}

#[test]
fn of_pairs_with_gaps_those_in_use_are_chosen_each_for_itself() {
    let mut back = BackEnd::new(OFFERED).unwrap();
    let guests = [0, 1, 2].map(|_| Guest::new(FORMS[0], 8, 0));
    send(&mut back, request::SET_PROTOCOL_FEATURES, &[1], vec![]).unwrap();
    send(&mut back, request::SET_FEATURES, &[features::VERSION_1], vec![]).unwrap();
    // The memory of the first guest contains all rings, which have different sizes.
    let file = vec![guests[0].file.try_clone().unwrap().into()];
    send(&mut back, request::SET_MEM_TABLE, &[1, 0, MEMORY_BYTES, 0, 0], file).unwrap();
    let mut set = |ring: u64, is_enabled: u64| {
        send(&mut back, request::SET_VRING_NUM, &of_ring(ring, 8), vec![]).unwrap();
        let at = [ring, TABLE, USED, AVAILABLE, 0];
        send(&mut back, request::SET_VRING_ADDR, &at, vec![]).unwrap();
        send(&mut back, request::SET_VRING_KICK, &[ring | 1 << 8], vec![]).unwrap();
        send(&mut back, request::SET_VRING_ENABLE, &of_ring(ring, is_enabled), vec![]).unwrap();
    };
    [(0, 1), (2, 0), (4, 1), (5, 1)].into_iter().for_each(|(ring, enabled)| set(ring, enabled));
    assert_eq!(back.pairs(), 3);
    assert_eq!(back.rings(Way::ToGuest).count(), 2);
    // A frame changes only the chosen ring.
    for (pair, entries) in [(0, [1, 0]), (1, [1, 1]), (2, [1, 2]), (3, [2, 2])] {
        guests[0].put(AVAILABLE + 2, &8_u16.to_le_bytes());
        back.choose(Way::ToGuest, pair);
        let _ = give(back.ring(Way::ToGuest).unwrap(), 20, true);
        let taken: Vec<u32> = back.rings(Way::ToGuest).map(|ring| ring.base()).collect();
        assert_eq!(taken, entries, "{pair}");
    }
    assert!(back.ring(Way::FromGuest).is_some(), "one pair has frames of the guest");
    (0..2).for_each(|_| back.turn(Way::FromGuest));
    assert!(back.ring(Way::FromGuest).is_none(), "that of the pair before");
}
