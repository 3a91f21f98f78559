//! inet_lro and its rules.

use grosso::coalesce::reason::NoMerge;

use super::*;

// Rules: L15
#[test]
fn p02_a_limit_of_packets_from_the_receiver_s_mtu_cuts_mixed_trains_at_seven() {
    let frames = data(86);
    let largest = |profile: Profile| *packets(&poll(profile, &frames).0).iter().max().unwrap();
    assert_eq!(largest(Profile::inet_lro_2007(9000)), 7);
    assert_eq!(largest(Profile::inet_lro_2007(1500)), 43);
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
    // Three packets of the first session, one of each other session; the acknowledgment is in none.
    assert_eq!((lro.aggregated, lro.flushed, lro.no_descriptor), (5, 3, 1));
}

#[test]
fn l15_no_superframe_has_more_bytes_or_packets_than_both_limits_say() {
    let long = poll(Profile::inet_lro(), &data(100)).0;
    assert_eq!(packets(&long), [44, 44, 12]);
    assert!(long.iter().all(|out| out.bytes.len() - 14 <= 65535 - 1500));
    let short: Vec<_> = (0..100).map(|i| packet(i * 100, 100, |tcp| tcp)).collect();
    assert_eq!(packets(&poll(Profile::inet_lro(), &short).0), [64, 36]);
}
