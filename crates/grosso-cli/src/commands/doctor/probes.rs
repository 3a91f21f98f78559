//! Active probes, which send superframes through temporary devices. The devices are in a network namespace that
//! disappears when the process ends.

use std::{io, net::UdpSocket, time::Duration};

use grosso_io::live::{XdpPort, XdpPortOptions};
use grosso_sys::path::kernel;
use grosso_sys::userns;
use grosso_sys::{
    datagram::{self, Datagrams},
    errno::ErrorClass,
    interface::{Control, InterfaceName},
    namespace::NetworkNamespace,
    netlink::{LinkChange, Netlink},
    packet::{PacketSocket, RingLayout},
    tun::{Offloads, Tun, TunBuilder},
};

use super::{
    finding::Finding,
    host::{self, Host},
};

/// Probes TUN and TAP: which metadata is supported, and whether a superframe passes in each direction.
pub(super) fn tun(host: &Host, network: &NetworkNamespace) -> Finding {
    if let Err(refusal) = userns::tap() {
        return host::tun_refused(host, &refusal);
    }
    let tried = network.run(try_tun).and_then(|tried| tried);
    match tried {
        Ok(found) => {
            let what = format!(
                "/dev/net/tun is accessible; virtio headers of {} B; {}",
                found.headers.join(", "),
                found.has.join(", ")
            );
            if found.lacks.is_empty() {
                return Finding::ok("tun", what);
            }
            Finding::warn("tun", format!("{what}; no {}", found.lacks.join(", no ")))
        }
        Err(error) if ErrorClass::of(&error) == ErrorClass::Forbidden => Finding::fail(
            "tun",
            "/dev/net/tun is accessible; creating a device needs \
                                  CAP_NET_ADMIN",
        )
        .needs(&["net_admin"]),
        Err(error) => Finding::fail(
            "tun",
            format!("/dev/net/tun is accessible, but it does not work: {error}"),
        ),
    }
}

/// Features supported by a TAP device.
#[derive(Default)]
struct TunFound {
    headers: Vec<String>,
    has: Vec<&'static str>,
    lacks: Vec<&'static str>,
}

fn try_tun() -> io::Result<TunFound> {
    silence_ipv6();
    let (control, builder) = (Control::new()?, || {
        let name = InterfaceName::new("probe-tap")?;
        let tap = TunBuilder::tap(name).virtio_header(true).multi_queue(true);
        tap.nonblocking(true).open()
    });
    let tap = builder()?;
    let mut found = TunFound::default();
    for bytes in [10, 12, 24] {
        if tap.set_header_bytes(bytes).is_ok() {
            found.headers.push(bytes.to_string());
        }
    }
    let tcp = Offloads::CHECKSUM | Offloads::TCP_IPV4 | Offloads::TCP_IPV6 | Offloads::TCP_ECN;
    let udp = Offloads::CHECKSUM | Offloads::UDP;
    // Offloads inside tunnels require the 24-byte header.
    let tunnel = tcp | Offloads::UDP_TUNNEL | Offloads::UDP_TUNNEL_CHECKSUM;
    let mut judge = |name, works: bool| {
        let list = if works { &mut found.has } else { &mut found.lacks };
        list.push(name);
    };
    judge("TSO", tap.set_offloads(tcp).is_ok());
    judge("USO", tap.set_offloads(udp).is_ok());
    judge("tunnel GSO", tap.set_offloads(tunnel).is_ok());
    judge("multi-queue", builder().is_ok());
    tap.set_header_bytes(10)?;
    control.set_up(tap.name(), true)?;
    tap.set_offloads(Offloads::CHECKSUM | Offloads::TCP_IPV4)?;
    judge("superframes in", is_written(&tap)?);
    judge("superframes out", is_read(&tap)?);
    Ok(found)
}

/// Returns whether a superframe written to a TAP device is received in one piece.
fn is_written(tap: &Tun) -> io::Result<bool> {
    let socket = PacketSocket::builder().virtio_header(true).ignore_outgoing(true);
    let mut ring = socket.bind_receive_ring(tap.name(), SMALL)?;
    tap.write(&superframe())?;
    ring.wait(SOON)?;
    Ok(ring.receive().is_some_and(|frame| is_whole(frame.virtio_header(), frame.as_ref())))
}

/// Returns whether a superframe sent to a TAP device is read in one piece.
fn is_read(tap: &Tun) -> io::Result<bool> {
    let socket = PacketSocket::builder().virtio_header(true).bind(tap.name())?;
    let packet = superframe();
    socket.send(&packet)?;
    let mut buffer = [0; 1024];
    let length = tap.read(&mut buffer)?;
    Ok(is_whole(&buffer[..10], &buffer[10..length.max(10)]))
}

