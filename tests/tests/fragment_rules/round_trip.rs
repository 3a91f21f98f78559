//! What was cut is joined, and what was joined is cut as it came.

use core::num::NonZeroU16;

use grosso::{
    Meta,
    reassemble::{Mode, Rules},
    segment::{FragmentOptions, Fragments},
};
use grosso_testkit::{
    oracle::Link,
    random::Random,
    stack::{Place, Stack},
};
use grosso_tests::fragments::Rig;
use grosso_wire::LinkType;

/// The fragments of a packet, or none where it cannot have any.
fn fragments(frame: &[u8], meta: &Meta, options: &FragmentOptions) -> Vec<Vec<u8>> {
    let slices = [frame];
    let Ok(mut plan) = Fragments::of_packet(&slices, meta, LinkType::Ethernet, options) else {
        return Vec::new();
    };
    let mut buffer = vec![0; plan.packet_len_max()];
    let mut fragments = Vec::new();
    while let Some(fragment) = plan.write_next(&mut buffer).expect("a buffer that is long enough") {
        fragments.push(buffer[..fragment.len()].to_vec());
    }
    fragments
}

/// Packets with every kind of headers, in any order of their fragments: the very packet comes out.
#[test]
fn joining_the_fragments_of_a_packet_gives_the_packet() {
    let mut joined = 0;
    for seed in 0..2000 {
        let mut random = Random::new(seed);
        let stack = Stack::random(&mut random, Link::Ethernet);
        let place = Place { ids: vec![7, 8, 9, 10, 11], ..Place::default() };
        let len = random.within(1500, 9000);
        let packet = stack.packet(&place).payload_len(len).build();
        let mut options = FragmentOptions::new(random.within(1280, 1500) as u16, seed as u32);
        options.ignore_dont_fragment = true;
        let mut pieces = fragments(&packet, &Meta::default(), &options);
        if pieces.len() < 2 {
            continue;
        }
        joined += 1;
        random.shuffle(&mut pieces);
        for mode in [Mode::Coalesce, Mode::KeepGeometry] {
            let mut rig = Rig::new(Rules::new(mode));
            pieces.iter().for_each(|piece| _ = rig.push(piece));
            assert_eq!(rig.take_whole(), std::slice::from_ref(&packet), "seed {seed} {stack:?}");
            rig.finish();
        }
    }
    assert!(joined > 1500, "only {joined} had fragments");
}

/// The largest fragment that came is enough to make the same fragments again (P38).
#[test]
fn a_forwarded_datagram_is_cut_again_as_it_came() {
    let mut cut = 0;
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let stack = Stack::random(&mut random, Link::Ethernet);
        let packet = stack.packet(&Place::default()).payload_len(5000).build();
        let mut options = FragmentOptions::new(random.within(1280, 1500) as u16, 77);
        options.ignore_dont_fragment = true;
        let pieces = fragments(&packet, &Meta::default(), &options);
        if pieces.len() < 2 {
            continue;
        }
        cut += 1;
        let mut rig = Rig::new(Rules::new(Mode::KeepGeometry));
        pieces.iter().for_each(|piece| _ = rig.push(piece));
        let whole = rig.whole.pop().expect("a datagram");
        let mut again = FragmentOptions::new(9000, 77);
        again.largest = NonZeroU16::new(whole.fragment_bytes_max);
        assert_eq!(fragments(&whole.bytes, &whole.meta, &again), pieces, "seed {seed} {stack:?}");
    }
    assert!(cut > 200, "only {cut} had fragments");
}
