//! Runs the cases from the kernel's own tests `ip_defrag` and `ipv6_fragmentation`.

use grosso::reassemble::{Overlap, ReassemblyMode, ReassemblyRules};
use grosso_rig::fragments::{Piece, Version, cut};
use grosso_testkit::random::Random;

use super::{data, overlap, rules, whole};

/// Asserts that random datagrams, fragmented as in `ip_defrag` and arranged by `arrange`, are restored exactly.
fn assert_exact(seed: u64, arrange: impl Fn(Vec<Piece>, &mut Random) -> Vec<Piece>) {
    let mut random = Random::new(seed);
    for round in 0..60 {
        let version = Version::ALL[round % 2];
        let data = data(version, random.within(8, 10_000), seed + round as u64);
        // The number of fragments of a datagram stays below the limit.
        let size = random.within(1, data.len().div_ceil(8)) * 8;
        let pieces = arrange(cut(&data, size), &mut random);
        for rules in modes() {
            // A payload that fits into one packet is not fragmented in IPv4 and is an atomic fragment in IPv6; neither
            // one is reassembled.
            let expected = match size < data.len() {
                true => vec![version.whole(1, &data)],
                false => vec![],
            };
            assert_eq!(whole(rules, version, &pieces), expected, "{size} of {}", data.len());
        }
    }
}

/// Returns rules for both modes that reassemble datagrams, with the policies to compare with the kernel (K84).
fn modes() -> [ReassemblyRules; 3] {
    [rules(ReassemblyMode::Coalesce), rules(ReassemblyMode::KeepGeometry), overlap(Overlap::Linux)]
}

#[test]
fn k80_fragments_in_order() {
    assert_exact(80, |pieces, _| pieces);
}

#[test]
fn k81_runs_in_the_order_end_middle_start() {
    assert_exact(81, |pieces, _| {
        let (start, rest) = pieces.split_at(pieces.len().min(3));
        let (middle, end) = rest.split_at(rest.len().min(3));
        [end, middle, start].concat()
    });
}

/// Returns the odd-numbered fragments, counted from 0, and then the even-numbered ones.
fn odd_then_even(pieces: &[Piece]) -> Vec<Piece> {
    let odd = pieces.iter().skip(1).step_by(2);
    odd.chain(pieces.iter().step_by(2)).cloned().collect()
}

#[test]
fn k82_odd_then_even_with_duplicates() {
    assert_exact(82, |pieces, random| {
        let mut arranged = Vec::new();
        for piece in odd_then_even(&pieces) {
            let times = if random.percent(1) || pieces.len() < 4 { 2 } else { 1 };
            arranged.extend(std::iter::repeat_n(piece, times));
        }
        // The last fragment must arrive only once: a repetition would start another datagram.
        arranged.dedup_by(|a, b| a == b && *a == odd_then_even(&pieces)[pieces.len() - 1]);
        arranged
    });
}

#[test]
fn k83_one_overlap_kills_the_datagram() {
    let mut random = Random::new(83);
    for round in 0..60 {
        let version = Version::ALL[round % 2];
        let data = data(version, random.within(1000, 10_000), round as u64);
        let size = random.within(2, 20) * 8;
        let mut pieces = odd_then_even(&cut(&data, size));
        let odd = pieces.len() / 2;
        let at = random.within(odd.max(1), pieces.len() - 2);
        // The copy covers the second half of one fragment and the first half of the next.
        let start = pieces[at].offset as usize + size / 16 * 8;
        let overlapping = Piece::of(&data, start, (start + size).min(data.len() - 1) / 8 * 8);
        pieces.insert(at + 1, overlapping);
        for rules in modes() {
            assert_eq!(whole(rules, version, &pieces), Vec::<Vec<u8>>::new());
        }
    }
}

/// Tests that the caller can choose a policy that delivers overlapping fragments, as the kernel's IPv6 connection
/// tracking may do.
#[test]
fn k84_permissive_policies_deliver_what_overlaps() {
    let data = data(Version::V6, 4000, 84);
    let mut pieces = cut(&data, 800);
    pieces.insert(2, Piece::of(&data, 1200, 2000));
    for policy in [Overlap::First, Overlap::Last] {
        let expected = vec![Version::V6.whole(1, &data)];
        assert_eq!(whole(overlap(policy), Version::V6, &pieces), expected);
    }
}

#[test]
fn k85_8192_bytes_over_an_mtu_of_1500() {
    for version in Version::ALL {
        let data = data(version, 8192 + 8, 85);
        let pieces = cut(&data, if version == Version::V4 { 1480 } else { 1448 });
        let expected = vec![version.whole(1, &data)];
        assert_eq!(whole(rules(ReassemblyMode::Coalesce), version, &pieces), expected);
    }
}
