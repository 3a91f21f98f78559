//! Rules V1 to V33 and cases K110 to K119: virtio headers, TUN, TAP and packet sockets.
//!
//! The running kernel gets independently built headers, and its answers are compared with those of `grosso::vnet` for
//! the same bytes.
//!
//! The tests need root, or a user namespace (`unshare -Urm`). Without one of these, they print `skipped:` and the
//! reason.

#![cfg(target_os = "linux")]

mod cases;
mod device;
mod read;
mod write;

use std::{fs, io, thread};

use grosso::Meta;
use grosso::vnet::{VnetError, understand};
use grosso_rig::kernel::{TunnelOffsets, VirtioHeader, skip};
use grosso_sys::{
    errno::ErrorClass,
    interface::{Control, InterfaceName},
    namespace,
    packet::{PacketSocket, PacketSocketBuilder},
    tun::{Tun, TunBuilder},
};
use grosso_testkit::Packet;
use grosso_wire::{
    LinkType, Ports, dissect,
    virtio::{self, Form, Order},
};

/// Runs a test in a separate network namespace, in which the kernel sends no packets.
fn isolated(test: impl FnOnce(&Control) -> io::Result<()> + Send) {
    let work = || {
        let prepare = || {
            namespace::isolate_thread_network()?;
            // This fails only if the kernel has no IPv6, and such a kernel sends no packets anyway.
            let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            Control::new()
        };
        match prepare() {
            Ok(control) => test(&control).unwrap(),
            Err(error) => skip(&format!("cannot create a private network namespace: {error}")),
        }
    };
    thread::scope(|scope| {
        if let Err(panic) = scope.spawn(work).join() {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Creates a TAP that is up, with the longest virtio header.
fn tap(control: &Control, name: &str) -> io::Result<Tun> {
    let builder = TunBuilder::tap(InterfaceName::new(name)?);
    let tap = builder.virtio_header(true).nonblocking(true).open()?;
    tap.set_header_bytes(VirtioHeader::TUNNEL_BYTES as u8)?;
    control.set_up(tap.name(), true)?;
    Ok(tap)
}

/// Opens a packet socket on the other side of a TAP, with the short virtio header.
fn observer(tap: &Tun) -> io::Result<PacketSocket> {
    packet_socket().bind(tap.name())
}

fn packet_socket() -> PacketSocketBuilder {
    PacketSocket::builder().virtio_header(true).ignore_outgoing(true)
}

/// Reads the frames that a packet socket receives, with their virtio headers.
fn shown(socket: &PacketSocket) -> io::Result<Vec<(VirtioHeader, Vec<u8>)>> {
    let mut buffer = vec![0; 1 << 17];
    let mut frames = Vec::new();
    while let Some(received) = socket.receive(&mut buffer)? {
        let (header, frame) = buffer[..received.length].split_first_chunk().unwrap();
        frames.push((VirtioHeader::parse(header), frame.to_vec()));
    }
    Ok(frames)
}

/// Reads the packets that leave a TAP, virtio headers included.
fn read_all(tap: &Tun) -> io::Result<Vec<Vec<u8>>> {
    let mut buffer = vec![0xa5; 1 << 17];
    let mut packets = Vec::new();
    loop {
        match tap.read(&mut buffer) {
            Ok(len) => packets.push(buffer[..len].to_vec()),
            Err(error) if ErrorClass::of(&error) == ErrorClass::Later => return Ok(packets),
            Err(error) => return Err(error),
        }
        buffer.fill(0xa5);
    }
}

/// Returns whether the kernel accepted a write; any error but `EINVAL` is a failure.
#[track_caller]
fn taken(result: io::Result<usize>) -> bool {
    match result {
        Ok(_) => true,
        Err(error) if error.raw_os_error() == Some(22) => false,
        Err(error) => panic!("{error}"),
    }
}

/// A frame and its virtio header.
#[derive(Clone, Debug)]
struct Case {
    header: VirtioHeader,
    frame: Vec<u8>,
}

impl Case {
    /// Returns a superframe with segments of `size` bytes and the correct header.
    fn superframe(packet: Packet, size: u16) -> Self {
        let (frame, start, offset) = packet.build_superframe();
        let ipv6 = frame[12] == 0x86;
        let gso_type = match (offset, ipv6) {
            (6, _) => VirtioHeader::UDP_SEGMENTS,
            (_, true) => VirtioHeader::TCP_IPV6,
            (_, false) => VirtioHeader::TCP_IPV4,
        };
        let header = VirtioHeader {
            flags: VirtioHeader::NEEDS_CHECKSUM,
            gso_type,
            header_length: packet.header_len() as u16,
            gso_size: size,
            checksum_start: start as u16,
            checksum_offset: offset as u16,
            tunnel: TunnelOffsets::default(),
        };
        Self { header, frame }
    }

    /// Returns the same case with a changed header.
    fn with(&self, change: impl FnOnce(&mut VirtioHeader)) -> Self {
        let mut case = self.clone();
        change(&mut case.header);
        case
    }

    fn bytes(&self) -> Vec<u8> {
        [&self.header.to_bytes()[..], &self.frame].concat()
    }

    /// Returns whether a TAP accepts the packet with its header.
    #[track_caller]
    fn kernel_takes(&self, tap: &Tun) -> bool {
        taken(tap.write(&self.bytes()))
    }

    /// Returns the metadata that Grosso reads from the same bytes.
    fn understood(&self) -> Result<Meta, VnetError> {
        let bytes = self.bytes();
        let (header, frame) =
            virtio::VirtioHeader::parse(&bytes, Form::Tunnel, Order::NATIVE).unwrap();
        let stack = dissect(frame, LinkType::Ethernet, &Ports::ASSIGNED);
        understand(&header, frame, LinkType::Ethernet, &stack, Form::Tunnel)
    }

    /// Asserts that the kernel and Grosso refuse the case, and that Grosso reports this reason.
    #[track_caller]
    fn both_refuse(&self, tap: &Tun, why: VnetError) {
        assert!(!self.kernel_takes(tap), "the kernel takes {self:?}");
        assert_eq!(self.understood(), Err(why));
    }
}

fn ethernet() -> Packet {
    Packet::new().ethernet(|e| e)
}

fn tcp4() -> Packet {
    ethernet().ipv4(|ip| ip).tcp(|t| t.timestamps(1, 2))
}

fn tcp6() -> Packet {
    ethernet().ipv6(|ip| ip).tcp(|t| t)
}

/// Returns a datagram to a port without a listener.
fn udp4() -> Packet {
    ethernet().ipv4(|ip| ip).udp(|u| u.destination_port(53_999))
}

fn udp6() -> Packet {
    ethernet().ipv6(|ip| ip).udp(|u| u.destination_port(53_999))
}

/// Returns a VXLAN superframe, with outer and inner IPv4 or IPv6, and with the offsets of its headers.
fn vxlan(outer_ipv6: bool, inner_ipv6: bool, payload_len: usize, size: u16) -> Case {
    let network = |packet: Packet, ipv6: bool| {
        if ipv6 { packet.ipv6(|ip| ip) } else { packet.ipv4(|ip| ip) }
    };
    let bytes = |ipv6| if ipv6 { 40 } else { 20 };
    let outer = network(ethernet(), outer_ipv6).udp(|u| u).vxlan(|v| v).ethernet(|e| e);
    let packet = network(outer, inner_ipv6).udp(|u| u.destination_port(53_999));
    let case = Case::superframe(packet.payload_len(payload_len), size);
    case.with(|header| {
        header.flags |= VirtioHeader::TUNNEL_CHECKSUM;
        header.gso_type = VirtioHeader::UDP_SEGMENTS;
        header.gso_type |=
            if outer_ipv6 { VirtioHeader::TUNNEL_IPV6 } else { VirtioHeader::TUNNEL_IPV4 };
        header.tunnel = TunnelOffsets {
            outer_transport: 14 + bytes(outer_ipv6),
            inner_network: header.checksum_start - bytes(inner_ipv6),
        };
    })
}
