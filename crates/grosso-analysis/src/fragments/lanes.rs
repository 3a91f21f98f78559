//! Passes the packets of a capture to reassemblers. The captured timestamps serve as the clock.

use grosso::{
    Frame, Meta,
    meta::VlanTag,
    reassemble::{
        Datagram, Discarded, Identity, Outcome, Reassembler, ReassemblyRules, ReassemblySink,
        ReassemblyVerdict,
    },
};
use grosso_capture::{Packet, PacketMeta};
use grosso_wire::{LinkType, Ports, Stop, dissect};

use crate::checksums::complete_header;

/// Packet that may be a fragment.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Bytes of the packet.
    pub data: &'a [u8],
    /// Link type used to parse the packet.
    pub link: LinkType,
    /// Device on which the packet was captured.
    pub device: u32,
    /// Direction bits of `epb_flags`.
    pub direction: u32,
    /// Timestamp of the packet; `None` if the capture has none.
    pub timestamp_ns: Option<u64>,
    /// VLAN tag that a device removed.
    pub vlan: Option<VlanTag>,
    /// Hash of the tunnels from which the packet was extracted. Only fragments from the same tunnels can belong to one
    /// datagram.
    pub network: u64,
    /// UDP ports that identify tunnels.
    pub ports: Ports,
}

impl<'a> Arrival<'a> {
    /// Describes a captured packet for a reassembler.
    pub fn of(packet: &Packet<'a>, said: &PacketMeta, link: LinkType, ports: Ports) -> Self {
        Self {
            data: packet.data,
            link,
            device: packet.device,
            direction: said.flags.unwrap_or(0) & DIRECTION,
            timestamp_ns: packet.timestamp_ns,
            vlan: said.vlan(),
            network: 0,
            ports,
        }
    }
}

/// Reassemblers, one for each device and direction.
pub struct Lanes {
    rules: ReassemblyRules,
    seed: u64,
    lanes: Vec<FragmentLane>,
    /// Latest timestamp so far, in nanoseconds. Timestamps in a capture may go backward.
    now_ns: u64,
    /// Buffer into which a packet is copied.
    buffer: Vec<u8>,
}

struct FragmentLane {
    device: u32,
    direction: u32,
    reassembler: Reassembler<Vec<u8>>,
}

/// Receiver of datagrams. A datagram is either complete, or discarded because it will never be.
pub trait Visitor {
    /// Handles a complete datagram.
    fn datagram(&mut self, lane: usize, datagram: &Datagram<'_, Vec<u8>>);
    /// Handles a datagram that will never be complete.
    fn discarded(&mut self, _lane: usize, _discarded: &Discarded<'_>) {}
}

/// Outcome for a packet.
#[derive(Clone, Copy, Debug)]
pub enum LaneFate {
    /// The packet was not processed, because too many interfaces are in use.
    Aside,
    /// The engine processed the packet.
    Engine {
        lane: usize,
        /// Datagram to which the packet belongs; `None` if the packet passed through or was dropped individually.
        identity: Option<Identity>,
        verdict: ReassemblyVerdict,
    },
}

impl Lanes {
    /// Creates an empty set of lanes.
    pub fn new(rules: ReassemblyRules, seed: u64) -> Self {
        Self { rules, seed, lanes: Vec::new(), now_ns: 0, buffer: Vec::new() }
    }

    /// Processes the next packet. Expired datagrams are discarded first.
    pub fn push(&mut self, arrival: &Arrival<'_>, visitor: &mut dyn Visitor) -> LaneFate {
        self.expire(arrival.timestamp_ns, visitor);
        let now_ns = self.now_ns;
        let Some(number) = self.lane(arrival) else {
            return LaneFate::Aside;
        };
        let meta = Meta { vlan: arrival.vlan, ..Meta::default() };
        let mut buffer = core::mem::take(&mut self.buffer);
        buffer.clear();
        buffer.extend_from_slice(arrival.data);
        let stack = dissect(&buffer, arrival.link, &arrival.ports);
        if let Some(ip) = stack.last().filter(|_| stack.stop == Stop::Fragment) {
            complete_header(&mut buffer, &ip);
        }
        let frame = Frame { buffer, meta };
        let reassembler = &mut self.lanes[number].reassembler;
        reassembler.set_network(arrival.network);
        reassembler.set_ports(arrival.ports);
        let identity = reassembler.identify(&frame);
        let mut telling = Telling::new(visitor, number);
        let verdict = reassembler.push(frame, now_ns, &mut telling);
        self.buffer = telling.buffer;
        LaneFate::Engine { lane: number, identity, verdict }
    }

    /// Discards the datagrams that have expired by the time of a packet.
    pub fn expire(&mut self, timestamp_ns: Option<u64>, visitor: &mut dyn Visitor) {
        self.now_ns = self.now_ns.max(timestamp_ns.unwrap_or(0));
        for (lane, number) in self.lanes.iter_mut().zip(0..) {
            lane.reassembler.expire(self.now_ns, &mut Telling::new(visitor, number));
        }
    }

    /// Discards all datagrams at the end of the capture or of a section.
    pub fn finish(&mut self, visitor: &mut dyn Visitor) {
        for (number, mut lane) in self.lanes.drain(..).enumerate() {
            lane.reassembler.finish(&mut Telling::new(visitor, number));
        }
    }

    /// Returns the lane for a device and direction; `None` if there are too many lanes.
    fn lane(&mut self, arrival: &Arrival<'_>) -> Option<usize> {
        let Arrival { device, direction, link, ports, .. } = *arrival;
        let is_it = |lane: &FragmentLane| lane.device == device && lane.direction == direction;
        if let Some(number) = self.lanes.iter().position(is_it) {
            return Some(number);
        }
        if self.lanes.len() >= LANES_MAX {
            return None;
        }
        let rules = self.rules.clone();
        // These rules are always valid. All data is copied into one buffer, so every overlap policy is possible.
        let reassembler = Reassembler::new(rules, link, ports, self.seed).ok()?;
        self.lanes.push(FragmentLane { device, direction, reassembler });
        Some(self.lanes.len() - 1)
    }
}

/// Adapter that passes a reassembler's results to a visitor, and keeps the returned buffer.
struct Telling<'a> {
    visitor: &'a mut dyn Visitor,
    lane: usize,
    buffer: Vec<u8>,
}

impl<'a> Telling<'a> {
    fn new(visitor: &'a mut dyn Visitor, lane: usize) -> Self {
        Self { visitor, lane, buffer: Vec::new() }
    }
}

impl ReassemblySink<Vec<u8>> for Telling<'_> {
    fn take(&mut self, outcome: Outcome<'_, Vec<u8>>) {
        match outcome {
            Outcome::Datagram(datagram) => self.visitor.datagram(self.lane, &datagram),
            Outcome::Discarded(discarded) => self.visitor.discarded(self.lane, &discarded),
            Outcome::Passed { frame, .. } | Outcome::Returned { frame, .. } => {
                self.buffer = frame.buffer;
            }
            _ => {}
        }
    }
}

/// Direction bits of `epb_flags`.
const DIRECTION: u32 = 0b11;
/// Maximum number of combinations of interface and direction. Each has its own tables.
const LANES_MAX: usize = 16;
