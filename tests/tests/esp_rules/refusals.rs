//! Tests every reason to refuse a packet, and that packets changed in transit are never accepted.

use std::collections::BTreeSet;

use grosso::{
    Meta,
    checksum::Checksum,
    meta::Gso,
    tunnel::esp::{EspMode, Refusal, Traffic, classify},
};
use grosso_testkit::Packet;
use grosso_wire::LinkType;
use proptest::prelude::*;

use super::{
    association::{MODES, Recipe, TUNNEL_V4, TUNNEL_V6, decrypt, encrypt, encrypt_with},
    literal,
};

fn ethernet() -> Packet {
    Packet::new().ethernet(|e| e)
}

fn udp4() -> Vec<u8> {
    ethernet().ipv4(|ip| ip).udp(|u| u).payload(b"0123456").build()
}

/// Returns frames that cannot be encrypted, each with the ESP mode, its metadata, and the expected refusal.
fn not_encrypted() -> Vec<(EspMode, Vec<u8>, Meta, Refusal)> {
    let known = Meta::default();
    let arp = [&[0; 12][..], &[8, 6], &[1; 28]].concat();
    let partial = |start, offset| Meta { checksum: Checksum::Partial { start, offset }, ..known };
    let fragment4 = ethernet().ipv4(|ip| ip.more_fragments(true)).payload(&[1; 16]).build();
    let fragment6 =
        ethernet().ipv6(|ip| ip).fragment(|f| f.offset(1)).udp(|u| u).payload(&[1; 16]).build();
    let long = ethernet().ipv4(|ip| ip).udp(|u| u).payload_len(65_535 - 28).build();
    let none = ethernet().ipv6(|ip| ip.next_header(59)).payload(b"anything").build();
    let cut_options = ethernet().ipv6(|ip| ip.next_header(43)).payload(&[17, 200, 0, 0]).build();
    let mut length_zero = udp4();
    length_zero[16..18].fill(0);
    let mut short = udp4();
    short.pop();
    let mut malformed = udp4();
    malformed[14] = 0x44;
    let mut below_header = udp4();
    below_header[16..18].copy_from_slice(&[0, 19]);
    vec![
        (EspMode::Transport, arp, known, Refusal::NotIp),
        (EspMode::Transport, vec![], known, Refusal::Short),
        (EspMode::Transport, udp4()[..20].to_vec(), known, Refusal::Short),
        (EspMode::Transport, short, known, Refusal::Short),
        (EspMode::Transport, malformed, known, Refusal::Malformed),
        (EspMode::Transport, below_header, known, Refusal::Malformed),
        (EspMode::Transport, cut_options, known, Refusal::Malformed),
        (TUNNEL_V4, length_zero, known, Refusal::LengthZero),
        (EspMode::Transport, fragment4, known, Refusal::Fragment),
        (EspMode::Transport, fragment6, known, Refusal::Fragment),
        (EspMode::Transport, none, known, Refusal::Nothing),
        (EspMode::Transport, long.clone(), known, Refusal::TooLong),
        (TUNNEL_V6, long, known, Refusal::TooLong),
        (
            TUNNEL_V6,
            ethernet().mpls(|m| m).ipv4(|ip| ip).udp(|u| u).build(),
            known,
            Refusal::LinkFamily,
        ),
        (EspMode::Transport, udp4(), partial(33, 6), Refusal::ChecksumOutside),
        (EspMode::Transport, udp4(), partial(34, 14), Refusal::ChecksumOutside),
        (TUNNEL_V4, udp4(), partial(13, 6), Refusal::ChecksumOutside),
        (TUNNEL_V4, udp4(), Meta { gso: Gso::every(4), ..known }, Refusal::Superframe),
    ]
}

