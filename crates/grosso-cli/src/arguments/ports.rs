//! User-supplied tunnel parameters, which packets do not contain.

use clap::{
    ArgMatches, Args, Command, FromArgMatches,
    error::{Error, ErrorKind},
};
use grosso_capture::TunnelPort;
use grosso_wire::{Ports, Pseudowire};

use super::values::{parse_pseudowire, parse_tunnel_port, tunnel_ports};

/// UDP ports of tunnels, which are the assigned ports unless overridden by `--port`, and the format of L2TPv3 sessions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TunnelPorts(Ports);

impl TunnelPorts {
    /// Returns the ports in the form that the dissector expects.
    pub(crate) fn ports(&self) -> Ports {
        self.0
    }
}

/// The individual values of `--port`, and the value of `--l2tp`.
#[derive(Args, Debug)]
struct PortArguments {
    /// Set the UDP port of a tunnel, for example vxlan=8472; the tunnels are vxlan, vxlan-gpe, geneve, gue and
    /// fou=PORT/PROTOCOL
    #[arg(long = "port", value_name = "TUNNEL=PORT", value_parser = parse_tunnel_port, hide_short_help = true)]
    ports: Vec<TunnelPort>,
    /// Set the L2TPv3 session format: cookie size in bytes and sublayer, for example 4/default or 0/none
    #[arg(long, value_name = "COOKIE/SUBLAYER", value_parser = parse_pseudowire, hide_short_help = true)]
    l2tp: Option<Pseudowire>,
}

impl FromArgMatches for TunnelPorts {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let PortArguments { ports, l2tp } = PortArguments::from_arg_matches(matches)?;
        let conflict = |why| Error::raw(ErrorKind::ArgumentConflict, why + "\n");
        tunnel_ports(&ports, l2tp).map(Self).map_err(conflict)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for TunnelPorts {
    fn augment_args(command: Command) -> Command {
        PortArguments::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        PortArguments::augment_args_for_update(command)
    }
}

#[cfg(test)]
mod tests {
    use grosso_wire::{CookieLen, Kind};

    use super::*;

    fn parse(words: &str) -> Result<Ports, String> {
        let command = TunnelPorts::augment_args(Command::new("test").no_binary_name(true));
        let parsed = command.try_get_matches_from(words.split_whitespace());
        let told = parsed.and_then(|matches| TunnelPorts::from_arg_matches(&matches));
        told.map(|told| told.ports()).map_err(|error| error.to_string())
    }

    #[test]
    fn ports_that_are_named_take_the_place_of_the_assigned_ones() {
        assert_eq!(parse(""), Ok(Ports::ASSIGNED));
        let both = Ports::ASSIGNED.with(Kind::Vxlan, 8472).with_fou(5555, 4);
        assert_eq!(parse("--port vxlan=8472 --port fou=5555/4 --port vxlan=8472"), Ok(both));
        let geneve = Ports::ASSIGNED.with(Kind::Geneve, 4789);
        assert_eq!(parse("--port geneve=4789"), Ok(geneve), "the port is no longer that of VXLAN");
    }

    #[test]
    fn the_format_of_l2tp_sessions_is_configured_or_unknown() {
        let told = |cookie, has_sublayer| {
            Ok(Ports::ASSIGNED.with_l2tp(Some(Pseudowire { cookie, has_sublayer })))
        };
        assert_eq!(parse("--l2tp 4/default"), told(CookieLen::Four, true));
        assert_eq!(parse("--l2tp 0/none"), told(CookieLen::None, false));
        assert_eq!(parse("--l2tp 8/none"), told(CookieLen::Eight, false));
        for wrong in ["--l2tp 4", "--l2tp 6/none", "--l2tp 4/", "--l2tp /default"] {
            assert!(parse(wrong).unwrap_err().contains("0, 4 or 8 bytes"), "{wrong}");
        }
    }

    #[test]
    fn conflicting_options_are_refused_by_both_names() {
        for (words, why) in [
            ("--port vxlan=8472 --port gue=8472", "to only one tunnel"),
            ("--port fou=5555/4 --port gue=1 --port vxlan=5555", "to only one tunnel"),
            ("--port fou=5555/4 --port fou=5555/47", "to only one tunnel"),
            ("--port vxlan=8472 --port vxlan=4789", "one UDP port per tunnel"),
        ] {
            let error = parse(words).unwrap_err();
            let named = words.split("--port ").filter(|word| !word.starts_with("gue=1"));
            let is_named = |word: &str| error.contains(&format!("--port {}", word.trim()));
            assert!(named.skip(1).all(is_named), "{error}");
            assert!(error.contains(why), "{error}");
        }
    }
}
