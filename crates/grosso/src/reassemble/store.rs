//! Bitmaps and bytes of all incomplete datagrams, in pages.
//!
//! A datagram has at most 8192 units of 8 bytes, the unit of fragment offsets. A page describes 512 units. Its bits say
//! which units are present, where fragments start, and where runs start. A query about a fragment reads only a few
//! words, whichever fragments have arrived and in whatever order (B40, P31). Nothing has to be sorted.

use alloc::{boxed::Box, vec, vec::Vec};
use core::ops::Range;

use grosso_checksum::Sum;

use crate::{
    frame::Frame,
    reassemble::queue::{NONE, Slab},
};

/// Fragment with its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<B> {
    /// The frame as it was pushed, without segmentation parameters (rule F25).
    pub frame: Frame<B>,
    start: u32,
    end: u32,
}

impl<B: AsRef<[u8]>> Fragment<B> {
    pub(crate) fn new(frame: Frame<B>, data: &Range<u32>) -> Self {
        Self { frame, start: data.start, end: data.end }
    }

    /// Returns the range of the fragment's data in the buffer.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// Returns the fragment's data.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.frame.buffer.as_ref().get(self.range()).unwrap_or_default()
    }

    /// Returns the headers before the fragment's data.
    pub(crate) fn header(&self) -> &[u8] {
        self.frame.buffer.as_ref().get(..self.start as usize).unwrap_or_default()
    }
}

/// Pages of bitmaps, and the fragments whose buffers are kept.
#[derive(Debug)]
pub(crate) struct Store<B> {
    pages: Vec<Page>,
    free: u32,
    pub(crate) fragments: Slab<Fragment<B>>,
    /// Whether pages store the data bytes. If not, the store keeps the buffers of the fragments.
    gathers: bool,
}

#[derive(Debug)]
struct Page {
    bits: [Bits; 3],
    /// Data bytes of the page's units.
    bytes: Box<[u8]>,
    /// Number that the caller stores for each fragment, at the index of the fragment's first unit.
    index: Box<[u32]>,
    next_free: u32,
}

/// One bit for each unit of a page.
type Bits = [u64; WORDS];

/// Property of a unit, stored as one bit in its page.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bit {
    /// The unit is present.
    Covered = 0,
    /// A fragment starts with the unit.
    Start = 1,
    /// A run starts with the unit: its fragment did not start where all earlier data ended (rule F15).
    Run = 2,
}

/// The pages of one datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pages([u32; PAGES_MAX]);

impl Pages {
    pub(crate) const NONE: Self = Self([NONE; PAGES_MAX]);
}

/// State of an iteration over the starts of fragments.
#[derive(Clone, Debug)]
pub(crate) struct Starts {
    pages: Pages,
    word: usize,
    /// Bits in the current word for starts that have not been returned.
    bits: u64,
    /// Maximum number of remaining starts, so that the search ends after the last one.
    left: u16,
}

/// Returns the units that contain the datagram's bytes from `offset` to `end`. `offset` must be a multiple of 8.
pub(crate) fn units(offset: u32, end: u32) -> Range<u32> {
    HEADER_UNITS + offset / UNIT..HEADER_UNITS + end.div_ceil(UNIT)
}

/// Returns the offset of a unit in the datagram.
pub(crate) fn offset_of(unit: u32) -> u32 {
    unit.saturating_sub(HEADER_UNITS) * UNIT
}

impl<B> Store<B> {
    pub(crate) fn new(gathers: bool) -> Self {
        Self { pages: Vec::new(), free: NONE, fragments: Slab::default(), gathers }
    }

    /// Returns the memory that a page occupies, in bytes.
    pub(crate) fn page_bytes(&self) -> usize {
        size_of::<Page>() + if self.gathers { PAGE_BYTES } else { PAGE_UNITS * size_of::<u32>() }
    }

    /// Returns the number of pages that these units need and the datagram lacks.
    pub(crate) fn pages_missing(&self, pages: &Pages, units: &Range<u32>) -> usize {
        page_numbers(units).filter(|&page| pages.0.get(page) == Some(&NONE)).count()
    }

    /// Adds the pages of these units to the datagram.
    pub(crate) fn provide(&mut self, pages: &mut Pages, units: &Range<u32>) {
        for page in page_numbers(units) {
            if let Some(number) = pages.0.get_mut(page)
                && *number == NONE
            {
                *number = self.take_page();
            }
        }
    }

    /// Frees the pages.
    pub(crate) fn release(&mut self, pages: &mut Pages) {
        for number in &mut pages.0 {
            if let Some(page) = self.pages.get_mut(*number as usize) {
                page.next_free = self.free;
                self.free = *number;
            }
            *number = NONE;
        }
    }

