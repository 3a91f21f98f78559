extern crate std;

use std::{println, vec::Vec};

use proptest::prelude::*;

use super::*;

const BASE: usize = 1280;
const TOP: usize = 1500;
const SECOND: u64 = 1_000_000_000;
/// Interval between polls.
const STEP_NS: u64 = SECOND / 10;

/// Path, its prober, and the packets sent over it.
struct Path {
    prober: Prober,
    now_ns: u64,
    /// Length of the longest packet that arrives, or `None` if the remote endpoint does not reply.
    mtu: Option<usize>,
    /// Round-trip time as a number of polls.
    delay: u64,
    answers: Vec<(u64, u64)>,
    asked: Vec<(u64, usize)>,
}

impl Path {
    fn new(mtu: Option<usize>, delay: u64) -> Self {
        let (answers, asked) = (Vec::new(), Vec::new());
        Self { prober: Prober::new(BASE), now_ns: SECOND, mtu, delay, answers, asked }
    }

    fn run(&mut self, seconds: u64, sends_long: bool) {
        for _ in 0..seconds * SECOND / STEP_NS {
            self.look(sends_long, &mut |_, _| true);
        }
    }

    fn look(&mut self, sends_long: bool, arrives: &mut dyn FnMut(u64, usize) -> bool) {
        self.now_ns += STEP_NS;
        let now_ns = self.now_ns;
        let (due, later) = self.answers.iter().partition(|(at, _)| *at <= now_ns);
        self.answers = later;
        let due: Vec<(u64, u64)> = due;
        due.iter().for_each(|(_, number)| self.prober.answered(now_ns, *number));
        for (number, len) in self.prober.poll(now_ns, TOP, sends_long).into_iter().flatten() {
            self.asked.push((now_ns, len));
            if self.mtu.is_some_and(|mtu| len <= mtu) && arrives(number, len) {
                self.answers.push((now_ns + self.delay * STEP_NS, number));
            }
        }
    }
}

/// Number of seconds that a search takes without a hint. Each length that does not arrive is probed three times.
const SEARCH_SECONDS: u64 = 20;

proptest! {
    /// RFC 8899 section 4.6.2: messages alone never lower the packet length, no matter what they claim or how often
    /// they arrive.
    #[test]
    fn an_answered_probe_refutes_any_message(said in prop::collection::vec(0usize..3000, 1..40), delay in 0u64..9) {
        let mut path = Path::new(Some(TOP), delay);
        for said in said {
            path.prober.hear(said);
            path.run(1, false);
            prop_assert!(!matches!(path.prober.known(), Measured::Narrow(_)));
            prop_assert_eq!(path.prober.settled(), None);
        }
        path.run(4, false);
        prop_assert!(!path.prober.is_questioned());
    }

    /// RFC 8899 sections 4.3 and 5.3: a black hole is found even without a message, and the search ends close to the
    /// path MTU.
    #[test]
    fn a_black_hole_is_found_and_measured(mtu in BASE..TOP, delay in 0u64..9, begun in 0u64..20) {
        let mut path = Path::new(Some(TOP), delay);
        path.run(begun, true);
        path.mtu = Some(mtu);
        path.run(5 + 3 + SEARCH_SECONDS, true);
        let settled = path.prober.settled().unwrap();
        prop_assert!(settled <= mtu && mtu - settled <= SEARCH_STEP, "{settled} of {mtu}");
        let Measured::Narrow(carries) = path.prober.known() else { unreachable!("it settled") };
        prop_assert!((settled..=mtu).contains(&carries), "{carries} of {mtu}");
    }

    /// RFC 8899 section 4.6.2: the length that a message gives is probed first, and is used if the probe is answered.
    #[test]
    fn a_true_message_is_confirmed(mtu in BASE..TOP, delay in 0u64..9) {
        let mut path = Path::new(Some(mtu), delay);
        path.run(1, false);
        path.prober.poll(path.now_ns, TOP, false);
        path.prober.hear(mtu);
        path.run(5, false);
        if mtu > BASE {
            prop_assert_eq!(path.prober.settled(), Some(mtu));
        }
        prop_assert!(matches!(path.prober.known(), Measured::Narrow(_)));
    }

    /// A message about a narrow path does not lower the measured length, but a greater length that it gives is probed.
    #[test]
    fn no_message_makes_a_narrow_path_narrower(mtu in BASE + 100..TOP, said in 0usize..3000, delay in 0u64..9) {
        let mut path = Path::new(Some(mtu), delay);
        path.run(5 + 3 + SEARCH_SECONDS, true);
        let settled = path.prober.settled().unwrap();
        for _ in 0..60 {
            path.prober.hear(said);
            path.run(1, true);
            prop_assert!(path.prober.settled().is_some_and(|now| (settled..=mtu).contains(&now)));
        }
    }

    /// Checks that a narrow path is measured again when it becomes narrower, without a message and without traffic.
    #[test]
    fn a_narrow_path_that_becomes_narrower_is_found(mtu in BASE + 100..TOP, less in 1usize..100, delay in 0u64..9) {
        let mut path = Path::new(Some(mtu), delay);
        path.run(5 + 3 + SEARCH_SECONDS, true);
        path.mtu = Some(mtu - less);
        path.run(RAISE_TIMER_MAX_NS / SECOND + 2 * SEARCH_SECONDS, false);
        let settled = path.prober.settled().unwrap();
        prop_assert!(settled <= mtu - less, "{settled} of {}", mtu - less);
    }

    /// RFC 8899 section 5.1.1, `PMTU_RAISE_TIMER`: a path that becomes wide again is noticed without traffic.
    #[test]
    fn a_path_that_is_wide_again_is_found(mtu in BASE..TOP, delay in 0u64..9) {
        let mut path = Path::new(Some(mtu), delay);
        path.run(5 + 3 + SEARCH_SECONDS, true);
        prop_assert!(path.prober.settled().is_some());
        path.mtu = Some(TOP);
        path.run(RAISE_TIMER_MAX_NS / SECOND + SEARCH_SECONDS, false);
        prop_assert_eq!((path.prober.known(), path.prober.settled()), (Measured::Whole, None));
    }

    /// RFC 8899 section 4.3: silence proves nothing, because the remote endpoint is not obliged to reply.
    #[test]
    fn silence_proves_nothing(said in prop::collection::vec(0usize..3000, 1..40)) {
        let mut path = Path::new(None, 0);
        for said in said {
            path.prober.hear(said);
            path.run(2, true);
            prop_assert_eq!((path.prober.known(), path.prober.settled()), (Measured::Nothing, None));
        }
    }

    /// RFC 8899 section 5.1.2, `MAX_PROBES`: two consecutive lost probes prove nothing.
    #[test]
    fn fewer_than_three_lost_probes_prove_nothing(lost in prop::collection::vec(0u8..3, 1..30)) {
        let mut path = Path::new(Some(TOP), 1);
        let mut left = lost.iter().cycle().copied();
        let mut losing = 0;
        for _ in 0..lost.len() * 100 {
            path.look(true, &mut |_, len| {
                if len == BASE {
                    return true;
                }
                let arrives = losing == 0;
                losing = if arrives { left.next().unwrap() } else { losing - 1 };
                arrives
            });
            prop_assert!(!matches!(path.prober.known(), Measured::Narrow(_)));
        }
    }

    /// Whatever arrives, the known length stays between the base and the longest packet sent, and few packets are sent.
    #[test]
    fn nothing_makes_it_send_much(
        events in prop::collection::vec((0usize..3000, 0u64..300, prop::option::of(0usize..2000), 0u64..30), 1..200),
    ) {
        let mut path = Path::new(Some(TOP), 1);
        for (said, number, mtu, delay) in events {
            (path.mtu, path.delay) = (mtu, delay);
            path.prober.hear(said);
            path.prober.answered(path.now_ns, number);
            path.run(1, number % 2 == 0);
            if let Measured::Narrow(len) = path.prober.known() {
                prop_assert!((BASE..TOP).contains(&len));
            }
        }
        for window in path.asked.windows(20) {
            prop_assert!(window[19].0 - window[0].0 >= SECOND, "{window:?}");
        }
    }
}

