//! In-place decryption of ESP packets.

use alloc::boxed::Box;
use core::ops::Range;

use grosso_wire::{LinkType, esp, ipv4, ipv6, udp};

use super::{
    association::{EspMode, NoAssociation, Salt, SecurityAssociation},
    cipher::{Cipher, cipher, position},
    encrypt::{Associated, ESP_BYTES, TRAILER_ALIGNMENT, TRAILER_BYTES, nonce},
    outer::{apply_congestion, traffic_class},
    place::{Network, Side, Split, Version},
    reason::{EspStats, Refusal},
    replay::ReplayWindow,
    selectors::Selectors,
};
use crate::{
    bytes::{u16_at, u32_at},
    checksum::Checksum,
};

/// Class of a frame, determined before decryption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// ESP for the security association with this SPI.
    Esp {
        /// SPI of the packet.
        spi: u32,
        /// Whether ESP is carried in UDP rather than directly in IP.
        in_udp: bool,
    },
    /// IKE, which shares the UDP port with ESP (RFC 3948 section 2.2).
    Ike,
    /// NAT keepalive, which receivers ignore (RFC 3948 section 2.3).
    Keepalive,
}

/// Classifies a frame. `port` is the UDP port that this host uses for ESP, if any.
///
/// # Errors
/// Returns a reason if the frame carries neither ESP, IKE nor a keepalive, or only a part of such a packet.
pub fn classify(frame: &[u8], link: LinkType, port: Option<u16>) -> Result<Traffic, Refusal> {
    match locate(frame, link, port) {
        Ok(located) => Ok(Traffic::Esp { spi: located.spi, in_udp: located.in_udp() }),
        Err(Refusal::Ike) => Ok(Traffic::Ike),
        Err(Refusal::Keepalive) => Ok(Traffic::Keepalive),
        Err(refusal) => Err(refusal),
    }
}

/// One decrypted packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decrypted {
    /// Range of the plaintext frame in the decrypted buffer.
    pub frame: Range<usize>,
    /// Mode of the association. The outer header's addresses are not compared with the association's, because a NAT may
    /// change them.
    pub mode: EspMode,
    /// Protocol of the encrypted payload. In tunnel mode, it is 4 or 41.
    pub next_header: u8,
    /// Sequence number. An extended one has all 64 bits.
    pub sequence: u64,
    /// State of the checksums in the plaintext frame.
    ///
    /// In transport mode over UDP, the checksums count as verified. They may be wrong, because a NAT may have changed
    /// the addresses that they cover, but the ICV protects everything else (RFC 3948 section 3.1.2). Otherwise their
    /// state is unknown.
    pub checksum: Checksum,
}

/// Decryptor for the packets of one association. The [module documentation](super) has an example.
#[derive(Debug)]
pub struct Decryptor {
    spi: u32,
    mode: EspMode,
    port: Option<u16>,
    icv_bytes: usize,
    extended: bool,
    salt: Salt,
    cipher: Box<dyn Cipher>,
    window: ReplayWindow,
    selectors: Selectors,
    stats: EspStats,
}

impl Decryptor {
    /// Creates a decryptor for an association that has received no packets.
    ///
    /// # Errors
    /// Returns an error that names the first contradiction in the association.
    pub fn new(association: SecurityAssociation) -> Result<Self, NoAssociation> {
        Self::resume(association, 0)
    }

    /// Creates a decryptor for an association that received packets up to `last_sequence`. It rejects all sequence
    /// numbers up to this one.
    ///
    /// # Errors
    /// Returns an error that names the first contradiction in the association.
    pub fn resume(
        association: SecurityAssociation,
        last_sequence: u64,
    ) -> Result<Self, NoAssociation> {
        association.check()?;
        Ok(Self {
            spi: association.spi,
            mode: association.mode,
            port: association.udp_ports.map(|ports| ports.destination),
            icv_bytes: association.icv.bytes(),
            extended: association.extended_sequence,
            salt: association.key.salt(),
            cipher: cipher(&association.key, association.icv)?,
            window: ReplayWindow::new(association.replay_window_packets, last_sequence),
            selectors: association.selectors,
            stats: EspStats::default(),
        })
    }

