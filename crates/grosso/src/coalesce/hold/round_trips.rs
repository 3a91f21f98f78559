//! Round-trip times of TCP connections, measured at a point between the endpoints.

use core::hash::BuildHasher;

use grosso_wire::{LinkType, Ports, Stack, dissect_into, tcp};

use crate::{
    bytes::u32_at, connection::Ends, flow_memory::FlowMemory, keyed_hash::KeyedHash,
    template::compare::TIMESTAMP_LAYOUT,
};

/// Meter for round-trip times at a point through which packets of both directions pass. A measurement is the time from
/// a packet to its acknowledgment, or to the echo of its timestamp (RFC 7323 section 4).
///
/// If only one direction passes this point, the handshake gives a single measurement: the time from an endpoint's SYN
/// to its first packet that requires an answer to the SYN. The value is never shorter than the round trip, but it is
/// longer if a SYN was lost or the server was slow. Pauses between bursts are not used: they may be caused by the ACK
/// clock, the application or the sender's segmentation.
///
/// The meter observes one packet per direction of each connection at a time. Delayed acknowledgments make some values
/// too long, so use the minimum of many values.
#[derive(Debug)]
pub struct RoundTrips {
    hash: KeyedHash,
    connections: FlowMemory<u64, [End; 2]>,
    stack: Stack,
}

/// One endpoint of a connection.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    /// Sequence number after the last byte sent so far.
    sequence: Option<u32>,
    /// Latest timestamp sent.
    timestamp: Option<u32>,
    /// Sequence number whose acknowledgment is awaited, and the time at which the wait began.
    unacknowledged: Option<(u32, u64)>,
    /// Timestamp whose echo is awaited, and the time at which the wait began.
    unechoed: Option<(u32, u64)>,
    /// Minimum time in nanoseconds until the other endpoint responded.
    answers_ns: Option<u64>,
    opening: Opening,
}

/// Handshake state of an endpoint.
#[derive(Clone, Copy, Debug, Default)]
enum Opening {
    #[default]
    Unseen,
    /// A SYN with this sequence number first arrived at `since_ns`, and acknowledged `acknowledgment`.
    Sent { sequence: u32, acknowledgment: Option<u32>, since_ns: u64 },
    /// A SYN with this sequence number was answered.
    Answered { sequence: u32 },
}

/// Fields of a packet that matter to the measurement.
struct SegmentFacts {
    connection: u64,
    /// Whether the packet's sender is the endpoint with the greater address and port.
    is_of_second: bool,
    /// Sequence number of the SYN, if the packet has SYN set.
    opens: Option<u32>,
    /// Whether the packet resets the connection.
    is_reset: bool,
    /// Sequence number after the packet, or `None` if the packet occupies no sequence numbers.
    sequence: Option<u32>,
    acknowledgment: Option<u32>,
    /// Timestamp value and echo.
    timestamps: Option<[u32; 2]>,
}

