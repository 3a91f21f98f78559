//! Starts and stops the paths of the process, and reads their counters.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError, mpsc::Sender},
    time::{Duration, Instant},
};

use grosso_io::{
    Notice,
    runner::{Broken, Handle, Request},
    stage::{Scarcity, ScarcityNotice},
};
use grosso_sys::{interface::InterfaceName, netlink::Netlink, path::warning};

use super::{
    definition,
    events::Event,
    notices::Notices,
    path::{PathSpec, RunningPath},
    port::{Device, PortSpec},
    routes::RouteLoop,
    tunnel_end,
};
use crate::{
    error::Failure,
    name::harmless,
    observe::PathReading,
    tunnel::{Description, TunnelFiles},
};

/// The running paths.
#[derive(Debug)]
pub struct Paths {
    /// Name of the command, which starts each failure message.
    command: String,
    running: Vec<(u64, RunningPath)>,
    /// Number of paths started so far, which is used to number the paths.
    started: u64,
    events: Sender<Event>,
    asked: Asked,
}

/// Handle for reading the counters of all paths from any thread. No path waits for the reader.
#[derive(Clone, Debug, Default)]
pub struct Asked(Arc<Mutex<Vec<Askable>>>);

/// A path whose counters can be read.
#[derive(Clone, Debug)]
struct Askable {
    name: String,
    left: String,
    right: String,
    handles: Vec<Handle>,
}

impl Asked {
    /// Returns the current counters of the running paths. A path is stuck if one of its threads does not reply within
    /// `ANSWER_WAIT`; the last counters of that thread are used.
    pub fn readings(&self) -> Vec<PathReading> {
        // The list is not locked while the queues finish their current work and reply.
        let paths = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let ask = |path: Askable| {
            let requests: Vec<Request> = path.handles.iter().map(Handle::request).collect();
            (path, requests)
        };
        // All paths are queried before the first reply is awaited, so that many stuck paths take no more time than one.
        let asked: Vec<_> = paths.into_iter().map(ask).collect();
        let reading = |(path, requests): (Askable, Vec<Request>)| {
            let readings = requests.into_iter().filter_map(|request| request.wait(ANSWER_WAIT));
            let (queues, ages): (Vec<_>, Vec<_>) = readings
                .map(|reading| (Arc::unwrap_or_clone(reading.snapshot), reading.stale))
                .unzip();
            let stuck = ages.into_iter().flatten().max();
            PathReading { name: path.name, left: path.left, right: path.right, queues, stuck }
        };
        asked.into_iter().map(reading).collect()
    }
}

impl Paths {
    /// Creates an empty list. Each path that ends sends an event.
    pub fn new(command: &str, events: Sender<Event>) -> Self {
        let (running, asked) = (Vec::new(), Asked::default());
        Self { command: command.to_owned(), running, started: 0, events, asked }
    }

    /// Opens the ports of a path and starts it.
    pub fn start(&mut self, spec: PathSpec) -> Result<(), Failure> {
        let number = self.started;
        self.started += 1;
        let event = |event: Event| {
            let events = self.events.clone();
            move || {
                // The receiver may have been dropped.
                let _ = events.send(event.clone());
            }
        };
        let events = self.events.clone();
        let scarce = ScarcityNotice(Arc::new(move |scarcity| {
            let _ = events.send(Event::Scarce(number, scarcity));
        }));
        let notices = Notices {
            looped: Notice::new(event(Event::Looped(number))),
            route_changed: Notice::new(event(Event::RouteChanged(number))),
            scarce,
            notes: Some(self.events.clone()),
        };
        let ended = event(Event::PathEnded(number));
        let is_tunnel = matches!(spec.right.device, Device::Tunnel(_));
        let others = if is_tunnel { self.tunnels() } else { Vec::new() };
        let names: Vec<&str> = [&spec.left, &spec.right]
            .into_iter()
            .flat_map(|port| port.device.port().socket_paths())
            .collect();
        for note in names.into_iter().filter_map(|name| warning(Path::new(name))) {
            notices.note(note);
        }
        let path = RunningPath::start(spec, &self.command, &others, &notices, ended)?;
        self.running.push((number, path));
        self.publish();
        Ok(())
    }

    /// Stops the path with this name, if it runs, and returns its counters.
    pub fn stop(&mut self, name: &str) -> Option<(PathReading, Result<(), Broken>)> {
        let at = self.running.iter().position(|(_, path)| path.spec.name == name)?;
        Some(self.take(at))
    }

    /// Removes a path that ended on its own; returns `None` for a path that was stopped.
    pub fn ended(&mut self, number: u64) -> Option<(PathReading, Result<(), Broken>)> {
        let at = self.running.iter().position(|(running, _)| *running == number)?;
        Some(self.take(at))
    }

    /// Returns the note that this path's tunnel dropped one of its own packets; `None` if this was already noted, or if
    /// the path was stopped.
    pub fn looped(&mut self, number: u64) -> Option<String> {
        let (_, path) = self.running.iter_mut().find(|(running, _)| *running == number)?;
        if core::mem::replace(&mut path.has_looped, true) {
            return None;
        }
        Some(format!(
            "{}: the route to the tunnel's peer leads back into the tunnel, so packets are dropped \
             (counted as tunnel_out_loop or esp_out_loop); ip route get shows the route",
            path.right
        ))
    }

    /// Returns the note that a route of this path's tunnel leads back into the tunnel, unless it was already noted.
    pub fn route_changed(&mut self, number: u64) -> Option<String> {
        let at = self.running.iter().position(|(running, _)| *running == number)?;
        let (_, path) = &self.running[at];
        let Device::Tunnel(description) = &path.spec.right.device else { return None };
        let found = RouteLoop::find(description, &path.left, &self.tunnels());
        let path = &mut self.running[at].1;
        let is_new = found.is_some() && path.route_loop != found;
        path.route_loop = found;
        path.route_loop.as_ref().filter(|_| is_new).map(|found| found.note(&path.right))
    }

