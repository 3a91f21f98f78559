//! Reassembler for `grosso conform` that uses smoltcp's interface. A raw socket receives the datagrams without headers.

mod datagrams;
#[allow(dead_code, reason = "each program has one of the tasks")]
mod frames;

use datagrams::Firsts;
use frames::link_bytes;
use smoltcp::{
    iface::{Config, Interface, SocketSet},
    phy::{Device, Loopback, Medium, TxToken},
    socket::raw,
    time::Instant,
    wire::{HardwareAddress, IpVersion, Ipv4Packet},
};

fn main() -> std::io::Result<()> {
    frames::reassemble(|frames| {
        let mut device = Loopback::new(Medium::Ip);
        let config = Config::new(HardwareAddress::Ip);
        let mut interface = Interface::new(config, &mut device, Instant::ZERO);
        let buffer =
            || raw::PacketBuffer::new(vec![raw::PacketMetadata::EMPTY; 8], vec![0; 1 << 16]);
        let mut sockets = SocketSet::new(vec![]);
        let socket = sockets.add(raw::Socket::new(Some(IpVersion::Ipv4), None, buffer(), buffer()));
        let (mut firsts, mut completed) = (Firsts::default(), Vec::new());
        for frame in frames {
            firsts.keep(frame);
            let packet = &frame[link_bytes(frame)..];
            let sender = device.transmit(Instant::ZERO).expect("a loopback has room");
            sender.consume(packet.len(), |bytes| bytes.copy_from_slice(packet));
            interface.poll(Instant::ZERO, &mut device, &mut sockets);
            while let Ok(packet) = sockets.get_mut::<raw::Socket<'_>>(socket).recv() {
                let payload = Ipv4Packet::new_checked(packet).map_or(packet, |ip| ip.payload());
                completed.extend(firsts.datagram(frame, payload));
            }
        }
        completed
    })
}
