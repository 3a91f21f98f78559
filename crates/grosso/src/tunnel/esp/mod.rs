//! ESP (RFC 4303) with AES-GCM (RFC 4106): transport and tunnel mode, IPv4 and IPv6, directly in IP or in UDP (RFC
//! 3948).
//!
//! | module | job |
//! |---|---|
//! | `association` | configuration of a security association: keys, mode, lengths |
//! | `encrypt` | plaintext frames to ESP; superframes to one ESP packet per segment |
//! | `decrypt` | ESP to plaintext frames, in place |
//! | `replay` | replay window, and the high half of extended sequence numbers |
//! | `place`, `outer` | where a packet is split; the outer header in tunnel mode |
//! | `selectors` | addresses of the packets that an association carries |
//! | `cipher` | AES-GCM for each length of key and ICV |
//! | `reason` | names and counters of all refusals |
//!
//! The module has no key exchange, no policy and no SA database. A caller with several associations can get the SPI of
//! a packet from [`classify`]. Packets are processed without allocation. Encryption copies the text once, into the
//! output buffer; decryption does not copy it.
//!
//! ```
//! use grosso::{
//!     Meta,
//!     tunnel::esp::{Decryptor, Encryptor, KeyMaterial, EspMode, NoAssociation, SecurityAssociation},
//! };
//! use grosso_wire::LinkType;
//! # use grosso_testkit::Packet;
//! # let frame = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).payload(b"secret").build();
//!
//! // Key material from IKE or the configuration: 16 bytes of key and 4 bytes of salt.
//! let association = || -> Result<_, NoAssociation> {
//!     let key = KeyMaterial::aes_gcm(b"sixteen byte keysalt")?;
//!     Ok(SecurityAssociation::new(0x1000, EspMode::Transport, key))
//! };
//! // Salt of the initialization vectors: random, and different after each start.
//! let salt = 0x5a17_5a17_5a17_5a17;
//! let mut encryptor = Encryptor::new(association()?, salt)?;
//! let mut decryptor = Decryptor::new(association()?)?;
//!
//! let mut buffer = [0; 1600];
//! let sent = encryptor.encrypt(&frame, &Meta::default(), LinkType::Ethernet, &mut buffer)?;
//! let wire = &mut buffer[..sent.len];
//! assert!(!wire.windows(6).any(|bytes| bytes == b"secret"));
//!
//! let received = decryptor.decrypt(wire, LinkType::Ethernet)?;
//! assert_eq!(wire[received.frame], frame);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod association;
mod cipher;
mod decrypt;
mod encrypt;
mod outer;
mod place;
mod reason;
mod replay;
mod selectors;

pub use association::{
    ALGORITHM, EspMode, IcvLength, KeyMaterial, NoAssociation, Outer, REPLAY_WINDOW_PACKETS,
    REPLAY_WINDOW_PACKETS_MAX, REPLAY_WINDOW_PACKETS_MIN, SPI_MIN, SecurityAssociation, UdpPorts,
};
pub use decrypt::{Decrypted, Decryptor, Traffic, classify};
pub use encrypt::{Encrypted, EncryptedSegments, Encryptor};
pub use reason::{EspStats, Refusal};
pub use selectors::{Prefix, Selectors};
