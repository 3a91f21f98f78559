//! Program for `grosso conform` that runs mycelium's coalescer, or its segmenter if the argument is `segment`. These
//! modules are private in mycelium, so conform.sh copies them next to this file.
#![allow(dead_code, reason = "the modules have more than the program uses")]

mod checksum;
mod frames;
mod offload;

use frames::{SEGMENTS_MAX, VIRTIO_BYTES, run, segment};

fn main() -> std::io::Result<()> {
    if std::env::args().nth(1).as_deref() == Some("segment") {
        return segment(split);
    }
    let mut buffer = vec![0; 65_535];
    run(|packets| {
        let mut sorted = packets.to_vec();
        offload::sort_by_flow(&mut sorted);
        let (mut rest, mut written) = (&sorted[..], Vec::new());
        while let Some(first) = rest.first() {
            let mut header = [0; VIRTIO_BYTES];
            // mycelium writes packets that cannot be merged to its device one by one.
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

fn split(header: [u8; VIRTIO_BYTES], packet: &mut [u8]) -> Vec<Vec<u8>> {
    let mut buffers = vec![vec![0; 65_535]; SEGMENTS_MAX];
    let mut slices: Vec<&mut [u8]> = buffers.iter_mut().map(Vec::as_mut_slice).collect();
    let mut sizes = vec![0; SEGMENTS_MAX];
    let count = offload::gso_split(&[&header, &*packet].concat(), &mut slices, &mut sizes);
    let packets = buffers.iter().zip(sizes).take(count.unwrap_or(0));
    packets.map(|(buffer, size)| buffer[..size].to_vec()).collect()
}
