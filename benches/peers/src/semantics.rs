//! Runs correctness cases through each contender: packets that must not be merged or reordered, and superframes that
//! are easily split wrongly.

use grosso_benches::Cache;
use grosso_testkit::{
    Packet,
    headers::{Ipv4, Tcp},
    oracle::{Description, Layer, Lengths, Link, parse},
    workloads::{Gso, Workload},
};
use serde::Serialize;

use crate::{contender::Boxed, work::Work};

/// Result of one contender in one case.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) contender: String,
    pub(crate) work: Work,
    pub(crate) case: &'static str,
    /// The fault, or `None` if the result was correct.
    pub(crate) wrong: Option<&'static str>,
}

/// Input packets, and a check of the frames that a contender makes from them.
struct Case {
    name: &'static str,
    workload: Workload,
    judge: Judge,
}

/// Function that compares the input frames (first argument) with the output frames (second argument), and describes the
/// fault, if any.
type Judge = fn(&[Vec<u8>], &[Vec<u8>]) -> Option<&'static str>;

/// Runs the cases of a kind of work through the contenders that `contenders` creates for each case.
pub(crate) fn examine(
    work: Work,
    contenders: impl Fn(Work, Cache, &Workload) -> Vec<Boxed<'_>>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for case in &cases(work) {
        for mut contender in contenders(work, Cache::Hot, &case.workload) {
            // The report of the row already shows that a contender has no output.
            let Ok(output) = contender.output() else { continue };
            let wrong = (case.judge)(&case.workload.frames, &output);
            let contender = contender.about().name();
            findings.push(Finding { contender, work, case: case.name, wrong });
        }
    }
    findings
}

fn cases(work: Work) -> Vec<Case> {
    match work {
        Work::CoalesceTrusted => joined(),
        Work::CoalesceVerified => {
            let wrong = DATA.tcp(|tcp| tcp.checksum_xor(0x5555));
            let laundered = case("a wrong TCP checksum", &[DATA, wrong, DATA], |_, output| {
                let joins = output
                    .iter()
                    .map(|frame| members(frame))
                    .any(|m| m.len() > 1 && m.contains(&2));
                joins.then_some("joins a packet whose checksum is wrong")
            });
            joined().into_iter().chain([laundered]).collect()
        }
        Work::SegmentCopy => cut(),
        Work::SegmentScatter | Work::Reassemble | Work::Checksum => Vec::new(),
    }
}

/// Returns cases with packets of one flow to be coalesced.
fn joined() -> Vec<Case> {
    let (ect, ce) = (DATA.ip(|ip| ip.tos(2)), DATA.ip(|ip| ip.tos(3)));
    vec![
        case("CE among ECT", &[ect, ce, ect], |input, output| {
            changes(input, output, "tos").then_some("loses a CE mark: congestion goes unnoticed")
        }),
        case("TTL 64, then 10", &[DATA, DATA.ip(|ip| ip.ttl(10))], |input, output| {
            changes(input, output, "ttl").then_some("joins TTL 64 with TTL 10")
        }),
        case(
            "300, 1448, 10, 1448 bytes",
            &[DATA.len(300), DATA.len(1448), DATA.len(10), DATA.len(1448)],
            |input, output| {
                let unequal = output.iter().any(|frame| !can_be_cut_again(input, frame));
                unequal.then_some("joins unequal sizes, which nobody can cut again")
            },
        ),
        case("a pure ACK among data", &[DATA, DATA.len(0), DATA], |_, output| {
            let moved = order(output) != [1, 0, 3];
            moved.then_some("lets data and a pure ACK change places")
        }),
        case("an RST behind data", &[DATA, DATA, DATA.len(0).tcp(Tcp::rst)], |_, output| {
            (order(output) != [1, 2, 0]).then_some("lets an RST overtake data")
        }),
        case("ECE among data", &[DATA, DATA.tcp(Tcp::ece), DATA], |_, output| {
            let moved = order(output) != [1, 2, 3];
            moved.then_some("lets data with ECE and without change places")
        }),
        case("data behind a FIN", &[DATA, DATA.tcp(Tcp::fin), DATA], |_, output| {
            let glued = output.iter().any(|frame| members(frame).ends_with(&[2, 3]));
            glued.then_some("joins a FIN with what comes behind it")
        }),
    ]
}

