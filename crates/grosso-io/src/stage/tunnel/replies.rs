//! Creates ICMP messages for the senders of packets that are too long, up to a rate limit.

use std::collections::VecDeque;

use grosso::tunnel::path_mtu::Fit;

use crate::buffer::{PortBuffer, Spare};

/// Queue of ICMP messages to senders.
#[derive(Debug)]
pub(super) struct Replies {
    waiting: VecDeque<Vec<u8>>,
    spare: Spare,
    /// Number of messages that may be sent now. Together with the time of the last refill, it forms a token bucket.
    allowed: u32,
    refilled_ns: u64,
    pub(super) told: u64,
    pub(super) untold: u64,
}

impl Default for Replies {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            spare: Spare::default(),
            allowed: ICMP_BURST,
            refilled_ns: 0,
            told: 0,
            untold: 0,
        }
    }
}

impl Replies {
    /// Calls `write` to build a message, and queues it unless the rate limit is reached.
    pub(super) fn write(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Fit) -> Fit {
        let mut bytes = self.spare.take();
        let outcome = write(&mut bytes);
        if outcome == Fit::Told && self.allowed > 0 {
            self.allowed -= 1;
            self.told += 1;
            self.waiting.push_back(bytes);
            return outcome;
        }
        self.untold += u64::from(matches!(outcome, Fit::Told | Fit::Untold));
        self.spare.put_back(bytes);
        outcome
    }

    /// Refills the token bucket for the time that has passed.
    pub(super) fn refill(&mut self, now_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.refilled_ns);
        let more = passed_ns / (NS_PER_SECOND / u64::from(ICMP_PER_SECOND));
        if more > 0 {
            self.refilled_ns = now_ns;
            let more = u32::try_from(more).unwrap_or(u32::MAX);
            self.allowed = self.allowed.saturating_add(more).min(ICMP_BURST);
        }
    }

    /// Returns the next message.
    pub(super) fn take(&mut self) -> Option<PortBuffer> {
        self.waiting.pop_front().map(PortBuffer::made_whole)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// Maximum number of ICMP messages per second: the default of Linux's `icmp_msgs_per_sec` (RFC 1812 section 4.3.2.8).
pub const ICMP_PER_SECOND: u32 = 1000;
/// Maximum number of ICMP messages sent at once or queued: the default of Linux's `icmp_msgs_burst`.
pub const ICMP_BURST: u32 = 50;

const NS_PER_SECOND: u64 = 1_000_000_000;