    /// Verifies and decrypts a frame in place. The text is not moved; the headers before it are moved next to it.
    ///
    /// Lengths, SPI and sequence number are checked before the ICV. The replay window advances only for a packet with a
    /// valid ICV (RFC 4303 section 3.4.3).
    ///
    /// # Errors
    /// Returns the reason why the packet must not be delivered. For reasons up to [`Refusal::Integrity`], the frame is
    /// unchanged; after an error that is found later, the frame remains decrypted.
    pub fn decrypt(&mut self, frame: &mut [u8], link: LinkType) -> Result<Decrypted, Refusal> {
        let result = self.open(frame, link);
        self.stats.count(result, |decrypted| decrypted.frame.len())
    }

    /// Returns the highest sequence number accepted so far. It is 0 before the first packet, and always 0 without a
    /// replay window.
    #[must_use]
    pub const fn last_sequence(&self) -> u64 {
        self.window.top()
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

    fn open(&mut self, frame: &mut [u8], link: LinkType) -> Result<Decrypted, Refusal> {
        let located = locate(frame, link, self.port)?;
        if located.in_udp() != self.port.is_some() {
            return Err(Refusal::Encapsulation);
        }
        if located.spi != self.spi {
            return Err(Refusal::OtherSpi);
        }
        let text = self.text(&located)?;
        let low = u32_at(frame, located.esp_at + esp::field::SEQUENCE.start);
        let sequence = if self.extended { self.window.extend(low)? } else { low.into() };
        self.window.check(sequence)?;
        self.unseal(frame, &located, text.clone(), sequence)?;
        self.window.accept(sequence);

        let (text, next_header) = without_trailer(frame, text)?;
        if next_header == ipv6::NEXT_NONE {
            return Err(Refusal::Dummy);
        }
        let (range, checksum) = match self.mode {
            EspMode::Transport => {
                let checksum = match self.port {
                    Some(_) => Checksum::Unnecessary { levels: 0 },
                    None => Checksum::None,
                };
                (located.restore(frame, text, next_header)?, checksum)
            }
            EspMode::Tunnel(_) => (located.unpack(frame, text, next_header)?, Checksum::None),
        };
        let packet = frame.get(range.start + located.network.start..range.end);
        if !self.selectors.carry(packet.unwrap_or_default()) {
            return Err(Refusal::Selectors);
        }
        Ok(Decrypted { frame: range, mode: self.mode, next_header, sequence, checksum })
    }

    /// Returns the range of the encrypted text.
    fn text(&self, located: &EspHeaders) -> Result<Range<usize>, Refusal> {
        let start = located.esp_at + ESP_BYTES;
        let end = located.network.end.checked_sub(self.icv_bytes).ok_or(Refusal::Truncated)?;
        let len = end.checked_sub(start).ok_or(Refusal::Truncated)?;
        if len < TRAILER_BYTES {
            return Err(Refusal::Truncated);
        }
        if !len.is_multiple_of(TRAILER_ALIGNMENT) {
            return Err(Refusal::Alignment);
        }
        Ok(start..end)
    }

    fn unseal(
        &self,
        frame: &mut [u8],
        located: &EspHeaders,
        text: Range<usize>,
        sequence: u64,
    ) -> Result<(), Refusal> {
        let vector_at = located.esp_at + esp::HEADER_LEN;
        let packet = frame.get_mut(vector_at..located.network.end).ok_or(Refusal::Truncated)?;
        let (vector, rest) = packet.split_at_mut(text.start - vector_at);
        let (text, icv) = rest.split_at_mut(text.len());
        let nonce = nonce(&self.salt, vector);
        let associated = Associated::new(self.spi, sequence, self.extended);
        if self.cipher.open(&nonce, associated.as_bytes(), text, icv) {
            Ok(())
        } else {
            Err(Refusal::Integrity)
        }
    }
}

/// Offsets of the ESP headers in a frame.
#[derive(Clone, Copy, Debug)]
struct EspHeaders {
    network: Network,
    split: Split,
    esp_at: usize,
    spi: u32,
}

impl EspHeaders {
    const fn in_udp(&self) -> bool {
        self.esp_at != self.split.at
    }

    /// Moves the headers of a transport-mode packet directly in front of the decrypted text.
    fn restore(
        &self,
        frame: &mut [u8],
        text: Range<usize>,
        next_header: u8,
    ) -> Result<Range<usize>, Refusal> {
        let len = self.split.at - self.network.start + text.len();
        let grown = len as isize - (self.network.end - self.network.start) as isize;
        self.network.announce(frame, self.split.next_header_at, next_header, len);
        self.network.adapt_link(frame, self.network.version, grown)?;
        Ok(join(frame, self.split.at, text))
    }

