//! Tests rules G30 to G40: TCP.

use grosso::{
    Frame, Profile, Verdict,
    coalesce::reason::{Close, NoMerge, Pass},
    meta::Cwr,
};
use grosso_rig::{
    engine::{Engine, coalesce},
    frames::{Path, assert_apart, assert_payloads, at, plain},
    superframe::Superframe,
};
use grosso_testkit::headers::Tcp;

/// Changes the second of three segments, and asserts its verdict, that the order is kept, and that the third segment
/// does not merge with the first.
#[track_caller]
fn assert_second(change: impl Fn(Tcp) -> Tcp + Copy + 'static, verdict: Verdict) {
    for path in Path::PLAIN {
        let frames = path.train(&[100; 3], at(1, |s| s.tcp(change)));
        let mut engine = Engine::new(Profile::linux());
        engine.push(&frames[0]);
        assert_eq!(engine.push(&frames[1]), verdict, "{path:?}");
        assert_apart(&frames);
    }
}

/// Asserts that segments merge when all of them have this change.
#[track_caller]
fn assert_all_merge(change: impl Fn(Tcp) -> Tcp + Copy + 'static) {
    for path in Path::PLAIN {
        assert_payloads(&path.train(&[100; 3], |_, s| s.tcp(change)), &[300]);
    }
}

/// Asserts the payload lengths delivered for segments of 100 bytes with these flags in addition to ACK.
#[track_caller]
fn assert_flags(flags: &[u16], expected: &[usize]) {
    for path in Path::PLAIN {
        let frames = path.train(&vec![100; flags.len()], |index, s| {
            let flags = flags[index];
            s.tcp(move |tcp| tcp.flag(flags))
        });
        assert_payloads(&frames, expected);
    }
}

#[test]
fn g30_wrong_checksum_passes() {
    for bit in 0..16 {
        assert_second(move |tcp| tcp.checksum_xor(1 << bit), Verdict::Passed(Pass::Checksum));
    }
}

#[test]
fn g30_data_offset_below_five_words_passes() {
    for words in 0..5 {
        assert_second(move |tcp| tcp.data_offset_raw(words), Verdict::Passed(Pass::Malformed));
    }
}

#[test]
fn g30_data_offset_beyond_the_frame_passes() {
    let frames = Path::Ipv4.train(&[100, 20], at(1, |s| s.tcp(|tcp| tcp.data_offset_raw(11))));
    let mut engine = Engine::new(Profile::linux());
    engine.push(&frames[0]);
    assert_eq!(engine.push(&frames[1]), Verdict::Passed(Pass::Truncated));
    assert_apart(&frames);
}

#[test]
fn g31_ports_make_the_flow() {
    type Change = fn(Tcp) -> Tcp;
    let changes: [Change; 2] = [|tcp| tcp.source_port(1501), |tcp| tcp.destination_port(8001)];
    for change in changes {
        let one = Path::Ipv4.train(&[100, 100], plain);
        let two = Path::Ipv4.train(&[100, 100], |_, s| s.tcp(change));
        let frames = [&one[0], &two[0], &one[1], &two[1]].map(Clone::clone);
        assert_payloads(&frames, &[200, 200]);
    }
}

/// Tests every bit in the word that contains data offset and flags, except FIN, PSH, SYN, RST and URG, which have
/// separate rules.
#[test]
fn g32_reserved_bits_and_flags_differ() {
    for bits in [0x800, 0x400, 0x200, Tcp::AE, Tcp::CWR, Tcp::ECE] {
        assert_second(move |tcp| tcp.flag(bits), Verdict::Refused(NoMerge::TcpFlags));
    }
    assert_second(Tcp::no_ack, Verdict::Refused(NoMerge::TcpFlags));
}

#[test]
fn g32_data_offset_differs() {
    assert_second(|tcp| tcp.options(&[1; 4]), Verdict::Refused(NoMerge::HeaderStack));
}

#[test]
fn g32_window_differs() {
    for bit in 0..16 {
        let refused = Verdict::Refused(NoMerge::TcpWindow);
        assert_second(move |tcp| tcp.window(65535 ^ 1 << bit), refused);
    }
}

#[test]
fn g32_acknowledgment_differs() {
    for ack in [99, 101, 100 + 0x8000_0000] {
        let refused = Verdict::Refused(NoMerge::TcpAcknowledgment);
        assert_second(move |tcp| tcp.ack(ack), refused);
    }
}

#[test]
fn g32_any_option_byte_differs() {
    const OPTIONS: [u8; 12] = [1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2];
    assert_all_merge(|tcp| tcp.options(&OPTIONS));
    for byte in 0..12 {
        let mut other = OPTIONS;
        other[byte] ^= 0x40;
        let frames = Path::Ipv4.train(&[100, 100], |index, s| {
            s.tcp(move |tcp| tcp.options(if index == 0 { &OPTIONS } else { &other }))
        });
        let mut engine = Engine::new(Profile::linux());
        engine.push(&frames[0]);
        assert_eq!(engine.push(&frames[1]), Verdict::Refused(NoMerge::TcpOptions), "{byte}");
        assert_apart(&frames);
    }
}

