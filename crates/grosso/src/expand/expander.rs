//! Expansion of acknowledgments at a point through which packets of both directions pass.

use core::hash::BuildHasher;

use grosso_wire::{Extent, Kind, LinkType, Ports, Stack, dissect_into, ipv4, tcp};

use crate::{
    acknowledge::{Record, Stamp},
    bytes::{u16_at, u32_at},
    checksum::Checksum,
    coalesce::Delivery,
    connection::{End, Ends},
    expand::{Expansion, Unexpanded, expansion::Headers, run::DeliveredRun},
    flow_memory::FlowMemory,
    frame::Frame,
    keyed_hash::KeyedHash,
};

/// Expander for acknowledgments. It replaces a host's acknowledgment of superframes with the acknowledgments that the
/// host would have sent for the individual packets.
///
/// Call [`note`](Self::note) for every train delivered to the host, and [`expand`](Self::expand) for every frame that
/// the host sends. The state is bounded. It covers [`FLOWS_MAX`] connections, and for each of them 16 runs of packets
/// of equal size that were delivered in order and have not been acknowledged.
///
/// ```
/// use grosso::{Frame, LinkType, Ports, expand::Expander};
///
/// let mut expander = Expander::new(LinkType::Ethernet, Ports::ASSIGNED, 0x5eed);
/// let frame = Frame::new(vec![0; 60]); // a frame from the host
/// if let Some(Ok(expansion)) = expander.expand(&frame) {
///     println!("replace by {} acknowledgments", expansion.count());
/// }
/// ```
///
/// [`FLOWS_MAX`]: crate::coalesce::REMEMBERED_FLOWS_MAX
#[derive(Debug)]
pub struct Expander {
    link: LinkType,
    ports: Ports,
    hash: KeyedHash,
    receivers: FlowMemory<u64, Receiver>,
    /// Number of deliveries observed. It serves as a clock for evicting the least recently active connection of a
    /// set.
    seen: u64,
    stack: Stack,
}

/// State of an endpoint that receives data: the packets that arrived there, and its latest acknowledgment.
#[derive(Clone, Debug, Default)]
struct Receiver {
    run: DeliveredRun,
    /// Latest acknowledgment of the receiver.
    before: Option<Record>,
}

impl Expander {
    /// Creates an expander for frames of one link type. `seed` is the key for hashing connections and should be random.
    #[must_use]
    pub fn new(link: LinkType, ports: Ports, seed: u64) -> Self {
        Self {
            link,
            ports,
            hash: KeyedHash::new(seed),
            receivers: FlowMemory::new(),
            seen: 0,
            stack: Stack::new(0),
        }
    }

    /// Records the packet boundaries of a train delivered to the host.
    pub fn note<B: AsRef<[u8]>>(&mut self, delivery: &Delivery<'_, B>) {
        let Some(head) = delivery.slices().next() else { return };
        dissect_into(head, self.link, &self.ports, &mut self.stack);
        let Some(ends) = Ends::of(head, &self.stack) else { return };
        let connection = self.connection(ends.from, ends.to);
        if flags(head, &ends) & (tcp::SYN | tcp::RST) != 0 {
            return self.forget(connection);
        }
        self.seen += 1;
        let receiver = match delivery.is_joined() {
            true => self.receivers.entry(connection, self.seen, Receiver::default),
            // The host acknowledges unmerged packets as usual, so a connection without trains needs no entry.
            false => match self.receivers.get_mut(connection) {
                Some(receiver) => receiver,
                None => return,
            },
        };
        let mut sequence = u32_at(head, ends.transport + tcp::field::SEQUENCE.start);
        let size = delivery.meta.gso.and_then(|gso| gso.size()).map(usize::from);
        let mut append = |len: usize| {
            receiver.run.append(sequence, len, size.unwrap_or(len));
            sequence = sequence.wrapping_add(len as u32);
        };
        match delivery.is_joined() {
            true => delivery.parts().for_each(|part| append(part.range().len())),
            false => {
                append(head.len().min(self.stack.end as usize).saturating_sub(ends.header_end))
            }
        }
    }

