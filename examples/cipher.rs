//! AES-GCM for the VPN examples: an encrypted packet follows a counter and ends with a tag.
//!
//! Both endpoints have a copy of the 16 bytes of a key file; one endpoint is `a` and the other `b`. The nonce is a
//! counter that restarts with the program, so a key is valid for one run of both programs. Real programs agree on keys
//! first, for example with Noise (see `wireguard.rs`), and keep a window of received numbers.
#![cfg(target_os = "linux")]

use std::{error::Error, fs};

use aes_gcm::{
    Aes128Gcm, KeyInit, Nonce,
    aead::{AeadInOut, consts::U12, inout::InOutBuf},
};

/// Size of the counter before the encrypted packet, in bytes.
const COUNTER: usize = 8;
/// Size of the tag after the encrypted packet, in bytes.
const TAG: usize = 16;

/// The cipher of one endpoint, which encrypts the endpoint's packets and decrypts the peer's.
pub struct Cipher {
    cipher: Aes128Gcm,
    /// First byte of this endpoint's nonces; the peer's first byte has the lowest bit inverted.
    role: u8,
    sent: u64,
}

impl Cipher {
    /// Reads the key that both endpoints share.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or is not 16 bytes long.
    pub fn read(key_file: &str, role: &str) -> Result<Self, Box<dyn Error>> {
        let key: [u8; 16] = fs::read(key_file)?.try_into().map_err(|_| "a key has 16 bytes")?;
        Ok(Self { cipher: Aes128Gcm::new(&key.into()), role: u8::from(role == "b"), sent: 0 })
    }

    /// Replaces the contents of the buffer with the sealed packet.
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

    /// Replaces the contents of the buffer with the opened packet; returns whether the peer sealed it.
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

/// The programs of `docs/embed.md`, which are compiled as tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/embed.md")]
struct Embed;
