//! ESP: frames of any kind are encrypted, damaged and repeated in transit, and mixed with packets from a peer that has
//! the key but need obey no other rule. Exactly the encrypted frames are delivered, each of them once.

use std::{collections::BTreeSet, net::Ipv4Addr};

use crate::{Decisions, stack};
use aes_gcm::{Aes128Gcm, KeyInit, aead::AeadInOut};
use grosso::{
    Meta,
    tunnel::esp::{
        Decryptor, Encryptor, EspMode, IcvLength, KeyMaterial, Outer, SecurityAssociation, Traffic,
        UdpPorts, classify,
    },
};
use grosso_testkit::{Packet, oracle::Link, stack::Place};
use grosso_wire::LinkType;

const KEY: [u8; 20] = *b"a key of the fuzzers";
const SPI: u32 = 0x1000;

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut decisions = Decisions::new(data);
    let (link, kit) =
        decisions.choose(&[(LinkType::Ethernet, Link::Ethernet), (LinkType::Raw, Link::Ip)]);
    let addresses = Outer::V4 { source: Ipv4Addr::LOCALHOST, destination: Ipv4Addr::BROADCAST };
    let mode = decisions.choose(&[EspMode::Transport, EspMode::Tunnel(addresses)]);
    let icv = decisions.choose(&[IcvLength::Sixteen, IcvLength::Twelve, IcvLength::Eight]);
    let udp_ports = decisions.choose(&[None, Some(UdpPorts::ASSIGNED)]);
    let extended_sequence = decisions.byte() & 1 != 0;
    let association = || SecurityAssociation {
        icv,
        udp_ports,
        extended_sequence,
        ..SecurityAssociation::new(SPI, mode, KeyMaterial::aes_gcm(&KEY).expect("a key"))
    };
    let start = decisions.choose(&[0, 1, 0xffff_fff0]);
    let mut encryptor = Encryptor::resume(association(), 0, start).expect("an association");
    let mut decryptor = Decryptor::resume(association(), start).expect("an association");
    let mut sent: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let mut accepted = BTreeSet::new();
    while !decisions.is_over() {
        let mut wire = match decisions.byte() % 4 {
            0 | 1 => {
                let place = Place { sequence: decisions.byte().into(), ..Place::default() };
                let mut frame =
                    stack(&mut decisions, kit).packet(&place).payload_len(place.sequence as usize);
                if decisions.byte() & 3 == 0 {
                    frame = frame.truncate(decisions.byte().into());
                }
                let frame = frame.build();
                let mut out = vec![0xa5; frame.len() + encryptor.overhead_max()];
                match encryptor.encrypt(&frame, &Meta::default(), link, &mut out) {
                    Ok(encrypted) => out.truncate(encrypted.len),
                    Err(_) => continue,
                }
                sent.push((frame, out.clone()));
                out
            }
            2 if !sent.is_empty() => sent[usize::from(decisions.byte()) % sent.len()].1.clone(),
            _ => {
                let wire = anything_authentic(&mut decisions, kit);
                let _ = classify(&wire, link, Some(4500));
                deliver(&mut decryptor, wire, link);
                continue;
            }
        };
        let damaged = decisions.byte() & 1 != 0 && !wire.is_empty();
        if damaged {
            let at = usize::from(decisions.word()) % wire.len();
            wire[at] ^= decisions.byte();
        }
        let number = sent.iter().position(|(_, packet)| *packet == wire);
        if let Ok(Traffic::Esp { spi, .. }) = classify(&wire, link, Some(4500)) {
            assert!(spi == SPI || damaged);
        }
        let Some((sequence, delivered)) = deliver(&mut decryptor, wire, link) else { continue };
        assert!(accepted.insert(sequence), "{sequence} twice");
        // The headers before the ciphertext are not authenticated, so they are restored only if they were not damaged.
        if let Some(number) = number {
            assert!(sent[number].0.starts_with(&delivered), "padding is removed");
        }
    }
    let refused: u64 = decryptor.stats().refused.iter().sum();
    assert!(decryptor.stats().packets + refused >= accepted.len() as u64);
}

/// Decrypts a packet. Returns its sequence number and the frame.
fn deliver(decryptor: &mut Decryptor, mut wire: Vec<u8>, link: LinkType) -> Option<(u64, Vec<u8>)> {
    let decrypted = decryptor.decrypt(&mut wire, link).ok()?;
    Some((decrypted.sequence, wire[decrypted.frame].to_vec()))
}

/// Returns a packet with arbitrary plaintext (including the trailer) and a correct ICV. The sequence number is one of
/// the last numbers that the encryptor used.
fn anything_authentic(decisions: &mut Decisions<'_>, kit: Link) -> Vec<u8> {
    let sequence = u32::MAX - 1000 + u32::from(decisions.byte());
    let len = usize::from(decisions.byte());
    let mut text: Vec<u8> = (0..len).map(|_| decisions.byte()).collect();
    let nonce: [u8; 12] = [&KEY[16..], &[7; 8]].concat().try_into().expect("12 bytes");
    let cipher = Aes128Gcm::new_from_slice(&KEY[..16]).expect("a key");
    let header = [SPI.to_be_bytes(), sequence.to_be_bytes()].concat();
    let icv = cipher
        .encrypt_inout_detached(&nonce.into(), &header, text.as_mut_slice().into())
        .expect("it fits");
    let esp = [&header, &[7; 8][..], &text, &icv].concat();
    let link = if kit == Link::Ip { Packet::new() } else { Packet::new().ethernet(|e| e) };
    link.ipv4(|ip| ip.protocol(50)).payload(&esp).build()
}
