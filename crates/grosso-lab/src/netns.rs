//! The hosts and the wire between them.
//!
//! Longer than 600 lines: one file shows the order in which the hosts and the wire are set up and removed.

use core::fmt;
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket},
    os::fd::AsFd,
    time::Duration,
};

use grosso::features::Features;
use grosso_io::live::{LivePort, PacketOptions, PacketPort, TapOptions, TapPort};
use grosso_sys::{
    ethtool::set_feature,
    interface::{Control, InterfaceName, write_attribute},
    namespace::{NetworkNamespace, show_network_in_sysfs},
    netlink::{LinkChange, Netlink},
    path::kernel,
    scheduling::{kernel_threads, pin},
    stream::{set_pacing_max, set_receive_low_water},
    tun::Layer,
};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_tcp_congestion};
use rustix::process::Pid;

use crate::cpu_time::TcpCounters;

mod layout;
mod underlay;

use layout::packet_options;
pub use layout::{Family, Layout, Mtu};
pub use underlay::{Inside, underlay_addresses};
pub(crate) use underlay::{lay_underlay, vxlan_ends};

/// Two hosts, each in its own network namespace.
#[derive(Debug)]
pub struct Hosts {
    sender: NetworkNamespace,
    receiver: NetworkNamespace,
    family: Family,
    /// Minimum number of bytes per read; see [`Layout::read_bytes_min`].
    read_bytes_min: u16,
    /// Maximum rate of each stream; see [`Layout::offered_bits`].
    offered_bits: Option<u64>,
    /// Namespaces of a wire between two data paths. They are stored here so that the wire survives until both paths
    /// have ended.
    between: Vec<NetworkNamespace>,
    /// The kernel thread that reads the receiver's packets from its device, if there is one.
    poller: Option<Pid>,
}

/// Kind of device through which the data path exchanges packets with a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Device {
    /// A TAP device, like a virtual machine's NIC. Needs `/dev/net/tun`.
    Tap,
    /// A second veth pair with a packet socket at its far end; superframes pass through it without being split. Needs
    /// no device file, but costs an additional copy.
    Veth,
}

