//! Tests the rules of inet_lro.

use grosso::coalesce::{
    FullTable,
    reason::{Close, NoMerge},
};

use super::*;

// Rules: L15
#[test]
fn p02_a_limit_of_packets_from_the_receiver_s_mtu_cuts_mixed_trains_at_seven() {
    let frames = data(86);
    let largest = |profile: Profile| *packets(&poll(profile, &frames).0).iter().max().unwrap();
    assert_eq!(largest(Profile::inet_lro_2007(9000)), 7);
    // 43 packets would fit, but a socket buffer had 18 entries.
    assert_eq!(largest(Profile::inet_lro_2007(1500)), 18);
    assert_eq!(largest(Profile::inet_lro_2007(4000)), 16);
    assert!(largest(Profile::inet_lro()) >= 43);
}

#[test]
fn l12_inet_lro_delivers_what_does_not_fit_alone_and_starts_nothing_with_it() {
    let mut frames = data(3);
    frames.push(packet(10 * MSS, MSS, |tcp| tcp));
    frames.extend((11..13).map(|i| packet(i * MSS, MSS, |tcp| tcp)));
    let (delivered, verdicts) = poll(Profile::inet_lro(), &frames);
    assert_eq!(packets(&delivered), [3, 1, 2]);
    assert_eq!(verdicts[3], Verdict::Refused(NoMerge::TcpSequenceAhead));
    for profile in [Profile::myri10ge(), Profile::freebsd_2011()] {
        assert_eq!(packets(&poll(profile, &frames).0), [3, 1, 2]);
    }
    let (delivered, _) = poll(Profile::freebsd(), &frames);
    assert_eq!(packets(&delivered), [3, 3]);
}

#[test]
fn l11_inet_lro_leaves_flags_options_and_congestion_alone() {
    let refused = [
        (packet(0, MSS, Tcp::fin), Pass::TcpFlags),
        (packet(0, MSS, Tcp::ece), Pass::TcpFlags),
        (packet(0, MSS, |tcp| tcp.options(&[1, 1, 1, 1])), Pass::TcpOptions),
        (marked(0, MSS, |ip| ip.tos(3), |tcp| tcp), Pass::Congestion),
        (packet(0, 0, |tcp| tcp), Pass::Empty),
    ];
    for (frame, reason) in refused {
        let (delivered, verdicts) = poll(Profile::inet_lro(), std::slice::from_ref(&frame));
        assert_eq!(verdicts, [Verdict::Passed(reason)]);
        assert_eq!(delivered[0].bytes, frame);
    }
}

#[test]
fn l04_statistics_count_as_inet_lro_did() {
    let mut profile = Profile::inet_lro();
    profile.limits.flows = 1;
    let mut engine = Engine::new(profile);
    let mut frames = data(3);
    frames.push(packet(3 * MSS, 0, |tcp| tcp));
    frames.push(packet(0, MSS, |tcp| tcp.source_port(9)));
    frames.push(packet(0, MSS, |tcp| tcp.source_port(8)));
    for frame in &frames {
        engine.push(frame);
    }
    engine.poll_end(0);
    let lro = engine.stats().lro();
    // Three packets belong to the first session and one to the second. One packet found no free session, and the
    // acknowledgment belongs to none.
    assert_eq!((lro.aggregated, lro.flushed, lro.no_descriptor), (4, 2, 1));
}

#[test]
fn l15_no_superframe_exceeds_either_limit() {
    let long = poll(Profile::inet_lro(), &data(100)).0;
    // A packet is the last of its train if the room left after it is less than an MTU.
    assert_eq!(packets(&long), [45, 45, 10]);
    assert!(long.iter().all(|out| out.bytes.len() - 14 <= 65535));
    assert_eq!(long[0].closed, Close::SegmentLimit);
    let short: Vec<_> = (0..100).map(|i| packet(i * 100, 100, |tcp| tcp)).collect();
    assert_eq!(packets(&poll(Profile::inet_lro(), &short).0), [64, 36]);
}

/// Returns the number of frames delivered when this many flows take turns, in two polls of ten rounds each.
fn handed_up(profile: Profile, flows: u16) -> usize {
    let mut engine = Engine::new(profile);
    for start in [0, 10] {
        for round in start..start + 10 {
            for flow in 0..flows {
                engine.push(&packet(round * MSS, MSS, |tcp| tcp.source_port(1000 + flow)));
            }
        }
        engine.poll_end(0);
    }
    assert_eq!(packets(&engine.delivered).iter().sum::<u32>(), 20 * u32::from(flows));
    engine.delivered.len()
}

/// Tests the original's session list, which has eight entries. While it is full, packets of further flows are delivered
/// one by one. Of sixteen flows, eight are therefore delivered as two superframes each, and the others as twenty
/// packets each.
#[test]
fn l10_a_ninth_flow_is_handed_up_alone_and_the_eight_are_merged() {
    for name in ["inet-lro", "inet-lro-2007", "myri10ge"] {
        let mut profile = Profile::named(name).unwrap();
        profile.limits.tcp_segments = 64;
        assert_eq!(handed_up(profile, 16), 8 * 2 + 8 * 20, "{name}");
    }
    // If the oldest train is evicted instead, each arrival evicts the train to which the next packet belongs (rule G3).
    let mut evicts = Profile::inet_lro();
    evicts.rules.full = FullTable::Evicts;
    assert_eq!(handed_up(evicts, 16), 320);
    // FreeBSD's profile processes a poll flow by flow, so its eight entries suffice.
    assert_eq!(handed_up(Profile::freebsd(), 16), 16 * 2);
}

#[test]
fn l10_a_flow_without_an_entry_starts_a_train_once_one_is_free() {
    let mut profile = Profile::inet_lro();
    profile.limits.flows = 1;
    let of = |port: u16, at: usize| packet(at * MSS, MSS, move |tcp| tcp.source_port(port));
    // The session of the first flow ends with a packet that does not fit.
    let frames = [of(1, 0), of(2, 0), of(1, 5), of(2, 1), of(2, 2), of(1, 6)];
    let (delivered, verdicts) = poll(profile, &frames);
    let full = Verdict::Passed(Pass::TableFull);
    assert_eq!(verdicts[1], full);
    assert_eq!(verdicts[3..], [Verdict::Held, Verdict::Joined, full]);
    assert_eq!(packets(&delivered), [1, 1, 1, 1, 2]);
}
