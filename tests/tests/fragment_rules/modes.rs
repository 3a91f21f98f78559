//! Tests the modes of reassembly: fragments are copied into one datagram, kept in their buffers, or forwarded.

use grosso::{
    Frame, Meta,
    checksum::Checksum,
    reassemble::{
        Outcome, Overlap, OverlapNeedsCoalesce, Reassembler, ReassemblyMode, ReassemblyRules,
        ReassemblyVerdict, Returned, reason::Discard,
    },
};
use grosso_rig::{
    engine::PORTS,
    fragments::{Piece, Rig, Version, cut},
};
use grosso_testkit::random::Random;
use grosso_wire::LinkType;

use super::{DEAD, data, push_all, rules};

#[test]
fn f24_b41_coalescing_gives_every_buffer_back_at_once() {
    let data = data(Version::V4, 60_000, 24);
    let mut rig = Rig::new(rules(ReassemblyMode::Coalesce));
    let pieces = cut(&data, 1480);
    for (number, piece) in pieces.iter().enumerate() {
        rig.push(&Version::V4.frame(1, piece));
        assert_eq!(rig.returned[number], (number, Returned::Gathered));
        // A page of 4096 bytes takes at most 4400 with its bookkeeping, and the datagram itself 600.
        let pages = (512 + piece.end() as usize).div_ceil(4096);
        assert!(rig.held_bytes() <= pages * 4400 + 600, "{} bytes", rig.held_bytes());
    }
    assert_eq!(rig.take_whole(), [Version::V4.whole(1, &data)]);
}

/// Tests that the pushed fragments can be restored byte for byte, in data order, whatever the order of arrival.
#[test]
fn p38_keeping_geometry_gives_the_fragments_back_as_they_came() {
    let mut random = Random::new(38);
    for round in 0..200 {
        let version = Version::ALL[round % 2];
        let data = data(version, random.within(100, 5000), round as u64);
        let mut pieces = Vec::new();
        let mut start = 0;
        while start < data.len() {
            // The first fragment must contain its headers, and must not be the whole datagram.
            let end = start + random.within(1, (data.len() / 16).max(2)) * 8;
            let end = if start == 0 { end.max(8).min(data.len() / 2 / 8 * 8) } else { end };
            pieces.push(Piece::of(&data, start, end.min(data.len())));
            start = end;
        }
        let frames: Vec<_> = pieces.iter().map(|piece| version.frame(1, piece)).collect();
        let mut order: Vec<usize> = (0..frames.len()).collect();
        random.shuffle(&mut order);
        let mut rig = Rig::new(rules(ReassemblyMode::KeepGeometry));
        let meta = |at: usize| Meta {
            timestamp_ns: Some(at as u64),
            checksum: Checksum::Unnecessary { levels: (at % 3) as u8 },
            ..Meta::default()
        };
        for &at in &order {
            rig.push_frame(&frames[at], meta(at));
        }
        let whole = rig.whole.pop().expect("a datagram");
        assert_eq!(whole.bytes, version.whole(1, &data));
        let again: Vec<_> = whole.frames.iter().map(|(_, frame, _)| frame.clone()).collect();
        assert_eq!(again, frames);
        assert!(whole.frames.iter().enumerate().all(|(at, (_, _, kept))| *kept == meta(at)));
        assert_eq!(whole.meta.timestamp_ns, order.last().map(|&at| at as u64));
        let longest = frames.iter().map(|frame| frame.len() - 14).max();
        assert_eq!(Some(usize::from(whole.fragment_bytes_max)), longest);
        rig.finish();
    }
}

