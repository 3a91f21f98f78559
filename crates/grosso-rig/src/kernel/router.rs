//! A router that forwards packets to a network with a smaller MTU.

use std::fs;
use std::io;
use std::net::Ipv4Addr;

use grosso_sys::interface::{Control, InterfaceName};
use grosso_sys::tun::{Tun, TunBuilder};

use super::worker::Worker;
use super::{FRAME_BYTES_MAX, MTU_BYTES, isolate};

/// A router between two networks, the second of which has the smaller MTU.
pub struct Router {
    worker: Worker<RouterThread>,
}

/// Packets that the router sends when it receives one packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forwarded {
    /// Packets that the router sends toward the destination.
    pub onward: Vec<Vec<u8>>,
    /// ICMP errors that the router sends back to the source.
    pub back: Vec<Vec<u8>>,
}

impl Router {
    /// An address of the first network.
    pub const SOURCE: [u8; 4] = [10, 9, 1, 2];
    /// An address of the second network.
    pub const DESTINATION: [u8; 4] = [10, 9, 2, 2];

    /// Starts a router.
    ///
    /// # Errors
    ///
    /// Fails with a message that contains the system's error.
    pub fn new() -> Result<Self, String> {
        let setup = move || {
            let control = isolate()?;
            RouterThread::new(&control)
                .map_err(|error: io::Error| format!("cannot set up a router: {error}"))
        };
        Ok(Self { worker: Worker::start(setup)? })
    }

    /// Forwards a packet to a network with this MTU.
    ///
    /// # Errors
    ///
    /// Fails if a system call fails.
    pub fn forward(&mut self, packet: Vec<u8>, mtu: u16) -> io::Result<Forwarded> {
        self.worker.run(move |state| {
            state.control.set_mtu(&state.onward_name, mtu)?;
            // The packet reaches the other interface before this call returns.
            state.source.write(&packet)?;
            let onward = drain(&state.onward, &mut state.buffer)?;
            Ok(Forwarded { onward, back: drain(&state.source, &mut state.buffer)? })
        })
    }
}

/// State of the router's thread.
struct RouterThread {
    control: Control,
    source: Tun,
    onward: Tun,
    onward_name: InterfaceName,
    buffer: Vec<u8>,
}

impl RouterThread {
    fn new(control: &Control) -> io::Result<Self> {
        fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
        // ICMP errors are not rate-limited, so that every oversized packet causes one.
        fs::write("/proc/sys/net/ipv4/icmp_ratelimit", "0")?;
        let open = |name: &str, address: [u8; 4]| {
            let name = InterfaceName::new(name)?;
            let tun = TunBuilder::tun(name).nonblocking(true).open()?;
            control.set_mtu(&name, MTU_BYTES)?;
            control.set_ipv4_address(&name, Ipv4Addr::from(address), 24)?;
            control.set_up(&name, true)?;
            io::Result::Ok((tun, name))
        };
        let (source, _) = open("source", [10, 9, 1, 1])?;
        let (onward, onward_name) = open("onward", [10, 9, 2, 1])?;
        let buffer = vec![0; FRAME_BYTES_MAX];
        Ok(Self { control: Control::new()?, source, onward, onward_name, buffer })
    }
}

/// Returns all packets that the kernel has queued on an interface.
pub(super) fn drain(tun: &Tun, buffer: &mut [u8]) -> io::Result<Vec<Vec<u8>>> {
    let mut packets = Vec::new();
    loop {
        match tun.read(buffer) {
            Ok(len) => packets.push(buffer[..len].to_vec()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(packets),
            Err(error) => return Err(error),
        }
    }
}
