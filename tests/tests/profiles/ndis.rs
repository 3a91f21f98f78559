//! Tests the rules of NDIS receive segment coalescing (RSC).

use grosso::coalesce::reason::{Close, NoMerge};

use super::*;

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
    // Without an earlier unit, acknowledgments start no unit.
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
    // A lower acknowledgment number starts a new unit.
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
fn ndis_1_without_a_free_place_a_unit_makes_room_and_nothing_is_lost() {
    let mut profile = Profile::ndis_rsc();
    profile.limits.flows = 1;
    let other = packet(0, MSS, |tcp| tcp.source_port(9));
    let (delivered, _) = poll(profile, &[packet(0, MSS, |tcp| tcp), other]);
    assert_eq!(packets(&delivered), [1, 1]);
    assert_eq!(delivered[0].closed, Close::TableFull);
}

#[test]
fn ndis_2_to_6_are_indicated_alone_between_two_units() {
    let v6 = |at: usize, extended: bool| {
        let packet = Packet::new().ethernet(|e| e).ipv6(|ip| ip);
        let packet = if extended { packet.hop_by_hop(|h| h) } else { packet };
        packet.tcp(|tcp| tcp.sequence(1 + at as u32).flag(Tcp::ACK)).payload_len(MSS).build()
    };
    let wrong_sum = packet(2 * MSS, MSS, |tcp| tcp.checksum_xor(1));
    let wrong_header = marked(2 * MSS, MSS, |ip| ip.checksum_xor(1), |tcp| tcp);
    let sack = packet(2 * MSS, 0, |tcp| tcp.options(&[1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2]));
    for (alone, reason) in [
        (wrong_sum, Pass::Checksum),
        (wrong_header, Pass::Ipv4Checksum),
        (packet(2 * MSS, MSS, Tcp::syn), Pass::TcpSynchronize),
        (packet(2 * MSS, MSS, Tcp::urg), Pass::TcpUrgent),
        (packet(2 * MSS, MSS, Tcp::rst), Pass::TcpReset),
        (packet(2 * MSS, MSS, Tcp::fin), Pass::TcpFlags),
        (packet(2 * MSS, MSS, |tcp| tcp.options(&[1; 4])), Pass::TcpOptions),
        (sack, Pass::TcpOptions),
        (marked(2 * MSS, MSS, |ip| ip.options(&[1; 4]), |tcp| tcp), Pass::Ipv4Options),
        (marked(2 * MSS, MSS, |ip| ip.more_fragments(true), |tcp| tcp), Pass::Fragment),
    ] {
        let mut frames = data(5);
        frames[2] = alone;
        let mut engine = Engine::new(Profile::ndis_rsc());
        let verdicts: Vec<_> = frames.iter().map(|frame| engine.push(frame)).collect();
        engine.poll_end(0);
        assert_eq!(verdicts[2], Verdict::Passed(reason));
        assert_eq!(packets(&engine.delivered), [2, 1, 2], "{reason}");
        assert_eq!(engine.delivered[1].bytes, frames[2], "{reason}");
    }
    let frames: Vec<_> = (0..5).map(|i| v6(i * MSS, i == 2)).collect();
    let (delivered, verdicts) = poll(Profile::ndis_rsc(), &frames);
    assert_eq!(packets(&delivered), [2, 1, 2]);
    assert_eq!(verdicts[2], Verdict::Passed(Pass::Ipv6Extension));
}

#[test]
fn ndis_7_what_would_exceed_a_datagram_starts_the_next_unit() {
    let (delivered, verdicts) = poll(Profile::ndis_rsc(), &data(46));
    assert_eq!(packets(&delivered), [45, 1]);
    assert_eq!(verdicts[45], Verdict::Refused(NoMerge::SizeLimit));
}

#[test]
fn ndis_8_another_codepoint_or_echo_of_congestion_starts_the_next_unit() {
    let marks: [fn(usize) -> Vec<u8>; 3] = [
        |at| marked(at, MSS, |ip| ip.tos(3), |tcp| tcp),
        |at| packet(at, MSS, Tcp::ece),
        |at| packet(at, MSS, Tcp::cwr),
    ];
    for mark in marks {
        let mut frames = data(6);
        (3..6).for_each(|i| frames[i] = mark(i * MSS));
        let (delivered, _) = poll(Profile::ndis_rsc(), &frames);
        assert_eq!(packets(&delivered), [3, 3]);
    }
}

#[test]
fn ndis_timestamps_and_push_of_a_unit_are_those_of_all_its_segments() {
    let frames: Vec<_> = (0..4)
        .map(|i| {
            packet(i * MSS, MSS, |tcp| {
                let tcp = tcp.timestamps(7 + i as u32, 9);
                if i == 1 { tcp.psh() } else { tcp }
            })
        })
        .collect();
    let (delivered, _) = poll(Profile::ndis_rsc(), &frames);
    assert_eq!(packets(&delivered), [4]);
    assert_ne!(number(&delivered[0], "offset_flags") & u64::from(Tcp::PSH), 0);
    assert_eq!(tcp_of(&delivered[0]).last().unwrap().bytes("options")[4..8], [0, 0, 0, 10]);
}

#[test]
fn ndis_uro_joins_datagrams_of_one_length_and_a_shorter_last_one() {
    let datagram = |len: usize, ip: fn(Ipv4) -> Ipv4| {
        Packet::new()
            .ethernet(|e| e)
            .ipv4(|own| ip(own.id(7).df(true)))
            .udp(|u| u)
            .payload_len(len)
            .build()
    };
    let plain = |ip: Ipv4| ip;
    let lengths =
        |lens: &[usize]| -> Vec<_> { lens.iter().map(|&len| datagram(len, plain)).collect() };
    let joined = |frames: &[Vec<u8>]| packets(&poll(Profile::ndis_uro(), frames).0);
    assert_eq!(joined(&lengths(&[100, 100, 60])), [3]);
    assert_eq!(joined(&lengths(&[100, 100, 60, 100])), [3, 1]);
    assert_eq!(joined(&lengths(&[100, 0, 100])), [1, 1, 1]);
    assert_eq!(joined(&lengths(&[60, 100])), [1, 1]);
    // A unit contains as many packets as fit into an IP packet, which is more than Linux sockets accept.
    assert_eq!(joined(&lengths(&[100; 200])), [200]);
    let changes: [fn(Ipv4) -> Ipv4; 4] =
        [|ip| ip.tos(4), |ip| ip.tos(1), |ip| ip.ttl(9), |ip| ip.df(false)];
    for change in changes {
        assert_eq!(joined(&[datagram(100, plain), datagram(100, change)]), [1, 1]);
    }
    let (_, verdicts) = poll(Profile::ndis_uro(), &data(2));
    assert_eq!(verdicts, [Verdict::Passed(Pass::TcpOff); 2]);
}

#[test]
fn ndis_uro_a_wrong_checksum_is_a_barrier() {
    let frames: Vec<_> = (0..5_u16)
        .map(|i| {
            let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(i));
            packet.udp(|u| u.checksum_xor(u16::from(i == 2))).payload_len(100).build()
        })
        .collect();
    let mut engine = Engine::new(Profile::ndis_uro());
    for frame in &frames {
        engine.push(frame);
    }
    engine.poll_end(0);
    assert_eq!(packets(&engine.delivered), [2, 1, 2]);
    assert_eq!(engine.delivered[1].bytes, frames[2]);
}
