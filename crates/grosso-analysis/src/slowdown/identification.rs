//! The order in which a host sent its packets, by the IPv4 identification.

use super::frame::TcpFrame;

/// The position of a frame among those of its direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// After all frames before it, which this many packets are missing between.
    Later(u16),
    /// Before another frame of the capture.
    Earlier,
    /// With the same identification as the frame before.
    Copy,
    /// The identification does not show it.
    Unknown,
}

impl Sent {
    /// Whether a later frame came before it, or it is a copy.
    pub(super) const fn is_old(self) -> bool {
        matches!(self, Self::Earlier | Self::Copy)
    }
}

/// The identifications of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SentOrder {
    /// The identification of the next packet; `None` before the first.
    next: Option<u16>,
    last: u16,
    exact: u32,
    gaps: u32,
    backward: u32,
    /// Steps that no counter of the flow makes.
    wild: u32,
    /// Frames with the identification of the frame before.
    fixed: u32,
    /// Steps that another flow of the host explains.
    pub(super) shared: u32,
    /// The source address of the direction; `None` before its first identification.
    pub(super) source: Option<Source>,
}

/// A source address, as the place and the tag by which its identifications are remembered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    pub(super) tag: u32,
    pub(super) place: u16,
}

impl SentOrder {
    /// Takes in a frame.
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

    /// Whether identifications show the order of packets.
    pub(super) fn is_order(&self) -> bool {
        let steps = self.exact + self.gaps + self.backward;
        steps >= STEPS_MIN && steps >= 4 * self.wild && steps >= 2 * self.fixed
    }

    /// Whether gaps show missing packets: the counter belongs to this flow alone.
    pub(super) fn is_own(&self) -> bool {
        self.is_order() && self.exact >= self.gaps / 3 && self.shared <= self.gaps / 8
    }
}

/// Largest step between two frames of a flow.
const STEP_MAX: i16 = 512;
/// Steps before they show anything.
const STEPS_MIN: u32 = 4;
