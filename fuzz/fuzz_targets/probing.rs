//! Path MTU probing with any messages, replies and losses: the known MTU stays between the base and the longest packet,
//! a path counts as narrow only after losses, and the prober never sends more than a few packets per second.

use std::collections::VecDeque;

use crate::Decisions;
use grosso::tunnel::probing::{Measured, Prober};

const BASE: usize = 1280;
const TOPS: [usize; 4] = [0, BASE, 1500, 65_535];
const SECOND: u64 = 1_000_000_000;
/// Maximum number of packets sent in less than a second. Each round consists of two packets. If probes are answered at
/// once, the search needs eleven more rounds after the first, to halve a range of 64 KiB down to 32 bytes.
const BURST_MAX: usize = 2 * (1 + 11);

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut decisions = Decisions::new(data);
    let mut prober = Prober::new(BASE);
    let (mut now_ns, mut top) = (SECOND, decisions.choose(&TOPS));
    let mut unanswered: VecDeque<(u64, u64)> = VecDeque::new();
    let mut sent_ns: VecDeque<u64> = VecDeque::new();
    let mut has_lost = false;
    while !decisions.is_over() {
        now_ns += u64::from(decisions.byte()) * SECOND / 64;
        has_lost |= unanswered.front().is_some_and(|(_, sent)| now_ns - sent >= SECOND);
        match decisions.byte() % 8 {
            0 => prober.hear(decisions.word().into()),
            1 => prober.answered(now_ns, decisions.word().into()),
            2 => top = decisions.choose(&TOPS),
            3 => has_lost |= unanswered.pop_front().is_some(),
            4..=5 => {
                if let Some((number, _)) = unanswered.pop_front() {
                    prober.answered(now_ns, number);
                }
            }
            _ => {
                let sends_long = decisions.byte() & 1 == 1;
                for (number, len) in prober.poll(now_ns, top, sends_long).into_iter().flatten() {
                    assert!((BASE..=top).contains(&len), "{len} bytes of {top}");
                    unanswered.push_back((number, now_ns));
                    sent_ns.push_back(now_ns);
                }
            }
        }
        while sent_ns.front().is_some_and(|sent| now_ns - sent >= SECOND) {
            sent_ns.pop_front();
        }
        assert!(sent_ns.len() <= BURST_MAX, "{} packets in a second", sent_ns.len());
        let narrow = match prober.known() {
            Measured::Narrow(len) => Some(len),
            Measured::Nothing | Measured::Whole => None,
        };
        for len in narrow.into_iter().chain(prober.settled()) {
            assert!((BASE..65_535).contains(&len), "{len} bytes arrive");
            assert!(has_lost, "every probe was answered in time");
        }
    }
}
