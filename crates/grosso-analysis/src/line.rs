//! Computes when packets leave on a link of a given rate.
//!
//! Each device has one link per direction, which transmits one packet at a time. A segment of a superframe starts when
//! the previous packet has been sent, but not before its superframe's timestamp. A recorded timestamp is kept, unless
//! an earlier packet was delayed beyond it. In that case, the packet is delayed too, so that packets stay in order.

use std::collections::HashMap;

use grosso_capture::{PacketMeta, flag};

/// Links of a capture, which all have the same rate.
#[derive(Debug)]
pub struct Lines {
    bits_per_second: u64,
    /// State of each link, by device and direction.
    lines: HashMap<(u32, u32), Line>,
}

/// State of one link.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    /// Time at which the link has finished sending all packets so far.
    free_ns: u64,
    /// Time at which the link has finished sending the packets whose times were computed. A packet with a recorded time
    /// does not start earlier.
    late_ns: u64,
}

/// Choice of timestamps for a superframe's segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spacing {
    /// All packets get the superframe's timestamp.
    #[default]
    Same,
    /// Packets are spaced by their transmission time on a link with this rate, in bits per second.
    Line(u64),
}

/// Origin of a packet's timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// The timestamp was recorded in the capture.
    Recorded,
    /// The timestamp is that of the superframe that contained the packet.
    Superframe,
}

impl Lines {
    /// Creates links with this rate.
    pub fn new(bits_per_second: u64) -> Self {
        Self { bits_per_second: bits_per_second.max(1), lines: HashMap::new() }
    }

    /// Returns the time at which the next packet, of `len` bytes, starts on the link of `device`; `None` if the packet
    /// has no timestamp.
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

    /// Removes all links, because a new section renumbers the interfaces.
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

/// Combined length of the preamble, the frame check sequence and the gap between Ethernet frames (IEEE 802.3 section
/// 4.4.2).
const GAP_BYTES: usize = 8 + 4 + 12;
/// Length of the shortest frame without its frame check sequence.
const FRAME_BYTES_MIN: usize = 60;