    /// Returns whether any of the units has the bit.
    pub(crate) fn any(&self, pages: &Pages, bit: Bit, units: &Range<u32>) -> bool {
        spans(units).any(|(page, units)| {
            let Some(bits) = self.bits(pages, bit, page) else { return false };
            let (words, head, tail) = masks(&units);
            match bits.get(words) {
                Some([only]) => only & head & tail != 0,
                Some([first, between @ .., last]) => {
                    first & head | last & tail | between.iter().fold(0, |any, word| any | word) != 0
                }
                _ => false,
            }
        })
    }

    /// Returns whether all of the units have the bit.
    pub(crate) fn all(&self, pages: &Pages, bit: Bit, units: &Range<u32>) -> bool {
        let has = |bits: &Bits, units| words(&units).all(|(word, mask)| bits[word] & mask == mask);
        spans(units).all(|(page, units)| self.bits(pages, bit, page).is_some_and(|b| has(b, units)))
    }

    /// Returns how many of the units have the bit.
    pub(crate) fn count(&self, pages: &Pages, bit: Bit, units: &Range<u32>) -> u32 {
        let ones = |(page, units)| {
            let bits = self.bits(pages, bit, page)?;
            Some(words(&units).map(|(word, mask)| (bits[word] & mask).count_ones()).sum::<u32>())
        };
        spans(units).filter_map(ones).sum()
    }

    /// Sets the bit in all of the units, whose pages must exist.
    pub(crate) fn set(&mut self, pages: &Pages, bit: Bit, units: &Range<u32>) {
        for (page, units) in spans(units) {
            let (words, head, tail) = masks(&units);
            let page = self.page_mut(pages, page);
            match page.and_then(|page| page.bits[bit as usize].get_mut(words)) {
                Some([only]) => *only |= head & tail,
                Some([first, between @ .., last]) => {
                    *first |= head;
                    between.fill(u64::MAX);
                    *last |= tail;
                }
                _ => {}
            }
        }
    }

    /// Sets the bit in one unit, whose page must exist.
    pub(crate) fn mark(&mut self, pages: &Pages, bit: Bit, unit: u32) {
        if let Some(page) = self.page_mut(pages, unit as usize / PAGE_UNITS) {
            let unit = unit as usize % PAGE_UNITS;
            page.bits[bit as usize][unit / WORD_UNITS] |= 1 << (unit % WORD_UNITS);
        }
    }

    /// Returns the first unit at or after `from` in which the bit is `is_set`.
    pub(crate) fn next(&self, pages: &Pages, bit: Bit, is_set: bool, from: u32) -> Option<u32> {
        let flip = if is_set { 0 } else { u64::MAX };
        let mut at = from as usize;
        while at < UNITS_MAX as usize {
            let Some(bits) = self.bits(pages, bit, at / PAGE_UNITS) else {
                if !is_set {
                    return Some(at as u32);
                }
                at = (at / PAGE_UNITS + 1) * PAGE_UNITS;
                continue;
            };
            let rest = (bits[at / WORD_UNITS % WORDS] ^ flip) >> (at % WORD_UNITS);
            if rest != 0 {
                return Some(at as u32 + rest.trailing_zeros());
            }
            at = (at / WORD_UNITS + 1) * WORD_UNITS;
        }
        None
    }

    /// Starts an iteration over the starts of `fragments` fragments, in order from unit `from`.
    pub(crate) fn starts(&self, pages: &Pages, from: u32, fragments: u16) -> Starts {
        let word = from as usize / WORD_UNITS;
        let mut starts = Starts { pages: *pages, word, bits: 0, left: fragments };
        starts.bits = self.start_bits(&starts) & u64::MAX << (from as usize % WORD_UNITS);
        starts
    }

    /// Returns the number stored for the next fragment.
    pub(crate) fn next_start(&self, starts: &mut Starts) -> Option<u32> {
        starts.left = starts.left.checked_sub(1)?;
        while starts.bits == 0 {
            starts.word += 1;
            if starts.word >= WORDS_MAX {
                return None;
            }
            match self.bits(&starts.pages, Bit::Start, starts.word / WORDS) {
                Some(bits) => starts.bits = bits[starts.word % WORDS],
                // The page is missing, so the search continues after its last word.
                None => starts.word |= WORDS - 1,
            }
        }
        let unit = starts.word * WORD_UNITS + starts.bits.trailing_zeros() as usize;
        starts.bits &= starts.bits - 1;
        Some(self.index(&starts.pages, unit as u32))
    }

    fn start_bits(&self, starts: &Starts) -> u64 {
        let bits = self.bits(&starts.pages, Bit::Start, starts.word / WORDS);
        bits.map_or(0, |bits| bits[starts.word % WORDS])
    }

