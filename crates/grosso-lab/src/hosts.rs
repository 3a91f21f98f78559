//! The hosts and the wire between them.

use core::fmt;
use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket},
    os::fd::AsFd,
    time::Duration,
};

use grosso::features::Features;
use grosso_io::live::{PacketOptions, PacketPort, TapOptions, TapPort};
use grosso_sys::{
    ethtool::set_feature,
    interface::{Control, InterfaceName, write_attribute},
    namespace::{NetworkNamespace, show_network_in_sysfs},
    netlink::{LinkChange, Netlink},
    packet::RingLayout,
    scheduling::{kernel_threads, pin},
    stream::set_receive_low_water,
    tun::Layer,
};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_tcp_congestion};
use rustix::process::Pid;

use crate::account::TcpCounters;

mod underlay;

pub use underlay::{Inside, UNDERLAY_ADDRESSES};

/// How long the packets are that each host sends, in bytes from the IP header on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Mtu {
    /// Of the sender, and of the wire.
    pub sender: u16,
    /// Of the receiver.
    pub receiver: u16,
}

/// The version of IP that the hosts speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// IPv4.
    #[default]
    V4,
    /// IPv6, beside IPv4.
    V6,
}

/// What the hosts and the wire between them are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// How long packets are.
    pub mtu: Mtu,
    /// What the hosts speak.
    pub family: Family,
    /// Most bytes of a TCP socket's buffer. In all connections together less than 1000 packets
    /// should be under way, which a wire's backlog holds (`net.core.netdev_max_backlog`; more at
    /// once are lost without a word to the sender).
    pub tcp_buffer_bytes: usize,
    /// Bytes that may be under way on the wire: the data path's ring has a slot for each packet of
    /// them.
    pub under_way_bytes: usize,
    /// Bytes of each receive buffer of the data path, a power of two; as few as a packet needs if
    /// this is less.
    pub buffer_bytes: usize,
    /// Whether complete checksums cross the wire, which whoever receives must verify; else partial
    /// ones, which nobody need: as behind a NIC that did.
    pub full_checksums: bool,
    /// Whether the sender's TCP is kept from taking a pause of the data path's thread, which others
    /// on the processor cause, for a lost packet: without tail loss probes, and with a longer
    /// timeout where the kernel lets it be set (6.11 and later).
    pub patient: bool,
    /// What must have arrived before a stream is read, in bytes: until then every second segment is acknowledged at
    /// once. 0 to read what there is, and acknowledge what was read.
    pub read_bytes_min: u16,
}

impl Default for Layout {
    /// One stream of packets of 1500 bytes over IPv4.
    fn default() -> Self {
        Self {
            mtu: Mtu { sender: 1500, receiver: 1500 },
            family: Family::V4,
            tcp_buffer_bytes: TCP_BUFFER_BYTES,
            under_way_bytes: TCP_BUFFER_BYTES,
            buffer_bytes: 0,
            full_checksums: false,
            patient: true,
            read_bytes_min: 0,
        }
    }
}

impl Layout {
    /// For so many streams, which share what one may have under way.
    #[must_use]
    pub fn streams(self, count: usize) -> Self {
        let each = (TCP_BUFFER_BYTES / count.max(1)).max(STREAM_BYTES_MIN);
        Self { tcp_buffer_bytes: each, under_way_bytes: each * count.max(1), ..self }
    }

    /// Bytes of a receive buffer in which a packet of the wire has room.
    #[must_use]
    pub fn slot_bytes(&self) -> usize {
        let needed = usize::from(self.mtu.sender) + SLOT_OVERHEAD_BYTES;
        needed.next_power_of_two().max(self.buffer_bytes)
    }
}

/// Two hosts, each a network of its own.
#[derive(Debug)]
pub struct Hosts {
    sender: NetworkNamespace,
    receiver: NetworkNamespace,
    family: Family,
    /// As [`Layout::read_bytes_min`].
    read_bytes_min: u16,
    /// The networks of a wire between two data paths, of which neither is to lose it when the other ends.
    between: Vec<NetworkNamespace>,
    /// The kernel thread that takes the receiver's packets from its device, where it has its own.
    poller: Option<Pid>,
}

