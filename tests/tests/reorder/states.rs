//! Tests every row in the state machine for reordering repair.

use grosso::{
    Verdict,
    coalesce::{
        Reorder,
        reason::{Close, Pass, Release},
    },
};
use grosso_rig::frames::Segment;
use grosso_testkit::headers::Tcp;

use super::connection::{Connection, HOLD_NS, HOLE_NS, holes, within_batch};

/// A function that changes a packet.
type Edit = fn(Segment) -> Segment;

/// Packets that no waiting packet may overtake: a name, the number of payload bytes, and the change that distinguishes
/// the packet from data.
const BARRIERS: &[(&str, usize, Edit)] = &[
    ("pure acknowledgment", 0, |s| s.tcp(|tcp| tcp.ack(200))),
    ("SYN", 100, |s| s.tcp(Tcp::syn)),
    ("FIN", 100, |s| s.tcp(Tcp::fin)),
    ("RST", 0, |s| s.tcp(Tcp::rst)),
    ("URG", 100, |s| s.tcp(Tcp::urg)),
    ("wrong checksum", 100, |s| s.tcp(|tcp| tcp.checksum_xor(1))),
    ("ip options", 100, |s| s.ipv4(|ip| ip.options(&[1, 1, 1, 1]))),
    ("fragment", 100, |s| s.ipv4(|ip| ip.df(false).more_fragments(true))),
    ("unreadable ports", 100, |s| s.ipv4(|ip| ip.df(false).fragment_offset(9))),
    ("cut inside its header", 100, |s| s.frame(|packet| packet.truncate(40))),
];

#[test]
fn none_and_eligible_data_a_flow_begins_and_its_first_packet_waits() {
    let mut flow = Connection::new(holes());
    assert_eq!(flow.push_as(0, |s| s), Verdict::Waits);
    assert_eq!((flow.left(), flow.waiting()), (vec![], 1));
    assert_eq!(flow.session.deadline(), Some(HOLD_NS));
    assert_eq!(flow.finish(), [[0]]);
}

#[test]
fn none_and_anything_else_leaves_at_once_and_is_not_remembered() {
    for (name, len, change) in BARRIERS {
        let mut flow = Connection::new(holes());
        flow.push_len(3, *len, change);
        assert_eq!(flow.left(), [[3]], "{name}");
        // The next packet waits, which shows that the flow has not continued after the barrier.
        flow.push(&[4]);
        assert_eq!(flow.waiting(), 1, "{name}");
    }
}

#[test]
fn build_and_what_was_sent_earlier_goes_before_and_they_leave_as_one() {
    let mut flow = Connection::new(holes());
    flow.push(&[2, 1, 3, 0]);
    flow.session.poll_end();
    assert_eq!(flow.left(), Vec::<Vec<usize>>::new());
    flow.pass(HOLD_NS);
    assert_eq!(flow.left(), [[0, 1, 2, 3]]);
    assert_eq!(flow.released(Release::Begun), 4);
}

#[test]
fn build_ends_with_the_poll_when_its_last_packet_is_pushed() {
    let mut flow = Connection::new(holes());
    flow.push_as(1, |s| s.tcp(Tcp::psh));
    flow.push(&[0]);
    flow.session.poll_end();
    assert_eq!(flow.left(), [[0, 1]]);
}

#[test]
fn build_with_a_hole_lets_what_is_before_it_leave_and_waits_for_the_rest() {
    let mut flow = Connection::new(holes());
    flow.push(&[0, 1, 3]);
    flow.pass(HOLD_NS);
    assert_eq!(flow.left(), [[0, 1]]);
    assert_eq!(flow.waiting(), 1);
    flow.push(&[2]);
    assert_eq!(flow.finish(), [[2, 3]]);
    assert_eq!(flow.released(Release::Filled), 1);
}

#[test]
fn any_and_a_barrier_everything_waiting_leaves_in_sequence_and_then_the_barrier() {
    for (name, len, change) in BARRIERS {
        let mut flow = Connection::begun(holes());
        flow.push(&[1, 5, 3, 6]);
        flow.push_len(9, *len, change);
        assert_eq!(flow.left(), [vec![1], vec![3], vec![5, 6], vec![9]], "{name}");
        assert_eq!(flow.released(Release::Barrier), 3, "{name}");
        flow.finish();
    }
}

