//! Program for `grosso conform` that runs yip-io's coalescer, or its segmenter if the argument is `segment`. The crate
//! is licensed under the AGPL, so this workspace does not depend on it; conform.sh copies its module next to this file
//! instead.
#![allow(dead_code, reason = "the modules have more than the program uses")]

mod frames;
mod tun_offload;

use frames::{VIRTIO_BYTES, run, segment};
use tun_offload::{Coalescer, split_gro};

fn main() -> std::io::Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("segment") => segment(split),
        _ => run(coalesce),
    }
}

fn coalesce(packets: &[&[u8]]) -> Vec<Vec<u8>> {
    let (mut coalescer, mut written) = (Coalescer::new(), Vec::new());
    for packet in packets {
        written.extend(coalescer.push(packet).map(<[u8]>::to_vec));
    }
    written.extend(coalescer.flush().map(<[u8]>::to_vec));
    written
}

fn split(header: [u8; VIRTIO_BYTES], packet: &mut [u8]) -> Vec<Vec<u8>> {
    let (mut bytes, mut ranges) = (Vec::new(), Vec::new());
    split_gro(&[&header, &*packet].concat(), &mut bytes, &mut ranges);
    ranges.iter().map(|&(start, len)| bytes[start..start + len].to_vec()).collect()
}