/// What the data path hands a host its packets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Device {
    /// A TAP device, as a virtual machine's NIC is one. Wants `/dev/net/tun`.
    Tap,
    /// A second veth pair with a packet socket on its far end, through which superframes cross
    /// whole. Wants nothing, and costs a copy more on the way.
    Veth,
}

impl Device {
    /// The one that may be used here: a TAP where one can be made. To be asked after
    /// [`crate::permit::enter`].
    #[must_use]
    pub fn probe() -> Self {
        if crate::permit::tap().is_ok() { Self::Tap } else { Self::Veth }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Tap => "TAP",
            Self::Veth => "veth and packet socket",
        })
    }
}

/// The ports of the data path between the hosts.
#[derive(Debug)]
pub struct Ends {
    /// The end of the wire between them.
    pub wire: PacketPort,
    /// The device of the host whose NIC Grosso is.
    pub device: DevicePort,
}

/// The data path's side of a [`Device`].
#[derive(Debug)]
pub enum DevicePort {
    /// Of a TAP, or of a TUN.
    Tap(TapPort),
    /// Of a veth pair.
    Veth(PacketPort),
}

impl Hosts {
    /// Two hosts with room for a data path between them where the receiver's NIC would be, and its
    /// ports. The receiver's kernel hands out superframes if they are wanted.
    ///
    /// # Errors
    /// `EPERM` without the privileges of [`crate::permit::enter`]; when the kernel has no veth, TUN
    /// or packet sockets.
    pub fn receiving(
        layout: &Layout,
        device: Device,
        superframes: bool,
    ) -> io::Result<(Self, Ends)> {
        let (hosts, mtu) = (Self::new(layout)?, layout.mtu);
        let options = packet_options(layout);
        let wire = open_wire(|| add_wire(&hosts.sender, SENDER, (ENGINE, mtu.sender)), &options)?;
        let device = open_device(
            &hosts.receiver,
            (RECEIVER, mtu.receiver),
            (device, Layer::Ethernet),
            superframes,
        )?;
        hosts.set_up_receiver(mtu)?;
        hosts.set_up_sender(layout)?;
        Ok((hosts, Ends { wire, device }))
    }

    /// Two hosts with room for a data path between them where the sender's NIC would be, and its
    /// ports. The sender's kernel hands out superframes if they are wanted; the wire takes none.
    ///
    /// # Errors
    /// As [`Hosts::receiving`].
    pub fn sending(layout: &Layout, device: Device, superframes: bool) -> io::Result<(Self, Ends)> {
        let (hosts, mtu) = (Self::new(layout)?, layout.mtu);
        let options = packet_options(layout);
        let add = || {
            add_wire(&hosts.receiver, RECEIVER, (ENGINE, mtu.sender))?;
            // A veth hands over what it gets to coalescing only if the end that sends segments nothing itself.
            segment_in_the_kernel(ENGINE)
        };
        let wire = open_wire(add, &options)?;
        hosts.set_up_receiver(mtu)?;
        let device = open_device(
            &hosts.sender,
            (SENDER, mtu.sender),
            (device, Layer::Ethernet),
            superframes,
        )?;
        hosts.sender.run(|| set_up(SENDER, SENDER_ADDRESSES, hosts.family, mtu.sender))??;
        Ok((hosts, Ends { wire, device }))
    }

    /// Two hosts, each with room for a data path of its own where its NIC would be, and the ports of
    /// both, the sender's first: between the two paths is a wire with an MTU of its own. The hosts
    /// know each other's Ethernet address, so that nothing but traffic is on the wire.
    ///
    /// # Errors
    /// As [`Hosts::receiving`].
    pub fn apart(layout: &Layout, device: Device, wire_mtu: u16) -> io::Result<(Self, [Ends; 2])> {
        let (hosts, ends) = Self::apart_by(layout, (device, false), wire_mtu, PacketPort::open)?;
        Ok((hosts, ends.map(|(wire, device)| Ends { wire, device })))
    }

