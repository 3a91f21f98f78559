//! Tests that batched or merged acknowledgments affect a sender in the same way as the original packets (P15).
#![cfg(target_os = "linux")]

use grosso::{
    CoalesceOptions, Coalescer, Delivery, Frame, Meta, Profile, Sink,
    acknowledge::Summary,
    coalesce::{Acknowledgments, Batch, Vector},
    expand::Expander,
};
use grosso_lab::model::{Acknowledgment, Counting, Sender};
use grosso_testkit::{Packet, headers::Tcp};
use grosso_wire::{LinkType, Ports};
use proptest::{collection::vec, prelude::*};

/// Number of payload bytes in each of the sender's segments.
const SEGMENT: u32 = 1448;
const NEAR: [u8; 4] = [10, 0, 0, 1];
const FAR: [u8; 4] = [10, 0, 0, 9];
/// The sender's first sequence number, close to wrapping around.
const FIRST: u32 = 0xffff_e000;

/// A generated packet from the receiver.
#[derive(Clone, Copy, Debug)]
struct Sent {
    acknowledgment: Acknowledgment,
    /// Whether the acknowledgment has SACK blocks, which are missing in records.
    is_selective: bool,
    /// Whether the device recorded when the acknowledgment arrived.
    is_stamped: bool,
    /// Whether the poll ends after this acknowledgment.
    ends_poll: bool,
}

#[derive(Clone, Debug)]
enum News {
    More(u32),
    Duplicate,
    Window(u16),
    Selective,
    Data(u32),
}

fn news() -> impl Strategy<Value = News> {
    prop_oneof![
        6 => (1..5_u32).prop_map(News::More),
        3 => Just(News::Duplicate),
        1 => (1..1000_u16).prop_map(News::Window),
        1 => Just(News::Selective),
        1 => (0..3_u32).prop_map(News::Data),
    ]
}

/// Returns the packets that a receiver sends. `counting` is the sender's way of counting acknowledgments.
fn acknowledgments(steps: &[(News, bool, bool, bool, u64)], counting: Counting) -> Vec<Sent> {
    let mut sender = Sender::new(counting, SEGMENT, FIRST);
    let mut last = Acknowledgment { number: FIRST, window: 500, ..Acknowledgment::default() };
    let mut sent = Vec::new();
    for (news, congestion_echo, is_stamped, ends_poll, gap_ns) in steps {
        let more = |segments: u32| (sender.flight() as u32).min(segments * SEGMENT);
        let forward = match news {
            News::More(segments) | News::Data(segments) => more(*segments),
            News::Duplicate | News::Window(_) | News::Selective => 0,
        };
        last = Acknowledgment {
            number: last.number.wrapping_add(forward),
            window: if let News::Window(window) = news { *window } else { last.window },
            echo: Some((last.arrived_ns / 1_000_000) as u32),
            congestion_echo: *congestion_echo,
            has_payload: matches!(news, News::Data(_)),
            arrived_ns: last.arrived_ns + gap_ns,
        };
        sender.acknowledge(&last);
        let is_selective = matches!(news, News::Selective);
        let (is_stamped, ends_poll) = (*is_stamped, *ends_poll);
        sent.push(Sent { acknowledgment: last, is_selective, is_stamped, ends_poll });
    }
    sent
}

/// Returns the packet's frame. The identification is the packet's position in the sequence.
fn packet(sent: &Sent, place: usize) -> Vec<u8> {
    let Acknowledgment { number, window, echo, congestion_echo, has_payload, .. } =
        sent.acknowledgment;
    let build = |tcp: Tcp| {
        let tcp = tcp.ack(number).window(window).sequence(7);
        let tcp = if congestion_echo { tcp.flag(Tcp::ECE) } else { tcp };
        match sent.is_selective {
            false => tcp.timestamps(place as u32, echo.unwrap()),
            true => {
                let echo = echo.unwrap().to_be_bytes();
                let mut options = vec![1, 1, 8, 10, 0, 0, 0, 1];
                options.extend(echo);
                options.extend([1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
                tcp.options(&options)
            }
        }
    };
    let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(place as u16));
    packet.tcp(build).payload_len(if has_payload { 100 } else { 0 }).build()
}

/// A sender that receives packets through a coalescer. It reads an acknowledgment vector's acknowledgments from the
/// records, and identifies all other packets by their positions.
struct Behind<'a> {
    sender: Sender,
    sent: &'a [Sent],
    /// Number of packets that arrived as part of an acknowledgment vector.
    collected: usize,
    /// Positions of the packets that were kept, read from their identifications.
    places: Vec<usize>,
    merged: Vec<Summary>,
}

