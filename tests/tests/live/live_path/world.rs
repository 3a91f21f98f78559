//! Two hosts and the engine between them.
//!
//! ```text
//!  host a                 engine                host b
//!  a0 (veth) ----------- e0  data path  (TAP) ----- b0
//!  10.9.0.1, fd09::1                     10.9.0.2, fd09::2
//! ```

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    os::fd::AsFd,
    thread::{self, JoinHandle},
    time::Duration,
};

use grosso_io::{
    Port,
    live::{PacketOptions, PacketPort, TapOptions, TapPort, XdpPort, XdpPortOptions},
    runner::{DataPath, End, Handle, RunOptions},
};
use grosso_sys::{
    ethtool::set_feature,
    interface::{Control, InterfaceName},
    namespace::NetworkNamespace,
    netlink::{LinkChange, Netlink},
    packet::PacketSocket,
    tun::{Features, Layer},
};

/// The hosts' IPv4 and IPv6 addresses.
pub(crate) const A: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1)),
    IpAddr::V6(Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 1)),
];
pub(crate) const B: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(10, 9, 0, 2)),
    IpAddr::V6(Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, 2)),
];

pub(crate) struct World {
    pub(crate) a: NetworkNamespace,
    pub(crate) engine: NetworkNamespace,
    pub(crate) b: NetworkNamespace,
}

/// A broadcast frame with an EtherType reserved for experiments (RFC 5342).
const HELLO: [u8; 60] = {
    let mut frame = [0; 60];
    let mut i = 0;
    while i < 6 {
        frame[i] = 0xff;
        i += 1;
    }
    (frame[6], frame[12], frame[13]) = (0x02, 0x88, 0xb5);
    frame
};

