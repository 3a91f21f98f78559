//! etherparse's pool of datagrams, behind its parser: no limits, no time, no checksums, no policy on overlaps.

use etherparse::{SlicedPacket, defrag::IpDefragPool};
use grosso_benches::{Cache, Step};
use grosso_testkit::workloads::Workload;

use crate::{
    contender::{About, Boxed, Local, Peer, Stepped},
    frame::ETHERNET_BYTES,
    polls::Polls,
};

pub(super) fn reassembler(workload: &Workload) -> Boxed<'_> {
    let about = About::new(Peer::Etherparse, "", "parse, copy; no limits");
    let step = Reassemble { polls: Polls::new(workload), pool: IpDefragPool::new() };
    let turns = Stepped { step, cache: Cache::Hot };
    Local::boxed(about, turns, workload.packets, || reassembled(workload))
}

struct Reassemble<'a> {
    polls: Polls<'a>,
    pool: IpDefragPool,
}

impl Step for Reassemble<'_> {
    fn upcoming(&self) -> impl Iterator<Item = &[u8]> {
        self.polls.upcoming().iter().map(Vec::as_slice)
    }

    fn step(&mut self) -> usize {
        let poll = self.polls.take();
        for frame in poll {
            let Ok(packet) = SlicedPacket::from_ethernet(frame) else { continue };
            if let Ok(Some(whole)) = self.pool.process_sliced_packet(&packet, (), ()) {
                self.pool.return_buf(whole);
            }
        }
        poll.len()
    }
}

fn reassembled(workload: &Workload) -> Vec<Vec<u8>> {
    let mut pool = IpDefragPool::<(), ()>::new();
    let mut frames = Vec::new();
    for frame in &workload.frames {
        let Ok(packet) = SlicedPacket::from_ethernet(frame) else { continue };
        if let Ok(Some(whole)) = pool.process_sliced_packet(&packet, (), ()) {
            frames.push(whole_frame(frame, &whole.payload));
        }
    }
    frames
}

/// The frame of a datagram, with the header of one of its fragments.
fn whole_frame(fragment: &[u8], data: &[u8]) -> Vec<u8> {
    let mut frame = [&fragment[..ETHERNET_BYTES + IPV4_BYTES], data].concat();
    let header = &mut frame[ETHERNET_BYTES..];
    header[2..4].copy_from_slice(&((IPV4_BYTES + data.len()) as u16).to_be_bytes());
    header[6..8].fill(0);
    frame
}

const IPV4_BYTES: usize = 20;
