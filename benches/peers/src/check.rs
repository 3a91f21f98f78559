//! Checks that a contender's output contains every payload byte of every flow of its input, in order.

use std::collections::{BTreeMap, BTreeSet};

use grosso_testkit::{
    oracle::{Flow, Layer, Lengths, Link, Parsed, flow_of_parsed, parse, segment, sum},
    workloads::Workload,
};

use crate::{frame::ETHERNET_BYTES, work::Work};

/// Checks a contender's output, and returns a sentence for each fault. The list is empty if the output is correct.
pub(crate) fn complaints(work: Work, workload: &Workload, output: &[Vec<u8>]) -> Vec<String> {
    match work {
        Work::CoalesceTrusted | Work::CoalesceVerified => {
            conserved(&streams(&workload.frames), &streams(output))
        }
        Work::SegmentCopy | Work::SegmentScatter => segmented(workload, output),
        Work::Reassemble => conserved(&streams(&datagrams(&workload.frames)), &streams(output)),
        Work::Checksum => summed(&workload.frames[0], output),
    }
}

/// Payload of every flow, in frame order.
type Streams = BTreeMap<Flow, Vec<u8>>;

fn streams(frames: &[Vec<u8>]) -> Streams {
    let mut streams = Streams::new();
    for frame in frames {
        let parsed = parsed(frame);
        if let Some(flow) = flow_of_parsed(&parsed) {
            streams.entry(flow).or_default().extend(parsed.payload(frame));
        }
    }
    streams
}

fn conserved(sent: &Streams, came: &Streams) -> Vec<String> {
    let lost: usize = sent
        .iter()
        .map(|(flow, bytes)| bytes.len().saturating_sub(came.get(flow).map_or(0, Vec::len)))
        .sum();
    let flows: BTreeSet<&Flow> = sent.keys().chain(came.keys()).collect();
    let differs = |flow: &&Flow| sent.get(flow) != came.get(flow);
    let differing: Vec<&Flow> = flows.into_iter().filter(differs).collect();
    let moved = |flow: &&Flow| how_often(sent.get(flow)) == how_often(came.get(flow));
    match (differing.len(), lost) {
        (0, _) => Vec::new(),
        (flows, 0) if differing.iter().all(moved) => {
            vec![format!("the payload of {flows} flows leaves in another order than it came in")]
        }
        (flows, 0) => vec![format!("the payload of {flows} flows is not what was sent")],
        (flows, lost) => vec![format!("{lost} bytes of {flows} flows are lost")],
    }
}

/// Returns how often each byte value occurs.
fn how_often(bytes: Option<&Vec<u8>>) -> [usize; 256] {
    let mut counts = [0; 256];
    bytes.into_iter().flatten().for_each(|byte| counts[usize::from(*byte)] += 1);
    counts
}

/// Compares every packet with the one that the oracle's segmentation produces.
fn segmented(workload: &Workload, output: &[Vec<u8>]) -> Vec<String> {
    let Some(gso) = workload.gso else { return vec!["no superframes".to_owned()] };
    let expected: Vec<Vec<u8>> = workload
        .frames
        .iter()
        .filter_map(|frame| segment(frame, Link::Ethernet, gso.description).ok())
        .flatten()
        .collect();
    if expected.len() != output.len() {
        return vec![format!("{} packets instead of {}", output.len(), expected.len())];
    }
    let mut differing: BTreeMap<String, usize> = BTreeMap::new();
    for (expected, found) in expected.iter().zip(output).filter(|(one, two)| one != two) {
        for field in differences(expected, found) {
            *differing.entry(field).or_default() += 1;
        }
    }
    let packets = output.len();
    differing
        .iter()
        .map(|(field, count)| format!("{field} is not as declared in {count} of {packets}"))
        .collect()
}

/// Returns the fields in which two frames with the same headers differ.
fn differences(expected: &[u8], found: &[u8]) -> BTreeSet<String> {
    let (one, two) = (parsed(expected), parsed(found));
    let names = |parsed: &Parsed| parsed.layers.iter().map(|layer| layer.name).collect::<Vec<_>>();
    if names(&one) != names(&two) {
        return BTreeSet::from(["the order of headers".to_owned()]);
    }
    let mut fields = BTreeSet::new();
    for (one, two) in one.layers.iter().zip(&two.layers) {
        let differing = one.fields.keys().filter(|field| !agrees(field, one, two, found));
        fields.extend(differing.map(|field| format!("{} {field}", one.name)));
    }
    if one.payload(expected) != two.payload(found) {
        fields.insert("payload".to_owned());
    }
    fields
}

/// Returns whether a header field has the expected value, or a different one that is also correct.
///
/// Atomic datagrams may have any identification (RFC 6864 section 4.1), and a matching header checksum.
fn agrees(field: &str, expected: &Layer, layer: &Layer, found: &[u8]) -> bool {
    match (layer.name, field) {
        ("ipv4", "id") if is_atomic(expected) && is_atomic(layer) => true,
        ("ipv4", "checksum") => sum(&found[layer.offset..layer.inside()]) == u16::MAX,
        _ => layer.bytes(field) == expected.bytes(field),
    }
}

/// Returns whether an IPv4 datagram is atomic (RFC 6864 section 4): not a fragment, and not allowed to be fragmented.
fn is_atomic(layer: &Layer) -> bool {
    layer.number("fragment") & 0x7fff == 0x4000
}