/// Returns cases with a superframe to be segmented.
fn cut() -> Vec<Case> {
    let tcp = Packet::new().ethernet(|e| e).ipv4(|ip| ip).tcp(|tcp| tcp.cwr().psh());
    let udp = Packet::new().ethernet(|e| e).ipv4(|ip| ip).udp(|udp| udp);
    vec![
        superframe("CWR on a superframe", &tcp.payload(&[7; 3 * SEGMENT_BYTES]), |_, output| {
            let marked =
                output.iter().filter(|frame| last(frame).number("offset_flags") & 0x80 != 0);
            (marked.count() != 1).then_some("sends CWR on every segment, not on the first alone")
        }),
        superframe(
            "a UDP checksum of 0",
            &udp.clone().payload(&summing_to_zero(&udp)),
            |_, output| {
                let none = output.iter().any(|frame| last(frame).number("checksum") == 0);
                none.then_some("writes a UDP checksum of 0, which says that there is none")
            },
        ),
    ]
}

/// One packet of a case.
#[derive(Clone, Copy)]
struct Segment {
    len: usize,
    ip: fn(Ipv4) -> Ipv4,
    tcp: fn(Tcp) -> Tcp,
}

impl Segment {
    const fn len(self, len: usize) -> Self {
        Self { len, ..self }
    }

    const fn ip(self, ip: fn(Ipv4) -> Ipv4) -> Self {
        Self { ip, ..self }
    }

    const fn tcp(self, tcp: fn(Tcp) -> Tcp) -> Self {
        Self { tcp, ..self }
    }
}

/// An ordinary packet with data.
const DATA: Segment = Segment { len: SEGMENT_BYTES, ip: |ip| ip, tcp: |tcp| tcp };

/// Creates a case of consecutive packets. Every payload byte is 1 in the first packet, 2 in the second, and so on.
fn case(name: &'static str, segments: &[Segment], judge: Judge) -> Case {
    let mut sequence = 1;
    let numbered = segments.iter().zip(1_u8..);
    let frames: Vec<Vec<u8>> = numbered
        .map(|(segment, number)| {
            let packet = Packet::new().ethernet(|e| e).ipv4(|ip| (segment.ip)(ip.ttl(64)));
            let packet = packet.tcp(|tcp| (segment.tcp)(tcp.sequence(sequence)));
            sequence += segment.len as u32;
            packet.payload(&vec![number; segment.len]).build()
        })
        .collect();
    let workload = Workload { name, packets: frames.len(), frames, payload_bytes: 0, gso: None };
    Case { name, workload, judge }
}

/// Creates a case that consists of one superframe.
fn superframe(name: &'static str, packet: &Packet, judge: Judge) -> Case {
    let (frame, checksum_start, checksum_offset) = packet.build_superframe();
    let description = Description { gso_size: SEGMENT_BYTES, ..Description::default() };
    let gso = Gso { description, segments: 3, checksum_start, checksum_offset };
    let frames = vec![frame];
    Case {
        name,
        workload: Workload { name, packets: 3, frames, payload_bytes: 0, gso: Some(gso) },
        judge,
    }
}

/// Returns the payload of three segments, chosen so that the checksum of the first one is 0.
fn summing_to_zero(headers: &Packet) -> Vec<u8> {
    let mut data = vec![7; 3 * SEGMENT_BYTES];
    let word = SEGMENT_BYTES - 2..SEGMENT_BYTES;
    data[word.clone()].fill(0);
    let segment = headers.clone().payload(&data[..SEGMENT_BYTES]).build();
    data[word].copy_from_slice(last(&segment).bytes("checksum"));
    data
}

/// Returns the numbers of the packets whose payload is in the frame.
fn members(frame: &[u8]) -> Vec<u8> {
    let parsed = parse(frame, Link::Ethernet, Lengths::Declared);
    let mut members = parsed.payload(frame).to_vec();
    members.dedup();
    members
}