/// Returns frames that cannot be decrypted, each with the association and the expected refusal.
fn not_decrypted() -> Vec<(Recipe, Vec<u8>, Refusal)> {
    let transport = Recipe::new(EspMode::Transport);
    let tunnel = Recipe::new(TUNNEL_V4);
    let udp = Recipe { udp: true, ..transport };
    let selective = Recipe { selective: true, ..transport };
    let good = literal::esp(1, &literal::with_trailer(&udp4()[34..], 17));
    let in_ip =
        |protocol, esp: &[u8]| ethernet().ipv4(|ip| ip.protocol(protocol)).payload(esp).build();
    let in_udp = |port, payload: &[u8]| {
        let packet = ethernet().ipv4(|ip| ip);
        packet.udp(|u| u.destination_port(port)).payload(payload).build()
    };
    let esp = |sequence, text: &[u8]| literal::frame(sequence, text);
    let changed = |at: usize| {
        let mut wire = good.clone();
        wire[at] ^= 1;
        literal::in_ipv4(&wire)
    };
    let spi_zero = literal::in_ipv4(&[&[0; 4][..], &good[4..]].concat());
    let fragment = ethernet().ipv4(|ip| ip.protocol(50).more_fragments(true)).payload(&good);
    let mut udp_length = in_udp(4500, &good);
    udp_length[39] -= 1;
    let inner = &udp4()[14..];
    let told = ethernet().ipv4(|ip| ip.protocol(50).tos(3));
    let told = told.payload(&literal::esp(1, &literal::with_trailer(inner, 4))).build();
    vec![
        (transport, in_ip(17, &good), Refusal::NotEsp),
        (transport, in_ip(51, &good), Refusal::AuthenticationHeader),
        (transport, in_ip(6, &good), Refusal::NotEsp),
        (transport, in_udp(4500, &good), Refusal::NotEsp),
        (udp, in_udp(4501, &good), Refusal::NotEsp),
        (udp, in_ip(17, &[1; 7]), Refusal::Short),
        (udp, udp_length, Refusal::Malformed),
        (udp, in_udp(4500, &[0xff]), Refusal::Keepalive),
        (udp, in_udp(4500, &[0; 20]), Refusal::Ike),
        (udp, literal::in_ipv4(&good), Refusal::Encapsulation),
        (transport, fragment.build(), Refusal::Fragment),
        (transport, spi_zero, Refusal::Malformed),
        (transport, changed(3), Refusal::OtherSpi),
        (transport, literal::in_ipv4(&good[..7]), Refusal::Truncated),
        (transport, literal::in_ipv4(&good[..33]), Refusal::Truncated),
        (transport, literal::in_ipv4(&good[..34]), Refusal::Alignment),
        (transport, esp(1, &[1, 2, 3, 3, 17]), Refusal::Alignment),
        (transport, esp(0, &[1, 2, 2, 17]), Refusal::SequenceZero),
        (transport, changed(8), Refusal::Integrity),
        (transport, changed(16), Refusal::Integrity),
        (transport, changed(good.len() - 1), Refusal::Integrity),
        (transport, esp(1, &[0, 1, 2, 17]), Refusal::Padding),
        (transport, esp(1, &[1, 2, 3, 17]), Refusal::Padding),
        (transport, esp(1, &[9; 256]), Refusal::Padding),
        (transport, esp(1, &literal::with_trailer(b"dummy", 59)), Refusal::Dummy),
        (tunnel, esp(1, &literal::with_trailer(b"dummy", 59)), Refusal::Dummy),
        (tunnel, esp(1, &literal::with_trailer(inner, 17)), Refusal::Mode),
        (tunnel, esp(1, &literal::with_trailer(inner, 41)), Refusal::Inner),
        (tunnel, esp(1, &literal::with_trailer(b"short", 4)), Refusal::Inner),
        (tunnel, esp(1, &literal::with_trailer(&inner[..34], 4)), Refusal::Inner),
        (tunnel, told, Refusal::CongestionUntold),
        (selective, literal::in_ipv4(&good), Refusal::Selectors),
    ]
}

#[test]
fn every_refusal_has_a_name_and_a_counter() {
    let mut seen = BTreeSet::new();
    for (mode, frame, meta, refusal) in not_encrypted() {
        let mut encryptor = Recipe::new(mode).encryptor(0);
        let result = encrypt_with(&mut encryptor, &frame, &meta, LinkType::Ethernet);
        assert_eq!(result.err(), Some(refusal), "{mode:?} {frame:02x?}");
        assert_eq!(encryptor.stats().refused(refusal), 1);
        assert_eq!((encryptor.stats().packets, encryptor.last_sequence()), (0, 0));
        seen.insert(refusal);
    }
    for (recipe, mut frame, refusal) in not_decrypted() {
        let mut decryptor = recipe.decryptor(0);
        let before = frame.clone();
        let result = decryptor.decrypt(&mut frame, LinkType::Ethernet);
        assert_eq!(result.err(), Some(refusal), "{recipe:?} {before:02x?}");
        assert_eq!((decryptor.stats().refused(refusal), decryptor.stats().packets), (1, 0));
        // The window moves only for authentic packets.
        let is_genuine = refusal > Refusal::Integrity;
        assert_eq!(decryptor.last_sequence(), u64::from(is_genuine), "{refusal}");
        assert!(is_genuine || frame == before, "{refusal}");
        seen.insert(refusal);
    }
    // Refusals that need earlier packets have their own tests.
    let others =
        [Refusal::BufferTooSmall, Refusal::SequenceExhausted, Refusal::TooOld, Refusal::Replayed];
    seen.extend(others);
    assert!(Refusal::ALL.iter().all(|refusal| seen.contains(refusal)), "{seen:?}");
    let names: BTreeSet<_> = Refusal::ALL.iter().map(|refusal| refusal.name()).collect();
    assert_eq!(names.len(), Refusal::COUNT);
}

/// Tests RFC 4303 section 3.1.1: fragments are allowed in tunnel mode, but not in transport mode.
#[test]
fn fragments_pass_through_a_tunnel() {
    let fragment = ethernet().ipv4(|ip| ip.more_fragments(true)).payload(&[1; 16]).build();
    for mode in [TUNNEL_V4, TUNNEL_V6] {
        let recipe = Recipe::new(mode);
        let wire = recipe.encrypted(1, &fragment);
        assert_eq!(decrypt(&mut recipe.decryptor(0), &wire).as_ref(), Ok(&fragment));
    }
}

