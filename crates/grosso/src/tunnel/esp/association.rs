//! Parameters agreed on by two peers: keys, mode, lengths and sequence numbers.

use alloc::vec::Vec;
use core::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr},
};

use zeroize::Zeroizing;

use super::selectors::Selectors;

/// A security association, which applies to one direction between two peers (RFC 4301 section 4.1).
///
/// The type is neither `Copy` nor `Clone`, because encrypting twice with the same key and sequence number would reveal
/// the integrity key. [`Encryptor`](super::Encryptor) and [`Decryptor`](super::Decryptor) therefore consume the
/// association.
#[derive(Debug)]
pub struct SecurityAssociation {
    /// Security parameters index; values below [`SPI_MIN`] are reserved (RFC 4303 section 2.1).
    pub spi: u32,
    /// Part of a packet that is encrypted.
    pub mode: EspMode,
    /// Key and salt.
    pub key: KeyMaterial,
    /// Length of the integrity check value.
    pub icv: IcvLength,
    /// Whether sequence numbers are 64 bits long, with only the low half on the wire (RFC 4303 section 2.2.1). A
    /// receiver that misses 2^32 consecutive packets loses the high half and needs new keys.
    pub extended_sequence: bool,
    /// Size of the replay window in packets, from [`REPLAY_WINDOW_PACKETS_MIN`] to [`REPLAY_WINDOW_PACKETS_MAX`]. 0
    /// disables replay protection. Only receivers use this value.
    pub replay_window_packets: u32,
    /// UDP ports for NAT traversal (RFC 3948), or `None` for ESP directly in IP.
    pub udp_ports: Option<UdpPorts>,
    /// Addresses of the packets that the association carries, from the sender's point of view. Other packets are
    /// neither encrypted nor accepted (RFC 4301 sections 5.1 and 5.2).
    pub selectors: Selectors,
}

impl SecurityAssociation {
    /// Creates an association for all addresses, with a 16-byte ICV, 32-bit sequence numbers, a replay window of
    /// [`REPLAY_WINDOW_PACKETS`] packets, and no UDP.
    #[must_use]
    pub const fn new(spi: u32, mode: EspMode, key: KeyMaterial) -> Self {
        Self {
            spi,
            mode,
            key,
            icv: IcvLength::Sixteen,
            extended_sequence: false,
            replay_window_packets: REPLAY_WINDOW_PACKETS,
            udp_ports: None,
            selectors: Selectors::ALL,
        }
    }

    /// Checks the configuration.
    ///
    /// # Errors
    /// Returns an error that names the first value out of range.
    pub const fn check(&self) -> Result<(), NoAssociation> {
        let window = self.replay_window_packets;
        if self.spi < SPI_MIN {
            return Err(NoAssociation::ReservedSpi);
        }
        if window != 0 && (window < REPLAY_WINDOW_PACKETS_MIN || window > REPLAY_WINDOW_PACKETS_MAX)
        {
            return Err(NoAssociation::Window);
        }
        if window == 0 && self.extended_sequence {
            return Err(NoAssociation::ExtendedWithoutWindow);
        }
        match self.udp_ports {
            Some(UdpPorts { source: 0, .. } | UdpPorts { destination: 0, .. }) => {
                Err(NoAssociation::PortZero)
            }
            _ => Ok(()),
        }
    }
}

/// Part of a packet that is encrypted (RFC 4303 section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EspMode {
    /// Transport mode: the payload of the IP packet is encrypted, and the IP header is kept.
    Transport,
    /// Tunnel mode: the whole IP packet is encrypted and placed in an outer IP packet with these addresses.
    Tunnel(Outer),
}

/// Addresses of the outer header in tunnel mode, from the sender's point of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outer {
    /// IPv4 addresses.
    V4 {
        /// Address of the encrypting host.
        source: Ipv4Addr,
        /// Address of the decrypting host.
        destination: Ipv4Addr,
    },
    /// IPv6 addresses.
    V6 {
        /// Address of the encrypting host.
        source: Ipv6Addr,
        /// Address of the decrypting host.
        destination: Ipv6Addr,
    },
}

/// Ports of ESP in UDP, from the sender's point of view. A receiver compares only the destination port, because a NAT
/// may change the source port at any time (RFC 3948 section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpPorts {
    /// Port of the encrypting host.
    pub source: u16,
    /// Port of the decrypting host.
    pub destination: u16,
}

impl UdpPorts {
    /// Port 4500 on both sides, as IKE negotiates it.
    pub const ASSIGNED: Self =
        Self { source: grosso_wire::esp::PORT, destination: grosso_wire::esp::PORT };
}