#[test]
fn p10_a_barrier_in_the_beginning_is_overtaken_by_nothing() {
    for (name, len, change) in BARRIERS {
        let mut flow = Connection::new(holes());
        flow.push(&[2, 1, 0]);
        flow.push_len(9, *len, change);
        assert_eq!(flow.left(), [vec![0, 1, 2], vec![9]], "{name}");
    }
}

#[test]
fn a_barrier_of_another_flow_lets_nothing_leave() {
    let mut flow = Connection::begun(holes());
    flow.push(&[2]);
    flow.push_len(9, 0, |s| s.tcp(|tcp| tcp.source_port(99)));
    assert_eq!(flow.left(), [[9]]);
    assert_eq!(flow.waiting(), 1);
}

#[test]
fn fin_that_continues_the_flow_ends_its_train_and_the_flow_is_forgotten() {
    let mut flow = Connection::begun(holes());
    flow.push(&[1, 2]);
    flow.push_as(3, |s| s.tcp(Tcp::fin));
    assert_eq!(flow.left(), [[1, 2, 3]]);
    assert_eq!(flow.session.left.last().unwrap().closed, Close::Finish);
    flow.push(&[4]);
    assert_eq!(flow.waiting(), 1, "a flow that is not known begins");
}

#[test]
fn fin_behind_what_waits_is_its_last_segment() {
    let mut flow = Connection::begun(holes());
    flow.push(&[2, 3]);
    flow.push_as(4, |s| s.tcp(Tcp::fin));
    assert_eq!(flow.left(), [[2, 3, 4]]);
}

#[test]
fn what_begins_or_ends_a_connection_forgets_it_and_other_barriers_do_not() {
    for (name, len, change) in BARRIERS {
        let mut flow = Connection::begun(holes());
        flow.push_len(1, *len, change);
        flow.left();
        flow.push(&[0]);
        let forgets = ["SYN", "FIN", "RST"].contains(name);
        let late: Vec<Vec<usize>> = if forgets { vec![] } else { vec![vec![0]] };
        assert_eq!(flow.left(), late, "{name}");
    }
}

#[test]
fn late_data_leaves_at_once_untouched_and_ends_no_train_that_it_is_before() {
    let mut flow = Connection::begun(holes());
    flow.push(&[1, 2]);
    assert_eq!(flow.push_as(0, |s| s), Verdict::Passed(Pass::TcpLate));
    assert_eq!(flow.left(), [[0]]);
    flow.push(&[3]);
    assert_eq!(flow.finish(), [[1, 2, 3]]);
}

#[test]
fn late_data_that_is_in_the_held_train_leaves_behind_it() {
    let mut flow = Connection::begun(holes());
    flow.push(&[1, 2]);
    assert_eq!(flow.push_as(1, |s| s), Verdict::Passed(Pass::TcpLate));
    assert_eq!(flow.left(), [vec![1, 2], vec![1]]);
}

#[test]
fn late_data_is_no_progress() {
    let mut flow = Connection::begun(holes());
    flow.push(&[2]);
    let deadline = flow.session.deadline();
    flow.session.now_ns += HOLE_NS / 2;
    flow.push(&[0]);
    assert_eq!(flow.session.deadline(), deadline);
}

#[test]
fn a_flow_whose_packets_are_all_late_has_gone_back_and_begins_anew() {
    let mut flow = Connection::begun(within_batch());
    // A sequence number that is far ahead, either by mistake or on purpose.
    flow.push(&[500]);
    flow.session.poll_end();
    assert_eq!(flow.left(), [[500]]);
    let places: Vec<_> = (1..40).collect();
    flow.push(&places);
    flow.session.poll_end();
    let left = flow.left();
    assert_eq!(left[..15], (1..16).map(|place| vec![place]).collect::<Vec<_>>());
    assert_eq!(left[15..], [(16..40).collect::<Vec<_>>()]);
}

