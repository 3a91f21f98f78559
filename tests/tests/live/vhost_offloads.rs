//! Tests a path between two VMs with every combination of features. Each VM receives only frames that it accepts, and
//! all streams and datagrams arrive completely.

#![cfg(target_os = "linux")]

use std::thread;

use grosso_testkit::{
    Packet,
    front_end::{FROM_GUEST, FrontEnd, MERGEABLE, Shape, TO_GUEST},
    oracle::{self, Description, Link, segment},
};

use crate::{
    live_path::world::until,
    vhost_port::{FORMS, TwoMachines, kicked, plain},
};

/// Feature bits of a guest and of its device (virtio 1.3 section 5.1.3).
const CSUM: [u64; 2] = [1 << 1, 1];
const TSO: [u64; 2] = [1 << 7 | 1 << 8 | 1 << 9, 1 << 11 | 1 << 12 | 1 << 13];
const USO: [u64; 2] = [1 << 54 | 1 << 55, 1 << 56];
/// Feature groups; each combination of them is a VM.
const WORDS: [u64; 4] = [CSUM[0] | CSUM[1], TSO[0] | TSO[1], USO[0] | USO[1], MERGEABLE];
/// Payload length of a superframe.
const PAYLOAD_BYTES: usize = 30_000;
/// Payload length of each packet in a superframe.
const SEGMENT_BYTES: usize = 1200;

/// TCP or UDP, over an IP version.
#[derive(Clone, Copy, Debug)]
struct Kind {
    is_tcp: bool,
    is_ipv4: bool,
}

/// Returns the features that guest `number` chooses, including the ring format `form`. Each bit that is clear in
/// `number` removes one group of features.
fn machine(form: u64, number: u32) -> u64 {
    let without = (0..4).filter(|word| number & 1 << word == 0).map(|word| WORDS[word]);
    let chosen = form & !without.sum::<u64>();
    // A driver may choose superframes only together with partial checksums.
    let has_checksums = number & 1 != 0;
    if has_checksums { chosen } else { chosen & !(WORDS[1] | WORDS[2]) }
}

impl Kind {
    fn packet(self, payload_bytes: usize) -> Packet {
        let packet = Packet::new().ethernet(|e| e);
        let packet = if self.is_ipv4 { packet.ipv4(|ip| ip) } else { packet.ipv6(|ip| ip) };
        let packet = if self.is_tcp { packet.tcp(|t| t) } else { packet.udp(|u| u) };
        packet.payload_len(payload_bytes)
    }

    /// Returns the type of a superframe in a virtio header.
    fn gso_type(self) -> u8 {
        match (self.is_tcp, self.is_ipv4) {
            (true, true) => 1,
            (true, false) => 4,
            (false, _) => 5,
        }
    }

    /// Returns the feature bit that permits these superframes: the guest's or the device's.
    fn bits(self, side: usize) -> u64 {
        match (self.is_tcp, self.is_ipv4, side) {
            (true, true, 0) => 1 << 7,
            (true, false, 0) => 1 << 8,
            (true, true, _) => 1 << 11,
            (true, false, _) => 1 << 12,
            (false, true, 0) => 1 << 54,
            (false, false, 0) => 1 << 55,
            (false, ..) => 1 << 56,
        }
    }

    /// Returns the offsets of the transport header and the payload.
    fn places(self) -> (usize, usize) {
        let transport = if self.is_ipv4 { 34 } else { 54 };
        (transport, transport + if self.is_tcp { 20 } else { 8 })
    }

    /// Returns frames with their virtio headers, as a VM with these features sends them.
    fn frames(self, chosen: u64) -> Vec<Vec<u8>> {
        let whole = self.packet(PAYLOAD_BYTES);
        let (bytes, start, offset) = whole.build_superframe();
        let of = |gso: u8, header_len: usize, size: usize| {
            let mut header = vec![1, gso];
            for field in [header_len, size, start, offset, 0] {
                header.extend((field as u16).to_le_bytes());
            }
            header
        };
        if chosen & self.bits(1) != 0 {
            let header = of(self.gso_type(), whole.header_len(), SEGMENT_BYTES);
            return vec![[header, bytes].concat()];
        }
        let description = Description { gso_size: SEGMENT_BYTES, ..Description::default() };
        let segments = segment(&bytes, Link::Ethernet, description).unwrap();
        let one = |mut segment: Vec<u8>| {
            if chosen & CSUM[1] == 0 {
                return plain(&segment);
            }
            let field = start + offset;
            let sum = self.pseudo_sum(&segment);
            segment[field..field + 2].copy_from_slice(&sum.to_be_bytes());
            [of(0, 0, 0), segment].concat()
        };
        segments.into_iter().map(one).collect()
    }