fn place_of(packet: &[u8]) -> usize {
    usize::from(u16::from_be_bytes([packet[18], packet[19]]))
}

impl Sink<Vec<u8>> for Behind<'_> {
    fn deliver(&mut self, delivery: Delivery<'_, Vec<u8>>) {
        if let Some(summary) = delivery.acknowledged() {
            self.sender.acknowledge_merged(summary);
            self.merged.push(*summary);
            return;
        }
        let place = place_of(delivery.parts().next().unwrap().bytes());
        self.places.push(place);
        self.sender.acknowledge(&self.sent[place].acknowledgment);
    }

    fn deliver_vector(&mut self, vector: Vector<'_, Vec<u8>>) {
        self.collected += vector.records().len();
        self.places.extend(vector.packets().map(place_of));
        for record in vector.records() {
            self.sender.acknowledge(&record.into());
        }
    }
}

/// Returns the state of a sender that has received the packets through a coalescer with this profile.
fn behind(profile: Profile, sent: &[Sent], counting: Counting) -> Behind<'_> {
    let sender = Sender::new(counting, SEGMENT, FIRST);
    let mut behind = Behind { sender, sent, collected: 0, places: Vec::new(), merged: Vec::new() };
    let mut coalescer = Coalescer::new(
        CoalesceOptions::new(LinkType::Ethernet, 1).profile(profile).ports(Ports::NONE),
    );
    for (place, one) in sent.iter().enumerate() {
        let arrived_ns = one.acknowledgment.arrived_ns;
        let timestamp_ns = one.is_stamped.then_some(arrived_ns);
        let meta = Meta { timestamp_ns, ..Meta::default() };
        // A packet with a device timestamp reaches the coalescer later than it arrived.
        let now_ns = if one.is_stamped { arrived_ns + 12_345_678 } else { arrived_ns };
        coalescer.push(Frame { buffer: packet(one, place), meta }, now_ns, &mut behind);
        if one.ends_poll {
            coalescer.poll_end(now_ns, &mut behind);
        }
    }
    coalescer.finish(&mut behind);
    assert_eq!(coalescer.stats().packets_held(), 0);
    behind
}

fn vector() -> Profile {
    let mut profile = Profile::linux();
    profile.rules.acknowledgments = Acknowledgments::Vector;
    profile
}

/// Returns FreeBSD's rules for single packets. Its rules for batches assume that the packets arrived together.
fn freebsd() -> Profile {
    let mut profile = Profile::freebsd();
    profile.batch = Batch::AsItCame;
    profile
}

fn counting() -> impl Strategy<Value = Counting> {
    prop_oneof![Just(Counting::Packets), (1..3_u32).prop_map(|limit| Counting::Bytes { limit }),]
}

/// Returns a strategy that yields true for one in `one_in` packets on average.
fn rarely(one_in: u32) -> impl Strategy<Value = bool> {
    (0..one_in).prop_map(|chance| chance == 0)
}

