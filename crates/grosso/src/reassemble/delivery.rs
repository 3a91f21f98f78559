//! Output of the reassembler.

use core::{num::NonZeroU16, ops::Range};

use crate::{
    frame::Frame,
    meta::{Fragmented, Meta},
    reassemble::{
        identity::{Flow, Identity},
        reason::{Discard, IcmpError, Pass},
        store::{Bit, Fragment, Pages, Starts, Store, offset_of, units},
    },
};

/// Receiver of a reassembler's output, in order. Any `FnMut(Outcome<'_, B>)` is one.
pub trait ReassemblySink<B> {
    /// Takes one item.
    fn take(&mut self, outcome: Outcome<'_, B>);
}

impl<B, F: FnMut(Outcome<'_, B>) + ?Sized> ReassemblySink<B> for F {
    #[inline]
    fn take(&mut self, outcome: Outcome<'_, B>) {
        self(outcome);
    }
}

/// One item of a reassembler's output. Every buffer that was pushed is returned in one of them.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome<'a, B> {
    /// A frame that is no fragment, or a fragment that cannot be joined, unchanged.
    Passed {
        /// The frame.
        frame: Frame<B>,
        /// Reason.
        reason: Pass,
    },
    /// A whole datagram.
    Datagram(Datagram<'a, B>),
    /// An unchanged fragment whose flow is known, in [`ReassemblyMode::Virtual`](super::ReassemblyMode::Virtual).
    Fragment {
        /// The frame.
        frame: Frame<B>,
        /// Its flow, as the first fragment of the datagram told it.
        flow: Flow,
    },
    /// A datagram that will not be completed. Its buffers follow.
    Discarded(Discarded<'a>),
    /// An error that the caller may send to the source of a packet, unless the packet was sent to a group or its source
    /// is not a single host (RFC 1122 section 3.2.2, RFC 4443 section 2.4).
    Problem {
        /// Type of the error.
        error: IcmpError,
        /// The packet to quote in the error, from its IP header on. It may be cut behind 1280 bytes.
        quote: &'a [u8],
    },
    /// A frame that is not needed any more.
    Returned {
        /// The frame.
        frame: Frame<B>,
        /// Reason.
        why: Returned,
    },
}

/// Reason why a frame was returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returned {
    /// Its data were copied.
    Gathered,
    /// The same fragment came before.
    Duplicate,
    /// It was discarded, alone or with its datagram.
    Discarded(Discard),
}

/// State of the transport checksum of a whole datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Not verified: verification is off, or a device verified it.
    Unread,
    /// Right.
    Right,
    /// Wrong.
    Wrong,
    /// The datagram has none.
    Absent,
    /// The protocol is not known, or its lengths disagree.
    Unknown,
}

/// A whole datagram: headers and data, ready for a vectored write.
///
/// In a mode that keeps buffers, the receiver takes its fragments with [`Datagram::next_fragment`]; those not taken are
/// dropped with the datagram.
#[must_use]
#[derive(Debug)]
pub struct Datagram<'a, B> {
    pub(crate) header: &'a [u8],
    pub(crate) store: &'a mut Store<B>,
    pub(crate) pages: Pages,
    /// The fragments that were not taken.
    pub(crate) rest: Starts,
    /// Bytes copied together; 0 in a mode that keeps buffers.
    pub(crate) gathered: u32,
    /// Identity of the datagram.
    pub identity: Identity,
    /// Its flow.
    pub flow: Flow,
    /// Its metadata: the first fragment's, with the time of the latest arrival. The checksum is
    /// [`Complete`](crate::checksum::Checksum::Complete) if that of each fragment was.
    pub meta: Meta,
    /// State of its transport checksum.
    pub transport: Transport,
    /// Number of its fragments.
    pub fragments: u16,
    /// Bytes of the frame.
    pub len: usize,
    /// The longest fragment in bytes, IP header and data. Fragments made from this datagram should not be longer (rule
    /// F20, P38).
    pub fragment_bytes_max: u16,
    /// Its longest fragment has DF set, so fragments of that length need DF too (rule F20).
    pub dont_fragment: bool,
}

