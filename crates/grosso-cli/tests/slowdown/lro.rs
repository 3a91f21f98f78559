//! Simulates large receive offload (LRO) at a router: packets are merged without the metadata that the kernel needs to
//! split them again.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use grosso_sys::{
    namespace::NetworkNamespace,
    packet::PacketSocket,
    tun::{Tun, TunBuilder},
};
use grosso_wire::ipv4;

use crate::network::name;

/// A device `l0` that receives the packets from another device. It merges some pairs of TCP packets, and keeps the
/// first packet's checksum, as network cards do.
pub(super) struct MergingDevice {
    is_over: Arc<AtomicBool>,
    worker: Option<JoinHandle<()>>,
}

impl MergingDevice {
    /// Creates the device on a host.
    pub(super) fn new(host: &NetworkNamespace, source: &str) -> Self {
        let open = || {
            let tap = TunBuilder::tap(name("l0")).nonblocking(true).open()?;
            let socket = PacketSocket::builder().ignore_outgoing(true).promiscuous(true);
            Ok::<_, std::io::Error>((tap, socket.bind(&name(source))?))
        };
        let (tap, socket) = host.run(open).unwrap().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&is_over);
        let worker = thread::spawn(move || {
            let mut merger = Merger::default();
            while !ended.load(Ordering::Relaxed) {
                socket.wait(Duration::from_millis(1)).unwrap();
                merger.pass(&socket, &tap);
            }
        });
        Self { is_over, worker: Some(worker) }
    }
}

impl Drop for MergingDevice {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let ended = self.worker.take().map(JoinHandle::join);
        assert!(thread::panicking() || ended.is_none_or(|ended| ended.is_ok()));
    }
}

#[derive(Default)]
struct Merger {
    /// Number of full packets so far.
    full: usize,
}

impl Merger {
    /// Forwards the waiting packets in both directions.
    fn pass(&mut self, socket: &PacketSocket, tap: &Tun) {
        let mut buffer = vec![0; 1 << 16];
        let mut held: Option<Vec<u8>> = None;
        while let Some(packet) = socket.receive(&mut buffer).unwrap() {
            let packet = &buffer[..packet.length];
            match held.take() {
                Some(first) if is_next(&first, packet) => deliver(tap, &merge(first, packet)),
                Some(first) => {
                    deliver(tap, &first);
                    deliver(tap, packet);
                }
                None => {
                    self.full += usize::from(packet.len() == FULL_BYTES);
                    let is_first =
                        packet.len() == FULL_BYTES && self.full.is_multiple_of(MERGED_SHARE);
                    match is_first {
                        true => held = Some(packet.to_vec()),
                        false => deliver(tap, packet),
                    }
                }
            }
        }
        if let Some(first) = held {
            deliver(tap, &first);
        }
        while let Ok(length) = tap.read(&mut buffer) {
            // A full queue drops the packet, as a network card would.
            let _ = socket.send(&buffer[..length]);
        }
    }
}

/// Writes a packet to the device, which is down until it has an address.
fn deliver(tap: &Tun, packet: &[u8]) {
    let _ = tap.write(packet);
}

/// Returns whether a packet directly follows a full packet of the same TCP connection.
fn is_next(first: &[u8], packet: &[u8]) -> bool {
    let is_same = |fields: std::ops::Range<usize>| first.get(fields.clone()) == packet.get(fields);
    let sequence = |packet: &[u8]| u32::from_be_bytes(packet[38..42].try_into().unwrap());
    packet.len() > HEADERS_BYTES
        && is_same(12..14)
        && is_same(23..24)
        && is_same(26..38)
        && sequence(packet) == sequence(first).wrapping_add((FULL_BYTES - HEADERS_BYTES) as u32)
}

fn merge(mut first: Vec<u8>, packet: &[u8]) -> Vec<u8> {
    first.extend_from_slice(&packet[HEADERS_BYTES..]);
    let length = (first.len() - 14) as u16;
    first[16..18].copy_from_slice(&length.to_be_bytes());
    first[47] |= packet[47];
    first[24..26].fill(0);
    let sum: u32 = first[14..14 + ipv4::HEADER_LEN]
        .chunks_exact(2)
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    first[24..26].copy_from_slice(&sum.to_be_bytes());
    first
}

/// Length of a full packet: Ethernet, IPv4, TCP with timestamps, 1448 bytes.
const FULL_BYTES: usize = 1514;
const HEADERS_BYTES: usize = 66;
/// One in this many full packets is merged with the packet after it.
const MERGED_SHARE: usize = 24;