#[test]
fn fragments_of_the_virtual_mode_leave_when_their_ports_are_known() {
    for version in Version::ALL {
        let data = data(version, 100, 30);
        let pieces = cut(&data, 24);
        let frames: Vec<_> = pieces.iter().map(|piece| version.frame(1, piece)).collect();
        let mut rig = Rig::new(rules(ReassemblyMode::Virtual));
        let verdicts: Vec<_> = [3, 1, 0, 2, 4].iter().map(|&at| rig.push(&frames[at])).collect();
        let (held, forwarded) = (ReassemblyVerdict::Held, ReassemblyVerdict::Forwarded);
        assert_eq!(verdicts, [held, held, forwarded, forwarded, ReassemblyVerdict::Completed]);
        // Waiting fragments are forwarded in data order, starting with the first fragment.
        let numbers: Vec<_> = rig.forwarded.iter().map(|(number, ..)| *number).collect();
        assert_eq!(numbers, [2, 1, 0, 3, 4]);
        let sent: Vec<_> = rig.forwarded.iter().map(|(_, bytes, _)| bytes.clone()).collect();
        assert_eq!(sent, [0, 1, 3, 2, 4].map(|at: usize| frames[at].clone()));
        let ports =
            Some([u16::from_be_bytes([data[0], data[1]]), u16::from_be_bytes([data[2], data[3]])]);
        assert!(
            rig.forwarded.iter().all(|(_, _, flow)| flow.ports == ports && flow.protocol == 17)
        );
        assert_eq!(rig.stats().datagrams, 1);
        rig.finish();
    }
}

#[test]
fn the_virtual_mode_still_distinguishes_duplicates_from_overlaps() {
    let data = data(Version::V4, 100, 31);
    let pieces = cut(&data, 24);
    let mut other = pieces[1].clone();
    other.data[3] ^= 1;
    // The unchanged fragment arrives before or after the first fragment, which releases the others.
    for order in [[1, 0], [0, 1]] {
        let mut rig = Rig::new(rules(ReassemblyMode::Virtual));
        let known = order.map(|at: usize| pieces[at].clone());
        push_all(&mut rig, Version::V4, 1, &known);
        let rest = [pieces[1].clone(), other.clone(), pieces[2].clone()];
        let verdicts = push_all(&mut rig, Version::V4, 1, &rest);
        let overlap = ReassemblyVerdict::Discarded(Discard::Overlap);
        assert_eq!(verdicts, [ReassemblyVerdict::Duplicate, overlap, DEAD]);
        assert_eq!(rig.forwarded.len(), 2);
        rig.finish();
    }
}

#[test]
fn bytes_are_mixed_only_where_they_are_copied() {
    let reassembler = |mode, overlap| {
        let mut rules = ReassemblyRules::new(mode);
        rules.overlap = overlap;
        Reassembler::<Vec<u8>>::new(rules, LinkType::Ethernet, PORTS, 1).map(|_| ())
    };
    for overlap in [Overlap::First, Overlap::Last] {
        assert_eq!(reassembler(ReassemblyMode::KeepGeometry, overlap), Err(OverlapNeedsCoalesce));
        assert_eq!(reassembler(ReassemblyMode::Virtual, overlap), Err(OverlapNeedsCoalesce));
        assert_eq!(reassembler(ReassemblyMode::Coalesce, overlap), Ok(()));
    }
    assert_eq!(reassembler(ReassemblyMode::KeepGeometry, Overlap::Linux), Ok(()));
}

/// Tests that fragments from different tunnels are never merged, even if the tunnels carry the same addresses.
#[test]
fn fragments_of_different_networks_are_never_joined() {
    for version in Version::ALL {
        let networks = [0, 1, u64::MAX];
        let of = |network: u64| data(version, 5000, 5 + network % 7);
        let pieces = networks.map(|network| cut(&of(network), 1000));
        let rules = rules(ReassemblyMode::Coalesce);
        let mut reassembler =
            Reassembler::new(rules, LinkType::Ethernet, PORTS, 1).expect("no overlap");
        let mut whole = Vec::new();
        for number in 0..pieces[0].len() {
            for (network, pieces) in networks.iter().zip(&pieces) {
                reassembler.set_network(*network);
                let frame = Frame::new(version.frame(1, &pieces[number]));
                let mut sink = |outcome: Outcome<'_, Vec<u8>>| {
                    if let Outcome::Datagram(datagram) = outcome {
                        let mut bytes = Vec::new();
                        datagram.copy_to(&mut bytes);
                        whole.push(bytes);
                    }
                };
                reassembler.push(frame, 0, &mut sink);
            }
        }
        assert!(whole == networks.map(|network| version.whole(1, &of(network))), "{version:?}");
    }
}
