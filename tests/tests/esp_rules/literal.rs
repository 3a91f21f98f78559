//! ESP packets encoded byte by byte, correct and wrong, in the format of RFC 4303 section 2.

use aes_gcm::{Aes128Gcm, KeyInit, aead::AeadInOut};
use grosso_testkit::Packet;

use super::association::{KEY, SPI};

/// Returns an ESP packet without an IP header, with a key of 128 bits and an ICV of 16 bytes. `text` already includes
/// the trailer, and the initialization vector is arbitrary.
pub(crate) fn esp(sequence: u32, text: &[u8]) -> Vec<u8> {
    let vector = *b"any old!";
    let nonce: [u8; 12] = [&KEY[16..20], &vector].concat().try_into().expect("12 bytes");
    let cipher = Aes128Gcm::new_from_slice(&KEY[..16]).expect("a key");
    let header = [SPI.to_be_bytes(), sequence.to_be_bytes()].concat();
    let mut text = text.to_vec();
    let icv = cipher
        .encrypt_inout_detached(&nonce.into(), &header, text.as_mut_slice().into())
        .expect("it fits");
    [&header, &vector[..], &text, &icv].concat()
}

/// Encrypts a plaintext, and returns the ESP packet over IPv4 in an Ethernet frame.
pub(crate) fn frame(sequence: u32, text: &[u8]) -> Vec<u8> {
    in_ipv4(&esp(sequence, text))
}

/// Returns an ESP packet in an Ethernet frame over IPv4.
pub(crate) fn in_ipv4(esp: &[u8]) -> Vec<u8> {
    Packet::new().ethernet(|e| e).ipv4(|ip| ip.protocol(50)).payload(esp).build()
}

/// Returns a plaintext with its trailer: up to three padding bytes (1, 2, 3), the padding length, and the next header.
pub(crate) fn with_trailer(text: &[u8], next_header: u8) -> Vec<u8> {
    let padding = (4 - (text.len() + 2) % 4) % 4;
    let counted = &[1, 2, 3][..padding];
    [text, counted, &[padding as u8, next_header]].concat()
}
