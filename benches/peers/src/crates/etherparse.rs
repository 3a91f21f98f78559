//! Peers that use etherparse's parser and its pool for reassembling datagrams. The pool has no limits, timeouts,
//! checksums or overlap policy.

use std::hint::black_box;

use etherparse::{
    SlicedPacket,
    checksum::Sum16BitWords,
    defrag::{IpDefragPayloadVec, IpDefragPool},
};
use grosso_benches::{Cache, Step};
use grosso_testkit::workloads::Workload;

use crate::{
    contender::{About, Boxed, Local, Peer, Stepped},
    frame::ETHERNET_BYTES,
    polls::Polls,
};

pub(super) fn reassemblers(workload: &Workload) -> [Boxed<'_>; 2] {
    let verifies = About::new(Peer::Etherparse, "+ checks", "parse, copy, verify");
    let plain = About::new(Peer::Etherparse, "", "parse, copy; no limits").doing_less();
    [(verifies, true), (plain, false)].map(|(about, verifies)| {
        let reassemble =
            move || Reassemble { polls: Polls::new(workload), pool: IpDefragPool::new(), verifies };
        let turns = Stepped { step: reassemble(), cache: Cache::Hot };
        Local::boxed(about, turns, workload.packets, move || reassembled(workload, reassemble()))
    })
}

struct Reassemble<'a> {
    polls: Polls<'a>,
    pool: IpDefragPool,
    /// Whether the checksums of every header and every datagram are verified. etherparse leaves this to its users.
    verifies: bool,
}

impl Reassemble<'_> {
    /// Reassembles one poll, and passes each datagram and its last fragment to `take`.
    fn poll(&mut self, mut take: impl FnMut(&[u8], &IpDefragPayloadVec)) -> usize {
        let poll = self.polls.take();
        for frame in poll {
            let Ok(packet) = SlicedPacket::from_ethernet(frame) else { continue };
            if self.verifies && !header_is_right(frame) {
                continue;
            }
            let Ok(Some(whole)) = self.pool.process_sliced_packet(&packet, (), ()) else {
                continue;
            };
            if !self.verifies || datagram_is_right(frame, &whole.payload) {
                take(frame, &whole);
            }
            self.pool.return_buf(whole);
        }
        poll.len()
    }
}

impl Step for Reassemble<'_> {
    fn upcoming(&self) -> impl Iterator<Item = &[u8]> {
        self.polls.upcoming().iter().map(Vec::as_slice)
    }

    fn step(&mut self) -> usize {
        self.poll(|_, whole| _ = black_box(whole))
    }
}

fn reassembled(workload: &Workload, mut reassemble: Reassemble<'_>) -> Vec<Vec<u8>> {
    let (mut frames, mut fragments) = (Vec::new(), 0);
    while fragments < workload.frames.len() {
        fragments +=
            reassemble.poll(|frame, whole| frames.push(whole_frame(frame, &whole.payload)));
    }
    frames
}

fn header_is_right(frame: &[u8]) -> bool {
    let header = &frame[ETHERNET_BYTES..ETHERNET_BYTES + IPV4_BYTES];
    Sum16BitWords::new().add_slice(header).ones_complement() == 0
}

/// Returns whether the checksum of a UDP datagram matches its data and the addresses of one of its fragments.
fn datagram_is_right(fragment: &[u8], data: &[u8]) -> bool {
    let addresses = &fragment[ETHERNET_BYTES + 12..ETHERNET_BYTES + IPV4_BYTES];
    let pseudo = Sum16BitWords::new().add_slice(addresses).add_2bytes([0, UDP]);
    let sum = pseudo.add_2bytes((data.len() as u16).to_be_bytes()).add_slice(data);
    sum.ones_complement() == 0
}

/// Returns the frame of a datagram, with the header of one of its fragments.
fn whole_frame(fragment: &[u8], data: &[u8]) -> Vec<u8> {
    let mut frame = [&fragment[..ETHERNET_BYTES + IPV4_BYTES], data].concat();
    let header = &mut frame[ETHERNET_BYTES..];
    header[2..4].copy_from_slice(&((IPV4_BYTES + data.len()) as u16).to_be_bytes());
    header[6..8].fill(0);
    frame
}

const IPV4_BYTES: usize = 20;
const UDP: u8 = 17;
