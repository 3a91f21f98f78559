//! Named refusals and their counters.

use crate::reasons::reasons;

reasons! {
    /// Reason why a packet was not encrypted, or not decrypted.
    Refusal {
        /// The frame carries no IP packet.
        NotIp = "not-ip",
        /// A header contradicts itself.
        Malformed = "malformed",
        /// The frame ends inside its headers, or before its IP length says.
        Short = "short",
        /// An IP length of zero: a superframe, which must be cut first (rule S46).
        LengthZero = "length-zero",
        /// An IP fragment: encrypted only in tunnel mode, and decrypted only when it is whole again
        /// (RFC 4303 sections 3.1.1 and 3.4.1).
        Fragment = "fragment",
        /// The link layer names the family of its IP packet in a way that is not rewritten, and the
        /// tunnel changes the family.
        LinkFamily = "link-family",
        /// The buffer is too small for the encrypted packet.
        BufferTooSmall = "buffer-too-small",

        /// A superframe, which must be cut first (rule S46).
        Superframe = "superframe",
        /// The partial checksum does not lie inside what is encrypted (rule C3).
        ChecksumOutside = "checksum-outside",
        /// Nothing follows the headers, which on the wire would mean a dummy packet (RFC 4303
        /// section 2.6).
        Nothing = "nothing",
        /// The encrypted packet would be longer than IP can say.
        TooLong = "too-long",
        /// The sequence numbers of the association are used up: it needs new keys (RFC 4303 section
        /// 3.3.3).
        SequenceExhausted = "sequence-exhausted",

        /// The packet carries no ESP, or has it in UDP to another port than the association.
        NotEsp = "not-esp",
        /// The packet carries an authentication header (RFC 4302), which is not done here.
        AuthenticationHeader = "authentication-header",
        /// The packet is IKE beside ESP in UDP, and for somebody else (RFC 3948 section 2.2).
        Ike = "ike",
        /// A byte that keeps an address translator awake (RFC 3948 section 2.3).
        Keepalive = "keepalive",
        /// ESP directly in IP, where the association has it in UDP.
        Encapsulation = "encapsulation",
        /// The packet belongs to another association.
        OtherSpi = "other-spi",
        /// The packet is shorter than sequence number, initialization vector, trailer and ICV.
        Truncated = "truncated",
        /// The encrypted part does not end at a multiple of four bytes (RFC 4303 section 2.4).
        Alignment = "alignment",
        /// Sequence number zero, which is never sent (RFC 4303 section 3.3.3).
        SequenceZero = "sequence-zero",
        /// The sequence number is to the left of the replay window.
        TooOld = "too-old",
        /// A packet with this sequence number was accepted already.
        Replayed = "replayed",
        /// The integrity check failed: the packet was changed, or the keys differ.
        Integrity = "integrity",
        /// The padding is longer than the packet, or not 1, 2, 3 (RFC 4303 section 2.4).
        Padding = "padding",
        /// A dummy packet, made to be discarded (RFC 4303 section 2.6).
        Dummy = "dummy",
        /// The next header of a tunnel is neither IPv4 nor IPv6: the peer is in another mode (B25).
        Mode = "mode",
        /// The packet in the tunnel is not of the version that the next header names (B25), or its
        /// lengths do not fit what was decrypted.
        Inner = "inner",
        /// The tunnel met congestion, and the packet in it is of a transport that cannot be told
        /// (RFC 6040 section 4.2).
        CongestionUntold = "congestion-untold",
        /// The packet has an address that the association does not carry (RFC 4301 sections 5.1 and
        /// 5.2).
        Selectors = "selectors",
    }
}

impl core::error::Error for Refusal {}

/// Counters of an [`Encryptor`](super::Encryptor) or a [`Decryptor`](super::Decryptor).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EspStats {
    /// Packets encrypted or decrypted.
    pub packets: u64,
    /// Bytes of these packets in the clear, from the first of the link layer on.
    pub bytes: u64,
    /// Packets refused, by reason.
    pub refused: [u64; Refusal::COUNT],
}

impl Default for EspStats {
    fn default() -> Self {
        Self { packets: 0, bytes: 0, refused: [0; Refusal::COUNT] }
    }
}

impl EspStats {
    /// Packets refused for this reason.
    #[must_use]
    pub const fn refused(&self, reason: Refusal) -> u64 {
        self.refused[reason.index()]
    }

    /// Counts a packet of `bytes` in the clear, or its refusal.
    #[inline]
    pub(super) fn count<T>(
        &mut self,
        result: Result<T, Refusal>,
        bytes: impl FnOnce(&T) -> usize,
    ) -> Result<T, Refusal> {
        match &result {
            Ok(done) => {
                self.packets += 1;
                self.bytes += bytes(done) as u64;
            }
            Err(reason) => self.refused[reason.index()] += 1,
        }
        result
    }
}
