//! An echo service on a userspace TCP stack (smoltcp) and a TUN device, with superframes in both directions.
//!
//! Usage: `stack DEVICE ADDRESS PORT`. The host must route the address to the device. The program serves one
//! connection, and then prints the number of frames that it received.
use std::{env, error::Error, net::Ipv4Addr, os::fd::AsFd, time::Instant as Clock};

use grosso_tun::{Interest, Layer, StackDevice, wait_for};
use smoltcp::{
    iface::{Config, Interface, SocketSet},
    socket::tcp,
    time::Instant,
    wire::{HardwareAddress, IpAddress, IpCidr},
};

/// Size of the socket buffer for each direction, in bytes: several superframes.
const BUFFER_BYTES: usize = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    let [name, address, port] = &words[..] else {
        return Err("stack DEVICE ADDRESS PORT".into());
    };
    let mut device = StackDevice::open(name, Layer::Ip, 1500)?;
    println!("{} is there", device.name());

    let started = Clock::now();
    let now = || Instant::from_micros(started.elapsed().as_micros() as i64);
    let mut interface = Interface::new(Config::new(HardwareAddress::Ip), &mut device, now());
    let address: Ipv4Addr = address.parse()?;
    interface.update_ip_addrs(|addresses| {
        let own = IpCidr::new(IpAddress::Ipv4(address), 24);
        addresses.push(own).expect("room for one address");
    });
    let buffer = || tcp::SocketBuffer::new(vec![0; BUFFER_BYTES]);
    let mut socket = tcp::Socket::new(buffer(), buffer());
    socket.listen(port.parse::<u16>()?)?;
    let mut sockets = SocketSet::new(Vec::new());
    let handle = sockets.add(socket);

    let mut bytes = 0;
    loop {
        interface.poll(now(), &mut device, &mut sockets);
        device.check()?;
        let socket = sockets.get_mut::<tcp::Socket<'_>>(handle);
        let mut moved = 0;
        while socket.can_send() && socket.can_recv() {
            let room = socket.send_capacity() - socket.send_queue();
            let block = socket.recv(|block| {
                let len = block.len().min(room);
                (len, block[..len].to_vec())
            })?;
            moved += socket.send_slice(&block)?;
        }
        bytes += moved;
        if !socket.may_recv() && socket.recv_queue() == 0 && socket.may_send() && bytes > 0 {
            socket.close();
        }
        if !socket.is_open() {
            println!("{bytes} bytes went back in {} frames", device.sent());
            return Ok(());
        }
        if moved == 0 {
            let wait = interface.poll_delay(now(), &sockets).map(|wait| wait.into());
            let interest = if device.is_full() { Interest::WRITE } else { Interest::READ };
            wait_for(&[(device.as_fd(), interest)], wait)?;
        }
    }
}
