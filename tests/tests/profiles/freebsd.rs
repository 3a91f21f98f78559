//! Tests the decisions of FreeBSD's tcp_lro, in order.

use grosso::coalesce::reason::NoMerge;

use super::*;

#[test]
fn freebsd_merges_acknowledgments_with_new_information() {
    let frames: Vec<_> = [(10, 5), (20, 5), (20, 6), (30, 6)]
        .map(|(a, w)| packet(0, 0, |t| t.ack(a).window(w)))
        .into();
    let (delivered, _) = poll(Profile::freebsd(), &frames);
    assert_eq!(packets(&delivered), [4]);
    assert_eq!((number(&delivered[0], "ack"), number(&delivered[0], "window")), (30, 6));
    // In the version of 2011, a window update counted as a duplicate.
    for profile in [Profile::myri10ge(), Profile::freebsd_2011()] {
        let (delivered, verdicts) = poll(profile, &frames);
        assert_eq!(packets(&delivered), [2, 1, 1]);
        assert_eq!(verdicts[2], Verdict::Refused(NoMerge::TcpAcknowledgmentAlone));
    }
    for profile in [Profile::inet_lro(), Profile::rsc_82599(4096)] {
        let (delivered, verdicts) = poll(profile, &frames);
        assert_eq!(packets(&delivered), [1; 4]);
        assert_eq!(verdicts, [Verdict::Passed(Pass::Empty); 4]);
    }
}

/// A decision, shown by one packet that differs from the data packets around it.
struct Decision {
    /// The position of the decision in tcp_lro.c, as numbered in the notes of rule L.
    place: &'static str,
    /// The third of five packets.
    third: Vec<u8>,
    /// Packets in each delivered frame.
    expected: &'static [u32],
}

#[test]
fn freebsd_decides_in_its_order_and_every_refusal_flushes_first() {
    let at = 2 * MSS;
    let decisions = [
        Decision {
            place: "2: a wrong sum",
            third: packet(at, MSS, |tcp| tcp.checksum_xor(1)),
            expected: &[2, 1, 2],
        },
        Decision {
            place: "3: a fragment",
            third: marked(at, MSS, |ip| ip.more_fragments(true), |tcp| tcp),
            expected: &[2, 1, 2],
        },
        Decision {
            place: "5: a wrong header sum",
            third: marked(at, MSS, |ip| ip.checksum_xor(1), |tcp| tcp),
            expected: &[2, 1, 2],
        },
        Decision { place: "7: SYN", third: packet(at, MSS, Tcp::syn), expected: &[2, 1, 2] },
        Decision {
            place: "11: an older acknowledgment is not dropped here, and becomes the head",
            third: packet(at, 0, |tcp| tcp.ack(1)),
            expected: &[2, 3],
        },
        Decision {
            place: "14: other options",
            third: packet(at, MSS, |tcp| tcp.options(&[1; 4])),
            expected: &[2, 1, 2],
        },
        Decision {
            place: "14: other flags",
            third: packet(at, MSS, Tcp::fin),
            expected: &[2, 1, 2],
        },
        Decision {
            place: "14: another sequence number becomes the head",
            third: packet(9 * MSS, MSS, |tcp| tcp.ack(100)),
            expected: &[2, 1, 2],
        },
        Decision {
            place: "14: an acknowledgment of more data joins",
            third: packet(at, 0, |tcp| tcp.ack(200)),
            expected: &[5],
        },
        Decision {
            place: "14: a window that changes joins",
            third: packet(at, 0, |tcp| tcp.ack(100).window(9)),
            expected: &[5],
        },
        Decision {
            place: "14: a duplicate is pushed alone",
            third: packet(at, 0, |tcp| tcp.ack(100)),
            expected: &[2, 1, 2],
        },
    ];
    for Decision { place, third, expected } in decisions {
        let mut frames: Vec<_> = (0..2).map(|i| packet(i * MSS, MSS, |tcp| tcp.ack(100))).collect();
        let is_empty = third.len() < 100;
        frames.push(third);
        let behind = if is_empty { 2 } else { 3 };
        frames.extend((behind..behind + 2).map(|i| packet(i * MSS, MSS, |tcp| tcp.ack(200))));
        let mut profile = Profile::freebsd();
        profile.batch = Batch::AsItCame;
        let mut engine = Engine::new(profile);
        for frame in &frames {
            engine.push(frame);
        }
        engine.finish();
        assert_eq!(packets(&engine.delivered), expected, "{place}");
    }
}

#[test]
fn freebsd_a_timestamp_that_goes_back_becomes_the_head() {
    let frames = [5, 4, 6].map(|value| packet(0, 0, |tcp| tcp.ack(value).timestamps(value, 1)));
    let (delivered, verdicts) = poll(Profile::freebsd(), &frames);
    assert_eq!(packets(&delivered), [1, 2]);
    assert_eq!(verdicts[1], Verdict::Refused(NoMerge::TcpAcknowledgment));
}

#[test]
fn freebsd_has_limits_of_count_and_bytes() {
    // Without queues, hn(4) merges 25 packets of 1500 bytes. lro_ackcnt_lim also counts data packets.
    let mut profile = Profile::freebsd();
    profile.limits.size_bytes = 25 * 1500 + 1;
    assert_eq!(packets(&poll(profile.clone(), &data(50)).0), [25, 25]);
    profile.limits.tcp_segments = 10;
    assert_eq!(packets(&poll(profile, &data(50)).0), [10; 5]);
}