proptest! {
    #[test]
    fn p15_records_replayed_are_the_packets(
        steps in vec((news(), rarely(10), any::<bool>(), rarely(8), 0..20_000_000_u64), 1..200),
        counting in counting(),
    ) {
        let sent = acknowledgments(&steps, counting);
        let mut packets = Sender::new(counting, SEGMENT, FIRST);
        sent.iter().for_each(|one| packets.acknowledge(&one.acknowledgment));
        let behind = behind(vector(), &sent, counting);
        prop_assert_eq!(&behind.sender, &packets);
        prop_assert!(behind.places.iter().copied().eq(0..sent.len()), "whole and in order");
        let eligible = sent.iter().filter(|one| !one.is_selective && !one.acknowledgment.has_payload);
        prop_assert_eq!(behind.collected, eligible.count());
    }

    #[test]
    fn p15_growth_follows_the_formula_with_the_count_and_is_less_without_it(
        units in vec((2..30_usize, 1..5_u32), 1..12),
        limit in 1..3_u32,
    ) {
        let counting = Counting::Bytes { limit };
        let mut sent = Vec::new();
        let mut last = Acknowledgment { number: FIRST, window: 500, ..Acknowledgment::default() };
        let mut formula = Sender::new(counting, SEGMENT, FIRST).congestion_window;
        let mut under_way = formula as u32;
        for &(packets, segments) in &units {
            let before = last.number;
            let mut acknowledged = 0;
            for place in 0..packets {
                let forward = (segments * SEGMENT).min(under_way - acknowledged);
                if forward == 0 {
                    break;
                }
                acknowledged += forward;
                last = Acknowledgment {
                    number: before.wrapping_add(acknowledged),
                    echo: Some(0),
                    ..last
                };
                let ends_poll = place + 1 == packets || acknowledged == under_way;
                sent.push(Sent {
                    acknowledgment: last, is_selective: false, is_stamped: false, ends_poll,
                });
            }
            let unit = sent.iter().rev().skip(1).take_while(|one| !one.ends_poll).count() as u64 + 1;
            let most = unit * u64::from(limit) * u64::from(SEGMENT);
            formula += u64::from(acknowledged).min(most);
            under_way = formula as u32;
        }
        let counted = behind(freebsd(), &sent, counting);
        prop_assert_eq!(counted.sender.congestion_window, formula);
        let mut uncounted = Sender::new(counting, SEGMENT, FIRST);
        for one in sent.iter().filter(|one| one.ends_poll) {
            uncounted.acknowledge(&one.acknowledgment);
        }
        prop_assert!(uncounted.congestion_window <= formula);
        let is_stretched = sent.len() >= 2 * units.len() + 2 * limit as usize;
        prop_assert!(!is_stretched || uncounted.congestion_window < formula);
    }
}

/// Units in which a receiver gets data, and the treatment of the acknowledgments that it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receiver {
    /// Packets, of which every second one is acknowledged.
    Packets,
    /// Trains, each of which is acknowledged once.
    Trains,
    /// Trains, whose acknowledgments are expanded.
    Expanded,
}

