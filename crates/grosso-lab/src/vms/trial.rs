//! One measurement: VMs boot, and streams run in both directions.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread::{self, Scope},
    time::{Duration, Instant},
};

use grosso_io::{
    Port,
    live::{TapOptions, TapPort, UnixOptions, UnixPort, VhostOptions, VhostPort},
    runner::RunOptions,
};
use grosso_sys::{
    interface::{Control, InterfaceName},
    namespace::NetworkNamespace,
    netlink::{LinkChange, Netlink},
    path,
    process::die_with_parent,
    scheduling::cpu_time,
    tun::Layer,
};
use rustix::process::Pid;
use schemars::JsonSchema;
use serde::Serialize;

use super::{VmCarrier, VmPlace, VmSetting};
use crate::{
    guest::{Contents, Guest, Image, Kernel},
    netns::{
        Family, RECEIVER_ADDRESSES, SENDER_ADDRESSES, STALLED, engine_network, lay_underlay,
        set_up, vxlan_ends,
    },
    running::Running,
    sink::{Call, Called, Direction},
    trial::TrialError,
    tunnel::{self, Tunnel, WIRE_MTU},
};

/// Results of one measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct VmRun {
    /// Number of bytes in both directions that were compared one by one with those that were sent, before the
    /// measurement.
    pub verified_bytes: u64,
    /// The stream to the guest; between two guests, the stream to the second one.
    pub to_guest: VmStream,
    /// The stream from the guest.
    pub from_guest: VmStream,
    /// Whether the carrier reset a connection. Such a run has no figures.
    pub is_reset: bool,
}

/// A stream, and the CPU time that was used during it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[non_exhaustive]
pub struct VmStream {
    /// Bytes and duration of the stream.
    #[serde(flatten)]
    pub called: Called,
    /// CPU-seconds of the program between the endpoints: Grosso's data paths, or passt. Zero if there is none.
    pub path_cpu_seconds: f64,
    /// CPU-seconds of the emulated VMs.
    pub machine_cpu_seconds: f64,
    /// Instructions that the guest executed, if QEMU counted them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guest_instructions: Option<u64>,
}

/// Prerequisites for booting VMs: an image, and a directory for the sockets.
#[derive(Debug)]
pub(super) struct Boot {
    image: Image,
    folder: PathBuf,
    program: String,
}

impl Boot {
    /// Builds an image in `folder` that contains a kernel and this program.
    pub(super) fn new(folder: &Path, kernel: &Path, program: &Path) -> io::Result<Self> {
        let path = program.to_str().ok_or(io::ErrorKind::InvalidInput)?;
        let programs: Vec<&str> = PROGRAMS.iter().copied().chain([path]).collect();
        let contents = Contents { programs: &programs, modules: &[], files: &[] };
        let image = Image::new(folder, Kernel::find(kernel)?, &contents)?;
        let name = program.file_name().and_then(|name| name.to_str()).unwrap_or(path);
        Ok(Self { image, folder: folder.into(), program: name.into() })
    }

    /// Measures once, on new hosts and VMs that are removed afterward.
    pub(super) fn measure(
        &self,
        setting: &VmSetting,
        interrupted: &AtomicBool,
    ) -> Result<VmRun, TrialError> {
        let measured = thread::scope(|scope| {
            let mut laid = self.lay(scope, setting)?;
            let guests = self.boot(setting, &laid)?;
            if setting.carrier == VmCarrier::Qemu {
                laid.connect_devices(setting.place)?;
            }
            let run = self.exchange(setting, &laid, guests, interrupted);
            laid.paths.drain(..).try_for_each(Running::end)?;
            run
        });
        measured.or_else(|error| match error {
            // After a signal from the user, errors from a guest do not matter, because the signal may have caused them.
            _ if interrupted.load(Ordering::Relaxed) => Err(TrialError::Interrupted),
            // `passt` resets a connection if the guest acknowledges nothing for several seconds, as a slow guest may
            // do.
            TrialError::Io(error)
                if setting.carrier == VmCarrier::Passt
                    && error.kind() == io::ErrorKind::ConnectionReset =>
            {
                Ok(VmRun { is_reset: true, ..VmRun::default() })
            }
            other => Err(other),
        })
    }

