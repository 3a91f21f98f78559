//! Derives the order in which a host sent its packets from the IPv4 IDs (the identification field).

use super::frame::TcpFrame;

/// Time at which a frame was sent, relative to other frames in the same direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// Sent after all earlier frames. The value is the number of packets missing in between.
    Later(u16),
    /// Sent before a frame that was captured earlier.
    Earlier,
    /// Copy: the ID is that of the previous frame.
    Copy,
    /// The ID does not show when the frame was sent.
    Unknown,
}

impl Sent {
    /// Returns whether the frame is a copy, or was sent before a frame that was captured earlier.
    pub(super) const fn is_old(self) -> bool {
        matches!(self, Self::Earlier | Self::Copy)
    }
}

/// IDs in one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SentOrder {
    /// Expected ID of the next packet; `None` before the first packet.
    next: Option<u16>,
    last: u16,
    exact: u32,
    gaps: u32,
    backward: u32,
    /// Number of steps that are too large for a counter used only by this flow.
    wild: u32,
    /// Number of frames with the same ID as the previous frame.
    fixed: u32,
    /// Number of steps caused by another flow of the host that uses the same counter.
    pub(super) shared: u32,
    /// Source address of the direction; `None` until its first ID.
    pub(super) source: Option<Source>,
}

/// Reference to a source address: slot and tag in the ID table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    pub(super) tag: u32,
    pub(super) place: u16,
}

impl SentOrder {
    /// Processes a frame. Returns when it was sent relative to earlier frames.
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

    /// Returns whether the IDs reveal the order of packets.
    pub(super) fn is_order(&self) -> bool {
        let steps = self.exact + self.gaps + self.backward;
        steps >= STEPS_MIN && steps >= 4 * self.wild && steps >= 2 * self.fixed
    }

    /// Returns whether only this flow uses the counter. If so, gaps in the IDs indicate missing packets.
    pub(super) fn is_own(&self) -> bool {
        self.is_order() && self.exact >= self.gaps / 3 && self.shared <= self.gaps / 8
    }
}

/// Maximum step between two consecutive frames of a flow.
const STEP_MAX: i16 = 512;
/// Minimum number of steps that establish an order.
const STEPS_MIN: u32 = 4;