#[test]
fn p26_overlapping_data_is_never_trimmed_nor_merged() {
    // Segments 3 and 4 wait, and segment 1 is the next one.
    let overlaps: &[(usize, usize, &str)] = &[
        (0, 101, "what has left, partially"),
        (1, 201, "the gap and the start of a run"),
        (2, 101, "the start of a run"),
        (3, 100, "the same packet again"),
        (3, 50, "the start of a run, and ends inside"),
        (4, 200, "the end of a run"),
        (1, 900, "everything"),
    ];
    for &(place, len, name) in overlaps {
        let mut flow = Connection::begun(holes());
        flow.push(&[3, 4]);
        let verdict = flow.push_len(place, len, |s| s);
        assert_eq!(verdict, Verdict::Passed(Pass::TcpOverlap), "{name}");
        assert_eq!(flow.left(), [vec![3, 4], vec![place]], "{name}");
        assert_eq!(flow.released(Release::Overlap), 2);
        // The flow continues after the end of the data so far.
        let next = (place * 100 + len).max(500) / 100;
        if len.is_multiple_of(100) {
            flow.push(&[next]);
            assert_eq!(flow.waiting(), 0, "{name}");
        }
        flow.finish();
    }
}

#[test]
fn overlapping_data_in_the_beginning_lets_everything_leave() {
    let mut flow = Connection::new(holes());
    flow.push(&[2, 4]);
    assert_eq!(flow.push_len(2, 101, |s| s), Verdict::Passed(Pass::TcpOverlap));
    assert_eq!(flow.left(), [[2], [4], [2]]);
}

#[test]
fn numbers_half_the_circle_apart_are_not_compared() {
    let mut flow = Connection::begun(holes());
    let far = |s: Segment| s.tcp(|tcp| tcp.sequence(200 + 0x7fff_ffff));
    assert_eq!(flow.push_as(3, far), Verdict::Passed(Pass::TcpOverlap));
    let mut flow = Connection::new(holes());
    flow.push_as(3, |s| s.tcp(|tcp| tcp.sequence(0x7000_0000)));
    let far = |s: Segment| s.tcp(|tcp| tcp.sequence(0xf000_0000));
    assert_eq!(flow.push_as(4, far), Verdict::Passed(Pass::TcpOverlap));
    assert_eq!(flow.finish(), [[3], [4]]);
}

#[test]
fn what_fits_a_gap_waits_alone_or_meets_its_neighbours() {
    let orders: [&[usize]; 6] = [
        &[3, 5, 7, 2, 4, 6],
        &[7, 6, 5, 4, 3, 2],
        &[3, 4, 2, 6, 5, 7],
        &[2, 7, 3, 6, 4, 5],
        &[5, 3, 4, 7, 6, 2],
        &[4, 6, 5, 3, 2, 7],
    ];
    for order in orders {
        let mut flow = Connection::begun(holes());
        for &place in order {
            assert_eq!(flow.push_as(place, |s| s), Verdict::Waits);
        }
        flow.push(&[1]);
        assert_eq!(flow.waiting(), 0);
        assert_eq!(flow.finish(), [[1, 2, 3, 4, 5, 6, 7]], "{order:?}");
        assert_eq!(flow.released(Release::Filled), 6);
    }
}

#[test]
fn a_filled_hole_lets_leave_what_is_before_the_next_one() {
    let mut flow = Connection::begun(holes());
    flow.push(&[2, 3, 5, 1]);
    assert_eq!(flow.waiting(), 1);
    flow.pass(HOLD_NS);
    assert_eq!(flow.left(), [[1, 2, 3]]);
    flow.push(&[4]);
    assert_eq!(flow.finish(), [[4, 5]]);
}

#[test]
fn numbers_wrap() {
    let mut flow = Connection::new(holes());
    for (place, sequence) in [(0_usize, u32::MAX - 149), (2, 50), (1, u32::MAX - 49), (3, 150)] {
        let id = place as u16;
        let frame = grosso_testkit::Packet::new().ethernet(|e| e).ipv4(move |ip| ip.id(id));
        let frame = frame.tcp(move |tcp| tcp.sequence(sequence)).payload_len(100).build();
        flow.push_frame(place, &frame);
        flow.pass(HOLD_NS - 1);
    }
    assert_eq!(flow.finish(), [vec![0], vec![1, 2, 3]]);
    assert_eq!(flow.released(Release::Filled), 1);
}