    /// Creates the hosts, and whatever forwards frames between them and the VMs.
    fn lay<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        setting: &VmSetting,
    ) -> Result<Laid<'scope>, TrialError> {
        use {VmCarrier as By, VmPlace as At};
        let networks = match setting.place {
            At::Tunnel => lay_underlay(WIRE_MTU, Family::V4)?,
            At::Host | At::Guests | At::ReceiveBuffers => vec![engine_network()?],
        };
        let mut laid = Laid { networks, paths: Vec::new(), passt: None, template: None };
        match (setting.place, setting.carrier) {
            (At::Host, By::VhostUser) | (At::ReceiveBuffers, _) => {
                laid.start(scope, laid.tap()?, self.vhost(0)?)?;
            }
            (At::Host, By::Stream) => {
                let port = UnixPort::open(&UnixOptions::new(self.socket(0)))?;
                laid.start(scope, laid.tap()?, port)?;
            }
            (At::Guests, By::VhostUser) => laid.start(scope, self.vhost(0)?, self.vhost(1)?)?,
            (At::Tunnel, By::VhostUser) => {
                laid.start(scope, laid.tap()?, laid.tunnel_end(0)?)?;
                laid.start(scope, self.vhost(0)?, laid.tunnel_end(1)?)?;
            }
            (At::Tunnel, By::Qemu) => laid.add_vxlan()?,
            (_, By::Passt) => self.start_passt(&mut laid)?,
            _ => {}
        }
        Ok(laid)
    }

    fn vhost(&self, number: usize) -> io::Result<VhostPort> {
        VhostPort::open(&VhostOptions::new(self.socket(number)))
    }

    fn socket(&self, number: usize) -> PathBuf {
        self.folder.join(format!("vm{number}.sock"))
    }

    /// Starts passt on the host. Its guest gets the addresses of the host's network.
    fn start_passt(&self, laid: &mut Laid<'_>) -> io::Result<()> {
        let host = &laid.networks[0];
        let template = host.run(|| {
            let device = TapPort::open(DEVICE, Layer::Ethernet, &TapOptions::default())?;
            Control::new()?.set_up(&InterfaceName::new("lo")?, true)?;
            set_up(DEVICE, RECEIVER_ADDRESSES, Family::V4, WIRE_MTU)?;
            let index = Control::new()?.index(&InterfaceName::new(DEVICE)?)?;
            let everywhere = (Ipv4Addr::UNSPECIFIED.into(), 0);
            Netlink::new()?.add_route(index, everywhere, Some(SENDER_ADDRESSES[0]))?;
            io::Result::Ok(device)
        })??;
        laid.template = Some(template);
        let socket = self.socket(0);
        let mut command = Command::new(PASST);
        // As root, passt would switch to the user nobody, who may not create a socket in this directory.
        command.args(["-f", "-4", "-u", "none", "--runas", "0:0", "-t", &SINK_PORT.to_string()]);
        command.arg("-s").arg(&socket).stdin(Stdio::null()).stdout(Stdio::null());
        let passt = host.host(die_with_parent(&mut command))?.stderr(Stdio::null()).spawn()?;
        laid.passt.insert(Passt(passt)).wait_for(&socket)
    }

    /// Returns the command that starts VM `number`.
    fn machine(&self, carrier: VmCarrier, number: usize) -> Command {
        let socket = self.socket(number);
        let socket = socket.display();
        let device = format!("virtio-net-pci,netdev=n0,mac=52:54:00:93:00:0{number}");
        let receive_buffers = match carrier {
            VmCarrier::PacketBuffers => {
                ",mrg_rxbuf=off,guest_tso4=off,guest_tso6=off,guest_ecn=off"
            }
            VmCarrier::Pages => ",guest_tso4=off,guest_tso6=off,guest_ecn=off",
            VmCarrier::SuperframeChains => ",mrg_rxbuf=off",
            _ => "",
        };
        match carrier {
            VmCarrier::VhostUser
            | VmCarrier::PacketBuffers
            | VmCarrier::Pages
            | VmCarrier::SuperframeChains
            | VmCarrier::SuperframePages => {
                // Without KVM, QEMU 7.2 crashes with SIGSEGV when a guest uses MSI-X with vhost-user.
                let device = format!("{device},vectors=0{receive_buffers}");
                let mut machine = self.image.machine_at("vhost-user,id=n0,chardev=c0", &device);
                machine.args(["-chardev", &format!("socket,id=c0,path={socket}")]);
                machine.args(["-object", "memory-backend-memfd,id=m0,size=512M,share=on"]);
                machine.args(["-numa", "node,memdev=m0"]);
                machine
            }
            VmCarrier::Stream | VmCarrier::Passt => {
                let netdev = format!("stream,id=n0,server=off,addr.type=unix,addr.path={socket}");
                self.image.machine_at(&netdev, &device)
            }
            VmCarrier::Qemu => {
                let tap = own_tap(number);
                let netdev = format!("tap,id=n0,ifname={tap},script=no,downscript=no,vhost=off");
                self.image.machine_at(&netdev, &device)
            }
        }
    }

    /// Boots the VMs; the last one serves streams.
    fn boot(&self, setting: &VmSetting, laid: &Laid<'_>) -> io::Result<Vec<Guest>> {
        let network = &laid.networks[laid.networks.len() - 1];
        let addresses = match setting.place {
            VmPlace::Guests => vec![SENDER_ADDRESSES[0], RECEIVER_ADDRESSES[0]],
            VmPlace::Host | VmPlace::Tunnel | VmPlace::ReceiveBuffers => {
                vec![RECEIVER_ADDRESSES[0]]
            }
        };
        let mtu = setting.place.mtu();
        let boot = |(number, address): (usize, &IpAddr)| {
            let mut machine = self.machine(setting.carrier, number);
            if setting.place == VmPlace::ReceiveBuffers {
                // The guest's clock advances by 1 ns (2^0) with each instruction.
                machine.args(["-icount", "shift=0"]);
            }
            let mut guest = Guest::start(network.host(die_with_parent(&mut machine))?)?;
            let set_up = format!(
                "ip link set lo up; ip link set eth0 mtu {mtu} up; ip addr add {address}/24 dev eth0"
            );
            guest.run(&set_up)?;
            Ok(guest)
        };
        let mut guests: Vec<Guest> =
            addresses.iter().enumerate().map(boot).collect::<io::Result<_>>()?;
        if let Some(last) = guests.last_mut() {
            let gateway = SENDER_ADDRESSES[0];
            let program = &self.program;
            let serve = SERVE.replace("GATEWAY", &gateway.to_string()).replace("PROGRAM", program);
            last.run(&serve)?;
        }
        Ok(guests)
    }

    /// Compares bytes in both directions, and then measures streams.
    fn exchange(
        &self,
        setting: &VmSetting,
        laid: &Laid<'_>,
        mut guests: Vec<Guest>,
        interrupted: &AtomicBool,
    ) -> Result<VmRun, TrialError> {
        let address = match setting.carrier {
            VmCarrier::Passt => Ipv4Addr::LOCALHOST.into(),
            _ => RECEIVER_ADDRESSES[0],
        };
        let peer = SocketAddr::new(address, SINK_PORT);
        let call = |guests: &mut [Guest], direction, measured| match guests {
            [first, _] => self.call_from(first, Call { peer, direction, measured }),
            _ => laid.networks[0].run(|| Call { peer, direction, measured }.run(interrupted))?,
        };
        let mut verified_bytes = 0;
        for direction in [Direction::Transmit, Direction::Receive] {
            verified_bytes += call(&mut guests, direction, None)?.bytes;
        }
        let counts_instructions = setting.place == VmPlace::ReceiveBuffers;
        let mut stream = |direction| {
            let counted = counts_instructions.then(|| instructions(&mut guests[0])).transpose()?;
            let before = laid.cpu_seconds(&guests)?;
            let called = call(&mut guests, direction, Some(setting.measured))?;
            let after = laid.cpu_seconds(&guests)?;
            let [path_cpu_seconds, machine_cpu_seconds] = [0, 1].map(|i| after[i] - before[i]);
            let guest_instructions = match counted {
                Some([start, reading]) => {
                    let [end, _] = instructions(&mut guests[0])?;
                    Some(end.saturating_sub(start + reading))
                }
                None => None,
            };
            Ok::<_, TrialError>(VmStream {
                called,
                path_cpu_seconds,
                machine_cpu_seconds,
                guest_instructions,
            })
        };
        let to_guest = stream(Direction::Transmit)?;
        let from_guest = stream(Direction::Receive)?;
        Ok(VmRun { verified_bytes, to_guest, from_guest, is_reset: false })
    }

    /// Runs this program in a guest, where it sends or receives a stream and prints the figures.
    fn call_from(&self, guest: &mut Guest, call: Call) -> Result<Called, TrialError> {
        let direction = match call.direction {
            Direction::Transmit => "transmit",
            Direction::Receive => "receive",
        };
        let time = call.measured.map(|time| format!("--time {}us", time.as_micros()));
        let (program, time) = (&self.program, time.unwrap_or_default());
        let said =
            guest.run(&format!("{program} lab sink {} --call {direction} {time}", call.peer))?;
        serde_json::from_str(said.trim()).map_err(|error| io::Error::other(error).into())
    }
}

