//! How long the ends of TCP connections take to answer, as seen from between them.

use core::hash::BuildHasher;

use foldhash::fast::FixedState;
use grosso_wire::{LinkType, Ports, Stack, dissect_into, tcp};

use crate::{
    bytes::u32_at, coalesce::memory::FlowMemory, connection::Ends,
    template::compare::TIMESTAMP_LAYOUT,
};

/// Measures round trips where both directions of connections pass: how long it takes until what one end sent is
/// acknowledged by the other, or its timestamp echoed (RFC 7323 section 4).
///
/// Each connection has one packet a direction under observation. Where answers are late on purpose, as delayed
/// acknowledgments are, the least of many measurements is near the truth.
#[derive(Debug)]
pub struct RoundTrips {
    hash: FixedState,
    connections: FlowMemory<[End; 2]>,
    stack: Stack,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    /// The sequence number behind the latest that it sent.
    sequence: Option<u32>,
    /// The latest timestamp that it sent.
    timestamp: Option<u32>,
    /// An acknowledgment of this is waited for, since then.
    unacknowledged: Option<(u32, u64)>,
    /// An echo of this is waited for, since then.
    unechoed: Option<(u32, u64)>,
    /// The least time in which it answered.
    answers_ns: Option<u64>,
}

/// What a packet says of its connection.
struct Said {
    connection: u64,
    /// It is said by the end whose address and port are the greater.
    is_of_second: bool,
    /// The sequence number behind it, if it takes any.
    sequence: Option<u32>,
    acknowledgment: Option<u32>,
    /// The timestamp and the one that it echoes.
    timestamps: Option<[u32; 2]>,
}

impl RoundTrips {
    /// For packets between any two ends. `seed` keys the hash of connections, and should be random.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            hash: FixedState::with_seed(seed),
            connections: FlowMemory::new(),
            stack: Stack::new(0),
        }
    }

    /// Looks at a packet of either direction. When it answers one of the other direction: how long a round trip of its
    /// connection takes, in nanoseconds, as far as that is known.
    pub fn observe(
        &mut self,
        packet: &[u8],
        link: LinkType,
        ports: &Ports,
        now_ns: u64,
    ) -> Option<u64> {
        let said = self.said(packet, link, ports)?;
        let ends = self.connections.entry(said.connection, now_ns, Default::default);
        if said.is_of_second {
            ends.swap(0, 1);
        }
        let [own, other] = ends;
        let answered_ns = other.answer(&said, now_ns);
        if let Some(answered_ns) = answered_ns {
            own.answers_ns = Some(own.answers_ns.map_or(answered_ns, |ns| ns.min(answered_ns)));
        }
        own.say(&said, now_ns);
        let there_and_back = own.answers_ns.map(|ns| ns + other.answers_ns.unwrap_or(0));
        if said.is_of_second {
            ends.swap(0, 1);
        }
        there_and_back.filter(|_| answered_ns.is_some())
    }

    /// What a packet says, if it is one of TCP.
    fn said(&mut self, packet: &[u8], link: LinkType, ports: &Ports) -> Option<Said> {
        dissect_into(packet, link, ports, &mut self.stack);
        let Ends { from, to, transport: at, header_end } = Ends::of(packet, &self.stack)?;
        let flags = packet.get(at + FLAGS_AT).copied().map_or(0, u16::from);
        let payload = packet.len().checked_sub(header_end)?;
        let occupied = payload + usize::from(flags & (tcp::SYN | tcp::FIN) != 0);
        let sequence = u32_at(packet, at + tcp::field::SEQUENCE.start);
        let options = packet.get(at + tcp::HEADER_LEN..header_end)?;
        Some(Said {
            connection: self.hash.hash_one((from.min(to), from.max(to))),
            is_of_second: from > to,
            sequence: (occupied > 0).then(|| sequence.wrapping_add(occupied as u32)),
            acknowledgment: (flags & tcp::ACK != 0)
                .then(|| u32_at(packet, at + tcp::field::ACKNOWLEDGMENT.start)),
            timestamps: (options.len() == TIMESTAMP_LAYOUT.len() + 8
                && options.starts_with(&TIMESTAMP_LAYOUT))
            .then(|| [4, 8].map(|at| u32_at(options, at))),
        })
    }
}

impl End {
    /// How long this end's packet under observation waited for the answer that the other end says, if it is one.
    fn answer(&mut self, said: &Said, now_ns: u64) -> Option<u64> {
        let reaches = |told: Option<u32>, waiting: &mut Option<(u32, u64)>| {
            let (value, since_ns) = (*waiting)?;
            // In serial arithmetic (RFC 9293 section 3.4).
            (told?.wrapping_sub(value) as i32 >= 0).then(|| {
                *waiting = None;
                now_ns.saturating_sub(since_ns)
            })
        };
        let acknowledged = reaches(said.acknowledgment, &mut self.unacknowledged);
        let echoed = reaches(said.timestamps.map(|[_, echo]| echo), &mut self.unechoed);
        acknowledged.into_iter().chain(echoed).min()
    }