/// Length of the integrity check value (RFC 4106 section 6).
///
/// Use 8 or 12 bytes only if the peer requires it: with a short ICV, a key is secure only for a limited number of
/// forgery attempts (NIST SP 800-38D appendix C).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum IcvLength {
    /// 8 bytes.
    Eight,
    /// 12 bytes.
    Twelve,
    /// 16 bytes.
    #[default]
    Sixteen,
}

impl IcvLength {
    /// Returns the length for this number of bits. `ip xfrm` and IKE state the length in bits.
    ///
    /// # Errors
    /// Returns [`NoAssociation::IcvBits`] unless `bits` is 64, 96 or 128.
    pub const fn from_bits(bits: u32) -> Result<Self, NoAssociation> {
        match bits {
            64 => Ok(Self::Eight),
            96 => Ok(Self::Twelve),
            128 => Ok(Self::Sixteen),
            _ => Err(NoAssociation::IcvBits),
        }
    }

    /// Returns the length in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Eight => 8,
            Self::Twelve => 12,
            Self::Sixteen => 16,
        }
    }
}

/// AES-GCM key with its salt (RFC 4106 section 8.1). The memory is zeroed on drop, and its content is never printed.
/// The key is on the heap, so moving the value leaves no copy behind.
pub struct KeyMaterial(Zeroizing<Vec<u8>>);

impl KeyMaterial {
    /// Creates key material from a key of 16 or 32 bytes followed by a salt of 4 bytes, as IKE derives them.
    ///
    /// # Errors
    /// Returns [`NoAssociation::KeyLength`] unless the length is 20 or 36 bytes.
    pub fn aes_gcm(key_and_salt: &[u8]) -> Result<Self, NoAssociation> {
        match key_and_salt.len().checked_sub(SALT_BYTES) {
            Some(16 | 32) => Ok(Self(Zeroizing::new(key_and_salt.to_vec()))),
            _ => Err(NoAssociation::KeyLength),
        }
    }

    /// Creates key material for the algorithm with this `ip xfrm` name, which must be [`ALGORITHM`].
    ///
    /// # Errors
    /// Returns an error for any other algorithm or an invalid key length.
    pub fn of_algorithm(name: &str, key_and_salt: &[u8]) -> Result<Self, NoAssociation> {
        if name != ALGORITHM {
            return Err(NoAssociation::Algorithm);
        }
        Self::aes_gcm(key_and_salt)
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.0[..self.0.len() - SALT_BYTES]
    }

    pub(super) fn salt(&self) -> Salt {
        let mut salt = Zeroizing::new([0; SALT_BYTES]);
        salt.copy_from_slice(&self.0[self.0.len() - SALT_BYTES..]);
        Salt(salt)
    }
}

/// Part of the key material with which every nonce starts (RFC 4106 section 4). It must be kept as secret as the key.
pub(super) struct Salt(pub(super) Zeroizing<[u8; SALT_BYTES]>);

impl fmt::Debug for Salt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Salt")
    }
}

/// Prints the algorithm and the key length, never the key.
impl fmt::Debug for KeyMaterial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyMaterial({ALGORITHM}, {} bits)", self.key().len() * 8)
    }
}

/// Reason why an association is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoAssociation {
    /// The SPI is below [`SPI_MIN`].
    ReservedSpi,
    /// The key and its salt are neither 20 nor 36 bytes long.
    KeyLength,
    /// The algorithm is not [`ALGORITHM`]. Null encryption, the CBC modes and modes without integrity are not supported
    /// (RFC 8221 section 5).
    Algorithm,
    /// The ICV is not 64, 96 or 128 bits long.
    IcvBits,
    /// The replay window is out of range.
    Window,
    /// Extended sequence numbers require a replay window, which recovers their high half (RFC 4303 section 2.2.1).
    ExtendedWithoutWindow,
    /// A UDP port is zero.
    PortZero,
}

impl NoAssociation {
    /// Returns a sentence that explains the reason to users.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::ReservedSpi => "the SPI must be at least 256; lower values are reserved",
            Self::KeyLength => "key and salt together must have 20 or 36 bytes",
            Self::Algorithm => "the algorithm must be rfc4106(gcm(aes))",
            Self::IcvBits => "the ICV must have 64, 96 or 128 bits",
            Self::Window => "the replay window must be 0, or from 32 to 65536 packets",
            Self::ExtendedWithoutWindow => "extended sequence numbers need a replay window",
            Self::PortZero => "UDP port 0 is not valid",
        }
    }
}

impl fmt::Display for NoAssociation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