#[test]
fn a_buffer_of_any_length_is_enough_or_refused() {
    for recipe in Recipe::all() {
        let (frame, mut encryptor) = (udp4(), recipe.encryptor(0));
        let len = encrypt(&mut encryptor, &frame).unwrap().0.len();
        for room in 0..len + 20 {
            let mut out = vec![0; room];
            let meta = Meta::default();
            let result = encryptor.encrypt(&frame, &meta, LinkType::Ethernet, &mut out);
            match result {
                Ok(encrypted) => assert_eq!((encrypted.len, room >= len), (len, true)),
                Err(refusal) => assert_eq!((refusal, room < len), (Refusal::BufferTooSmall, true)),
            }
        }
    }
}

/// Flips one bit anywhere after the SPI: the packet is refused, its buffer is unchanged, and the correct packet is
/// still accepted afterwards.
#[test]
fn one_flipped_bit_anywhere_behind_the_spi_is_refused() {
    for recipe in Recipe::all() {
        let wire = recipe.encrypted(100, &udp4());
        let mut decryptor = recipe.decryptor(60);
        let spi = wire.windows(4).position(|bytes| bytes == recipe.spi.to_be_bytes()).unwrap();
        for bit in (spi + 4) * 8..wire.len() * 8 {
            let mut flipped = wire.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let before = flipped.clone();
            let refusal = decryptor.decrypt(&mut flipped, LinkType::Ethernet).err();
            let expected = [Refusal::Integrity, Refusal::TooOld, Refusal::Replayed];
            assert!(
                refusal.is_some_and(|refusal| expected.contains(&refusal)),
                "{bit} {refusal:?}"
            );
            assert_eq!(flipped, before);
        }
        assert_eq!(decryptor.last_sequence(), 60);
        let restored = decrypt(&mut decryptor, &wire).expect("the packet is genuine");
        assert_eq!(restored, udp4());
    }
}

/// Tests packets truncated to every length, with matching and with wrong length fields.
#[test]
fn truncated_packets_are_refused() {
    for recipe in Recipe::all() {
        let wire = recipe.encrypted(1, &udp4());
        for len in 0..wire.len() {
            let mut cut = wire[..len].to_vec();
            let mut decryptor = recipe.decryptor(0);
            assert!(decryptor.decrypt(&mut cut, LinkType::Ethernet).is_err());
            if len > 60 && wire[12..14] == [8, 0] {
                cut[16..18].copy_from_slice(&(len as u16 - 14).to_be_bytes());
                if recipe.udp {
                    cut[38..40].copy_from_slice(&(len as u16 - 34).to_be_bytes());
                }
                assert!(decryptor.decrypt(&mut cut, LinkType::Ethernet).is_err());
            }
            assert_eq!(decryptor.last_sequence(), 0);
        }
    }
}

/// Tests associations that differ in key, ICV, length of sequence numbers or encapsulation: none accepts the packets of
/// another. A tunnel-mode packet is accepted in transport mode as IP in IP, because both have the same format.
#[test]
fn associations_do_not_take_each_others_packets() {
    let recipes = Recipe::all().into_iter().map(|recipe| Recipe { spi: 0x1000, ..recipe });
    let recipes: Vec<Recipe> = recipes.collect();
    let agreed = |recipe: &Recipe| (recipe.key_bytes, recipe.icv, recipe.extended, recipe.udp);
    for sender in &recipes {
        let wire = sender.encrypted(1, &udp4());
        for receiver in &recipes {
            let from_tunnel = sender.mode != EspMode::Transport;
            let mode_fits = from_tunnel || receiver.mode == EspMode::Transport;
            let taken = decrypt(&mut receiver.decryptor(0), &wire).is_ok();
            assert_eq!(taken, mode_fits && agreed(sender) == agreed(receiver));
        }
    }
}

proptest! {
    /// Tests arbitrary bytes, and arbitrary damage to correct packets: no input causes a panic, and only encrypted
    /// frames are delivered.
    #[test]
    fn damaged_packets_never_panic(
        number in 0..72_usize,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        garbage in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let recipe = Recipe::all()[number];
        let mut wire = recipe.encrypted(1, &udp4());
        for (at, value) in changes {
            let at = at.index(wire.len());
            wire[at] = value;
        }
        let mut decryptor = recipe.decryptor(0);
        let received = decrypt(&mut decryptor, &wire);
        prop_assert!(received.is_err() || received.is_ok_and(|frame| frame.ends_with(b"0123456")));
        for mode in MODES {
            let mut garbage = garbage.clone();
            let recipe = Recipe { mode, ..recipe };
            let mut decryptor = recipe.decryptor(0);
            for link in [LinkType::Ethernet, LinkType::Raw, LinkType::LinuxSll2] {
                prop_assert!(decryptor.decrypt(&mut garbage, link).is_err());
                let zero = [false, true].map(|in_udp| Ok(Traffic::Esp { spi: 0, in_udp }));
                prop_assert!(!zero.contains(&classify(&garbage, link, Some(4500))));
            }
        }
    }
}
