//! Runs the contenders of a row in alternating rounds, and computes statistics of their times.

use crate::contender::{Boxed, Round};

/// Statistics of a contender's rounds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    /// Nanoseconds per packet of each round, in order.
    pub(crate) rounds: Vec<f64>,
    /// Median of the rounds.
    pub(crate) median: f64,
    /// Median of the absolute differences between the rounds and their median.
    pub(crate) spread: f64,
    /// Median, over all rounds, of this contender's time divided by the first contender's time in the same round.
    pub(crate) ratio: f64,
}

/// Runs every contender's workload `rounds` times, alternating, after one uncounted round.
///
/// A contender that fails gets an error instead of figures. If the first contender fails, all fail, because their
/// ratios refer to it.
pub(crate) fn alternate(
    contenders: &mut [Boxed<'_>],
    rounds: usize,
) -> Vec<Result<Figures, String>> {
    let mut times: Vec<Result<Vec<f64>, String>> = vec![Ok(Vec::new()); contenders.len()];
    for turn in 0..=rounds {
        for (contender, times) in contenders.iter_mut().zip(&mut times) {
            let Ok(so_far) = times else { continue };
            match contender.round().map(Round::ns_a_packet) {
                Ok(_) if turn == 0 => {}
                Ok(time) => so_far.push(time),
                Err(error) => *times = Err(error),
            }
        }
    }
    let first = times.first().cloned().unwrap_or_else(|| Ok(Vec::new()));
    times
        .into_iter()
        .map(|times| Ok(figures(times?, first.as_ref().map_err(Clone::clone)?)))
        .collect()
}

fn figures(rounds: Vec<f64>, first: &[f64]) -> Figures {
    let median_time = median(&rounds);
    let distances: Vec<f64> = rounds.iter().map(|time| (time - median_time).abs()).collect();
    let ratios: Vec<f64> = rounds.iter().zip(first).map(|(time, first)| time / first).collect();
    Figures { median: median_time, spread: median(&distances), ratio: median(&ratios), rounds }
}

/// Returns the middle value, or the mean of the two in the middle; zero for an empty slice.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        len if len % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, rc::Rc};

    use super::*;
    use crate::contender::{About, Contender, Peer};

    /// A contender that reports configured nanoseconds and records its rounds.
    struct Told {
        name: char,
        ns: Vec<u64>,
        turns: Rc<RefCell<String>>,
    }

    impl Contender for Told {
        fn about(&self) -> About {
            About::new(Peer::Machine, "", "")
        }

        fn round(&mut self) -> Result<Round, String> {
            self.turns.borrow_mut().push(self.name);
            self.ns.pop().map(|ns| Round { ns, packets: 10 }).ok_or_else(|| "gone".to_owned())
        }

        fn output(&mut self) -> Result<Vec<Vec<u8>>, String> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn medians_of_odd_and_even() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn rounds_alternate_and_the_first_does_not_count() {
        let turns = Rc::new(RefCell::new(String::new()));
        let told = |name, ns: &[u64]| -> Boxed<'static> {
            Box::new(Told { name, ns: ns.to_vec(), turns: Rc::clone(&turns) })
        };
        // The times are taken from the end: the last one belongs to the uncounted round.
        let mut contenders =
            [told('a', &[100, 200, 300, 9000]), told('b', &[300, 200, 600, 9000]), told('c', &[5])];
        let figures = alternate(&mut contenders, 3);
        assert_eq!(*turns.borrow(), "abcabcabab");
        let [Ok(first), Ok(second), Err(error)] = &figures[..] else { panic!("{figures:?}") };
        assert_eq!((first.median, first.spread, first.ratio), (20.0, 10.0, 1.0));
        assert_eq!(second.rounds, [60.0, 20.0, 30.0]);
        assert_eq!((second.median, second.spread, second.ratio), (30.0, 10.0, 2.0));
        assert_eq!(error, "gone");
    }
}
