//! The associations of an ESP stage, and their sequence numbers.

use std::fs::File;

use grosso::tunnel::esp::{Decryptor, Encryptor, NoAssociation};

use super::{
    super::{Numbers, SequenceRecorder, recorder::RecordState, sequence::RESERVED_AT_ONCE},
    HELD_MAX,
    options::{EspOptions, Scarcity, ScarcityNotice},
};

/// The associations for both directions, and the recorder that stores their sequence numbers.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) encryptor: Encryptor,
    pub(super) decryptor: Decryptor,
    pub(super) recorder: Option<SequenceRecorder>,
    /// Whether the association for received packets has a replay window.
    has_window: bool,
    /// Number of packets that arrived since the file last contained exactly the received numbers.
    unsettled: u64,
    /// Maximum number of packets that have arrived while one request to the recorder was pending.
    came_meanwhile: u64,
    scarcity: Option<ScarcityNotice>,
    /// Last reported scarcity of sequence numbers.
    reported: Option<Scarcity>,
    _claims: Vec<File>,
}

impl Pair {
    pub(super) fn new(options: EspOptions) -> Result<Self, NoAssociation> {
        let EspOptions { outbound, inbound, sequences, vector_salt, claims, scarcity, .. } =
            options;
        let Numbers { sent, received } =
            sequences.as_ref().map(SequenceRecorder::unused).unwrap_or_default();
        let mut pair = Self {
            encryptor: Encryptor::resume(outbound, vector_salt, sent)?,
            has_window: inbound.replay_window_packets != 0,
            decryptor: Decryptor::resume(inbound, received)?,
            recorder: sequences,
            unsettled: 0,
            came_meanwhile: 0,
            scarcity,
            reported: None,
            _claims: claims,
        };
        pair.look_for_scarcity();
        Ok(pair)
    }

    /// Reports once that sequence numbers for sending are scarce, and once that they are used up.
    #[cold]
    pub(super) fn look_for_scarcity(&mut self) {
        let left = self.encryptor.sequences_left();
        let all = self.encryptor.last_sequence().saturating_add(left);
        let state = match left {
            0 => Scarcity::Exhausted,
            left if left <= all / 10 => Scarcity::Scarce,
            _ => return,
        };
        if self.reported != Some(state) {
            self.reported = Some(state);
            if let Some(ScarcityNotice(notice)) = &self.scarcity {
                notice(state);
            }
        }
    }

    /// Returns whether an authenticated packet may be delivered. It may be delivered once the file records its number
    /// as received, so that the packet is not accepted again after a crash.
    #[inline]
    pub(super) fn admits(&self, sequence: u64) -> bool {
        let Some(recorder) = self.recorder.as_ref().filter(|_| self.has_window) else {
            return true;
        };
        sequence <= recorder.recorded().received
    }

    /// Requests that the numbers of received packets be recorded. If recording takes time, further numbers are recorded
    /// ahead of their packets, so that a steady stream does not have to wait. Their count is the larger of two values:
    /// 16 times the number of packets that arrive during a request, and, up to the default, the number of packets that
    /// arrived since the file was last exact. After a crash, packets whose numbers were recorded ahead are rejected,
    /// and their content must be retransmitted; for a quiet peer, only a few numbers are therefore recorded ahead.
    pub(super) fn record_received(&mut self, came: usize, held: usize) -> RecordState {
        self.unsettled += came as u64;
        let Some(recorder) = self.recorder.as_mut().filter(|_| self.has_window) else {
            return RecordState::Idle;
        };
        if recorder.is_waiting() {
            self.came_meanwhile = self.came_meanwhile.max(held as u64).min(AHEAD_MAX);
            return RecordState::Waiting;
        }
        let last = self.decryptor.last_sequence();
        let Numbers { sent, received } = recorder.recorded();
        let usual = self.unsettled.min(AHEAD_USUAL);
        let ahead = if recorder.is_apart() { usual.max(16 * self.came_meanwhile) } else { 0 };
        if last.saturating_add(ahead / 2) <= received {
            return RecordState::Idle;
        }
        let received = last.saturating_add(ahead);
        recorder.ask(Numbers { sent, received })
    }

    /// Returns whether more numbers are recorded as received than have arrived, and whether this can be corrected now.
    pub(super) fn is_ahead(&self) -> bool {
        let recorder = self.recorder.as_ref().filter(|_| self.has_window);
        recorder.is_some_and(|recorder| {
            !recorder.is_waiting() && self.decryptor.last_sequence() < recorder.recorded().received
        })
    }

    /// Records exactly the received numbers, because no further packet has arrived. Otherwise a quiet peer would lose
    /// packets after a crash, because their numbers were recorded ahead.
    pub(super) fn settle(&mut self) {
        (self.unsettled, self.came_meanwhile) = (0, 0);
        let received = self.decryptor.last_sequence();
        if let Some(recorder) = &mut self.recorder {
            let sent = recorder.recorded().sent;
            // If this fails, the file still records more numbers as received than have arrived.
            let _ = recorder.ask(Numbers { sent, received });
        }
    }

    /// Returns whether `packets` sequence numbers may be used. They may be used once the file records them as used.
    pub(super) fn reserve(&mut self, packets: u32) -> bool {
        let Some(recorder) = &mut self.recorder else { return true };
        let last = self.encryptor.last_sequence().saturating_add(packets.into());
        let left = recorder.recorded().sent.checked_sub(last);
        // If another thread writes the file, numbers are requested before they are needed.
        let enough = if recorder.is_apart() { RESERVED_AT_ONCE / 2 } else { 0 };
        if left.is_some_and(|left| left >= enough) {
            return true;
        }
        if recorder.is_waiting() {
            let _ = recorder.poll();
        }
        let is_new = !recorder.is_waiting();
        if !recorder.is_waiting() {
            let sent = last.saturating_add(RESERVED_AT_ONCE);
            let received = recorder.recorded().received;
            let _ = recorder.ask(Numbers { sent, received });
        }
        let is_recorded = last <= recorder.recorded().sent;
        if is_new {
            self.look_for_scarcity();
        }
        is_recorded
    }
}

/// Records the last used sequence numbers, so that numbers reserved beyond them can be used later.
impl Drop for Pair {
    fn drop(&mut self) {
        let numbers = Numbers {
            sent: self.encryptor.last_sequence(),
            received: self.decryptor.last_sequence(),
        };
        if let Some(recorder) = &mut self.recorder {
            recorder.finish(numbers);
        }
    }
}

/// Default maximum number of sequence numbers that are recorded as received ahead of their packets, if few packets
/// arrive during a request.
const AHEAD_USUAL: u64 = 64;
/// Maximum number of packets that are assumed to arrive during a request. Up to 16 times this many sequence numbers are
/// recorded ahead.
const AHEAD_MAX: u64 = HELD_MAX as u64;