/// Probes packet sockets by sending a superframe over a veth pair into a mapped ring.
pub(super) fn packet(network: &NetworkNamespace) -> Finding {
    let attempt = || {
        silence_ipv6();
        let [near, far] = wire("probe-p0", "probe-p1")?;
        let receiver = PacketSocket::builder().virtio_header(true).ignore_outgoing(true);
        let mut ring = receiver.bind_receive_ring(&far, SMALL)?;
        let sender = PacketSocket::builder().virtio_header(true).transmit_only(true).bind(&near)?;
        // A device that has just been brought up may lose the first packet.
        for _ in 0..TRIES {
            sender.send(&superframe())?;
            ring.wait(SOON)?;
            if let Some(frame) = ring.receive() {
                return Ok(Some(is_whole(frame.virtio_header(), frame.as_ref())));
            }
        }
        io::Result::Ok(None)
    };
    let name = "packet sockets";
    match network.run(attempt).and_then(|tried| tried) {
        Ok(Some(true)) => {
            Finding::ok(name, "a superframe sent over veth arrived in a packet ring as one frame")
        }
        Ok(Some(false)) => {
            Finding::warn(name, "a superframe sent over veth was split before it was received")
        }
        Ok(None) => Finding::fail(name, "a superframe sent over veth was not received"),
        Err(error) if ErrorClass::of(&error) == ErrorClass::Forbidden => {
            Finding::fail(name, "needs CAP_NET_RAW").needs(&["net_raw"])
        }
        Err(error) => {
            Finding::fail(name, format!("cannot create veth devices or packet sockets: {error}"))
        }
    }
}

/// Probes AF_XDP: a socket on a veth device, and the program that redirects packets to it.
pub(super) fn xdp(network: &NetworkNamespace) -> Finding {
    let attempt = || {
        let [_, far] = wire("probe-x0", "probe-x1")?;
        XdpPort::open(far.as_str(), &XdpPortOptions::default()).map(drop)
    };
    match network.run(attempt).and_then(|tried| tried) {
        Ok(()) => Finding::ok(
            "af_xdp",
            "a socket was opened on a queue of a veth device, with a BPF program that redirects \
             packets",
        ),
        Err(error) if ErrorClass::of(&error) == ErrorClass::Forbidden => {
            let what = "BPF programs need CAP_BPF and CAP_NET_ADMIN; packet sockets work without \
                        them";
            Finding::fail("af_xdp", what).needs(&["bpf", "net_admin"])
        }
        Err(error) => {
            let what = format!("{error}; use packet sockets instead");
            Finding::fail("af_xdp", what)
        }
    }
}

/// Probes UDP GSO and GRO by sending datagrams together over loopback, and checking that they are received together.
pub(super) fn udp(network: Option<&NetworkNamespace>) -> Finding {
    let attempt = || {
        let [near, far] = [UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?];
        near.connect(far.local_addr()?)?;
        far.set_read_timeout(Some(SOON))?;
        datagram::set_coalescing(&far, true)?;
        datagram::set_segment_bytes(&near, 1200)?;
        near.send(&[0; 3 * 1200])?;
        datagram::receive(&far, &mut [0; 8192])
    };
    let tried = match network {
        Some(network) => network
            .run(|| {
                Control::new()?.set_up(&InterfaceName::new("lo")?, true)?;
                attempt()
            })
            .and_then(|tried| tried),
        None => attempt(),
    };
    let name = "udp gso/gro";
    match tried {
        Ok(Datagrams { length: 3600, segment_bytes: Some(1200) }) => {
            Finding::ok(name, "3 datagrams of 1200 B on lo: sent in one call, received in one call")
        }
        Ok(_) => Finding::warn(
            name,
            "3 datagrams of 1200 B on lo: sent in one call, received one by one",
        ),
        Err(error) => Finding::warn(
            name,
            format!(
                "3 datagrams of 1200 B on lo: cannot send or receive them in one call: {error}"
            ),
        ),
    }
}

/// Creates a pair of connected devices and brings them up.
fn wire(near: &str, far: &str) -> io::Result<[InterfaceName; 2]> {
    let [near, far] = [InterfaceName::new(near)?, InterfaceName::new(far)?];
    Netlink::new()?.add_veth((&near, LinkChange::new()), (&far, LinkChange::new()))?;
    let control = Control::new()?;
    control.set_up(&near, true)?;
    control.set_up(&far, true)?;
    Ok([near, far])
}

/// Keeps the kernel from sending its own packets on devices created later. A kernel without IPv6 sends none.
fn silence_ipv6() {
    let _ = kernel::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
}

/// Returns a TCP superframe over IPv4, preceded by its virtio header. The payload is 200 bytes in segments of 100. The
/// virtio header contains: partial checksum (flag 1), TCP over IPv4 (type 1), 54 bytes of headers, the segment size,
/// and the offset of the checksum.
fn superframe() -> Vec<u8> {
    let mut packet = vec![0; 10 + 254];
    let (header, frame) = packet.split_at_mut(10);
    header[..2].copy_from_slice(&[1, 1]);
    for (place, word) in header[2..].chunks_exact_mut(2).zip([54_u16, 100, 34, 16]) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    // A broadcast address, which every device accepts; IPv4; TCP with a 20-byte header.
    frame[..6].fill(0xff);
    (frame[6], frame[12], frame[14], frame[17]) = (0x02, 0x08, 0x45, 240);
    (frame[22], frame[23], frame[46]) = (64, 6, 0x50);
    packet
}

/// Returns whether a received packet is the superframe, still in one piece.
fn is_whole(header: &[u8], frame: &[u8]) -> bool {
    frame.len() == 254 && header.get(1) == Some(&1)
}

/// Layout of a receive ring with room for a few superframes.
const SMALL: RingLayout = RingLayout { slot_bytes: 1024, slots: 16 };
/// Maximum time to wait for something that the kernel does immediately.
const SOON: Duration = Duration::from_secs(1);
/// Maximum number of superframes to send until one is received.
const TRIES: usize = 3;
