//! The grammar of the command line: here what all commands share, in modules beside it each group of commands.

mod captures;
mod conform;
mod daemon;
mod device;
mod grammar;
mod known;
mod lab;
mod observe;
mod own;
mod ports;
mod profiles;
mod tunnel;
mod values;
mod whatif;

use clap::{Args, Parser, Subcommand};

pub(crate) use self::{
    captures::*,
    conform::*,
    daemon::*,
    device::*,
    grammar::*,
    lab::*,
    observe::*,
    own::{Detail, Own},
    profiles::*,
    tunnel::*,
    values::*,
    whatif::*,
};
use crate::style::When;

/// Packet offload in userspace: see captures as the wire saw them, or as a stack would.
#[derive(Debug, Parser)]
#[command(
    name = "grosso",
    version,
    max_term_width = 200,
    after_help = FIRST_HELP,
    after_long_help = HELP,
    override_usage = "grosso <COMMAND> [OPTIONS]\n       grosso FILE",
    disable_help_subcommand = false
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Options of every command.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    /// Print one JSON object instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print failures only
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Colour the output; auto heeds NO_COLOR and CLICOLOR_FORCE
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: When,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check whether a capture shows the packets of the wire
    #[command(after_long_help = INSPECT_HELP)]
    Inspect(Inspect),
    /// Merge packets as a receiving host would
    #[command(after_long_help = COALESCE_HELP)]
    Coalesce(Coalesce),
    /// Split superframes at the segment size that the capture recorded
    #[command(after_long_help = SEGMENT_HELP)]
    Segment(Segment),
    /// Turn a host capture into wire packets: split superframes, complete checksums
    #[command(after_long_help = WIRE_HELP)]
    Wire(Wire),
    /// Join IP fragments into datagrams
    #[command(after_long_help = REASSEMBLE_HELP)]
    Reassemble(Reassemble),
    /// Take packets out of tunnels
    #[command(after_long_help = DECAP_HELP)]
    Decap(Decap),
    /// Put packets into a tunnel, described as for ip link
    #[command(after_long_help = ENCAP_HELP, override_usage = ENCAP_USAGE)]
    Encap(Encap),
    /// Cut packets longer than an MTU into IP fragments
    #[command(after_long_help = FRAGMENT_HELP)]
    Fragment(Fragment),
    /// Verify or fix checksums
    #[command(subcommand)]
    Csum(Csum),
    /// Explain why a packet was merged, or why not
    #[command(after_long_help = EXPLAIN_HELP)]
    Explain(Explain),
    /// List the profiles: sets of rules to merge by
    #[command(after_long_help = PROFILES_HELP)]
    Profiles(Profiles),
    /// Compare what offload would do to this traffic, by profile and hold
    #[command(after_long_help = WHATIF_HELP)]
    Whatif(Whatif),
    /// Judge a program that coalesces: by every rule, and how much it joins
    #[command(after_long_help = CONFORM_HELP)]
    Conform(Conform),
    /// Connect two devices by a data path, until told to end
    #[command(after_long_help = BRIDGE_HELP)]
    Bridge(Bridge),
    /// Run the data paths of a file, until told to end
    #[command(after_long_help = RUN_HELP)]
    Run(Run),
    /// Run tunnels in userspace, described as for `ip link`
    #[command(subcommand, after_long_help = TUNNEL_HELP)]
    Tunnel(Tunnel),
    /// Check a file for `run`
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Measure what offload is worth here: kernel TCP through Grosso
    #[command(after_long_help = LAB_HELP)]
    Lab(Lab),
    /// Check what works on this machine, and say why the rest does not
    #[command(after_long_help = DOCTOR_HELP)]
    Doctor(Doctor),
    /// Record an interface with the offload metadata that tcpdump loses
    #[command(after_long_help = CAPTURE_HELP)]
    Capture(Capture),
    /// Show or change a device's features and interrupt coalescing, show its counters: -k -K -S -c -C
    #[command(after_long_help = DEV_HELP)]
    Dev(Dev),
    /// Print the counters of running data paths, once or at intervals
    #[command(after_long_help = STATS_HELP)]
    Stats(Stats),
    /// Show running data paths on a full screen, or as text for logs
    #[command(after_long_help = MONITOR_HELP)]
    Monitor(Monitor),
}

const FIRST_HELP: &str = "\
Examples:
  grosso send.pcap                             is it the wire? (same as inspect)
  grosso wire -r send.pcap -w wire.pcapng      as it was on the wire
  grosso lab                                   what is it worth on kernel TCP?";

const HELP: &str = "\
Examples:
  grosso send.pcap                             is it the wire? (same as inspect)
  grosso wire -r send.pcap -w wire.pcapng      as it was on the wire
  grosso wire -r send.pcap -w - | tcpreplay -i eth0 -
  grosso coalesce -r wire.pcapng -w gro.pcapng as a receiving stack sees it
  grosso segment -r gro.pcapng -w back.pcapng  and back, byte for byte
  grosso reassemble -r sip.pcap -w whole.pcap  join IP fragments
  grosso decap -r overlay.pcap -w inner.pcap   take packets out of tunnels
  grosso encap -r inner.pcap -w overlay.pcap type vxlan id 42 local A remote B
  grosso explain wire.pcapng 231               why was it merged, or not?
  grosso whatif wire.pcapng                    which offload, held for how long?
  grosso conform -- ./mine                     is this coalescer right?
  sudo grosso capture -i eth0 -w send.pcapng   record what tcpdump loses
  grosso lab                                   what is it worth on kernel TCP?

Exit codes: 0 done, yes; 1 done, no; 2 usage; 3 input damaged or not supported
(what could be written was written); 4 environment; 5 internal error;
130 interrupted by Ctrl-C; 141 nobody reads the output.";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn grammar_is_sound() {
        Arguments::command().debug_assert();
    }

    /// Calls a function for a command and all below it.
    fn walk(command: &mut clap::Command, visit: &mut dyn FnMut(&mut clap::Command)) {
        visit(command);
        command.get_subcommands_mut().for_each(|inner| walk(inner, visit));
    }

    #[test]
    fn short_help_fits_on_a_screen() {
        let mut command = Arguments::command().term_width(80);
        command.build();
        walk(&mut command, &mut |command| {
            let help = command.render_help().to_string();
            let lines = help.lines().count();
            assert!(lines <= SCREEN_LINES, "{}: {lines} lines:\n{help}", command.get_name());
        });
    }

    #[test]
    fn options_of_some_commands_are_no_options_of_others() {
        let parse = |line: &str| Arguments::try_parse_from(line.split(' '));
        for line in [
            "grosso dev lo --linktype raw",
            "grosso dev lo --strict",
            "grosso doctor --allow-truncated",
            "grosso doctor -v",
            "grosso inspect x --strict",
            "grosso bridge a b --strict",
            "grosso profiles -v",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        let own = |line: &str| parse(line).unwrap().command.own();
        assert!(own("grosso wire -r a -w b --strict").strictness.strict);
        assert!(own("grosso csum verify -r a -v --linktype raw").detail.verbose);
        assert!(own("grosso explain a 3 --allow-truncated").reading.allow_truncated);
    }

    /// Lines of a tall terminal.
    const SCREEN_LINES: usize = 48;
}