/// Repeats a query until it returns true. The limit is generous, because the duration depends on the scheduler.
pub(crate) fn until(mut is_so: impl FnMut() -> bool) {
    for _ in 0..20_000 {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("the condition was never met");
}

/// Reports that a test is skipped, and the reason. Fails if the environment forbids skipping.
pub(crate) fn skip(why: &str) {
    println!("skipped: {why}");
    assert!(std::env::var_os("GROSSO_SKIP_NOTHING").is_none(), "skipped: {why}");
}

/// Parses an interface name.
pub(crate) fn name(name: &str) -> InterfaceName {
    InterfaceName::new(name).unwrap()
}

impl World {
    /// Creates the hosts and the wire to the first host; `None` if the caller cannot create them.
    pub(crate) fn new() -> Option<Self> {
        Self::with_queues(1)
    }

    /// Creates the world as `new` does, with `queues` queues at both ends of the wire.
    pub(crate) fn with_queues(queues: u32) -> Option<Self> {
        let namespaces = (|| -> io::Result<_> {
            Ok([NetworkNamespace::new()?, NetworkNamespace::new()?, NetworkNamespace::new()?])
        })();
        let [a, engine, b] = match namespaces {
            Ok(namespaces) => namespaces,
            Err(error) => {
                skip(&format!("cannot create a private network namespace: {error}"));
                return None;
            }
        };
        if let Err(error) = Features::of_kernel() {
            skip(&format!("/dev/net/tun cannot be opened: {error}"));
            return None;
        }
        let world = Self { a, engine, b };
        world.wire(queues).unwrap();
        world.wait_for_carrier().unwrap();
        Some(world)
    }

    fn wire(&self, queues: u32) -> io::Result<()> {
        for namespace in [&self.a, &self.engine, &self.b] {
            // Neighbor discovery and multicast of the kernel would add frames that no test sent.
            namespace.run(|| {
                std::fs::write("/proc/sys/net/ipv6/conf/default/router_solicitations", "0")
            })??;
        }
        self.engine.run(|| {
            std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1")?;
            let netlink = Netlink::new()?;
            let end = || LinkChange::new().queues(queues);
            netlink.add_veth((&name("e0"), end()), (&name("a0"), end().namespace(self.a.as_fd())))
        })??;
        self.a.run(|| set_up("a0", A))??;
        self.engine.run(|| Control::new()?.set_up(&name("e0"), true))?
    }

    /// Sends in both directions until a frame arrives, because frames sent before the kernel has detected the carrier
    /// are lost.
    fn wait_for_carrier(&self) -> io::Result<()> {
        let bind =
            |interface: &str| PacketSocket::builder().ignore_outgoing(true).bind(&name(interface));
        let host = self.a.run(|| bind("a0"))??;
        let engine = self.engine.run(|| bind("e0"))??;
        for (from, to) in [(&host, &engine), (&engine, &host)] {
            until(|| {
                from.send(&HELLO).is_ok_and(|_| to.wait(Duration::from_millis(1)).unwrap_or(false))
            });
        }
        Ok(())
    }

    /// Turns the TCP offloads at the first host's end of the wire on or off.
    pub(crate) fn set_offloads(&self, on: bool) {
        for feature in ["tx-checksum-ip-generic", "tx-tcp-segmentation", "tx-tcp6-segmentation"] {
            self.set_offload(feature, on);
        }
    }

    /// Turns one offload at the first host's end of the wire on or off.
    pub(crate) fn set_offload(&self, feature: &str, on: bool) {
        let set = || set_feature(&Control::new()?, &name("a0"), feature, on);
        self.a.run(set).unwrap().unwrap();
    }

    pub(crate) fn packet_port(&self, options: &PacketOptions) -> PacketPort {
        self.engine.run(|| PacketPort::open("e0", options)).unwrap().unwrap()
    }

    pub(crate) fn xdp_port(&self, options: &XdpPortOptions) -> io::Result<XdpPort> {
        self.engine.run(|| XdpPort::open("e0", options)).unwrap()
    }

    /// Opens the first host's port on a TUN device instead of the wire.
    pub(crate) fn tun_ports(&self, options: &TapOptions) -> [TapPort; 2] {
        let open = |addresses| {
            let port = TapPort::open("tun0", Layer::Ip, options)?;
            set_up("tun0", addresses)?;
            io::Result::Ok(port)
        };
        self.a.run(|| Control::new()?.set_up(&name("a0"), false)).unwrap().unwrap();
        let a = self.a.run(|| open(A.map(next_network))).unwrap().unwrap();
        [a, self.b.run(|| open(B.map(next_network))).unwrap().unwrap()]
    }

    /// Opens a TAP that is the second host's interface.
    pub(crate) fn tap_port(&self, options: &TapOptions) -> TapPort {
        let open = || {
            let port = TapPort::open("b0", Layer::Ethernet, options)?;
            set_up("b0", B)?;
            io::Result::Ok(port)
        };
        self.b.run(open).unwrap().unwrap()
    }
}

/// Returns the address with the same host number in the neighboring network.
pub(crate) fn next_network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => IpAddr::V4((u32::from(address) + 0x100).into()),
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) + (1 << 64)).into()),
    }
}

pub(crate) fn set_up(interface: &str, addresses: [IpAddr; 2]) -> io::Result<()> {
    let (netlink, control) = (Netlink::new()?, Control::new()?);
    let index = control.index(&name(interface))?;
    control.set_up(&name(interface), true)?;
    netlink.add_address(index, addresses[0], 24)?;
    netlink.add_address(index, addresses[1], 64)
}

/// A data path on a thread.
pub(crate) struct Running<L, R> {
    pub(crate) handle: Handle,
    thread: JoinHandle<End<L, R>>,
}

pub(crate) fn start<L, R>(left: L, right: R, options: RunOptions) -> Running<L, R>
where
    L: Port + Send + 'static,
    R: Port + Send + 'static,
{
    let path = DataPath::new(left, right, options).unwrap();
    Running { handle: path.handle(), thread: thread::spawn(|| path.run()) }
}

impl<L, R> Running<L, R> {
    /// Stops the path, and checks that it did not fail.
    pub(crate) fn stop(self) -> End<L, R> {
        self.handle.stop();
        let end = self.wait();
        end.result.as_ref().unwrap();
        end
    }

    /// Waits until the path ends without being stopped.
    pub(crate) fn wait(self) -> End<L, R> {
        self.thread.join().unwrap()
    }
}
