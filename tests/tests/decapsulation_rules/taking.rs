//! Helpers that decapsulate a packet for these tests.

use grosso::{
    Meta,
    tunnel::{
        Tunnel,
        decapsulate::{Decapsulation, DecapsulationRules, Refusal, RemoteChecksumMode},
    },
};
use grosso_testkit::oracle::FOU_PORT;
use grosso_wire::{LinkType, Ports, dissect};

/// Returns rules for a receiver that accepts every correct packet.
pub(crate) fn rules() -> DecapsulationRules {
    let mut rules = DecapsulationRules::default();
    rules.remote_checksum = RemoteChecksumMode::Complete;
    rules.ipv6_without_checksum = true;
    rules
}

/// Returns rules for a receiver that accepts every correct packet, with this protocol in FOU.
pub(crate) fn rules_with_fou(protocol: u8) -> DecapsulationRules {
    let ports = Ports::ASSIGNED.with_fou(FOU_PORT, protocol);
    let mut rules = rules();
    rules.ports = ports;
    rules
}

/// The packet and its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) tunnel: Tunnel,
    pub(crate) plan: Decapsulation,
    pub(crate) packet: Vec<u8>,
    pub(crate) meta: Meta,
}

pub(crate) fn take_with(
    frame: &[u8],
    meta: &Meta,
    link: LinkType,
    rules: &DecapsulationRules,
) -> Result<Taken, Refusal> {
    let stack = dissect(frame, link, &rules.ports);
    let plan = Decapsulation::plan(frame, &stack, meta, link, rules)?;
    let mut bytes = frame.to_vec();
    let range = plan.apply(&mut bytes);
    assert_eq!(range.len(), plan.packet_len());
    assert_eq!(bytes.len(), frame.len());
    let packet = bytes[range].to_vec();
    Ok(Taken { tunnel: plan.tunnel, plan, packet, meta: plan.meta })
}

/// Decapsulates a packet in an Ethernet frame, without metadata from a device.
pub(crate) fn take(frame: &[u8]) -> Result<Taken, Refusal> {
    take_with(frame, &Meta::default(), LinkType::Ethernet, &rules())
}
