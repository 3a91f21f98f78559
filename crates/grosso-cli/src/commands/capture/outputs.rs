//! Outputs for captured packets: files, pcap-over-IP clients, and devices that monitoring programs read.
//!
//! Each kind of output receives every packet. A symmetric hash distributes the flows over the outputs of the same kind,
//! so both directions of a connection go to the same reader. Fragments are distributed by their addresses alone.

use std::rc::Rc;

use grosso_capture::PacketMeta;
use grosso_wire::LinkType;

use super::{
    files::CaptureFiles,
    listener::PcapServer,
    monitor_port::MonitorPort,
    opener::Opener,
    report::{FilesReport, InterfacePackets, OutputReport},
    source::CapturedInterface,
};
use crate::{
    acceptor::note_reach, arguments::Capture, error::Failure, name::Name, report::Counts,
    session::Session, units,
};

/// Outputs of a capture, and their packet counts.
pub(super) struct Outputs {
    files: Vec<CaptureFiles>,
    servers: Vec<PcapServer>,
    monitors: Vec<MonitorPort>,
    /// Number of packets from each interface, indexed by its position among the devices.
    by_interface: Vec<u64>,
    pub(super) packets: u64,
    /// Total number of captured bytes.
    pub(super) bytes: u64,
    packets_max: u64,
    /// Whether the maximum number of files has been reached.
    pub(super) is_over: bool,
    snaplen: usize,
}

impl Outputs {
    /// Opens the outputs of a capture that ends after `packets_max` packets.
    pub(super) fn open(
        options: &Capture,
        source: &CapturedInterface,
        opener: Option<Rc<Opener>>,
        session: &mut Session,
    ) -> Result<Self, Failure> {
        let device = source.devices.first().filter(|_| !source.is_any());
        if let Some(device) = device.filter(|device| device.link_type != LinkType::Ethernet)
            && let Some(to) = options.to.first()
        {
            let message = format!(
                "capture: {to} needs Ethernet addresses, but packets of {} have none",
                device.name
            );
            let hint = "--listen and -w accept packets without Ethernet headers";
            return Err(Failure::usage("usage.link_type", message).hint(hint));
        }
        let monitors = options.to.iter().map(|word| MonitorPort::open(word, source.name()));
        let monitors = monitors.collect::<Result<Vec<_>, _>>()?;
        let servers = options
            .listen
            .iter()
            .zip(device.iter().cycle())
            .map(|(address, device)| PcapServer::listen(*address, device.interface));
        let servers = servers.collect::<Result<Vec<_>, _>>()?;
        for server in &servers {
            session.talk.remark(&format!("capture: serving pcap-over-IP on {}", server.address));
            let what = format!("packets of {}", source.name());
            note_reach(&mut session.talk, &what, server.address, "--listen");
        }
        let files = options.write().iter();
        let files =
            files.map(|path| CaptureFiles::begin(options, path, source, opener.clone(), session));
        Ok(Self {
            files: files.collect::<Result<Vec<_>, _>>()?,
            servers,
            monitors,
            by_interface: Vec::new(),
            packets: 0,
            bytes: 0,
            packets_max: options.count.unwrap_or(u64::MAX),
            is_over: false,
            snaplen: super::snaplen(options) as usize,
        })
    }

    /// Outputs a packet from the interface at position `place` among the devices. `flow` is its flow hash.
    pub(super) fn put(
        &mut self,
        source: &mut CapturedInterface,
        (place, flow): (usize, u32),
        meta: PacketMeta,
        data: &[u8],
    ) -> Result<(), Failure> {
        if self.is_full() || self.is_over {
            return Ok(());
        }
        let kept = &data[..data.len().min(self.snaplen)];
        let file = shared(&mut self.files, flow);
        if let Some(file) = file {
            if !file.turn(source)? {
                self.is_over = true;
                return Ok(());
            }
            file.write(source, place, &meta, kept)?;
        }
        if let Some(server) = shared(&mut self.servers, flow) {
            server.write(&meta, kept)?;
        }
        if let Some(monitor) = shared(&mut self.monitors, flow) {
            monitor.write(kept);
        }
        self.packets += 1;
        self.bytes += kept.len() as u64;
        self.by_interface.resize(self.by_interface.len().max(place + 1), 0);
        self.by_interface[place] += 1;
        Ok(())
    }

