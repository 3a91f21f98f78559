//! The profiles of other receive offloads: what they join, what they leave alone, and what is lost in their trains.

use grosso::{
    Profile, Verdict,
    checksum::{self, Checksum},
    coalesce::{
        Rules,
        reason::{NoMerge, Pass},
    },
};
use grosso_testkit::{
    Packet,
    headers::{Ipv4, Tcp},
    oracle::{Lengths, Link, Parsed, is_right, parse},
};
use grosso_tests::engine::{Engine, Out};

/// Payload bytes of a full packet.
const MSS: usize = 1448;

/// A packet of one connection, whose payload starts at this byte of the stream.
fn packet(at: usize, len: usize, edit: impl FnOnce(Tcp) -> Tcp) -> Vec<u8> {
    marked(at, len, |ip| ip, edit)
}

fn marked(
    at: usize,
    len: usize,
    ip: impl FnOnce(Ipv4) -> Ipv4,
    tcp: impl FnOnce(Tcp) -> Tcp,
) -> Vec<u8> {
    let sequence = 1 + at as u32;
    let packet = Packet::new().ethernet(|e| e).ipv4(|own| ip(own.id((at / MSS) as u16)));
    packet.tcp(|own| tcp(own.sequence(sequence)).flag(Tcp::ACK)).payload_len(len).build()
}

/// Full packets in order.
fn data(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|i| packet(i * MSS, MSS, |tcp| tcp)).collect()
}

/// What a profile makes of one poll, checked: each buffer comes back, packets are conserved, and the headers of what
/// leaves are right once a device has completed them.
fn poll(profile: Profile, frames: &[Vec<u8>]) -> (Vec<Out>, Vec<Verdict>) {
    let mut engine = Engine::new(profile);
    let verdicts = frames.iter().map(|frame| engine.push(frame)).collect();
    engine.poll_end(0);
    assert_eq!(engine.buffers.len(), frames.len(), "every buffer comes back");
    let mut delivered = engine.delivered;
    assert_eq!(packets(&delivered).iter().sum::<u32>() as usize, frames.len(), "conserved");
    for out in &mut delivered {
        if let Checksum::Partial { start, offset } = out.meta.checksum {
            checksum::complete(&mut out.bytes, start, offset).unwrap();
        }
        assert!(is_right(&out.bytes, Link::Ethernet), "{out:?}");
    }
    (delivered, verdicts)
}

fn packets(delivered: &[Out]) -> Vec<u32> {
    delivered.iter().map(|out| out.packets).collect()
}

fn tcp_of(out: &Out) -> Parsed {
    parse(&out.bytes, Link::Ethernet, Lengths::Declared)
}

fn number(out: &Out, field: &str) -> u64 {
    tcp_of(out).last().unwrap().number(field)
}

fn lossy() -> impl Iterator<Item = Profile> {
    Profile::all().into_iter().filter(|profile| !profile.rules.is_invertible())
}

#[test]
fn the_default_and_its_small_table_are_invertible_and_no_other() {
    let names: Vec<_> = Profile::all()
        .iter()
        .filter(|profile| profile.rules.is_invertible())
        .map(|profile| profile.name.clone())
        .collect();
    assert_eq!(names, ["linux", "linux-8x8"]);
    assert!(Rules::INVERTIBLE.is_invertible());
    assert_eq!(lossy().count(), 6);
}

#[test]
fn ndis_ten_in_order_are_one_unit() {
    let (delivered, _) = poll(Profile::ndis_rsc(), &data(10));
    assert_eq!(packets(&delivered), [10]);
    assert_eq!(delivered[0].meta.gso, None, "nobody can cut it again");
}

#[test]
fn ndis_a_duplicate_with_sack_stands_alone_between_units() {
    let sack = [1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2];
    let mut frames = data(5);
    frames.push(packet(5 * MSS, 0, |tcp| tcp.options(&sack)));
    frames.extend((5..7).map(|i| packet(i * MSS, MSS, |tcp| tcp)));
    let (delivered, verdicts) = poll(Profile::ndis_rsc(), &frames);
    assert_eq!(packets(&delivered), [5, 1, 2]);
    assert_eq!(verdicts[5], Verdict::Passed(Pass::TcpOptions));
}

#[test]
fn ndis_window_updates_fold_into_data_and_the_last_window_stays() {
    let mut frames = data(5);
    frames.extend([4000, 5000].map(|window| packet(5 * MSS, 0, |tcp| tcp.window(window))));
    let (delivered, _) = poll(Profile::ndis_rsc(), &frames);
    assert_eq!(packets(&delivered), [7]);
    assert_eq!(number(&delivered[0], "window"), 5000);
    // With nothing to fold into they start no unit.
    let (delivered, _) = poll(Profile::ndis_rsc(), &frames[5..]);
    assert_eq!(packets(&delivered), [1, 1]);
}

