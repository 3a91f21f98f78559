//! Derives the order in which a host sent its packets from the IPv4 identifications.

use super::frame::TcpFrame;

/// Time at which a frame was sent, relative to the other frames of its direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// Sent after all earlier frames; this many packets are missing in between.
    Later(u16),
    /// Sent before an earlier frame of the capture.
    Earlier,
    /// Same identification as the previous frame.
    Copy,
    /// The identification does not show when the frame was sent.
    Unknown,
}

impl Sent {
    /// Returns whether a later frame was captured before this one, or this one is a copy.
    pub(super) const fn is_old(self) -> bool {
        matches!(self, Self::Earlier | Self::Copy)
    }
}

/// Identifications of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SentOrder {
    /// Identification of the next packet; `None` before the first.
    next: Option<u16>,
    last: u16,
    exact: u32,
    gaps: u32,
    backward: u32,
    /// Number of increases that are too large for a counter that only this flow uses.
    wild: u32,
    /// Number of frames with the identification of the previous frame.
    fixed: u32,
    /// Number of increases that occurred because another flow of the host used the same counter.
    pub(super) shared: u32,
    /// Source address of the direction; `None` before its first identification.
    pub(super) source: Option<Source>,
}

/// Reference to a source address: slot and tag in the table of identifications.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    pub(super) tag: u32,
    pub(super) place: u16,
}

impl SentOrder {
    /// Processes a frame, and returns when it was sent relative to the earlier frames.
    pub(super) fn observe(&mut self, frame: &TcpFrame) -> Sent {
        let Some(identification) = frame.identification else { return Sent::Unknown };
        let after = identification.wrapping_add(frame.packets as u16);
        let Some(next) = self.next else {
            (self.next, self.last) = (Some(after), identification);
            return Sent::Unknown;
        };
        let step = identification.wrapping_sub(next).cast_signed();
        let sent = match step {
            _ if identification == self.last => {
                self.fixed += 1;
                Sent::Copy
            }
            0 => {
                self.exact += 1;
                Sent::Later(0)
            }
            1..=STEP_MAX => {
                self.gaps += 1;
                Sent::Later(step.cast_unsigned())
            }
            _ if (-STEP_MAX..0).contains(&step) => {
                self.backward += 1;
                Sent::Earlier
            }
            _ => {
                self.wild += 1;
                Sent::Unknown
            }
        };
        if !sent.is_old() {
            (self.next, self.last) = (Some(after), identification);
        }
        if self.is_order() { sent } else { Sent::Unknown }
    }

    /// Returns whether identifications show the order of packets.
    pub(super) fn is_order(&self) -> bool {
        let steps = self.exact + self.gaps + self.backward;
        steps >= STEPS_MIN && steps >= 4 * self.wild && steps >= 2 * self.fixed
    }

    /// Returns whether only this flow uses the counter. If so, gaps in the identifications show missing packets.
    pub(super) fn is_own(&self) -> bool {
        self.is_order() && self.exact >= self.gaps / 3 && self.shared <= self.gaps / 8
    }
}

/// Maximum step between two frames of a flow.
const STEP_MAX: i16 = 512;
/// Minimum number of steps that show an order.
const STEPS_MIN: u32 = 4;
