//! The coalescer of mycelium as a program for `grosso conform`. Its modules are private, so conform.sh copies them next
//! to this file.
#![allow(dead_code, reason = "the module also segments")]

mod checksum;
mod frames;
mod offload;

use frames::{VIRTIO_BYTES, run};

fn main() -> std::io::Result<()> {
    let mut buffer = vec![0; 65_535];
    run(|packets| {
        let mut sorted = packets.to_vec();
        offload::sort_by_flow(&mut sorted);
        let (mut rest, mut written) = (&sorted[..], Vec::new());
        while let Some(first) = rest.first() {
            let mut header = [0; VIRTIO_BYTES];
            // As in mycelium's own device code, packets that cannot be merged are written one by one.
            let (packet, count) = match offload::gro_coalesce(rest, &mut buffer, true) {
                Ok((len, virtio, count)) => {
                    virtio.encode(&mut header);
                    (&buffer[..len], count)
                }
                Err(_) => (*first, 1),
            };
            written.push([&header, packet].concat());
            rest = &rest[count..];
        }
        written
    })
}