#[test]
fn active_and_the_head_is_closed_it_leaves_at_once() {
    let closes: [(Edit, usize); 3] = [(|s| s.tcp(Tcp::psh), 100), (|s| s, 99), (|s| s.tos(4), 100)];
    for (change, len) in closes {
        let mut flow = Connection::begun(holes());
        flow.push(&[1, 3]);
        flow.push_len(2, len, change);
        let left = flow.left();
        assert!(!left.is_empty() && left[0][0] == 1, "{left:?}");
    }
}

#[test]
fn active_and_the_hold_is_over_what_continues_the_flow_leaves() {
    let mut flow = Connection::begun(holes());
    flow.push(&[1, 2, 4]);
    flow.session.now_ns += HOLD_NS - 1;
    flow.session.poll_end();
    assert_eq!(flow.left(), Vec::<Vec<usize>>::new());
    flow.session.now_ns += 1;
    flow.session.poll_end();
    assert_eq!(flow.left(), [[1, 2]]);
    assert_eq!(flow.waiting(), 1);
}

#[test]
fn active_and_the_hole_stays_everything_leaves_at_once() {
    let mut flow = Connection::begun(holes());
    flow.push(&[2, 3, 5]);
    let deadline = flow.session.deadline();
    assert_eq!(deadline, Some(flow.session.now_ns + HOLE_NS));
    flow.pass(HOLE_NS - 1);
    assert_eq!(flow.left(), Vec::<Vec<usize>>::new());
    flow.pass(1);
    assert_eq!(flow.left(), [vec![2, 3], vec![5]]);
    assert_eq!(flow.released(Release::HoleTime), 3);
    assert_eq!(flow.session.left.last().unwrap().closed, Close::HoldTime);
    // The flow continues after this packet.
    flow.push(&[6]);
    assert_eq!(flow.waiting(), 0);
}

#[test]
fn what_fills_a_hole_in_time_may_be_seen_one_full_poll_late() {
    // While packets arrive, the thread that processes them sleeps until long after the hole's deadline.
    let after_sleep = |filled_in_time: bool| {
        let mut flow = Connection::begun(holes());
        flow.push(&[2]);
        flow.session.poll_end();
        flow.session.now_ns += 9 * HOLE_NS;
        flow.push(&[3]);
        flow.session.poll_end_full();
        assert_eq!(flow.waiting(), 2);
        if filled_in_time {
            flow.push(&[1]);
        } else {
            flow.push(&[4]);
        }
        flow.session.poll_end_full();
        assert_eq!(flow.waiting(), 0);
        (flow.released(Release::Filled), flow.released(Release::HoleTime))
    };
    assert_eq!(after_sleep(true), (2, 0));
    assert_eq!(after_sleep(false), (0, 3));
}

#[test]
fn trains_go_on_behind_full_polls_longer_than_they_are_held_and_no_longer_than_a_jiffy() {
    let mut flow = Connection::begun(holes());
    flow.push(&[1]);
    flow.session.poll_end_full();
    flow.session.now_ns += HOLD_NS;
    flow.push(&[2]);
    flow.session.poll_end_full();
    assert!(flow.left().is_empty());
    flow.session.now_ns += 1_000_000 - HOLD_NS;
    flow.session.poll_end_full();
    assert_eq!(flow.left(), [[1, 2]]);
}

#[test]
fn the_time_of_a_hole_starts_when_it_appears_however_long_the_flow_was_idle() {
    let mut flow = Connection::begun(holes());
    flow.session.now_ns += 50 * HOLE_NS;
    flow.push(&[2]);
    flow.pass(HOLE_NS - 1);
    assert_eq!(flow.waiting(), 1);
}

