//! Tests of the workloads, which compare each with its row of the table.

use std::collections::{BTreeMap, BTreeSet};

use grosso_testkit::oracle::{
    Lengths, Link, Rules, flow_of, is_right, parse, segment, sum, trains,
};
use grosso_testkit::workloads::{PACKETS, POLL, WORKLOADS, Workload, workload};

/// The data of a datagram's fragments by offset.
type Pieces<'a> = BTreeMap<usize, &'a [u8]>;

const LINK: Link = Link::Ethernet;

fn flows(workload: &Workload) -> usize {
    workload.frames.iter().filter_map(|f| flow_of(f, LINK)).collect::<BTreeSet<_>>().len()
}

/// Returns the mean number of packets per train if every train ends with its poll.
fn coupling(workload: &Workload) -> f64 {
    let polls = workload.frames.chunks(POLL);
    let count: usize = polls.map(|poll| trains(poll, LINK, Rules::default()).len()).sum();
    workload.frames.len() as f64 / count as f64
}

#[test]
fn every_frame_is_right_and_of_the_promised_count() {
    for name in WORKLOADS.iter().filter(|name| !name.starts_with("gso")) {
        let made = workload(name, 1);
        assert_eq!(made.name, *name);
        assert_eq!(made.packets, made.frames.len());
        let wrong = made.frames.iter().position(|frame| !is_right(frame, LINK));
        assert_eq!(wrong, None, "{name}");
        match *name {
            "tcp4_jumbo" => assert_eq!(made.packets, 4096),
            _ if name.starts_with("frag") => assert!(made.packets > PACKETS - 50, "{name}"),
            _ => assert_eq!(made.packets, PACKETS, "{name}"),
        }
        let longest = made.frames.iter().map(Vec::len).max();
        let expected = match *name {
            "tcp4_jumbo" => 9014,
            "tcp4_small" => 130,
            "udp4_quic" => 1292,
            "frag6_64k" | "frag6_shuffled" => 1510,
            // The payload is as long as in GRE, but the outer headers are 16 bytes longer.
            "gue_rco_tcp4" => 1530,
            _ => 1514,
        };
        assert_eq!(longest, Some(expected), "{name}");
    }
}

#[test]
fn flows_and_coupling_are_as_described() {
    let expected: BTreeMap<&str, (usize, f64, f64)> = [
        ("tcp4_1", (1, 20.0, 64.0)),
        ("tcp4_jumbo", (1, 6.0, 7.0)),
        ("tcp4_8rr", (8, 7.0, 8.0)),
        ("tcp4_64burst", (64, 4.0, 9.0)),
        ("tcp4_1000rr", (1000, 1.0, 1.0)),
        ("tcp6_16burst", (16, 5.0, 13.0)),
        ("tcp4_acks", (4, 1.2, 1.5)),
        ("tcp4_reorder", (8, 4.0, 16.0)),
        ("tcp4_small", (256, 1.0, 1.0)),
        ("udp4_quic", (16, 5.0, 9.5)),
        ("vxlan_tcp4", (16, 5.0, 13.0)),
        ("gre_tcp4", (16, 5.0, 13.0)),
        ("gue_rco_tcp4", (16, 5.0, 13.0)),
    ]
    .into();
    for (name, (count, least, most)) in expected {
        let made = workload(name, 1);
        let (found, ratio) = (flows(&made), coupling(&made));
        println!("{name}: {found} flows, {ratio:.2} packets a train");
        assert_eq!(found, count, "{name}");
        assert!((least..=most).contains(&ratio), "{name}: {ratio}");
    }
}

#[test]
fn superframes_cut_into_right_packets() {
    for name in ["gso_tcp4", "gso_udp4", "gso_vxlan", "gso_gre"] {
        let made = workload(name, 1);
        let gso = made.gso.expect("a superframe has a description");
        assert!((PACKETS..PACKETS + 50).contains(&made.packets), "{name}");
        for frame in &made.frames {
            let cut = segment(frame, LINK, gso.description).expect("a superframe");
            assert_eq!(cut.len(), gso.segments, "{name}");
            assert!(cut.iter().all(|packet| is_right(packet, LINK)), "{name}");
            let one = trains(&cut, LINK, Rules::default());
            assert_eq!(one.len(), 1, "{name}: {one:?}");
            // The field holds the uncomplemented pseudo-header sum.
            let parsed = parse(frame, LINK, Lengths::Whole);
            let transport = parsed.last().expect("a transport header");
            assert_eq!(transport.offset, gso.checksum_start);
            let ip = parsed.network_of(parsed.layers.len() - 1).expect("an IP header");
            let protocol = if transport.name == "tcp" { 6 } else { 17 };
            let len = ((frame.len() - transport.offset) as u16).to_be_bytes();
            let pseudo =
                [ip.bytes("source"), ip.bytes("destination"), &[0, protocol], &len].concat();
            assert_eq!(transport.number("checksum"), u64::from(sum(&pseudo)), "{name}");
        }
    }
}