/// Hosts, and what forwards frames between them and the VMs.
struct Laid<'scope> {
    /// Network namespaces: the host's and, with a tunnel, also that of the endpoint next to the VM.
    networks: Vec<NetworkNamespace>,
    paths: Vec<Running<'scope, ()>>,
    passt: Option<Passt>,
    /// The device from which passt copies the addresses for its guest.
    template: Option<TapPort>,
}

impl<'scope> Laid<'scope> {
    /// Opens the host's device, and configures its address.
    fn tap(&self) -> io::Result<TapPort> {
        self.networks[0].run(|| {
            let port = TapPort::open(DEVICE, Layer::Ethernet, &TapOptions::default())?;
            set_up(DEVICE, SENDER_ADDRESSES, Family::V4, self.mtu())?;
            Ok(port)
        })?
    }

    /// Opens one endpoint of a Grosso tunnel; side 0 is the host's.
    fn tunnel_end(&self, side: usize) -> io::Result<impl Port + Send + use<'scope>> {
        let tunnel = (Tunnel::Vxlan, Family::V4);
        let end = (&self.networks[side], side);
        tunnel::open_end(end, tunnel, (false, false), true, |socket| socket)
    }

    fn start(
        &mut self,
        scope: &'scope Scope<'scope, '_>,
        left: impl Port + Send + 'scope,
        right: impl Port + Send + 'scope,
    ) -> Result<(), TrialError> {
        let options = RunOptions::new(SEED);
        let path = Running::start(scope, (left, right), options, || Ok(()), |_| Ok(()))?;
        self.paths.push(path);
        Ok(())
    }

    /// Creates the kernel's own tunnel, whose far device is attached to a bridge.
    fn add_vxlan(&self) -> io::Result<()> {
        for (side, network) in self.networks.iter().enumerate() {
            let add = || {
                let name = InterfaceName::new(DEVICE)?;
                Netlink::new()?.add_vxlan_between((&name, LinkChange::new()), &vxlan_ends(side))
            };
            network.run(add)??;
        }
        Ok(())
    }

    /// Configures the devices that QEMU has created, and connects them.
    fn connect_devices(&self, place: VmPlace) -> io::Result<()> {
        let set_up_host = |device: &str| {
            self.networks[0].run(|| set_up(device, SENDER_ADDRESSES, Family::V4, self.mtu()))?
        };
        match place {
            VmPlace::Host | VmPlace::ReceiveBuffers => set_up_host(&own_tap(0)),
            VmPlace::Guests => {
                self.networks[0].run(|| bridge(&[own_tap(0), own_tap(1)], WIRE_MTU))?
            }
            VmPlace::Tunnel => {
                set_up_host(DEVICE)?;
                self.networks[1].run(|| bridge(&[own_tap(0), DEVICE.into()], self.mtu()))?
            }
        }
    }

    /// Returns the MTU of the guest's network.
    fn mtu(&self) -> u16 {
        let place = if self.networks.len() > 1 { VmPlace::Tunnel } else { VmPlace::Host };
        place.mtu()
    }

    /// Returns the CPU-seconds of the program between the endpoints and of the VMs.
    fn cpu_seconds(&self, guests: &[Guest]) -> io::Result<[f64; 2]> {
        let passt = self.passt.iter().map(|passt| Pid::from_child(&passt.0));
        let threads = self.paths.iter().map(Running::thread).chain(passt);
        let path =
            threads.map(|thread| Ok(cpu_time(thread)?.running)).sum::<io::Result<Duration>>();
        let machines = guests.iter().map(Guest::cpu_time).sum::<io::Result<Duration>>();
        Ok([path?.as_secs_f64(), machines?.as_secs_f64()])
    }
}

