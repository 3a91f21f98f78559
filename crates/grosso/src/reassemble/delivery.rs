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

/// Receiver of a reassembler's output, in order. Every `FnMut(Outcome<'_, B>)` implements this trait.
pub trait ReassemblySink<B> {
    /// Receives one item of the output.
    fn take(&mut self, outcome: Outcome<'_, B>);
}

impl<B, F: FnMut(Outcome<'_, B>) + ?Sized> ReassemblySink<B> for F {
    fn take(&mut self, outcome: Outcome<'_, B>) {
        self(outcome);
    }
}

/// One item of a reassembler's output. Every pushed buffer is returned in exactly one item.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome<'a, B> {
    /// An unchanged frame that is not a fragment, or is a fragment that cannot be reassembled.
    Passed {
        /// The frame as it was pushed.
        frame: Frame<B>,
        /// Reason why the frame was not reassembled.
        reason: Pass,
    },
    /// A complete datagram.
    Datagram(Datagram<'a, B>),
    /// An unchanged fragment of a known flow, in [`ReassemblyMode::Virtual`](super::ReassemblyMode::Virtual).
    Fragment {
        /// The frame as it was pushed.
        frame: Frame<B>,
        /// Flow of the fragment, as read from the first fragment of the datagram.
        flow: Flow,
    },
    /// An incomplete datagram that was discarded. The next items return its buffers.
    Discarded(Discarded<'a>),
    /// An ICMP error that the caller may send to the source of a packet. Do not send it if the destination is a group
    /// address or the source is not a single host (RFC 1122 section 3.2.2, RFC 4443 section 2.4).
    Problem {
        /// Type of the error.
        error: IcmpError,
        /// Packet to quote in the error, starting with its IP header. It may be truncated to 1280 bytes.
        quote: &'a [u8],
    },
    /// A frame whose buffer the reassembler no longer needs.
    Returned {
        /// The frame as it was pushed.
        frame: Frame<B>,
        /// Reason why the frame was returned.
        why: Returned,
    },
}

/// Reason why a frame was returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returned {
    /// The data of the fragment was copied.
    Gathered,
    /// The fragment is a duplicate.
    Duplicate,
    /// The fragment was discarded, either alone or with its datagram.
    Discarded(Discard),
}

/// State of the transport checksum of a complete datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// The checksum was not verified here, because verification is off or the device has already verified it.
    Unread,
    /// The checksum is valid.
    Right,
    /// The checksum is invalid.
    Wrong,
    /// The datagram has no checksum.
    Absent,
    /// The protocol is unknown, or the length fields disagree.
    Unknown,
}

/// Complete datagram: headers and data, ready for a vectored write (`writev`).
///
/// In a mode that keeps buffers, the receiver takes the fragments with [`Datagram::next_fragment`]; fragments that it
/// does not take are dropped with the datagram.
#[must_use]
#[derive(Debug)]
pub struct Datagram<'a, B> {
    pub(crate) header: &'a [u8],
    pub(crate) store: &'a mut Store<B>,
    pub(crate) pages: Pages,
    /// Fragments that have not been taken.
    pub(crate) rest: Starts,
    /// Number of bytes that were copied into one buffer, or 0 in a mode that keeps buffers.
    pub(crate) gathered: u32,
    /// Identity of the datagram.
    pub identity: Identity,
    /// Flow of the datagram.
    pub flow: Flow,
    /// Metadata of the first fragment, but with the latest arrival time. The checksum is
    /// [`Complete`](crate::checksum::Checksum::Complete) if it was in every fragment.
    pub meta: Meta,
    /// State of the transport checksum.
    pub transport: Transport,
    /// Number of fragments.
    pub fragments: u16,
    /// Length of the frame in bytes.
    pub len: usize,
    /// Length of the longest fragment in bytes, including its IP header. Do not fragment the datagram into longer
    /// pieces (rule F20, P38).
    pub fragment_bytes_max: u16,
    /// Whether DF is set in the longest fragment. If so, new fragments of that length need DF too (rule F20).
    pub dont_fragment: bool,
}

impl<B: AsRef<[u8]>> Datagram<'_, B> {
    /// Returns the headers of the datagram, without its data.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        self.header
    }

    /// Returns the slices of the frame in order, starting with the headers, for a vectored write.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let gathered = self.store.slices(&self.pages, 0, self.gathered);
        core::iter::once(self.header).chain(gathered).chain(self.fragments().map(Fragment::bytes))
    }

    /// Returns the fragments in the order of their data. The result is empty if the mode does not keep buffers.
    pub fn fragments(&self) -> impl Iterator<Item = &Fragment<B>> {
        let mut rest = self.rest.clone();
        core::iter::from_fn(move || {
            self.store.next_start(&mut rest).and_then(|number| self.store.fragments.get(number))
        })
    }

    /// Appends the whole frame to `out`.
    pub fn copy_to(&self, out: &mut alloc::vec::Vec<u8>) {
        out.reserve(self.len);
        self.slices().for_each(|slice| out.extend_from_slice(slice));
    }
}

impl<B> Datagram<'_, B> {
    /// Returns the value of [`Meta::fragmented`] to set when forwarding the datagram, or `None` if there was only one
    /// fragment.
    #[must_use]
    pub fn fragmented(&self) -> Option<Fragmented> {
        let largest = NonZeroU16::new(self.fragment_bytes_max).filter(|_| self.fragments > 1)?;
        Some(Fragmented { largest, identification: self.identity.identification })
    }

    /// Takes the next fragment, with its frame as it was pushed.
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

/// Incomplete datagram that was discarded.
#[derive(Clone, Copy)]
pub struct Discarded<'a> {
    /// Identity of the datagram.
    pub identity: Identity,
    /// Reason why the datagram was discarded.
    pub reason: Discard,
    /// Number of fragments that arrived.
    pub fragments: u16,
    /// Length of the data in bytes, or `None` if the last fragment has not arrived.
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
    /// Returns the missing ranges of data bytes, in order. If [`end`](Self::end) is unknown, everything from
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

    /// Returns the highest offset at which a fragment ends, in bytes of data.
    #[must_use]
    pub fn reach(&self) -> u32 {
        self.reach
    }
}

/// Search for missing bytes in a datagram. The trait is independent of the buffer type.
pub(crate) trait Holes {
    /// Returns the first missing unit at or after `from`.
    fn hole(&self, pages: &Pages, from: u32) -> Option<u32>;
    /// Returns the first present unit at or after `from`.
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
