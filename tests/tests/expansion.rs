//! Tests that an acknowledgment is expanded into at most as many acknowledgments as packets were delivered, and never
//! across a gap, for any input.

use grosso::{
    CoalesceOptions, Coalescer, Delivery, Frame, Profile, Sink,
    expand::{Expander, Unexpanded},
};
use grosso_rig::engine::PORTS;
use grosso_testkit::{
    Packet,
    headers::Tcp,
    oracle::{Link, is_right},
};
use grosso_wire::{LinkType, ipv4};
use proptest::{collection::vec, prelude::*};

const HOST: [u8; 4] = [10, 0, 0, 1];
const SERVER: [u8; 4] = [10, 0, 0, 9];
/// Number of payload bytes in most packets.
const LEN: u32 = 1000;
/// The first sequence number. It is close to the maximum, so that the numbers wrap.
const FIRST: u32 = 0xffff_c000;

/// A host that receives packets through a coalescer, with a connection on these ports.
struct Host {
    expander: Expander,
    profile: Profile,
    port: u16,
}

impl Host {
    fn new(profile: Profile) -> Self {
        Self { expander: Expander::new(LinkType::Ethernet, PORTS, 1), profile, port: 5000 }
    }

    /// Delivers the frames of one poll.
    fn deliver(&mut self, frames: &[Vec<u8>]) {
        let mut coalescer = Coalescer::new(
            CoalesceOptions::new(LinkType::Ethernet, 1).profile(self.profile.clone()).ports(PORTS),
        );
        let expander = &mut self.expander;
        let sink: &mut dyn Sink<_> =
            &mut |delivery: Delivery<'_, Vec<u8>>| expander.note(&delivery);
        for frame in frames {
            coalescer.push(Frame::new(frame.clone()), 0, sink);
        }
        coalescer.finish(sink);
    }

    /// Delivers packets of these lengths, starting at sequence number `start`. Returns the next sequence number.
    fn train(&mut self, start: u32, lens: &[u32]) -> u32 {
        let mut next = start;
        let frames: Vec<_> = lens.iter().map(|&len| self.packet(&mut next, len)).collect();
        self.deliver(&frames);
        next
    }

    fn packet(&self, next: &mut u32, len: u32) -> Vec<u8> {
        let (sequence, port) = (*next, self.port);
        *next = next.wrapping_add(len);
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.source(SERVER).destination(HOST));
        let tcp = |t: Tcp| t.source_port(80).destination_port(port).sequence(sequence);
        packet.tcp(tcp).payload_len(len as usize).build()
    }

    fn says(&self, edit: impl FnOnce(Tcp) -> Tcp, len: usize) -> Vec<u8> {
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.source(HOST).destination(SERVER));
        let tcp = |t: Tcp| edit(t.source_port(self.port).destination_port(80).sequence(7));
        packet.tcp(tcp).payload_len(len).build()
    }

    /// Expands the host's acknowledgment of this number.
    fn acknowledge(&mut self, number: u32) -> Option<Result<Vec<u32>, Unexpanded>> {
        let frame = self.says(|t| t.ack(number), 0);
        self.expand(frame)
    }

    fn expand(&mut self, frame: Vec<u8>) -> Option<Result<Vec<u32>, Unexpanded>> {
        let frame = Frame::new(frame);
        let expansion = self.expander.expand(&frame)?;
        Some(expansion.map(|expansion| {
            let mut out = vec![0; expansion.len()];
            for index in 0..expansion.count() {
                assert_eq!(expansion.write(index, &mut out), Some(out.len()));
                assert!(is_right(&out, Link::Ethernet));
            }
            expansion.numbers().to_vec()
        }))
    }
}

fn at(packets: u32) -> u32 {
    FIRST.wrapping_add(packets * LEN)
}

#[test]
fn trains_of_any_profile_are_expanded_at_the_ends_of_their_packets() {
    for profile in [Profile::linux(), Profile::freebsd(), Profile::rsc_82599(4096)] {
        let mut host = Host::new(profile);
        host.train(FIRST, &[LEN; 12]);
        assert_eq!(host.acknowledge(FIRST), Some(Err(Unexpanded::First)));
        assert_eq!(host.acknowledge(at(6)), Some(Ok(vec![at(2), at(4), at(6)])));
        assert_eq!(
            host.acknowledge(at(8)),
            Some(Err(Unexpanded::Short)),
            "two packets wait for an acknowledgment"
        );
        assert_eq!(host.acknowledge(at(12)), Some(Ok(vec![at(10), at(12)])));
        // Consecutive trains count as one, and so do packets outside trains.
        let next = host.train(at(12), &[LEN; 3]);
        let next = host.train(next, &[LEN]);
        assert_eq!(host.acknowledge(next), Some(Ok(vec![at(14), at(16)])));
    }
}