/// Returns whether the output changes a field of some packet's IP header.
fn changes(input: &[Vec<u8>], output: &[Vec<u8>], field: &str) -> bool {
    output.iter().any(|frame| {
        let now = network(frame).number(field);
        members(frame)
            .iter()
            .any(|number| network(&input[usize::from(*number) - 1]).number(field) != now)
    })
}

/// Returns whether the packets of a frame have equal sizes, except for a shorter last one.
fn can_be_cut_again(input: &[Vec<u8>], frame: &[u8]) -> bool {
    let sizes: Vec<usize> =
        members(frame).iter().map(|number| input[usize::from(*number) - 1].len()).collect();
    let Some((last, others)) = sizes.split_last() else { return true };
    others.iter().all(|size| *size == sizes[0]) && *last <= sizes[0]
}

/// Returns the packet numbers in order of delivery; 0 stands for a packet without payload.
fn order(output: &[Vec<u8>]) -> Vec<u8> {
    let numbers = |frame: &Vec<u8>| match members(frame) {
        none if none.is_empty() => vec![0],
        members => members,
    };
    output.iter().flat_map(numbers).collect()
}

fn network(frame: &[u8]) -> Layer {
    parse(frame, Link::Ethernet, Lengths::Declared).layers.swap_remove(1)
}

fn last(frame: &[u8]) -> Layer {
    parse(frame, Link::Ethernet, Lengths::Declared).layers.pop().expect("a header")
}

const SEGMENT_BYTES: usize = 1000;

#[cfg(test)]
mod tests {
    use grosso_testkit::oracle::{join, segment};

    use super::*;

    fn named(work: Work, name: &str) -> Case {
        cases(work).into_iter().find(|case| case.name == name).expect("a case")
    }

    /// Returns the fault that this case reports for a coalescer that merges all packets into one frame.
    fn all_joined(name: &str) -> Option<&'static str> {
        let case = named(Work::CoalesceVerified, name);
        let (frame, _) = join(&case.workload.frames, Link::Ethernet);
        (case.judge)(&case.workload.frames, &[frame])
    }

    #[test]
    fn what_is_passed_on_as_it_came_is_right() {
        for case in cases(Work::CoalesceVerified) {
            let frames = &case.workload.frames;
            assert_eq!((case.judge)(frames, frames), None, "{}", case.name);
        }
    }

    #[test]
    fn what_must_not_be_joined_is_noticed() {
        let names = [
            "CE among ECT",
            "TTL 64, then 10",
            "300, 1448, 10, 1448 bytes",
            "data behind a FIN",
            "a wrong TCP checksum",
        ];
        for name in names {
            assert!(all_joined(name).is_some(), "{name}");
        }
    }

    #[test]
    fn what_overtakes_is_noticed() {
        for name in ["a pure ACK among data", "an RST behind data", "ECE among data"] {
            let case = named(Work::CoalesceVerified, name);
            let mut output = case.workload.frames.clone();
            output.rotate_right(1);
            assert!((case.judge)(&case.workload.frames, &output).is_some(), "{name}");
        }
    }

    #[test]
    fn careless_cuts_are_noticed() {
        for case in cases(Work::SegmentCopy) {
            let gso = case.workload.gso.expect("a superframe");
            let frame = &case.workload.frames[0];
            let right = segment(frame, Link::Ethernet, gso.description).expect("segments");
            assert_eq!((case.judge)(&case.workload.frames, &right), None, "{}", case.name);
            let everywhere = Description { cwr_on_all: true, ..gso.description };
            let mut careless = segment(frame, Link::Ethernet, everywhere).expect("segments");
            if last(&careless[0]).name == "udp" {
                let place = gso.checksum_start + gso.checksum_offset;
                assert_eq!(careless[0][place..place + 2], [0xff, 0xff], "the sum is 0");
                careless[0][place..place + 2].fill(0);
            }
            assert!((case.judge)(&case.workload.frames, &careless).is_some(), "{}", case.name);
        }
    }
}
