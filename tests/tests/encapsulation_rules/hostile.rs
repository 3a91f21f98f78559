//! Tests hostile frames and metadata: nothing panics, no limit is exceeded, and decapsulation restores the encapsulated
//! frame.

use grosso::{
    Meta,
    checksum::{self, Checksum},
    meta::{Gso, VlanTag},
    segment::{Outgoing, Segments},
    tunnel::{
        Endpoint,
        decapsulate::Refusal,
        encapsulate::{Encapsulator, HEADER_BYTES_MAX},
    },
};
use grosso_rig::damage::{checksum, frames, links};
use grosso_wire::LinkType;
use proptest::prelude::*;

use super::{
    formats::{all, remote},
    putting::{Known, try_take},
};

fn endpoints() -> impl Strategy<Value = Endpoint> {
    prop::sample::select([all(), remote()].concat())
}

/// Generates metadata with a partial checksum near the headers or anywhere.
fn knowledge() -> impl Strategy<Value = Meta> {
    let places = prop_oneof![(0_u16..200, 0_u16..40), (any::<u16>(), any::<u16>())];
    let sizes = prop::option::of(1_u16..2000);
    let tags = prop::option::of(any::<u16>());
    (any::<u8>(), places, sizes, tags).prop_map(|(kind, (start, offset), size, tag)| Meta {
        checksum: checksum(kind, start, offset),
        gso: size.and_then(Gso::every),
        vlan: tag.map(|tci| VlanTag { protocol: 0x8100, tci }),
        ..Meta::default()
    })
}

/// Encapsulates a frame, given as two slices, and checks the invariants.
fn check(frame: &[u8], split: usize, meta: &Meta, link: LinkType, endpoint: &Endpoint) {
    let mut encapsulator = Encapsulator::new(endpoint.clone(), 1).unwrap();
    let (head, rest) = frame.split_at(split);
    let Ok(put_in) = encapsulator.encapsulate(&[head, rest], meta, link) else {
        let stats = encapsulator.stats();
        assert_eq!((stats.frames, stats.refused.iter().sum::<u64>()), (0, 1));
        return;
    };
    assert!(put_in.header.len() <= HEADER_BYTES_MAX);
    let inside = &frame[put_in.replaced..frame.len() - put_in.padding];
    let sent = Known { bytes: [put_in.header, inside].concat(), meta: put_in.meta };
    if let Checksum::Partial { start, offset } = sent.meta.checksum {
        assert!(usize::from(start) + usize::from(offset) + 2 <= sent.bytes.len());
    }
    if meta.gso.is_some() {
        let slices = [&sent.bytes[..]];
        let ports = endpoint.ports();
        let plan = Segments::new(&slices, &sent.meta, LinkType::Raw, &ports, Outgoing::default());
        if let Ok(mut segments) = plan {
            let mut buffer = vec![0; segments.packet_len_max()];
            while let Ok(Some(_)) = segments.write_next(&mut buffer) {}
        }
        return;
    }
    let before = completed(frame, put_in.replaced, frame.len() - put_in.padding, meta);
    // Both forms of the packet are tested: unchanged, because its receiver may be on this host, and as it appears on a
    // wire.
    for sent in [&sent, &Known::new(sent.completed())] {
        match try_take(endpoint, sent) {
            Ok(taken) if meta.vlan.is_none() => assert_eq!(taken.completed(), before),
            // The VLAN tag is now in the frame, after the addresses.
            Ok(taken) => assert_eq!(taken.bytes.len(), frame.len() + 4, "{endpoint:?}"),
            // Headers that contradict themselves stay unchanged.
            Err(refusal) => assert!(
                matches!(
                    refusal,
                    Refusal::Malformed
                        | Refusal::Truncated
                        | Refusal::InnerLength
                        | Refusal::LengthZero
                ),
                "{refusal}: {endpoint:?}"
            ),
        }
    }
}

/// Returns a range of a frame's bytes, with its partial checksum completed.
fn completed(frame: &[u8], start: usize, end: usize, meta: &Meta) -> Vec<u8> {
    let mut bytes = frame[..end].to_vec();
    if let Checksum::Partial { start, offset } = meta.checksum {
        checksum::complete(&mut bytes, start, offset).unwrap();
    }
    bytes.split_off(start)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn damaged_frames(
        frame in frames(),
        split in any::<prop::sample::Index>(),
        meta in knowledge(),
        link in links(),
        endpoint in endpoints(),
    ) {
        check(&frame, split.index(frame.len() + 1), &meta, link, &endpoint);
    }

    #[test]
    fn noise(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        meta in knowledge(),
        link in links(),
        endpoint in endpoints(),
    ) {
        check(&bytes, bytes.len(), &meta, link, &endpoint);
    }
}