#[test]
fn any_and_the_oldest_has_waited_twice_as_long_everything_leaves_however_many_holes_filled() {
    let mut flow = Connection::begun(holes());
    let start = flow.session.now_ns;
    // A hole is filled every 60 us, and another one appears, so the timer for holes restarts each time.
    flow.push(&[2, 4, 6, 8, 10, 12]);
    for place in [1, 3, 5] {
        flow.pass(HOLE_NS * 6 / 10);
        flow.push(&[place]);
    }
    assert_eq!(flow.waiting(), 0);
    assert_eq!(flow.released(Release::TotalTime), 4, "{:?}", flow.session.stats().reorder);
    assert!(flow.session.left.iter().all(|left| left.at_ns <= start + 2 * HOLE_NS));
}

#[test]
fn recovery_ends_when_what_was_given_up_has_come() {
    // The table holds only two flows, and a flow in recovery is not evicted. Segments 1 and 3 of this flow are missing.
    let acknowledgment: (usize, usize, Edit) = (9, 0, |s| s.tcp(|tcp| tcp.ack(200)));
    let segment = |place| (place, 100, (|s| s) as Edit);
    let cases = [
        (vec![], true),
        (vec![segment(0)], true),
        (vec![segment(1)], true),
        (vec![segment(1), segment(3)], false),
        // A packet that no waiting packet may overtake also ends the wait for missing packets.
        (vec![acknowledgment], false),
    ];
    for (comes, is_spared) in cases {
        let mut profile = holes();
        profile.reorder.flows = 2;
        let mut flows = Connection::new(profile);
        // The clock starts later than the time for which an idle flow is remembered.
        flows.session.now_ns = 1_000_000_000;
        flows.push(&[0]);
        flows.pass(HOLD_NS);
        flows.push(&[2, 4]);
        flows.pass(HOLE_NS);
        for (place, len, change) in &comes {
            flows.push_len(*place, *len, *change);
        }
        // Adds another idle flow, which was active more recently.
        flows.session.now_ns += 1;
        flows.push_as(0, |s| s.tcp(|tcp| tcp.source_port(2)));
        flows.pass(HOLD_NS);
        // A third flow takes over the entry of one of the first two.
        flows.push_as(0, |s| s.tcp(|tcp| tcp.source_port(3)));
        flows.pass(HOLD_NS);
        flows.left();
        // If the flow is still remembered, it continues. If it was forgotten, it starts again, and its packet waits.
        flows.push(&[5]);
        let came: Vec<_> = comes.iter().map(|(place, ..)| place).collect();
        assert_eq!(flows.waiting(), u64::from(!is_spared), "came: {came:?}");
    }
}

#[test]
fn p52_abandoned_holes_give_the_waiting_time_and_other_late_packets_do_not() {
    // Each row contains the number of a packet, the time from the packet ahead to its arrival, and the resulting wait
    // for the next hole.
    for (place, took_ns, hole_ns) in [
        // The missing packet arrives: the estimate grows by half of the excess over the previous 10 us.
        (3, 40_000, 2 * (10_000 + 15_000)),
        // A duplicate of an earlier packet arrives.
        (0, 40_000, 20_000),
        // Too much time has passed for a delayed packet, so the packet is a retransmission.
        (3, HOLE_NS + 1, 20_000),
    ] {
        let mut profile = holes();
        profile.reorder = Reorder::adaptive(10_000, HOLE_NS);
        let mut flow = Connection::begun(profile);
        flow.push(&[2]);
        flow.pass(10_000);
        flow.push(&[1, 4]);
        // The wait is twice the time that the first hole took to fill.
        flow.pass(20_000);
        assert_eq!(flow.released(Release::HoleTime), 1);
        flow.pass(took_ns - 20_000);
        assert_eq!(flow.push_as(place, |s| s), Verdict::Passed(Pass::TcpLate));
        flow.push(&[6]);
        let deadline = flow.session.deadline();
        assert_eq!(deadline, Some(flow.session.now_ns + hole_ns), "{place} after {took_ns}");
    }
}

