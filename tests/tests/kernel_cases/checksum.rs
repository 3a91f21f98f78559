//! K105: `csum.c`. (K100 to K104 are arithmetic only and are tested in `grosso-checksum`.)

use grosso::{Verdict, checksum::Checksum, checksum::complete, coalesce::reason::Pass};
use grosso_rig::{
    engine::{Engine, Out},
    frames::{Path, Segment, plain},
    superframe::Superframe,
};
use grosso_testkit::{
    Packet, oracle,
    oracle::{Link, is_right},
    stream,
};

/// Returns the verdict on one frame, and its delivery.
fn received(frame: &[u8]) -> (Verdict, Out) {
    let mut engine = Engine::new(grosso::Profile::linux());
    let verdict = engine.push(frame);
    engine.poll_end(0);
    (verdict, engine.checked(&[frame.to_vec()]).remove(0))
}

/// Returns a TCP segment and a UDP datagram over each IP version.
fn transports(edit: impl Fn(usize, Segment) -> Segment) -> Vec<Vec<u8>> {
    let frames = |path: Path| [path.train(&[100], &edit), path.datagrams(&[100], &edit)].concat();
    Path::PLAIN.into_iter().flat_map(frames).collect()
}

#[test]
fn k105_received_good_checksums_are_verified() {
    for frame in transports(plain) {
        let (verdict, out) = received(&frame);
        assert_eq!(
            (verdict, out.meta.checksum),
            (Verdict::Held, Checksum::Unnecessary { levels: 0 })
        );
    }
}

/// Tests packets that the kernel drops. The engine does not mark them as verified.
#[test]
fn k105_received_bad_checksums_stay_unverified() {
    let wrong = |_, s: Segment| s.tcp(|tcp| tcp.checksum_xor(1)).udp(|udp| udp.checksum_xor(1));
    for frame in transports(wrong) {
        let (verdict, out) = received(&frame);
        assert_eq!((verdict, out.meta.checksum), (Verdict::Passed(Pass::Checksum), Checksum::None));
    }
}

/// Returns two datagrams with a computed checksum of zero: the first two bytes of each payload are the checksum of the
/// rest.
fn sums_to_zero() -> Packet {
    let datagram = |payload: &[u8]| {
        Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(1)).udp(|udp| udp).payload(payload)
    };
    let mut payload = [vec![0, 0], stream(0, 98)].concat();
    let frame = datagram(&payload).build();
    let checksum = [frame[40], frame[41]];
    payload[..2].copy_from_slice(&checksum);
    datagram(&payload.repeat(2))
}

#[test]
fn k105_sent_udp_is_complete() {
    let frames = Superframe::new(&sums_to_zero(), 99).packets();
    assert!(frames.iter().all(|frame| is_right(frame, Link::Ethernet)));
}

#[test]
fn k105_sent_udp_that_sums_to_zero_has_ffff() {
    for frame in Superframe::new(&sums_to_zero(), 100).packets() {
        assert_eq!(frame[40..42], [0xff, 0xff]);
    }
}

#[test]
fn k105_completed_udp_that_sums_to_zero_has_ffff() {
    let mut frame = Superframe::new(&sums_to_zero(), 100).packets().remove(0);
    let pseudo = oracle::pseudo_header(&frame[26..30], &frame[30..34], 17, frame.len() - 34);
    frame[40..42].copy_from_slice(&oracle::sum(&pseudo).to_be_bytes());
    complete(&mut frame, 34, 6).unwrap();
    assert_eq!(frame[40..42], [0xff, 0xff]);
}
