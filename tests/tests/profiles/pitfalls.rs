//! Tests every profile in cases in which other implementations lose or reorder packets.

use grosso::coalesce::reason::NoMerge;

use super::*;

#[test]
fn p08_a_mark_of_congestion_on_any_packet_is_seen_behind_every_profile() {
    for profile in Profile::all() {
        for marked_at in 0..6 {
            let frames: Vec<_> = (0..6)
                .map(|i| {
                    let tos = if i == marked_at { 0x03 } else { 0x02 };
                    marked(i * MSS, MSS, |ip| ip.tos(tos), |tcp| tcp)
                })
                .collect();
            let (delivered, _) = poll(profile.clone(), &frames);
            let marks: Vec<_> = delivered.iter().filter(|out| out.bytes[15] & 3 == 3).collect();
            assert_eq!(packets(&marks.into_iter().cloned().collect::<Vec<_>>()), [1]);
        }
    }
}

#[test]
fn p10_a_pure_acknowledgment_never_overtakes_data() {
    for profile in Profile::all() {
        let frames = [
            packet(0, 100, |t| t),
            packet(100, 0, |t| t.ack(500)),
            packet(100, 100, |t| t.ack(500)),
        ];
        let (delivered, _) = poll(profile, &frames);
        let sequences: Vec<_> = delivered.iter().map(|out| number(out, "sequence")).collect();
        assert!(sequences.is_sorted(), "{sequences:?}");
    }
}

#[test]
fn p11_an_older_acknowledgment_comes_out_whatever_flags_it_carries() {
    let flags = [0, Tcp::FIN, Tcp::RST, Tcp::PSH, Tcp::ECE, Tcp::CWR, Tcp::URG];
    for profile in lossy() {
        for flag in flags {
            let older = packet(100, 0, |tcp| tcp.ack(50).flag(flag));
            let frames = [packet(0, 100, |tcp| tcp.ack(500)), older.clone()];
            let (delivered, _) = poll(profile.clone(), &frames);
            assert_eq!(delivered.last().unwrap().bytes, older, "{}", profile.name);
        }
    }
}

#[test]
fn p12_three_duplicate_acknowledgments_are_three() {
    for profile in Profile::all() {
        let frames: Vec<_> = (0..4).map(|_| packet(0, 0, |tcp| tcp.ack(700))).collect();
        let (delivered, _) = poll(profile, &frames);
        assert_eq!(packets(&delivered), [1, 1, 1, 1]);
    }
}

#[test]
fn p13_push_ends_a_unit_or_is_on_it() {
    for profile in Profile::all().into_iter().filter(|profile| profile.tcp) {
        let mut frames = data(4);
        frames[1] = packet(MSS, MSS, Tcp::psh);
        let (delivered, _) = poll(profile.clone(), &frames);
        let has_push = |out: &Out| number(out, "offset_flags") & u64::from(Tcp::PSH) != 0;
        match delivered.len() {
            1 => assert!(has_push(&delivered[0]), "{}", profile.name),
            _ => {
                assert_eq!(packets(&delivered), [2, 2], "{}", profile.name);
                assert_eq!(
                    [has_push(&delivered[0]), has_push(&delivered[1])],
                    [true, false],
                    "{}",
                    profile.name
                );
            }
        }
    }
}

// Rules: L13
#[test]
fn p14_timestamps_never_go_back_and_which_stays_is_the_profile_s() {
    let stamped = |stamps: &[(u32, u32)]| -> Vec<Vec<u8>> {
        let packets = stamps.iter().enumerate();
        packets
            .map(|(i, &(value, echo))| packet(i * MSS, MSS, |tcp| tcp.timestamps(value, echo)))
            .collect()
    };
    let rising = stamped(&[(u32::MAX, 5), (2, 6), (3, 7)]);
    for (profile, value) in [
        (Profile::inet_lro(), u32::MAX),
        (Profile::freebsd(), 3),
        (Profile::myri10ge(), 3),
        (Profile::ndis_rsc(), 3),
    ] {
        let (delivered, _) = poll(profile.clone(), &rising);
        assert_eq!(packets(&delivered), [3], "{}", profile.name);
        let options = tcp_of(&delivered[0]).last().unwrap().bytes("options").to_vec();
        let expected = [[1, 1, 8, 10], u32::to_be_bytes(value), [0, 0, 0, 7]].concat();
        assert_eq!(options, expected, "{}", profile.name);
        let (delivered, verdicts) = poll(profile, &stamped(&[(9, 1), (8, 1)]));
        assert_eq!(packets(&delivered), [1, 1]);
        assert_eq!(verdicts[1], Verdict::Refused(NoMerge::TcpTimestamp));
    }
    let (delivered, _) = poll(Profile::linux(), &rising);
    assert_eq!(packets(&delivered), [1, 1, 1]);
}

