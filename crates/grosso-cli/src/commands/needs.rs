//! The capabilities that a command needs for its ports and options.

use super::bridge;
use crate::{
    arguments::{Capture, Tunnel},
    commands::Command,
    daemon::{self, config::Config},
    needs::Needs,
    tunnel::TunnelFiles,
};

/// Returns the capabilities for every device of a command, regardless of the order in which it opens them.
pub(super) fn of(command: &Command) -> Needs {
    match command {
        Command::Bridge(options) => {
            bridge::spec(options).map_or(Needs::NONE, |spec| of_paths(&[spec]))
        }
        Command::Run(options) => of_file(&options.config),
        Command::Tunnel(Tunnel::Up(options)) => {
            let files = TunnelFiles::find("tunnel up", &options.name);
            files.map_or(Needs::NONE, |files| of_file(&files.definition()))
        }
        Command::Capture(options) => of_capture(options),
        Command::Extcap(_) => Needs::of(&["net_raw"]),
        // `dev` and `lab nic` need only CAP_NET_ADMIN, which their failures name; the other experiments of `lab` need a
        // user namespace. `monitor` and `stats` must run as the user of the data path or as root.
        _ => Needs::NONE,
    }
}

fn of_file(path: &std::path::Path) -> Needs {
    Config::read(path).map_or(Needs::NONE, |config| of_paths(&config.paths))
}

fn of_paths(paths: &[daemon::path::PathSpec]) -> Needs {
    let ports = paths.iter().flat_map(|path| [&path.left, &path.right]);
    ports.map(daemon::port::PortSpec::needs).fold(Needs::NONE, Needs::and)
}

fn of_capture(options: &Capture) -> Needs {
    let makes_tap = options.to.iter().any(|device| device.starts_with("tap:"));
    let tap: &[&str] = if makes_tap { &["net_admin"] } else { &[] };
    Needs::of(&["net_raw"]).and(Needs::of(tap))
}
