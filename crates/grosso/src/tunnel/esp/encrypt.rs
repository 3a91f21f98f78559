//! Encryption of plaintext frames into ESP packets. A superframe becomes one ESP packet per segment.

use alloc::boxed::Box;

use grosso_checksum::{Sum, nonzero};
use grosso_wire::{Ends, Kind, Layer, LinkType, esp, ipv4, ipv6, udp};

use super::{
    association::{EspMode, NoAssociation, Outer, SALT_BYTES, Salt, SecurityAssociation, UdpPorts},
    cipher::{Cipher, IV_BYTES, Nonce, cipher, position},
    place::{Network, Side, Split, Version},
    reason::{EspStats, Refusal},
    selectors::Selectors,
};
use crate::{
    bytes::{put_u16, put_u32},
    checksum::{self, Checksum},
    meta::Meta,
    segment::Segments,
    tunnel::outer::Inner,
};

/// One encrypted packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encrypted {
    /// Length of the encrypted frame in bytes.
    pub len: usize,
    /// Sequence number. An extended one has all 64 bits.
    pub sequence: u64,
    /// Metadata of the encrypted frame. It equals that of the plaintext frame, except that all checksums are complete.
    pub meta: Meta,
}

/// Encryptor for the packets of one association. The [module documentation](super) has an example.
#[derive(Debug)]
pub struct Encryptor {
    spi: u32,
    mode: EspMode,
    udp_ports: Option<UdpPorts>,
    icv_bytes: usize,
    extended: bool,
    salt: Salt,
    selectors: Selectors,
    cipher: Box<dyn Cipher>,
    last_sequence: u64,
    vector_salt: u64,
    stats: EspStats,
}

impl Encryptor {
    /// Creates an encryptor whose first packet gets sequence number 1.
    ///
    /// Each initialization vector is the sequence number XOR `vector_salt`, so an encryptor never repeats a vector.
    /// Choose the salt at random for every encryptor. If two encryptors get the same key by mistake and send up to 2^k
    /// packets each, the probability of a repeated vector is then about 2^(k + 1 - 64).
    ///
    /// # Errors
    /// Returns an error that names the first contradiction in the association.
    pub fn new(association: SecurityAssociation, vector_salt: u64) -> Result<Self, NoAssociation> {
        Self::resume(association, vector_salt, 0)
    }

    /// Creates an encryptor for an association that has used its sequence numbers up to `last_sequence`. `vector_salt`
    /// has the same meaning as for [`new`](Self::new), and must be chosen anew.
    ///
    /// A repeated vector would reveal the plaintexts of both packets and the integrity key. A new salt makes a
    /// repetition improbable. Sequence numbers continue above all those used before, because the peer's replay window
    /// would reject lower ones.
    ///
    /// # Errors
    /// Returns an error that names the first contradiction in the association.
    pub fn resume(
        association: SecurityAssociation,
        vector_salt: u64,
        last_sequence: u64,
    ) -> Result<Self, NoAssociation> {
        association.check()?;
        let SecurityAssociation {
            spi,
            mode,
            key,
            icv,
            extended_sequence,
            udp_ports,
            selectors,
            ..
        } = association;
        Ok(Self {
            spi,
            mode,
            udp_ports,
            icv_bytes: icv.bytes(),
            extended: extended_sequence,
            salt: key.salt(),
            selectors,
            cipher: cipher(&key, icv)?,
            last_sequence,
            vector_salt,
            stats: EspStats::default(),
        })
    }

    /// Encrypts one frame into `out`. The encrypted frame is at most [`Self::overhead_max`] bytes longer than the
    /// plaintext frame. A partial checksum is completed first, and Ethernet padding is dropped.
    ///
    /// # Errors
    /// Returns the reason why the frame cannot be encrypted. In this case, no sequence number is used, and the content
    /// of `out` is unspecified.
    pub fn encrypt(
        &mut self,
        frame: &[u8],
        meta: &Meta,
        link: LinkType,
        out: &mut [u8],
    ) -> Result<Encrypted, Refusal> {
        let headroom = self.headroom();
        let result = match out.get_mut(headroom..headroom + frame.len()) {
            Some(plaintext) => {
                plaintext.copy_from_slice(frame);
                self.seal(frame.len(), meta, link, out)
            }
            None => Err(Refusal::BufferTooSmall),
        };
        self.stats.count(result, |_| frame.len())
    }