    /// Moves the link layer to the start of the packet that was in the tunnel. Bytes after the packet are padding that
    /// hides its length (RFC 4303 section 2.7).
    fn unpack(
        &self,
        frame: &mut [u8],
        text: Range<usize>,
        next_header: u8,
    ) -> Result<Range<usize>, Refusal> {
        let version = match next_header {
            ipv4::PROTOCOL_IPV4 => Version::V4,
            ipv4::PROTOCOL_IPV6 => Version::V6,
            _ => return Err(Refusal::Mode),
        };
        let inner = frame.get_mut(text.clone()).ok_or(Refusal::Inner)?;
        let found = Network::find(inner, LinkType::Raw).map_err(|_| Refusal::Inner)?;
        if found.version != version {
            return Err(Refusal::Inner);
        }
        let class = traffic_class(
            frame.get(self.network.start..).unwrap_or_default(),
            self.network.version,
        );
        let text = text.start..text.start + found.end;
        apply_congestion(&mut frame[text.clone()], version, class)?;
        let grown = text.len() as isize - (self.network.end - self.network.start) as isize;
        self.network.adapt_link(frame, version, grown)?;
        Ok(join(frame, self.network.start, text))
    }
}

/// Finds ESP after the outermost IP header, either directly in IP or in UDP to `port`.
fn locate(frame: &[u8], link: LinkType, port: Option<u16>) -> Result<EspHeaders, Refusal> {
    let network = Network::find(frame, link)?;
    let split = network.split(frame, Side::Decrypting)?;
    let payload = &frame[split.at..network.end];
    let (esp_at, esp) = match split.next_header {
        ipv4::PROTOCOL_ESP => (split.at, payload),
        ipv4::PROTOCOL_UDP => (split.at + udp::HEADER_LEN, udp_payload(payload, port)?),
        PROTOCOL_AUTHENTICATION => return Err(Refusal::AuthenticationHeader),
        _ => return Err(Refusal::NotEsp),
    };
    if esp.len() < esp::HEADER_LEN {
        return Err(Refusal::Truncated);
    }
    let (header, _) = esp::EspHeader::parse(esp).map_err(|_| Refusal::Malformed)?;
    Ok(EspHeaders { network, split, esp_at, spi: header.spi.get() })
}

/// Returns the UDP payload. The UDP checksum is ignored, because the ICV is stronger and address translators are known
/// to leave wrong checksums (RFC 3948 section 2.1).
fn udp_payload(datagram: &[u8], port: Option<u16>) -> Result<&[u8], Refusal> {
    if datagram.len() < udp::HEADER_LEN {
        return Err(Refusal::Short);
    }
    if port != Some(u16_at(datagram, udp::field::DESTINATION_PORT.start)) {
        return Err(Refusal::NotEsp);
    }
    if usize::from(u16_at(datagram, udp::field::LENGTH.start)) != datagram.len() {
        return Err(Refusal::Malformed);
    }
    let payload = &datagram[udp::HEADER_LEN..];
    match payload {
        [esp::KEEPALIVE] => Err(Refusal::Keepalive),
        _ if payload.starts_with(&esp::NON_ESP_MARKER) => Err(Refusal::Ike),
        _ => Ok(payload),
    }
}

/// Returns the range of the text without its padding, and the next header (RFC 4303 sections 2.4 to 2.6).
fn without_trailer(frame: &[u8], text: Range<usize>) -> Result<(Range<usize>, u8), Refusal> {
    let bytes = frame.get(text.clone()).unwrap_or_default();
    let Some((rest, &[padding, next_header])) = bytes.split_last_chunk() else {
        return Err(Refusal::Truncated);
    };
    let len = rest.len().checked_sub(padding.into()).ok_or(Refusal::Padding)?;
    let is_counted = (1..).zip(&rest[len..]).all(|(number, &byte)| number == u16::from(byte));
    if !is_counted {
        return Err(Refusal::Padding);
    }
    Ok((text.start..text.start + len, next_header))
}

/// Moves the first `prefix_len` bytes to the start of the text, and returns the range that contains both.
fn join(frame: &mut [u8], prefix_len: usize, text: Range<usize>) -> Range<usize> {
    let start = text.start - prefix_len;
    frame.copy_within(..prefix_len, start);
    start..text.end
}

/// IP protocol of the authentication header (RFC 4302).
const PROTOCOL_AUTHENTICATION: u8 = 51;
