//! The coalescer of tun-rs as a program for `grosso conform`.

mod frames;

use frames::{VIRTIO_BYTES, run};
use tun_rs::handle_gro;

/// A virtio header and the longest IP packet.
const BUFFER_BYTES: usize = VIRTIO_BYTES + 65_535;

fn main() -> std::io::Result<()> {
    run(|packets| {
        // tun-rs merges into a buffer only if the capacity suffices.
        let packet = |packet: &&[u8]| {
            let mut buffer = Vec::with_capacity(BUFFER_BYTES);
            buffer.extend_from_slice(&[0; VIRTIO_BYTES]);
            buffer.extend_from_slice(packet);
            buffer
        };
        let mut buffers: Vec<Vec<u8>> = packets.iter().map(packet).collect();
        // The types of the tables are not public, so they are inferred.
        let (mut tcp, mut udp, mut written) = (Default::default(), Default::default(), Vec::new());
        let result = handle_gro(&mut buffers, VIRTIO_BYTES, &mut tcp, &mut udp, true, &mut written);
        // A caller that gets an error does not write.
        result
            .map_or(Vec::new(), |()| written.iter().map(|index| buffers[*index].clone()).collect())
    })
}