    /// Encrypts the packets of a superframe one by one, each with its own sequence number, initialization vector,
    /// padding and ICV (rule S46).
    ///
    /// # Errors
    /// Returns [`Refusal::SequenceExhausted`] if fewer sequence numbers are left than the superframe has packets; no
    /// packet is sent.
    pub fn encrypt_segments<'e, 'a>(
        &'e mut self,
        segments: Segments<'a>,
        link: LinkType,
    ) -> Result<EncryptedSegments<'e, 'a>, Refusal> {
        if self.sequences_left() < u64::from(segments.remaining()) {
            return self.stats.count(Err(Refusal::SequenceExhausted), |_| 0);
        }
        Ok(EncryptedSegments { encryptor: self, segments, link })
    }

    /// Returns the maximum overhead per packet in bytes.
    #[must_use]
    pub const fn overhead_max(&self) -> usize {
        self.headroom() + self.trailer_max()
    }

    /// Returns the sequence number of the last encrypted packet, or 0 before the first packet.
    #[must_use]
    pub const fn last_sequence(&self) -> u64 {
        self.last_sequence
    }

    /// Returns the number of packets that can be encrypted before the association needs new keys. The number is limited
    /// because sequence numbers never wrap (RFC 4303 section 3.3.3).
    #[must_use]
    pub const fn sequences_left(&self) -> u64 {
        let max = if self.extended { u64::MAX } else { u32::MAX as u64 };
        max.saturating_sub(self.last_sequence)
    }

    /// Returns the memory address and length of the expanded key, for `mlock(2)`.
    #[must_use]
    pub fn secret(&self) -> (*const u8, usize) {
        position(&*self.cipher)
    }

    /// Returns the counters since creation.
    #[must_use]
    pub const fn stats(&self) -> &EspStats {
        &self.stats
    }

    /// Returns the number of bytes that encryption adds before the text.
    const fn headroom(&self) -> usize {
        let outer = match &self.mode {
            EspMode::Transport => 0,
            EspMode::Tunnel(outer) => outer.header_len(),
        };
        outer + self.udp_len() + ESP_BYTES
    }

    /// Returns the maximum number of bytes after the encrypted text.
    const fn trailer_max(&self) -> usize {
        PADDING_MAX + TRAILER_BYTES + self.icv_bytes
    }

    const fn udp_len(&self) -> usize {
        if self.udp_ports.is_some() { udp::HEADER_LEN } else { 0 }
    }

    /// Encrypts the frame that follows the headroom of `out`. Headers that stay readable are moved to the start of
    /// `out`; the text is not moved.
    fn seal(
        &mut self,
        frame_len: usize,
        meta: &Meta,
        link: LinkType,
        out: &mut [u8],
    ) -> Result<Encrypted, Refusal> {
        if meta.gso.is_some() {
            return Err(Refusal::Superframe);
        }
        if self.sequences_left() == 0 {
            return Err(Refusal::SequenceExhausted);
        }
        let headroom = self.headroom();
        let frame = &out[headroom..headroom + frame_len];
        let network = Network::find(frame, link)?;
        if !self.selectors.carry(&frame[network.start..network.end]) {
            return Err(Refusal::Selectors);
        }
        let (split, around) = self.divide(&network, frame)?;
        let text_len = network.end - split.at;
        let padding = (TRAILER_ALIGNMENT - (text_len + TRAILER_BYTES) % TRAILER_ALIGNMENT)
            % TRAILER_ALIGNMENT;
        let sealed_len = text_len + padding + TRAILER_BYTES;
        let esp_at = headroom + split.at - ESP_BYTES;
        let payload_at = esp_at - self.udp_len();
        let payload_len = headroom + split.at + sealed_len + self.icv_bytes - payload_at;
        let len = payload_at + payload_len;
        if out.len() < len {
            return Err(Refusal::BufferTooSmall);
        }
        if self.ip_len(&network, split.at, payload_len) > IP_LEN_MAX {
            return Err(Refusal::TooLong);
        }
        complete(&mut out[headroom..headroom + network.end], split.at, meta)?;

        // From here on, only the link layer can cause a refusal, by being too short or having no number for the address
        // family.
        let prefix_len = payload_at - around.map_or(0, |(outer, _)| outer.header_len());
        out.copy_within(headroom..headroom + prefix_len, 0);
        let link_layer = &mut out[..network.start];
        let version = around.map_or(network.version, |(outer, _)| outer.version());
        let grown = (len - network.start) as isize - (network.end - network.start) as isize;
        network.adapt_link(link_layer, version, grown)?;

        let sequence = self.last_sequence + 1;
        let protocol =
            if self.udp_ports.is_some() { ipv4::PROTOCOL_UDP } else { ipv4::PROTOCOL_ESP };
        match around {
            Some((outer, inner)) => {
                let header = &mut out[prefix_len..payload_at];
                outer.emit(header, &inner, payload_len, protocol, sequence);
            }
            None => network.announce(out, split.next_header_at, protocol, len - network.start),
        }
        self.write_esp(out, esp_at, sequence);
        let text_at = esp_at + ESP_BYTES;
        write_trailer(&mut out[text_at + text_len..], padding, split.next_header);
        let (head, rest) = out.split_at_mut(text_at);
        let (text, icv) = rest.split_at_mut(sealed_len);
        let associated = Associated::new(self.spi, sequence, self.extended);
        let icv = &mut icv[..self.icv_bytes];
        let nonce = nonce(&self.salt, &head[esp_at + esp::HEADER_LEN..]);
        // From here on, the number counts as used, even after an error.
        self.last_sequence = sequence;
        if !self.cipher.seal(&nonce, associated.as_bytes(), text, icv) {
            return Err(Refusal::TooLong);
        }
        if let Some(ports) = self.udp_ports {
            write_udp(&mut out[..len], network.start, payload_at, version, ports);
        }
        let meta = Meta { checksum: Checksum::None, gso: None, fragmented: None, ..*meta };
        Ok(Encrypted { len, sequence, meta })
    }

