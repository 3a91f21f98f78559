//! A running path between two ports.

use std::{
    fs::File,
    hash::{BuildHasher, RandomState},
    io,
    ops::RangeInclusive,
    time::{Duration, Instant},
};

use grosso::Profile;
use grosso_io::{
    Port,
    impair::{Impair, Impairment},
    live::LivePort,
    runner::{Broken, DataPath, Group, Handle, RunOptions, Snapshot, ThreadOptions},
    stage::Stages,
};
use grosso_sys::{
    interface::{Control, InterfaceName},
    netlink::{LinkChange, Netlink},
};

use super::{
    claim,
    notices::Notices,
    port::{Device, PortSpec},
    routes::RouteLoop,
    stages, tunnel_end,
};
use crate::{confinement, error::Failure, needs::Needs, tunnel::Description};

/// Description of a path: two ports, and what happens to packets between them.
#[derive(Clone, Debug, PartialEq)]
pub struct PathSpec {
    /// The name of the path in messages and counters.
    pub name: String,
    /// Left endpoint of the path.
    pub left: PortSpec,
    /// Right endpoint of the path.
    pub right: PortSpec,
    /// Whether packets are coalesced before they are sent to a port that takes superframes.
    pub coalesce: bool,
    /// Merge profile. A lossy profile is used only in directions whose endpoint terminates TCP; the other direction
    /// uses the default profile.
    pub profile: Profile,
    /// Number of queues of each port, one thread each.
    pub queues: usize,
    /// CPUs to pin the queues' threads to; if empty, the threads are not pinned.
    pub processors: Vec<usize>,
    /// Impairment of the frames from both ports.
    pub impairment: Option<Impairment>,
    /// Frames per poll, and the busy-poll time.
    pub polling: Polling,
}

/// Polling of a path: the frames per poll, and the busy-poll time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Polling {
    /// Maximum number of frames per poll; `None` for the default.
    pub budget_frames: Option<u16>,
    /// Busy-poll time before a thread sleeps, in nanoseconds.
    pub busy_ns: u64,
}

impl Polling {
    /// Range of frames per poll. The largest poll occupies half of the default ring's slots.
    pub const BUDGETS: RangeInclusive<u16> = 1..=1024;
    /// Maximum busy-poll time, in nanoseconds; the kernel's documentation suggests 50 us for `net.core.busy_poll`.
    pub const BUSY_NS_MAX: u64 = 1_000_000_000;
}

impl PathSpec {
    /// Returns whether the path would forward merged packets that its profile cannot split into the original ones.
    pub fn forwards_what_it_lost(&self) -> bool {
        !self.profile.rules.is_invertible() && !self.left.terminates() && !self.right.terminates()
    }

    /// Returns the capabilities that both ports need.
    pub fn needs(&self) -> Needs {
        self.left.needs().and(self.right.needs())
    }

    /// Returns whether the path's threads create sockets, in order to reconnect.
    fn makes_sockets(&self) -> bool {
        [&self.left, &self.right].iter().any(|port| port.device.port().makes_sockets())
    }

    /// Returns whether the path's threads share memory with a VM.
    fn shares_memory(&self) -> bool {
        [&self.left, &self.right].iter().any(|port| port.device.port().shares_memory())
    }

    /// Returns the merge profile for packets that are sent to one of the ports.
    fn profile_towards(&self, port: &PortSpec) -> Profile {
        if self.profile.rules.is_invertible() || port.terminates() {
            return self.profile.clone();
        }
        let mut profile = Profile::linux();
        profile.limits.hold_ns = self.profile.limits.hold_ns;
        profile
    }
}

/// A path with running threads.
#[derive(Debug)]
pub struct RunningPath {
    /// Description of the path.
    pub spec: PathSpec,
    /// Name of the left device, as completed by the kernel.
    pub left: String,
    /// Name of the right device.
    pub right: String,
    /// Interfaces that another program's path also uses.
    pub shared: Vec<String>,
    /// Whether a note has been printed that the tunnel dropped one of its own packets.
    pub(super) has_looped: bool,
    /// Route that leads back into the path's tunnel, as last reported to the user.
    pub(super) route_loop: Option<RouteLoop>,
    /// Claims on the path's interfaces, which show other programs that the interfaces are in use.
    _claims: Vec<File>,
    group: Group,
}

