//! `grosso bridge`: runs a single data path that is described on the command line.

use std::path::Path;

use grosso::Profile;

use crate::{
    arguments::Bridge,
    commands::summary::{BRIDGE, broken, listen, observe, summarize},
    confinement,
    daemon::{
        config::{LOSSY, PathName, check, default_name},
        events::Event,
        manager,
        path::{PathSpec, Polling},
        paths::Paths,
        port::{Device, PortSpec, SettingValue},
    },
    error::{Exit, Failure},
    needs::Needs,
    observe, profile,
    session::Session,
};

/// Runs the path until a signal arrives or a device fails.
pub(crate) fn run(options: &Bridge, session: &mut Session) -> Result<Exit, Failure> {
    let spec = spec(options)?;
    confinement::begin("bridge", options.user.as_deref(), &mut session.talk)?;
    confinement::start_closer("bridge")?;
    let events = listen("bridge")?;
    let mut paths = Paths::new("bridge", events.sender.clone());
    paths.start(spec)?;
    let asked = paths.asked();
    let service = observe(options.metrics, paths.asked(), session);
    paths.lines().for_each(|line| session.talk.remark(&line));
    paths.notes().into_iter().for_each(|note| session.talk.note(note));
    confinement::settle("bridge")?;
    manager::ready("running");
    let exit = loop {
        match events.next() {
            Event::Interrupt => break Exit::Interrupted,
            Event::Terminate | Event::HangUp => break Exit::Yes,
            Event::PathEnded(_) => break Exit::Environment,
            // `bridge` has no option for ESP.
            Event::Scarce(..) => {}
            Event::Looped(path) => {
                paths.looped(path).into_iter().for_each(|note| session.talk.note(note))
            }
            Event::RouteChanged(path) => {
                paths.route_changed(path).into_iter().for_each(|note| session.talk.note(note));
            }
            Event::Note(note) => session.talk.note(note),
            Event::Report => {
                let text = observe::print(&asked.readings(), session.talk.verbose);
                session.talk.block(&text);
            }
        }
    };
    manager::stopping();
    drop(service);
    let (readings, results): (Vec<_>, Vec<_>) = paths.stop_all().into_iter().unzip();
    summarize(BRIDGE, &readings, session)?;
    match results.into_iter().find_map(Result::err) {
        Some(error) => Err(broken("bridge", &error)),
        None => Ok(exit),
    }
}

/// Returns the capabilities that both devices need.
pub(super) fn needs(options: &Bridge) -> Needs {
    spec(options).map_or(Needs::NONE, |spec| spec.needs())
}

/// Returns the path described by the command-line options.
fn spec(options: &Bridge) -> Result<PathSpec, Failure> {
    let usage = |why: String| Failure::usage("usage.path", format!("bridge: {why}"));
    let port = |word: &str| -> Result<PortSpec, Failure> {
        let mut port = PortSpec::new(word.parse().map_err(usage)?);
        let is_created = port.device.port().created().is_some();
        let is_host = port.device.port().host().is_some();
        let on = |is_on: bool| is_on.then_some(SettingValue::Switch(true));
        for (name, value) in [
            ("terminates", on(options.terminates)),
            ("expand-acks", on(is_host && options.terminates && options.expand_acks)),
            ("mtu", options.mtu.filter(|_| is_created).map(SettingValue::Bytes)),
            ("persist", on(is_created && options.persist)),
            ("promisc", options.no_promisc.then_some(SettingValue::Switch(false))),
            ("rx", options.rx.map(SettingValue::Count)),
            ("tx", options.tx.map(SettingValue::Count)),
        ] {
            value.map_or(Ok(()), |value| port.set_if_any(name, value)).map_err(usage)?;
        }
        port.check().map_err(usage)?;
        Ok(port)
    };
    let (left, right) = (port(&options.left)?, port(&options.right)?);
    if options.expand_acks && !left.expands_acks() && !right.expands_acks() {
        return Err(usage(format!(
            "--expand-acks requires a tap, tun or fd port, but the ports are {left} and {right}",
            left = left.device,
            right = right.device
        )));
    }
    let has_ring = [&left, &right].iter().any(|end| matches!(end.device, Device::Packet(_)));
    let ring = options.rx.map(|_| "--rx").or_else(|| options.tx.map(|_| "--tx"));
    if let Some(option) = ring.filter(|_| !has_ring) {
        return Err(usage(format!(
            "{option}: neither {left} nor {right} is an interface with a packet ring",
            left = left.device,
            right = right.device
        )));
    }
    let name = match &options.name {
        Some(name) => name.parse::<PathName>().map_err(usage)?.0,
        None => default_name(&left, &right),
    };
    let mut profile = match &options.profile {
        None => Profile::linux(),
        Some(word) => profile::find(word, Path::new(""))?,
    };
    options.hold.into_iter().for_each(|hold| hold.apply(&mut profile));
    options.reorder.into_iter().for_each(|repair| repair.apply(&mut profile));
    let spec = PathSpec {
        name,
        left,
        right,
        coalesce: !options.no_coalesce,
        profile,
        queues: options.queues.into(),
        processors: options.cpus.clone(),
        impairment: options.impair.clone(),
        polling: Polling {
            budget_frames: options.poll_budget,
            busy_ns: options.busy_poll.unwrap_or_default(),
        },
    };
    if spec.forwards_what_it_lost() {
        let message = format!("bridge: profile {}: {LOSSY}", spec.profile.name);
        let hint = "if this host terminates all TCP that reaches its TUN or TAP device, pass \
             --terminates";
        return Err(Failure::usage("usage.lossy", message).hint(hint));
    }
    check(&spec).map_err(usage)?;
    Ok(spec)
}
