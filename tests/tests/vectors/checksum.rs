//! Generates the conformance vectors for checksums: bytes with their sums, frames with verdicts on their checksums, and
//! partial checksums to complete.

use grosso::{Profile, Verdict, checksum::complete, coalesce::reason::Pass};
use grosso_checksum::Sum;
use grosso_rig::{engine::Engine, frames::Path};
use grosso_testkit::{
    Packet,
    headers::Udp,
    oracle::{self, Link, State},
    stream,
};
use serde::Serialize;
use serde_json::Value;

use super::{
    book::{Book, Pair},
    superframe::{hex, unhex},
};

#[derive(Serialize)]
struct Vector {
    name: &'static str,
    rules: &'static [&'static str],
    shows: &'static str,
    #[serde(flatten)]
    what: What,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum What {
    /// Bytes, and their Internet checksum.
    Sum { bytes: String, checksum: String },
    /// A frame, and the verdict on each of its checksums, from the outermost to the innermost.
    Verify { frame: usize, checksums: Vec<Field> },
    /// A frame whose innermost checksum field holds the pseudo-header sum, and the completed frame.
    Complete { frame: usize, start: usize, offset: usize, out: usize },
}

/// A checksum in a frame.
#[derive(Serialize)]
struct Field {
    header: &'static str,
    /// `right`, `wrong`, or `absent` for a UDP checksum of zero.
    verdict: &'static str,
    found: String,
    /// The value that a sender writes into the field.
    right: String,
}

/// Builds the pair of files.
pub(crate) fn book() -> Book {
    let mut book = Book::new("checksum");
    for (name, rules, shows, bytes) in sums() {
        let checksum = word(oracle::checksum(&bytes));
        let what = What::Sum { bytes: hex(&bytes), checksum };
        book.vector(&Vector { name, rules, shows, what });
    }
    for (name, rules, shows, frame) in frames() {
        let what = What::Verify { frame: book.frame(&frame), checksums: fields(&frame) };
        book.vector(&Vector { name, rules, shows, what });
    }
    for (name, rules, shows, packet) in partial() {
        let (seeded, start, offset) = packet.build_partial();
        let (frame, out) = (book.frame(&seeded), book.frame(&packet.build()));
        book.vector(&Vector {
            name,
            rules,
            shows,
            what: What::Complete { frame, start, offset, out },
        });
    }
    book
}

/// Asserts that the engine and the literal oracle compute the values in the files.
pub(crate) fn assert_passes(pair: &Pair, vector: &Value) {
    let name = &vector["name"];
    if let Some(sum) = vector.get("sum") {
        let bytes = unhex(sum["bytes"].as_str().expect("hexadecimal"));
        assert_eq!(sum["checksum"], word(Sum::of(&bytes).checksum()), "{name}");
    } else if let Some(verify) = vector.get("verify") {
        let frame = pair.frame(&verify["frame"]);
        assert_eq!(
            verify["checksums"],
            serde_json::to_value(fields(frame)).expect("JSON"),
            "{name}"
        );
        let verdicts = verify["checksums"].as_array().expect("a list");
        let is_wrong = verdicts.iter().any(|field| field["verdict"] == "wrong");
        let verdict = Engine::new(Profile::linux()).push(frame);
        let refused = [Verdict::Passed(Pass::Checksum), Verdict::Passed(Pass::Ipv4Checksum)];
        assert_eq!(refused.contains(&verdict), is_wrong, "{name}: {verdict:?}");
    } else {
        let vector = &vector["complete"];
        let number = |field: &str| vector[field].as_u64().expect("a number") as u16;
        let mut frame = pair.frame(&vector["frame"]).to_vec();
        complete(&mut frame, number("start"), number("offset")).expect("a place inside the frame");
        assert_eq!(frame, pair.frame(&vector["out"]), "{name}");
    }
}

fn fields(frame: &[u8]) -> Vec<Field> {
    let field = |verdict: oracle::Verdict| Field {
        header: verdict.name,
        verdict: match verdict.state {
            State::Right => "right",
            State::Wrong => "wrong",
            State::Absent => "absent",
            State::Remote => "remote",
        },
        found: word(verdict.found),
        right: word(verdict.expected),
    };
    oracle::verify(frame, Link::Ethernet).into_iter().map(field).collect()
}

fn word(word: u16) -> String {
    format!("{word:#06x}")
}

