//! ACK filtering: drops waiting acknowledgments that a later one implies, by the rules of CAKE's `ack-filter`.
//!
//! Only acknowledgments that wait anyway are examined, so none is delayed. Each new one drops at most one, the longest
//! waiting, and a drop costs the sender nothing but the count.

use alloc::vec::Vec;

use arrayvec::ArrayVec;
use grosso_wire::tcp::{self, TcpOption};

use crate::{
    acknowledge::record::{Full, RECORDS_MAX},
    bytes::{u16_at, u32_at},
    reasons::reasons,
};

/// Strength of the filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AckFiltering {
    /// At least one that could go stays beside the newest (`ack-filter`).
    #[default]
    Conservative,
    /// The newest is enough (`ack-filter-aggressive`).
    Aggressive,
}

/// Decision about an acknowledgment that waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// A later one implies it.
    Dropped,
    /// It stays, for this reason.
    Kept(Kept),
}

reasons! {
    /// Reason why a waiting acknowledgment was not dropped, as found for the newest one behind it.
    Kept {
        /// None came behind it.
        Newest = "newest",
        /// It has a flag other than ACK, ECE and CWR, or a reserved bit.
        Flags = "flags",
        /// It has an option that is unknown, damaged, or of the handshake.
        Options = "options",
        /// Its timestamp is newer than that of the later one, or the later one has none.
        Timestamp = "timestamp",
        /// It acknowledges more than the later one.
        Ahead = "ahead",
        /// It says that a segment came twice (RFC 2883).
        DuplicateSelective = "duplicate-sack",
        /// It says that a range came of which the later one does not speak.
        Selective = "sack",
        /// It says what the later one says: three of them are a loss.
        Duplicate = "duplicate",
        /// ECE or CWR changes between it and one behind it.
        Congestion = "congestion",
        /// It could go, and is the one that conservative filtering keeps, or others went before it.
        Spare = "spare",
    }
}

/// Filters the acknowledgments of one flow that wait together. Its memory is reused.
#[derive(Clone, Debug, Default)]
pub struct AckFilter {
    filtering: AckFiltering,
    waiting: Vec<WaitingAck>,
}

/// Fields of a waiting acknowledgment that the rules need.
#[derive(Clone, Debug)]
struct WaitingAck {
    flags: u16,
    acknowledgment: u32,
    timestamps: Option<(u32, u32)>,
    selective: ArrayVec<(u32, u32), SACK_BLOCKS_MAX>,
    /// Reason why it stays regardless of later ones.
    stays: Option<Kept>,
    fate: Fate,
}

impl AckFilter {
    /// A filter of this strength.
    #[must_use]
    pub const fn new(filtering: AckFiltering) -> Self {
        Self { filtering, waiting: Vec::new() }
    }

    /// Takes the TCP header, with its options, of a packet without payload. Headers of acknowledgments that were
    /// dropped are not examined again.
    ///
    /// # Errors
    /// [`Full`] when [`RECORDS_MAX`] wait.
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
            // Dropping across a change of ECE or CWR would lose it.
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

    /// Decisions about all that wait, in the order in which they were pushed; afterwards none waits.
    pub fn take(&mut self) -> impl Iterator<Item = Fate> {
        self.waiting.drain(..).map(|waiting| waiting.fate)
    }

    fn keep(&mut self, at: Option<usize>, reason: Kept) {
        if let Some(waiting) = at.and_then(|at| self.waiting.get_mut(at)) {
            waiting.fate = Fate::Kept(reason);
        }
    }

    /// Whether everything between a waiting acknowledgment and the newest was dropped, and both have the same ECE and
    /// CWR.
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
                        // More than four do not fit into a header.
                        let _ = waiting.selective.try_push((block.left.get(), block.right.get()));
                    }
                }
                // It signs the packet and says nothing (RFC 2385).
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

    /// Whether its first SACK block lies below its acknowledgment number, or inside its second block (RFC 2883 section
    /// 4).
    fn reports_a_duplicate(&self) -> bool {
        let Some(first) = self.selective.first() else { return false };
        let covers = |second: &(u32, u32)| contains(*second, *first);
        let below = self.selective.iter().any(|(left, _)| precedes(*left, self.acknowledgment));
        below || self.selective.get(1).is_some_and(covers)
    }

    /// Whether a later acknowledgment implies this one.
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

/// Whether a sequence number lies before another, in serial arithmetic (RFC 9293 section 3.4).
const fn precedes(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// Whether one range contains another.
const fn contains(outer: (u32, u32), inner: (u32, u32)) -> bool {
    !precedes(inner.0, outer.0) && !precedes(outer.1, inner.1)
}

/// The flags of a TCP header and its reserved bits.
const FLAGS: u16 = 0x0fff;
/// Flags whose changes are compared separately.
const CONGESTION: u16 = tcp::ECE | tcp::CWR;
/// The signature option of RFC 2385.
const OPTION_MD5: u8 = 19;
/// Most blocks that the options of a header have room for (RFC 2018 section 3).
const SACK_BLOCKS_MAX: usize = 4;
