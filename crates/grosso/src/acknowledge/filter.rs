//! ACK filtering: drops queued acknowledgments that a later one makes redundant, following CAKE's `ack-filter` rules.
//!
//! The filter examines only acknowledgments that are already queued, so it adds no delay. Each new acknowledgment
//! causes at most one drop: that of the oldest redundant acknowledgment. The sender therefore learns everything except
//! the number of acknowledgments.

use alloc::vec::Vec;

use arrayvec::ArrayVec;
use grosso_wire::tcp::{self, TcpOption};

use crate::{
    acknowledge::record::{Full, RECORDS_MAX},
    bytes::{u16_at, u32_at},
    reasons::reasons,
};

/// Number of redundant acknowledgments that [`AckFilter`] keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AckFiltering {
    /// Keeps one redundant acknowledgment in addition to the newest acknowledgment, like CAKE's `ack-filter`.
    #[default]
    Conservative,
    /// Keeps only the newest acknowledgment, like CAKE's `ack-filter-aggressive`.
    Aggressive,
}

/// Decision about a queued acknowledgment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// A later acknowledgment makes this one redundant.
    Dropped,
    /// The acknowledgment is kept, for this reason.
    Kept(Kept),
}

reasons! {
    /// Reason why a queued acknowledgment was kept.
    Kept {
        /// No later acknowledgment is queued.
        Newest = "newest",
        /// The acknowledgment has a reserved bit or a flag other than ACK, ECE and CWR.
        Flags = "flags",
        /// The acknowledgment has a TCP option that is unknown, malformed, or only used in the handshake.
        Options = "options",
        /// The timestamp is newer than the later acknowledgment's, or the later one has no timestamp.
        Timestamp = "timestamp",
        /// The acknowledgment number is higher than the later acknowledgment's.
        Ahead = "ahead",
        /// The acknowledgment reports a duplicate segment (D-SACK, RFC 2883).
        DuplicateSelective = "duplicate_sack",
        /// The acknowledgment reports a SACK range that the later one does not cover.
        Selective = "sack",
        /// The later acknowledgment has the same number and reports no more SACK data. Both are needed, because three
        /// duplicates signal a loss.
        Duplicate = "duplicate",
        /// ECE or CWR differs between this acknowledgment and a later one.
        Congestion = "congestion",
        /// The acknowledgment is redundant, but conservative filtering keeps it, or earlier ones were dropped in favor
        /// of it.
        Spare = "spare",
    }
}

/// Filter for the queued acknowledgments of one flow. Memory is reused between batches.
///
/// ```
/// use grosso::acknowledge::{AckFilter, AckFiltering, Fate};
/// # use grosso_wire::tcp::{ACK, TcpHeader};
/// # let tcp = |acknowledgment: u32| {
/// #     let mut tcp = TcpHeader { acknowledgment: acknowledgment.into(), ..Default::default() };
/// #     tcp.set_flags(ACK);
/// #     let mut header = [0; 20];
/// #     tcp.emit(&[], &mut header).unwrap();
/// #     header
/// # };
///
/// let mut filter = AckFilter::new(AckFiltering::Aggressive);
/// for header in [tcp(1000), tcp(2000), tcp(3000)] {
///     filter.push(&header)?;
/// }
/// let fates: Vec<Fate> = filter.take().collect();
/// assert_eq!(fates[..2], [Fate::Dropped, Fate::Dropped]);
/// # Ok::<(), grosso::acknowledge::Full>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct AckFilter {
    filtering: AckFiltering,
    waiting: Vec<WaitingAck>,
}

/// Fields of a queued acknowledgment that the rules examine.
#[derive(Clone, Debug)]
struct WaitingAck {
    flags: u16,
    acknowledgment: u32,
    timestamps: Option<(u32, u32)>,
    selective: ArrayVec<(u32, u32), SACK_BLOCKS_MAX>,
    /// Reason to keep the acknowledgment regardless of later ones.
    stays: Option<Kept>,
    fate: Fate,
}

impl AckFilter {
    /// Creates a filter without queued acknowledgments.
    #[must_use]
    pub const fn new(filtering: AckFiltering) -> Self {
        Self { filtering, waiting: Vec::new() }
    }

    /// Queues an acknowledgment. `header` is the TCP header of a packet without payload, including its options. Headers
    /// of dropped acknowledgments are not examined again.
    ///
    /// # Errors
    /// Returns [`Full`] if [`RECORDS_MAX`] acknowledgments are queued.
    pub fn push(&mut self, header: &[u8]) -> Result<(), Full> {
        if self.waiting.len() >= RECORDS_MAX {
            return Err(Full);
        }
        let newest = WaitingAck::of(header);
        let mut eligible: Option<usize> = None;
        let mut count = 0;
        let mut dropped = None;
        for at in 0..self.waiting.len() {
            let before = eligible.and_then(|at| self.waiting.get(at)).map(WaitingAck::congestion);
            let Some(earlier) = self.waiting.get_mut(at) else { break };
            if earlier.fate == Fate::Dropped {
                continue;
            }
            // If ECE or CWR changes between acknowledgments, dropping one could hide the change from the sender.
            if before.is_some_and(|congestion| congestion != earlier.congestion()) {
                self.keep(eligible.take(), Kept::Congestion);
                count -= 1;
            }
            let Some(earlier) = self.waiting.get_mut(at) else { break };
            if let Err(reason) = earlier.superseded_by(&newest) {
                earlier.fate = Fate::Kept(reason);
                continue;
            }
            earlier.fate = Fate::Kept(Kept::Spare);
            eligible = eligible.or(Some(at));
            count += 1;
            if count > 1 {
                dropped = eligible;
                break;
            }
        }
        if dropped.is_none() && self.filtering == AckFiltering::Aggressive {
            dropped = eligible.filter(|&at| self.is_next(at, &newest));
        }
        if let Some(waiting) = dropped.and_then(|at| self.waiting.get_mut(at)) {
            waiting.fate = Fate::Dropped;
        }
        self.waiting.push(newest);
        Ok(())
    }