#[test]
fn recovery_ends_with_the_time_that_an_idle_flow_is_remembered() {
    let mut profile = holes();
    (profile.reorder.flows, profile.reorder.idle_ns) = (2, 10 * HOLE_NS);
    let mut flows = Connection::begun(profile);
    let of = |port: u16| move |s: Segment| s.tcp(move |tcp| tcp.source_port(port));
    flows.push(&[2]);
    for place in 3..20 {
        flows.pass(HOLE_NS);
        flows.push(&[place]);
    }
    flows.session.now_ns += 1;
    flows.push_as(0, of(2));
    flows.pass(HOLD_NS);
    // The third flow takes the entry of the first one, which is idle and has been inactive longer than the second.
    flows.push_as(0, of(3));
    flows.pass(HOLD_NS);
    flows.push_as(1, of(2));
    assert_eq!(flows.waiting(), 0);
    flows.finish();
}

#[test]
fn of_idle_flows_the_one_is_forgotten_of_which_nothing_came_for_longest() {
    let mut profile = holes();
    profile.reorder.flows = 2;
    let mut flows = Connection::begun(profile);
    let of = |port: u16| move |s: Segment| s.tcp(move |tcp| tcp.source_port(port));
    flows.push_as(0, of(2));
    flows.pass(HOLD_NS);
    flows.push(&[1]);
    flows.push_as(0, of(3));
    flows.pass(HOLD_NS);
    flows.push(&[2]);
    assert_eq!(flows.waiting(), 0);
    flows.finish();
}

#[test]
fn a_full_table_forgets_the_idle_then_those_that_wait_then_those_in_recovery() {
    let mut profile = holes();
    profile.reorder.flows = 3;
    let mut flows = Connection::new(profile);
    let of = |port: u16| move |s: Segment| s.tcp(move |tcp| tcp.source_port(port));
    flows.push_as(0, of(1));
    flows.push_as(0, of(2));
    flows.push_as(0, of(3));
    flows.pass(HOLD_NS);
    // The first flow is in recovery, packets of the second one wait, and the third one is idle.
    flows.push_as(2, of(1));
    flows.pass(HOLE_NS);
    flows.push_as(2, of(2));
    flows.push_as(1, of(3));
    flows.left();
    flows.push_as(0, of(4));
    assert_eq!(flows.released(Release::Evicted), 0, "nothing of the idle one waits");
    flows.push_as(0, of(5));
    assert_eq!(flows.released(Release::Evicted), 1, "the second waits longest");
    flows.push_as(0, of(6));
    assert_eq!(flows.released(Release::Evicted), 2, "then the fourth");
    // The first flow is still remembered, so it continues.
    flows.push_as(3, of(1));
    assert_eq!(flows.waiting(), 2);
    flows.finish();
}

#[test]
fn idle_for_long_a_flow_is_forgotten() {
    for (idle_ns, waits) in [(99_999_999, 0), (100_000_000, 1)] {
        let mut flow = Connection::begun(holes());
        flow.session.now_ns += idle_ns - HOLD_NS;
        flow.push(&[1]);
        assert_eq!(flow.waiting(), waits);
    }
}

#[test]
fn within_a_batch_the_poll_is_put_in_order_and_nothing_waits_longer() {
    let mut flow = Connection::new(within_batch());
    flow.push(&[2, 0, 1, 4]);
    flow.session.poll_end();
    assert_eq!(flow.left(), [vec![0, 1, 2], vec![4]]);
    flow.push(&[7, 6, 5, 3]);
    flow.session.poll_end();
    assert_eq!(flow.left(), [vec![3], vec![5, 6, 7]]);
    assert_eq!(flow.session.deadline(), None);
    assert_eq!(flow.released(Release::PollEnd), 1);
}

#[test]
fn within_batches_trains_go_on_across_polls_where_they_are_held() {
    let mut profile = within_batch();
    profile.limits.hold_ns = HOLD_NS;
    let mut flow = Connection::new(profile);
    for places in [[1, 0], [3, 2], [5, 4]] {
        flow.push(&places);
        flow.session.poll_end();
    }
    assert_eq!(flow.left(), Vec::<Vec<usize>>::new());
    flow.pass(HOLD_NS);
    assert_eq!(flow.left(), [[0, 1, 2, 3, 4, 5]]);
}