#[test]
fn a_hole_that_is_filled_is_acknowledged_once() {
    let mut host = Host::new(Profile::linux());
    host.train(FIRST, &[LEN; 4]);
    host.acknowledge(at(4));
    // One packet is missing. The sender would treat acknowledgments up to that packet as partial acknowledgments (RFC
    // 6582).
    host.train(at(5), &[LEN; 10]);
    assert_eq!(host.acknowledge(at(4)), Some(Err(Unexpanded::Unknown)));
    host.train(at(4), &[LEN]);
    assert!(host.acknowledge(at(15)).unwrap().is_err());
    // After the gap, expansion works as before.
    host.train(at(15), &[LEN; 6]);
    assert!(host.acknowledge(at(15)).unwrap().is_err());
    assert_eq!(host.acknowledge(at(21)), Some(Ok(vec![at(17), at(19), at(21)])));
}

#[test]
fn p12_a_duplicate_stays_one_and_news_in_between_counts() {
    let mut host = Host::new(Profile::linux());
    host.train(FIRST, &[LEN; 30]);
    host.acknowledge(at(2));
    for _ in 0..3 {
        assert_eq!(host.acknowledge(at(2)), Some(Err(Unexpanded::Duplicate)));
    }
    // A late, older acknowledgment counts as a duplicate, because expansion always continues from the newest one.
    assert_eq!(host.acknowledge(at(0)), Some(Err(Unexpanded::Duplicate)));
    let data = host.says(|t| t.ack(at(8)), 10);
    assert_eq!(host.expand(data), Some(Err(Unexpanded::Payload)));
    let sack = host.says(|t| t.ack(at(8)).options(&[1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2]), 0);
    assert_eq!(host.expand(sack), Some(Err(Unexpanded::Options)));
    assert_eq!(host.acknowledge(at(12)), Some(Ok(vec![at(10), at(12)])));
    let marked = host.says(|t| t.ack(at(20)).ece(), 0);
    assert_eq!(host.expand(marked), Some(Err(Unexpanded::Congestion)));
    let narrow = host.says(|t| t.ack(at(30)).ece().window(1), 0);
    assert_eq!(host.expand(narrow), Some(Err(Unexpanded::Window)));
}

#[test]
fn what_was_delivered_elsewhere_is_not_guessed() {
    let mut host = Host::new(Profile::linux());
    host.train(FIRST, &[LEN; 4]);
    host.acknowledge(FIRST);
    // A wrong or damaged number must not prevent later expansions forever.
    assert_eq!(host.acknowledge(at(1000)), Some(Ok(vec![at(2), at(1000)])));
    assert_eq!(host.acknowledge(at(4)), Some(Err(Unexpanded::First)));
    host.train(at(4), &[LEN; 4]);
    assert_eq!(host.acknowledge(at(8)), Some(Ok(vec![at(6), at(8)])));
}

#[test]
fn other_connections_and_those_without_trains_are_let_alone() {
    let mut host = Host::new(Profile::linux());
    host.train(FIRST, &[LEN; 8]);
    host.port = 5001;
    assert_eq!(host.acknowledge(at(8)), None);
    host.train(FIRST, &[LEN]);
    assert_eq!(host.acknowledge(at(1)), None, "one packet is not a train");
    // Trains to the host reveal nothing about the opposite direction.
    host.port = 5000;
    let own = host.packet(&mut FIRST.clone(), 0);
    assert_eq!(host.expand(own), None);
}

#[test]
fn a_connection_that_begins_or_ends_is_forgotten() {
    for flag in [Tcp::SYN, Tcp::RST] {
        for by_host in [false, true] {
            let mut host = Host::new(Profile::linux());
            host.train(FIRST, &[LEN; 8]);
            host.acknowledge(FIRST);
            if by_host {
                let begin = host.says(|t| t.flag(flag), 0);
                assert_eq!(host.expand(begin), None);
            } else {
                let packet = Packet::new().ethernet(|e| e);
                let packet = packet.ipv4(|ip| ip.source(SERVER).destination(HOST));
                let begin = packet.tcp(|t| t.source_port(80).destination_port(5000).flag(flag));
                host.deliver(&[begin.build()]);
            }
            assert_eq!(host.acknowledge(at(8)), Some(Err(Unexpanded::First)), "{flag} {by_host}");
        }
    }
}