impl Device {
    /// Returns the kind of device to use on this system: TAP if a TAP device can be created. Call this after
    /// [`grosso_sys::userns::enter`].
    #[must_use]
    pub fn probe() -> Self {
        if grosso_sys::userns::tap().is_ok() { Self::Tap } else { Self::Veth }
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

/// The two ports of a data path between the hosts.
#[derive(Debug)]
pub struct Ends {
    /// End of the wire between the hosts.
    pub wire: LivePort,
    /// Device of the host for which Grosso acts as the NIC: the file of a TAP or TUN device, or the packet socket at
    /// the far end of a veth pair.
    pub device: LivePort,
}

impl Hosts {
    /// Creates two hosts, and the ports of a data path between them that replaces the receiver's NIC. If `superframes`
    /// is set, the receiver's kernel sends superframes.
    ///
    /// # Errors
    /// Fails with `EPERM` without the privileges that [`grosso_sys::userns::enter`] grants. Also fails if the kernel
    /// has no veth devices, TUN devices or packet sockets.
    pub fn receiving(
        layout: &Layout,
        device: Device,
        superframes: bool,
    ) -> io::Result<(Self, Ends)> {
        let opened = Self::receiving_by(layout, device, superframes, open_packet)?;
        let (hosts, wire, device) = opened;
        Ok((hosts, Ends { wire, device }))
    }

    /// Creates the same hosts as [`Hosts::receiving`], but `open` opens the port at the end of the wire. Its arguments
    /// are the name of the interface and the options of the packet socket that would otherwise be opened there.
    ///
    /// # Errors
    /// Fails for the same reasons as [`Hosts::receiving`], or if `open` fails.
    pub(crate) fn receiving_by<W: Send>(
        layout: &Layout,
        device: Device,
        superframes: bool,
        open: impl FnOnce(&str, &PacketOptions) -> io::Result<W> + Send,
    ) -> io::Result<(Self, W, LivePort)> {
        let (hosts, mtu) = (Self::new(layout)?, layout.mtu);
        let options = packet_options(layout);
        let add = || add_wire(&hosts.sender, SENDER, (ENGINE, mtu.sender));
        let wire = open_wire(add, &options, open)?;
        let device = open_device(
            &hosts.receiver,
            (RECEIVER, mtu.receiver),
            (device, Layer::Ethernet),
            superframes,
        )?;
        hosts.set_up_receiver(mtu)?;
        hosts.set_up_sender(layout)?;
        Ok((hosts, wire, device))
    }

    /// Creates two hosts, and the ports of a data path between them that replaces the sender's NIC. If `superframes` is
    /// set, the sender's kernel sends superframes; the wire does not accept any.
    ///
    /// # Errors
    /// Fails for the same reasons as [`Hosts::receiving`].
    pub fn sending(layout: &Layout, device: Device, superframes: bool) -> io::Result<(Self, Ends)> {
        let (hosts, mtu) = (Self::new(layout)?, layout.mtu);
        let options = packet_options(layout);
        let add = || {
            add_wire(&hosts.receiver, RECEIVER, (ENGINE, mtu.sender))?;
            // A veth device coalesces received packets only if the sending end does not segment.
            segment_in_the_kernel(ENGINE)
        };
        let wire = open_wire(add, &options, open_packet)?;
        hosts.set_up_receiver(mtu)?;
        let device = open_device(
            &hosts.sender,
            (SENDER, mtu.sender),
            (device, Layer::Ethernet),
            superframes,
        )?;
        hosts.sender.run(|| {
            if !layout.generic_segmentation {
                set_feature(&Control::new()?, &name(SENDER)?, "tx-generic-segmentation", false)?;
            }
            set_up(SENDER, SENDER_ADDRESSES, hosts.family, mtu.sender)
        })??;
        Ok((hosts, Ends { wire, device }))
    }

    /// Creates two hosts, each with a data path in place of its NIC, and returns the ports of both data paths, the
    /// sender's first. The wire between the two paths has its own MTU. The hosts are configured with each other's
    /// Ethernet address, so only the measured traffic crosses the wire.
    ///
    /// # Errors
    /// Fails for the same reasons as [`Hosts::receiving`].
    pub fn apart(layout: &Layout, device: Device, wire_mtu: u16) -> io::Result<(Self, [Ends; 2])> {
        Self::apart_by(layout, (device, false), wire_mtu, open_packet)
    }

    /// Creates the same hosts as [`Hosts::apart`], but `open` opens the ports at the ends of the wire. Its arguments
    /// are the name of the interface and the options of the packet socket that would otherwise be opened there. If
    /// `superframes` is set, the hosts send superframes.
    ///
    /// # Errors
    /// Fails for the same reasons as [`Hosts::receiving`], or if `open` fails.
    pub fn apart_by(
        layout: &Layout,
        (device, superframes): (Device, bool),
        wire_mtu: u16,
        open: impl Fn(&str, &PacketOptions) -> io::Result<LivePort> + Sync,
    ) -> io::Result<(Self, [Ends; 2])> {
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
            Ends { wire: near??, device: open(&hosts.sender, (SENDER, mtu.sender))? },
            Ends { wire: far??, device: open(&hosts.receiver, (RECEIVER, mtu.receiver))? },
        ];
        hosts.set_up_receiver(mtu)?;
        hosts.sender.run(|| set_up(SENDER, SENDER_ADDRESSES, hosts.family, mtu.sender))??;
        hosts.introduce()?;
        Ok((hosts, ends))
    }

    /// Creates a receiver whose NIC is replaced by a data path. Returns the receiver, the data path's port, and the
    /// Ethernet address of the receiver's device. The receiver reaches the sender at the Ethernet address [`STATION`],
    /// and its kernel sends no superframes.
    ///
    /// # Errors
    /// Fails for the same reasons as [`Hosts::receiving`].
    pub fn alone(layout: &Layout, device: Device) -> io::Result<(Self, LivePort, [u8; 6])> {
        let (hosts, mtu) = (Self::new(layout)?, layout.mtu);
        let ethernet = (device, Layer::Ethernet);
        let port = open_device(&hosts.receiver, (RECEIVER, mtu.receiver), ethernet, false)?;
        hosts.set_up_receiver(mtu)?;
        let address = hosts.receiver.run(|| {
            let netlink = Netlink::new()?;
            let link = netlink.link(&name(RECEIVER)?)?;
            netlink.set_neighbour(link.index, hosts.sender_address(), STATION)?;
            link.hardware_address.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
        })??;
        Ok((hosts, port, address))
    }

    /// Creates two hosts with only a wire between them. If `gro` is set, the receiver's kernel coalesces.
    ///
    /// # Errors
    /// Fails for the same reasons as [`Hosts::receiving`].
    pub fn joined(layout: &Layout, gro: bool) -> io::Result<Self> {
        // No thread forwards packets between these hosts, so nothing delays the traffic, and a missing packet is really
        // lost.
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
        let (read_bytes_min, offered_bits) = (layout.read_bytes_min, layout.offered_bits);
        let poller = None;
        let hosts =
            Self { sender, receiver, family, read_bytes_min, offered_bits, between, poller };
        for host in [&hosts.sender, &hosts.receiver] {
            host.run(|| {
                silence_ipv6("all")?;
                silence_ipv6("default")?;
                set_up_host(layout.tcp_buffer_bytes)?;
                if !layout.timestamps {
                    kernel::write("/proc/sys/net/ipv4/tcp_timestamps", "0")?;
                }
                Ok::<_, io::Error>(())
            })??;
        }
        if layout.patient {
            hosts.be_patient()?;
        }
        Ok(hosts)
    }

    /// Makes the sender's kernel process arriving packets on one CPU. Otherwise, acknowledgments would be processed on
    /// the CPU that sent them, and the time would be charged to that CPU. Needs root. Returns whether it succeeded.
    ///
    /// # Errors
    /// Fails if no thread can be started.
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

    /// Makes the receiver's kernel coalesce packets from the wire as with a NIC's driver: in batches, on a separate
    /// thread on one CPU. Needs root. Returns whether it succeeded. If not, the receiver gets packets one by one.
    ///
    /// # Errors
    /// Fails if no thread can be started.
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

    /// Returns the kernel thread that [`Hosts::receive_in_batches`] started.
    #[must_use]
    pub fn poller(&self) -> Option<Pid> {
        self.poller
    }

    /// Opens connections from the sender to the receiver, with this congestion control at both ends. Returns the
    /// sender's sockets first.
    ///
    /// # Errors
    /// Fails if the kernel lacks the congestion control, or if packets do not reach the other host.
    pub fn connect(&self, count: usize, congestion: &str) -> io::Result<[Vec<TcpStream>; 2]> {
        let listener = self.listen()?;
        let target = listener.local_addr()?;
        let mut sides = [Vec::new(), Vec::new()];
        for _ in 0..count {
            let near = self.sender.run(|| TcpStream::connect_timeout(&target, STALLED))??;
            let (far, _) = listener.accept()?;
            for (side, kept) in [near, far].into_iter().zip(&mut sides) {
                set_tcp_congestion(&side, congestion).map_err(|error| {
                    let text = format!("cannot use congestion control {congestion}: {error}");
                    io::Error::new(error.kind(), text)
                })?;
                side.set_nodelay(true)?;
                if let Some(bits) = self.offered_bits {
                    set_pacing_max(&side, bits / 8)?;
                }
                self.set_up_stream(&side)?;
                kept.push(side);
            }
        }
        Ok(sides)
    }

    /// Configures how a stream is read, and how long it may stall.
    ///
    /// # Errors
    /// Fails if the socket fails.
    pub(crate) fn set_up_stream(&self, stream: &TcpStream) -> io::Result<()> {
        if self.read_bytes_min > 0 {
            set_receive_low_water(stream, self.read_bytes_min)?;
        }
        stream.set_read_timeout(Some(STALLED))?;
        stream.set_write_timeout(Some(STALLED))
    }

    /// Opens a listening socket on the receiver.
    ///
    /// # Errors
    /// Fails if the socket fails.
    pub(crate) fn listen(&self) -> io::Result<TcpListener> {
        self.receiver.run(|| TcpListener::bind((self.receiver_address(), 0)))?
    }

    /// Opens two connected sockets, one on the sender and one on the receiver, and returns the sender's first.
    ///
    /// # Errors
    /// Fails if a socket fails.
    pub fn datagram_sockets(&self) -> io::Result<[UdpSocket; 2]> {
        let far = self.receiver.run(|| UdpSocket::bind((self.receiver_address(), 0)))??;
        let near = self.sender.run(|| UdpSocket::bind((self.sender_address(), 0)))??;
        // The kernel doubles the requested size. An unprivileged process may request at most the default size.
        set_socket_recv_buffer_size(&far, DATAGRAM_BUFFER_BYTES)?;
        near.connect(far.local_addr()?)?;
        far.connect(near.local_addr()?)?;
        Ok([near, far])
    }

    /// Returns the network namespaces of the sender and the receiver, for running commands in them.
    #[must_use]
    pub fn networks(&self) -> [&NetworkNamespace; 2] {
        [&self.sender, &self.receiver]
    }

    /// Returns the source address of the sender's connections.
    #[must_use]
    pub fn sender_address(&self) -> IpAddr {
        SENDER_ADDRESSES[usize::from(self.family == Family::V6)]
    }

    /// Returns the destination address of the sender's connections.
    #[must_use]
    pub fn receiver_address(&self) -> IpAddr {
        RECEIVER_ADDRESSES[usize::from(self.family == Family::V6)]
    }

    /// Reads the TCP counters of both hosts, the sender's first.
    ///
    /// # Errors
    /// Fails if `/proc` is not mounted.
    pub fn tcp_counters(&self) -> io::Result<[TcpCounters; 2]> {
        Ok([self.sender.run(TcpCounters::read)??, self.receiver.run(TcpCounters::read)??])
    }

    /// Configures the sender's TCP so that it tolerates pauses; see [`Layout::patient`].
    fn be_patient(&self) -> io::Result<()> {
        self.sender.run(|| {
            kernel::write("/proc/sys/net/ipv4/tcp_early_retrans", "0")?;
            match kernel::write("/proc/sys/net/ipv4/tcp_rto_min_us", TIMEOUT_US) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
        })?
    }

    /// Configures each host with the other's Ethernet address.
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

    /// Configures the sender without segmentation offload, so that packets that fit the MTU cross the wire, as with a
    /// NIC that lacks this offload.
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

/// Configures the calling thread's namespace as a host whose TCP sockets have buffers of `tcp_buffer_bytes` bytes.
///
/// Buffers have their full size from the start. Otherwise, the figures would depend on how the kernel adapts the
/// buffers to the reader's speed.
///
/// Connections start with Reno, which every kernel has. A connection that starts with a congestion control that paces,
/// for example because BBR is the system's default, still paces after a change. It would then spread the data in a
/// window over the round-trip time.
pub(crate) fn set_up_host(tcp_buffer_bytes: usize) -> io::Result<()> {
    let sizes = format!("{} {tcp_buffer_bytes} {tcp_buffer_bytes}", tcp_buffer_bytes.min(4 << 10));
    for (setting, value) in
        [("tcp_rmem", &*sizes), ("tcp_wmem", &sizes), ("tcp_congestion_control", "reno")]
    {
        kernel::write(format!("/proc/sys/net/ipv4/{setting}"), value)?;
    }
    // A host sends packets to itself through its loopback device.
    Control::new()?.set_up(&name("lo")?, true)
}

/// Returns the thread with the highest number in its name. It is the newest one, because the kernel numbers the pollers
/// in all namespaces consecutively; pollers in a deleted namespace may still run for a while.
fn youngest(threads: Vec<(Pid, String)>) -> Option<Pid> {
    let number = |name: &str| name.rsplit('-').next()?.parse::<u32>().ok();
    threads.into_iter().max_by_key(|(_, name)| number(name)).map(|(thread, _)| thread)
}

/// Opens the engine's end of a wire in a new namespace, which exists as long as the port.
fn open_wire<W: Send>(
    add: impl FnOnce() -> io::Result<()> + Send,
    options: &PacketOptions,
    open: impl FnOnce(&str, &PacketOptions) -> io::Result<W> + Send,
) -> io::Result<W> {
    engine_network()?.run(|| {
        add()?;
        Control::new()?.set_up(&name(ENGINE)?, true)?;
        open(ENGINE, options)
    })?
}

/// Creates a network namespace for the engine's end of a wire, in which the kernel sends no IPv6 packets by itself.
pub(crate) fn engine_network() -> io::Result<NetworkNamespace> {
    let network = NetworkNamespace::new()?;
    network.run(|| {
        silence_ipv6("all")?;
        silence_ipv6("default")
    })??;
    Ok(network)
}

/// Opens packet sockets on an interface.
pub(crate) fn open_packet(interface: &str, options: &PacketOptions) -> io::Result<LivePort> {
    PacketPort::open(interface, options).map(LivePort::Packet)
}

/// Creates a host's device, and opens the data path's side of it. If `superframes` is set, the device passes
/// superframes.
fn open_device(
    host: &NetworkNamespace,
    (device, mtu): (&str, u16),
    (kind, layer): (Device, Layer),
    superframes: bool,
) -> io::Result<LivePort> {
    match kind {
        Device::Tap => host.run(|| {
            let mut options = TapOptions::default();
            options.receive = if superframes { Features::ALL } else { CHECKSUMS };
            TapPort::open(device, layer, &options).map(LivePort::Tun)
        })?,
        Device::Veth => {
            let add = || {
                add_wire(host, device, (ENGINE, mtu))?;
                if superframes {
                    return Ok(());
                }
                host.run(|| segment_in_the_kernel(device))?
            };
            // Every frame reaches the host's stack within the call that sends it, so no queueing discipline is needed.
            // Bypassing it avoids its locks.
            let mut options = PacketOptions::default();
            options.qdisc_bypass = true;
            open_wire(add, &options, open_packet)
        }
    }
}

/// Makes the kernel segment superframes before they reach a device.
pub(crate) fn segment_in_the_kernel(device: &str) -> io::Result<()> {
    let (control, device) = (Control::new()?, name(device)?);
    SEGMENTATION.iter().try_for_each(|feature| set_feature(&control, &device, feature, false))
}

/// Creates a wire between a host and the calling thread's namespace.
fn add_wire(host: &NetworkNamespace, near: &str, far: (&str, u16)) -> io::Result<()> {
    let near_end = LinkChange::new().namespace(host.as_fd());
    let far_end = LinkChange::new().mtu(far.1.into());
    Netlink::new()?.add_veth((&name(far.0)?, far_end), (&name(near)?, near_end))
}

/// Configures the MTU and the addresses (IPv4 first) of a device in the calling thread's namespace, and brings the
/// device up.
pub(crate) fn set_up(
    interface: &str,
    addresses: [IpAddr; 2],
    family: Family,
    mtu: u16,
) -> io::Result<()> {
    let (netlink, control, device) = (Netlink::new()?, Control::new()?, name(interface)?);
    control.set_mtu(&device, mtu)?;
    if family == Family::V6 {
        // The lab assigns the addresses, and there are no routers.
        let settings = [("accept_dad", "0"), ("router_solicitations", "0"), ("disable_ipv6", "0")];
        for (setting, value) in settings {
            kernel::write(format!("/proc/sys/net/ipv6/conf/{interface}/{setting}"), value)?;
        }
    }
    control.set_up(&device, true)?;
    let index = control.index(&device)?;
    netlink.add_address(index, addresses[0], 24)?;
    if family == Family::V6 { netlink.add_address(index, addresses[1], 64) } else { Ok(()) }
}

/// Prevents a namespace from sending IPv6 packets by itself, if the kernel has IPv6.
pub(crate) fn silence_ipv6(interfaces: &str) -> io::Result<()> {
    let path = format!("/proc/sys/net/ipv6/conf/{interfaces}/disable_ipv6");
    match kernel::write(path, "1") {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn name(name: &str) -> io::Result<InterfaceName> {
    InterfaceName::new(name)
}

/// Features that remain in a NIC without segmentation offload.
const CHECKSUMS: Features = Features::CHECKSUM_GENERIC;
/// Time without data after which a stream counts as stalled.
pub const STALLED: Duration = Duration::from_secs(10);
/// Names of the sender's device, the device at the engine's end of a wire, and the receiver's device.
const SENDER: &str = "s0";
const ENGINE: &str = "e0";
const RECEIVER: &str = "r0";
/// The addresses of the sender, IPv4 first.
pub const SENDER_ADDRESSES: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 93, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfd93, 0, 0, 0, 0, 0, 0, 1)),
];
/// The addresses of the receiver, IPv4 first.
pub const RECEIVER_ADDRESSES: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 93, 0, 2)),
    IpAddr::V6(Ipv6Addr::new(0xfd93, 0, 0, 0, 0, 0, 0, 2)),
];
/// Ethernet address of a simulated sender that is not a real host.
pub const STATION: [u8; 6] = [0x02, 0, 0, 0x93, 0, 1];
/// Features that make a sending host build superframes.
const SEGMENTATION: [&str; 4] = [
    "tx-tcp-segmentation",
    "tx-tcp6-segmentation",
    "tx-tcp-ecn-segmentation",
    "tx-udp-segmentation",
];
/// The usual maximum size of a receive buffer in bytes (`net.core.rmem_max`).
const DATAGRAM_BUFFER_BYTES: usize = 212_992;
/// Twice TCP's usual minimum timeout, in microseconds.
const TIMEOUT_US: &str = "400000";
