//! Determines the capture point: the sender's host or the receiver's host.
//!
//! If its device completes checksums, a host leaves them partial in all packets that it sends, not only in superframes.
//! Received packets have complete checksums unless they were merged. The single packets in both directions therefore
//! show whether the superframes of a flow were outgoing or incoming. If the capture records the direction, that takes
//! precedence.

use std::collections::HashMap;

use grosso_capture::{PacketMeta, flag};
use grosso_wire::{Kind, Stack};

use crate::{
    checksums::Verdict,
    headers::{Endpoints, u16_at},
};

/// Side on which the superframes were captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The sender's host, which sends the superframes.
    Sender,
    /// The receiver's host, which receives the superframes.
    Receiver,
}

/// Counts for each flow direction in a capture; at most `DIRECTIONS_MAX` directions.
#[derive(Debug, Default)]
pub struct Vantages {
    directions: HashMap<Endpoints, Direction>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Direction {
    superframes: u64,
    /// Number of superframes that were captured completely.
    whole: u64,
    /// Counts of packets that are not superframes.
    partial: u64,
    complete: u64,
    /// Counts by recorded direction.
    inbound: u64,
    outbound: u64,
}

impl Vantages {
    /// Counts a packet with a transport header.
    pub fn count(
        &mut self,
        endpoints: Endpoints,
        is_superframe: bool,
        verdict: Option<Verdict>,
        side: Option<Side>,
    ) {
        if self.directions.len() >= DIRECTIONS_MAX && !self.directions.contains_key(&endpoints) {
            return;
        }
        let direction = self.directions.entry(endpoints).or_default();
        direction.superframes += u64::from(is_superframe);
        let is_whole = is_superframe && verdict != Some(Verdict::Unverifiable);
        direction.whole += u64::from(is_whole);
        match side {
            Some(Side::Sender) => direction.outbound += 1,
            Some(Side::Receiver) => direction.inbound += 1,
            None => {}
        }
        match verdict {
            Some(Verdict::Partial) if !is_superframe => direction.partial += 1,
            Some(Verdict::Valid) if !is_superframe => direction.complete += 1,
            _ => {}
        }
    }

    /// Returns the side on which the superframes were captured; `None` if the packets indicate neither side, or both.
    pub fn side(&self) -> Option<Side> {
        let (mut sent, mut received) = (0, 0);
        for (endpoints, direction) in &self.directions {
            if direction.superframes == 0 {
                continue;
            }
            let reverse = self.directions.get(&endpoints.reversed()).copied().unwrap_or_default();
            match direction.side(&reverse, endpoints.is_tcp) {
                Some(Side::Sender) => sent += direction.superframes,
                Some(Side::Receiver) => received += direction.superframes,
                None => {}
            }
        }
        match (sent, received) {
            (0, 0) => None,
            (_, 0) => Some(Side::Sender),
            (0, _) => Some(Side::Receiver),
            _ => None,
        }
    }
}

impl Direction {
    fn side(&self, reverse: &Self, is_tcp: bool) -> Option<Side> {
        match (self.outbound, self.inbound) {
            (1.., 0) => return Some(Side::Sender),
            // An incoming single packet with a partial checksum came across a virtual link, and so did the superframes
            // of its flow.
            (0, 1..) if self.partial == 0 => return Some(Side::Receiver),
            _ => {}
        }
        match (self.partial, self.complete, reverse.partial, reverse.complete) {
            // This also holds for a virtual link, where both endpoints leave their checksums to a device that does not
            // exist.
            (1.., ..) => Some(Side::Sender),
            (0, _, 1.., _) => Some(Side::Receiver),
            // Truncated superframes may come from the sender's host, if a tool has already segmented the complete ones.
            (0, 1.., ..) => (self.whole > 0).then_some(Side::Receiver),
            (0, 0, 0, 1..) => Some(Side::Sender),
            // Datagrams are merged only for forwarding and for sockets that request it.
            (0, 0, 0, 0) => (!is_tcp).then_some(Side::Sender),
        }
    }
}

/// Returns the direction of a packet if the capture recorded it, in pcapng flags or in a Linux cooked header.
pub fn said(packet: &[u8], stack: &Stack, said: &PacketMeta) -> Option<Side> {
    match said.flags.unwrap_or(0) & DIRECTION {
        flag::INBOUND => return Some(Side::Receiver),
        flag::OUTBOUND => return Some(Side::Sender),
        _ => {}
    }
    let kind = stack.layers().first()?.kind;
    let packet_type = match kind {
        Kind::Sll => u16_at(packet, 0),
        Kind::Sll2 => u16::from(*packet.get(SLL2_PACKET_TYPE)?),
        _ => return None,
    };
    match packet_type {
        PACKET_HOST => Some(Side::Receiver),
        PACKET_OUTGOING => Some(Side::Sender),
        _ => None,
    }
}

/// Direction bits of `epb_flags`.
const DIRECTION: u32 = 0b11;
const SLL2_PACKET_TYPE: usize = 10;
/// Packet type of a packet to this host (`if_packet.h`).
const PACKET_HOST: u16 = 0;
/// Packet type of a packet from this host.
const PACKET_OUTGOING: u16 = 4;
/// Maximum number of tracked directions. This many take about 8 MB.
const DIRECTIONS_MAX: usize = 1 << 16;