impl RoundTrips {
    /// Creates a meter for any number of connections. `seed` is the key for hashing connections and should be random.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { hash: KeyedHash::new(seed), connections: FlowMemory::new(), stack: Stack::new(0) }
    }

    /// Observes a packet of either direction. Returns the round-trip time of its connection in nanoseconds if the
    /// packet completes a measurement.
    pub fn observe(
        &mut self,
        packet: &[u8],
        link: LinkType,
        ports: &Ports,
        now_ns: u64,
    ) -> Option<u64> {
        let facts = self.facts(packet, link, ports)?;
        let ends = self.connections.entry(facts.connection, now_ns, Default::default);
        if facts.is_of_second {
            ends.swap(0, 1);
        }
        let [own, other] = ends;
        let answered_ns = other.answer(&facts, now_ns);
        if let Some(answered_ns) = answered_ns {
            own.answers_ns = Some(own.answers_ns.map_or(answered_ns, |ns| ns.min(answered_ns)));
        }
        let opened_ns = own.open(&facts, now_ns);
        own.record_sent(&facts, now_ns);
        let there_and_back = own.answers_ns.map(|ns| ns + other.answers_ns.unwrap_or(0));
        if facts.is_of_second {
            ends.swap(0, 1);
        }
        let there_and_back = there_and_back.filter(|_| answered_ns.is_some());
        opened_ns.into_iter().chain(there_and_back).min()
    }

    /// Reads the fields of a TCP packet. Returns `None` for any other packet.
    fn facts(&mut self, packet: &[u8], link: LinkType, ports: &Ports) -> Option<SegmentFacts> {
        dissect_into(packet, link, ports, &mut self.stack);
        let Ends { from, to, transport: at, header_end } = Ends::of(packet, &self.stack)?;
        let flags = packet.get(at + FLAGS_AT).copied().map_or(0, u16::from);
        let payload = packet.len().checked_sub(header_end)?;
        let occupied = payload + usize::from(flags & (tcp::SYN | tcp::FIN) != 0);
        let sequence = u32_at(packet, at + tcp::field::SEQUENCE.start);
        let options = packet.get(at + tcp::HEADER_LEN..header_end)?;
        Some(SegmentFacts {
            connection: (&self.hash).hash_one((from.min(to), from.max(to))),
            is_of_second: from > to,
            opens: (flags & tcp::SYN != 0).then_some(sequence),
            is_reset: flags & tcp::RST != 0,
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
    /// Returns how long this endpoint waited for a response to its observed packet, if `facts` contains the response.
    /// `facts` describes a packet from the other endpoint.
    fn answer(&mut self, facts: &SegmentFacts, now_ns: u64) -> Option<u64> {
        let reaches = |told: Option<u32>, waiting: &mut Option<(u32, u64)>| {
            let (value, since_ns) = (*waiting)?;
            // The numbers are compared in serial arithmetic (RFC 9293 section 3.4).
            (told?.wrapping_sub(value) as i32 >= 0).then(|| {
                *waiting = None;
                now_ns.saturating_sub(since_ns)
            })
        };
        let acknowledged = reaches(facts.acknowledgment, &mut self.unacknowledged);
        let echoed = reaches(facts.timestamps.map(|[_, echo]| echo), &mut self.unechoed);
        acknowledged.into_iter().chain(echoed).min()
    }

    /// Returns the time from this endpoint's first SYN to its first packet that requires an answer to the SYN, once
    /// that packet is seen.
    fn open(&mut self, facts: &SegmentFacts, now_ns: u64) -> Option<u64> {
        if let Some(sequence) = facts.opens {
            let is_known = match self.opening {
                Opening::Unseen => false,
                Opening::Sent { sequence: known, .. } | Opening::Answered { sequence: known } => {
                    known == sequence
                }
            };
            if !is_known {
                let acknowledgment = facts.acknowledgment;
                self.opening = Opening::Sent { sequence, acknowledgment, since_ns: now_ns };
            }
            return None;
        }
        let Opening::Sent { sequence, acknowledgment, since_ns } = self.opening else {
            return None;
        };
        let told = facts.acknowledgment.filter(|_| !facts.is_reset)?;
        // An endpoint that answered a SYN with its own SYN may send data immediately (RFC 7413 section 3). Only a later
        // acknowledgment shows that the other endpoint has responded.
        if acknowledgment.is_some_and(|before| told.wrapping_sub(before) as i32 <= 0) {
            return None;
        }
        self.opening = Opening::Answered { sequence };
        Some(now_ns.saturating_sub(since_ns))
    }

    /// Starts to observe a sent packet. Ignores retransmissions, because the acknowledgment may be for the first
    /// transmission (Karn's rule, RFC 6298 section 3).
    fn record_sent(&mut self, facts: &SegmentFacts, now_ns: u64) {
        let observe = |told: Option<u32>, latest: &mut Option<u32>, waiting: &mut Option<_>| {
            let Some(told) = told else { return };
            if latest.is_none_or(|latest| told.wrapping_sub(latest) as i32 > 0) {
                *latest = Some(told);
                waiting.get_or_insert((told, now_ns));
            }
        };
        observe(facts.sequence, &mut self.sequence, &mut self.unacknowledged);
        let timestamp = facts.timestamps.map(|[value, _]| value);
        observe(timestamp, &mut self.timestamp, &mut self.unechoed);
    }
}

/// Offset of the low flags of a TCP header.
const FLAGS_AT: usize = 13;

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use grosso_testkit::{Packet, headers::Tcp};
    use grosso_wire::{LinkType, Ports};

    use super::RoundTrips;

    /// Response time of the near endpoint in nanoseconds.
    const NEAR_NS: u64 = 10_000;
    /// Response time of the far endpoint in nanoseconds.
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
    fn a_request_and_its_acknowledgment_give_a_round_trip() {
        let mut observed = RoundTrips::new(1);
        let request = tcp(false, 100, |t| t.sequence(1000).ack(1));
        assert_eq!(observe(&mut observed, &request, 0), None);
        let early = tcp(true, 0, |t| t.sequence(1).ack(1099));
        assert_eq!(
            observe(&mut observed, &early, 5),
            None,
            "only part of the request is acknowledged"
        );
        let answer = tcp(true, 500, |t| t.sequence(1).ack(1100));
        assert_eq!(observe(&mut observed, &answer, FAR_NS), Some(FAR_NS));
        assert_eq!(
            observe(&mut observed, &answer, 2 * FAR_NS),
            None,
            "the request was already answered"
        );
        // In the other direction, a round trip is the sum of both endpoints' response times.
        let back = tcp(false, 0, |t| t.sequence(1100).ack(501));
        assert_eq!(observe(&mut observed, &back, FAR_NS + NEAR_NS), Some(FAR_NS + NEAR_NS));
    }

    #[test]
    fn a_timestamp_and_its_echo_give_a_round_trip() {
        let mut observed = RoundTrips::new(1);
        let near = |value, echo| tcp(false, 0, move |t| t.ack(1).timestamps(value, echo));
        let far = |value, echo| tcp(true, 0, move |t| t.ack(1).timestamps(value, echo));
        assert_eq!(observe(&mut observed, &near(100, 7), 0), None);
        // Several packets from the near endpoint have the same timestamp. The measurement starts with the first of
        // them.
        assert_eq!(observe(&mut observed, &near(100, 7), FAR_NS / 2), None);
        assert_eq!(
            observe(&mut observed, &far(8, 99), FAR_NS / 2),
            None,
            "the packet echoes an older timestamp"
        );
        assert_eq!(observe(&mut observed, &far(8, 100), FAR_NS), Some(FAR_NS));
        assert_eq!(observe(&mut observed, &near(100, 7), FAR_NS + 1), None, "observed before");
        assert_eq!(observe(&mut observed, &far(8, 100), FAR_NS + 2), None);
        // A longer measurement does not raise the recorded minimum.
        assert_eq!(observe(&mut observed, &near(101, 7), 2 * FAR_NS), None);
        assert_eq!(observe(&mut observed, &far(8, 101), 4 * FAR_NS), Some(FAR_NS));
    }

    #[test]
    fn what_is_sent_again_is_not_observed() {
        let mut observed = RoundTrips::new(1);
        let data = tcp(false, 100, |t| t.sequence(1000));
        assert_eq!(observe(&mut observed, &data, 0), None);
        assert_eq!(observe(&mut observed, &tcp(true, 0, |t| t.ack(1100)), FAR_NS), Some(FAR_NS));
        assert_eq!(observe(&mut observed, &data, 2 * FAR_NS), None);
        assert_eq!(observe(&mut observed, &tcp(true, 0, |t| t.ack(1100)), 2 * FAR_NS + 1), None);
    }

    #[test]
    fn the_initiator_alone_gives_a_round_trip_from_its_first_syn() {
        let mut observed = RoundTrips::new(1);
        let syn = tcp(false, 0, |t| t.sequence(99).no_ack().syn());
        assert_eq!(observe(&mut observed, &syn, 0), None);
        // A second SYN is sent because the first was lost or the reply is slow. It is unknown which SYN the reply
        // belongs to.
        assert_eq!(observe(&mut observed, &syn, FAR_NS), None);
        let reset = tcp(false, 0, |t| t.sequence(100).ack(1).rst());
        assert_eq!(observe(&mut observed, &reset, FAR_NS + 1), None);
        let acknowledgment = tcp(false, 0, |t| t.sequence(100).ack(1));
        assert_eq!(observe(&mut observed, &acknowledgment, 3 * FAR_NS), Some(3 * FAR_NS));
        // A late handshake packet does not start a measurement.
        assert_eq!(observe(&mut observed, &syn, 4 * FAR_NS), None);
        assert_eq!(observe(&mut observed, &acknowledgment, 4 * FAR_NS + 1), None);
        // A new connection uses the same ports.
        let again = tcp(false, 0, |t| t.sequence(5000).no_ack().syn());
        assert_eq!(observe(&mut observed, &again, 5 * FAR_NS), None);
        let acknowledgment = tcp(false, 0, |t| t.sequence(5001).ack(7));
        assert_eq!(observe(&mut observed, &acknowledgment, 6 * FAR_NS), Some(FAR_NS));
    }

    #[test]
    fn the_responder_gives_a_round_trip_when_the_initiator_continues() {
        let mut observed = RoundTrips::new(1);
        let syn = tcp(true, 0, |t| t.sequence(99).ack(1000).syn());
        assert_eq!(observe(&mut observed, &syn, 0), None);
        let early = tcp(true, 100, |t| t.sequence(100).ack(1000));
        assert_eq!(
            observe(&mut observed, &early, NEAR_NS),
            None,
            "TCP Fast Open data is not an answer"
        );
        let answer = tcp(true, 100, |t| t.sequence(200).ack(1500));
        assert_eq!(observe(&mut observed, &answer, FAR_NS), Some(FAR_NS));
        assert_eq!(observe(&mut observed, &answer, FAR_NS + 1), None);
    }

    #[test]
    fn the_minimum_of_both_directions_and_the_handshake_is_reported() {
        let mut observed = RoundTrips::new(1);
        let syn = tcp(false, 0, |t| t.sequence(99).no_ack().syn());
        assert_eq!(observe(&mut observed, &syn, 0), None);
        let answer = tcp(true, 0, |t| t.sequence(0).ack(100).syn());
        assert_eq!(observe(&mut observed, &answer, FAR_NS), Some(FAR_NS));
        let third = tcp(false, 0, |t| t.sequence(100).ack(1));
        assert_eq!(observe(&mut observed, &third, FAR_NS + NEAR_NS), Some(FAR_NS + NEAR_NS));
        // The handshake of the next connection between these endpoints is slow.
        let syn = tcp(false, 0, |t| t.sequence(5099).no_ack().syn());
        assert_eq!(observe(&mut observed, &syn, 10 * FAR_NS), None);
        let answer = tcp(true, 0, |t| t.sequence(9000).ack(5100).syn());
        assert_eq!(observe(&mut observed, &answer, 13 * FAR_NS), Some(FAR_NS + NEAR_NS));
        let third = tcp(false, 0, |t| t.sequence(5100).ack(9001));
        assert_eq!(observe(&mut observed, &third, 13 * FAR_NS + NEAR_NS), Some(FAR_NS + NEAR_NS));
    }

    #[test]
    fn other_connections_and_packets_give_no_round_trip() {
        let mut observed = RoundTrips::new(1);
        assert_eq!(observe(&mut observed, &tcp(false, 100, |t| t.sequence(1000)), 0), None);
        let other = tcp(true, 0, |t| t.ack(1100)).into_iter();
        let other: Vec<u8> =
            other.enumerate().map(|(at, byte)| if at == 37 { byte ^ 1 } else { byte }).collect();
        assert_eq!(observe(&mut observed, &other, FAR_NS), None);
        let answer = tcp(true, 0, |t| t.ack(1100));
        (0..answer.len()).for_each(|len| {
            assert_eq!(observe(&mut observed, &answer[..len], FAR_NS), None);
        });
        assert_eq!(observe(&mut observed, &answer, FAR_NS), Some(FAR_NS));
    }
}
