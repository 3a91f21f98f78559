//! Classic BPF program that selects the IP packets that a packet socket receives.

use core::net::IpAddr;
use std::io;
use std::os::fd::OwnedFd;

use crate::abi;
use crate::filter::{DROP, JUMP_IF_EQUAL, LOAD_BYTE, LOAD_WORD, RETURN, TAKE, attach, instruction};

/// Filter for packets of certain IP protocols to an address of this host, from one host or from any host.
///
/// In IPv6 the protocol may follow destination options or be in a fragment. The filter does not parse these headers,
/// and checks only the addresses of such packets.
#[derive(Clone, Debug)]
pub struct IpFilter {
    protocols: Vec<u8>,
    local: IpAddr,
    remote: Option<IpAddr>,
}

impl IpFilter {
    /// Accepts packets of these protocols to an address; protocols after the first [`PROTOCOLS_MAX`] are ignored.
    #[must_use]
    pub fn new(protocols: &[u8], local: IpAddr) -> Self {
        let protocols = protocols.iter().copied().take(PROTOCOLS_MAX).collect();
        Self { protocols, local, remote: None }
    }

    /// Accepts packets only from this host, whose address has the same family.
    #[must_use]
    pub fn from(mut self, remote: IpAddr) -> Self {
        self.remote = Some(remote);
        self
    }

    pub(super) const fn ethertype(&self) -> u16 {
        if self.local.is_ipv4() { abi::ETH_P_IP } else { abi::ETH_P_IPV6 }
    }

    pub(super) fn attach(&self, socket: &OwnedFd) -> io::Result<()> {
        attach(socket, &self.program())
    }

    fn program(&self) -> Vec<libc::sock_filter> {
        let (protocol, source, destination) = match self.local {
            IpAddr::V4(_) => (9, 12, 16),
            IpAddr::V6(_) => (6, 8, 24),
        };
        let mut protocols: Vec<u32> = self.protocols.iter().map(|p| u32::from(*p)).collect();
        if self.local.is_ipv6() {
            protocols.extend([IPV6_FRAGMENT, IPV6_DESTINATION_OPTIONS]);
        }
        let mut tests = vec![
            Test { load: LOAD_WORD, at: PACKET_KIND, values: vec![PACKET_HOST] },
            Test { load: LOAD_BYTE, at: NETWORK + protocol, values: protocols },
        ];
        tests.extend(words(self.local, NETWORK + destination));
        tests.extend(self.remote.into_iter().flat_map(|remote| words(remote, NETWORK + source)));
        compile(&tests)
    }
}

/// Makes a socket refuse packets that the host sends.
pub(super) fn refuse_outgoing(socket: &OwnedFd) -> io::Result<()> {
    let program = [
        instruction(LOAD_WORD, 0, 0, PACKET_KIND),
        instruction(JUMP_IF_EQUAL, 0, 1, PACKET_OUTGOING),
        instruction(RETURN, 0, 0, DROP),
        instruction(RETURN, 0, 0, TAKE),
    ];
    attach(socket, &program)
}

/// Test that checks whether the value at an offset is in a list.
struct Test {
    load: u16,
    at: u32,
    values: Vec<u32>,
}

/// Returns the tests that check whether the address at offset `at` equals `address`.
fn words(address: IpAddr, at: u32) -> Vec<Test> {
    let bytes = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let words = bytes.chunks_exact(4).zip((at..).step_by(4));
    let test = |(word, at): (&[u8], u32)| {
        let value = word.iter().fold(0, |value, byte| value << 8 | u32::from(*byte));
        Test { load: LOAD_WORD, at, values: vec![value] }
    };
    words.map(test).collect()
}

/// Compiles a program that accepts a packet if it passes all tests.
fn compile(tests: &[Test]) -> Vec<libc::sock_filter> {
    let len: usize = tests.iter().map(|test| 1 + test.values.len()).sum();
    let mut program = Vec::with_capacity(len + 2);
    for test in tests {
        program.push(instruction(test.load, 0, 0, test.at));
        for (left, value) in (0..test.values.len()).rev().zip(&test.values) {
            // A match jumps over the remaining values to the next test; a mismatch of the last
            // value jumps to the end.
            let to_end = if left == 0 { len - program.len() } else { 0 };
            program.push(instruction(JUMP_IF_EQUAL, left as u8, to_end as u8, *value));
        }
    }
    program.push(instruction(RETURN, 0, 0, TAKE));
    program.push(instruction(RETURN, 0, 0, DROP));
    program
}

/// Maximum number of IP protocols per filter: a program for more protocols would have jump offsets that do not fit in
/// one byte.
pub const PROTOCOLS_MAX: usize = 16;
/// linux/filter.h: `SKF_NET_OFF`, the base of offsets from the network header.
const NETWORK: u32 = 0x10_0000_u32.wrapping_neg();
/// linux/filter.h: `SKF_AD_OFF + SKF_AD_PKTTYPE`, and linux/if_packet.h: `PACKET_HOST` and `PACKET_OUTGOING`.
const PACKET_KIND: u32 = 0x1000_u32.wrapping_neg() + 4;
const PACKET_HOST: u32 = 0;
const PACKET_OUTGOING: u32 = 4;
/// IPv6 next header values (RFC 8200).
const IPV6_FRAGMENT: u32 = 44;
const IPV6_DESTINATION_OPTIONS: u32 = 60;
