//! Packet boundaries in the data that one endpoint of a connection received in order.

use arrayvec::ArrayVec;

/// Contiguous packets, starting with the first unacknowledged packet. Consecutive packets of equal size form one
/// stretch.
#[derive(Clone, Debug, Default)]
pub(super) struct DeliveredRun {
    /// First sequence number of the run.
    start: u32,
    stretches: ArrayVec<Stretch, STRETCHES_MAX>,
    /// Total length in bytes.
    len: u32,
}

/// Stretch of packets of equal size, the last of which may be shorter.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    len: u32,
    /// Payload of each packet in bytes, at least 1.
    size: u32,
}

impl DeliveredRun {
    /// Adds the payload of a train whose packets, except the last, have `size` bytes each. A train that does not
    /// continue the run starts a new one: a receiver acknowledges no data after a hole until the hole is filled, and
    /// then acknowledges all of it at once.
    pub(super) fn append(&mut self, start: u32, payload_len: usize, size: usize) {
        let Ok(len) = u32::try_from(payload_len) else { return self.clear() };
        if len == 0 {
            return;
        }
        if self.len == 0 || start != self.end() || self.len.saturating_add(len) > RUN_BYTES_MAX {
            self.clear();
            self.start = start;
        }
        if len > RUN_BYTES_MAX {
            return;
        }
        let size = (size as u32).clamp(1, len);
        self.len += len;
        if let Some(last) = self.stretches.last_mut()
            && last.len.is_multiple_of(last.size)
            && (size == last.size || size == len && len < last.size)
        {
            last.len += len;
            return;
        }
        if self.stretches.is_full() {
            self.forget_first();
        }
        self.stretches.push(Stretch { len, size });
    }

    /// Removes the packets below this acknowledgment number.
    pub(super) fn forget(&mut self, acknowledged: u32) {
        let Some(mut acknowledged) = self.offset(acknowledged) else { return };
        while let Some(first) = self.stretches.first_mut() {
            if first.len > acknowledged {
                let packets_len = acknowledged / first.size * first.size;
                first.len -= packets_len;
                self.len -= packets_len;
                self.start = self.start.wrapping_add(packets_len);
                return;
            }
            acknowledged -= first.len;
            self.forget_first();
        }
    }

    /// Returns the end of every packet that ends after `after` and at or before `last`, as sequence numbers in
    /// ascending order. Both arguments must be [in the run](Self::holds). The ends are computed lazily.
    pub(super) fn ends(&self, after: u32, last: u32) -> impl Iterator<Item = u32> {
        let (start, after) = (self.start, after.wrapping_sub(self.start));
        let last = last.wrapping_sub(start);
        let mut begin = 0;
        let ends = self.stretches.iter().flat_map(move |&Stretch { len, size }| {
            let first = begin;
            begin += len;
            let skipped = after.saturating_sub(first) / size;
            (skipped..len.div_ceil(size)).map(move |packet| first + ((packet + 1) * size).min(len))
        });
        let ends = ends.skip_while(move |&end| end <= after).take_while(move |&end| end <= last);
        ends.map(move |end| start.wrapping_add(end))
    }

    /// Returns whether a sequence number is in the run or directly after it.
    pub(super) fn holds(&self, number: u32) -> bool {
        self.offset(number).is_some()
    }

    /// Returns the sequence number after the run.
    pub(super) fn end(&self) -> u32 {
        self.start.wrapping_add(self.len)
    }

    fn offset(&self, number: u32) -> Option<u32> {
        Some(number.wrapping_sub(self.start)).filter(|&offset| offset <= self.len)
    }

    fn forget_first(&mut self) {
        if let Some(first) = self.stretches.pop_at(0) {
            self.start = self.start.wrapping_add(first.len);
            self.len -= first.len;
        }
    }

    fn clear(&mut self) {
        self.stretches.clear();
        self.len = 0;
    }
}