    /// Removes all acknowledgments from the queue and returns the decision about each, in the order in which they were
    /// pushed.
    pub fn take(&mut self) -> impl Iterator<Item = Fate> {
        self.waiting.drain(..).map(|waiting| waiting.fate)
    }

    fn keep(&mut self, at: Option<usize>, reason: Kept) {
        if let Some(waiting) = at.and_then(|at| self.waiting.get_mut(at)) {
            waiting.fate = Fate::Kept(reason);
        }
    }

    /// Returns whether all acknowledgments between the one at index `at` and the newest were dropped, and whether those
    /// two have the same ECE and CWR flags.
    fn is_next(&self, at: usize, newest: &WaitingAck) -> bool {
        let stays = |waiting: &WaitingAck| waiting.fate != Fate::Dropped;
        let between = self.waiting.get(at + 1..).unwrap_or_default();
        let congestion = self.waiting.get(at).map(WaitingAck::congestion);
        !between.iter().any(stays) && congestion == Some(newest.congestion())
    }
}

impl WaitingAck {
    fn of(header: &[u8]) -> Self {
        let flags = u16_at(header, tcp::field::OFFSET_FLAGS.start) & FLAGS;
        let mut waiting = Self {
            flags,
            acknowledgment: u32_at(header, tcp::field::ACKNOWLEDGMENT.start),
            timestamps: None,
            selective: ArrayVec::new(),
            stays: (flags & !CONGESTION != tcp::ACK).then_some(Kept::Flags),
            fate: Fate::Kept(Kept::Newest),
        };
        let options = header.get(tcp::HEADER_LEN..).unwrap_or_default();
        for option in tcp::TcpOptions::new(options) {
            match option {
                Ok(TcpOption::EndOfList) => break,
                Ok(TcpOption::NoOperation) => {}
                Ok(TcpOption::Timestamps { value, echo }) => {
                    waiting.timestamps = Some((value, echo));
                }
                Ok(TcpOption::Sack(blocks)) => {
                    for block in blocks {
                        // This cannot fail: a TCP header has room for at most four blocks.
                        let _ = waiting.selective.try_push((block.left.get(), block.right.get()));
                    }
                }
                // The option contains only a signature of the packet (RFC 2385), so nothing is lost by dropping it.
                Ok(TcpOption::Unknown { kind: OPTION_MD5, .. }) => {}
                _ => waiting.stays = waiting.stays.or(Some(Kept::Options)),
            }
        }
        if waiting.stays.is_none() && waiting.reports_a_duplicate() {
            waiting.stays = Some(Kept::DuplicateSelective);
        }
        waiting
    }

    const fn congestion(&self) -> u16 {
        self.flags & CONGESTION
    }

    /// Returns whether the first SACK block lies below the acknowledgment number, or inside the second block (RFC 2883
    /// section 4).
    fn reports_a_duplicate(&self) -> bool {
        let Some(first) = self.selective.first() else { return false };
        let covers = |second: &(u32, u32)| contains(*second, *first);
        let below = self.selective.iter().any(|(left, _)| precedes(*left, self.acknowledgment));
        below || self.selective.get(1).is_some_and(covers)
    }

    /// Checks whether a later acknowledgment makes this one redundant. If not, returns the reason to keep this one.
    fn superseded_by(&self, later: &Self) -> Result<(), Kept> {
        if let Some(reason) = self.stays {
            return Err(reason);
        }
        if let Some((value, echo)) = self.timestamps {
            match later.timestamps {
                Some((later_value, later_echo))
                    if !precedes(later_value, value) && !precedes(later_echo, echo) => {}
                _ => return Err(Kept::Timestamp),
            }
        }
        if precedes(later.acknowledgment, self.acknowledgment) {
            return Err(Kept::Ahead);
        }
        let is_covered =
            |block: &(u32, u32)| later.selective.iter().any(|other| contains(*other, *block));
        if !self.selective.iter().all(is_covered) {
            return Err(Kept::Selective);
        }
        let says_more = later.selective_bytes() > self.selective_bytes();
        match says_more || self.acknowledgment != later.acknowledgment {
            true => Ok(()),
            false => Err(Kept::Duplicate),
        }
    }

    fn selective_bytes(&self) -> u64 {
        self.selective.iter().map(|(left, right)| u64::from(right.wrapping_sub(*left))).sum()
    }
}

/// Returns whether a sequence number precedes another, in serial arithmetic (RFC 9293 section 3.4).
const fn precedes(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// Returns whether one range contains another.
const fn contains(outer: (u32, u32), inner: (u32, u32)) -> bool {
    !precedes(inner.0, outer.0) && !precedes(outer.1, inner.1)
}

/// TCP flags and reserved bits of the header.
const FLAGS: u16 = 0x0fff;
/// Flags that are compared separately, because the sender must see every change to them.
const CONGESTION: u16 = tcp::ECE | tcp::CWR;
/// TCP MD5 signature option (RFC 2385).
const OPTION_MD5: u8 = 19;
/// Maximum number of SACK blocks in the options of a header (RFC 2018 section 3).
const SACK_BLOCKS_MAX: usize = 4;
