//! Parameters that two peers agreed on: keys, mode, lengths, sequence numbers.

use alloc::vec::Vec;
use core::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr},
};

use zeroize::Zeroizing;

use super::selectors::Selectors;

/// A security association: one direction between two peers (RFC 4301 section 4.1).
///
/// It can be neither copied nor cloned, because encrypting twice with one key and sequence number reveals the key of
/// the integrity check: [`Encryptor`](super::Encryptor) and [`Decryptor`](super::Decryptor) consume it.
#[derive(Debug)]
pub struct SecurityAssociation {
    /// Security parameters index; those below [`SPI_MIN`] are reserved (RFC 4303 section 2.1).
    pub spi: u32,
    /// Encrypted part of a packet.
    pub mode: EspMode,
    /// The secret.
    pub key: KeyMaterial,
    /// Bytes of the integrity check value.
    pub icv: IcvLength,
    /// Sequence numbers of 64 bits, of which the low half is on the wire (RFC 4303 section 2.2.1). A receiver that
    /// misses 2^32 packets in a row has lost the high half and needs new keys.
    pub extended_sequence: bool,
    /// Greatest lateness of a packet, in packets: 0 for no replay protection, or from [`REPLAY_WINDOW_PACKETS_MIN`] to
    /// [`REPLAY_WINDOW_PACKETS_MAX`]. Only the receiver uses it.
    pub replay_window_packets: u32,
    /// The UDP ports of packets that must pass an address translator (RFC 3948); `None` for ESP
    /// directly in IP.
    pub udp_ports: Option<UdpPorts>,
    /// Addresses of the packets that it carries, from the sender's side: others are neither encrypted nor accepted (RFC
    /// 4301 sections 5.1 and 5.2).
    pub selectors: Selectors,
}

impl SecurityAssociation {
    /// An association with an ICV of 16 bytes, sequence numbers of 32 bits, a replay window of
    /// [`REPLAY_WINDOW_PACKETS`], and no UDP, for packets of all addresses.
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

    /// Checks that the parts agree.
    ///
    /// # Errors
    /// The first part that is out of range, by name.
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

/// Encrypted part of a packet (RFC 4303 section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EspMode {
    /// The payload of the IP packet; its header stays.
    Transport,
    /// The whole IP packet, inside one with this header.
    Tunnel(Outer),
}

/// The addresses of a tunnel's ends, from the sender's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outer {
    /// Over IPv4.
    V4 {
        /// The encrypting host.
        source: Ipv4Addr,
        /// The decrypting host.
        destination: Ipv4Addr,
    },
    /// Over IPv6.
    V6 {
        /// The encrypting host.
        source: Ipv6Addr,
        /// The decrypting host.
        destination: Ipv6Addr,
    },
}

/// The ports of ESP in UDP, from the sender's side. Of received packets only the destination is compared: a translator
/// may change the source at any time (RFC 3948 section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpPorts {
    /// That of the encrypting host.
    pub source: u16,
    /// That of the decrypting host.
    pub destination: u16,
}

impl UdpPorts {
    /// Port 4500 on both sides, as IKE agrees on.
    pub const ASSIGNED: Self =
        Self { source: grosso_wire::esp::PORT, destination: grosso_wire::esp::PORT };
}

/// Bytes of the integrity check value (RFC 4106 section 6).
///
/// Short ones are for peers that ask for them: the number of forgeries that a key of theirs may see is limited (NIST SP
/// 800-38D appendix C).
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
    /// The length of this many bits, as `ip xfrm` and IKE count.
    ///
    /// # Errors
    /// An error if it is not 64, 96 or 128.
    pub const fn from_bits(bits: u32) -> Result<Self, NoAssociation> {
        match bits {
            64 => Ok(Self::Eight),
            96 => Ok(Self::Twelve),
            128 => Ok(Self::Sixteen),
            _ => Err(NoAssociation::IcvBits),
        }
    }

    /// Bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Eight => 8,
            Self::Twelve => 12,
            Self::Sixteen => 16,
        }
    }
}

/// A key of AES-GCM with its salt (RFC 4106 section 8.1). Overwritten when dropped, and never
/// printed; on the heap, so that moving it leaves no copy behind.
pub struct KeyMaterial(Zeroizing<Vec<u8>>);

impl KeyMaterial {
    /// The key of 16 or 32 bytes, and behind it the salt of 4, as IKE makes them.
    ///
    /// # Errors
    /// An error unless there are 20 or 36 bytes.
    pub fn aes_gcm(key_and_salt: &[u8]) -> Result<Self, NoAssociation> {
        match key_and_salt.len().checked_sub(SALT_BYTES) {
            Some(16 | 32) => Ok(Self(Zeroizing::new(key_and_salt.to_vec()))),
            _ => Err(NoAssociation::KeyLength),
        }
    }

    /// Key material of an algorithm by its name in `ip xfrm`, which must be [`ALGORITHM`].
    ///
    /// # Errors
    /// An error if it is another algorithm, or the key has none of its lengths.
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

/// The part of the key material that every nonce starts with (RFC 4106 section 4); as secret as the key.
pub(super) struct Salt(pub(super) Zeroizing<[u8; SALT_BYTES]>);

impl fmt::Debug for Salt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Salt")
    }
}

/// The algorithm and the length of the key, and nothing of its bytes.
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
    /// The key and its salt have neither 20 nor 36 bytes.
    KeyLength,
    /// The algorithm is not [`ALGORITHM`]. Null encryption, the CBC modes and modes without integrity are not supported
    /// (RFC 8221 section 5).
    Algorithm,
    /// The ICV has neither 64, 96 nor 128 bits.
    IcvBits,
    /// The replay window is out of range.
    Window,
    /// Extended sequence numbers without a replay window, which finds their high half (RFC 4303
    /// section 2.2.1).
    ExtendedWithoutWindow,
    /// A UDP port is zero.
    PortZero,
}

impl NoAssociation {
    /// A sentence for a person.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::ReservedSpi => "the SPI is below 256, and those are reserved",
            Self::KeyLength => "key and salt have neither 20 nor 36 bytes together",
            Self::Algorithm => "the algorithm is not rfc4106(gcm(aes))",
            Self::IcvBits => "the ICV has neither 64, 96 nor 128 bits",
            Self::Window => "the replay window has neither 0 nor 32 to 65536 packets",
            Self::ExtendedWithoutWindow => "extended sequence numbers need a replay window",
            Self::PortZero => "a UDP port is zero",
        }
    }
}

impl fmt::Display for NoAssociation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

impl core::error::Error for NoAssociation {}

/// The only algorithm, by its name in `ip xfrm`: AES-GCM by RFC 4106.
pub const ALGORITHM: &str = "rfc4106(gcm(aes))";
/// The lowest SPI that is not reserved (RFC 4303 section 2.1).
pub const SPI_MIN: u32 = 256;
/// Default size of a replay window, in packets: a few bursts that several queues mix.
pub const REPLAY_WINDOW_PACKETS: u32 = 1024;
/// Fewest packets of a replay window (RFC 4303 section 3.4.3).
pub const REPLAY_WINDOW_PACKETS_MIN: u32 = 32;
/// Most packets of a replay window: 8 KiB of memory an association, and far below the 2^31 of
/// RFC 4303 appendix A2.1.
pub const REPLAY_WINDOW_PACKETS_MAX: u32 = 65_536;

/// Bytes of the salt (RFC 4106 section 4).
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
