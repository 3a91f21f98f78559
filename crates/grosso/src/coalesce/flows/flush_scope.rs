//! Ordering flushes: before an unmergeable packet is delivered, a flush delivers the trains that the packet must not
//! overtake.

use grosso_wire::{Class, Kind, Layer, Stack, Stop, ipv4};

use crate::flow::FlowHash;

/// Flows to flush.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FlushScope {
    /// The flow with this hash.
    Flow(FlowHash),
    /// All flows between these addresses.
    AddressPair(u32),
    /// All flows.
    All,
}

/// Set of held trains that an unmergeable packet must not overtake (rule G75).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScopeKind {
    /// No train can belong to the packet's flow.
    None,
    /// The train of the packet's flow.
    Flow,
    /// All trains between the packet's outermost addresses, because its flow cannot be read.
    AddressPair,
}

/// Returns which trains to flush before a packet: none if no train can belong to its flow, only the train of its flow
/// if its ports can be read, and otherwise all trains between its addresses.
pub(crate) fn scope_kind(stack: &Stack, packet: &[u8]) -> ScopeKind {
    let Some(last) = stack.last() else { return ScopeKind::None };
    let is_ip = |layer: &&Layer| matches!(layer.kind, Kind::Ipv4 | Kind::Ipv6);
    match (stack.stop, last.kind, stack.layers().iter().filter(is_ip).count()) {
        (_, _, 0) => ScopeKind::None,
        (Stop::Payload, kind, _) if kind.class() == Class::Control => ScopeKind::None,
        (Stop::Payload, Kind::Tcp | Kind::Udp, _) => ScopeKind::Flow,
        (Stop::Unknown, Kind::Ipv4, 1) => {
            let at = last.offset as usize + ipv4::field::PROTOCOL.start;
            let hides_another = packet.get(at) == Some(&AUTHENTICATION_HEADER);
            if hides_another { ScopeKind::AddressPair } else { ScopeKind::None }
        }
        _ => ScopeKind::AddressPair,
    }
}

/// Protocol number of the IPsec authentication header, which may precede the transport header of a train.
const AUTHENTICATION_HEADER: u8 = 51;
