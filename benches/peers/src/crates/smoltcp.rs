//! Peer that uses smoltcp's interface. The interface reassembles only datagrams for a socket, so the figure includes
//! copying each datagram into the socket's buffer. The peer verifies IPv4 header checksums, as the engine does, and
//! optionally the checksums of the datagrams.

use grosso_benches::{Cache, Step};
use grosso_testkit::{Packet, workloads::Workload};
use smoltcp::{
    iface::{Config, Interface, SocketHandle, SocketSet},
    phy::{Checksum, ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken},
    socket::udp,
    time::Instant,
    wire::{EthernetAddress, IpAddress, IpCidr, Ipv4Address},
};

use crate::{
    contender::{About, Boxed, Local, Peer, Stepped},
    polls::Polls,
};

pub(super) fn reassemblers(workload: &Workload) -> [Boxed<'_>; 2] {
    let verifies = About::new(Peer::Smoltcp, "+ checks", "parse, copy twice, verify");
    let plain = About::new(Peer::Smoltcp, "", "parse, copy twice; 8 slots").doing_less();
    [(verifies, Checksum::Both), (plain, Checksum::None)].map(|(about, udp)| {
        let turns = Stepped { step: Reassemble::new(workload, udp), cache: Cache::Hot };
        Local::boxed(about, turns, workload.packets, move || reassembled(workload, udp))
    })
}

struct Reassemble<'a> {
    device: Trace<'a>,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
}

impl<'a> Reassemble<'a> {
    fn new(workload: &'a Workload, udp: Checksum) -> Self {
        let (address, destination, port) = to_whom(workload);
        let mut device = Trace { polls: Polls::new(workload), poll: [].iter(), udp };
        let mut interface = Interface::new(Config::new(address.into()), &mut device, Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            addresses.push(IpCidr::new(destination.into(), 8)).expect("room for one address");
        });
        let buffer = |packets, bytes| {
            udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY; packets], vec![0; bytes])
        };
        let mut socket = udp::Socket::new(buffer(64, 1 << 20), buffer(1, 64));
        socket.bind(port).expect("a free port");
        let mut sockets = SocketSet::new(vec![]);
        let socket = sockets.add(socket);
        Self { device, interface, sockets, socket }
    }

    /// Reassembles one poll, and passes each datagram to `take`.
    fn poll(&mut self, mut take: impl FnMut(&[u8], udp::UdpMetadata)) -> usize {
        let poll = self.device.polls.take();
        self.device.poll = poll.iter();
        self.interface.poll(Instant::ZERO, &mut self.device, &mut self.sockets);
        let socket = self.sockets.get_mut::<udp::Socket<'_>>(self.socket);
        while let Ok((data, metadata)) = socket.recv() {
            take(data, metadata);
        }
        poll.len()
    }
}

impl Step for Reassemble<'_> {
    fn upcoming(&self) -> impl Iterator<Item = &[u8]> {
        self.device.polls.upcoming().iter().map(Vec::as_slice)
    }

    fn step(&mut self) -> usize {
        self.poll(|_, _| ())
    }
}

fn reassembled(workload: &Workload, udp: Checksum) -> Vec<Vec<u8>> {
    let mut reassemble = Reassemble::new(workload, udp);
    let (mut frames, mut fragments) = (Vec::new(), 0);
    while fragments < workload.frames.len() {
        fragments += reassemble.poll(|data, metadata| {
            let IpAddress::Ipv4(source) = metadata.endpoint.addr;
            let packet = Packet::new().ethernet(|e| e).ipv4(|ip| ip.source(source.octets()));
            let packet = packet.udp(|udp| udp.source_port(metadata.endpoint.port));
            frames.push(packet.payload(data).build());
        });
    }
    frames
}

/// A device that returns the frames of a poll and discards everything that is sent.
struct Trace<'a> {
    polls: Polls<'a>,
    poll: core::slice::Iter<'a, Vec<u8>>,
    /// Whether the checksums of datagrams are verified.
    udp: Checksum,
}

impl<'a> Device for Trace<'a> {
    type RxToken<'t>
        = Given<'a>
    where
        Self: 't;
    type TxToken<'t>
        = Swallowed
    where
        Self: 't;

    fn receive(&mut self, _: Instant) -> Option<(Given<'a>, Swallowed)> {
        self.poll.next().map(|frame| (Given(frame), Swallowed))
    }

    fn transmit(&mut self, _: Instant) -> Option<Swallowed> {
        Some(Swallowed)
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = 1514;
        capabilities.checksum = ChecksumCapabilities::ignored();
        capabilities.checksum.ipv4 = Checksum::Both;
        capabilities.checksum.udp = self.udp;
        capabilities
    }
}

struct Given<'a>(&'a [u8]);

impl RxToken for Given<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, act: F) -> R {
        act(self.0)
    }
}

struct Swallowed;

impl TxToken for Swallowed {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, act: F) -> R {
        act(&mut vec![0; len])
    }
}

/// Returns the destination addresses and the port of the IPv4 fragments in a workload.
fn to_whom(workload: &Workload) -> (EthernetAddress, Ipv4Address, u16) {
    let is_first = |frame: &&Vec<u8>| frame[20..22] == [0x20, 0];
    let first = workload.frames.iter().find(is_first).expect("a first fragment");
    let address = Ipv4Address::new(first[30], first[31], first[32], first[33]);
    let port = u16::from_be_bytes([first[36], first[37]]);
    (EthernetAddress::from_bytes(&first[..6]), address, port)
}
