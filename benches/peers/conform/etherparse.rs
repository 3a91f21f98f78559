//! Reassembler for `grosso conform` that uses etherparse's pool of fragments.

mod datagrams;
#[allow(dead_code, reason = "each program has one of the tasks")]
mod frames;

use datagrams::Firsts;
use etherparse::{SlicedPacket, defrag::IpDefragPool};

fn main() -> std::io::Result<()> {
    frames::reassemble(|frames| {
        let (mut pool, mut firsts) = (IpDefragPool::<(), ()>::new(), Firsts::default());
        let mut complete = |frame: &Vec<u8>| {
            firsts.keep(frame);
            let packet = SlicedPacket::from_ethernet(frame).ok()?;
            let whole = pool.process_sliced_packet(&packet, (), ()).ok()??;
            firsts.datagram(frame, &whole.payload)
        };
        frames.iter().filter_map(&mut complete).collect()
    })
}