/// A path that is limited by a link on this host is not probed. When that limit changes, a new search starts.
#[test]
fn what_leaves_decides() {
    let mut prober = Prober::new(BASE);
    prober.hear(BASE);
    assert!(prober.poll(SECOND, BASE, true).is_none() && !prober.is_questioned());
    assert_eq!(prober.poll(SECOND, TOP, true), Some([(0, BASE), (1, TOP)]));
    prober.answered(SECOND, 7);
    assert_eq!(
        prober.known(),
        Measured::Nothing,
        "an answer to a probe that was not sent is ignored"
    );
    prober.answered(SECOND, 1);
    assert_eq!(prober.known(), Measured::Whole);
    assert_eq!(prober.poll(9 * SECOND, 9000, true), Some([(2, BASE), (3, 9000)]));
    assert_eq!(prober.known(), Measured::Nothing);
}

/// If a device's MTU keeps changing, only some of the changes cause probes.
#[test]
fn a_link_that_flips_costs_few_packets() {
    let mut prober = Prober::new(BASE);
    let looks = (0..1000u64)
        .map(|look| (SECOND + look * SECOND / 100, if look % 2 == 0 { TOP } else { 9000 }));
    let rounds = looks.filter(|(now_ns, top)| prober.poll(*now_ns, *top, true).is_some()).count();
    assert_eq!(rounds, 10, "one search per second");
}

/// If a remote endpoint stops replying, its path stays narrow for ten minutes.
#[test]
fn a_narrow_path_is_kept_for_a_while() {
    let mut path = Path::new(Some(1400), 1);
    path.run(5 + 3 + SEARCH_SECONDS, true);
    assert!(path.prober.settled().is_some());
    path.mtu = None;
    path.run(500, true);
    assert!(path.prober.settled().is_some());
    path.run(200, true);
    assert_eq!((path.prober.known(), path.prober.settled()), (Measured::Nothing, None));
}

/// Prints how many packets are sent on a path in an hour, depending on its MTU and on whether long packets are sent.
#[test]
fn a_path_costs_few_packets() {
    for (mtu, sends_long, at_most) in [
        (Some(TOP), false, 0),
        (Some(TOP), true, 1_500),
        (Some(BASE), true, 2_400),
        (Some(1400), true, 4_200),
        (Some(1400), false, 0),
        (None, true, 400),
    ] {
        let mut path = Path::new(mtu, 1);
        // Miri is several hundred times slower.
        let seconds = if cfg!(miri) { 60 } else { 3600 };
        path.run(seconds, sends_long);
        let asked = path.asked.len();
        println!(
            "{mtu:?}, long packets {sends_long}: {:.2} packets a second",
            asked as f64 / seconds as f64
        );
        assert!(asked <= at_most, "{asked} packets over {mtu:?}");
    }
}