type Case<T> = (&'static str, &'static [&'static str], &'static str, T);

fn sums() -> Vec<Case<Vec<u8>>> {
    vec![
        (
            "c10_nothing",
            &["C10"],
            "The sum of no bytes is 0, and their checksum is 0xffff.",
            vec![],
        ),
        ("c10_one_byte", &["C10"], "An odd last byte is the high half of a word.", vec![0x12]),
        (
            "c10_odd_length",
            &["C10"],
            "An odd last byte after other words is also the high half of a word.",
            vec![0x12, 0x34, 0x56],
        ),
        (
            "c10_zeros",
            &["C10"],
            "Eight bytes of zero sum to 0; their checksum is 0xffff.",
            vec![0; 8],
        ),
        (
            "c10_ones",
            &["C10"],
            "Eight bytes of 0xff sum to 0xffff; their checksum is 0.",
            vec![0xff; 8],
        ),
        ("c10_carry", &["C10"], "A carry is added to the lowest bit.", vec![0xff, 0xff, 0, 1]),
        (
            "c10_two_carries",
            &["C10"],
            "Adding a carry can cause another carry.",
            [vec![0xff; 6], vec![0, 2, 0xff]].concat(),
        ),
        ("c10_long", &["C10"], "Long data causes many carries.", vec![0xff; 47]),
        ("c10_random", &["C10"], "Random bytes of odd length.", stream(3, 45)),
    ]
}

fn frames() -> Vec<Case<Vec<u8>>> {
    let ipv4 = || Packet::new().ethernet(|e| e).ipv4(|ip| ip);
    let zero = summing_to_zero();
    let wrong = |path: Path| path.train(&[101], |_, s| s.tcp(|tcp| tcp.checksum_xor(1))).remove(0);
    vec![
        (
            "k105_tcp_ipv4",
            &["K105"],
            "A TCP packet over IPv4 with a correct checksum.",
            ipv4().tcp(|t| t).payload_len(101).build(),
        ),
        (
            "k105_tcp_ipv4_wrong",
            &["K105", "G30"],
            "A TCP packet over IPv4 with one wrong bit.",
            wrong(Path::Ipv4),
        ),
        (
            "k105_tcp_ipv6_wrong",
            &["K105", "G30"],
            "A TCP packet over IPv6 with one wrong bit.",
            wrong(Path::Ipv6),
        ),
        (
            "g10_ipv4_header_wrong",
            &["G10"],
            "A wrong IPv4 header checksum.",
            Packet::new()
                .ethernet(|e| e)
                .ipv4(|ip| ip.checksum_xor(4))
                .tcp(|t| t)
                .payload_len(100)
                .build(),
        ),
        (
            "c11_udp_zero_is_absent",
            &["C11"],
            "Zero in UDP means that there is no checksum.",
            ipv4().udp(Udp::checksum_zero).payload_len(100).build(),
        ),
        (
            "c10_udp_sum_of_zero_is_written_as_ones",
            &["C10", "C3"],
            "A UDP checksum that would be zero is written as 0xffff.",
            zero.build(),
        ),
        (
            "c20_tunnel",
            &["C20"],
            "Every checksum in a tunnel is verified, outermost first.",
            ipv4()
                .udp(|u| u)
                .vxlan(|v| v)
                .ethernet(|e| e)
                .ipv4(|ip| ip)
                .tcp(|t| t)
                .payload_len(33)
                .build(),
        ),
    ]
}

fn partial() -> Vec<Case<Packet>> {
    let ipv4 = || Packet::new().ethernet(|e| e).ipv4(|ip| ip);
    vec![
        (
            "c03_complete_tcp",
            &["C3"],
            "A partial TCP checksum is completed.",
            ipv4().tcp(|t| t).payload_len(101),
        ),
        (
            "c03_complete_udp_over_ipv6",
            &["C3"],
            "A partial UDP checksum over IPv6 is completed.",
            Packet::new().ethernet(|e| e).ipv6(|ip| ip).udp(|u| u).payload_len(100),
        ),
        (
            "c03_complete_udp_to_ones",
            &["C3"],
            "Completing a checksum never writes zero: zero is written as 0xffff.",
            summing_to_zero(),
        ),
    ]
}

/// Returns a datagram with a computed checksum of zero: the first two bytes of its payload are the checksum of the
/// remaining bytes.
fn summing_to_zero() -> Packet {
    let datagram = |payload: &[u8]| {
        Packet::new().ethernet(|e| e).ipv4(|ip| ip.id(1)).udp(|udp| udp).payload(payload)
    };
    let mut payload = [vec![0, 0], stream(0, 98)].concat();
    let frame = datagram(&payload).build();
    payload[..2].copy_from_slice(&frame[40..42]);
    datagram(&payload)
}