#[test]
fn ndis_acknowledgments_on_data_join_and_the_last_one_stays() {
    let frames: Vec<_> =
        (0..6).map(|i| packet(i * MSS, MSS, |tcp| tcp.ack(1000 + 7 * i as u32))).collect();
    let (delivered, _) = poll(Profile::ndis_rsc(), &frames);
    assert_eq!(packets(&delivered), [6]);
    assert_eq!(number(&delivered[0], "ack"), 1035);
    // One that goes back starts a new unit.
    let back = [packet(0, MSS, |tcp| tcp.ack(9)), packet(MSS, MSS, |tcp| tcp.ack(8))];
    let (delivered, verdicts) = poll(Profile::ndis_rsc(), &back);
    assert_eq!(packets(&delivered), [1, 1]);
    assert_eq!(verdicts[1], Verdict::Refused(NoMerge::TcpAcknowledgment));
}

#[test]
fn ndis_a_pure_acknowledgment_is_never_in_a_unit() {
    let mut frames = data(2);
    frames.push(packet(2 * MSS, 0, |tcp| tcp.ack(4000)));
    frames.push(packet(2 * MSS, MSS, |tcp| tcp.ack(4000)));
    let (delivered, _) = poll(Profile::ndis_rsc(), &frames);
    assert_eq!(packets(&delivered), [2, 1, 1]);
}

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
    for profile in Profile::all() {
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
fn packets_of_any_length_join_and_their_bytes_are_the_stream_s() {
    let lengths = [1, MSS, 7, 999, MSS, 3];
    for profile in lossy() {
        let mut at = 0;
        let frames: Vec<_> = lengths
            .iter()
            .map(|&len| {
                at += len;
                packet(at - len, len, |tcp| tcp.window(at as u16))
            })
            .collect();
        let (delivered, _) = poll(profile.clone(), &frames);
        assert_eq!(packets(&delivered), [6], "{}", profile.name);
        let whole = parse(&delivered[0].bytes, Link::Ethernet, Lengths::Declared);
        let parts: Vec<u8> = frames
            .iter()
            .flat_map(|frame| {
                parse(frame, Link::Ethernet, Lengths::Declared).payload(frame).to_vec()
            })
            .collect();
        assert_eq!(whole.payload(&delivered[0].bytes), parts, "{}", profile.name);
        assert_eq!(number(&delivered[0], "window"), at as u64);
        assert_eq!(number(&delivered[0], "sequence"), 1);
    }
}

#[test]
fn what_varies_by_the_rules_is_the_first_packet_s() {
    let frames: Vec<_> = (0..3)
        .map(|i| {
            let (tos, ttl) = (i as u8 * 4, 64 - i as u8);
            marked(i * MSS, MSS, |ip| ip.tos(tos).ttl(ttl).id(77 * i as u16).df(i == 0), |t| t)
        })
        .collect();
    for profile in lossy() {
        let (delivered, _) = poll(profile.clone(), &frames);
        assert_eq!(packets(&delivered), [3], "{}", profile.name);
        let ip = &delivered[0].bytes[14..34];
        assert_eq!((ip[1], ip[8], &ip[4..8]), (0, 64, &frames[0][18..22]), "{}", profile.name);
    }
}

#[test]
fn freebsd_joins_acknowledgments_that_say_something_new() {
    let frames: Vec<_> = [(10, 5), (20, 5), (20, 6), (30, 6)]
        .map(|(a, w)| packet(0, 0, |t| t.ack(a).window(w)))
        .into();
    let (delivered, _) = poll(Profile::freebsd(), &frames);
    assert_eq!(packets(&delivered), [4]);
    assert_eq!((number(&delivered[0], "ack"), number(&delivered[0], "window")), (30, 6));
    for profile in [Profile::myri10ge(), Profile::inet_lro(), Profile::rsc_82599()] {
        let (delivered, verdicts) = poll(profile, &frames);
        assert_eq!(packets(&delivered), [1; 4]);
        assert_eq!(verdicts, [Verdict::Passed(Pass::Empty); 4]);
    }
}

#[test]
fn superframes_are_not_taken_apart_by_profiles_that_cannot_say_where() {
    let (mut joined, _) = poll(Profile::linux(), &data(4));
    let superframe = joined.remove(0);
    for profile in lossy() {
        let mut engine = Engine::new(profile);
        let frame = grosso::Frame { buffer: superframe.bytes.clone(), meta: superframe.meta };
        let verdict = engine.push_frame(frame, 0);
        assert!(
            matches!(verdict, Verdict::Passed(Pass::Superframe | Pass::ChecksumForm)),
            "{verdict:?}"
        );
    }
}

#[test]
fn udp_and_tunnels_are_none_of_their_business() {
    let datagram = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|u| u).payload_len(100).build();
    let inner = |i: u32| {
        let outer = Packet::new().ethernet(|e| e).ipv4(|ip| ip).gre(|g| g).ipv4(|ip| ip);
        outer.tcp(|tcp| tcp.sequence(i * 100)).payload_len(100).build()
    };
    for profile in lossy() {
        let (_, verdicts) = poll(profile.clone(), &[datagram.clone(), inner(0), inner(1)]);
        let tunnel = Verdict::Passed(Pass::TunnelLevels);
        assert_eq!(verdicts, [Verdict::Passed(Pass::UdpOff), tunnel, tunnel], "{}", profile.name);
    }
}