    /// The same, with ports of any kind at the ends of the wire, and superframes of the hosts if these are wanted.
    /// `open` gets the name of such an end, and what a packet socket would be opened with.
    ///
    /// # Errors
    /// As [`Hosts::receiving`]; those of `open`.
    pub fn apart_by<W: Send>(
        layout: &Layout,
        (device, superframes): (Device, bool),
        wire_mtu: u16,
        open: impl Fn(&str, &PacketOptions) -> io::Result<W> + Sync,
    ) -> io::Result<(Self, [(W, DevicePort); 2])> {
        let (mut hosts, mtu) = (Self::new(layout)?, layout.mtu);
        let wire = Layout { mtu: Mtu { sender: wire_mtu, receiver: wire_mtu }, ..*layout };
        let options = packet_options(&wire);
        let [one, other] = [engine_network()?, engine_network()?];
        one.run(|| add_wire(&other, ENGINE, (ENGINE, wire_mtu)))??;
        other.run(|| Control::new()?.set_mtu(&name(ENGINE)?, wire_mtu))??;
        for network in [&one, &other] {
            network.run(|| Control::new()?.set_up(&name(ENGINE)?, true))??;
        }
        let [near, far] = [&one, &other].map(|network| network.run(|| open(ENGINE, &options)));
        hosts.between = vec![one, other];
        let open = |host, end| open_device(host, end, (device, Layer::Ethernet), superframes);
        let ends = [
            (near??, open(&hosts.sender, (SENDER, mtu.sender))?),
            (far??, open(&hosts.receiver, (RECEIVER, mtu.receiver))?),
        ];
        hosts.set_up_receiver(mtu)?;
        hosts.sender.run(|| set_up(SENDER, SENDER_ADDRESSES, hosts.family, mtu.sender))??;
        hosts.introduce()?;
        Ok((hosts, ends))
    }

    /// Two hosts with nothing but a wire between them; the receiver's kernel coalesces if `gro` is
    /// set.
    ///
    /// # Errors
    /// As [`Hosts::receiving`].
    pub fn joined(layout: &Layout, gro: bool) -> io::Result<Self> {
        // There is no thread between the hosts to be patient with, and packets do get lost here.
        let layout = &Layout { patient: false, ..*layout };
        let (hosts, mtu) = (Self::new(layout)?, layout.mtu);
        hosts.receiver.run(|| {
            add_wire(&hosts.sender, SENDER, (RECEIVER, mtu.receiver))?;
            set_feature(&Control::new()?, &name(RECEIVER)?, "rx-gro", gro)
        })??;
        hosts.set_up_receiver(mtu)?;
        hosts.set_up_sender(layout)?;
        Ok(hosts)
    }

    fn new(layout: &Layout) -> io::Result<Self> {
        let (sender, receiver) = (NetworkNamespace::new()?, NetworkNamespace::new()?);
        let (family, between) = (layout.family, Vec::new());
        let read_bytes_min = layout.read_bytes_min;
        let hosts = Self { sender, receiver, family, read_bytes_min, between, poller: None };
        for host in [&hosts.sender, &hosts.receiver] {
            host.run(|| {
                silence_ipv6("all")?;
                silence_ipv6("default")?;
                let most = layout.tcp_buffer_bytes;
                let (least, initial) = (most.min(4 << 10), most.min(128 << 10));
                let sizes = format!("{least} {initial} {most}");
                fs::write("/proc/sys/net/ipv4/tcp_rmem", &sizes)?;
                fs::write("/proc/sys/net/ipv4/tcp_wmem", &sizes)?;
                // What a host asks itself goes over its loopback device.
                Control::new()?.set_up(&name("lo")?, true)
            })??;
        }
        if layout.patient {
            hosts.be_patient()?;
        }
        Ok(hosts)
    }

    /// Lets the sender's end of the wire work on one processor, so that what its TCP does with an
    /// acknowledgement is not done, and accounted, where the acknowledgement was sent. Wants root;
    /// whether it could be done.
    ///
    /// # Errors
    /// When no thread could be started.
    pub fn steer_acknowledgements(&self, processor: usize) -> io::Result<bool> {
        let Some(mask) = 1_u32.checked_shl(processor as u32) else { return Ok(false) };
        self.sender.run(|| {
            let steer = || {
                show_network_in_sysfs()?;
                write_attribute(&name(SENDER)?, "queues/rx-0/rps_cpus", &format!("{mask:x}"))
            };
            steer().is_ok()
        })
    }

