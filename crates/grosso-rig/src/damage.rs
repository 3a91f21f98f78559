//! Strategies for `proptest` that generate almost valid frames and metadata that may be wrong.

use grosso::checksum::Checksum;
use grosso_testkit::{
    oracle::Link,
    random::Random,
    stack::{Place, Stack},
};
use grosso_wire::LinkType;
use proptest::prelude::*;

/// Generates a frame over any header stack, with up to three changed bytes near its start, and possibly truncated.
pub fn frames() -> impl Strategy<Value = Vec<u8>> {
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    (any::<u64>(), changes, 0_usize..200, prop::option::of(any::<prop::sample::Index>())).prop_map(
        |(seed, changes, payload, cut)| {
            let mut random = Random::new(seed);
            let link = if seed % 3 == 0 { Link::Ip } else { Link::Ethernet };
            let stack = Stack::random(&mut random, link);
            let mut frame = stack.packet(&Place::default()).payload_len(payload).build();
            for (place, byte) in changes {
                let at = place.index(frame.len().min(120));
                frame[at] = byte;
            }
            if let Some(cut) = cut {
                frame.truncate(cut.index(frame.len()));
            }
            frame
        },
    )
}

/// Generates a link type.
pub fn links() -> impl Strategy<Value = LinkType> {
    prop_oneof![
        Just(LinkType::Ethernet),
        Just(LinkType::Raw),
        Just(LinkType::Null),
        Just(LinkType::LinuxSll),
        Just(LinkType::LinuxSll2),
        Just(LinkType::Ppp),
        Just(LinkType::PppEther),
    ]
}

/// Returns a checksum state that `kind` selects. Only a partial checksum uses `start` and `offset`.
#[must_use]
pub fn checksum(kind: u8, start: u16, offset: u16) -> Checksum {
    match kind % 4 {
        0 => Checksum::None,
        1 => Checksum::Unnecessary { levels: start as u8 },
        2 => Checksum::Complete { sum: start },
        _ => Checksum::Partial { start, offset },
    }
}
