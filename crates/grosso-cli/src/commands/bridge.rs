//! `grosso bridge`: one data path, configured on the command line.

#[cfg(target_os = "linux")]
pub(crate) use linux::{run, spec};

#[cfg(not(target_os = "linux"))]
pub(crate) fn run(
    _: &crate::arguments::Bridge,
    _: &mut crate::input::Session,
) -> Result<crate::error::Exit, crate::error::Failure> {
    Err(super::needs_linux("bridge"))
}

#[cfg(target_os = "linux")]
mod linux {
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
            port::{Device, PortSpec},
        },
        error::{Exit, Failure},
        observe, profile,
        session::Session,
    };

    /// Runs the path until a signal ends it, or a device fails.
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

    /// Returns the path that a command line describes.
    pub(crate) fn spec(options: &Bridge) -> Result<PathSpec, Failure> {
        let usage = |why: String| Failure::usage("usage.path", format!("bridge: {why}"));
        let port = |word: &str| -> Result<PortSpec, Failure> {
            let mut port = PortSpec::new(word.parse().map_err(usage)?);
            let is_tun = matches!(port.device, Device::Tap(_) | Device::Tun(_));
            let is_host = is_tun || matches!(port.device, Device::Passed(_));
            port.terminates = is_host && options.terminates;
            port.expand_acks = port.terminates && options.expand_acks;
            port.mtu = options.mtu.filter(|_| is_tun);
            port.persistent = (is_tun && options.persist).then_some(true);
            let is_packet = matches!(port.device, Device::Packet(_));
            port.promiscuous = (is_packet && options.no_promisc).then_some(false);
            port.ring_slots = options.rx.filter(|_| is_packet);
            port.transmit_slots = options.tx.filter(|_| is_packet);
            port.check().map_err(usage)?;
            Ok(port)
        };
        let (left, right) = (port(&options.left)?, port(&options.right)?);
        if options.expand_acks && !left.expand_acks && !right.expand_acks {
            return Err(usage(format!(
                "--expand-acks: neither port is a host: {left} and {right}",
                left = left.device,
                right = right.device
            )));
        }
        let has_ring = [&left, &right].iter().any(|end| matches!(end.device, Device::Packet(_)));
        let ring = options.rx.map(|_| "--rx").or_else(|| options.tx.map(|_| "--tx"));
        if let Some(option) = ring.filter(|_| !has_ring) {
            return Err(usage(format!(
                "{option}: neither port is an interface with a packet ring: {left} and {right}",
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
}