    /// Lets the receiver's kernel coalesce what comes over the wire, as a NIC's driver would: a
    /// batch at a time, by a thread of its own on one processor. Wants root; whether it could be
    /// done. Where not, the receiver gets each packet by itself.
    ///
    /// # Errors
    /// When no thread could be started.
    pub fn receive_in_batches(&mut self, processor: usize) -> io::Result<bool> {
        self.poller = self.receiver.run(|| {
            let start = || {
                let (control, receiver) = (Control::new()?, name(RECEIVER)?);
                set_feature(&control, &receiver, "rx-gro", true)?;
                show_network_in_sysfs()?;
                write_attribute(&receiver, "threaded", "1")?;
                let poller = youngest(kernel_threads(&format!("napi/{RECEIVER}-"))?);
                pin(Some(poller.ok_or(io::ErrorKind::NotFound)?), processor)?;
                Ok::<_, io::Error>(poller)
            };
            start().or_else(|_| {
                let (control, receiver) = (Control::new()?, name(RECEIVER)?);
                set_feature(&control, &receiver, "rx-gro", false).map(|()| None)
            })
        })??;
        Ok(self.poller.is_some())
    }

    /// The kernel thread that [`Hosts::receive_in_batches`] started.
    #[must_use]
    pub fn poller(&self) -> Option<Pid> {
        self.poller
    }

    /// Connections from the sender to the receiver, whose sides use a congestion control; the
    /// sender's sides first.
    ///
    /// # Errors
    /// When the kernel has no such congestion control, or nothing carries the packets.
    pub fn connect(&self, count: usize, congestion: &str) -> io::Result<[Vec<TcpStream>; 2]> {
        let listener = self.receiver.run(|| TcpListener::bind((self.receiver_address(), 0)))??;
        let target = listener.local_addr()?;
        let mut sides = [Vec::new(), Vec::new()];
        for _ in 0..count {
            let near = self.sender.run(|| TcpStream::connect_timeout(&target, STALLED))??;
            let (far, _) = listener.accept()?;
            for (side, kept) in [near, far].into_iter().zip(&mut sides) {
                set_tcp_congestion(&side, congestion).map_err(|error| {
                    let text = format!("no congestion control {congestion}: {error}");
                    io::Error::new(error.kind(), text)
                })?;
                side.set_nodelay(true)?;
                if self.read_bytes_min > 0 {
                    set_receive_low_water(&side, self.read_bytes_min)?;
                }
                side.set_read_timeout(Some(STALLED))?;
                side.set_write_timeout(Some(STALLED))?;
                kept.push(side);
            }
        }
        Ok(sides)
    }

    /// A socket of the sender and one of the receiver, connected to each other; the sender's first.
    ///
    /// # Errors
    /// Those of the sockets.
    pub fn datagram_sockets(&self) -> io::Result<[UdpSocket; 2]> {
        let far = self.receiver.run(|| UdpSocket::bind((self.receiver_address(), 0)))??;
        let near = self.sender.run(|| UdpSocket::bind((self.sender_address(), 0)))??;
        // Twice as much as the usual, which is what anybody may ask for; the kernel doubles it.
        set_socket_recv_buffer_size(&far, DATAGRAM_BUFFER_BYTES)?;
        near.connect(far.local_addr()?)?;
        far.connect(near.local_addr()?)?;
        Ok([near, far])
    }

    /// Lets commands run on the sender or on the receiver.
    #[must_use]
    pub fn networks(&self) -> [&NetworkNamespace; 2] {
        [&self.sender, &self.receiver]
    }

    /// The address of the sender that its connections come from.
    #[must_use]
    pub fn sender_address(&self) -> IpAddr {
        SENDER_ADDRESSES[usize::from(self.family == Family::V6)]
    }

    /// The address of the receiver that the sender connects to.
    #[must_use]
    pub fn receiver_address(&self) -> IpAddr {
        RECEIVER_ADDRESSES[usize::from(self.family == Family::V6)]
    }

    /// What TCP counted on each host so far, the sender first.
    ///
    /// # Errors
    /// When `/proc` is not there.
    pub fn tcp_counters(&self) -> io::Result<[TcpCounters; 2]> {
        Ok([self.sender.run(TcpCounters::read)??, self.receiver.run(TcpCounters::read)??])
    }

    /// See [`Layout::patient`].
    fn be_patient(&self) -> io::Result<()> {
        self.sender.run(|| {
            fs::write("/proc/sys/net/ipv4/tcp_early_retrans", "0")?;
            match fs::write("/proc/sys/net/ipv4/tcp_rto_min_us", TIMEOUT_US) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
        })?
    }