impl RunningPath {
    /// Opens the ports and starts the threads. Calls `ended` when the threads have ended, whether they were stopped or
    /// not. `others` are the running tunnels, each with its device.
    pub fn start(
        spec: PathSpec,
        command: &str,
        others: &[(String, Description)],
        notices: &Notices,
        ended: impl FnOnce() + Send + Sync + 'static,
    ) -> Result<Self, Failure> {
        let (claims, shared) = claims(&spec);
        let lefts = open(&spec.left, spec.queues, command)?;
        let name = |ports: &[LivePort]| ports.first().map(|port| port.name().to_owned());
        let left = name(&lefts).unwrap_or_default();
        let (right, group) = if let Device::Tunnel(description) = &spec.right.device {
            let right = description.name();
            if let Some(found) = RouteLoop::find(description, &left, others) {
                return Err(found.refusal(command, &right));
            }
            let group = match tunnel_end::open(description, &left, spec.queues, notices, command)? {
                tunnel_end::Ends::Udp(rights) => start(&spec, lefts, rights, ended),
                tunnel_end::Ends::Ip(rights) => start(&spec, lefts, rights, ended),
            };
            (right, group.map_err(|error| failed(command, &spec, &error))?)
        } else {
            let rights = open(&spec.right, spec.queues, command)?;
            let right = name(&rights).unwrap_or_default();
            let group = match &spec.impairment {
                None => staged(&spec, lefts, rights, notices, command, ended),
                Some(impairment) => {
                    let [lefts, rights] = [(lefts, 0), (rights, 1)]
                        .map(|(ports, side)| impaired(ports, impairment, side));
                    staged(&spec, lefts, rights, notices, command, ended)
                }
            };
            (right, group?)
        };
        Ok(Self {
            spec,
            left,
            right,
            shared,
            has_looped: false,
            route_loop: None,
            _claims: claims,
            group,
        })
    }

    /// Returns handles that query the path's queues.
    pub fn handles(&self) -> &[Handle] {
        self.group.handles()
    }

    /// Requests that the path deliver its held packets and end. Does not wait for the path.
    pub fn request_stop(&self) {
        self.group.stop();
    }

    /// Requests that the path deliver its held packets and end, and waits for it. Returns the failure, if any, and the
    /// counters of its queues. A thread that has not ended at `until` is abandoned.
    pub fn stop(self, until: Instant) -> (Result<(), Broken>, Vec<Snapshot>) {
        self.group.stop_and_join(until)
    }
}

/// Claims the interfaces of a path, and returns the claims and the interfaces that another path uses.
fn claims(spec: &PathSpec) -> (Vec<File>, Vec<String>) {
    let (mut claims, mut shared) = (Vec::new(), Vec::new());
    for port in [&spec.left, &spec.right] {
        let device = port.device.port();
        let Some(name) = device.interface().filter(|_| device.is_claimed()) else { continue };
        match claim::interface(name) {
            Ok(claim) => claims.extend(claim),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => shared.push(name.to_owned()),
            // A path that fails to claim its interface still carries packets.
            Err(_) => {}
        }
    }
    (claims, shared)
}

/// Opens a port, and configures its interface as specified.
pub fn open(spec: &PortSpec, queues: usize, command: &str) -> Result<Vec<LivePort>, Failure> {
    let refused = |error| spec.device.refusal(command, queues, &error);
    let opening = spec.opening().ok_or_else(|| refused(io::ErrorKind::Unsupported.into()))?;
    let ports = opening.open(queues).map_err(refused)?;
    if let Some(port) = ports.first() {
        set(spec, port.name()).map_err(refused)?;
    }
    Ok(ports)
}

/// Sets the options of the interface, not the options of the port.
fn set(spec: &PortSpec, name: &str) -> io::Result<()> {
    let device = spec.device.port();
    let Some(settings) = device.link() else { return Ok(()) };
    let is_own = device.created().is_some();
    let up = settings.up.or_else(|| is_own.then_some(true));
    if up.is_none() && settings.mtu.is_none() {
        return Ok(());
    }
    let (control, name) = (Control::new()?, InterfaceName::new(name)?);
    if let Some(bytes) = settings.mtu {
        control.set_mtu(&name, bytes)?;
    }
    let netlink = Netlink::new()?;
    let link = netlink.link(&name)?;
    if is_own && KERNEL_QUEUES.contains(&link.transmit_queue_length) {
        let longer = LinkChange::new().transmit_queue_length(QUEUE_PACKETS);
        match netlink.change_link(link.index, longer) {
            // The owner of a device may be permitted to open it but not to change it.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            result => result?,
        }
    }
    match up {
        // A device that is already in this state is not changed, because this process may lack the permission.
        Some(up) if link.up != up => control.set_up(&name, up),
        _ => Ok(()),
    }
}

