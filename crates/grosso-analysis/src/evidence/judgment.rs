//! The verdict on one frame.

use grosso::meta::Gso;
use grosso_wire::Ports;

use super::{Evidence, Size};

/// Nature of a frame, and the evidence for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgment {
    /// Wire packet, superframe, or undecided.
    pub nature: Nature,
    /// Evidence for the nature; `None` if there is nothing to decide because the frame has no TCP or UDP header, or no
    /// payload.
    pub by: Option<Evidence>,
    /// Whether the evidence also allows a different answer. `--strict` does not accept such a guess.
    pub is_guess: bool,
    /// Weaker evidence that contradicts the verdict.
    pub against: Option<Contradiction>,
}

/// The nature of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nature {
    /// One wire packet.
    Packet,
    /// Several packets.
    Superframe {
        /// Description of the segments for the engine.
        gso: Gso,
        /// Segment size, and the evidence for it.
        size: Size,
        /// UDP ports of the tunnels whose headers are repeated in every segment.
        ports: Ports,
    },
    /// Undecided, or not segmented. The value is the reason name.
    Left(&'static str),
}

/// Number and size of a frame's packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segments {
    /// Number of payload bytes in each packet except the last.
    pub bytes: u32,
    /// Number of packets on the wire.
    pub packets: u32,
    /// Segment size of a superframe, and the evidence for it.
    pub size: Option<Size>,
}

/// Evidence that contradicts a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Contradiction {
    /// The evidence.
    pub by: Evidence,
    /// Maximum payload per packet in bytes that the contradicting evidence allows; `None` if this evidence does not
    /// concern sizes.
    pub bytes: Option<u16>,
}

impl Contradiction {
    /// Returns whether a payload is longer than the evidence allows.
    pub(super) fn is_exceeded(&self, payload: usize) -> bool {
        self.bytes.is_some_and(|bytes| payload > usize::from(bytes))
    }
}

impl Judgment {
    pub(super) const fn packet(by: Option<Evidence>) -> Self {
        Self { nature: Nature::Packet, by, is_guess: false, against: None }
    }

    pub(super) const fn left(reason: &'static str, by: Option<Evidence>) -> Self {
        Self { nature: Nature::Left(reason), by, is_guess: false, against: None }
    }

    pub(super) fn superframe(gso: Gso, size: Size, ports: Ports) -> Self {
        let nature = Nature::Superframe { gso, size, ports };
        Self { nature, by: Some(size.by), is_guess: size.is_guess, against: None }
    }

    /// Returns the number and size of the packets in a frame with `payload` bytes of payload, if known.
    pub fn segments(&self, payload: usize) -> Segments {
        match self.nature {
            Nature::Superframe { size, .. } => {
                let packets = u32::try_from(self.packets(payload.max(1))).unwrap_or(u32::MAX);
                Segments { bytes: size.bytes.into(), packets, size: Some(size) }
            }
            Nature::Packet | Nature::Left(_) => {
                let bytes = u32::try_from(payload).unwrap_or(u32::MAX);
                Segments { bytes, packets: 1, size: None }
            }
        }
    }

    /// Returns the number of wire packets in the frame, if known.
    pub fn packets(&self, payload: usize) -> usize {
        match self.nature {
            Nature::Superframe { size, .. } => payload.div_ceil(usize::from(size.bytes).max(1)),
            Nature::Packet | Nature::Left(_) => 1,
        }
    }
}
