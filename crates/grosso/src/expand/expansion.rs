//! Expansion of an acknowledgment into the acknowledgments that a receiver would have sent for the individual packets
//! of a train.
//!
//! A receiver of a superframe acknowledges it once. If the sender counts packets, or bytes up to a limit, its
//! congestion window then grows more slowly; acknowledgments at the ends of the original packets restore the growth. A
//! sender that counts bytes without a limit gains nothing, so expansion is off by default.

use arrayvec::ArrayVec;
use grosso_checksum::{update, update_u32};
use grosso_wire::{ipv4, tcp};

use crate::{
    acknowledge::{Ineligible, Record, Stamp},
    bytes::{put_u16, put_u32, u16_at, u32_at},
    checksum::Checksum,
    meta::Meta,
    reasons::reasons,
};

/// Several acknowledgments that replace a single one.
///
/// The last acknowledgment is the original packet; the others are copies of it without trailing padding. In IPv4, DF is
/// set in each copy. Only the host could assign an identification to a copy, and packets with DF need none (RFC 6864
/// section 4.1). The copies are short enough for any network (RFC 791 section 3.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expansion<'a> {
    packet: &'a [u8],
    headers: Headers,
    meta: Meta,
    /// Window of all acknowledgments except the last.
    window: u16,
    /// Acknowledgment numbers. The last is that of the original packet.
    numbers: ArrayVec<u32, EXPANDED_MAX>,
}

/// Offsets of the headers of an acknowledgment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Headers {
    /// Offset of the IPv4 header, if there is one. There is at most one.
    pub(super) ipv4: Option<usize>,
    /// Offset of the TCP header.
    pub(super) transport: usize,
}

reasons! {
    /// Reason why an acknowledgment is not expanded.
    Unexpanded {
        /// This is the first acknowledgment since the first train on its connection, or the previous one covers data
        /// that was not delivered here.
        First = "first",
        /// Some data after the previous acknowledgment was delivered out of order, or its record was evicted.
        Unknown = "unknown",
        /// The headers are truncated, or are not a single IP header followed by TCP.
        Headers = "headers",
        /// A flag other than ACK, PSH, ECE and CWR is set.
        Flags = "flags",
        /// The packet has payload, which must not be sent twice.
        Payload = "payload",
        /// The packet has a TCP option other than a timestamp, for example SACK blocks.
        Options = "options",
        /// The packet acknowledges no new data: the sender counts duplicates (P12).
        Duplicate = "duplicate",
        /// ECE, CWR or AE differs from the previous acknowledgment.
        Congestion = "congestion",
        /// The window is smaller than the previous acknowledgment's, so no window for the copies would fit both.
        Window = "window",
        /// The packet may be fragmented, and it is longer than the size that every network must carry unfragmented, so
        /// copies would need their own identifications (RFC 6864 section 4.2).
        Identification = "identification",
        /// The packet acknowledges fewer than four packets.
        Short = "short",
    }
}

impl From<Ineligible> for Unexpanded {
    fn from(reason: Ineligible) -> Self {
        match reason {
            Ineligible::Truncated => Self::Headers,
            Ineligible::Flags => Self::Flags,
            Ineligible::Payload => Self::Payload,
            Ineligible::Options => Self::Options,
        }
    }
}

impl<'a> Expansion<'a> {
    /// Expands the acknowledgment in `packet`, which must have the length that its IP header declares.
    ///
    /// `before` is the receiver's previous acknowledgment. `ends` yields, in order, the sequence number after each
    /// packet of the delivered trains. Creates at most one acknowledgment per two packets, each at the end of a packet,
    /// so that no peer can make the sender count more packets than it sent.
    pub(super) fn of(
        packet: &'a [u8],
        headers: Headers,
        meta: &Meta,
        before: &Record,
        ends: impl IntoIterator<Item = u32>,
    ) -> Result<Self, Unexpanded> {
        let record = Record::read(packet, headers.transport, 0, 0, Stamp::Pushed)?;
        let acknowledged = distance(before.acknowledgment, record.acknowledgment);
        if acknowledged <= 0 {
            return Err(Unexpanded::Duplicate);
        }
        if (record.flags() ^ before.flags()) & CONGESTION != 0 {
            return Err(Unexpanded::Congestion);
        }
        if record.window < before.window {
            return Err(Unexpanded::Window);
        }
        if !headers.may_be_copied(packet) {
            return Err(Unexpanded::Identification);
        }
        let numbers = numbers(before.acknowledgment, record.acknowledgment, ends);
        if numbers.len() < 2 {
            return Err(Unexpanded::Short);
        }
        let checksum = match meta.checksum {
            Checksum::Partial { .. } => meta.checksum,
            _ => Checksum::None,
        };
        let meta = Meta { checksum, ..*meta };
        Ok(Self { packet, headers, meta, window: before.window, numbers })
    }