#[test]
fn g32_timestamps_differ() {
    for (value, echo) in [(2, 1), (1, 2), (0, 1)] {
        let frames = Path::Ipv4.train(&[100, 100], |index, s| {
            s.tcp(
                move |tcp| {
                    if index == 0 { tcp.timestamps(1, 1) } else { tcp.timestamps(value, echo) }
                },
            )
        });
        let mut engine = Engine::new(Profile::linux());
        engine.push(&frames[0]);
        assert_eq!(engine.push(&frames[1]), Verdict::Refused(NoMerge::TcpTimestamp));
        assert_apart(&frames);
    }
    assert_all_merge(|tcp| tcp.timestamps(1, 1));
}

#[test]
fn g32_a_longer_segment_starts_the_next_train() {
    for path in Path::PLAIN {
        let frames = path.train(&[100, 101, 101], plain);
        let mut engine = Engine::new(Profile::linux());
        engine.push(&frames[0]);
        assert_eq!(engine.push(&frames[1]), Verdict::Refused(NoMerge::Longer));
        assert_payloads(&frames, &[100, 202]);
    }
}

/// Returns the verdict on a superframe of two segments of `size` bytes that follows a superframe of two segments of 100
/// bytes.
fn superframe_behind(size: u16) -> Verdict {
    let superframe = |sequence: u32, id: u16, size: u16| {
        let packet = grosso_testkit::Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(id));
        let packet = packet.tcp(|tcp| tcp.sequence(sequence)).payload_len(2 * usize::from(size));
        Superframe::new(&packet, size).gso(|gso| gso.segments = 2)
    };
    let mut engine = Engine::new(Profile::linux());
    for Superframe { bytes, meta } in [superframe(0, 0, 100), superframe(200, 2, size)] {
        engine.push_frame(Frame { buffer: bytes, meta }, 0);
    }
    engine.verdicts[1]
}

#[test]
fn g32_a_superframe_of_another_segment_size() {
    assert_eq!(superframe_behind(100), Verdict::Joined);
    assert_eq!(superframe_behind(99), Verdict::Refused(NoMerge::SuperframeSize));
    assert_eq!(superframe_behind(101), Verdict::Refused(NoMerge::Longer));
}

#[test]
fn g32_sequence_number_is_not_the_next() {
    for (sequence, reason) in [
        (201, NoMerge::TcpSequenceAhead),
        (300, NoMerge::TcpSequenceAhead),
        (200 + 0x7fff_ffff, NoMerge::TcpSequenceAhead),
        (199, NoMerge::TcpSequenceBehind),
        (100, NoMerge::TcpSequenceBehind),
        (200 + 0x8000_0001, NoMerge::TcpSequenceBehind),
    ] {
        assert_second(move |tcp| tcp.sequence(sequence), Verdict::Refused(reason));
    }
}

/// Tests the urgent pointer, which Linux ignores if URG is clear, although segmentation cannot restore it.
#[test]
fn g33_urgent_pointer_must_be_equal() {
    let refused = Verdict::Refused(NoMerge::TcpUrgentPointer);
    assert_second(|tcp| tcp.urgent_pointer(1), refused);
    assert_all_merge(|tcp| tcp.urgent_pointer(7));
}

#[test]
fn g33_segments_without_ack_merge() {
    assert_all_merge(Tcp::no_ack);
}

// Rules: G32
#[test]
fn g34_ece_or_ae_on_every_segment_merges_and_on_one_does_not() {
    for flag in [Tcp::ECE, Tcp::AE] {
        assert_flags(&[flag, flag], &[200]);
        assert_flags(&[0, flag], &[100, 100]);
        assert_flags(&[flag, 0], &[100, 100]);
    }
}

#[test]
fn g34_cwr_on_the_first_segment_leaves_alone() {
    assert_flags(&[Tcp::CWR, 0, 0], &[100, 200]);
}

#[test]
fn g34b_equal_cwr_merges() {
    assert_flags(&[Tcp::CWR, Tcp::CWR, 0], &[200, 100]);
    assert_flags(&[0, Tcp::CWR, Tcp::CWR, 0], &[100, 200, 100]);
}

#[test]
fn g34a_cwr_stays_on_every_segment() {
    let delivered = coalesce(&Path::Ipv4.train(&[100; 3], |_, s| s.tcp(Tcp::cwr)));
    assert_eq!(delivered[0].meta.gso.unwrap().cwr, Cwr::Every);
    let delivered = coalesce(&Path::Ipv4.train(&[100; 3], plain));
    assert_eq!(delivered[0].meta.gso.unwrap().cwr, Cwr::First);
}

