//! Tests the six points of the 2007 review of inet_lro on the first and the final version of inet_lro.

use grosso::{CoalesceOptions, Coalescer, Delivery, Frame, Meta, Sink};
use grosso_testkit::oracle::sum;
use grosso_wire::LinkType;

use super::*;

fn both() -> [Profile; 2] {
    [Profile::inet_lro(), Profile::inet_lro_2007(9000)]
}

/// Returns a frame as delivered by a device that computes checksums: with the sum of all bytes after the link header.
fn summed(buffer: &[u8], link_len: usize) -> Frame<Vec<u8>> {
    let checksum = Checksum::Complete { sum: sum(&buffer[link_len..]) };
    Frame { buffer: buffer.to_vec(), meta: Meta { checksum, ..Meta::default() } }
}

// Rules: P6
#[test]
fn review_1_a_refused_frame_keeps_its_sum_and_no_train_is_made_of_wrong_ones() {
    for profile in both() {
        let mut engine = Engine::new(profile.clone());
        let refused = summed(&packet(0, 0, |tcp| tcp), 14);
        let checksum = refused.meta.checksum;
        engine.push_frame(refused, 0);
        assert_eq!(engine.delivered[0].meta.checksum, checksum);

        let mut engine = Engine::new(profile);
        for frame in &data(3) {
            engine.push_frame(summed(frame, 14), 0);
        }
        let mut wrong = packet(3 * MSS, MSS, |tcp| tcp);
        *wrong.last_mut().unwrap() ^= 1;
        let verdict = engine.push_frame(summed(&wrong, 14), 0);
        assert_eq!(verdict, Verdict::Passed(Pass::Checksum));
        let Out { mut bytes, meta, packets, .. } = engine.delivered.remove(0);
        match meta.checksum {
            Checksum::Partial { start, offset } => {
                checksum::complete(&mut bytes, start, offset).unwrap();
            }
            checksum => assert_eq!(checksum, Checksum::Unnecessary { levels: 0 }),
        }
        assert!(packets == 3 && is_right(&bytes, Link::Ethernet), "its sum is its own");
    }
}

// Rules: P5
#[test]
fn review_2_tags_in_the_frame_shift_no_header_and_are_in_no_sum() {
    for profile in both() {
        for tags in 0..3 {
            let frames: Vec<_> = (0..4)
                .map(|i| {
                    let packet = (0..tags).fold(Packet::new().ethernet(|e| e), |packet, _| {
                        packet.vlan(|v| v.id(0xabc))
                    });
                    let packet = packet.ipv4(|ip| ip);
                    packet.tcp(|t| t.sequence(i * 100).flag(Tcp::ACK)).payload_len(100).build()
                })
                .collect();
            let mut engine = Engine::new(profile.clone());
            for f in &frames {
                engine.push_frame(summed(f, 14 + 4 * tags), 0);
            }
            engine.poll_end(0);
            assert_eq!(packets(&engine.delivered), [4], "{tags} tags");
            assert_eq!(engine.delivered[0].bytes.len(), frames[0].len() + 300);
        }
    }
}

// Rules: P3
#[test]
fn review_3_no_padding_gets_into_a_superframe() {
    for profile in both() {
        for len in 0..=6 {
            let padded = packet(100, len, |tcp| tcp);
            let missing = 60 - padded.len();
            let padded = [padded, vec![0xa5; missing]].concat();
            let frames =
                [packet(0, 100, |tcp| tcp), padded.clone(), packet(100 + len, 100, |tcp| tcp)];
            let mut engine = Engine::new(profile.clone());
            for frame in &frames {
                engine.push(frame);
            }
            engine.poll_end(0);
            let expected = if missing == 0 { vec![3] } else { vec![1, 1, 1] };
            assert_eq!(packets(&engine.delivered), expected, "{len} bytes");
            if missing > 0 {
                assert_eq!(engine.delivered[1].bytes, padded, "it leaves as it came");
            }
        }
    }
}

// Rules: P4
#[test]
fn review_4_frames_of_every_length_come_out_as_they_came() {
    let whole = packet(0, 100, |tcp| tcp.timestamps(1, 2));
    for profile in both() {
        for len in 0..=128 {
            let mut engine = Engine::new(profile.clone());
            engine.push(&whole[..len]);
            engine.poll_end(0);
            assert_eq!(engine.delivered.len(), 1);
            assert_eq!(engine.delivered[0].bytes, whole[..len]);
        }
    }
}

#[test]
fn review_5_the_way_of_delivery_is_the_caller_s_at_every_call() {
    for profile in both() {
        let mut coalescer =
            Coalescer::new(CoalesceOptions::new(LinkType::Ethernet, 1).profile(profile));
        let (mut polled, mut interrupted) = (Vec::new(), Vec::new());
        for frame in data(3) {
            let sink: &mut dyn Sink<_> = &mut |out: Delivery<'_, _>| polled.push(out.packets);
            coalescer.push(Frame::new(frame), 0, sink);
        }
        let ack = Frame::new(packet(3 * MSS, 0, |tcp| tcp));
        let sink: &mut dyn Sink<_> = &mut |out: Delivery<'_, _>| interrupted.push(out.packets);
        coalescer.push(ack, 0, sink);
        let sink: &mut dyn Sink<_> = &mut |out: Delivery<'_, _>| polled.push(out.packets);
        coalescer.poll_end(0, sink);
        assert_eq!((polled, interrupted), (vec![], vec![3, 1]));
    }
}

/// Tests a receiver whose MTU is 9000, with senders whose MTU is 1500 or 9000.
// Rules: P2
#[test]
fn review_6_a_count_from_the_mtu_loses_where_senders_have_a_smaller_one() {
    let most = |profile: Profile, frames: &[Vec<u8>]| {
        *packets(&poll(profile, frames).0).iter().max().unwrap()
    };
    let jumbo: Vec<_> = (0..20).map(|i| packet(i * 8948, 8948, |tcp| tcp)).collect();
    let [became, was] = both();
    assert_eq!((most(was.clone(), &jumbo), most(became.clone(), &jumbo)), (7, 7));
    assert_eq!(most(was.clone(), &data(86)), 7);
    assert!(most(became.clone(), &data(86)) >= 43);
    // For any lengths, the length field never wraps.
    for profile in [became, was] {
        let mut at = 0;
        let frames: Vec<_> = (0..300_usize)
            .map(|i| {
                let len = 1 + i * 7919 % 8948;
                at += len;
                packet(at - len, len, |tcp| tcp)
            })
            .collect();
        for out in poll(profile, &frames).0 {
            assert_eq!(number_of_ip(&out), out.bytes.len() as u64 - 14);
        }
    }
}

/// Returns the total length in the IP header.
fn number_of_ip(out: &Out) -> u64 {
    u64::from(u16::from_be_bytes([out.bytes[16], out.bytes[17]]))
}