    /// Returns Grosso's known tunnels, each with its device: the tunnels of this process, and the tunnels of `grosso
    /// tunnel`.
    fn tunnels(&self) -> Vec<(String, Description)> {
        let own = self.running.iter().filter_map(|(_, path)| match &path.spec.right.device {
            Device::Tunnel(description) => Some((path.left.clone(), (**description).clone())),
            _ => None,
        });
        let places = TunnelFiles::all().into_iter();
        let stored = places.filter_map(|place| {
            let definition = definition::read(&place.definition()).ok()?;
            Some((place.name, definition.description))
        });
        own.chain(stored).collect()
    }

    /// Stops all paths, in the order in which they were started.
    pub fn stop_all(&mut self) -> Vec<(PathReading, Result<(), Broken>)> {
        // All paths are signaled before the first is awaited, and share one deadline.
        self.running.iter().for_each(|(_, path)| path.request_stop());
        let until = Instant::now() + STOP_WAIT;
        let ended = self.running.drain(..).map(|(_, path)| end(path, until)).collect();
        self.publish();
        ended
    }

    /// Returns the specifications of the running paths.
    pub fn specs(&self) -> impl Iterator<Item = &PathSpec> {
        self.running.iter().map(|(_, path)| &path.spec)
    }

    /// Returns a reader of the paths' counters.
    pub fn asked(&self) -> Asked {
        self.asked.clone()
    }

    /// Returns the note about a path with few sequence numbers left, if it still runs.
    pub fn scarcity_note(&self, number: u64, scarcity: Scarcity) -> Option<String> {
        let (_, path) = self.running.iter().find(|(running, _)| *running == number)?;
        let name = &path.spec.name;
        Some(match scarcity {
            Scarcity::Scarce => format!(
                "path {name}: 90 % of the sequence numbers of its ESP keys are used; sending \
                 stops when all are used: make new keys, and set a new sequence file"
            ),
            Scarcity::Exhausted => format!(
                "path {name}: all sequence numbers of its ESP keys are used, so no packets are sent: make new \
                 keys, and set a new sequence file"
            ),
        })
    }

    /// Returns one line of text for each running path.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.running.iter().map(|(_, path)| {
            let queues = match path.spec.queues {
                1 => "1 queue".to_owned(),
                queues => format!("{queues} queues"),
            };
            let [name, left, right] =
                [&path.spec.name, &path.left, &path.right].map(|name| harmless(name));
            format!("{name}: {left} <-> {right}, {queues}")
        })
    }

    /// Returns notes on visible reasons why paths carry nothing, carry packets twice, or could lose packets. The
    /// reasons are devices that are down, devices that another program uses, features that are disabled because another
    /// feature is off, and tunnels whose path MTU is not probed.
    pub fn notes(&self) -> Vec<String> {
        let ports = self.specs().flat_map(|spec| [&spec.left, &spec.right]);
        let features = ports.filter_map(PortSpec::features_lost);
        let tunnels = self.specs().filter_map(|spec| match &spec.right.device {
            Device::Tunnel(description) => tunnel_end::unprobed(description),
            _ => None,
        });
        let shared = self.running.iter().flat_map(|(_, path)| &path.shared).map(|name| {
            format!(
                "{name}: another Grosso path also reads from this device, so each packet takes both paths"
            )
        });
        self.down().into_iter().chain(shared).chain(features).chain(tunnels).collect()
    }

    /// Returns notes about devices that are down.
    fn down(&self) -> Vec<String> {
        let Ok(netlink) = Netlink::new() else { return Vec::new() };
        let devices = self.running.iter().flat_map(|(_, path)| [&path.left, &path.right]);
        let is_down = |device: &&String| {
            // An inherited descriptor's device may be in another network namespace.
            let link = InterfaceName::new(device).and_then(|name| netlink.link(&name));
            link.is_ok_and(|link| !link.up)
        };
        devices
            .filter(is_down)
            .map(|device| {
                format!(
                    "{device} is down, so no packets can pass; to bring it up: sudo ip link \
                     set {device} up"
                )
            })
            .collect()
    }

    fn take(&mut self, at: usize) -> (PathReading, Result<(), Broken>) {
        let (_, path) = self.running.remove(at);
        self.publish();
        end(path, Instant::now() + STOP_WAIT)
    }

    fn publish(&self) {
        let askable = |(_, path): &(u64, RunningPath)| Askable {
            name: path.spec.name.clone(),
            left: path.left.clone(),
            right: path.right.clone(),
            handles: path.handles().to_vec(),
        };
        *self.asked.0.lock().unwrap_or_else(PoisonError::into_inner) =
            self.running.iter().map(askable).collect();
    }
}

fn end(path: RunningPath, until: Instant) -> (PathReading, Result<(), Broken>) {
    let (name, left, right) = (path.spec.name.clone(), path.left.clone(), path.right.clone());
    let (result, queues) = path.stop(until);
    // An abandoned thread has its own message, which is more specific than "stuck".
    (PathReading { name, left, right, queues, stuck: None }, result)
}

/// Maximum time for a path's thread to reply with its counters. A thread that takes longer is reported as stuck.
const ANSWER_WAIT: Duration = Duration::from_secs(1);
/// Maximum time for the threads of paths to end after the request: one second to deliver held packets
/// (`RunOptions::drain`), and a margin for a busy machine. A thread that takes longer is abandoned.
pub const STOP_WAIT: Duration = Duration::from_secs(5);
