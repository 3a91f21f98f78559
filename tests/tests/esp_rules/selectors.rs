//! Tests the addresses that are checked before encryption and after decryption (RFC 4301 sections 5.1 and 5.2).

use core::net::IpAddr;

use grosso::tunnel::esp::{Prefix, Refusal};
use grosso_testkit::Packet;

use super::association::{MODES, Recipe, decrypt, encrypt};

/// Returns a frame whose destination is an address of `198.51.100.0/24` or `2001:db8:4::/47`, or one next to these
/// prefixes.
fn frame(destination: &[u8]) -> Vec<u8> {
    let packet = Packet::new().ethernet(|e| e);
    let (mut frame, at) = match destination.len() {
        4 => (packet.ipv4(|ip| ip).udp(|u| u).payload(b"inner").build(), 14 + 16),
        _ => (packet.ipv6(|ip| ip).udp(|u| u).payload(b"inner").build(), 14 + 24),
    };
    frame[at..at + destination.len()].copy_from_slice(destination);
    frame
}

#[test]
fn a_packet_of_other_addresses_is_refused_in_every_mode() {
    let six = |word: u8| [&[0x20, 1, 0xd, 0xb8, 0, word][..], &[0; 9], &[1]].concat();
    for (destination, carried) in [
        (vec![198, 51, 100, 0], true),
        (vec![198, 51, 100, 255], true),
        (vec![198, 51, 101, 0], false),
        (vec![10, 0, 0, 1], false),
        (six(4), true),
        (six(5), true),
        (six(6), false),
        (six(3), false),
    ] {
        let frame = frame(&destination);
        for mode in MODES {
            for udp in [false, true] {
                let recipe = Recipe { selective: true, udp, ..Recipe::new(mode) };
                let all = Recipe { selective: false, ..recipe };
                let wire = all.encrypted(1, &frame);
                let mut encryptor = recipe.encryptor(0);
                let sent = encrypt(&mut encryptor, &frame).map(|(sent, _)| sent);
                let expected = if carried { Ok(wire.clone()) } else { Err(Refusal::Selectors) };
                assert_eq!(sent, expected, "{recipe:?} {destination:?}");
                assert_eq!(encryptor.stats().refused(Refusal::Selectors), u64::from(!carried));
                // A refused packet does not use up a sequence number.
                assert_eq!(encryptor.last_sequence(), u64::from(carried));
                let expected = if carried { Ok(frame.clone()) } else { Err(Refusal::Selectors) };
                let mut decryptor = recipe.decryptor(0);
                let found = decrypt(&mut decryptor, &wire).map(|mut found| {
                    // Encryption does not repair a wrong checksum of an IPv4 header.
                    found[24..26].copy_from_slice(&frame[24..26]);
                    found
                });
                assert_eq!(found, expected, "{recipe:?} {destination:?}");
                assert_eq!(decryptor.stats().refused(Refusal::Selectors), u64::from(!carried));
                // An association for all addresses accepts the packet.
                assert!(decrypt(&mut all.decryptor(0), &wire).is_ok());
            }
        }
    }
}

#[test]
fn prefixes_have_no_bits_behind_their_length() {
    for (address, bits, is_one) in [
        ("0.0.0.0", 0, true),
        ("::", 0, true),
        ("10.0.0.0", 8, true),
        ("10.0.0.1", 32, true),
        ("10.0.0.1", 31, false),
        ("10.0.0.0", 33, false),
        ("2001:db8:5::", 47, false),
        ("2001:db8:4::", 47, true),
        ("fd00::1", 128, true),
        ("fd00::", 129, false),
    ] {
        let address: IpAddr = address.parse().unwrap();
        assert_eq!(Prefix::new(address, bits).is_some(), is_one, "{address}/{bits}");
    }
}
