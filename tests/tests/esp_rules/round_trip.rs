//! `decrypt(encrypt(x)) == x` for every header stack, in every mode, with every length of key and ICV.

use grosso::{Meta, checksum::Checksum, tunnel::esp::Refusal};
use grosso_testkit::{
    Traffic,
    oracle::{Link, is_right},
    random::Random,
    stack::{Front, Place, Stack},
};
use grosso_wire::{Extent, Kind, LinkType, Ports, Stop, dissect};
use proptest::prelude::*;

use super::association::{Recipe, decrypt, encrypt_with};

/// Ports of the receiver: only ESP in UDP, whose port no stack of the kit uses.
const PORTS: Ports = Ports::NONE.with(Kind::Esp, 4500);

fn link(kit: Link) -> LinkType {
    if kit == Link::Ip { LinkType::Raw } else { LinkType::Ethernet }
}

/// Encrypts, checks the packet on the wire, and decrypts.
fn there_and_back(recipe: &Recipe, frame: &[u8], kit: Link) -> Result<Vec<u8>, Refusal> {
    let (mut encryptor, mut decryptor) = (recipe.encryptor(0), recipe.decryptor(0));
    let (mut wire, encrypted) = encrypt_with(&mut encryptor, frame, &Meta::default(), link(kit))?;
    assert_eq!((encrypted.sequence, encrypted.meta), (1, Meta::default()));
    assert!(wire.len() <= frame.len() + encryptor.overhead_max());
    let stack = dissect(&wire, link(kit), &PORTS);
    let last = stack.last().map(|layer| layer.kind);
    assert_eq!((last, stack.stop), (Some(Kind::Esp), Stop::Encrypted), "{stack}");
    assert_eq!(stack.extent, Extent::Exact);
    let decrypted = decryptor.decrypt(&mut wire, link(kit)).expect("the packet is genuine");
    assert_eq!((decrypted.sequence, decrypted.mode), (1, recipe.mode));
    Ok(wire[decrypted.frame].to_vec())
}

#[test]
fn every_header_stack_comes_back_in_every_mode() {
    for stack in Stack::all() {
        let kit = stack.link();
        for (number, recipe) in Recipe::all().iter().enumerate() {
            let payload_len = 64 + number % 5;
            let frame = stack.packet(&Place::default()).payload_len(payload_len).build();
            match there_and_back(recipe, &frame, kit) {
                Ok(back) => assert_eq!(back, frame, "{stack:?} {recipe:?}"),
                // A label stack does not announce the protocol of its contents, and the next protocol of a service
                // header is not rewritten.
                Err(Refusal::LinkFamily) => {
                    assert!(matches!(stack.front, Front::Mpls | Front::Nsh), "{stack:?}");
                }
                Err(refusal) => panic!("{refusal}: {stack:?} {recipe:?}"),
            }
        }
    }
}

/// Tests that the headers before the ciphertext are correct, because devices without the keys treat the packet like any
/// other.
#[test]
fn what_is_on_the_wire_has_right_checksums() {
    for stack in Stack::all().iter().filter(|stack| stack.link() == Link::Ethernet) {
        let frame = stack.packet(&Place::default()).payload_len(50).build();
        for recipe in Recipe::all() {
            let sent = encrypt_with(
                &mut recipe.encryptor(0),
                &frame,
                &Meta::default(),
                LinkType::Ethernet,
            );
            match sent {
                Ok((wire, _)) => assert!(is_right(&wire, Link::Ethernet), "{stack:?} {recipe:?}"),
                Err(refusal) => assert_eq!(refusal, Refusal::LinkFamily),
            }
        }
    }
}

/// Tests every length of plaintext, so that every padding occurs.
#[test]
fn every_length_comes_back() {
    let stack = Stack::all().remove(0);
    let kit = stack.link();
    for payload_len in 0..200 {
        let frame = stack.packet(&Place::default()).payload_len(payload_len).build();
        for recipe in Recipe::all().iter().step_by(5) {
            assert_eq!(there_and_back(recipe, &frame, kit).as_ref(), Ok(&frame));
        }
    }
}