    /// Returns the number stored for a unit.
    pub(crate) fn index(&self, pages: &Pages, unit: u32) -> u32 {
        let page = self.page(pages, unit as usize / PAGE_UNITS);
        page.and_then(|page| page.index.get(unit as usize % PAGE_UNITS)).map_or(NONE, |&n| n)
    }

    /// Stores a number for a unit.
    pub(crate) fn set_index(&mut self, pages: &Pages, unit: u32, number: u32) {
        let page = self.page_mut(pages, unit as usize / PAGE_UNITS);
        if let Some(slot) = page.and_then(|p| p.index.get_mut(unit as usize % PAGE_UNITS)) {
            *slot = number;
        }
    }

    /// Copies data to the place of a unit, and sums it in the same pass.
    pub(crate) fn write(&mut self, pages: &Pages, unit: u32, data: &[u8], summed: bool) -> Sum {
        let mut sum = Sum::ZERO;
        let mut data = data;
        let mut at = unit as usize * UNIT as usize;
        while !data.is_empty() {
            let (page, start) = (at / PAGE_BYTES, at % PAGE_BYTES);
            let (now, rest) = data.split_at(data.len().min(PAGE_BYTES - start));
            let place = self.page_mut(pages, page).and_then(|page| page.bytes.get_mut(start..));
            let Some(place) = place.and_then(|place| place.get_mut(..now.len())) else {
                return sum;
            };
            if summed {
                // Pages and units have even lengths, so no sum needs a byte swap.
                sum += grosso_checksum::copy(now, place);
            } else {
                place.copy_from_slice(now);
            }
            (at, data) = (at + now.len(), rest);
        }
        sum
    }

    /// Returns the bytes between two offsets in the datagram, page by page.
    pub(crate) fn slices(
        &self,
        pages: &Pages,
        offset: u32,
        end: u32,
    ) -> impl Iterator<Item = &[u8]> + use<'_, B> {
        let pages = *pages;
        let mut at = HEADER_ROOM + offset as usize;
        let end = HEADER_ROOM + end as usize;
        core::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let start = at % PAGE_BYTES;
            let len = (PAGE_BYTES - start).min(end - at);
            let page = self.page(&pages, at / PAGE_BYTES)?;
            at += len;
            page.bytes.get(start..start + len)
        })
    }

    /// Stores the headers of the first fragment before its data.
    pub(crate) fn write_header(&mut self, pages: &Pages, header: &[u8]) {
        let start = HEADER_ROOM.saturating_sub(header.len());
        let page = self.page_mut(pages, 0).and_then(|page| page.bytes.get_mut(start..HEADER_ROOM));
        if let Some(place) = page.filter(|place| place.len() == header.len()) {
            place.copy_from_slice(header);
        }
    }

    /// Returns the last `before` bytes of the headers and the first `data` bytes after them. Returns fewer data bytes
    /// if the page ends earlier.
    pub(crate) fn front(&self, pages: &Pages, before: usize, data: usize) -> &[u8] {
        let range = HEADER_ROOM.saturating_sub(before)..(HEADER_ROOM + data).min(PAGE_BYTES);
        self.page(pages, 0).and_then(|page| page.bytes.get(range)).unwrap_or_default()
    }

    fn bits(&self, pages: &Pages, bit: Bit, page: usize) -> Option<&Bits> {
        self.page(pages, page).map(|page| &page.bits[bit as usize])
    }

    fn page(&self, pages: &Pages, page: usize) -> Option<&Page> {
        self.pages.get(*pages.0.get(page)? as usize)
    }

    fn page_mut(&mut self, pages: &Pages, page: usize) -> Option<&mut Page> {
        self.pages.get_mut(*pages.0.get(page)? as usize)
    }

    fn take_page(&mut self) -> u32 {
        let number = self.free;
        if let Some(page) = self.pages.get_mut(number as usize) {
            self.free = page.next_free;
            page.bits = [[0; WORDS]; 3];
            return number;
        }
        let (bytes, index) = if self.gathers { (PAGE_BYTES, 0) } else { (0, PAGE_UNITS) };
        self.pages.push(Page {
            bits: [[0; WORDS]; 3],
            bytes: vec![0; bytes].into_boxed_slice(),
            index: vec![NONE; index].into_boxed_slice(),
            next_free: NONE,
        });
        self.pages.len() as u32 - 1
    }
}

/// Returns each page that a range of units overlaps, and the part of the range in this page.
fn spans(units: &Range<u32>) -> impl Iterator<Item = (usize, Range<u32>)> + use<> {
    let Range { start, end } = *units;
    page_numbers(units).map(move |page| {
        let first_unit = (page * PAGE_UNITS) as u32;
        let behind = (end - first_unit).min(PAGE_UNITS as u32);
        (page, start.saturating_sub(first_unit)..behind)
    })
}

