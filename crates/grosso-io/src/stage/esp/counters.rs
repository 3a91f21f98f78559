//! Counters of the ESP stage.

use std::sync::LazyLock;

use grosso::tunnel::esp::{EspStats, Refusal};

use crate::port::PortCounter;

/// Counters of an ESP stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EspStageStats {
    /// Counters of encrypted packets.
    pub encrypted: EspStats,
    /// Counters of decrypted packets.
    pub decrypted: EspStats,
    /// Number of frames sent unencrypted.
    pub sent_clear: u64,
    /// Number of unencrypted frames received and accepted.
    pub received_clear: u64,
    /// Number of frames not sent because the sequence number file could not be written in time.
    pub unreserved: u64,
    /// Number of frames decrypted and then dropped because the sequence number file could not be written in time.
    pub in_unreserved: u64,
    /// Number of frames not sent because they had already been encrypted here, or were fragments of such frames.
    pub looped: u64,
    /// Number of frames not sent, by reason.
    pub out_dropped: Drops,
    /// Number of frames received and dropped, by reason.
    pub in_dropped: Drops,
}

/// Number of frames dropped, by reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drops([u64; Refusal::COUNT]);

impl Default for Drops {
    fn default() -> Self {
        Self([0; Refusal::COUNT])
    }
}

impl Drops {
    /// Returns the number of frames dropped for a reason.
    #[must_use]
    pub const fn of(&self, reason: Refusal) -> u64 {
        self.0[reason.index()]
    }

    /// Returns the total number of frames dropped.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(super) fn count(&mut self, reason: Refusal) {
        self.0[reason.index()] += 1;
    }
}

impl EspStageStats {
    /// Returns every counter with its description.
    pub fn counters(&self) -> impl Iterator<Item = (PortCounter, u64)> {
        let event = |name, sentence| PortCounter { name, is_loss: false, sentence };
        let events = [
            (event("esp_out_packets", "A packet was encrypted."), self.encrypted.packets),
            (event("esp_in_packets", "A packet was decrypted."), self.decrypted.packets),
            (event("esp_out_clear", "A frame was sent in cleartext."), self.sent_clear),
            (event("esp_in_clear", "A cleartext frame was accepted."), self.received_clear),
        ];
        let unreserved = PortCounter {
            name: "esp_out_unreserved",
            is_loss: true,
            sentence: "A packet was dropped because the sequence file could not be written in time.",
        };
        let in_unreserved = PortCounter {
            name: "esp_in_unreserved",
            is_loss: true,
            sentence: "A received packet was dropped because the sequence file could not be written \
                       in time.",
        };
        let looped = PortCounter {
            name: "esp_out_loop",
            is_loss: true,
            sentence: "A packet was dropped because this port had already encrypted it: its route leads back to the \
                       port.",
        };
        let events = events.into_iter().chain([
            (unreserved, self.unreserved),
            (in_unreserved, self.in_unreserved),
            (looped, self.looped),
        ]);
        let drops = [self.out_dropped, self.in_dropped];
        let drops = DROPS.iter().zip(drops).flat_map(|(counters, drops)| {
            counters.iter().map(move |(counter, reason)| (*counter, drops.of(*reason)))
        });
        events.chain(drops)
    }
}

/// Counters of frames dropped when sending and when receiving, each with its reason.
static DROPS: LazyLock<[Vec<(PortCounter, Refusal)>; 2]> = LazyLock::new(|| {
    let way = |prefix: &str, what: &str, happens: fn(Refusal) -> bool| {
        let counter = |reason: Refusal| PortCounter {
            name: format!("{prefix}_{}", reason.name()).leak(),
            is_loss: true,
            sentence: format!("{what}: {}", reason.sentence()).leak(),
        };
        let reasons = Refusal::ALL.iter().copied().filter(|reason| happens(*reason));
        reasons.map(|reason| (counter(reason), reason)).collect()
    };
    // The list starts with the reasons that apply to both directions, followed by those for encryption only, and then
    // by those for decryption only.
    let out =
        |reason: Refusal| reason <= Refusal::SequenceExhausted || reason == Refusal::Selectors;
    [
        way("esp_out", "Dropped, not encrypted", out),
        way("esp_in", "Dropped, not decrypted", |reason| {
            use Refusal::{BufferTooSmall, ChecksumOutside, Nothing, SequenceExhausted};
            !matches!(reason, BufferTooSmall | ChecksumOutside | Nothing | SequenceExhausted)
        }),
    ]
});