    /// Puts what this end says under observation, if it never said it before: what is sent again may be answered for
    /// the first time that it was sent (Karn's rule, RFC 6298 section 3).
    fn say(&mut self, said: &Said, now_ns: u64) {
        let observe = |told: Option<u32>, latest: &mut Option<u32>, waiting: &mut Option<_>| {
            let Some(told) = told else { return };
            if latest.is_none_or(|latest| told.wrapping_sub(latest) as i32 > 0) {
                *latest = Some(told);
                waiting.get_or_insert((told, now_ns));
            }
        };
        observe(said.sequence, &mut self.sequence, &mut self.unacknowledged);
        let timestamp = said.timestamps.map(|[value, _]| value);
        observe(timestamp, &mut self.timestamp, &mut self.unechoed);
    }
}

/// Where the low flags of a TCP header are.
const FLAGS_AT: usize = 13;

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use grosso_testkit::{Packet, headers::Tcp};
    use grosso_wire::{LinkType, Ports};

    use super::RoundTrips;

    /// Ten microseconds, in which the near end answers.
    const NEAR_NS: u64 = 10_000;
    /// A millisecond, in which the far end does.
    const FAR_NS: u64 = 1_000_000;

    fn tcp(is_far: bool, len: usize, edit: impl FnOnce(Tcp) -> Tcp) -> Vec<u8> {
        let (from, to) =
            if is_far { ([10, 0, 0, 9], [10, 0, 0, 1]) } else { ([10, 0, 0, 1], [10, 0, 0, 9]) };
        let ports = if is_far { (80, 5000) } else { (5000, 80) };
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.source(from).destination(to));
        let tcp = |t: Tcp| edit(t.source_port(ports.0).destination_port(ports.1));
        packet.tcp(tcp).payload_len(len).build()
    }

    fn observe(round_trips: &mut RoundTrips, packet: &[u8], now_ns: u64) -> Option<u64> {
        round_trips.observe(packet, LinkType::Ethernet, &Ports::ASSIGNED, now_ns)
    }

    #[test]
    fn a_request_and_its_acknowledgment_tell() {
        let mut seen = RoundTrips::new(1);
        let request = tcp(false, 100, |t| t.sequence(1000).ack(1));
        assert_eq!(observe(&mut seen, &request, 0), None);
        let early = tcp(true, 0, |t| t.sequence(1).ack(1099));
        assert_eq!(observe(&mut seen, &early, 5), None, "not all of it");
        let answer = tcp(true, 500, |t| t.sequence(1).ack(1100));
        assert_eq!(observe(&mut seen, &answer, FAR_NS), Some(FAR_NS));
        assert_eq!(observe(&mut seen, &answer, 2 * FAR_NS), None, "it answers nothing any more");
        // And the other way: both ends together are a round trip.
        let back = tcp(false, 0, |t| t.sequence(1100).ack(501));
        assert_eq!(observe(&mut seen, &back, FAR_NS + NEAR_NS), Some(FAR_NS + NEAR_NS));
    }

    #[test]
    fn a_timestamp_and_its_echo_tell() {
        let mut seen = RoundTrips::new(1);
        let near = |value, echo| tcp(false, 0, move |t| t.ack(1).timestamps(value, echo));
        let far = |value, echo| tcp(true, 0, move |t| t.ack(1).timestamps(value, echo));
        assert_eq!(observe(&mut seen, &near(100, 7), 0), None);
        // The clock of the near end stands still for some packets: the first of them counts.
        assert_eq!(observe(&mut seen, &near(100, 7), FAR_NS / 2), None);
        assert_eq!(observe(&mut seen, &far(8, 99), FAR_NS / 2), None, "an older echo");
        assert_eq!(observe(&mut seen, &far(8, 100), FAR_NS), Some(FAR_NS));
        assert_eq!(observe(&mut seen, &near(100, 7), FAR_NS + 1), None, "said before");
        assert_eq!(observe(&mut seen, &far(8, 100), FAR_NS + 2), None);
        // The least counts.
        assert_eq!(observe(&mut seen, &near(101, 7), 2 * FAR_NS), None);
        assert_eq!(observe(&mut seen, &far(8, 101), 4 * FAR_NS), Some(FAR_NS));
    }

    #[test]
    fn what_is_sent_again_is_not_observed() {
        let mut seen = RoundTrips::new(1);
        let data = tcp(false, 100, |t| t.sequence(1000));
        assert_eq!(observe(&mut seen, &data, 0), None);
        assert_eq!(observe(&mut seen, &tcp(true, 0, |t| t.ack(1100)), FAR_NS), Some(FAR_NS));
        assert_eq!(observe(&mut seen, &data, 2 * FAR_NS), None);
        assert_eq!(observe(&mut seen, &tcp(true, 0, |t| t.ack(1100)), 2 * FAR_NS + 1), None);
    }

    #[test]
    fn other_connections_and_other_packets_say_nothing() {
        let mut seen = RoundTrips::new(1);
        assert_eq!(observe(&mut seen, &tcp(false, 100, |t| t.sequence(1000)), 0), None);
        let other = tcp(true, 0, |t| t.ack(1100)).into_iter();
        let other: Vec<u8> =
            other.enumerate().map(|(at, byte)| if at == 37 { byte ^ 1 } else { byte }).collect();
        assert_eq!(observe(&mut seen, &other, FAR_NS), None);
        let answer = tcp(true, 0, |t| t.ack(1100));
        (0..answer.len()).for_each(|len| {
            assert_eq!(observe(&mut seen, &answer[..len], FAR_NS), None);
        });
        assert_eq!(observe(&mut seen, &answer, FAR_NS), Some(FAR_NS));
    }
}