    /// Returns the number of acknowledgments, at least two.
    #[must_use]
    pub fn count(&self) -> usize {
        self.numbers.len()
    }

    /// Returns the acknowledgment numbers in order. The last is that of the original packet.
    #[must_use]
    pub fn numbers(&self) -> &[u32] {
        &self.numbers
    }

    /// Returns the delays in nanoseconds of the acknowledgments after the first. They are spread over `span_ns`, the
    /// time within which the acknowledged packets arrived.
    pub fn delays_ns(&self, span_ns: u64) -> impl Iterator<Item = u64> + use<> {
        let last = (self.numbers.len() as u64 - 1).max(1);
        (0..=last)
            .map(move |index| (u128::from(span_ns) * u128::from(index) / u128::from(last)) as u64)
    }

    /// Returns the length of each acknowledgment in bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it has headers")]
    pub fn len(&self) -> usize {
        self.packet.len()
    }

    /// Returns the metadata of the copies. Their checksum is partial if the original's is.
    #[must_use]
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Writes acknowledgment `index` to the start of `out` and returns its length, or `None` if the index is out of
    /// range or `out` is too short. Complete checksums are updated incrementally (RFC 1624); partial checksums need no
    /// update.
    #[must_use]
    pub fn write(&self, index: usize, out: &mut [u8]) -> Option<usize> {
        let number = *self.numbers.get(index)?;
        let out = out.get_mut(..self.packet.len())?;
        out.copy_from_slice(self.packet);
        if index + 1 < self.numbers.len() {
            self.headers.forbid_fragments(out);
            self.acknowledge(number, out.get_mut(self.headers.transport..)?);
        }
        Some(out.len())
    }

    fn acknowledge(&self, number: u32, tcp: &mut [u8]) {
        let number_at = tcp::field::ACKNOWLEDGMENT.start;
        let window_at = tcp::field::WINDOW.start;
        if !matches!(self.meta.checksum, Checksum::Partial { .. }) {
            let checksum_at = tcp::field::CHECKSUM.start;
            let checksum = update_u32(u16_at(tcp, checksum_at), u32_at(tcp, number_at), number);
            let checksum = update(checksum, u16_at(tcp, window_at), self.window);
            put_u16(tcp, checksum_at, checksum);
        }
        put_u32(tcp, number_at, number);
        put_u16(tcp, window_at, self.window);
    }
}

impl Headers {
    /// Returns whether copies need no identification of their own (RFC 6864 section 4), because they have DF set or are
    /// too short to be fragmented.
    fn may_be_copied(self, packet: &[u8]) -> bool {
        let Some(ip) = self.ipv4 else { return true };
        let fragment = u16_at(packet, ip + ipv4::field::FRAGMENT.start);
        fragment & ipv4::DONT_FRAGMENT != 0 || packet.len() - ip <= ipv4::MTU_MIN.into()
    }

    fn forbid_fragments(self, packet: &mut [u8]) {
        let Some(ip) = self.ipv4.and_then(|at| packet.get_mut(at..)) else { return };
        let (fragment_at, checksum_at) = (ipv4::field::FRAGMENT.start, ipv4::field::CHECKSUM.start);
        let fragment = u16_at(ip, fragment_at);
        let forbidden = fragment | ipv4::DONT_FRAGMENT;
        put_u16(ip, checksum_at, update(u16_at(ip, checksum_at), fragment, forbidden));
        put_u16(ip, fragment_at, forbidden);
    }
}

