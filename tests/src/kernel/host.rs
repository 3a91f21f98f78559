//! What the sockets of a host read from packets that a device received.

use std::io::{self, Read};
use std::net::{Ipv4Addr, TcpListener, UdpSocket};

use grosso_sys::interface::InterfaceName;
use grosso_sys::tun::{Tun, TunBuilder};

use super::virtio::VirtioHeader;
use super::worker::Worker;
use super::{FRAME_BYTES_MAX, MTU_BYTES, isolate};

/// A host with one TUN interface, in a network of its own.
pub struct Host {
    worker: Worker<State>,
}

impl Host {
    /// The address of the host.
    pub const ADDRESS: [u8; 4] = [10, 9, 0, 1];
    /// An address that is routed to its interface.
    pub const PEER: [u8; 4] = [10, 9, 0, 2];

    /// Starts a host.
    ///
    /// # Errors
    ///
    /// A sentence that says what the system refused.
    pub fn new() -> Result<Self, String> {
        let setup = move || {
            let control = isolate()?;
            let create = || {
                let name = InterfaceName::new("host")?;
                let tun = TunBuilder::tun(name).virtio_header(true).nonblocking(true).open()?;
                control.set_mtu(&name, MTU_BYTES)?;
                control.set_ipv4_address(&name, Ipv4Addr::from(Self::ADDRESS), 24)?;
                control.set_up(&name, true)?;
                Ok(State { tun, listener: None, buffer: vec![0; FRAME_BYTES_MAX] })
            };
            create().map_err(|error: io::Error| format!("no TUN with an address: {error}"))
        };
        Ok(Self { worker: Worker::start(setup)? })
    }

    /// The datagrams that a socket at a port reads, once these packets have arrived.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a virtio header that the kernel refuses; otherwise what the socket says.
    pub fn datagrams(
        &mut self,
        port: u16,
        packets: Vec<(VirtioHeader, Vec<u8>)>,
    ) -> io::Result<Vec<Vec<u8>>> {
        self.worker.run(move |state| {
            let socket = UdpSocket::bind((Ipv4Addr::from(Self::ADDRESS), port))?;
            socket.set_nonblocking(true)?;
            state.write(&packets)?;
            let mut datagrams = Vec::new();
            loop {
                match socket.recv(&mut state.buffer) {
                    Ok(len) => datagrams.push(state.buffer[..len].to_vec()),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        return Ok(datagrams);
                    }
                    Err(error) => return Err(error),
                }
            }
        })
    }

    /// Listens at a port, receives a SYN, and gives the packet with which the host answers.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] if it does not answer.
    pub fn handshake(&mut self, port: u16, synchronize: Vec<u8>) -> io::Result<Vec<u8>> {
        self.worker.run(move |state| {
            let listener = TcpListener::bind((Ipv4Addr::from(Self::ADDRESS), port))?;
            listener.set_nonblocking(true)?;
            state.listener = Some(listener);
            state.write(&[(VirtioHeader::default(), synchronize)])?;
            let len = state.tun.read(&mut state.buffer)?;
            Ok(state.buffer[VirtioHeader::BYTES..len].to_vec())
        })
    }

    /// The bytes that the accepted connection reads, once these packets have arrived.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] if there is no connection.
    pub fn stream(&mut self, packets: Vec<(VirtioHeader, Vec<u8>)>) -> io::Result<Vec<u8>> {
        self.worker.run(move |state| {
            state.write(&packets)?;
            let listener = state.listener.take().ok_or(io::ErrorKind::NotConnected)?;
            let (mut stream, _) = listener.accept()?;
            stream.set_nonblocking(true)?;
            let mut bytes = Vec::new();
            match stream.read_to_end(&mut bytes) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
                _ => Ok(bytes),
            }
        })
    }
}

/// What the host's thread owns.
struct State {
    tun: Tun,
    listener: Option<TcpListener>,
    buffer: Vec<u8>,
}

impl State {
    /// A write runs up to the sockets before it returns.
    fn write(&self, packets: &[(VirtioHeader, Vec<u8>)]) -> io::Result<()> {
        packets.iter().try_for_each(|(header, packet)| {
            let header = &header.to_bytes()[..VirtioHeader::BYTES];
            self.tun.write(&[header, packet].concat()).map(drop)
        })
    }
}