    /// Returns the pseudo-header sum.
    fn pseudo_sum(self, frame: &[u8]) -> u16 {
        let (transport, _) = self.places();
        let (protocol, len) = (if self.is_tcp { 6 } else { 17 }, frame.len() - transport);
        let (from, to) = if self.is_ipv4 { (26, 30) } else { (22, 38) };
        let (source, destination) = (&frame[from..to], &frame[to..transport]);
        oracle::sum(&oracle::pseudo_header(source, destination, protocol, len))
    }

    /// Returns the payloads of the packets of a frame, and checks that this VM accepts it.
    fn payloads(self, got: &[u8], chosen: u64) -> Vec<Vec<u8>> {
        let (header, frame) = got.split_at(12);
        let (transport, payload) = self.places();
        let size = usize::from(u16::from_le_bytes([header[4], header[5]]));
        if header[0] & 1 == 0 {
            assert!(oracle::is_right(frame, Link::Ethernet), "a checksum that is not complete");
        } else {
            assert_ne!(chosen & CSUM[0], 0, "nobody completes this checksum");
            let field = transport + if self.is_tcp { 16 } else { 6 };
            assert_eq!(frame[field..field + 2], self.pseudo_sum(frame).to_be_bytes());
        }
        if header[1] == 0 {
            assert!(frame.len() <= payload + SEGMENT_BYTES, "a packet longer than it was");
            return vec![frame[payload..].to_vec()];
        }
        assert_eq!((header[0] & 1, header[1] & 0x7f), (1, self.gso_type()));
        assert_ne!(chosen & self.bits(0), 0, "a superframe that nobody cuts");
        assert_eq!(size, SEGMENT_BYTES);
        frame[payload..].chunks(size).map(<[u8]>::to_vec).collect()
    }

    /// Sends one superframe, or its packets, and receives until everything has arrived. Asserts the number of frames.
    fn crosses(self, from: &mut FrontEnd, to: &mut FrontEnd, what: &str) {
        let room = if to.chosen & MERGEABLE == 0 { 66_000 } else { 2000 };
        while to.give(room, Shape::Direct(1)) {}
        to.kick(TO_GUEST).unwrap();
        for frame in self.frames(from.chosen) {
            assert!(from.send(&frame, Shape::Table(3)), "{what}: its ring is full");
        }
        from.kick(FROM_GUEST).unwrap();
        let whole = self.packet(PAYLOAD_BYTES).build();
        let expected: Vec<_> = whole[self.places().1..].chunks(SEGMENT_BYTES).collect();
        let (mut count, mut payloads) = (0, Vec::new());
        until(|| {
            while kicked(to, TO_GUEST, |to| to.give(room, Shape::Direct(1))) {}
            while let Some(got) = to.received() {
                count += 1;
                payloads.extend(self.payloads(&got, to.chosen));
            }
            payloads.len() >= expected.len()
        });
        assert!(payloads == expected, "{what}: another stream, or in another order");
        let packets = expected.len();
        let counts = match (from.chosen & self.bits(1) != 0, to.chosen & self.bits(0) != 0) {
            (true, true) => 1..=1,
            // Packets that arrive together are merged. The others arrive separately.
            (false, true) => 1..=packets,
            (_, false) => packets..=packets,
        };
        assert!(counts.contains(&count), "{what}: {count} frames");
    }
}

#[test]
fn machines_of_all_combinations_get_what_each_takes_and_every_stream_is_whole() {
    let kinds = [(true, true), (true, false), (false, true), (false, false)]
        .map(|(is_tcp, is_ipv4)| Kind { is_tcp, is_ipv4 });
    let meet = |a: u32, b: u32| {
        // Pairs with a <= b use the same ring layout on both sides; the other pairs use different layouts.
        let forms = if a <= b { [FORMS[b as usize % 2]; 2] } else { FORMS };
        let mut machines = TwoMachines::start(machine(forms[0], a), machine(forms[1], b));
        let TwoMachines { one, other, .. } = &mut machines;
        for kind in kinds {
            let what = format!("{a:04b} {b:04b} {forms:x?} {kind:?}");
            kind.crosses(one, other, &what);
            kind.crosses(other, one, &what);
        }
        machines.stop();
    };
    // Each endpoint spends time waiting for the kernel, so the pairs of VMs run in parallel.
    thread::scope(|scope| {
        for a in 0..16 {
            scope.spawn(move || (0..16).for_each(|b| meet(a, b)));
        }
    });
}