impl VmPlace {
    /// Returns the MTU of the guest's network, whose packets fit the wire even after encapsulation.
    fn mtu(self) -> u16 {
        match self {
            Self::Tunnel => tunnel::layout((Tunnel::Vxlan, Family::V4), false, 1).mtu.receiver,
            Self::Host | Self::Guests | Self::ReceiveBuffers => WIRE_MTU,
        }
    }
}

/// Returns the number of instructions that a guest has executed, and how many of them one reading takes. The guest's
/// clock advances with each instruction, and with the time for which its CPU is idle.
fn instructions(guest: &mut Guest) -> io::Result<[u64; 2]> {
    let mut executed = || {
        let times = guest.run("grep -E 'now at|idle_sleeptime' /proc/timer_list")?;
        let number = |word: &str| {
            let line = times.lines().find(|line| line.contains(word))?;
            line.split_whitespace().find_map(|word| word.parse::<u64>().ok())
        };
        let counted = number("now at").zip(number("idle_sleeptime"));
        let unknown = || io::Error::other(format!("no times in the guest's timer list: {times}"));
        counted.map(|(now, idle)| now.saturating_sub(idle)).ok_or_else(unknown)
    };
    let [first, second] = [executed()?, executed()?];
    Ok([second, second.saturating_sub(first)])
}

