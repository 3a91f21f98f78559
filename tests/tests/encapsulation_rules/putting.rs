//! Helpers that encapsulate a packet for these tests.

use grosso::{
    Meta,
    checksum::{self, Checksum},
    tunnel::{
        Endpoint, Expected,
        decapsulate::{self, Decapsulation},
        encapsulate::{Encapsulator, Refusal},
    },
};
use grosso_testkit::Packet;
use grosso_wire::{LinkType, dissect};

use super::formats::Carried;

/// A frame and its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) bytes: Vec<u8>,
    pub(crate) meta: Meta,
}

impl Known {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, meta: Meta::default() }
    }

    /// Builds a packet of the test kit and leaves its innermost checksum partial.
    pub(crate) fn partial(packet: &Packet) -> Self {
        let (bytes, start, offset) = packet.build_partial();
        Self { bytes, meta: Meta { checksum: partial(start, offset), ..Meta::default() } }
    }

    /// Returns the bytes with a partial checksum completed, as by a device.
    pub(crate) fn completed(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        if let Checksum::Partial { start, offset } = self.meta.checksum {
            checksum::complete(&mut bytes, start, offset).unwrap();
        }
        bytes
    }
}

pub(crate) fn partial(start: usize, offset: usize) -> Checksum {
    Checksum::Partial { start: start as u16, offset: offset as u16 }
}

/// Encapsulates the frame.
pub(crate) fn put(
    encapsulator: &mut Encapsulator,
    frame: &Known,
    link: LinkType,
) -> Result<Known, Refusal> {
    let put_in = encapsulator.encapsulate(&[&frame.bytes], &frame.meta, link)?;
    let rest = &frame.bytes[put_in.replaced..frame.bytes.len() - put_in.padding];
    Ok(Known { bytes: [put_in.header, rest].concat(), meta: put_in.meta })
}

/// Decapsulates the packet at the peer, with all checks of a receiver.
pub(crate) fn take(endpoint: &Endpoint, frame: &Known) -> Known {
    try_take(endpoint, frame).unwrap_or_else(|refusal| panic!("{refusal}: {endpoint:?}"))
}

/// Decapsulates a packet that may be refused.
pub(crate) fn try_take(endpoint: &Endpoint, frame: &Known) -> Result<Known, decapsulate::Refusal> {
    let mut other = endpoint.clone();
    (other.local, other.remote) = (endpoint.remote, endpoint.local);
    let rules = other.rules();
    let stack = dissect(&frame.bytes, LinkType::Raw, &rules.ports);
    let link = link_of(endpoint);
    // The contents of an Ethernet tunnel are a frame, and need no outer link header.
    let plan = Decapsulation::plan(&frame.bytes, &stack, &frame.meta, link, &rules)?;
    other
        .admit(&plan, &mut Expected::default())
        .unwrap_or_else(|foreign| panic!("{foreign}: {endpoint:?}"));
    let mut bytes = frame.bytes.clone();
    let range = plan.apply(&mut bytes);
    Ok(Known { bytes: bytes[range].to_vec(), meta: plan.meta })
}

/// Returns the link type of the frames that this tunnel carries.
pub(crate) fn link_of(endpoint: &Endpoint) -> LinkType {
    if endpoint.carries_ethernet() { LinkType::Ethernet } else { LinkType::Raw }
}

/// Returns those of the kit's packets that this tunnel carries, with their kinds.
pub(crate) fn packets(endpoint: &Endpoint) -> Vec<(Carried, Packet)> {
    let mut packets = Vec::new();
    let starts = if endpoint.carries_ethernet() {
        let ethernet = || Packet::new().ethernet(|e| e);
        vec![
            (Carried::Ethernet, ethernet().ipv4(|ip| ip.tos(0x2a))),
            (Carried::Ethernet, ethernet().vlan(|v| v.id(7)).ipv6(|ip| ip.traffic_class(0x2a))),
        ]
    } else {
        vec![
            (Carried::Ipv4, Packet::new().ipv4(|ip| ip.tos(0x2a))),
            (Carried::Ipv6, Packet::new().ipv6(|ip| ip.traffic_class(0x2a))),
        ]
    };
    for (carried, start) in starts {
        packets.push((carried, start.clone().tcp(|t| t.sequence(9).timestamps(1, 2))));
        packets.push((carried, start.udp(|u| u)));
    }
    packets
}
