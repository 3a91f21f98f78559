//! Tracks holes: ranges of sequence numbers that have not been captured, although later data has.

use super::frame::{TcpFrame, is_before};

/// Missing range of sequence numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hole {
    start: u32,
    end: u32,
    /// Time of the frame after the hole, in nanoseconds.
    pub(super) since_ns: u64,
    /// Timestamp value of the frame after the hole.
    pub(super) timestamp: Option<u32>,
    /// The peer's last timestamp value before the hole opened. A retransmission that fills the hole echoes this value
    /// or a later one.
    pub(super) peer_timestamp: Option<u32>,
}

/// Holes in one direction, in sequence order; at most [`HOLES_MAX`].
#[derive(Clone, Debug, Default)]
pub(super) struct Holes(Vec<Hole>);

impl Holes {
    /// Opens a hole before a frame. Returns whether the first hole had to be dropped because of the limit.
    pub(super) fn open(&mut self, start: u32, frame: &TcpFrame, peer: Option<u32>) -> bool {
        let is_full = self.0.len() >= HOLES_MAX;
        if is_full {
            self.0.remove(0);
        }
        self.0.push(Hole {
            start,
            end: frame.sequence,
            since_ns: frame.time_ns,
            timestamp: frame.timestamps.map(|(value, _)| value),
            peer_timestamp: peer,
        });
        is_full
    }

    /// Fills the parts of holes that a range covers. Returns the number of bytes filled, and the first hole affected.
    pub(super) fn fill(&mut self, start: u32, end: u32) -> (u32, Option<Hole>) {
        let (mut bytes, mut first) = (0, None);
        let mut place = 0;
        while let Some(&hole) = self.0.get(place) {
            let from = if is_before(hole.start, start) { start } else { hole.start };
            let to = if is_before(end, hole.end) { end } else { hole.end };
            if !is_before(from, to) {
                place += 1;
                continue;
            }
            bytes += to.wrapping_sub(from);
            first.get_or_insert(hole);
            self.0.remove(place);
            for (start, end) in [(hole.start, from), (to, hole.end)] {
                if is_before(start, end) && self.0.len() < HOLES_MAX {
                    self.0.insert(place, Hole { start, end, ..hole });
                    place += 1;
                }
            }
        }
        (bytes, first)
    }

    /// Closes the holes that have been acknowledged. Returns the number of bytes in them, which were never captured.
    pub(super) fn close(&mut self, ack: u32) -> u32 {
        let mut bytes = 0;
        while let Some(hole) = self.0.first_mut().filter(|hole| is_before(hole.start, ack)) {
            if is_before(ack, hole.end) {
                bytes += ack.wrapping_sub(hole.start);
                hole.start = ack;
                break;
            }
            bytes += hole.end.wrapping_sub(hole.start);
            self.0.remove(0);
        }
        bytes
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Maximum number of holes in one direction. Each takes 32 bytes, and the memory is allocated when the first hole
/// opens.
pub(super) const HOLES_MAX: usize = 64;