    /// Tells each host the other's Ethernet address.
    fn introduce(&self) -> io::Result<()> {
        let sides = [(&self.sender, SENDER), (&self.receiver, RECEIVER)];
        let known = sides.map(|(host, device)| {
            host.run(|| {
                let link = Netlink::new()?.link(&name(device)?)?;
                let address = link.hardware_address.ok_or(io::ErrorKind::NotFound)?;
                Ok::<_, io::Error>((link.index, address))
            })
        });
        let [near, far] = known;
        let (near, far) = (near??, far??);
        let tell = |host: &NetworkNamespace, index, other, hardware_address| {
            host.run(|| Netlink::new()?.set_neighbour(index, other, hardware_address))?
        };
        tell(&self.sender, near.0, self.receiver_address(), far.1)?;
        tell(&self.receiver, far.0, self.sender_address(), near.1)
    }

    /// The sender's own segmentation is off: packets of the MTU cross the wire, as behind a NIC
    /// that has none.
    fn set_up_sender(&self, layout: &Layout) -> io::Result<()> {
        self.sender.run(|| {
            segment_in_the_kernel(SENDER)?;
            if layout.full_checksums {
                set_feature(&Control::new()?, &name(SENDER)?, "tx-checksum-ip-generic", false)?;
            }
            set_up(SENDER, SENDER_ADDRESSES, self.family, layout.mtu.sender)
        })?
    }

    fn set_up_receiver(&self, mtu: Mtu) -> io::Result<()> {
        self.receiver.run(|| set_up(RECEIVER, RECEIVER_ADDRESSES, self.family, mtu.receiver))?
    }
}

/// The thread with the greatest number behind its name: the kernel counts the pollers of all networks, and those of
/// a network that is gone may be there for a while.
fn youngest(threads: Vec<(Pid, String)>) -> Option<Pid> {
    let number = |name: &str| name.rsplit('-').next()?.parse::<u32>().ok();
    threads.into_iter().max_by_key(|(_, name)| number(name)).map(|(thread, _)| thread)
}

/// Opens the engine's end of a wire, in a network of its own, which lasts as long as the port.
fn open_wire(
    add: impl FnOnce() -> io::Result<()> + Send,
    options: &PacketOptions,
) -> io::Result<PacketPort> {
    engine_network()?.run(|| {
        add()?;
        open_engine(options)
    })?
}

/// A network for the engine's end of a wire. The kernel beside the data path must not say anything of its own there.
fn engine_network() -> io::Result<NetworkNamespace> {
    let network = NetworkNamespace::new()?;
    network.run(|| {
        silence_ipv6("all")?;
        silence_ipv6("default")
    })??;
    Ok(network)
}

/// Opens the engine's end of a wire that is in the calling thread's network.
fn open_engine(options: &PacketOptions) -> io::Result<PacketPort> {
    Control::new()?.set_up(&name(ENGINE)?, true)?;
    PacketPort::open(ENGINE, options)
}

/// Gives a host its device, which hands out superframes if they are wanted, and opens the data
/// path's side of it.
fn open_device(
    host: &NetworkNamespace,
    (device, mtu): (&str, u16),
    (kind, layer): (Device, Layer),
    superframes: bool,
) -> io::Result<DevicePort> {
    match kind {
        Device::Tap => host.run(|| {
            let mut options = TapOptions::default();
            options.receive = if superframes { Features::ALL } else { CHECKSUMS };
            TapPort::open(device, layer, &options).map(DevicePort::Tap)
        })?,
        Device::Veth => {
            let add = || {
                add_wire(host, device, (ENGINE, mtu))?;
                if superframes {
                    return Ok(());
                }
                host.run(|| segment_in_the_kernel(device))?
            };
            // Every frame is handed to the host's stack in the call that sends it: no queueing
            // discipline is needed to hold it, and going round it saves its locks.
            let mut options = PacketOptions::default();
            options.qdisc_bypass = true;
            open_wire(add, &options).map(DevicePort::Veth)
        }
    }
}

/// Has the kernel cut superframes before a device sees them.
fn segment_in_the_kernel(device: &str) -> io::Result<()> {
    let (control, device) = (Control::new()?, name(device)?);
    SEGMENTATION.iter().try_for_each(|feature| set_feature(&control, &device, feature, false))
}