#[test]
fn p07_odd_payloads_sum_right_in_every_profile() {
    for profile in lossy().filter(|profile| profile.rules.sizes == grosso::coalesce::Sizes::Any) {
        for lengths in [[101, 99, 100], [1, 1, 1], [99, 1000, 3]] {
            let mut at = 0;
            let frames = lengths.map(|len| {
                at += len;
                packet(at - len, len, |tcp| tcp)
            });
            // `poll` computes the superframe's checksum from scratch.
            let (delivered, _) = poll(profile.clone(), &frames);
            assert_eq!(packets(&delivered), [3], "{}", profile.name);
        }
    }
}

#[test]
fn p09_alternating_code_points_keep_the_order_in_every_profile() {
    for profile in Profile::all() {
        let frames: Vec<_> = (0..8)
            .map(|i| marked(i * MSS, MSS, |ip| ip.tos(if i % 2 == 0 { 0x28 } else { 0 }), |t| t))
            .collect();
        let (delivered, _) = poll(profile, &frames);
        let sequences: Vec<_> = delivered.iter().map(|out| number(out, "sequence")).collect();
        assert!(sequences.is_sorted(), "{sequences:?}");
    }
}

#[test]
fn p16_nothing_that_passes_overtakes_its_flow_in_any_profile() {
    let at = |i: usize| i * MSS;
    let ineligible: [fn(usize) -> Vec<u8>; 9] = [
        |at| packet(at, MSS, Tcp::fin),
        |at| packet(at, MSS, Tcp::urg),
        |at| packet(at, MSS, Tcp::rst),
        |at| packet(at, MSS, Tcp::ece),
        |at| packet(at, MSS, Tcp::cwr),
        |at| packet(at, MSS, |tcp| tcp.options(&[1; 4])),
        |at| packet(at, 0, |tcp| tcp),
        |at| marked(at, MSS, |ip| ip.tos(3), |tcp| tcp),
        |at| marked(at, MSS, |ip| ip.tos(1), |tcp| tcp),
    ];
    for profile in Profile::all() {
        for make in ineligible {
            for place in 0..5 {
                let mut frames = data(5);
                frames[place] = make(at(place));
                let (delivered, _) = poll(profile.clone(), &frames);
                let sequences: Vec<_> =
                    delivered.iter().map(|out| number(out, "sequence")).collect();
                assert!(sequences.is_sorted(), "{}: {sequences:?}", profile.name);
            }
        }
    }
}

#[test]
fn p39_no_profile_loses_or_invents_an_accurate_ecn_count() {
    let bits = |ace: u16| (ace & 7) << 6;
    let shown = |out: &Out| number(out, "offset_flags") as u16 & bits(7);
    for profile in Profile::all() {
        for ace in 1..8 {
            for place in 0..5 {
                let mut frames = data(5);
                frames[place] = packet(place * MSS, MSS, |tcp| tcp.flag(bits(ace)));
                let (delivered, _) = poll(profile.clone(), &frames);
                let with: Vec<_> = delivered.iter().filter(|out| shown(out) != 0).collect();
                assert_eq!(with.len(), 1, "{} {ace} at {place}", profile.name);
                assert_eq!((with[0].packets, shown(with[0])), (1, bits(ace)), "{}", profile.name);
            }
            let all: Vec<_> =
                (0..5).map(|i| packet(i * MSS, MSS, |tcp| tcp.flag(bits(ace)))).collect();
            let (delivered, _) = poll(profile.clone(), &all);
            assert!(delivered.iter().all(|out| shown(out) == bits(ace)), "{}", profile.name);
        }
    }
}