/// Default queue lengths, in packets, of TUN (500) and TAP (1000) devices. Any other length was configured and is kept.
const KERNEL_QUEUES: [u32; 2] = [500, 1000];
/// Queue length that replaces the default, in packets: the length of an interface's receive ring.
const QUEUE_PACKETS: u32 = 2048;

/// Puts an impaired link with its own random sequence in front of each port.
fn impaired(ports: Vec<LivePort>, impairment: &Impairment, side: u64) -> Vec<Impair<LivePort>> {
    let seeds = (0..).map(|queue| impairment.seed.wrapping_add(2 * queue + side));
    let wires = ports.into_iter().zip(seeds).map(|(port, seed)| {
        let mut impairment = impairment.clone();
        impairment.seed = seed;
        Impair::new(port, impairment)
    });
    wires.collect()
}

/// Starts a path. If a port has stages, the port's packets pass through them.
fn staged<P>(
    spec: &PathSpec,
    lefts: Vec<P>,
    rights: Vec<P>,
    notices: &Notices,
    command: &str,
    ended: impl FnOnce() + Send + Sync + 'static,
) -> Result<Group, Failure>
where
    P: Port + Send + 'static,
{
    let failed = |error: io::Error| failed(command, spec, &error);
    if ![&spec.left, &spec.right].iter().any(|port| port.has_stages()) {
        return start(spec, lefts, rights, ended).map_err(failed);
    }
    let stages = |port: &PortSpec, to: &PortSpec, devices: Vec<P>| {
        let mode = port.fragments_mode(to);
        let staged = devices.into_iter().enumerate().map(|(queue, device)| {
            let (fragments, mut esp) = stages::options(
                port.fragments.as_ref(),
                mode,
                port.esp.as_ref(),
                queue,
                notices,
                command,
            )?;
            if let Some(esp) = &mut esp {
                esp.loop_notice = Some(notices.looped.clone());
                esp.scarcity = Some(notices.scarce.clone());
            }
            Stages::new(device, &fragments, esp).map_err(failed)
        });
        staged.collect::<Result<Vec<_>, Failure>>()
    };
    let lefts = stages(&spec.left, &spec.right, lefts)?;
    let rights = stages(&spec.right, &spec.left, rights)?;
    start(spec, lefts, rights, ended).map_err(failed)
}

fn failed(command: &str, spec: &PathSpec, error: &io::Error) -> Failure {
    let message = format!("{command}: path {}: {error}", spec.name);
    let failure = Failure::environment("environment.path", message);
    if spec.processors.is_empty() || error.kind() != io::ErrorKind::PermissionDenied {
        return failure;
    }
    failure.hint(
        "grosso@.service does not permit CPU pinning (cpus); install cpus.conf from the same \
         directory to permit it",
    )
}

fn start<L, R>(
    spec: &PathSpec,
    lefts: Vec<L>,
    rights: Vec<R>,
    ended: impl FnOnce() + Send + Sync + 'static,
) -> io::Result<Group>
where
    L: Port + Send + 'static,
    R: Port + Send + 'static,
{
    let seed = RandomState::new().hash_one(&spec.name);
    let mut options = RunOptions::new(seed);
    options.busy_poll = Duration::from_nanos(spec.polling.busy_ns);
    let directions = [
        (&mut options.left_to_right, &spec.left, &spec.right),
        (&mut options.right_to_left, &spec.right, &spec.left),
    ];
    for (direction, from, to) in directions {
        direction.coalesce = spec.coalesce;
        direction.profile = spec.profile_towards(to);
        direction.expand_acknowledgments = from.expands_acks();
        let budget = spec.polling.budget_frames.map(usize::from);
        direction.budget_frames = budget.unwrap_or(direction.budget_frames);
    }
    let pairs = lefts.into_iter().zip(rights);
    let paths = pairs
        .map(|(left, right)| DataPath::new(left, right, options.clone()))
        .collect::<io::Result<Vec<_>>>()?;
    let processors = spec.processors.clone();
    let confine = match spec.makes_sockets() {
        _ if spec.shares_memory() => confinement::machine_thread,
        true => confinement::connecting_thread,
        false => confinement::data_thread,
    };
    let threads = ThreadOptions { processors, prepare: Some(confine) };
    Group::start(&spec.name, paths, &threads, ended)
}