#[test]
fn padding_of_ethernet_is_left_off() {
    let packet = grosso_testkit::Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u);
    let padded = packet.clone().payload(b"x").pad_to(60).trailer(b"fcs!").build();
    let bare = packet.payload(b"x").build();
    for recipe in Recipe::all() {
        assert_eq!(there_and_back(&recipe, &padded, Link::Ethernet).as_ref(), Ok(&bare));
        // Decryption also accepts an encrypted packet with padding after it.
        let mut wire = recipe.encrypted(1, &bare);
        wire.extend([0xee; 9]);
        assert_eq!(decrypt(&mut recipe.decryptor(0), &wire).as_ref(), Ok(&bare));
    }
}

/// Tests that a checksum left to a device is completed before encryption, which would hide it from the device.
#[test]
fn partial_checksums_are_completed_before_encryption() {
    let stacks = Stack::all();
    let stacks = stacks.iter().filter(|stack| {
        use grosso_testkit::stack::Transport::{Tcp, TcpTimestamps, Udp};
        stack.tunnels.is_empty() && [Tcp, TcpTimestamps, Udp].contains(&stack.transport)
    });
    for stack in stacks {
        let packet = stack.packet(&Place::default()).payload_len(77);
        let (partial, start, offset) = packet.build_partial();
        let checksum = Checksum::Partial { start: start as u16, offset: offset as u16 };
        let meta = Meta { checksum, ..Meta::default() };
        for recipe in Recipe::all().iter().step_by(5) {
            let link = link(stack.link());
            let (mut wire, sent) =
                match encrypt_with(&mut recipe.encryptor(0), &partial, &meta, link) {
                    Err(Refusal::LinkFamily) => continue,
                    sent => sent.expect("the packet is encrypted"),
                };
            assert_eq!(sent.meta.checksum, Checksum::None);
            let received =
                recipe.decryptor(0).decrypt(&mut wire, link).expect("the packet is genuine");
            assert_eq!(wire[received.frame], packet.build(), "{stack:?}");
        }
    }
}

/// Tests RFC 3948 section 3.1.2: behind an address translator, only the ICV proves that a checksum was correct.
#[test]
fn checksums_count_as_verified_only_in_transport_mode_through_udp() {
    let frame = Stack::all().remove(0).packet(&Place::default()).build();
    let kit = Stack::all().remove(0).link();
    for recipe in Recipe::all() {
        let (mut wire, _) =
            encrypt_with(&mut recipe.encryptor(0), &frame, &Meta::default(), link(kit)).unwrap();
        let received = recipe.decryptor(0).decrypt(&mut wire, link(kit)).unwrap();
        let translated = recipe.udp && recipe.mode == grosso::tunnel::esp::EspMode::Transport;
        let expected =
            if translated { Checksum::Unnecessary { levels: 0 } } else { Checksum::None };
        assert_eq!(received.checksum, expected, "{recipe:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Tests hostile traffic: encrypted packets are restored except for padding, all others are refused for the right
    /// reason, and every packet is counted once.
    #[test]
    fn traffic_comes_back_or_is_refused_by_name(
        seed in any::<u64>().no_shrink(),
        raw in any::<bool>(),
    ) {
        let kit = if raw { Link::Ip } else { Link::Ethernet };
        let mut random = Random::new(seed);
        let recipe = *random.choose(&Recipe::all());
        let (mut encryptor, mut decryptor) = (recipe.encryptor(0), recipe.decryptor(0));
        let frames: Vec<_> = Traffic::over(kit, seed).take(100).collect();
        for frame in &frames {
            let sent = encrypt_with(&mut encryptor, frame, &Meta::default(), link(kit));
            let Ok((mut wire, sent)) = sent else { continue };
            let received = decryptor.decrypt(&mut wire, link(kit));
            match received {
                Ok(received) => {
                    prop_assert_eq!(received.sequence, sent.sequence);
                    prop_assert!(frame.starts_with(&wire[received.frame]));
                }
                Err(refusal) => prop_assert!(false, "{} {:02x?}", refusal, frame),
            }
        }
        let refused: u64 = encryptor.stats().refused.iter().sum();
        prop_assert_eq!(encryptor.stats().packets + refused, frames.len() as u64);
        prop_assert_eq!(encryptor.last_sequence(), encryptor.stats().packets);
        prop_assert_eq!(decryptor.stats().packets, encryptor.stats().packets);
        let unnamed = encryptor.stats().refused(Refusal::LinkFamily);
        prop_assert!(encryptor.stats().packets + unnamed > 20, "most packets are whole");
    }
}
