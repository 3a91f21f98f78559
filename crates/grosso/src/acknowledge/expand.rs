//! The acknowledgments that a receiver would have sent for the packets of a train: what acknowledgement offload does.
//!
//! A receiver that is handed a superframe acknowledges it once. A sender that counts packets, or bytes up to a limit,
//! then grows slower than it would; more acknowledgments, at the ends of the packets that there were, give it its clock
//! back. To a sender that counts bytes without a limit they say nothing, so nothing does this unasked.

use arrayvec::ArrayVec;
use grosso_checksum::{update, update_u32};
use grosso_wire::tcp;

use crate::{
    acknowledge::record::{Ineligible, Record, Stamp},
    bytes::{put_u16, put_u32, u16_at, u32_at},
};

/// Acknowledgments in the place of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expansion<'a> {
    packet: &'a [u8],
    transport: usize,
    /// The window of all but the last.
    window: u16,
    /// What each acknowledges, the packet's own number last.
    numbers: ArrayVec<u32, EXPANDED_MAX>,
}

/// Why an acknowledgment stays one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unexpanded {
    /// It is none without data, or has FIN, SACK blocks or other news (rule 3 of section 2.3).
    Ineligible(Ineligible),
    /// It acknowledges nothing new: a duplicate counts for the sender.
    Duplicate,
    /// ECE or CWR is another than on the one before it.
    Congestion,
    /// Its window is smaller than that of the one before it, so none in between fits both.
    Window,
    /// It acknowledges fewer than four packets of trains, or none that are known.
    Short,
}

impl<'a> Expansion<'a> {
    /// Expands the acknowledgment in `packet`, whose TCP header starts at `transport` and whose checksum is complete.
    ///
    /// `before` is the receiver's acknowledgment before it. `ends` are the sequence numbers behind the packets of the
    /// trains that were delivered to the receiver, in order: there is at most one acknowledgment for two of them, at an
    /// end, so that nobody can be made to believe in more packets than there were.
    ///
    /// # Errors
    /// Why it stays one.
    pub fn of(
        packet: &'a [u8],
        transport: usize,
        before: &Record,
        ends: impl IntoIterator<Item = u32>,
    ) -> Result<Self, Unexpanded> {
        let record = Record::read(packet, transport, 0, 0, Stamp::Pushed);
        let record = record.map_err(Unexpanded::Ineligible)?;
        let acknowledged = distance(before.acknowledgment, record.acknowledgment);
        if acknowledged <= 0 {
            return Err(Unexpanded::Duplicate);
        }
        if (record.flags() ^ before.flags()) & (tcp::ECE | tcp::CWR) != 0 {
            return Err(Unexpanded::Congestion);
        }
        if record.window < before.window {
            return Err(Unexpanded::Window);
        }
        let mut numbers = ArrayVec::<u32, EXPANDED_MAX>::new();
        let (mut reached, mut packets) = (before.acknowledgment, 0);
        for end in ends {
            // Ends of what was acknowledged before, of what is not yet, and such as go back, are none.
            if distance(reached, end) <= 0 || distance(end, record.acknowledgment) < 0 {
                continue;
            }
            (reached, packets) = (end, packets + 1);
            let is_second = packets % 2 == 0 && end != record.acknowledgment;
            if is_second && numbers.len() + 1 < EXPANDED_MAX {
                numbers.push(end);
            }
        }
        // The last one is for two packets as well.
        if packets % 2 != 0 || reached != record.acknowledgment {
            numbers.pop();
        }
        if numbers.is_empty() {
            return Err(Unexpanded::Short);
        }
        numbers.push(record.acknowledgment);
        Ok(Self { packet, transport, window: before.window, numbers })
    }

    /// How many there are, at least two.
    #[must_use]
    pub fn count(&self) -> usize {
        self.numbers.len()
    }

    /// What each acknowledges, in order; the packet's own number is last.
    #[must_use]
    pub fn numbers(&self) -> &[u32] {
        &self.numbers
    }

    /// How long after the first to send each of them, spaced over the nanoseconds in which the packets arrived that
    /// they acknowledge.
    pub fn delays_ns(&self, span_ns: u64) -> impl Iterator<Item = u64> + use<> {
        let last = (self.numbers.len() as u64 - 1).max(1);
        (0..=last)
            .map(move |index| (u128::from(span_ns) * u128::from(index) / u128::from(last)) as u64)
    }

    /// Writes one of them into the front of `out`, which has room for the packet, and says how long it is; `None` if
    /// there is none of this number, or no room. The checksum follows the changed fields (RFC 1624).
    #[must_use]
    pub fn write(&self, index: usize, out: &mut [u8]) -> Option<usize> {
        let number = *self.numbers.get(index)?;
        let out = out.get_mut(..self.packet.len())?;
        out.copy_from_slice(self.packet);
        if index + 1 < self.numbers.len() {
            let tcp = out.get_mut(self.transport..)?;
            let number_at = tcp::field::ACKNOWLEDGMENT.start;
            let window_at = tcp::field::WINDOW.start;
            let checksum_at = tcp::field::CHECKSUM.start;
            let checksum = u16_at(tcp, checksum_at);
            let checksum = update_u32(checksum, u32_at(tcp, number_at), number);
            let checksum = update(checksum, u16_at(tcp, window_at), self.window);
            put_u32(tcp, number_at, number);
            put_u16(tcp, window_at, self.window);
            put_u16(tcp, checksum_at, checksum);
        }
        Some(out.len())
    }
}