impl core::error::Error for NoAssociation {}

/// The only supported algorithm, by its `ip xfrm` name: AES-GCM (RFC 4106).
pub const ALGORITHM: &str = "rfc4106(gcm(aes))";
/// Lowest SPI that is not reserved (RFC 4303 section 2.1).
pub const SPI_MIN: u32 = 256;
/// Default size of the replay window in packets, enough for a few bursts that several queues have reordered.
pub const REPLAY_WINDOW_PACKETS: u32 = 1024;
/// Minimum size of the replay window in packets (RFC 4303 section 3.4.3).
pub const REPLAY_WINDOW_PACKETS_MIN: u32 = 32;
/// Maximum size of the replay window in packets. It takes 8 KiB of memory per association and is far below the limit of
/// 2^31 in RFC 4303 appendix A2.1.
pub const REPLAY_WINDOW_PACKETS_MAX: u32 = 65_536;

/// Length of the salt in bytes (RFC 4106 section 4).
pub(super) const SALT_BYTES: usize = 4;

#[cfg(test)]
mod tests {
    use std::format;

    use super::*;
    use crate::tunnel::esp::{Decryptor, Encryptor};

    fn association() -> SecurityAssociation {
        let key = KeyMaterial::aes_gcm(&[0xa7; 20]).unwrap();
        SecurityAssociation::new(0x1000, EspMode::Transport, key)
    }

    #[test]
    fn keys_are_never_printed() {
        let text = format!("{:?}", association());
        assert!(text.contains("KeyMaterial(rfc4106(gcm(aes)), 128 bits)"), "{text}");
        let encryptor = Encryptor::new(association(), 0).unwrap();
        let decryptor = Decryptor::new(association()).unwrap();
        for text in [text, format!("{encryptor:?}"), format!("{decryptor:?}")] {
            assert!(!text.contains("167") && !text.contains("a7"), "{text}");
        }
    }

    #[test]
    fn keys_are_overwritten_when_dropped() {
        fn assert_overwritten<T: zeroize::ZeroizeOnDrop>(_: &T) {}
        assert_overwritten(&association().key.0);
        assert_overwritten(&association().key.salt().0);
    }

    #[test]
    fn keys_of_other_lengths_and_algorithms_are_refused() {
        for len in 0..100 {
            let made = KeyMaterial::aes_gcm(&[1; 100][..len]).map(|key| key.key().len());
            match len {
                20 | 36 => assert_eq!(made, Ok(len - 4)),
                _ => assert_eq!(made, Err(NoAssociation::KeyLength)),
            }
        }
        for name in ["cbc(aes)", "rfc4309(ccm(aes))", "rfc4543(gcm(aes))", "hmac(sha256)", ""] {
            let made = KeyMaterial::of_algorithm(name, &[1; 20]).map(|_| ());
            assert_eq!(made, Err(NoAssociation::Algorithm), "{name}");
        }
        assert!(KeyMaterial::of_algorithm(ALGORITHM, &[1; 36]).is_ok());
        for bits in 0..200 {
            let bytes = IcvLength::from_bits(bits).map(|icv| icv.bytes() as u32 * 8);
            let right = if [64, 96, 128].contains(&bits) { Ok(bits) } else { Err(()) };
            assert_eq!(bytes.map_err(|_| ()), right);
        }
    }

    #[test]
    fn parts_out_of_range_are_named() {
        use NoAssociation::*;
        type Change = fn(&mut SecurityAssociation);
        let changes: [(Change, Result<(), NoAssociation>); 11] = [
            (|_| (), Ok(())),
            (|sa| sa.spi = 255, Err(ReservedSpi)),
            (|sa| sa.spi = 256, Ok(())),
            (|sa| sa.replay_window_packets = 0, Ok(())),
            (|sa| sa.replay_window_packets = 31, Err(Window)),
            (|sa| sa.replay_window_packets = 32, Ok(())),
            (|sa| sa.replay_window_packets = 65_536, Ok(())),
            (|sa| sa.replay_window_packets = 65_537, Err(Window)),
            (|sa| sa.extended_sequence = true, Ok(())),
            (
                |sa| (sa.extended_sequence, sa.replay_window_packets) = (true, 0),
                Err(ExtendedWithoutWindow),
            ),
            (|sa| sa.udp_ports = Some(UdpPorts { source: 4500, destination: 0 }), Err(PortZero)),
        ];
        for (number, (change, expected)) in changes.into_iter().enumerate() {
            let mut association = association();
            change(&mut association);
            assert_eq!(association.check(), expected, "{number}");
        }
    }
}
