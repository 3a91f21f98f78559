//! Tests the shortcut for consecutive fragments of a datagram: each fragment gets the same verdict with and without it.
//! The shortcut is avoided by pushing a fragment of another datagram in between, so that the headers are parsed from
//! the start and the datagram is looked up.

use grosso::{
    Meta,
    checksum::Checksum,
    meta::VlanTag,
    reassemble::{Overlap, ReassemblyMode, ReassemblyRules},
};
use grosso_rig::fragments::{Piece, Rig, Version, random_pieces};
use grosso_testkit::{Packet, oracle, random::Random};

use super::data;

/// Returns valid and invalid fragments of one datagram and a few others, with device metadata.
fn frames(random: &mut Random) -> Vec<(Vec<u8>, Meta)> {
    let version = *random.choose(&Version::ALL);
    let len = random.within(200, 3000);
    let data = data(version, len, random.bits());
    let pieces = match random.one_in(3) {
        true => random_pieces(random, version, &data),
        false => grosso_rig::fragments::cut(&data, random.within(1, 20) * 8),
    };
    let (around, odd) = (random.below(4), random.one_in(2));
    let link = |packet: Packet| match around {
        0 => packet.ethernet(|e| e).vlan(|v| v.id(7)),
        1 => packet.ethernet(|e| e).pppoe(|s| s),
        2 => packet.ethernet(|e| e).ipv4(|ip| ip).gre(|g| g.checksum()),
        _ => packet.ethernet(|e| e),
    };
    let mut frames = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        let id = if odd && random.one_in(40) { 2 } else { 1 };
        frames.push(described(version.behind(link(Packet::new()), id, piece), random, odd));
        if odd && random.one_in(30) {
            // The same fragment repeated, or other bytes at its offset.
            let data = if random.one_in(2) { piece.data.clone() } else { random.bytes(8) };
            let again = Piece { data, ..pieces[random.below(at + 1)].clone() };
            frames.push(described(version.behind(link(Packet::new()), 1, &again), random, odd));
        }
    }
    frames
}

/// Returns a frame with metadata from a device; one in ten has damaged headers.
fn described(mut frame: Vec<u8>, random: &mut Random, odd: bool) -> (Vec<u8>, Meta) {
    if !odd {
        return (frame, Meta::default());
    }
    if random.one_in(10) {
        let at = random.below(frame.len().min(70));
        frame[at] ^= 1 << random.below(8);
        if random.one_in(2) && frame.len() > 34 && frame[12..15] == [8, 0, 0x45] {
            frame[24..26].fill(0);
            let checksum = oracle::checksum(&frame[14..34]);
            frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        }
    }
    if random.one_in(20) {
        frame.truncate(random.below(frame.len()));
    }
    let mut meta = Meta::default();
    match random.below(12) {
        0 => meta.vlan = Some(VlanTag { protocol: 0x8100, tci: 7 }),
        1 => meta.checksum = Checksum::Unnecessary { levels: 1 },
        2 if frame.len() > 14 => {
            meta.checksum = Checksum::Complete { sum: oracle::sum(&frame[14..]) }
        }
        3 => meta.timestamp_ns = Some(random.bits()),
        _ => {}
    }
    (frame, meta)
}

#[test]
fn the_fragment_before_decides_nothing() {
    let stranger = Packet::new().ethernet(|e| e).ipv4(|ip| {
        ip.source([203, 0, 113, 9])
            .id(9)
            .df(false)
            .protocol(17)
            .fragment_offset(9)
            .more_fragments(true)
    });
    let stranger = stranger.payload(&[7; 64]).build();
    let mut whole = 0;
    for seed in 0..4000 {
        let mut random = Random::new(seed);
        let mut rules = ReassemblyRules::new(*random.choose(&[
            ReassemblyMode::Coalesce,
            ReassemblyMode::KeepGeometry,
            ReassemblyMode::Virtual,
        ]));
        rules.verify = random.one_in(2);
        rules.overlap = *random.choose(&[Overlap::Drop, Overlap::Linux]);
        if random.one_in(8) {
            rules.limits.fragments = 20;
        }
        let (mut alone, mut disturbed) = (Rig::new(rules.clone()), Rig::new(rules.clone()));
        for (frame, meta) in frames(&mut random) {
            disturbed.push(&stranger);
            let verdict = alone.push_frame(&frame, meta);
            assert_eq!(disturbed.push_frame(&frame, meta), verdict, "seed {seed} {frame:02x?}");
        }
        let told = |rig: &Rig| {
            let whole: Vec<_> = rig
                .whole
                .iter()
                .map(|w| {
                    (
                        w.bytes.clone(),
                        w.meta,
                        w.flow,
                        w.transport,
                        w.fragments,
                        w.fragment_bytes_max,
                        w.dont_fragment,
                    )
                })
                .collect();
            (whole, rig.discarded.clone(), rig.passed.clone(), rig.problems.clone())
        };
        assert_eq!(told(&disturbed), told(&alone), "seed {seed}");
        whole += alone.whole.len();
        alone.finish();
        disturbed.finish();
    }
    assert!(whole > 1000, "only {whole} datagrams");
}