/// Reassembles every datagram from its fragments, byte by byte, and verifies the datagram's checksum.
#[test]
fn fragments_form_whole_datagrams() {
    for (name, sources) in [
        ("frag4_8k", 8),
        ("frag4_64k", 2),
        ("frag6_64k", 2),
        ("frag_shuffled", 2),
        ("frag4_8k_shuffled", 8),
        ("frag6_shuffled", 2),
    ] {
        let made = workload(name, 1);
        let made_len = if name.starts_with("frag4_8k") { 8200 } else { 65008 };
        let mut lasts = 0;
        let mut datagrams: BTreeMap<(Vec<u8>, u64), Pieces<'_>> = BTreeMap::new();
        for frame in &made.frames {
            let parsed = parse(frame, LINK, Lengths::Declared);
            let last = parsed.last().expect("an IP header");
            let ip = &parsed.layers[1];
            let offset = match last.name {
                "ipv4" => (last.number("fragment") & 0x1fff) * 8,
                _ => last.number("offset") & 0xfff8,
            };
            let more = match last.name {
                "ipv4" => last.number("fragment") & 0x2000 != 0,
                _ => last.number("offset") & 1 != 0,
            };
            lasts += usize::from(!more);
            assert!(more || offset as usize + parsed.payload(frame).len() == made_len, "{name}");
            let key = (ip.bytes("source").to_vec(), last.number("id"));
            let piece = parsed.payload(frame);
            let before = datagrams.entry(key).or_default().insert(offset as usize, piece);
            assert_eq!(before, None, "{name}");
        }
        assert_eq!(lasts, datagrams.len(), "{name}");
        let senders: BTreeSet<_> = datagrams.keys().map(|(source, _)| source).collect();
        assert_eq!(senders.len(), sources, "{name}");
        let mut payload = 0;
        for ((source, _), pieces) in &datagrams {
            let mut whole = Vec::new();
            for (offset, piece) in pieces {
                assert_eq!(*offset, whole.len(), "{name}");
                whole.extend(*piece);
            }
            payload += whole.len() - 8;
            let destination = match source.len() {
                4 => vec![192, 168, 1, 100],
                _ => [&[0xfd, 0xaa][..], &[0; 13], &[1]].concat(),
            };
            let pseudo = [&source[..], &destination, &[0, 17], &(whole.len() as u16).to_be_bytes()];
            assert_eq!(sum(&[&pseudo.concat()[..], &whole].concat()), 0xffff, "{name}");
        }
        assert_eq!(payload, made.payload_bytes, "{name}");
    }
    let in_order = |name| {
        let frames = workload(name, 1).frames;
        frames.windows(2).filter(|pair| pair[0][20] & 0x1f > pair[1][20] & 0x1f).count()
    };
    assert!(
        in_order("frag_shuffled") > 10 * in_order("frag4_64k"),
        "shuffled fragments, compared with ordered ones"
    );
    assert!(
        in_order("frag4_8k_shuffled") > 2 * in_order("frag4_8k"),
        "shuffled fragments, compared with ordered ones"
    );
}

#[test]
fn two_percent_are_out_of_order() {
    let late = |name| {
        let mut next: BTreeMap<_, u32> = BTreeMap::new();
        let mut late = 0;
        for frame in workload(name, 1).frames {
            let flow = flow_of(&frame, LINK).expect("a TCP packet");
            let parsed = parse(&frame, LINK, Lengths::Declared);
            let sequence = parsed.last().expect("a TCP header").number("sequence") as u32;
            let expected = next.entry(flow).or_insert(sequence);
            // The sequence number is lower than the expected one, modulo 2^32.
            late += usize::from(sequence.wrapping_sub(*expected) > 1 << 31);
            if sequence.wrapping_sub(*expected) < 1 << 31 {
                *expected = sequence.wrapping_add(1448);
            }
        }
        late
    };
    assert_eq!(late("tcp4_64burst"), 0);
    let late = late("tcp4_reorder");
    assert!((PACKETS / 100..PACKETS / 33).contains(&late), "{late}");
}

#[test]
fn a_seed_is_the_whole_workload() {
    assert_eq!(workload("tcp4_reorder", 3).frames, workload("tcp4_reorder", 3).frames);
    assert_ne!(workload("tcp4_reorder", 3).frames, workload("tcp4_reorder", 4).frames);
}