/// Returns the index of each word that holds bits of some units in a page, with a mask of those bits.
fn words(units: &Range<u32>) -> impl Iterator<Item = (usize, u64)> + use<> {
    let (words, head, tail) = masks(units);
    let (first, last) = (words.start, words.end.saturating_sub(1));
    words.map(move |word| {
        let head = if word == first { head } else { u64::MAX };
        (word, head & if word == last { tail } else { u64::MAX })
    })
}

/// Returns the range of words, with masks for the first and the last one.
fn masks(units: &Range<u32>) -> (Range<usize>, u64, u64) {
    let (start, end) = (units.start as usize, units.end as usize);
    let words = start / WORD_UNITS..end.div_ceil(WORD_UNITS);
    (words, u64::MAX << (start % WORD_UNITS), u64::MAX >> (end.wrapping_neg() % WORD_UNITS))
}

fn page_numbers(units: &Range<u32>) -> Range<usize> {
    units.start as usize / PAGE_UNITS..(units.end as usize).div_ceil(PAGE_UNITS)
}

/// Number of bytes in a unit of fragment offsets.
const UNIT: u32 = 8;
/// Number of bytes reserved for headers before the data.
pub(crate) const HEADER_ROOM: usize = crate::template::HEADER_BYTES_MAX;
const HEADER_UNITS: u32 = HEADER_ROOM as u32 / UNIT;
/// Number of datagram bytes per page.
const PAGE_BYTES: usize = 4096;
const PAGE_UNITS: usize = PAGE_BYTES / UNIT as usize;
const WORD_UNITS: usize = u64::BITS as usize;
const WORDS: usize = PAGE_UNITS / WORD_UNITS;
/// Number of pages for the longest datagram with its headers.
const PAGES_MAX: usize = (HEADER_ROOM + 65536).div_ceil(PAGE_BYTES);
const UNITS_MAX: u32 = (PAGES_MAX * PAGE_UNITS) as u32;
const WORDS_MAX: usize = PAGES_MAX * WORDS;

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::{Bit, HEADER_UNITS, PAGE_UNITS, Pages, Store, UNITS_MAX, WORD_UNITS, spans, words};

    /// Compares all short ranges, and some that cross word and page boundaries, bit by bit.
    #[test]
    fn ranges_are_the_bits_of_their_units() {
        for (from, start) in
            [0, 400, 960].into_iter().flat_map(|from| (from..from + 140).map(move |s| (from, s)))
        {
            // Miri is several hundred times slower.
            for end in (start..from + 200).step_by(if cfg!(miri) { 61 } else { 1 }) {
                let mut bits = Vec::new();
                for (page, units) in spans(&(start..end)) {
                    for (word, mask) in words(&units) {
                        let unit = (page * PAGE_UNITS + word * WORD_UNITS) as u32;
                        bits.extend((0..64).filter(|bit| mask >> bit & 1 == 1).map(|b| unit + b));
                    }
                }
                assert_eq!(bits, (start..end).collect::<Vec<_>>(), "{start}..{end}");
            }
        }
    }

    #[test]
    fn bits_and_bytes_cross_pages_and_a_page_comes_back_empty() {
        let mut store: Store<Vec<u8>> = Store::new(true);
        let mut pages = Pages::NONE;
        let units = 400..1200;
        assert_eq!(store.pages_missing(&pages, &units), 3);
        store.provide(&mut pages, &units);
        assert_eq!(store.pages_missing(&pages, &units), 0);
        store.set(&pages, Bit::Covered, &units);
        assert!(store.all(&pages, Bit::Covered, &units));
        assert!(!store.any(&pages, Bit::Covered, &(0..400)));
        assert!(!store.any(&pages, Bit::Covered, &(1200..UNITS_MAX)));
        assert!(!store.all(&pages, Bit::Covered, &(399..401)));
        assert_eq!(store.count(&pages, Bit::Covered, &(0..UNITS_MAX)), 800);
        assert_eq!(store.next(&pages, Bit::Covered, true, 0), Some(400));
        assert_eq!(store.next(&pages, Bit::Covered, false, 400), Some(1200));
        let data: Vec<u8> = (0..6399_u32).map(|i| i as u8).collect();
        let sum = store.write(&pages, 400, &data, true);
        assert_eq!(sum, grosso_checksum::Sum::of(&data));
        let offset = (400 - HEADER_UNITS) * 8;
        let read: Vec<u8> =
            store.slices(&pages, offset, offset + 6399).flatten().copied().collect();
        assert_eq!(read, data);
        store.release(&mut pages);
        store.provide(&mut pages, &units);
        assert_eq!(store.count(&pages, Bit::Covered, &(0..UNITS_MAX)), 0);
        assert_eq!(store.pages.len(), 3);
    }
}