impl<B: AsRef<[u8]>> Datagram<'_, B> {
    /// The headers of the whole datagram; its data follow.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        self.header
    }

    /// The frame as slices, headers first, for a vectored write.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let gathered = self.store.slices(&self.pages, 0, self.gathered);
        core::iter::once(self.header).chain(gathered).chain(self.fragments().map(Fragment::bytes))
    }

    /// The fragments in the order of their data, if buffers are kept.
    pub fn fragments(&self) -> impl Iterator<Item = &Fragment<B>> {
        let mut rest = self.rest.clone();
        core::iter::from_fn(move || {
            self.store.next_start(&mut rest).and_then(|number| self.store.fragments.get(number))
        })
    }

    /// Appends the frame to `out`.
    pub fn copy_to(&self, out: &mut alloc::vec::Vec<u8>) {
        out.reserve(self.len);
        self.slices().for_each(|slice| out.extend_from_slice(slice));
    }
}

impl<B> Datagram<'_, B> {
    /// Description of its fragments for [`Meta::fragmented`], if it is forwarded. `None` for one of a single fragment.
    #[must_use]
    pub fn fragmented(&self) -> Option<Fragmented> {
        let largest = NonZeroU16::new(self.fragment_bytes_max).filter(|_| self.fragments > 1)?;
        Some(Fragmented { largest, identification: self.identity.identification })
    }

    /// Takes the next fragment with its frame, as it was pushed.
    pub fn next_fragment(&mut self) -> Option<Fragment<B>> {
        let number = self.store.next_start(&mut self.rest)?;
        self.store.fragments.remove(number)
    }
}

impl<B> Drop for Datagram<'_, B> {
    fn drop(&mut self) {
        while self.next_fragment().is_some() {}
        self.store.release(&mut self.pages);
    }
}

/// A datagram that will not be completed.
#[derive(Clone, Copy)]
pub struct Discarded<'a> {
    /// Identity of the datagram.
    pub identity: Identity,
    /// Reason.
    pub reason: Discard,
    /// Number of its fragments that arrived.
    pub fragments: u16,
    /// Its length in bytes of data, once its last fragment arrived.
    pub end: Option<u32>,
    pub(crate) reach: u32,
    pub(crate) pages: Pages,
    pub(crate) holes: &'a dyn Holes,
}

impl core::fmt::Debug for Discarded<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { identity, reason, fragments, end, .. } = self;
        write!(f, "Discarded({identity:?}, {reason}, {fragments} fragments, end {end:?})")
    }
}

impl Discarded<'_> {
    /// The missing ranges of data bytes, in order. Without an [`end`](Self::end), everything from
    /// [`reach`](Self::reach) on is missing as well.
    pub fn missing(&self) -> impl Iterator<Item = Range<u32>> {
        let end = self.end.unwrap_or(self.reach);
        let limit = units(0, end).end;
        let mut from = units(0, 0).start;
        core::iter::from_fn(move || {
            let start = self.holes.hole(&self.pages, from).filter(|&start| start < limit)?;
            let behind = self.holes.behind_hole(&self.pages, start).map_or(limit, |u| u.min(limit));
            from = behind;
            Some(offset_of(start)..offset_of(behind).min(end))
        })
    }

    /// Greatest end of a fragment, in bytes of data.
    #[must_use]
    pub fn reach(&self) -> u32 {
        self.reach
    }
}

/// Search for missing bytes, independent of the type of the buffers.
pub(crate) trait Holes {
    /// The first missing unit from `from` on.
    fn hole(&self, pages: &Pages, from: u32) -> Option<u32>;
    /// The first present unit from `from` on.
    fn behind_hole(&self, pages: &Pages, from: u32) -> Option<u32>;
}

impl<B> Holes for Store<B> {
    fn hole(&self, pages: &Pages, from: u32) -> Option<u32> {
        self.next(pages, Bit::Covered, false, from)
    }

    fn behind_hole(&self, pages: &Pages, from: u32) -> Option<u32> {
        self.next(pages, Bit::Covered, true, from)
    }
}
