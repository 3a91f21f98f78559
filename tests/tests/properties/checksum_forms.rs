//! Tests checksums of zero, which RFC 1071 can write in two forms. If segmentation would write the other form, the
//! packet is delivered unchanged, for any checksum state.

use grosso::{Meta, Profile, checksum::Checksum};
use grosso_rig::session::Session;
use grosso_testkit::{
    Packet,
    oracle::{self, Link, State, add, verify},
    stream,
};
use grosso_wire::LinkType;

#[test]
fn all_ones_in_tcp_come_back() {
    let train = |number: u16| {
        let sequence = 100 + u32::from(number) * 100;
        let tcp = |payload: &[u8]| {
            let packet = link().ipv4(|ip| ip.id(number)).tcp(|t| t.sequence(sequence));
            packet.payload(payload).build()
        };
        let mut payload = stream(sequence, 100);
        // Adding the difference to the last word makes the checksum zero.
        let missing = expected(&tcp(&payload), "tcp");
        let word = u16::from_be_bytes([payload[98], payload[99]]);
        payload[98..].copy_from_slice(&add(word, missing).to_be_bytes());
        tcp(&payload)
    };
    assert_both_forms_come_back(train, "tcp", 14 + 20 + 16);
}

#[test]
fn all_ones_in_gre_come_back() {
    let build = |number: u16, key: u32| {
        let packet = link().ipv4(|ip| ip.id(number)).gre(|g| g.checksum().key(key));
        let sequence = 100 + u32::from(number) * 100;
        packet.ipv4(|ip| ip.id(number)).tcp(|t| t.sequence(sequence)).payload_len(100).build()
    };
    // All inner packets have the same sum, so one key makes the GRE checksums of all packets zero.
    let key = u32::from(expected(&build(0, 0), "gre"));
    assert_both_forms_come_back(|number| build(number, key), "gre", 14 + 20 + 4);
}

#[test]
fn all_ones_in_ipv4_come_back() {
    let build = |id: u16, number: u16| {
        let sequence = 100 + u32::from(number) * 100;
        let packet = link().ipv4(|ip| ip.id(id)).tcp(|t| t.sequence(sequence));
        packet.payload_len(100).build()
    };
    // The identification is the same in all packets, and is chosen so that the checksum is zero.
    let id = expected(&build(0, 0), "ipv4");
    assert_both_forms_come_back(|number| build(id, number), "ipv4", 14 + 10);
}

/// Tests a train in which the checksum of one header is zero in every packet, and the same train with all ones in its
/// place.
fn assert_both_forms_come_back(train: impl Fn(u16) -> Vec<u8>, name: &str, at: usize) {
    let states = [Checksum::None, Checksum::Unnecessary { levels: 0 }];
    let more = (1..4).map(|levels| Checksum::Unnecessary { levels });
    for state in states.into_iter().chain(more).map(Some).chain([None]) {
        for form in [[0, 0], [0xff, 0xff]] {
            let frames: Vec<Vec<u8>> = (0..4).map(&train).collect();
            let mut session = Session::new(Profile::linux(), LinkType::Ethernet, 1);
            for mut frame in frames {
                assert_eq!(expected(&frame, name), 0);
                frame[at..at + 2].copy_from_slice(&form);
                let verdicts = verify(&frame, Link::Ethernet);
                assert!(verdicts.iter().all(|verdict| verdict.state == State::Right));
                // The sum of everything after the link header.
                let complete = Checksum::Complete { sum: oracle::sum(&frame[14..]) };
                let meta = Meta { checksum: state.unwrap_or(complete), ..Meta::default() };
                session.push(&frame, meta);
            }
            session.finish();
            session.assert_settled();
            session.assert_reversible();
            let joined = session.left.iter().any(|left| left.joined);
            assert_eq!(joined, form == [0, 0], "{name}, {state:?}");
        }
    }
}

/// Returns the value that a sender writes into the checksum field of the outermost header with this name.
fn expected(frame: &[u8], name: &str) -> u16 {
    let verdicts = verify(frame, Link::Ethernet);
    verdicts.iter().find(|verdict| verdict.name == name).expect("the header").expected
}

fn link() -> Packet {
    Packet::new().ethernet(|e| e)
}