    /// Returns the start of the text and, in tunnel mode, the outer header.
    fn divide(
        &self,
        network: &Network,
        frame: &[u8],
    ) -> Result<(Split, Option<(Outer, Inner)>), Refusal> {
        match self.mode {
            EspMode::Transport => {
                let split = network.split(frame, Side::Encrypting)?;
                if split.next_header == ipv6::NEXT_NONE {
                    return Err(Refusal::Nothing);
                }
                Ok((split, None))
            }
            EspMode::Tunnel(outer) => {
                let next_header = network.version.protocol();
                let split = Split { at: network.start, next_header_at: 0, next_header };
                let inner = Inner::of(&frame[network.start..], network.version.kind());
                Ok((split, Some((outer, inner))))
            }
        }
    }

    /// Returns the value for the length field of the IP header.
    const fn ip_len(&self, network: &Network, split_at: usize, payload_len: usize) -> usize {
        match &self.mode {
            EspMode::Transport => {
                let headers = split_at - network.start;
                match network.version {
                    Version::V4 => headers + payload_len,
                    Version::V6 => headers + payload_len - ipv6::HEADER_LEN,
                }
            }
            EspMode::Tunnel(Outer::V4 { .. }) => ipv4::HEADER_LEN + payload_len,
            EspMode::Tunnel(Outer::V6 { .. }) => payload_len,
        }
    }

    /// Writes the SPI, the sequence number and the initialization vector. The vector is the whole sequence number XOR
    /// the salt, and an encryptor never repeats it (RFC 4106 section 3.1).
    fn write_esp(&self, out: &mut [u8], at: usize, sequence: u64) {
        put_u32(out, at, self.spi);
        put_u32(out, at + 4, sequence as u32);
        let vector = sequence ^ self.vector_salt;
        put_u32(out, at + 8, (vector >> 32) as u32);
        put_u32(out, at + 12, vector as u32);
    }
}

/// Writer of the individually encrypted packets of a superframe.
///
/// Every packet gets the association's next sequence number, so the high half of an extended number is correct even
/// across 2^32 (B25).
#[must_use]
#[derive(Debug)]
pub struct EncryptedSegments<'e, 'a> {
    encryptor: &'e mut Encryptor,
    segments: Segments<'a>,
    link: LinkType,
}

impl EncryptedSegments<'_, '_> {
    /// Writes the next packet to `out`, which should be [`Self::packet_len_max`] bytes long. Returns `None` after the
    /// last packet.
    ///
    /// # Errors
    /// Returns the reason why the packet cannot be encrypted. If the buffer is too short, call this function again with
    /// a larger one.
    pub fn write_next(&mut self, out: &mut [u8]) -> Result<Option<Encrypted>, Refusal> {
        let encryptor = &mut *self.encryptor;
        let room = encryptor.headroom()..out.len().saturating_sub(encryptor.trailer_max());
        let next = match out.get_mut(room) {
            Some(plaintext) => {
                self.segments.write_next(plaintext).map_err(|_| Refusal::BufferTooSmall)
            }
            None => Err(Refusal::BufferTooSmall),
        };
        let segment = match next {
            Ok(Some(segment)) => segment,
            Ok(None) => return Ok(None),
            Err(refusal) => return encryptor.stats.count(Err(refusal), |_| 0),
        };
        let result = encryptor.seal(segment.len(), &segment.meta, self.link, out);
        encryptor.stats.count(result, |_| segment.len()).map(Some)
    }