    /// Flushes everything written so far. Fails if all outputs are monitor devices and all of them have been removed.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        self.monitors.iter_mut().for_each(MonitorPort::flush);
        let has_others = !self.files.is_empty() || !self.servers.is_empty();
        if let Some(monitor) = self.monitors.last().filter(|_| !has_others)
            && self.monitors.iter().all(|monitor| monitor.gone > 0)
        {
            let (name, packets) = (&monitor.name, units::count(self.packets, "packet"));
            let message = format!(
                "capture: {name} was removed; the capture ended after {packets}, because it has no \
                 other output"
            );
            return Err(Failure::environment("environment.device_gone", message));
        }
        self.servers.iter_mut().try_for_each(PcapServer::flush)?;
        self.files.iter_mut().try_for_each(CaptureFiles::flush)
    }

    /// Completes every output.
    pub(super) fn finish(&mut self, source: &CapturedInterface) -> Result<(), Failure> {
        self.monitors.iter_mut().for_each(MonitorPort::flush);
        self.files.iter_mut().try_for_each(|file| file.close(source))?;
        self.servers.iter_mut().try_for_each(PcapServer::finish)
    }

    /// Returns whether the packet limit has been reached.
    pub(super) const fn is_full(&self) -> bool {
        self.packets >= self.packets_max
    }

    /// Returns a sentence for each monitor device that disappeared while packets were arriving.
    pub(super) fn gone(&self) -> impl Iterator<Item = String> {
        self.monitors.iter().filter(|monitor| monitor.gone > 0).map(|monitor| {
            let packets = units::count(monitor.gone, "packet");
            format!("{} was removed; {packets} could not be sent to it", monitor.name)
        })
    }

    /// Returns the number of packets from each interface.
    pub(super) fn interfaces(&self, source: &CapturedInterface) -> Vec<InterfacePackets> {
        let packets = |place: usize| self.by_interface.get(place).copied().unwrap_or(0);
        let devices = source.devices.iter().enumerate();
        devices
            .map(|(place, device)| InterfacePackets {
                name: device.name.clone(),
                packets: packets(place),
            })
            .collect()
    }

    /// Returns the number of files started, and the name of the last one.
    pub(super) fn files(&self) -> FilesReport {
        FilesReport {
            begun: self.files.iter().map(|file| file.begun).sum(),
            last: self.files.last().map(|file| Name::of(&file.path)),
        }
    }

    /// Returns the name of the first output, for messages.
    pub(super) fn name(&self) -> String {
        let file = self.files.first().map(|file| file.name.clone());
        let server = || self.servers.first().map(|server| server.address.to_string());
        let monitor = || self.monitors.first().map(|monitor| monitor.name.clone());
        file.or_else(server).or_else(monitor).unwrap_or_default()
    }

    /// Returns a report on each output: the packets that it received, and those that it lost.
    pub(super) fn reports(&self) -> Vec<OutputReport> {
        let lost = |counts: &[(&'static str, u64)]| {
            counts.iter().copied().filter(|(_, count)| *count > 0).collect::<Counts>()
        };
        let files = self.files.iter().map(|file| OutputReport {
            kind: "file",
            name: file.stem(),
            packets: file.packets,
            clients: None,
            turned_away: None,
            cut_off: None,
            lost: Counts::new(),
        });
        let servers = self.servers.iter().map(|server| OutputReport {
            kind: "pcap-over-ip",
            name: server.address.to_string(),
            packets: server.packets,
            clients: Some(server.came()),
            turned_away: Some(server.turned_away()),
            cut_off: Some(server.cut_off()),
            lost: lost(&[("client_full", server.full()), ("no_client", server.unheard)]),
        });
        let monitors = self.monitors.iter().map(|monitor| OutputReport {
            kind: "device",
            name: monitor.name.clone(),
            packets: monitor.packets,
            clients: None,
            turned_away: None,
            cut_off: None,
            lost: lost(&[
                ("device_full", monitor.full),
                ("longer_than_mtu", monitor.too_long),
                ("device_gone", monitor.gone),
                ("device_refused", monitor.refused),
            ]),
        });
        files.chain(servers).chain(monitors).collect()
    }
}

/// Returns the output to which packets of a flow go; `None` if there are no outputs.
fn shared<T>(outputs: &mut [T], flow: u32) -> Option<&mut T> {
    let share = (flow as usize).checked_rem(outputs.len())?;
    outputs.get_mut(share)
}
