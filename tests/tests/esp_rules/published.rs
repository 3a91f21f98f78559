//! Tests that published packets are decrypted correctly.

use grosso::tunnel::esp::{Decryptor, EspMode, KeyMaterial, Refusal, SecurityAssociation};
use grosso_testkit::{
    Packet,
    esp_vectors::{VECTORS, Vector, bytes},
};
use grosso_wire::LinkType;

fn decryptor(vector: &Vector, last_sequence: u64) -> Decryptor {
    let key = [bytes(vector.key), bytes(&vector.nonce[..8])].concat();
    let key = KeyMaterial::aes_gcm(&key).expect("a key");
    let mut association = SecurityAssociation::new(vector.spi(), EspMode::Transport, key);
    association.extended_sequence = vector.is_extended();
    Decryptor::resume(association, last_sequence).expect("an association")
}

/// Returns the packet as ESP in IPv4; protocol and length describe `payload`.
fn frame(protocol: u8, payload: &[u8]) -> Vec<u8> {
    Packet::new().ipv4(|ip| ip.protocol(protocol)).payload(payload).build()
}

#[test]
fn published_packets_are_decrypted_in_transport_mode() {
    let mut count = 0;
    for vector in VECTORS.iter().filter(|vector| vector.spi() >= 256) {
        let mut wire = frame(50, &vector.packet());
        let plaintext = bytes(vector.plaintext);
        let (padding, next_header) =
            (plaintext[plaintext.len() - 2], plaintext[plaintext.len() - 1]);
        let text = &plaintext[..plaintext.len() - 2 - usize::from(padding)];
        let mut decryptor = decryptor(vector, vector.sequence() - 1);
        let decrypted = decryptor.decrypt(&mut wire, LinkType::Raw).expect("the packet is genuine");
        assert_eq!((decrypted.sequence, decrypted.next_header), (vector.sequence(), next_header));
        assert_eq!(wire[decrypted.frame], frame(next_header, text));
        count += 1;
    }
    assert_eq!(count, 12);
}

#[test]
fn published_packets_of_another_association_are_refused() {
    let [first, second] = [&VECTORS[0], &VECTORS[1]];
    let mut wire = frame(50, &second.packet());
    let refusal = decryptor(first, first.sequence() - 1).decrypt(&mut wire, LinkType::Raw);
    assert_eq!(refusal.err(), Some(Refusal::OtherSpi));
}
