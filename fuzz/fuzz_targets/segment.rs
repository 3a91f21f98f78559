//! The segmenter, with any frame and any metadata: the packets have correct checksums and lengths, and contain the
//! whole payload.

use std::num::NonZeroU16;

use crate::{Decisions, stack};
use grosso::{
    Meta,
    checksum::{self, Checksum},
    meta::{Cwr, Gso, GsoSize, IpLevels},
    segment::Outgoing,
};
use grosso_rig::engine::{PORTS, cut};
use grosso_testkit::{
    oracle::{Link, State, verify},
    stack::{Place, Transport},
};
use grosso_wire::{LinkType, dissect};

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut decisions = Decisions::new(data);
    let (link, kit) =
        decisions.choose(&[(LinkType::Ethernet, Link::Ethernet), (LinkType::Raw, Link::Ip)]);
    let outgoing = decisions.choose(&[
        Outgoing::default(),
        Outgoing::default(),
        Outgoing::PARTIAL_CHECKSUMS,
        Outgoing::GSO_PARTIAL,
    ]);
    let gso = description(&mut decisions);
    let boundaries: Vec<usize> = (0..3).map(|_| decisions.word().into()).collect();
    let (frame, mut meta) = frame(&mut decisions, kit);
    meta.gso = Some(gso);
    let header_len = dissect(&frame, link, &PORTS).header_len();
    let slices = slices(&frame, header_len, &boundaries);
    let Ok(packets) = cut(&slices, &meta, link, outgoing) else { return };

    assert!(packets.len() >= 2 || outgoing.gso_partial);
    let payload: Vec<u8> = packets
        .iter()
        .flat_map(|(packet, _)| packet[dissect(packet, link, &PORTS).header_len()..].to_vec())
        .collect();
    assert_eq!(payload, frame[header_len..], "all of the payload, in order");
    let mut sequence = Vec::new();
    for (packet, meta) in packets {
        sequence.push(completed(packet, &meta));
    }
    for packet in sequence.iter().flatten() {
        for verdict in verify(packet, kit) {
            assert_ne!(verdict.state, State::Wrong, "{verdict:?}");
        }
    }
}

/// Returns a packet as it reaches the wire, or `None` if a device still has to segment it.
fn completed(mut packet: Vec<u8>, meta: &Meta) -> Option<Vec<u8>> {
    if meta.gso.is_some() {
        return None;
    }
    if let Checksum::Partial { start, offset } = meta.checksum {
        checksum::complete(&mut packet, start, offset).expect("a checksum inside its packet");
    }
    Some(packet)
}

/// Maximum number of payload bytes in a superframe.
const PAYLOAD_MAX: u16 = 1000;

fn description(decisions: &mut Decisions<'_>) -> Gso {
    let size = NonZeroU16::new(decisions.word()).unwrap_or(NonZeroU16::MIN);
    // Most superframes have a few dozen segments at most. More would take longer without finding more.
    let size = if decisions.byte() < 250 {
        NonZeroU16::MIN.saturating_add(PAYLOAD_MAX / 24 + size.get() % PAYLOAD_MAX)
    } else {
        size
    };
    let cut = decisions.choose(&[
        GsoSize::Every(size),
        GsoSize::Every(size),
        GsoSize::Every(size),
        GsoSize::Parts,
        GsoSize::Fragments(size),
        GsoSize::Unknown,
    ]);
    let flags = decisions.byte();
    Gso {
        size: cut,
        segments: u16::from(flags & 3),
        fixed_ids: IpLevels::from_bits(decisions.byte()),
        cwr: if flags & 4 == 0 { Cwr::First } else { Cwr::Every },
        partial_members: flags & 8 != 0,
        untrusted: flags & 16 != 0,
    }
}

/// Returns a superframe with some bytes changed, or arbitrary bytes.
fn frame(decisions: &mut Decisions<'_>, kit: Link) -> (Vec<u8>, Meta) {
    let kind = decisions.byte();
    if kind.is_multiple_of(4) {
        let (start, offset) = (decisions.word(), decisions.word());
        let partial = Checksum::Partial { start, offset };
        let checksum = if kind < 128 { Checksum::None } else { partial };
        let rest = std::mem::replace(decisions, Decisions::new(&[])).rest();
        return (rest.to_vec(), Meta { checksum, ..Meta::default() });
    }
    let stack = stack(decisions, kit);
    let len = usize::from(decisions.word());
    let packet = stack.packet(&Place::default()).payload_len(len % usize::from(PAYLOAD_MAX));
    let is_transport =
        matches!(stack.transport, Transport::Tcp | Transport::TcpTimestamps | Transport::Udp);
    let (mut frame, checksum) = if is_transport && kind % 4 == 1 {
        let (frame, start, offset) = packet.build_superframe();
        let partial = Checksum::Partial { start: start as u16, offset: offset as u16 };
        (frame, partial)
    } else {
        (packet.build(), Checksum::None)
    };
    for _ in 0..decisions.byte() % 4 {
        let at = usize::from(decisions.byte()) % frame.len();
        frame[at] ^= decisions.byte();
    }
    (frame, Meta { checksum, ..Meta::default() })
}

/// Returns the frame in slices. The first slice contains the headers.
fn slices<'a>(frame: &'a [u8], header_len: usize, boundaries: &[usize]) -> Vec<&'a [u8]> {
    let payload = frame.len() - header_len;
    let mut ends: Vec<usize> =
        boundaries.iter().map(|boundary| header_len + boundary % (payload + 1)).collect();
    ends.push(frame.len());
    ends.sort_unstable();
    let mut start = 0;
    let mut slices = Vec::new();
    for end in ends {
        slices.push(&frame[start..end]);
        start = end;
    }
    slices
}
