//! K90 to K98: `gso_test`. The kernel's test uses a synthetic header; here it is an Ethernet, IPv4 and TCP header.

use grosso::{
    Meta,
    meta::GsoSize,
    segment::{NoSegments, Outgoing},
};
use grosso_rig::{
    engine::cut,
    superframe::{Superframe, lengths_behind},
};
use grosso_testkit::Packet;
use grosso_wire::LinkType;

/// Size of the Ethernet, IPv4 and TCP headers, in bytes.
const HEADERS: usize = 14 + 20 + 20;

/// Layout of a superframe in memory: the length of the linear part after the headers, and of the pieces that follow it.
struct Geometry {
    linear: usize,
    pieces: &'static [usize],
}

impl Geometry {
    fn superframe(&self) -> Superframe {
        let len = self.linear + self.pieces.iter().sum::<usize>();
        let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|tcp| tcp).payload_len(len);
        Superframe::new(&packet, 1000)
    }

    /// Segments the superframe slice by slice, with this metadata.
    fn cut(&self, meta: &Meta, outgoing: Outgoing) -> Result<Vec<usize>, NoSegments> {
        let bytes = self.superframe().bytes;
        let (linear, mut rest) = bytes.split_at(HEADERS + self.linear);
        let mut slices = vec![linear];
        for &piece in self.pieces {
            let (slice, behind) = rest.split_at(piece);
            slices.push(slice);
            rest = behind;
        }
        let packets = cut(&slices, meta, LinkType::Ethernet, outgoing)?;
        let packets: Vec<_> = packets.into_iter().map(|(bytes, _)| bytes).collect();
        if outgoing == Outgoing::default() && meta.gso.is_some_and(|gso| gso.size().is_some()) {
            // The layout in memory does not change the packets.
            assert_eq!(packets, self.superframe().packets());
        }
        Ok(lengths_behind(HEADERS, &packets))
    }
}

/// Asserts the lengths of the segments that software creates from the superframe with a segment size of 1000 bytes.
#[track_caller]
fn assert_segments(linear: usize, pieces: &'static [usize], expected: &[usize]) {
    let geometry = Geometry { linear, pieces };
    let meta = geometry.superframe().meta;
    assert_eq!(geometry.cut(&meta, Outgoing::default()).unwrap(), expected);
}

#[test]
fn k90_no_gso() {
    let geometry = Geometry { linear: 1000, pieces: &[] };
    let meta = geometry.superframe().meta;
    assert_eq!(geometry.cut(&meta, Outgoing::default()), Err(NoSegments::Whole));
}

#[test]
fn k91_linear() {
    assert_segments(2001, &[], &[1000, 1000, 1]);
}

#[test]
fn k92_frags() {
    assert_segments(1000, &[1000, 1], &[1000, 1000, 1]);
}

#[test]
fn k93_frags_pure() {
    assert_segments(0, &[1000, 1000, 2], &[1000, 1000, 2]);
}

// Rules: S47
#[test]
fn k94_gso_partial() {
    let geometry = Geometry { linear: 1000, pieces: &[1000, 3] };
    let meta = geometry.superframe().meta;
    assert_eq!(geometry.cut(&meta, Outgoing::GSO_PARTIAL).unwrap(), [2000, 3]);
}

#[test]
fn k95_frag_list() {
    assert_segments(1000, &[1000, 1000], &[1000; 3]);
}

#[test]
fn k96_frag_list_pure() {
    assert_segments(0, &[1000, 1000], &[1000; 2]);
}

#[test]
fn k97_frag_list_non_uniform() {
    assert_segments(1000, &[1000, 1, 1000, 2], &[1000, 1000, 1000, 3]);
}

// Rules: S24
#[test]
fn k98_gso_by_frags() {
    for geometry in [
        Geometry { linear: 100, pieces: &[200, 300, 400] },
        Geometry { linear: 0, pieces: &[100, 200, 300, 400] },
        Geometry { linear: 0, pieces: &[100, 0, 200, 300, 0, 400, 0] },
    ] {
        let meta = geometry.superframe().gso(|gso| gso.size = GsoSize::Parts).meta;
        assert_eq!(geometry.cut(&meta, Outgoing::default()).unwrap(), [100, 200, 300, 400]);
    }
}
