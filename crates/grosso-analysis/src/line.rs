//! The times at which packets leave on a line of a given rate.
//!
//! A line carries one packet after another, in each direction of each device. A packet that was cut from a
//! superframe starts when the packet before it has ended, and not before its superframe. Times that the capture
//! recorded stay as they are, unless a packet before them was delayed: then they wait for it, so that packets stay in
//! the order of time.

use std::collections::HashMap;

use grosso_capture::{PacketMeta, flag};

/// The lines of a capture, all of one rate.
#[derive(Debug)]
pub struct Lines {
    bits_per_second: u64,
    /// The lines by device and direction.
    lines: HashMap<(u32, u32), Line>,
}

/// The state of one line.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    /// The time at which all packets so far have ended.
    free_ns: u64,
    /// The time at which the packets with invented times have ended: before it, no packet with a recorded time may
    /// start.
    late_ns: u64,
}

/// The times of packets that were split from one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spacing {
    /// All have the time of the superframe.
    #[default]
    Same,
    /// As far apart as their transmission takes on a line of this many bits a second.
    Line(u64),
}

/// The source of the time of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// The capture recorded it.
    Recorded,
    /// It is that of the superframe that the packet was cut from.
    Superframe,
}

impl Lines {
    /// Lines of this many bits a second.
    pub fn new(bits_per_second: u64) -> Self {
        Self { bits_per_second: bits_per_second.max(1), lines: HashMap::new() }
    }

    /// The start of the next packet of the line of `device`, which has `len` bytes; `None` if it has no time.
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

    /// Forgets all lines, because a new section numbers the interfaces anew.
    pub fn clear(&mut self) {
        self.lines.clear();
    }

    /// The time that a frame of `len` bytes takes on the line.
    fn takes_ns(&self, len: usize) -> u64 {
        let bits = (len.max(FRAME_BYTES_MIN) + GAP_BYTES) as u128 * 8;
        let nanoseconds = bits * 1_000_000_000 / u128::from(self.bits_per_second);
        u64::try_from(nanoseconds).unwrap_or(u64::MAX)
    }
}

/// Preamble, check sequence and gap between two frames of Ethernet (IEEE 802.3 section 4.4.2).
const GAP_BYTES: usize = 8 + 4 + 12;
/// The length of the shortest frame without its check sequence.
const FRAME_BYTES_MIN: usize = 60;