#[test]
fn g35_fin_and_psh_of_the_last_segment_are_in_the_superframe() {
    for flags in [Tcp::FIN, Tcp::PSH, Tcp::FIN | Tcp::PSH] {
        let frames =
            Path::Ipv4.train(&[100, 100], at(1, move |s| s.tcp(move |tcp| tcp.flag(flags))));
        let delivered = coalesce(&frames);
        assert_eq!(delivered.len(), 1);
        assert_eq!(u16::from(delivered[0].bytes[14 + 20 + 13]), Tcp::ACK | flags);
    }
}

#[test]
fn g36_psh_or_fin_with_payload_joins_and_closes() {
    for (flag, close) in [(Tcp::PSH, Close::Push), (Tcp::FIN, Close::Finish)] {
        assert_flags(&[0, flag, 0], &[200, 100]);
        assert_flags(&[flag, 0, 0], &[100, 200]);
        let frames =
            Path::Ipv4.train(&[100, 100], at(1, move |s| s.tcp(move |tcp| tcp.flag(flag))));
        assert_eq!(coalesce(&frames)[0].closed, close);
    }
}

#[test]
fn g36_syn_rst_and_urg_are_in_no_train() {
    for (flag, reason) in
        [(Tcp::SYN, Pass::TcpSynchronize), (Tcp::RST, Pass::TcpReset), (Tcp::URG, Pass::TcpUrgent)]
    {
        assert_second(move |tcp| tcp.flag(flag), Verdict::Passed(reason));
        assert_flags(&[flag, flag], &[100, 100]);
    }
}

#[test]
fn g36_fin_without_payload_does_not_merge() {
    let frames = Path::Ipv4.train(&[100, 100, 0], at(2, |s| s.tcp(Tcp::fin)));
    assert_payloads(&frames, &[200, 0]);
}

#[test]
fn g37_the_refused_packet_starts_the_next_train() {
    let frames = Path::Ipv4.train(&[100; 4], |index, s| {
        s.tcp(move |tcp| if index >= 2 { tcp.window(1000) } else { tcp })
    });
    assert_payloads(&frames, &[200, 200]);
}

#[test]
fn g37_a_refused_packet_that_nothing_may_follow_leaves_at_once() {
    let frames = Path::Ipv4.train(&[100; 2], at(1, |s| s.tcp(|tcp| tcp.psh().window(1000))));
    let mut engine = Engine::new(Profile::linux());
    frames.iter().for_each(|frame| {
        engine.push(frame);
    });
    assert_eq!(engine.verdicts[1], Verdict::Refused(NoMerge::TcpWindow));
    assert_eq!(engine.delivered.len(), 2, "nothing is held");
    assert_apart(&frames);
}

#[test]
fn g38_pure_acknowledgments_are_neither_held_nor_merged() {
    let mut engine = Engine::new(Profile::linux());
    for frame in Path::Ipv4.train(&[0, 0], plain) {
        assert_eq!(engine.push(&frame), Verdict::Passed(Pass::Empty));
    }
    assert_eq!(engine.delivered.len(), 2);
    assert_payloads(&Path::Ipv4.train(&[100, 0, 100], plain), &[100, 0, 100]);
}

// Rules: G36
#[test]
fn g39_shorter_segment_closes() {
    assert_payloads(&Path::Ipv4.train(&[100, 50], plain), &[150]);
    assert_payloads(&Path::Ipv4.train(&[100, 50, 100], plain), &[150, 100]);
    assert_payloads(&Path::Ipv4.train(&[100, 50, 50], plain), &[150, 50]);
    assert_payloads(&Path::Ipv4.train(&[50, 100], plain), &[50, 100]);
    assert_eq!(coalesce(&Path::Ipv4.train(&[100, 50], plain))[0].closed, Close::ShortSegment);
}

#[test]
fn g40_sequence_number_wraps() {
    let sequences = [0xffff_ff9c, 0, 100];
    let frames =
        Path::Ipv4.train(&[100; 3], |index, s| s.tcp(move |tcp| tcp.sequence(sequences[index])));
    assert_payloads(&frames, &[300]);
}

#[test]
fn g40_reordered_segments_leave_in_the_order_of_arrival() {
    let frames = Path::Ipv4.train(&[100; 3], plain);
    assert_apart(&[&frames[0], &frames[2], &frames[1]].map(Clone::clone));
}

#[test]
fn g40_retransmit_leaves_behind_the_superframe() {
    let frames = Path::Ipv4.train(&[100; 2], plain);
    assert_payloads(&[&frames[0], &frames[1], &frames[0]].map(Clone::clone), &[200, 100]);
}
