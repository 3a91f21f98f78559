//! S46 and B25: superframes are segmented before encryption, and no packet is encrypted with another one's state.

use std::collections::BTreeSet;

use grosso::{
    segment::{Outgoing, Segments},
    tunnel::esp::{Encryptor, EspMode, Refusal},
};
use grosso_rig::{engine::PORTS, superframe::Superframe};
use grosso_testkit::{
    Packet,
    oracle::{Link, is_right},
    stack::{Front, NETWORKS, Network, Place, Stack, Transport, Tunnel},
};
use grosso_wire::LinkType;

use super::association::{MODES, Recipe, TUNNEL_V4, TUNNEL_V6, decrypt, encrypt};

/// Encrypts a superframe. Returns the packets on the wire, and their sequence numbers.
fn encrypted(
    encryptor: &mut Encryptor,
    superframe: &Superframe,
    outgoing: Outgoing,
) -> Result<(Vec<Vec<u8>>, Vec<u64>), Refusal> {
    let slices = [&superframe.bytes[..]];
    let segments = Segments::new(&slices, &superframe.meta, LinkType::Ethernet, &PORTS, outgoing)
        .expect("cut");
    let mut segments = encryptor.encrypt_segments(segments, LinkType::Ethernet)?;
    let mut buffer = vec![0xa5; segments.packet_len_max()];
    let (mut packets, mut sequences) = (Vec::new(), Vec::new());
    while let Some(encrypted) = segments.write_next(&mut buffer)? {
        packets.push(buffer[..encrypted.len].to_vec());
        sequences.push(encrypted.sequence);
    }
    Ok((packets, sequences))
}

fn tcp4(len: usize) -> Superframe {
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|t| t);
    Superframe::new(&packet.payload_len(len), 100)
}

/// Returns superframes of TCP and UDP over every network, with and without a tunnel.
fn superframes() -> Vec<Superframe> {
    let mut superframes = Vec::new();
    for network in NETWORKS {
        for transport in [Transport::TcpTimestamps, Transport::Udp] {
            let plain = Stack::plain(Front::Vlan, *network, transport);
            let mut tunnelled = plain.clone();
            tunnelled.tunnels.push((Network::Ipv4, Tunnel::VxlanPolicy));
            for stack in [plain, tunnelled] {
                let packet = stack.packet(&Place::default()).payload_len(1003);
                superframes.push(Superframe::new(&packet, 100));
            }
        }
    }
    superframes
}

/// Tests that every packet has its own sequence number, initialization vector, padding and ICV, and that decryption
/// returns the packets of the superframe with complete checksums.
#[test]
fn s46_a_superframe_is_cut_before_it_is_encrypted() {
    for superframe in superframes() {
        let plain = superframe.packets();
        assert_eq!(plain.len(), 11);
        for recipe in Recipe::all() {
            for outgoing in [Outgoing::default(), Outgoing::PARTIAL_CHECKSUMS] {
                let (mut encryptor, mut decryptor) = (recipe.encryptor(6), recipe.decryptor(0));
                let (wires, sequences) = encrypted(&mut encryptor, &superframe, outgoing)
                    .expect("the packet is encrypted");
                assert_eq!(sequences, (7..18).collect::<Vec<_>>());
                assert!(wires.iter().all(|wire| is_right(wire, Link::Ethernet)));
                let received: Vec<_> =
                    wires.iter().map(|wire| decrypt(&mut decryptor, wire).unwrap()).collect();
                assert_eq!(received, plain, "{recipe:?}");
                assert_eq!(encryptor.stats().packets, 11);
            }
        }
    }
}

#[test]
fn s46_every_packet_has_a_vector_of_its_own() {
    let recipe = Recipe::new(EspMode::Transport);
    let mut encryptor = recipe.encryptor(0);
    let mut vectors = BTreeSet::new();
    for _ in 0..3 {
        let (wires, _) = encrypted(&mut encryptor, &tcp4(1000), Outgoing::default()).unwrap();
        vectors.extend(wires.iter().map(|wire| wire[42..50].to_vec()));
        let single = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).build();
        vectors.insert(encrypt(&mut encryptor, &single).unwrap().0[42..50].to_vec());
    }
    assert_eq!(vectors.len(), 33);
    // The initialization vector does not repeat after the low half of the sequence number has wrapped.
    let recipe = Recipe { extended: true, ..recipe };
    let single = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).build();
    let [first, next] =
        [5, (1 << 32) + 5].map(|sequence| recipe.encrypted(sequence, &single)[38..50].to_vec());
    assert_eq!(first[..4], next[..4]);
    assert_ne!(first[4..], next[4..]);
}