    /// Expands a frame sent by the host if the frame acknowledges more packets than a delayed acknowledgment would.
    /// Returns `None` if the frame is not an acknowledgment or no train was delivered on its connection.
    pub fn expand<'a, B: AsRef<[u8]>>(
        &mut self,
        frame: &'a Frame<B>,
    ) -> Option<Result<Expansion<'a>, Unexpanded>> {
        let packet = frame.buffer.as_ref();
        dissect_into(packet, self.link, &self.ports, &mut self.stack);
        let ends = Ends::of(packet, &self.stack)?;
        let connection = self.connection(ends.to, ends.from);
        let flags = flags(packet, &ends);
        if flags & (tcp::SYN | tcp::RST) != 0 {
            self.forget(connection);
            return None;
        }
        let receiver = self.receivers.get_mut(connection)?;
        if flags & tcp::ACK == 0 {
            return None;
        }
        let tcp = packet.get(ends.transport..ends.header_end)?;
        let record = Record::of(tcp, 0, 0, Stamp::Pushed);
        let expansion = receiver.before.ok_or(Unexpanded::First).and_then(|before| {
            let (packet, headers) = plain(frame, &self.stack, &ends)?;
            if !receiver.run.holds(before.acknowledgment) {
                return Err(Unexpanded::Unknown);
            }
            let ends = receiver.run.ends(before.acknowledgment, record.acknowledgment);
            Expansion::of(packet, headers, &frame.meta, &before, ends)
        });
        receiver.acknowledge(&record);
        Some(expansion)
    }

    fn forget(&mut self, connection: u64) {
        if let Some(receiver) = self.receivers.get_mut(connection) {
            *receiver = Receiver::default();
        }
    }

    /// Returns the hash of one direction of a connection.
    fn connection(&self, from: End<'_>, to: End<'_>) -> u64 {
        (&self.hash).hash_one((from, to))
    }
}

impl Receiver {
    /// Records an acknowledgment that the host sent.
    fn acknowledge(&mut self, record: &Record) {
        let acknowledged = record.acknowledgment;
        if distance(self.run.end(), acknowledged) > 1 {
            // The acknowledgment covers data or a FIN that was not delivered here.
            self.before = None;
            return;
        }
        if self.before.is_none_or(|before| distance(before.acknowledgment, acknowledged) >= 0) {
            self.before = Some(*record);
            self.run.forget(acknowledged);
        }
    }
}

/// Returns the packet without trailing bytes, and the offsets of its headers, if it may be sent several times.
fn plain<'a, B: AsRef<[u8]>>(
    frame: &'a Frame<B>,
    stack: &Stack,
    ends: &Ends<'_>,
) -> Result<(&'a [u8], Headers), Unexpanded> {
    let is_whole = matches!(stack.extent, Extent::Exact | Extent::Padded);
    let packet = frame.buffer.as_ref().get(..stack.end as usize).filter(|_| is_whole);
    let packet = packet.ok_or(Unexpanded::Headers)?;
    // If a tunnel header has a packet number, the copies would repeat it.
    let is_plain = |kind| {
        let link = [Kind::Ethernet, Kind::Sll, Kind::Sll2, Kind::Null, Kind::Vlan];
        link.contains(&kind) || matches!(kind, Kind::Ipv4 | Kind::Ipv6 | Kind::Tcp)
    };
    let layers = stack.layers();
    let mut ip = layers.iter().filter(|layer| layer.kind.is_ip());
    let ipv4 = ip.next().filter(|layer| layer.kind == Kind::Ipv4).map(|layer| layer.offset.into());
    let is_fragment = ipv4.is_some_and(|at: usize| {
        let fragment = u16_at(packet, at + ipv4::field::FRAGMENT.start);
        fragment & (ipv4::MORE_FRAGMENTS | ipv4::OFFSET_MASK) != 0
    });
    let is_known = match frame.meta.checksum {
        Checksum::Partial { start, .. } => usize::from(start) == ends.transport,
        _ => true,
    };
    let is_alone = ip.next().is_none() && layers.iter().all(|layer| is_plain(layer.kind));
    match is_alone && is_known && !is_fragment && frame.meta.gso.is_none() {
        true => Ok((packet, Headers { ipv4, transport: ends.transport })),
        false => Err(Unexpanded::Headers),
    }
}

fn flags(packet: &[u8], ends: &Ends<'_>) -> u16 {
    u16_at(packet, ends.transport + tcp::field::OFFSET_FLAGS.start)
}

/// Returns the distance from one sequence number to another, in serial arithmetic (RFC 9293 section 3.4).
const fn distance(from: u32, to: u32) -> i32 {
    to.wrapping_sub(from) as i32
}
