//! Reassembly by others, fed as fairly as their interfaces allow.

use etherparse::{SlicedPacket, defrag::IpDefragPool};
use grosso_benches::Step;
use grosso_testkit::workloads::{POLL, Workload};
use smoltcp::{
    iface::{Config, Interface, SocketHandle, SocketSet},
    phy::{Checksum, ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken},
    socket::udp,
    time::Instant,
    wire::{EthernetAddress, IpCidr, Ipv4Address},
};

/// The polls of a trace, over and over.
#[derive(Debug)]
struct Polls<'a> {
    frames: &'a [Vec<u8>],
    next: usize,
}

impl<'a> Polls<'a> {
    fn new(workload: &'a Workload) -> Self {
        Self { frames: &workload.frames, next: 0 }
    }

    fn upcoming(&self) -> &'a [Vec<u8>] {
        &self.frames[self.next..self.frames.len().min(self.next + POLL)]
    }

    fn take(&mut self) -> &'a [Vec<u8>] {
        let poll = self.upcoming();
        self.next = (self.next + POLL) % self.frames.len().next_multiple_of(POLL);
        poll
    }
}

/// etherparse's pool of datagrams, behind its parser: no limits, no time, no checksums, no policy on overlaps.
pub(crate) struct Etherparse<'a> {
    polls: Polls<'a>,
    pool: IpDefragPool,
    datagrams: usize,
}

impl<'a> Etherparse<'a> {
    pub(crate) fn new(workload: &'a Workload) -> Self {
        let mut new = Self { polls: Polls::new(workload), pool: IpDefragPool::new(), datagrams: 0 };
        (0..workload.frames.len().div_ceil(POLL)).for_each(|_| _ = new.step());
        assert_eq!(new.datagrams, datagrams(workload), "etherparse joins all of them");
        new
    }
}

impl Step for Etherparse<'_> {
    fn upcoming(&self) -> impl Iterator<Item = &[u8]> {
        self.polls.upcoming().iter().map(Vec::as_slice)
    }

    fn step(&mut self) -> usize {
        let poll = self.polls.take();
        for frame in poll {
            let Ok(packet) = SlicedPacket::from_ethernet(frame) else { continue };
            if let Ok(Some(whole)) = self.pool.process_sliced_packet(&packet, (), ()) {
                self.datagrams += 1;
                self.pool.return_buf(whole);
            }
        }
        poll.len()
    }
}

/// smoltcp's interface: it joins only on the way to a socket, so a figure has the copy of each datagram into that
/// socket's buffer. It verifies IPv4 header checksums, as the engine does, and no others.
pub(crate) struct Smoltcp<'a> {
    device: Trace<'a>,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
    datagrams: usize,
}

impl<'a> Smoltcp<'a> {
    pub(crate) fn new(workload: &'a Workload) -> Self {
        let (address, destination, port) = to_whom(workload);
        let mut device = Trace { polls: Polls::new(workload), poll: [].iter() };
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
        let mut new = Self { device, interface, sockets, socket, datagrams: 0 };
        (0..workload.frames.len().div_ceil(POLL)).for_each(|_| _ = new.step());
        assert_eq!(new.datagrams, datagrams(workload), "smoltcp joins all of them");
        new
    }
}

impl Step for Smoltcp<'_> {
    fn upcoming(&self) -> impl Iterator<Item = &[u8]> {
        self.device.polls.upcoming().iter().map(Vec::as_slice)
    }

    fn step(&mut self) -> usize {
        let poll = self.device.polls.take();
        self.device.poll = poll.iter();
        self.interface.poll(Instant::ZERO, &mut self.device, &mut self.sockets);
        let socket = self.sockets.get_mut::<udp::Socket<'_>>(self.socket);
        while socket.recv().is_ok() {
            self.datagrams += 1;
        }
        poll.len()
    }
}

/// A device that gives the frames of a poll, and swallows what is sent.
struct Trace<'a> {
    polls: Polls<'a>,
    poll: core::slice::Iter<'a, Vec<u8>>,
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

/// The addresses and the port that a workload of IPv4 fragments is sent to.
fn to_whom(workload: &Workload) -> (EthernetAddress, Ipv4Address, u16) {
    let is_first = |frame: &&Vec<u8>| frame[20..22] == [0x20, 0];
    let first = workload.frames.iter().find(is_first).expect("a first fragment");
    let address = Ipv4Address::new(first[30], first[31], first[32], first[33]);
    let port = u16::from_be_bytes([first[36], first[37]]);
    (EthernetAddress::from_bytes(&first[..6]), address, port)
}

/// How many datagrams a workload of fragments is.
fn datagrams(workload: &Workload) -> usize {
    let is_first = |frame: &&Vec<u8>| match frame[14] >> 4 {
        4 => frame[20..22] == [0x20, 0],
        _ => frame[56..58] == [0, 1],
    };
    workload.frames.iter().filter(is_first).count()
}