/// Lays a wire from a host to the calling thread's network.
fn add_wire(host: &NetworkNamespace, near: &str, far: (&str, u16)) -> io::Result<()> {
    let near_end = LinkChange::new().namespace(host.as_fd());
    let far_end = LinkChange::new().mtu(far.1.into());
    Netlink::new()?.add_veth((&name(far.0)?, far_end), (&name(near)?, near_end))
}

fn set_up(interface: &str, addresses: [IpAddr; 2], family: Family, mtu: u16) -> io::Result<()> {
    let (netlink, control, device) = (Netlink::new()?, Control::new()?, name(interface)?);
    control.set_mtu(&device, mtu)?;
    if family == Family::V6 {
        // The addresses are the lab's, and there are no routers to ask for.
        let settings = [("accept_dad", "0"), ("router_solicitations", "0"), ("disable_ipv6", "0")];
        for (setting, value) in settings {
            fs::write(format!("/proc/sys/net/ipv6/conf/{interface}/{setting}"), value)?;
        }
    }
    control.set_up(&device, true)?;
    let index = control.index(&device)?;
    netlink.add_address(index, addresses[0], 24)?;
    if family == Family::V6 { netlink.add_address(index, addresses[1], 64) } else { Ok(()) }
}

/// Keeps a network from sending packets of IPv6's own, where the kernel has IPv6.
fn silence_ipv6(interfaces: &str) -> io::Result<()> {
    let path = format!("/proc/sys/net/ipv6/conf/{interfaces}/disable_ipv6");
    match fs::write(path, "1") {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A wire that takes no superframes, and a ring whose slots hold one packet of the wire, with a slot
/// for each that may be under way, so that a data path that sleeps loses nothing; and no more, since
/// it should stay in the processor's cache.
fn packet_options(layout: &Layout) -> PacketOptions {
    let payload = usize::from(layout.mtu.sender) - TCP_HEADERS_BYTES;
    let slots = layout.under_way_bytes / payload + RING_SPARE;
    let mut options = PacketOptions::default();
    options.layout =
        RingLayout { slot_bytes: layout.slot_bytes(), slots: slots.next_power_of_two() };
    options.transmit = if layout.full_checksums { Features::NONE } else { CHECKSUMS };
    options
}

fn name(name: &str) -> io::Result<InterfaceName> {
    InterfaceName::new(name)
}

/// What a NIC without segmentation takes.
const CHECKSUMS: Features = Features::CHECKSUM_GENERIC;
/// So long without a byte means that none will come.
pub const STALLED: Duration = Duration::from_secs(10);
/// The devices of the hosts, and the engine's end of a wire.
const SENDER: &str = "s0";
const ENGINE: &str = "e0";
const RECEIVER: &str = "r0";
/// Their addresses, that of IPv4 first.
pub const SENDER_ADDRESSES: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 93, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfd93, 0, 0, 0, 0, 0, 0, 1)),
];
/// The same of the receiver.
pub const RECEIVER_ADDRESSES: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 93, 0, 2)),
    IpAddr::V6(Ipv6Addr::new(0xfd93, 0, 0, 0, 0, 0, 0, 2)),
];
/// What makes superframes on a host that sends.
const SEGMENTATION: [&str; 4] = [
    "tx-tcp-segmentation",
    "tx-tcp6-segmentation",
    "tx-tcp-ecn-segmentation",
    "tx-udp-segmentation",
];
/// The usual limit of receive buffers (`net.core.rmem_max`).
const DATAGRAM_BUFFER_BYTES: usize = 212_992;
/// What [`Layout::tcp_buffer_bytes`] is for one stream.
const TCP_BUFFER_BYTES: usize = 640 << 10;
/// The least for each of many: some packets in each direction, or every one waits for its answer.
const STREAM_BYTES_MIN: usize = 32 << 10;
/// Twice the usual least timeout of TCP, in microseconds.
const TIMEOUT_US: &str = "400000";
/// Packets of the ring beyond those that the receiver's buffer lets the sender have under way:
/// acknowledged ones whose train is still held.
const RING_SPARE: usize = 64;
/// The headers of a packet before its IP header, and what the kernel keeps of a slot.
const SLOT_OVERHEAD_BYTES: usize = 256;
/// The headers in a packet of a stream, with timestamps.
const TCP_HEADERS_BYTES: usize = 52;