/// Returns how many round trips it takes until a sender that counts in this way has 860 segments in flight (10 Gb/s
/// with a round-trip time of one millisecond), and the maximum number of acknowledgments per round trip.
fn slow_start(counting: Counting, receiver: Receiver) -> (u32, usize) {
    let mut sender = Sender::new(counting, SEGMENT, FIRST);
    let mut expander = Expander::new(LinkType::Ethernet, Ports::NONE, 1);
    let mut coalescer =
        Coalescer::new(CoalesceOptions::new(LinkType::Ethernet, 1).ports(Ports::NONE));
    let (mut round_trips, mut most) = (0, 0);
    while sender.congestion_window < 860 * u64::from(SEGMENT) {
        // Sequence numbers at the ends of the deliveries.
        let mut ends = Vec::new();
        let mut sink = |delivery: Delivery<'_, Vec<u8>>| {
            expander.note(&delivery);
            let before = ends.last().copied().unwrap_or(sender.unacknowledged);
            ends.push(before.wrapping_add(delivery.packets * SEGMENT));
        };
        for index in 0..(sender.flight() / u64::from(SEGMENT)) as u32 {
            let sequence = sender.unacknowledged.wrapping_add(index * SEGMENT);
            let packet = Packet::new().ethernet(|e| e);
            let packet = packet.ipv4(|ip| ip.id(index as u16).source(NEAR).destination(FAR));
            let tcp = |t: Tcp| t.source_port(1).destination_port(2).sequence(sequence);
            let frame = packet.tcp(tcp).payload_len(SEGMENT as usize).build();
            coalescer.push(Frame::new(frame), 0, &mut sink);
            if receiver == Receiver::Packets {
                coalescer.poll_end(0, &mut sink);
            }
        }
        coalescer.poll_end(0, &mut sink);
        if receiver == Receiver::Packets {
            ends = ends.chunks(2).filter_map(|pair| pair.last().copied()).collect();
        }
        let mut numbers = Vec::new();
        for end in ends {
            let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.source(FAR).destination(NEAR));
            let tcp = |t: Tcp| t.source_port(2).destination_port(1).ack(end);
            let frame = Frame::new(packet.tcp(tcp).build());
            match expander.expand(&frame) {
                Some(Ok(expansion)) if receiver == Receiver::Expanded => {
                    numbers.extend_from_slice(expansion.numbers());
                }
                _ => numbers.push(end),
            }
        }
        most = most.max(numbers.len());
        for number in numbers {
            sender.acknowledge(&Acknowledgment { number, ..Acknowledgment::default() });
        }
        round_trips += 1;
    }
    (round_trips, most)
}

#[test]
fn p15_expansion_gives_a_sender_that_counts_packets_what_stretch_acknowledgments_took() {
    for counting in [Counting::Packets, Counting::Bytes { limit: 1 }] {
        let [packets, trains, expanded] = [Receiver::Packets, Receiver::Trains, Receiver::Expanded]
            .map(|receiver| slow_start(counting, receiver));
        assert!(trains.0 > 4 * packets.0, "{counting:?}: {trains:?} {packets:?}");
        // The first acknowledgment on a connection is not expanded, which costs one round trip.
        assert!(expanded.0 <= packets.0 + 1, "{counting:?}: {expanded:?} {packets:?}");
        assert!(expanded.1 <= packets.1 + 1 && expanded.1 > 10 * trains.1, "{expanded:?}");
    }
    // Expansion does not help a sender that counts bytes without a limit.
    let unlimited = Counting::Bytes { limit: u32::MAX };
    assert_eq!(
        slow_start(unlimited, Receiver::Trains).0,
        slow_start(unlimited, Receiver::Packets).0
    );
}

#[test]
fn p15_a_summary_agrees_with_its_records() {
    let steps: Vec<_> = (0..40)
        .map(|i| (News::More(1 + i % 2), i % 7 == 0, i % 2 == 0, false, 1_000_000))
        .collect();
    let counting = Counting::Bytes { limit: 2 };
    let sent: Vec<_> = acknowledgments(&steps, counting)
        .into_iter()
        .map(|mut one| {
            // FreeBSD's rules never merge packets with a congestion mark.
            one.acknowledgment.congestion_echo = false;
            one
        })
        .collect();
    let merged = behind(freebsd(), &sent, counting).merged;
    let [summary] = merged[..] else { panic!("{merged:?}") };
    let (first, last) = (&sent[0].acknowledgment, &sent[39].acknowledgment);
    assert_eq!((summary.packets, summary.without_payload, summary.duplicates), (40, 40, 0));
    assert_eq!((summary.first, summary.last), (first.number, last.number));
    assert_eq!(summary.first_arrived_ns, first.arrived_ns);
    assert_eq!(summary.last_arrived_ns, last.arrived_ns);
    assert_eq!((summary.window, summary.window_shrank), (500, false));
    assert_eq!(summary.codepoints, [40, 0, 0, 0]);
    let timestamps = summary.timestamps.unwrap();
    assert_eq!((timestamps.value_earliest, timestamps.value_latest), (0, 39));
    assert_eq!((timestamps.echo_earliest, timestamps.echo_latest), (0, 39));
}
