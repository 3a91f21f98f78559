//! AES-GCM for the VPN examples. A sealed packet consists of a counter, the encrypted packet, and a tag.
//!
//! Both endpoints have a copy of the same 16-byte key file; one endpoint is `a` and the other is `b`. The nonce is a
//! counter that starts over when the program is restarted, so a key must be used for only one run of the two programs.
//! Real programs negotiate keys, for example with Noise (see `wireguard.rs`), and use a window of received counters to
//! reject replayed packets.
#![cfg(target_os = "linux")]

use std::{error::Error, fs};

use aes_gcm::{
    Aes128Gcm, KeyInit, Nonce,
    aead::{AeadInOut, consts::U12, inout::InOutBuf},
};

/// Size of the counter in front of the encrypted packet, in bytes.
const COUNTER: usize = 8;
/// Size of the tag after the encrypted packet, in bytes.
const TAG: usize = 16;

/// Cipher of one endpoint, which encrypts the endpoint's own packets and decrypts those from the peer.
pub struct Cipher {
    cipher: Aes128Gcm,
    /// First byte of this endpoint's nonces. The peer's first byte has the lowest bit inverted.
    role: u8,
    sent: u64,
}

impl Cipher {
    /// Reads the key shared by both endpoints.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or is not 16 bytes long.
    pub fn read(key_file: &str, role: &str) -> Result<Self, Box<dyn Error>> {
        let key: [u8; 16] = fs::read(key_file)?.try_into().map_err(|_| "a key has 16 bytes")?;
        Ok(Self { cipher: Aes128Gcm::new(&key.into()), role: u8::from(role == "b"), sent: 0 })
    }

    /// Seals `packet` into the buffer `sealed`, replacing the contents of the buffer.
    pub fn seal(&mut self, packet: &[u8], sealed: &mut Vec<u8>) {
        sealed.clear();
        self.sent += 1;
        sealed.extend_from_slice(&self.sent.to_be_bytes());
        sealed.extend_from_slice(packet);
        let text = InOutBuf::from(&mut sealed[COUNTER..]);
        let nonce = nonce(self.role, self.sent);
        let tag = self.cipher.encrypt_inout_detached(&nonce, &[], text).expect("a packet is short");
        sealed.extend_from_slice(&tag);
    }

    /// Opens `sealed` into the buffer `packet`, replacing its contents. Returns whether the peer sealed the packet.
    #[must_use]
    pub fn open(&self, sealed: &[u8], packet: &mut Vec<u8>) -> bool {
        packet.clear();
        let Some((counter, rest)) = sealed.split_first_chunk::<COUNTER>() else { return false };
        let Some((text, tag)) = rest.split_last_chunk::<TAG>() else { return false };
        packet.extend_from_slice(text);
        let nonce = nonce(self.role ^ 1, u64::from_be_bytes(*counter));
        let text = InOutBuf::from(&mut packet[..]);
        self.cipher.decrypt_inout_detached(&nonce, &[], text, &(*tag).into()).is_ok()
    }
}

fn nonce(role: u8, counter: u64) -> Nonce<U12> {
    let mut nonce = [0; 12];
    nonce[0] = role;
    nonce[4..].copy_from_slice(&counter.to_be_bytes());
    nonce.into()
}

/// Placeholder whose doc tests are the programs in `docs/embed.md`.
#[cfg(doctest)]
#[doc = include_str!("../docs/embed.md")]
struct Embed;