#[test]
fn what_travels_in_a_tunnel_or_in_fragments_stays_one() {
    let mut host = Host::new(Profile::linux());
    host.train(FIRST, &[LEN; 8]);
    host.acknowledge(FIRST);
    let plain = host.says(|t| t.ack(at(8)), 0);
    let outer = Packet::new().ethernet(|e| e).ipv4(|ip| ip).gre(|g| g.sequence(1));
    let inner = outer.ipv4(|ip| ip.source(HOST).destination(SERVER));
    let tcp = |t: Tcp| t.source_port(5000).destination_port(80).sequence(7).ack(at(8));
    let tunnel = inner.tcp(tcp).build();
    assert_eq!(host.expand(tunnel), Some(Err(Unexpanded::Headers)));
    for fragment in [ipv4::MORE_FRAGMENTS, ipv4::MORE_FRAGMENTS | 3, 3] {
        let mut host = Host::new(Profile::linux());
        host.train(FIRST, &[LEN; 8]);
        host.acknowledge(FIRST);
        let mut piece = plain.clone();
        piece[20..22].copy_from_slice(&fragment.to_be_bytes());
        assert_eq!(host.expand(piece), None, "{fragment:#x}");
        assert_eq!(
            host.acknowledge(at(8)).unwrap().unwrap().len(),
            4,
            "the host sent no acknowledgment before"
        );
    }
    // Padding does not change the result, and is not copied.
    let mut host = Host::new(Profile::linux());
    host.train(FIRST, &[LEN; 8]);
    host.acknowledge(FIRST);
    let padded = [&plain[..], &[0; 6]].concat();
    assert_eq!(host.expand(padded).unwrap().unwrap().len(), 4);
}

#[test]
fn what_is_cut_short_is_nothing() {
    let mut host = Host::new(Profile::linux());
    host.train(FIRST, &[LEN; 8]);
    host.acknowledge(FIRST);
    let whole = host.says(|t| t.ack(at(8)).timestamps(1, 2), 0);
    for len in 0..whole.len() {
        assert!(!matches!(host.expand(whole[..len].to_vec()), Some(Ok(_))), "{len}");
    }
}

/// Event at a host.
#[derive(Clone, Debug)]
enum Step {
    /// Packets of these lengths arrive, at this distance from the previous ones.
    Train(i32, Vec<u32>),
    /// The host acknowledges this many of the received bytes, or more.
    Acknowledge(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let lens = prop_oneof![
        4 => (1..1400_u32, 1..60_usize).prop_map(|(len, packets)| vec![len; packets]),
        1 => vec(1..1400_u32, 1..10),
    ];
    let skip = prop_oneof![8 => Just(0), 1 => -5000..5000_i32];
    prop_oneof![
        (skip, lens).prop_map(|(skip, lens)| Step::Train(skip, lens)),
        (0..1100_u32).prop_map(Step::Acknowledge),
    ]
}

proptest! {
    /// Compares expansion with a list of the delivered packets. Whatever the order of arrival, an acknowledgment is
    /// expanded only if all data since the previous one was delivered in order, and then to at most one acknowledgment
    /// per two packets. Each copy acknowledges up to the end of a packet; the last copy is the original.
    #[test]
    fn never_more_acknowledgments_than_half_the_packets(steps in vec(step(), 1..40)) {
        let mut host = Host::new(Profile::linux());
        // The start of the first packet, and the ends of all packets delivered without a gap.
        let (mut begin, mut ends) = (FIRST, Vec::<u32>::new());
        let (mut next, mut before) = (FIRST, None);
        for step in steps {
            match step {
                Step::Train(skip, lens) => {
                    let start = next.wrapping_add_signed(skip);
                    if skip != 0 {
                        (begin, ends) = (start, Vec::new());
                    }
                    next = host.train(start, &lens);
                    let end = |end: &mut u32, len: &u32| {
                        *end = end.wrapping_add(*len);
                        Some(*end)
                    };
                    ends.extend(lens.iter().scan(start, end));
                }
                Step::Acknowledge(thousandths) => {
                    let len = u64::from(next.wrapping_sub(begin)) * u64::from(thousandths) / 1000;
                    let number = begin.wrapping_add(len as u32);
                    let expansion = host.acknowledge(number);
                    if let (Some(Ok(numbers)), Some(before)) = (&expansion, before) {
                        let offset = |number: u32| number.wrapping_sub(begin);
                        let acknowledged = |end: &&u32| {
                            offset(**end) > offset(before) && offset(**end) <= offset(number)
                        };
                        prop_assert!(offset(before) <= offset(next), "the expansion starts in delivered data");
                        let packets = ends.iter().filter(acknowledged).count();
                        prop_assert!(2 * numbers.len() <= packets.max(4) && numbers.len() >= 2);
                        let (last, copies) = numbers.split_last().unwrap();
                        prop_assert_eq!(*last, number);
                        prop_assert!(copies.iter().all(|copy| ends.contains(copy)));
                        prop_assert!(numbers.is_sorted_by_key(|number| offset(*number)));
                        prop_assert!(offset(copies[0]) > offset(before));
                    }
                    let is_behind = |earlier: u32| number.wrapping_sub(earlier) as i32 >= 0;
                    before = match before {
                        _ if expansion.is_none() => None,
                        // An acknowledgment of more bytes than were delivered is ignored.
                        _ if number.wrapping_sub(next) as i32 > 1 => None,
                        Some(before) if !is_behind(before) => Some(before),
                        _ => Some(number),
                    };
                }
            }
        }
    }
}