/// Reassembles IPv4 fragments in the simplest way. Returns the datagrams in the order of their first fragments.
fn datagrams(fragments: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = Vec::new();
    let mut pieces: BTreeMap<Vec<u8>, BTreeMap<u16, &[u8]>> = BTreeMap::new();
    for fragment in fragments {
        let ip = &fragment[ETHERNET_BYTES..];
        let key = [&ip[4..6], &ip[12..20]].concat();
        let offset = u16::from_be_bytes([ip[6], ip[7]]) & 0x1fff;
        let pieces = pieces.entry(key.clone()).or_insert_with(|| {
            keys.push(key);
            BTreeMap::new()
        });
        pieces.insert(offset, fragment);
    }
    keys.iter().map(|key| whole(pieces[key].values().copied())).collect()
}

/// Assembles the frame of a datagram from its fragments, which are in order.
fn whole<'a>(mut fragments: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut frame = fragments.next().expect("a fragment").to_vec();
    frame.extend(fragments.flat_map(|fragment| &fragment[ETHERNET_BYTES + IPV4_BYTES..]));
    let total = (frame.len() - ETHERNET_BYTES) as u16;
    let header = &mut frame[ETHERNET_BYTES..];
    header[2..4].copy_from_slice(&total.to_be_bytes());
    header[6..8].fill(0);
    frame
}

fn summed(bytes: &[u8], output: &[Vec<u8>]) -> Vec<String> {
    let expected = sum(bytes);
    match output {
        [found] if found[..] == expected.to_be_bytes() => Vec::new(),
        found => vec![format!("the sum is {found:02x?}, not {expected:#06x}")],
    }
}

fn parsed(frame: &[u8]) -> Parsed {
    parse(frame, Link::Ethernet, Lengths::Declared)
}

const IPV4_BYTES: usize = 20;

#[cfg(test)]
mod tests {
    use grosso_testkit::workloads::workload;

    use super::*;

    const COALESCE: Work = Work::CoalesceVerified;

    #[test]
    fn what_went_in_is_what_may_come_out() {
        let sent = workload("tcp4_1", 1);
        assert_eq!(complaints(COALESCE, &sent, &sent.frames), Vec::<String>::new());
    }

    #[test]
    fn a_lost_a_swapped_and_a_changed_packet_are_noticed() {
        let sent = workload("vxlan_tcp4", 1);
        let lost = &sent.frames[1..];
        assert_eq!(complaints(COALESCE, &sent, lost), ["1398 bytes of 1 flows are lost"]);
        let mut swapped = workload("tcp4_1", 1);
        let sent = swapped.clone();
        swapped.frames.swap(3, 4);
        let found = complaints(COALESCE, &sent, &swapped.frames);
        assert_eq!(found, ["the payload of 1 flows leaves in another order than it came in"]);
        let mut changed = sent.clone();
        *changed.frames[7].last_mut().expect("a byte") ^= 1;
        let found = complaints(COALESCE, &sent, &changed.frames);
        assert_eq!(found, ["the payload of 1 flows is not what was sent"]);
    }

    #[test]
    fn a_segment_with_another_identification_and_checksum_is_named() {
        let superframes = workload("gso_tcp4", 1);
        let description = superframes.gso.expect("superframes").description;
        let cut = |frame| segment(frame, Link::Ethernet, description).expect("segments");
        let mut packets: Vec<Vec<u8>> =
            superframes.frames.iter().flat_map(|frame| cut(frame)).collect();
        assert_eq!(complaints(Work::SegmentCopy, &superframes, &packets), Vec::<String>::new());
        let total = packets.len();
        let complaint = |field| vec![format!("{field} is not as declared in 1 of {total}")];
        let header = ETHERNET_BYTES..ETHERNET_BYTES + IPV4_BYTES;
        let renumber = |packet: &mut Vec<u8>, by: u8| {
            packet[ETHERNET_BYTES + 5] ^= by;
            packet[header.clone()][10..12].fill(0);
            let sum = !sum(&packet[header.clone()]);
            packet[header.clone()][10..12].copy_from_slice(&sum.to_be_bytes());
        };
        packets[1][ETHERNET_BYTES + 5] ^= 1;
        let found = complaints(Work::SegmentCopy, &superframes, &packets);
        assert_eq!(found, complaint("ipv4 checksum"));
        renumber(&mut packets[1], 0);
        assert_eq!(complaints(Work::SegmentCopy, &superframes, &packets), Vec::<String>::new());
        packets[1][ETHERNET_BYTES + 8] ^= 1;
        renumber(&mut packets[1], 1);
        let found = complaints(Work::SegmentCopy, &superframes, &packets);
        assert_eq!(found, complaint("ipv4 ttl"));
        packets.pop();
        let found = complaints(Work::SegmentCopy, &superframes, &packets);
        assert_eq!(found, [format!("{} packets instead of {total}", total - 1)]);
    }

    #[test]
    fn a_datagram_with_a_hole_is_noticed() {
        let fragments = workload("frag4_8k", 1);
        let mut whole = datagrams(&fragments.frames);
        assert_eq!(whole.len() * 8192, fragments.payload_bytes);
        assert_eq!(complaints(Work::Reassemble, &fragments, &whole), Vec::<String>::new());
        whole[5][4000] ^= 1;
        assert_eq!(complaints(Work::Reassemble, &fragments, &whole).len(), 1);
    }

    #[test]
    fn a_wrong_sum_is_noticed() {
        let bytes = vec![vec![0, 1, 0xf2, 3, 0xf4, 0xf5, 0xf6, 0xf7]];
        let mut buffer = workload("tcp4_1", 1);
        buffer.frames = bytes;
        let found = |sum: [u8; 2]| complaints(Work::Checksum, &buffer, &[sum.to_vec()]).len();
        assert_eq!((found([0xdd, 0xf2]), found([0xf2, 0xdd])), (0, 1));
    }
}
