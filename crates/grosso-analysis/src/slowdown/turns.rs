//! Counts the turns that flows take on a link. Turns show how many other flows had packets between two packets of a
//! flow.

/// Counter of turns. A turn contains packets from [`TURN_FLOWS`] different flows, and ends when another flow sends one.
#[derive(Debug)]
pub(super) struct Turns {
    current: u32,
    /// Flows of the current turn so far.
    flows: u32,
}

impl Default for Turns {
    fn default() -> Self {
        Self { current: 1, flows: 0 }
    }
}

impl Turns {
    /// Returns the turn of the next packet, whose flow had its last packet in turn `last`; 0 if it had none. Between
    /// packets of turns N and N + 2 lies the whole turn N + 1, with packets of [`TURN_FLOWS`] other flows.
    pub(super) const fn count(&mut self, last: u32) -> u32 {
        if last == self.current {
            return last;
        }
        if self.flows == TURN_FLOWS {
            self.current = self.current.wrapping_add(1);
            self.flows = 0;
        }
        self.flows += 1;
        self.current
    }
}

/// Number of flows in a turn. If more than 15 flows alternate, most pairs of packets have a whole turn in between, and
/// a poll of 64 packets contains at most four packets of each flow.
const TURN_FLOWS: u32 = 10;
/// Maximum duration of a turn on a busy link, in nanoseconds: [`TURN_FLOWS`] times 5 us. A longer gap between packets
/// ends a poll of `whatif`.
pub(super) const TURN_NS_MAX: u64 = 50_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many of the pairs have a whole turn in between if this many flows alternate.
    fn separated(flows: usize) -> usize {
        let (mut turns, mut last) = (Turns::default(), vec![0; flows]);
        let mut separated = 0;
        for index in 0..60 * flows {
            let before = last[index % flows];
            last[index % flows] = turns.count(before);
            separated += usize::from(before > 0 && last[index % flows] - before >= 2);
        }
        separated
    }

    #[test]
    fn a_whole_turn_is_between_most_packets_of_16_flows_but_not_of_15() {
        assert_eq!(separated(10), 0);
        assert!(separated(15) <= 59 * 15 / 2 + 1, "{}", separated(15));
        assert!(separated(16) > 59 * 16 / 2, "{}", separated(16));
        assert_eq!(separated(20), 59 * 20);
    }

    #[test]
    fn packets_of_few_flows_stay_in_one_turn() {
        let mut turns = Turns::default();
        let mut last = [0; 4];
        for index in 0..1000 {
            last[index / 3 % 4] = turns.count(last[index / 3 % 4]);
        }
        assert_eq!(last, [1; 4]);
    }
}