/// Returns the acknowledgment numbers to insert between `before` and `last`: one for every second packet end in `ends`,
/// leaving at least two packets for the last acknowledgment.
fn numbers(
    before: u32,
    last: u32,
    ends: impl IntoIterator<Item = u32>,
) -> ArrayVec<u32, EXPANDED_MAX> {
    let mut numbers = ArrayVec::new();
    let (mut reached, mut packets) = (before, 0);
    for end in ends {
        // Skips an end that has already been acknowledged, is not acknowledged yet, or lies below an earlier end.
        if distance(reached, end) <= 0 || distance(end, last) < 0 {
            continue;
        }
        (reached, packets) = (end, packets + 1);
        if packets == PACKETS_MAX {
            break;
        }
        if packets % 2 == 0 && end != last {
            numbers.push(end);
        }
    }
    if packets < PACKETS_MAX && (packets % 2 != 0 || reached != last) {
        numbers.pop();
    }
    numbers.push(last);
    numbers
}

/// Returns the distance from one sequence number to another, in serial arithmetic (RFC 9293 section 3.4).
const fn distance(from: u32, to: u32) -> i32 {
    to.wrapping_sub(from) as i32
}

/// Maximum number of acknowledgments that replace a single one. A 64 KB superframe of 1500-byte packets needs 22.
const EXPANDED_MAX: usize = 32;
/// Maximum number of packets whose acknowledgment is expanded. The last acknowledgment covers any others.
const PACKETS_MAX: usize = 2 * EXPANDED_MAX;
/// Flags that echo congestion marks (RFC 3168) or count them (RFC 9768).
const CONGESTION: u16 = tcp::ECE | tcp::CWR | tcp::AE;

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use grosso_testkit::{
        Packet,
        headers::{Ipv4, Tcp},
        oracle::{Link, is_right},
    };

    use super::*;

    const HEADERS: Headers = Headers { ipv4: Some(14), transport: 34 };
    const MSS: u32 = 1000;

    fn packet(edit: impl FnOnce(Tcp) -> Tcp) -> Vec<u8> {
        Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|tcp| edit(tcp.window(700))).build()
    }

    fn before() -> Record {
        let bytes = packet(|tcp| tcp.ack(0_u32.wrapping_sub(MSS)).window(600));
        Record::read(&bytes, HEADERS.transport, 0, 0, Stamp::Pushed).unwrap()
    }

    /// Returns the end positions of the first `packets` packets after [`before`].
    fn ends(packets: u32) -> impl Iterator<Item = u32> {
        (0..packets).map(|i| i * MSS)
    }

    fn of(bytes: &[u8], ends: impl Iterator<Item = u32>) -> Result<Expansion<'_>, Unexpanded> {
        Expansion::of(bytes, HEADERS, &Meta::default(), &before(), ends)
    }

    fn expanded(number: u32, packets: u32) -> Result<Vec<u32>, Unexpanded> {
        let bytes = packet(|tcp| tcp.ack(number));
        of(&bytes, ends(packets)).map(|expansion| expansion.numbers().to_vec())
    }

    #[test]
    fn one_for_two_packets_at_their_ends_and_the_last_is_its_own() {
        assert_eq!(expanded(5 * MSS, 6).unwrap(), [MSS, 3 * MSS, 5 * MSS]);
        assert_eq!(expanded(4 * MSS, 5).unwrap(), [MSS, 4 * MSS]);
        // The acknowledgment number lies inside a packet.
        assert_eq!(expanded(4 * MSS + 1, 6).unwrap(), [MSS, 4 * MSS + 1]);
        // Packets after this acknowledgment number have not been acknowledged.
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
            assert_eq!(numbers.len(), (packets as usize / 2).min(EXPANDED_MAX), "{packets}");
            assert!(numbers.is_sorted() && numbers.last() == Some(&((packets - 1) * MSS)));
        }
        // An end position that repeats or goes backwards is ignored.
        let bytes = packet(|tcp| tcp.ack(7 * MSS));
        let lies = [MSS; 100].into_iter().chain([0, 2 * MSS, MSS]);
        assert_eq!(of(&bytes, lies), Err(Unexpanded::Short));
    }

    #[test]
    fn no_more_ends_are_looked_at_than_there_can_be_acknowledgments() {
        let bytes = packet(|tcp| tcp.ack(1 << 30));
        let mut looked_at = 0;
        let expansion = of(&bytes, (0..1 << 30).inspect(|_| looked_at += 1)).unwrap();
        assert_eq!((expansion.count(), looked_at), (EXPANDED_MAX, PACKETS_MAX));
    }

    #[test]
    fn news_stays_one() {
        let refused = |edit: fn(Tcp) -> Tcp| {
            let bytes = packet(|tcp| edit(tcp.ack(9 * MSS)));
            of(&bytes, ends(10)).unwrap_err()
        };
        assert_eq!(refused(|tcp| tcp.ack(0_u32.wrapping_sub(MSS))), Unexpanded::Duplicate);
        assert_eq!(refused(Tcp::ece), Unexpanded::Congestion);
        assert_eq!(refused(|tcp| tcp.window(599)), Unexpanded::Window);
        assert_eq!(refused(Tcp::fin), Unexpanded::Flags);
        let sack = |tcp: Tcp| tcp.options(&[1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        assert_eq!(refused(sack), Unexpanded::Options);
    }

    #[test]
    fn each_is_a_right_packet_whose_window_never_goes_back() {
        let bytes = packet(|tcp| tcp.ack(9 * MSS).timestamps(3, 4));
        let expansion = of(&bytes, ends(10)).unwrap();
        let mut edge = before().acknowledgment.wrapping_add(600);
        for index in 0..expansion.count() {
            let mut out = [0; 200];
            let len = expansion.write(index, &mut out).unwrap();
            assert!(is_right(&out[..len], Link::Ethernet));
            let record = Record::read(&out[..len], 34, 0, 0, Stamp::Pushed).unwrap();
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

    #[test]
    fn copies_that_could_be_fragmented_forbid_it_so_that_their_identification_says_nothing() {
        let packet = |edit: fn(Ipv4) -> Ipv4, len: usize| {
            let packet = Packet::new().ethernet(|e| e).ipv4(|ip| edit(ip.id(77)));
            packet.tcp(|tcp| tcp.window(700).ack(9 * MSS).options(&[1; 40][..len])).build()
        };
        let copy = |bytes: &[u8]| {
            let expansion = of(bytes, ends(10)).unwrap();
            let mut out = [0; 200];
            let len = expansion.write(0, &mut out).unwrap();
            assert!(is_right(&out[..len], Link::Ethernet));
            (u16_at(&out, 18), u16_at(&out, 20))
        };
        let fragmentable = packet(|ip| ip.df(false), 0);
        assert_eq!(copy(&fragmentable), (77, ipv4::DONT_FRAGMENT));
        assert_eq!(copy(&packet(|ip| ip.df(true), 0)), (77, ipv4::DONT_FRAGMENT));
        // With IP options, the packet is longer than the size that every network must carry without fragmentation.
        let long = |edit: fn(Ipv4) -> Ipv4| {
            let packet = Packet::new().ethernet(|e| e).ipv4(|ip| edit(ip.options(&[1; 20])));
            packet.tcp(|tcp| tcp.window(700).ack(9 * MSS).timestamps(1, 2)).build()
        };
        let headers = Headers { ipv4: Some(14), transport: 54 };
        let of = |bytes: &[u8]| {
            let expansion = Expansion::of(bytes, headers, &Meta::default(), &before(), ends(10));
            expansion.map(|expansion| expansion.count())
        };
        assert_eq!(of(&long(|ip| ip.df(false))), Err(Unexpanded::Identification));
        assert_eq!(of(&long(|ip| ip.df(true))), Ok(5));
    }

    #[test]
    fn a_partial_checksum_stays_as_it_is_until_somebody_sums() {
        let mut bytes = packet(|tcp| tcp.ack(9 * MSS));
        put_u16(&mut bytes, 50, 0x1234);
        let checksum = Checksum::Partial { start: 34, offset: 16 };
        let meta = Meta { checksum, ..Meta::default() };
        let expansion = Expansion::of(&bytes, HEADERS, &meta, &before(), ends(10)).unwrap();
        let mut out = [0; 200];
        expansion.write(1, &mut out).unwrap();
        assert_eq!((u16_at(&out, 50), expansion.meta().checksum), (0x1234, checksum));
        let verified = Meta { checksum: Checksum::Complete { sum: 7 }, ..meta };
        let expansion = Expansion::of(&bytes, HEADERS, &verified, &before(), ends(10)).unwrap();
        assert_eq!(
            expansion.meta().checksum,
            Checksum::None,
            "the checksums of the copies are not verified"
        );
    }
}
