//! A program that wraps a Rust port of wireguard-go's coalescer and segmenter. tun-rs and its fork export the port.

/// Declares the program for a crate: a coalescer, or a segmenter if the argument is `segment`.
macro_rules! program {
    ($crate_name:ident) => {
        use $crate_name::{VirtioNetHdr, gso_split, handle_gro};

        fn main() -> std::io::Result<()> {
            match std::env::args().nth(1).as_deref() {
                Some("segment") => $crate::frames::segment(split),
                _ => $crate::frames::run(coalesce),
            }
        }

        fn coalesce(packets: &[&[u8]]) -> Vec<Vec<u8>> {
            // The crate merges into a buffer only if its capacity suffices.
            let packet = |packet: &&[u8]| {
                let mut buffer = Vec::with_capacity($crate::frames::VIRTIO_BYTES + 65_535);
                buffer.extend_from_slice(&[0; $crate::frames::VIRTIO_BYTES]);
                buffer.extend_from_slice(packet);
                buffer
            };
            let mut buffers: Vec<Vec<u8>> = packets.iter().map(packet).collect();
            // The types of the tables are not public, so they are inferred.
            let (mut tcp, mut udp, mut written) =
                (Default::default(), Default::default(), Vec::new());
            let offset = $crate::frames::VIRTIO_BYTES;
            let result = handle_gro(&mut buffers, offset, &mut tcp, &mut udp, true, &mut written);
            // After an error, there is nothing to write.
            result.map_or(Vec::new(), |()| {
                written.iter().map(|index| buffers[*index].clone()).collect()
            })
        }

        fn split(header: [u8; $crate::frames::VIRTIO_BYTES], packet: &mut [u8]) -> Vec<Vec<u8>> {
            let Ok(mut header) = VirtioNetHdr::decode(&header) else { return Vec::new() };
            // Like the crate's device, this code reads the length of the transport header from the packet.
            let start = usize::from(header.csum_start);
            header.hdr_len = header.csum_start
                + match packet.get(start + 12) {
                    Some(offset) if header.csum_offset == 16 => u16::from(offset >> 4) * 4,
                    _ => 8,
                };
            let is_v6 = packet.first().is_some_and(|first| first >> 4 == 6);
            let mut buffers = vec![vec![0; 65_535]; $crate::frames::SEGMENTS_MAX];
            let mut sizes = vec![0; buffers.len()];
            let count = gso_split(packet, header, &mut buffers, &mut sizes, 0, is_v6);
            let packets = buffers.iter().zip(sizes).take(count.unwrap_or(0));
            packets.map(|(buffer, size)| buffer[..size].to_vec()).collect()
        }
    };
}
pub(crate) use program;
