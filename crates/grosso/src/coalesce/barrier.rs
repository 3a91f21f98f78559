//! Packets that are in no train, and the trains that they must not overtake.

use grosso_wire::{Class, Kind, Layer, Stack, Stop, ipv4};

use crate::flow::FlowHash;

/// Flows whose packets must leave, whatever they wait for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Whose {
    /// The flow of this hash.
    Flow(FlowHash),
    /// All flows between these addresses.
    AddressPair(u32),
    /// All flows.
    All,
}

/// Held trains that a packet in none must not overtake (rule G75).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Barrier {
    /// None: no train can be of its flow.
    None,
    /// The train of its flow.
    Flow,
    /// All trains between its outermost addresses: its flow cannot be read.
    AddressPair,
}

/// A packet whose ports were read waits for the train of its flow only; one whose innermost headers
/// could not be read may be of any flow between its addresses, unless its protocol is one that no
/// train has.
pub(super) fn barrier(stack: &Stack, packet: &[u8]) -> Barrier {
    let Some(last) = stack.last() else { return Barrier::None };
    let is_ip = |layer: &&Layer| matches!(layer.kind, Kind::Ipv4 | Kind::Ipv6);
    match (stack.stop, last.kind, stack.layers().iter().filter(is_ip).count()) {
        (_, _, 0) => Barrier::None,
        (Stop::Payload, kind, _) if kind.class() == Class::Control => Barrier::None,
        (Stop::Payload, Kind::Tcp | Kind::Udp, _) => Barrier::Flow,
        (Stop::Unknown, Kind::Ipv4, 1) => {
            let at = last.offset as usize + ipv4::field::PROTOCOL.start;
            let hides_another = packet.get(at) == Some(&AUTHENTICATION_HEADER);
            if hides_another { Barrier::AddressPair } else { Barrier::None }
        }
        _ => Barrier::AddressPair,
    }
}

/// The protocol number of the IPsec authentication header, behind which the transport of a train
/// may stand.
const AUTHENTICATION_HEADER: u8 = 51;
