//! `grosso tunnel add`: creates a tunnel.

use std::{
    io,
    net::{IpAddr, UdpSocket},
};

use grosso_sys::{
    datagram::PathMtu,
    interface::{Control, InterfaceName},
};

use grosso_wire::{ipv4, ipv6};

use super::{begin, remove_device};
use crate::{
    arguments::TunnelAdd,
    daemon,
    error::{Exit, Failure},
    session::Session,
    tunnel::{Definition, Description, TunnelFiles, describe},
};

/// Creates the device, saves the definition, and starts the process.
pub(super) fn run(options: &TunnelAdd, session: &mut Session) -> Result<Exit, Failure> {
    let (mtu, words) = split_mtu(&options.words)?;
    let name = &options.name;
    if InterfaceName::new(name).is_err() || name.contains('%') {
        let message = format!("{COMMAND}: \"{name}\" is not a valid device name");
        let hint = "a name has 1 to 15 characters, and no spaces, slashes, colons or %";
        return Err(Failure::usage("usage.name", message).hint(hint));
    }
    let description = describe(COMMAND, words)?;
    refuse_taken(name)?;
    refuse_same(&description)?;
    check_local(description.endpoint.local)?;
    let path_mtu = path_mtu(&description).map_err(|(remote, error)| unreachable(remote, &error))?;
    let definition =
        Definition { name: name.clone(), mtu: fitting(&description, path_mtu, mtu)?, description };
    if definition.mtu < ipv6::MTU_MIN {
        session.talk.note(format!(
            "mtu {}: IPv6 needs at least {}, so the device carries IPv4 only",
            definition.mtu,
            ipv6::MTU_MIN
        ));
    }
    let place = TunnelFiles::new(name).map_err(|error| {
        let message = format!("{COMMAND}: no directory for tunnels: {error}");
        let hint = "set RUNTIME_DIRECTORY=DIR in the environment to choose the directory";
        Failure::environment("environment.write", message).hint(hint)
    })?;
    // The device is persistent, so it outlives this descriptor.
    drop(daemon::path::open(&daemon::definition::port(&definition), 1, COMMAND)?);
    let saved = place.save(&definition).map_err(|error| {
        let message = format!("{COMMAND}: {}: {error}", place.definition().display());
        Failure::environment("environment.write", message)
    });
    let begun = saved.and_then(|()| begin(COMMAND, &place, &definition, &options.start, session));
    begun.inspect_err(|_| {
        // Remove everything that a tunnel leaves behind when it fails to start. The failure contains the reason.
        let _ = place.remove();
        let _ = remove_device(COMMAND, name);
    })
}

/// Returns the MTU, which may precede `type`, and the remaining arguments.
fn split_mtu(words: &[String]) -> Result<(Option<u16>, &[String]), Failure> {
    let usage = |message: String| {
        let hint = "grosso tunnel add NAME [mtu BYTES] type TYPE ...";
        Failure::usage("usage.tunnel", format!("{COMMAND}: {message}")).hint(hint)
    };
    let at = words.iter().position(|word| word == "type");
    let at = at.ok_or_else(|| usage("type is missing".to_owned()))?;
    let (own, rest) = words.split_at(at);
    let rest = rest.get(1..).unwrap_or_default();
    match own {
        [] => Ok((None, rest)),
        [word, bytes] if word == "mtu" => match bytes.parse() {
            Ok(mtu @ ipv4::MTU_MIN..) => Ok((Some(mtu), rest)),
            _ => Err(usage(format!(
                "mtu {bytes}: expected a number from {} to 65535",
                ipv4::MTU_MIN
            ))),
        },
        [word, ..] => {
            Err(usage(format!("unexpected \"{word}\" before type; only mtu BYTES may precede it")))
        }
    }
}

fn refuse_taken(name: &str) -> Result<(), Failure> {
    if TunnelFiles::all().iter().any(|place| place.name == name) {
        let message = format!("{COMMAND}: tunnel {name} already exists");
        let hint = format!(
            "show it: grosso tunnel show {name}; remove it: grosso tunnel del \
                            {name}"
        );
        return Err(Failure::environment("environment.name_taken", message).hint(hint));
    }
    let taken = InterfaceName::new(name).and_then(|name| Control::new()?.index(&name));
    if taken.is_ok() {
        let message = format!("{COMMAND}: interface {name} already exists");
        let hint = format!("show it: ip -d link show {name}; remove it: sudo ip link del {name}");
        return Err(Failure::environment("environment.name_taken", message).hint(hint));
    }
    Ok(())
}

/// Rejects a tunnel directly over IP if another tunnel receives the same packets, because each packet would arrive
/// twice. A second UDP tunnel would fail anyway, because its port is in use.
fn refuse_same(description: &Description) -> Result<(), Failure> {
    let is_same = |place: &TunnelFiles| {
        let other = daemon::definition::read(&place.definition());
        other.is_ok_and(|other| other.description.takes_same(description))
    };
    let Some(TunnelFiles { name, .. }) = TunnelFiles::all().into_iter().find(is_same) else {
        return Ok(());
    };
    let message = format!("{COMMAND}: the existing tunnel {name} would receive the same packets");
    let hint = format!(
        "compare it with grosso tunnel show {name}; for GRE between the same addresses, use \
         different keys"
    );
    Err(Failure::environment("environment.busy", message).hint(hint))
}

/// Checks that this host has the tunnel's source address.
fn check_local(local: IpAddr) -> Result<(), Failure> {
    let bound = UdpSocket::bind((local, 0));
    bound
        .map(|_| ())
        .map_err(|error| daemon::tunnel_end::no_socket(COMMAND, (local, 0).into(), &error))
}

fn unreachable(remote: IpAddr, error: &io::Error) -> Failure {
    let message = format!("{COMMAND}: no route to remote {remote}: {error}");
    let hint = format!("show the route with ip route get {remote}");
    Failure::environment("environment.unreachable", message).hint(hint)
}

/// Returns the smallest MTU of the routes to the peers, in bytes. If a peer is unreachable, returns its address and the
/// error.
pub(super) fn path_mtu(description: &Description) -> Result<usize, (IpAddr, io::Error)> {
    let paths = PathMtu::new(description.endpoint.remote.is_ipv4());
    let paths = paths.map_err(|error| (description.endpoint.remote, error))?;
    let mtu = |remote| match paths.of_route(remote) {
        Ok(route) => Ok(route.mtu),
        Err(error) => Err((remote, error)),
    };
    description.remotes().try_fold(usize::MAX, |least, remote| Ok(least.min(mtu(remote)?)))
}

/// Returns the MTU of the device: either the requested one, or the largest that the path allows.
fn fitting(description: &Description, path: usize, wanted: Option<u16>) -> Result<u16, Failure> {
    let fits = description.endpoint.mtu(path).filter(|mtu| *mtu >= usize::from(ipv4::MTU_MIN));
    match (wanted, fits) {
        (Some(mtu), _) => Ok(mtu),
        // Maximum for a TUN device (`MAX_MTU` in drivers/net/tun.c, minus room for its Ethernet header).
        (None, Some(mtu)) => Ok(u16::try_from(mtu).unwrap_or(u16::MAX).min(MTU_MAX)),
        (None, None) => {
            let message = format!(
                "{COMMAND}: a path MTU of {path} bytes is too small for the \
                                   tunnel's headers"
            );
            Err(Failure::environment("environment.mtu", message))
        }
    }
}

const COMMAND: &str = "tunnel add";
/// Largest MTU that a TAP device accepts, in bytes.
const MTU_MAX: u16 = 65521;
