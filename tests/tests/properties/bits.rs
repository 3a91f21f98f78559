//! Tests a packet in the middle of a train in which one bit of one header is flipped, and every checksum is corrected.
//! The packet merges only if segmentation restores the bit.

use grosso::{Meta, Profile};
use grosso_rig::session::{Session, complete_checksums};
use grosso_testkit::{
    oracle::Link,
    stack::{Place, Stack},
};
use grosso_wire::LinkType;

#[test]
fn every_bit_of_every_header_comes_back() {
    for (index, stack) in Stack::all().iter().enumerate().filter(|(_, stack)| stack.couples()) {
        let train: Vec<Vec<u8>> = (0..3).map(|number| packet(stack, number)).collect();
        let header_len = train[0].len() - LEN;
        for at in 0..header_len {
            for bit in bits(index, at) {
                let mut frames = train.clone();
                frames[1][at] ^= bit;
                complete_checksums(&mut frames[1], stack.link());
                assert_returned(stack, &frames, &format!("{stack:?}, byte {at}, bit {bit:#x}"));
            }
        }
    }
}

/// Returns the bits to flip: every bit in one stack out of eight, and one bit of each byte in the others.
fn bits(stack: usize, at: usize) -> Vec<u8> {
    if stack.is_multiple_of(8) {
        (0..8).map(|bit| 1 << bit).collect()
    } else {
        vec![1 << ((stack + at) % 8)]
    }
}

fn assert_returned(stack: &Stack, frames: &[Vec<u8>], what: &str) {
    let raw = stack.link() == Link::Ip;
    let link = if raw { LinkType::Raw } else { LinkType::Ethernet };
    let mut session = Session::new(Profile::linux(), link, 1);
    for frame in frames {
        session.push(frame, Meta::default());
    }
    session.finish();
    session.assert_settled();
    let mut packets: Vec<Vec<u8>> = session.packets().into_iter().map(|(bytes, _)| bytes).collect();
    let mut expected = frames.to_vec();
    packets.sort();
    expected.sort();
    assert!(packets == expected, "{what}: {:?}", session.left);
}

/// Returns packet `number` of the train.
fn packet(stack: &Stack, number: u16) -> Vec<u8> {
    let ids = vec![number, 7];
    let sequence = 100 + u32::from(number) * LEN as u32;
    stack.packet(&Place { sequence, ids, ..Place::default() }).payload_len(LEN).build()
}

/// Number of payload bytes in a packet.
const LEN: usize = 40;