/// How far a sequence number lies behind another, in serial arithmetic (RFC 9293 section 3.4).
const fn distance(from: u32, to: u32) -> i32 {
    to.wrapping_sub(from) as i32
}

/// Most acknowledgments in the place of one: for a superframe of 64 KB in packets of 1500 bytes there are 22.
const EXPANDED_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use grosso_testkit::{
        Packet,
        headers::Tcp,
        oracle::{Link, is_right},
    };

    use super::*;

    const TRANSPORT: usize = 34;
    const MSS: u32 = 1000;

    fn packet(edit: impl FnOnce(Tcp) -> Tcp) -> Vec<u8> {
        Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|tcp| edit(tcp.window(700))).build()
    }

    fn before() -> Record {
        let bytes = packet(|tcp| tcp.ack(0_u32.wrapping_sub(MSS)).window(600));
        Record::read(&bytes, TRANSPORT, 0, 0, Stamp::Pushed).unwrap()
    }

    /// The ends of so many packets behind [`before`].
    fn ends(packets: u32) -> impl Iterator<Item = u32> {
        (0..packets).map(|i| i * MSS)
    }

    fn expanded(number: u32, packets: u32) -> Result<Vec<u32>, Unexpanded> {
        let bytes = packet(|tcp| tcp.ack(number));
        let expansion = Expansion::of(&bytes, TRANSPORT, &before(), ends(packets))?;
        Ok(expansion.numbers().to_vec())
    }

    #[test]
    fn one_for_two_packets_at_their_ends_and_the_last_is_its_own() {
        assert_eq!(expanded(5 * MSS, 6).unwrap(), [MSS, 3 * MSS, 5 * MSS]);
        assert_eq!(expanded(4 * MSS, 5).unwrap(), [MSS, 4 * MSS]);
        // It ends inside a packet.
        assert_eq!(expanded(4 * MSS + 1, 6).unwrap(), [MSS, 4 * MSS + 1]);
        // What lies behind it was not acknowledged.
        assert_eq!(expanded(3 * MSS, 40).unwrap(), [MSS, 3 * MSS]);
        for packets in 0..4 {
            let number = (packets.max(1) - 1) * MSS;
            assert_eq!(expanded(number, packets), Err(Unexpanded::Short), "{packets}");
        }
    }

    #[test]
    fn never_more_than_the_packets_there_were() {
        for packets in 4..200 {
            let numbers = expanded((packets - 1) * MSS, packets).unwrap();
            assert!(numbers.len() <= packets as usize / 2 && numbers.len() <= EXPANDED_MAX);
            assert!(numbers.is_sorted() && numbers.last() == Some(&((packets - 1) * MSS)));
        }
        // Whoever repeats an end, or goes back, says nothing.
        let bytes = packet(|tcp| tcp.ack(7 * MSS));
        let lies = [MSS; 100].into_iter().chain([0, 2 * MSS, MSS]);
        assert_eq!(Expansion::of(&bytes, TRANSPORT, &before(), lies), Err(Unexpanded::Short));
    }

    #[test]
    fn news_stays_one() {
        let refused = |edit: fn(Tcp) -> Tcp| {
            let bytes = packet(|tcp| edit(tcp.ack(9 * MSS)));
            Expansion::of(&bytes, TRANSPORT, &before(), ends(10)).unwrap_err()
        };
        assert_eq!(refused(|tcp| tcp.ack(0_u32.wrapping_sub(MSS))), Unexpanded::Duplicate);
        assert_eq!(refused(Tcp::ece), Unexpanded::Congestion);
        assert_eq!(refused(|tcp| tcp.window(599)), Unexpanded::Window);
        assert_eq!(refused(Tcp::fin), Unexpanded::Ineligible(Ineligible::Flags));
        let sack = |tcp: Tcp| tcp.options(&[1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        assert_eq!(refused(sack), Unexpanded::Ineligible(Ineligible::Options));
    }

    #[test]
    fn each_is_a_right_packet_whose_window_never_goes_back() {
        let bytes = packet(|tcp| tcp.ack(9 * MSS).timestamps(3, 4));
        let expansion = Expansion::of(&bytes, TRANSPORT, &before(), ends(10)).unwrap();
        let mut edge = before().acknowledgment.wrapping_add(600);
        for index in 0..expansion.count() {
            let mut out = [0; 200];
            let len = expansion.write(index, &mut out).unwrap();
            assert!(is_right(&out[..len], Link::Ethernet));
            let record = Record::read(&out[..len], TRANSPORT, 0, 0, Stamp::Pushed).unwrap();
            assert_eq!(record.acknowledgment, expansion.numbers()[index]);
            let right = record.acknowledgment.wrapping_add(record.window.into());
            assert!(distance(edge, right) >= 0 && distance(right, 9 * MSS + 700) >= 0);
            edge = right;
            if index + 1 == expansion.count() {
                assert_eq!(out[..len], bytes);
            }
        }
        assert_eq!(expansion.write(expansion.count(), &mut [0; 200]), None);
        assert_eq!(expansion.write(0, &mut [0; 20]), None);
        assert!(expansion.delays_ns(1000).eq([0, 250, 500, 750, 1000]));
    }
}