/// Maximum number of stretches. Consecutive trains with equal packet sizes form one stretch, and a shorter packet ends
/// it.
pub(super) const STRETCHES_MAX: usize = 16;
/// Maximum length in bytes: the largest window that TCP can express (RFC 7323 section 2.3).
const RUN_BYTES_MAX: u32 = 1 << 30;

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, vec::Vec};

    use super::*;

    /// A sequence number just before the wrap.
    const START: u32 = 0xffff_f000;

    fn at(offset: u32) -> u32 {
        START.wrapping_add(offset)
    }

    fn run(trains: &[(u32, usize, usize)]) -> DeliveredRun {
        let mut run = DeliveredRun::default();
        trains.iter().for_each(|&(start, len, size)| run.append(at(start), len, size));
        run
    }

    fn ends(run: &DeliveredRun, after: u32, last: u32) -> Vec<u32> {
        run.ends(at(after), at(last)).map(|end| end.wrapping_sub(START)).collect()
    }

    #[test]
    fn packets_end_at_their_size_and_where_the_train_does() {
        let run = run(&[(0, 2500, 1000), (2500, 3000, 1000), (5500, 10, 10)]);
        assert_eq!(ends(&run, 0, 6000), [1000, 2000, 2500, 3500, 4500, 5500, 5510]);
        assert_eq!(ends(&run, 1000, 4500), [2000, 2500, 3500, 4500]);
        assert_eq!(ends(&run, 1001, 4499), [2000, 2500, 3500]);
        assert_eq!(
            (ends(&run, 5509, 6000), ends(&run, 5510, 6000)),
            (Vec::from([5510]), Vec::new())
        );
    }

    #[test]
    fn what_leaves_a_gap_or_goes_back_begins_anew() {
        for start in [3000, 1000, 0] {
            let run = run(&[(0, 2000, 1000), (start, 4000, 1000)]);
            assert!(run.holds(at(start)) && !run.holds(at(start).wrapping_sub(1)));
            assert_eq!(ends(&run, start, 9000).len(), 4, "{start}");
        }
        let empty = run(&[(0, 2000, 1000), (2000, 0, 7)]);
        assert_eq!(ends(&empty, 0, 9000), [1000, 2000]);
    }

    #[test]
    fn a_train_of_any_length_takes_little_and_costs_what_is_asked() {
        let mut run = run(&[(0, 1 << 29, 1)]);
        assert_eq!(run.ends(at(1 << 28), at(1 << 29)).take(3).count(), 3);
        run.append(at(1 << 29), 1 << 29, 1);
        assert_eq!(run.len, RUN_BYTES_MAX);
        run.append(at(1 << 30), 1, 1);
        assert_eq!((run.len, ends(&run, 1 << 30, u32::MAX >> 1)), (1, Vec::from([(1 << 30) + 1])));
        run.append(at((1 << 30) + 1), usize::MAX, usize::MAX);
        assert_eq!(run.len, 0);
    }

    /// Compares [`DeliveredRun`] with a plain list of the end positions of all packets.
    #[test]
    fn any_trains_and_acknowledgments_leave_what_a_list_would() {
        let mut random = 1_u64;
        let mut dice = |most: u64| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) % most
        };
        let (mut run, mut expected) = (DeliveredRun::default(), VecDeque::new());
        let (mut next, mut acknowledged, mut most) = (0_u32, 0_u32, 0);
        // Miri is several hundred times slower, and this few rounds do not fill the list.
        let rounds = if cfg!(miri) { 300 } else { 20_000_u64 };
        for round in 0..rounds {
            let size = 1 + dice(4) as u32 * 100;
            let packets = 1 + dice(6) as u32;
            let len = (packets - 1) * size + 1 + dice(size.into()) as u32;
            run.append(at(next), len as usize, size as usize);
            expected.extend((1..=packets).map(|packet| next + (packet * size).min(len)));
            next += len;
            // Now and then, nothing is acknowledged for a long time.
            if dice(2 + round / 100 % 20) == 0 {
                acknowledged += dice(u64::from(next - acknowledged) + 1) as u32;
                run.forget(at(acknowledged));
                expected.retain(|&end| end > acknowledged);
            }
            most = most.max(run.stretches.len());
            assert_eq!(run.end(), at(next));
            let known = ends(&run, acknowledged, next);
            match run.holds(at(acknowledged)) {
                true => assert!(known.iter().eq(&expected)),
                false => assert_eq!(
                    run.stretches.len(),
                    STRETCHES_MAX,
                    "discarded only if the run is full"
                ),
            }
        }
        assert!(most == STRETCHES_MAX || cfg!(miri));
    }
}
