//! An oracle that lets the kernel segment a superframe (GSO) and returns the packets.

use std::io;

use grosso_sys::interface::{InterfaceName, write_attribute};
use grosso_sys::tun::{Tun, TunBuilder};

use super::virtio::VirtioHeader;
use super::worker::Worker;
use super::{FRAME_BYTES_MAX, MTU_BYTES, isolate};

/// Length of the read queue in packets: enough for a superframe of 65,535 bytes in one-byte segments.
const QUEUE_PACKETS: i32 = 70_000;
/// Length of the read queue if the process is not real root; only real root can change it (`TUN_READQ_SIZE`).
const QUEUE_PACKETS_DEFAULT: i32 = 500;

/// An oracle that uses the kernel's GSO. A bridge connects two TAP devices: superframes are written to one, and packets
/// are read from the other, which has no offloads.
///
/// Unlike a router, a bridge forwards frames unchanged: addresses and TTL stay the same.
pub struct GsoOracle {
    worker: Worker<GsoThread>,
}

impl GsoOracle {
    /// Starts an oracle.
    ///
    /// # Errors
    ///
    /// Fails with a message that contains the system's error.
    pub fn new() -> Result<Self, String> {
        let describe = |error: io::Error| format!("cannot bridge two TAPs: {error}");
        let setup = move || {
            let control = isolate()?;
            let create = || {
                let input = port("gso-in")?;
                let output = port("gso-out")?;
                input.set_header_bytes(VirtioHeader::TUNNEL_BYTES as u8)?;
                let longer = control.set_transmit_queue_length(output.name(), QUEUE_PACKETS);
                let queue_packets = longer.map_or(QUEUE_PACKETS_DEFAULT, |()| QUEUE_PACKETS);
                let bridge = InterfaceName::new("gso-bridge")?;
                control.add_bridge(&bridge)?;
                write_attribute(&bridge, "bridge/multicast_snooping", "0")
                    .or_else(ignore_not_found)?;
                for tap in [&input, &output] {
                    control.set_mtu(tap.name(), MTU_BYTES)?;
                    control.add_bridge_port(&bridge, tap.name())?;
                    control.set_up(tap.name(), true)?;
                }
                // If the bridge learned an address on the input, it would not forward frames with that destination to
                // the output.
                write_attribute(input.name(), "brport/learning", "0")?;
                control.set_up(&bridge, true)?;
                Ok(GsoThread { input, output, queue_packets, buffer: vec![0; FRAME_BYTES_MAX] })
            };
            create().map_err(describe)
        };
        Ok(Self { worker: Worker::start(setup)? })
    }

    /// Returns the packets that the kernel creates when it segments a frame with this virtio header. The packets have
    /// no virtio headers, and all their checksums are complete. Returns `None` if the kernel drops the frame.
    ///
    /// The destination must not be in 01:80:c2:00:00:00 to 0f, which bridges do not forward.
    ///
    /// # Errors
    ///
    /// Fails with `EINVAL` if the kernel refuses the header (rules V1 to V9), and also if there are more packets than
    /// the output can queue (500 without real root).
    pub fn segment(&mut self, header: &VirtioHeader, frame: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let mut packet = header.to_bytes().to_vec();
        packet.extend_from_slice(frame);
        self.worker.run(move |state| state.segment(&packet))
    }
}

/// State of the oracle's thread.
struct GsoThread {
    input: Tun,
    output: Tun,
    queue_packets: i32,
    buffer: Vec<u8>,
}

impl GsoThread {
    /// Writes a packet, which the kernel segments and forwards before the call returns, and reads all resulting
    /// packets.
    fn segment(&mut self, packet: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        self.input.write(packet)?;
        let mut segments = Vec::new();
        let mut refused = None;
        // A read fails if the virtio header cannot describe the packet (rule V9), but other packets may follow.
        for _ in 0..self.queue_packets {
            match self.output.read(&mut self.buffer) {
                Ok(length) => segments.push(self.buffer[VirtioHeader::BYTES..length].to_vec()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return refused.map_or(Ok(segments), Err);
                }
                Err(error) => refused = Some(error),
            }
        }
        Err(io::Error::other("more packets than the receive queue can hold; some were lost"))
    }
}

fn port(name: &str) -> io::Result<Tun> {
    TunBuilder::tap(InterfaceName::new(name)?).virtio_header(true).nonblocking(true).open()
}

fn ignore_not_found(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}
