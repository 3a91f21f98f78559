//! Departure times of packets on a line of a given rate.
//!
//! A line carries one packet after another, in each direction of each device. A segment of a superframe starts when the
//! previous packet has ended, but not before its superframe. Recorded times are kept, unless an earlier packet was
//! delayed beyond them: then the packet waits for it, so that packets stay in order.

use std::collections::HashMap;

use grosso_capture::{PacketMeta, flag};

/// Lines of a capture, all with one rate.
#[derive(Debug)]
pub struct Lines {
    bits_per_second: u64,
    /// State of the lines by device and direction.
    lines: HashMap<(u32, u32), Line>,
}

/// State of one line.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    /// Time at which the line has carried all packets so far.
    free_ns: u64,
    /// Time at which the line has carried the packets with computed times: no packet with a recorded time may start
    /// before it.
    late_ns: u64,
}

/// Timestamps of packets that were segmented from one superframe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spacing {
    /// All packets have the time of the superframe.
    #[default]
    Same,
    /// Packets are spaced by their transmission time on a line of this many bits per second.
    Line(u64),
}

/// Source of a packet's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// The capture recorded the time.
    Recorded,
    /// The time comes from the superframe that contained the packet.
    Superframe,
}

impl Lines {
    /// Creates lines of this many bits per second.
    pub fn new(bits_per_second: u64) -> Self {
        Self { bits_per_second: bits_per_second.max(1), lines: HashMap::new() }
    }

    /// Returns the time at which the next packet, of `len` bytes, starts on the line of `device`; `None` if the packet
    /// has no time.
    pub fn start(
        &mut self,
        said: &PacketMeta,
        device: u32,
        len: usize,
        timing: Timing,
    ) -> Option<u64> {
        let time_ns = said.timestamp_ns?;
        let takes_ns = self.takes_ns(len);
        let direction = said.flags.unwrap_or(0) & (flag::INBOUND | flag::OUTBOUND);
        let line = self.lines.entry((device, direction)).or_default();
        let idle_ns = match timing {
            Timing::Recorded => line.late_ns,
            Timing::Superframe => line.free_ns,
        };
        let start_ns = time_ns.max(idle_ns);
        let end_ns = start_ns.saturating_add(takes_ns);
        line.free_ns = line.free_ns.max(end_ns);
        if timing == Timing::Superframe || start_ns > time_ns {
            line.late_ns = line.late_ns.max(end_ns);
        }
        Some(start_ns)
    }

    /// Removes all lines, because a new section renumbers the interfaces.
    pub fn clear(&mut self) {
        self.lines.clear();
    }

    /// Returns the transmission time of a frame of `len` bytes.
    fn takes_ns(&self, len: usize) -> u64 {
        let bits = (len.max(FRAME_BYTES_MIN) + GAP_BYTES) as u128 * 8;
        let nanoseconds = bits * 1_000_000_000 / u128::from(self.bits_per_second);
        u64::try_from(nanoseconds).unwrap_or(u64::MAX)
    }
}

/// Length of preamble, check sequence and gap between two Ethernet frames (IEEE 802.3 section 4.4.2).
const GAP_BYTES: usize = 8 + 4 + 12;
/// Length of the shortest frame without its check sequence.
const FRAME_BYTES_MIN: usize = 60;
