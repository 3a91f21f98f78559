//! Encapsulation of any frame, in any slices, with any metadata and into any tunnel: no input causes a panic, no limit
//! is exceeded, superframes are segmented or refused, and decapsulation restores the frame.

use crate::{Decisions, endpoint, stack};
use grosso::{
    Meta,
    checksum::{self, Checksum},
    meta::{Gso, VlanTag},
    segment::{Outgoing, Segments},
    tunnel::{
        Endpoint, Expected,
        decapsulate::{Decapsulation, Presented, Refusal},
        encapsulate::{Encapsulator, HEADER_BYTES_MAX},
    },
};
use grosso_testkit::{oracle::Link, stack::Place};
use grosso_wire::{LinkType, dissect};

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut decisions = Decisions::new(data);
    let link = decisions.choose(&[
        LinkType::Ethernet,
        LinkType::Raw,
        LinkType::Null,
        LinkType::LinuxSll,
        LinkType::LinuxSll2,
        LinkType::Ppp,
        LinkType::PppEther,
    ]);
    let endpoint = endpoint(&mut decisions);
    let meta = meta(&mut decisions);
    let split = decisions.word().into();
    let Ok(mut encapsulator) = Encapsulator::new(endpoint, 1) else { return };
    let frame = match decisions.byte() & 1 {
        0 => changed(&mut decisions, link),
        _ => decisions.rest().to_vec(),
    };
    put_in(&mut encapsulator, &frame, split, &meta, link);
}

fn meta(decisions: &mut Decisions<'_>) -> Meta {
    let checksum = match decisions.byte() % 5 {
        0 => Checksum::None,
        1 => Checksum::Unnecessary { levels: decisions.byte() },
        2 => Checksum::Complete { sum: decisions.word() },
        _ => Checksum::Partial {
            start: decisions.byte().into(),
            offset: decisions.choose(&[6, 16, 4, 0, u16::MAX]),
        },
    };
    let gso = if decisions.byte() & 3 == 0 { Gso::every(decisions.word()) } else { None };
    let tag = VlanTag { protocol: 0x8100, tci: 7 };
    let vlan = if decisions.byte() & 7 == 0 { Some(tag) } else { None };
    Meta { checksum, gso, vlan, ..Meta::default() }
}

/// Returns a frame from the test kit, with some bytes changed.
fn changed(decisions: &mut Decisions<'_>, link: LinkType) -> Vec<u8> {
    let kit = if link == LinkType::Ethernet { Link::Ethernet } else { Link::Ip };
    let payload = usize::from(decisions.byte());
    let packet = stack(decisions, kit).packet(&Place::default()).payload_len(payload);
    let mut frame = packet.build();
    while !decisions.is_over() {
        let at = usize::from(decisions.byte()) % frame.len();
        frame[at] = decisions.byte();
    }
    frame
}

fn put_in(
    encapsulator: &mut Encapsulator,
    frame: &[u8],
    split: usize,
    meta: &Meta,
    link: LinkType,
) {
    let endpoint = encapsulator.endpoint().clone();
    let (head, rest) = frame.split_at(split.min(frame.len()));
    let Ok(put_in) = encapsulator.encapsulate(&[head, rest], meta, link) else { return };
    assert!(put_in.header.len() <= HEADER_BYTES_MAX);
    let end = frame.len() - put_in.padding;
    let sent = [put_in.header, &frame[put_in.replaced..end]].concat();
    if let Checksum::Partial { start, offset } = put_in.meta.checksum {
        assert!(usize::from(start) + usize::from(offset) + 2 <= sent.len());
    }
    if meta.gso.is_some() {
        return cut(&sent, &put_in.meta, &endpoint);
    }
    let before = completed(&frame[..end], &meta.checksum).split_off(put_in.replaced);
    let on_the_wire = completed(&sent, &put_in.meta.checksum);
    // Both forms of the packet are tested: unchanged, because its receiver may be on this host, and as it appears on a
    // wire.
    for (sent, known) in [(sent, put_in.meta), (on_the_wire, Meta::default())] {
        if let Some(taken) = taken(&sent, &known, &endpoint)
            && meta.vlan.is_none()
        {
            assert!(taken == before, "decapsulation restores the frame");
        }
    }
}

/// Returns the packet that the peer decapsulates, or `None` if the sent frame was not a packet.
fn taken(sent: &[u8], meta: &Meta, endpoint: &Endpoint) -> Option<Vec<u8>> {
    let mut other = endpoint.clone();
    (other.local, other.remote) = (endpoint.remote, endpoint.local);
    let mut rules = other.rules();
    rules.presented = Presented::Alone;
    let stack = dissect(sent, LinkType::Raw, &rules.ports);
    let plan = match Decapsulation::plan(sent, &stack, meta, LinkType::Raw, &rules) {
        Ok(plan) => plan,
        Err(
            Refusal::Malformed | Refusal::Truncated | Refusal::InnerLength | Refusal::LengthZero,
        ) => {
            return None;
        }
        Err(refusal) => panic!("{refusal} of a sent packet"),
    };
    other.admit(&plan, &mut Expected::default()).expect("the outer packet belongs to the tunnel");
    let mut bytes = sent.to_vec();
    let range = plan.apply(&mut bytes);
    Some(completed(&bytes[range], &plan.meta.checksum))
}

fn completed(bytes: &[u8], checksum: &Checksum) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if let Checksum::Partial { start, offset } = *checksum {
        checksum::complete(&mut bytes, start, offset).expect("the checksum is in the packet");
    }
    bytes
}

fn cut(sent: &[u8], meta: &Meta, endpoint: &Endpoint) {
    let (slices, ports) = ([sent], endpoint.ports());
    let plan = Segments::new(&slices, meta, LinkType::Raw, &ports, Outgoing::default());
    let Ok(mut segments) = plan else { return };
    let mut buffer = vec![0; segments.packet_len_max()];
    while let Ok(Some(segment)) = segments.write_next(&mut buffer) {
        assert!(segment.len() <= buffer.len());
    }
}