    /// Returns the number of remaining packets.
    #[must_use]
    pub fn remaining(&self) -> u32 {
        self.segments.remaining()
    }

    /// Returns the length of the longest packet in bytes; a buffer of this size is sufficient.
    #[must_use]
    pub fn packet_len_max(&self) -> usize {
        self.segments.packet_len_max() + self.encryptor.overhead_max()
    }
}

/// Associated data, which is authenticated but not encrypted: the SPI and the sequence number, with all 64 bits if it
/// is extended (RFC 4106 section 5).
pub(super) struct Associated {
    bytes: [u8; 12],
    len: usize,
}

impl Associated {
    pub(super) const fn new(spi: u32, sequence: u64, extended: bool) -> Self {
        let [a, b, c, d] = spi.to_be_bytes();
        let [e, f, g, h, i, j, k, l] = sequence.to_be_bytes();
        if extended {
            Self { bytes: [a, b, c, d, e, f, g, h, i, j, k, l], len: 12 }
        } else {
            Self { bytes: [a, b, c, d, i, j, k, l, 0, 0, 0, 0], len: 8 }
        }
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Returns the nonce: the salt, followed by the initialization vector at the start of `vector` (RFC 4106 section 4).
pub(super) fn nonce(salt: &Salt, vector: &[u8]) -> Nonce {
    let mut nonce = Nonce::default();
    nonce[..SALT_BYTES].copy_from_slice(&salt.0[..]);
    nonce[SALT_BYTES..].copy_from_slice(&vector[..IV_BYTES]);
    nonce
}

/// Completes a partial checksum inside the text, which starts at `text_at`. The receiver gets no metadata that would
/// mark it as partial.
fn complete(packet: &mut [u8], text_at: usize, meta: &Meta) -> Result<(), Refusal> {
    let Checksum::Partial { start, offset } = meta.checksum else { return Ok(()) };
    let inside = usize::from(start).checked_sub(text_at).and_then(|start| start.try_into().ok());
    let start = inside.ok_or(Refusal::ChecksumOutside)?;
    checksum::complete(&mut packet[text_at..], start, offset).map_err(|_| Refusal::ChecksumOutside)
}

/// Writes the padding (1, 2, 3 and so on), its length, and the next header (RFC 4303 sections 2.4 to 2.6).
fn write_trailer(out: &mut [u8], padding: usize, next_header: u8) {
    out[..PADDING_MAX.min(padding)].copy_from_slice(&PADDING[..padding]);
    out[padding] = padding as u8;
    out[padding + 1] = next_header;
}

/// Writes the UDP header. It has no checksum over IPv4 (RFC 3948 section 2.1), but must have one over IPv6 (RFC 8200
/// section 8.1).
fn write_udp(frame: &mut [u8], ip: usize, at: usize, version: Version, ports: UdpPorts) {
    let len = frame.len() - at;
    put_u16(frame, at, ports.source);
    put_u16(frame, at + udp::field::DESTINATION_PORT.start, ports.destination);
    put_u16(frame, at + udp::field::LENGTH.start, len as u16);
    put_u16(frame, at + udp::field::CHECKSUM.start, 0);
    if version == Version::V6 {
        let ip = Layer { kind: Kind::Ipv6, offset: ip as u16, len: ipv6::HEADER_LEN as u16 };
        let pseudo = Ends::of(frame, &ip).pseudo(frame, ipv4::PROTOCOL_UDP, len);
        let checksum = nonzero(pseudo.add(Sum::of(&frame[at..])).checksum());
        put_u16(frame, at + udp::field::CHECKSUM.start, checksum);
    }
}

/// Length in bytes of the ESP header with its initialization vector.
pub(super) const ESP_BYTES: usize = esp::HEADER_LEN + IV_BYTES;
/// Combined length in bytes of the padding length and next header fields.
pub(super) const TRAILER_BYTES: usize = 2;
/// Alignment of the encrypted text with its trailer, in bytes (RFC 4303 section 2.4).
pub(super) const TRAILER_ALIGNMENT: usize = 4;

const PADDING_MAX: usize = TRAILER_ALIGNMENT - 1;
const PADDING: [u8; PADDING_MAX] = [1, 2, 3];
/// Maximum value of the length field of an IP header.
const IP_LEN_MAX: usize = u16::MAX as usize;
