//! A host that receives packets on a device and reads them from sockets.

use std::fs;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::thread;
use std::time::Duration;

use grosso_sys::interface::InterfaceName;
use grosso_sys::netlink::Netlink;
use grosso_sys::tun::{Tun, TunBuilder};
use grosso_testkit::Packet;

use super::virtio::VirtioHeader;
use super::worker::Worker;
use super::{FRAME_BYTES_MAX, MTU_BYTES, isolate};

/// A host with one TUN interface, in its own network namespace.
pub struct Host {
    worker: Worker<HostThread>,
}

impl Host {
    /// The address of the host.
    pub const ADDRESS: [u8; 4] = [10, 9, 0, 1];
    /// An address that is routed to the host's interface.
    pub const PEER: [u8; 4] = [10, 9, 0, 2];

    /// The IPv6 address of the host.
    pub const ADDRESS_IPV6: [u8; 16] = [0xfd, 0xaa, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    /// An IPv6 address that is routed to the host's interface.
    pub const PEER_IPV6: [u8; 16] = [0xfd, 0xaa, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

    /// Starts a host.
    ///
    /// # Errors
    ///
    /// Fails with a message that contains the system's error.
    pub fn new() -> Result<Self, String> {
        Self::start(false)
    }

    /// Starts a host that also has IPv6, sends every ICMPv6 error, and never runs out of memory for fragments.
    ///
    /// # Errors
    ///
    /// Fails with a message that contains the system's error.
    pub fn with_ipv6() -> Result<Self, String> {
        Self::start(true)
    }

    fn start(ipv6: bool) -> Result<Self, String> {
        let setup = move || {
            let control = isolate()?;
            let create = || {
                let name = InterfaceName::new("host")?;
                let tun = TunBuilder::tun(name).virtio_header(true).nonblocking(true).open()?;
                control.set_mtu(&name, MTU_BYTES)?;
                control.set_ipv4_address(&name, Ipv4Addr::from(Self::ADDRESS), 24)?;
                control.set_up(&name, true)?;
                if ipv6 {
                    fs::write("/proc/sys/net/ipv6/conf/host/disable_ipv6", "0")?;
                    fs::write("/proc/sys/net/ipv6/icmp/ratelimit", "0")?;
                    fs::write("/proc/sys/net/ipv6/ip6frag_high_thresh", FRAGMENT_BYTES)?;
                    fs::write("/proc/sys/net/ipv4/ipfrag_high_thresh", FRAGMENT_BYTES)?;
                    let address = IpAddr::V6(Ipv6Addr::from(Self::ADDRESS_IPV6));
                    Netlink::new()?.add_address(control.index(&name)?, address, 64)?;
                }
                let state = HostThread { tun, listener: None, buffer: vec![0; FRAME_BYTES_MAX] };
                if ipv6 {
                    state.wait_for_ipv6()?;
                }
                Ok(state)
            };
            create().map_err(|error: io::Error| format!("cannot set up a TUN device: {error}"))
        };
        Ok(Self { worker: Worker::start(setup)? })
    }

    /// Delivers these packets, and returns the datagrams that a socket at this port then reads.
    ///
    /// # Errors
    ///
    /// Fails with `EINVAL` if the kernel refuses a virtio header, or with a socket error.
    pub fn datagrams(
        &mut self,
        port: u16,
        packets: Vec<(VirtioHeader, Vec<u8>)>,
    ) -> io::Result<Vec<Vec<u8>>> {
        self.datagrams_at(IpAddr::V4(Ipv4Addr::from(Self::ADDRESS)), port, packets)
    }

    /// Delivers these packets, and returns the datagrams that a socket bound to this address of the host then reads.
    ///
    /// # Errors
    ///
    /// Fails for the same reasons as [`Self::datagrams`].
    pub fn datagrams_at(
        &mut self,
        address: IpAddr,
        port: u16,
        packets: Vec<(VirtioHeader, Vec<u8>)>,
    ) -> io::Result<Vec<Vec<u8>>> {
        self.worker.run(move |state| {
            let socket = UdpSocket::bind((address, port))?;
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

    /// Returns the packets that the host has sent so far.
    pub fn sent(&mut self) -> Vec<Vec<u8>> {
        self.worker.run(|state| {
            let mut packets = Vec::new();
            while let Ok(len) = state.tun.read(&mut state.buffer) {
                packets.push(state.buffer[VirtioHeader::BYTES..len].to_vec());
            }
            packets
        })
    }

    /// Listens on a port, delivers a SYN, and returns the host's answer.
    ///
    /// # Errors
    ///
    /// Fails with [`io::ErrorKind::WouldBlock`] if the host does not answer.
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

    /// Delivers these packets, and returns the bytes that the accepted connection then reads.
    ///
    /// # Errors
    ///
    /// Fails with [`io::ErrorKind::WouldBlock`] if there is no connection.
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

/// Maximum number of checks whether a new address is usable, one per millisecond.
const ADDRESS_LOOKS: usize = 10_000;

/// Memory limit for fragments in bytes: more than any test needs.
const FRAGMENT_BYTES: &str = "500000000";

/// State of the host's thread.
struct HostThread {
    tun: Tun,
    listener: Option<TcpListener>,
    buffer: Vec<u8>,
}

impl HostThread {
    /// Waits until a socket can receive packets for the IPv6 address, because a kernel thread adds the address's route
    /// with a delay.
    fn wait_for_ipv6(&self) -> io::Result<()> {
        let socket = UdpSocket::bind((Ipv6Addr::from(Host::ADDRESS_IPV6), 0))?;
        socket.set_nonblocking(true)?;
        let port = socket.local_addr()?.port();
        let packet = Packet::new()
            .ipv6(|ip| ip.source(Host::PEER_IPV6).destination(Host::ADDRESS_IPV6))
            .udp(|udp| udp.destination_port(port))
            .payload(b"?");
        let packet = [(VirtioHeader::default(), packet.build())];
        for _ in 0..ADDRESS_LOOKS {
            self.write(&packet)?;
            if socket.recv(&mut [0; 1]).is_ok() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(1));
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "the IPv6 address did not become usable"))
    }

    /// Writes packets, each of which reaches the sockets before the call returns.
    fn write(&self, packets: &[(VirtioHeader, Vec<u8>)]) -> io::Result<()> {
        packets.iter().try_for_each(|(header, packet)| {
            let header = &header.to_bytes()[..VirtioHeader::BYTES];
            self.tun.write(&[header, packet].concat()).map(drop)
        })
    }
}
