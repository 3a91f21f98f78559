//! `grosso tunnel show`: shows tunnels and their traffic.

use std::io;

use grosso_sys::{
    datagram::PathMtu,
    ethtool,
    interface::{Control, InterfaceName},
    netlink::Netlink,
};

use super::{
    add::path_mtu,
    process::{Process, last_error},
};
use crate::{
    arguments::TunnelShow,
    daemon::definition,
    error::{Exit, Failure},
    observe::{
        control::{Answer, Ask, ask_all, folders},
        reading::DeviceReading,
    },
    report,
    session::Session,
    tunnel::report::{Offload, Traffic, TunnelFacts, TunnelState, Tunnels},
    tunnel::{Definition, Description, TunnelFiles},
};

/// Shows one tunnel, or all tunnels.
pub(super) fn run(options: &TunnelShow, session: &mut Session) -> Result<Exit, Failure> {
    let places = match &options.name {
        Some(name) => vec![TunnelFiles::find("tunnel show", name)?],
        None => TunnelFiles::all(),
    };
    let answers = ask_all(&folders(), &Ask::Counters { per_queue: false }).answers;
    let mut tunnels = Vec::new();
    for place in &places {
        match definition::read(&place.definition()) {
            Ok(definition) => tunnels.push(facts(place, &definition, &answers)),
            // One damaged definition must not hide the others.
            Err(failure) if options.name.is_none() => session.talk.note(failure.message),
            Err(failure) => return Err(failure),
        }
    }
    if places.is_empty() {
        session.talk.hint("this user has no tunnels; create one with grosso tunnel add");
    }
    report::print(&Tunnels::new(tunnels), &session.talk, report::Place::Standard)?;
    Ok(Exit::Yes)
}

/// Prints a line about a tunnel that was started.
pub(super) fn headline(
    place: &TunnelFiles,
    definition: &Definition,
    session: &mut Session,
) -> Result<(), Failure> {
    let mut tunnels = Tunnels::new(vec![facts(place, definition, &[])]);
    tunnels.is_brief = true;
    report::print(&tunnels, &session.talk, report::Place::Standard)
}

/// Prints a JSON report on a tunnel that was stopped or removed if `--json` is set. Otherwise, success is silent.
pub(super) fn end(
    place: &TunnelFiles,
    told: Option<&Definition>,
    session: &mut Session,
) -> Result<(), Failure> {
    if !session.talk.json {
        return Ok(());
    }
    let facts = told.map(|definition| facts(place, definition, &[]));
    let tunnels = Tunnels::new(facts.into_iter().collect());
    report::print(&tunnels, &session.talk, report::Place::Standard)
}

fn facts(place: &TunnelFiles, definition: &Definition, answers: &[Answer]) -> TunnelFacts {
    let description = &definition.description;
    let process = Process::of(place);
    let (state, pid) = match process {
        Process::None => (TunnelState::Down, None),
        Process::Running(number) => (TunnelState::Up, Some(number)),
        Process::Ended => (TunnelState::Ended, None),
    };
    let mut facts = TunnelFacts::new(definition, state);
    facts.pid = pid;
    facts.log = place.log().display().to_string();
    facts.last_error = last_error(&place.log()).map(|said| said.what);
    facts.path_mtu = path_mtu(description).ok();
    facts.path_hint = path_hint(description).filter(|hint| Some(*hint) < facts.path_mtu);
    let device = device(&definition.name);
    facts.device_is_there = device.is_ok();
    if let Ok((mtu, features)) = device {
        facts.mtu = mtu;
        facts.features = features;
    }
    let outside = |reading: &&DeviceReading| {
        reading.path == definition.name && reading.peer == definition.name
    };
    let answer = answers.iter().find(|answer| i32::try_from(answer.pid).ok() == pid);
    if let Some(reading) = answer.and_then(|answer| answer.devices.iter().find(outside)) {
        let value = |name: &str| reading.counters.value(name);
        facts.last_packet_age_ns = reading.idle_ns;
        facts.transfer = Some(Traffic {
            rx_bytes: value("rx_bytes"),
            rx_packets: value("rx_packets"),
            tx_bytes: value("tx_bytes"),
            tx_packets: value("tx_packets"),
        });
        facts.offload = Some(Offload {
            rx_frames: value("rx_frames"),
            rx_packets: value("rx_packets"),
            tx_frames: value("tx_frames"),
            tx_packets: value("tx_packets"),
        });
        facts.drops = reading.counters.drops();
    }
    facts
}

/// Returns the smallest MTU that the kernel has recorded for the paths to the peers.
fn path_hint(description: &Description) -> Option<usize> {
    let paths = PathMtu::new(description.endpoint.remote.is_ipv4()).ok()?;
    description.remotes().filter_map(|remote| paths.to(remote).ok()).min()
}

/// Returns a device's MTU, and the names of its active [`OFFLOADS`].
fn device(name: &str) -> io::Result<(u32, Vec<String>)> {
    let name = InterfaceName::new(name)?;
    let mtu = Netlink::new()?.link(&name)?.mtu;
    let features = ethtool::features(&Control::new()?, &name).unwrap_or_default();
    let active = features.into_iter().filter(|feature| feature.active).map(|feature| feature.name);
    let told = active.filter(|name| OFFLOADS.contains(&name.as_str()));
    Ok((mtu, told.collect()))
}

/// Features of a TUN or TAP device, each of which moves work from the host's network stack to Grosso.
const OFFLOADS: &[&str] = &[
    "tx-checksum-ip-generic",
    "tx-tcp-segmentation",
    "tx-tcp-ecn-segmentation",
    "tx-tcp6-segmentation",
    "tx-udp-segmentation",
    "tx-udp_tnl-segmentation",
    "tx-udp_tnl-csum-segmentation",
];
