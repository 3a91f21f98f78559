//! Named refusals, with their counters.

use crate::reasons::reasons;

reasons! {
    /// Reason why a packet was not encrypted or not decrypted.
    Refusal {
        /// The frame carries no IP packet.
        NotIp = "not_ip",
        /// A header is malformed.
        Malformed = "malformed",
        /// The frame ends inside its headers, or is shorter than the length in its IP header.
        Short = "short",
        /// The IP length is zero, so the frame is a superframe and must be segmented first (rule S46).
        LengthZero = "length_zero",
        /// The packet is an IP fragment. Fragments can be encrypted only in tunnel mode, and must be reassembled before
        /// decryption (RFC 4303 sections 3.1.1 and 3.4.1).
        Fragment = "fragment",
        /// The tunnel changes the IP version, but the link layer gives the version in a field that cannot be rewritten.
        LinkFamily = "link_family",
        /// The buffer is too small for the encrypted packet.
        BufferTooSmall = "buffer_too_small",

        /// The frame is a superframe and must be segmented first (rule S46).
        Superframe = "superframe",
        /// The partial checksum lies outside the encrypted part (rule C3).
        ChecksumOutside = "checksum_outside",
        /// The packet has no payload. The receiver would treat the encrypted packet as a dummy packet (RFC 4303 section
        /// 2.6).
        Nothing = "nothing",
        /// The encrypted packet would exceed the maximum length of an IP packet.
        TooLong = "too_long",
        /// The association's sequence numbers are used up, so it needs new keys (RFC 4303 section 3.3.3).
        SequenceExhausted = "sequence_exhausted",

        /// The packet carries no ESP, or ESP in UDP to a port other than the association's.
        NotEsp = "not_esp",
        /// The packet carries an authentication header (RFC 4302), which is not supported.
        AuthenticationHeader = "authentication_header",
        /// The packet is IKE on the UDP port of ESP (RFC 3948 section 2.2).
        Ike = "ike",
        /// The packet is a NAT keepalive (RFC 3948 section 2.3).
        Keepalive = "keepalive",
        /// The packet is ESP directly in IP, but the association uses UDP.
        Encapsulation = "encapsulation",
        /// The packet belongs to another association.
        OtherSpi = "other_spi",
        /// The packet is too short for a sequence number, initialization vector, trailer and ICV.
        Truncated = "truncated",
        /// The length of the encrypted part is not a multiple of four bytes (RFC 4303 section 2.4).
        Alignment = "alignment",
        /// The sequence number is zero, which is never sent (RFC 4303 section 3.3.3).
        SequenceZero = "sequence_zero",
        /// The sequence number is below the replay window.
        TooOld = "too_old",
        /// A packet with this sequence number has already been accepted.
        Replayed = "replayed",
        /// The integrity check failed: the packet was modified, or the keys differ.
        Integrity = "integrity",
        /// The padding is longer than the packet, or its bytes are not 1, 2, 3 and so on (RFC 4303 section 2.4).
        Padding = "padding",
        /// The packet is a dummy packet, to be discarded (RFC 4303 section 2.6).
        Dummy = "dummy",
        /// In tunnel mode, the next header is neither IPv4 nor IPv6: the peer uses another mode (B25).
        Mode = "mode",
        /// The inner packet's version does not match the next header (B25), or its lengths do not match the decrypted
        /// length.
        Inner = "inner",
        /// The outer packet is marked CE, but the inner transport does not support ECN (RFC 6040 section 4.2).
        CongestionUntold = "congestion_untold",
        /// The packet has an address that the association does not cover (RFC 4301 sections 5.1 and 5.2).
        Selectors = "selectors",
    }
}

impl core::error::Error for Refusal {}

/// Counters of an [`Encryptor`](super::Encryptor) or a [`Decryptor`](super::Decryptor).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EspStats {
    /// Number of packets encrypted or decrypted.
    pub packets: u64,
    /// Total length of the plaintext frames in bytes, including link headers.
    pub bytes: u64,
    /// Number of packets refused, by reason.
    pub refused: [u64; Refusal::COUNT],
}

impl Default for EspStats {
    fn default() -> Self {
        Self { packets: 0, bytes: 0, refused: [0; Refusal::COUNT] }
    }
}

impl EspStats {
    /// Returns the number of packets refused for this reason.
    #[must_use]
    pub const fn refused(&self, reason: Refusal) -> u64 {
        self.refused[reason.index()]
    }

    /// Counts a packet of `bytes` plaintext bytes, or the reason for refusing it.
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
