//! The fuzz targets, and the decisions that they derive from the fuzzer's bytes.

#[path = "../fuzz_targets/mod.rs"]
pub mod targets;

use grosso::tunnel::{
    Carrier, CongestionMode, DontFragment, Dscp, Endpoint, Header, RemoteChecksumUse, TimeToLive,
    Udp,
};
use grosso_testkit::{oracle::Link, random::Random, stack::Stack};

/// Decisions taken from the fuzzer's bytes, in order. All decisions after the end of the bytes are zero.
#[derive(Debug)]
pub struct Decisions<'a> {
    bytes: &'a [u8],
}

impl<'a> Decisions<'a> {
    /// Creates decisions from these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Returns whether all bytes have been used.
    pub fn is_over(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        *first
    }

    /// Returns the next two bytes.
    pub fn word(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    /// Returns one of `choices`, which must not be empty.
    pub fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }

    /// Returns a random number generator seeded with the next two bytes. Two bytes have few enough values for the
    /// fuzzer to explore.
    pub fn random(&mut self) -> Random {
        Random::new(self.word().into())
    }

    /// Returns the remaining bytes.
    pub fn rest(self) -> &'a [u8] {
        self.bytes
    }
}

/// Returns the input as text, up to the first byte that is not UTF-8.
fn text(data: &[u8]) -> &str {
    data.utf8_chunks().next().map_or("", |chunk| chunk.valid())
}

/// Returns a header stack on this link, with at most two tunnels.
pub fn stack(decisions: &mut Decisions<'_>, link: Link) -> Stack {
    Stack::random(&mut decisions.random(), link)
}

/// Returns an endpoint of a tunnel of any kind. The parts of the endpoint may contradict each other.
pub fn endpoint(decisions: &mut Decisions<'_>) -> Endpoint {
    let [local, remote] = match decisions.byte() & 1 {
        0 => [[192, 0, 2, 1], [192, 0, 2, 2]].map(Into::into),
        _ => [[0x20; 16], [0x30; 16]].map(Into::into),
    };
    let header = header(decisions);
    let carrier = match decisions.byte() % 4 {
        0 => Carrier::Ip,
        1 => Carrier::Udp(udp(decisions)),
        2 => Carrier::Gue(udp(decisions)),
        _ => Carrier::DirectGue(udp(decisions)),
    };
    let mut endpoint = Endpoint::new(local, remote, header, carrier);
    endpoint.ttl = decisions.choose(&[TimeToLive::Inherit, TimeToLive::Fixed(9)]);
    endpoint.dscp = decisions.choose(&[Dscp::Inherit, Dscp::Fixed(9)]);
    endpoint.congestion =
        decisions.choose(&[CongestionMode::Normal, CongestionMode::Compatibility]);
    endpoint.dont_fragment = decisions.choose(&[
        DontFragment::Set,
        DontFragment::Unset,
        DontFragment::Ignored,
        DontFragment::Inherit,
    ]);
    endpoint.flow_label = decisions.choose(&[None, Some(0xf_ffff)]);
    endpoint.encapsulation_limit = decisions.choose(&[None, None, Some(4)]);
    endpoint
}

fn header(decisions: &mut Decisions<'_>) -> Header {
    let flags = decisions.byte();
    let has = |bit: u8| flags & 1 << bit != 0;
    match flags % 4 {
        0 => Header::Ip,
        1 => Header::Gre {
            key: has(2).then_some(7),
            checksum: has(3),
            sequence: has(4),
            ethernet: has(5),
        },
        2 => {
            Header::Vxlan { identifier: 42, policy: has(2).then_some(7), generic_protocol: has(3) }
        }
        _ => {
            let options = if has(2) { vec![1, 2, 3, 1, 5, 6, 7, 8] } else { Vec::new() };
            Header::Geneve { identifier: 42, options, inherit_protocol: has(3) }
        }
    }
}

fn udp(decisions: &mut Decisions<'_>) -> Udp {
    let flags = decisions.byte();
    let transmit = flags & 1 != 0;
    Udp {
        source: 49152..=65535,
        destination: decisions.choose(&[4789, 4790, 6080, 6081, 5555]),
        checksum: flags & 2 != 0,
        ipv6_without_checksum: true,
        remote_checksum: RemoteChecksumUse {
            transmit,
            receive: transmit,
            complete: flags & 4 != 0,
        },
    }
}
