//! Security associations and their two endpoints.

use grosso::{
    Meta,
    tunnel::esp::{
        Decryptor, Encrypted, Encryptor, EspMode, IcvLength, KeyMaterial, Outer, Prefix, Refusal,
        SecurityAssociation, Selectors, UdpPorts,
    },
};
use grosso_wire::LinkType;

/// Parameters of a security association. Unlike an association, they can be copied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recipe {
    pub(crate) spi: u32,
    pub(crate) mode: EspMode,
    /// Length of the key without its salt.
    pub(crate) key_bytes: usize,
    pub(crate) icv: IcvLength,
    pub(crate) extended: bool,
    pub(crate) window: u32,
    pub(crate) udp: bool,
    /// Whether the association carries only packets to documentation addresses (RFC 5737, RFC 3849), from any source.
    pub(crate) selective: bool,
}

pub(crate) const SPI: u32 = 0x1234_5678;

/// The key with its salt.
pub(crate) const KEY: [u8; 36] = *b"thirty-two bytes are enough for AES.";

/// The salt of initialization vectors, for all encryptors.
pub(crate) const VECTOR_SALT: u64 = 0x0123_4567_89ab_cdef;

pub(crate) const TUNNEL_V4: EspMode = EspMode::Tunnel(Outer::V4 {
    source: std::net::Ipv4Addr::new(203, 0, 113, 1),
    destination: std::net::Ipv4Addr::new(203, 0, 113, 2),
});

pub(crate) const TUNNEL_V6: EspMode = EspMode::Tunnel(Outer::V6 {
    source: std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xe1),
    destination: std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xe2),
});

pub(crate) const MODES: [EspMode; 3] = [EspMode::Transport, TUNNEL_V4, TUNNEL_V6];
pub(crate) const ICVS: [IcvLength; 3] = [IcvLength::Eight, IcvLength::Twelve, IcvLength::Sixteen];

impl Recipe {
    pub(crate) const fn new(mode: EspMode) -> Self {
        Self {
            spi: SPI,
            mode,
            key_bytes: 16,
            icv: IcvLength::Sixteen,
            extended: false,
            window: 64,
            udp: false,
            selective: false,
        }
    }

    /// Returns every combination of mode, key, ICV, length of sequence numbers and UDP, each with its own SPI.
    pub(crate) fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for mode in MODES {
            for icv in ICVS {
                for bits in 0..8 {
                    let key_bytes = if bits & 1 == 0 { 16 } else { 32 };
                    let (extended, udp) = (bits & 2 != 0, bits & 4 != 0);
                    let spi = SPI + all.len() as u32;
                    all.push(Self { spi, key_bytes, icv, extended, udp, ..Self::new(mode) });
                }
            }
        }
        all
    }

    pub(crate) fn association(&self) -> SecurityAssociation {
        let key = KeyMaterial::aes_gcm(&KEY[..self.key_bytes + 4]).expect("a key");
        let mut selectors = Selectors::ALL;
        if self.selective {
            let prefix = |address: &str, bits| Prefix::new(address.parse().expect("one"), bits);
            let both = [prefix("198.51.100.0", 24), prefix("2001:db8:4::", 47)];
            selectors.destinations.extend(both.map(|prefix| prefix.expect("a prefix")));
        }
        SecurityAssociation {
            selectors,
            icv: self.icv,
            extended_sequence: self.extended,
            replay_window_packets: self.window,
            udp_ports: self.udp.then_some(UdpPorts { source: 4501, destination: 4500 }),
            ..SecurityAssociation::new(self.spi, self.mode, key)
        }
    }

    pub(crate) fn encryptor(&self, last_sequence: u64) -> Encryptor {
        Encryptor::resume(self.association(), VECTOR_SALT, last_sequence).expect("an association")
    }

    pub(crate) fn decryptor(&self, last_sequence: u64) -> Decryptor {
        Decryptor::resume(self.association(), last_sequence).expect("an association")
    }

    /// Encrypts a frame with this sequence number, and returns the packet.
    pub(crate) fn encrypted(&self, sequence: u64, frame: &[u8]) -> Vec<u8> {
        encrypt(&mut self.encryptor(sequence - 1), frame).expect("the packet is encrypted").0
    }
}

/// Encrypts an Ethernet frame without metadata.
pub(crate) fn encrypt(
    encryptor: &mut Encryptor,
    frame: &[u8],
) -> Result<(Vec<u8>, Encrypted), Refusal> {
    encrypt_with(encryptor, frame, &Meta::default(), LinkType::Ethernet)
}

pub(crate) fn encrypt_with(
    encryptor: &mut Encryptor,
    frame: &[u8],
    meta: &Meta,
    link: LinkType,
) -> Result<(Vec<u8>, Encrypted), Refusal> {
    let mut out = vec![0xa5; frame.len() + encryptor.overhead_max()];
    let encrypted = encryptor.encrypt(frame, meta, link, &mut out)?;
    out.truncate(encrypted.len);
    Ok((out, encrypted))
}

/// Decrypts an Ethernet frame.
pub(crate) fn decrypt(decryptor: &mut Decryptor, frame: &[u8]) -> Result<Vec<u8>, Refusal> {
    let mut frame = frame.to_vec();
    let decrypted = decryptor.decrypt(&mut frame, LinkType::Ethernet)?;
    Ok(frame[decrypted.frame].to_vec())
}
