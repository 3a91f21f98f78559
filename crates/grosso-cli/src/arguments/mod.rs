//! Arguments of the command line: this module has the arguments that all commands share, and each submodule has one
//! group of commands.

mod captures;
mod conform;
mod daemon;
mod device;
#[cfg(feature = "parquet")]
mod export;
mod extcap;
mod grammar;
#[cfg(all(test, feature = "parquet"))]
mod keyword_tests;
mod known;
mod lab;
mod observe;
mod own;
mod ports;
mod profiles;
mod schema;
mod tunnel;
mod values;
mod whatif;

use clap::{Args, Parser, ValueEnum};

#[cfg(feature = "parquet")]
pub(crate) use self::export::*;
#[cfg(all(target_os = "linux", feature = "lab"))]
pub(crate) use self::values::parse_run_ns;
pub(crate) use self::{
    captures::*,
    conform::*,
    daemon::*,
    device::*,
    extcap::*,
    grammar::*,
    lab::*,
    observe::*,
    own::{CommandOptions, Detail, Own},
    profiles::*,
    schema::*,
    tunnel::*,
    whatif::*,
};
pub(crate) use crate::commands::Command;
use crate::style::When;

/// GRO and GSO in userspace, for captures and live devices.
#[derive(Debug, Parser)]
#[command(
    name = "grosso",
    version,
    max_term_width = 120,
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
    /// Colour the output; auto respects NO_COLOR and CLICOLOR_FORCE
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_short_help = true
    )]
    pub(crate) color: Color,
}

/// Values of `--color`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// Colour on a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Colour in files and pipes too.
    Always,
    /// Do not colour.
    Never,
}

impl From<Color> for When {
    fn from(color: Color) -> Self {
        match color {
            Color::Auto => Self::Auto,
            Color::Always => Self::Always,
            Color::Never => Self::Never,
        }
    }
}

/// Arguments of a command that this build lacks: it accepts any arguments, so that the command can report that it is
/// missing.
#[cfg(not(feature = "parquet"))]
#[derive(Args, Debug)]
pub(crate) struct LeftOut {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<std::ffi::OsString>,
}

#[cfg(not(feature = "parquet"))]
pub(crate) type Export = LeftOut;
#[cfg(not(feature = "parquet"))]
pub(crate) type Merge = LeftOut;

const FIRST_HELP: &str = "\
Examples:
  grosso send.pcap                         are these wire packets?
  grosso wire -r send.pcap -w wire.pcapng  as on the wire
  grosso lab                               measure the gain";

const HELP: &str = "\
Examples:
  grosso send.pcap                             same as grosso inspect send.pcap
  grosso wire -r send.pcap -w wire.pcapng      convert to wire packets
  grosso wire -r send.pcap -w - | tcpreplay -i eth0 -
  grosso coalesce -r wire.pcapng -w gro.pcapng as a receiving stack sees it
  grosso segment -r gro.pcapng -w back.pcapng  split again, byte for byte
  grosso reassemble -r sip.pcap -w whole.pcap  reassemble IP fragments
  grosso decap -r overlay.pcap -w inner.pcap   remove tunnel headers
  grosso encap -r inner.pcap -w overlay.pcap type vxlan id 42 local A remote B
  grosso explain wire.pcapng 231               why was it not merged?
  grosso whatif wire.pcapng                    compare offloads and hold times
  grosso conform -- ./mine                     test another coalescer
  sudo grosso capture -i eth0 -w send.pcapng   record with offload metadata
  grosso lab                                   measure the gain on kernel TCP

Exit codes: 0 success; 1 success, but the check failed; 2 usage error; 3 input
damaged or not supported (readable packets were processed); 4 system error;
5 internal error; 6 a data path thread did not end in time and was abandoned;
130 interrupted by Ctrl-C or SIGTERM; 141 output pipe closed.";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn grammar_is_sound() {
        Arguments::command().debug_assert();
    }

    /// Calls a function for a command and all its subcommands.
    fn walk(command: &mut clap::Command, visit: &mut dyn FnMut(&mut clap::Command)) {
        visit(command);
        command.get_subcommands_mut().for_each(|inner| walk(inner, visit));
    }

    #[test]
    fn short_help_fits_on_a_screen() {
        for columns in [60, 80, 200] {
            let mut command = Arguments::command().term_width(columns);
            command.build();
            walk(&mut command, &mut |command| {
                let help = command.render_help().to_string();
                let lines = help.lines().count();
                let about = format!("{} at {columns} columns", command.get_name());
                assert!(lines <= SCREEN_LINES, "{about}: {lines} lines:\n{help}");
                // A word that is longer than the line cannot be broken, and a usage line is not broken.
                let is_usage = |line: &str| line.starts_with("Usage:") || line.contains(" grosso ");
                let sticks_out = |line: &&str| {
                    let is_one_word = !line.trim_start().contains(' ');
                    line.chars().count() > columns && !is_one_word && !is_usage(line)
                };
                let long = help.lines().find(sticks_out);
                assert_eq!(long, None, "{about}:\n{help}");
            });
        }
    }

    #[test]
    fn every_command_on_captures_has_the_same_words_and_options_and_no_other_uses_these() {
        let mut command = Arguments::command();
        command.build();
        let mut on_captures = Vec::new();
        walk(&mut command, &mut |command| {
            let (name, usage) = (command.get_name().to_owned(), command.render_usage());
            let long = |letter: char| {
                let has = command.get_arguments().find(|one| one.get_short() == Some(letter))?;
                has.get_long().map(str::to_owned)
            };
            for (letter, word) in [('r', "read"), ('w', "write"), ('f', "filter")] {
                assert!(long(letter).is_none_or(|long| long == word), "{name} -{letter}");
            }
            if long('r').is_none() {
                return;
            }
            assert!(long('f').is_some(), "{name}");
            let usage = usage.to_string();
            let has_files = ["[FILE]...", "<FILE>..."].iter().any(|files| usage.contains(files));
            assert!(has_files, "{name}: {usage}");
            let words: Vec<_> = command.get_positionals().collect();
            assert!(matches!(words[..], [_]), "{name}: the captures are the only words");
            on_captures.push((name, long('w').is_some()));
        });
        let writing = |is_writing: bool| {
            let those = on_captures.iter().filter(|(_, writes)| *writes == is_writing);
            those.map(|(name, _)| name.as_str()).collect::<Vec<_>>()
        };
        let transforming = ["coalesce", "segment", "wire", "reassemble", "decap", "encap"];
        assert_eq!(writing(true), [&transforming[..], &["fragment", "fix"]].concat());
        let mut reporting = vec!["inspect", "verify", "explain"];
        reporting.extend(cfg!(feature = "parquet").then_some("export"));
        assert_eq!(writing(false), [&reporting[..], &["whatif"]].concat());
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
        assert!(own("grosso explain a 3 --allow-truncated").reading.unwrap().allow_truncated);
    }

    /// Number of lines of a tall terminal.
    const SCREEN_LINES: usize = 48;
}