/// A running passt process, which is killed on drop.
struct Passt(Child);

impl Passt {
    /// Waits until passt has created its socket.
    fn wait_for(&mut self, socket: &Path) -> io::Result<()> {
        let started = Instant::now();
        while !path::is_there(socket) {
            if let Some(status) = self.0.try_wait()? {
                return Err(io::Error::other(format!("{PASST}: {status}")));
            }
            if started.elapsed() > STALLED {
                return Err(io::Error::other(format!("{PASST} did not create its socket")));
            }
            thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }
}

impl Drop for Passt {
    fn drop(&mut self) {
        // `passt` may already have ended together with its guest.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Creates a bridge with these ports in the calling thread's namespace.
fn bridge(ports: &[String], mtu: u16) -> io::Result<()> {
    let (control, bridge) = (Control::new()?, InterfaceName::new("b0")?);
    control.add_bridge(&bridge)?;
    for port in ports {
        let port = InterfaceName::new(port)?;
        control.set_mtu(&port, mtu)?;
        control.add_bridge_port(&bridge, &port)?;
        control.set_up(&port, true)?;
    }
    control.set_up(&bridge, true)
}

/// Returns the name of the TAP device that QEMU creates for VM `number`.
fn own_tap(number: usize) -> String {
    format!("q{number}")
}

/// Programs that the guest needs in addition to this program and those in every image.
pub(super) const PROGRAMS: &[&str] = &["ip"];
/// Program that forwards a guest's connections through sockets of its host.
pub(super) const PASST: &str = "passt";
/// Name of the host's device.
const DEVICE: &str = "t0";
/// Port on which a sink listens.
const SINK_PORT: u16 = 5297;
/// Script that serves streams in the guest, and returns as soon as clients can connect.
const SERVE: &str = "
ip route add default via GATEWAY
PROGRAM lab sink 0.0.0.0:5297 > /tmp/sink 2>&1 &
tries=0
until grep -q ':14B1 ' /proc/net/tcp; do
    tries=$((tries + 1))
    [ $tries -lt 300 ] || { cat /tmp/sink; exit 1; }
    sleep 0.1
done";
/// Interval at which a thread checks whether a socket exists.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// Seed of the flow tables, which is the same in all trials.
const SEED: u64 = 0x6772_6f73_736f;