/// Tests for a bug in Linux, which lost the high half of extended sequence numbers within a superframe.
#[test]
fn b25_the_high_half_steps_inside_a_superframe() {
    for mode in MODES {
        let recipe = Recipe { extended: true, ..Recipe::new(mode) };
        for before in 0..12 {
            let last = (1 << 32) - 1 - before;
            let (mut encryptor, mut decryptor) = (recipe.encryptor(last), recipe.decryptor(last));
            let superframe = tcp4(1000);
            let (wires, sequences) =
                encrypted(&mut encryptor, &superframe, Outgoing::default()).unwrap();
            assert_eq!(sequences, (last + 1..last + 11).collect::<Vec<_>>());
            let received: Vec<_> = wires.iter().map(|wire| decrypt(&mut decryptor, wire)).collect();
            let plain: Vec<_> = superframe.packets().into_iter().map(Ok).collect();
            assert_eq!(received, plain, "{before} before the end");
        }
    }
}

/// Tests for a bug in Linux, which used protocol and mode of one packet for the next when families were mixed.
#[test]
fn b25_families_mix_in_both_kinds_of_tunnels() {
    for mode in [TUNNEL_V4, TUNNEL_V6] {
        let recipe = Recipe::new(mode);
        let (mut encryptor, mut decryptor) = (recipe.encryptor(0), recipe.decryptor(0));
        for superframe in superframes() {
            let (wires, _) =
                encrypted(&mut encryptor, &superframe, Outgoing::default()).expect("encrypted");
            for (wire, plain) in wires.iter().zip(superframe.packets()) {
                assert_eq!(
                    wire[16..18] == [8, 0],
                    mode == TUNNEL_V4,
                    "the EtherType is that of the outer packet"
                );
                assert_eq!(decrypt(&mut decryptor, wire), Ok(plain));
            }
        }
    }
}

/// Tests RFC 4303 section 3.3.3: sequence numbers never restart, and a superframe is sent completely or not at all.
#[test]
fn s46_a_superframe_that_needs_more_numbers_than_are_left_is_refused_whole() {
    for (extended, max) in [(false, u64::from(u32::MAX)), (true, u64::MAX)] {
        let recipe = Recipe { extended, ..Recipe::new(EspMode::Transport) };
        let mut encryptor = recipe.encryptor(max - 9);
        let refusal = encrypted(&mut encryptor, &tcp4(1000), Outgoing::default());
        assert_eq!(refusal, Err(Refusal::SequenceExhausted));
        assert_eq!((encryptor.last_sequence(), encryptor.sequences_left()), (max - 9, 9));
        let (_, sequences) = encrypted(&mut encryptor, &tcp4(900), Outgoing::default()).unwrap();
        assert_eq!(sequences.last(), Some(&max));
        let single = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).build();
        assert_eq!(encrypt(&mut encryptor, &single).err(), Some(Refusal::SequenceExhausted));
        assert_eq!(encryptor.stats().refused(Refusal::SequenceExhausted), 2);
        assert_eq!(encryptor.last_sequence(), max);
    }
}

#[test]
fn s46_a_packet_that_does_not_fit_its_buffer_is_still_the_next() {
    let superframe = tcp4(300);
    let slices = [&superframe.bytes[..]];
    let outgoing = Outgoing::default();
    let segments =
        Segments::new(&slices, &superframe.meta, LinkType::Ethernet, &PORTS, outgoing).unwrap();
    let recipe = Recipe::new(TUNNEL_V6);
    let (mut encryptor, mut decryptor) = (recipe.encryptor(0), recipe.decryptor(0));
    let mut segments = encryptor.encrypt_segments(segments, LinkType::Ethernet).unwrap();
    let len = segments.packet_len_max();
    let mut buffer = vec![0; len];
    for packet in superframe.packets() {
        for short in [0, 1, 40, 100, len - 1] {
            let refusal = segments.write_next(&mut buffer[..short]);
            assert_eq!(refusal, Err(Refusal::BufferTooSmall), "{short}");
        }
        let encrypted = segments.write_next(&mut buffer).unwrap().expect("a packet");
        assert_eq!(decrypt(&mut decryptor, &buffer[..encrypted.len]), Ok(packet));
    }
    assert_eq!(segments.write_next(&mut buffer), Ok(None));
}

/// Tests superframes for a device that would repeat headers, including the sequence number.
#[test]
fn s46_what_a_device_would_still_cut_is_refused() {
    let mut encryptor = Recipe::new(EspMode::Transport).encryptor(0);
    let refusal = encrypted(&mut encryptor, &tcp4(1000), Outgoing::GSO_PARTIAL);
    assert_eq!(refusal, Err(Refusal::Superframe));
    assert_eq!(encryptor.last_sequence(), 0);
}
