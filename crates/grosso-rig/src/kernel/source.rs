//! A host whose kernel fragments datagrams that exceed the MTU.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv6Addr, UdpSocket};

use grosso_sys::interface::{Control, InterfaceName};
use grosso_sys::netlink::Netlink;
use grosso_sys::tun::{Tun, TunBuilder};

use super::router::drain;
use super::worker::Worker;
use super::{FRAME_BYTES_MAX, isolate};

/// A host with only IPv6.
pub struct Source {
    worker: Worker<SourceThread>,
}

impl Source {
    /// Starts a host.
    ///
    /// # Errors
    ///
    /// Fails with a message that contains the system's error.
    pub fn new() -> Result<Self, String> {
        let setup = move || {
            let control = isolate()?;
            SourceThread::new(control)
                .map_err(|error: io::Error| format!("cannot set up a host with IPv6: {error}"))
        };
        Ok(Self { worker: Worker::start(setup)? })
    }

    /// Sends a datagram of `len` bytes from a socket to a network with this MTU, and returns the packets that leave the
    /// host.
    ///
    /// # Errors
    ///
    /// Fails if a system call fails.
    pub fn send(&mut self, len: usize, mtu: u16) -> io::Result<Vec<Vec<u8>>> {
        self.worker.run(move |state| {
            state.control.set_mtu(&state.name, mtu)?;
            let socket = UdpSocket::bind((NEAR, 0))?;
            drain(&state.tun, &mut state.buffer)?;
            let payload: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            socket.send_to(&payload, (FAR, 9))?;
            drain(&state.tun, &mut state.buffer)
        })
    }
}

/// State of the host's thread.
struct SourceThread {
    control: Control,
    tun: Tun,
    name: InterfaceName,
    buffer: Vec<u8>,
}

impl SourceThread {
    fn new(control: Control) -> io::Result<Self> {
        let name = InterfaceName::new("source6")?;
        let tun = TunBuilder::tun(name).nonblocking(true).open()?;
        // With these settings, the kernel sends nothing by itself, and the address is usable immediately.
        for (attribute, value) in
            [("disable_ipv6", "0"), ("router_solicitations", "0"), ("accept_dad", "0")]
        {
            fs::write(format!("/proc/sys/net/ipv6/conf/{name}/{attribute}"), value)?;
        }
        control.set_up(&name, true)?;
        Netlink::new()?.add_address(control.index(&name)?, IpAddr::V6(NEAR), 64)?;
        Ok(Self { control, tun, name, buffer: vec![0; FRAME_BYTES_MAX] })
    }
}

const NEAR: Ipv6Addr = Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 1);
const FAR: Ipv6Addr = Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 2);
