//! One module per command, and the function that runs them.

mod captures;
#[cfg(test)]
mod grammar_tests;
#[cfg(all(test, feature = "parquet"))]
mod keyword_tests;
#[cfg(target_os = "linux")]
mod summary;

use std::{
    ffi::OsString,
    panic::{self, AssertUnwindSafe},
    path::Path,
    sync::{Arc, atomic::AtomicBool},
};

use clap::{ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use grosso_analysis::capture::Session as Reading;
use grosso_conform::report::ConformReport;
use signal_hook::consts::{SIGINT, SIGTERM};

#[cfg(feature = "parquet")]
use crate::reports::export::ExportReport;
use crate::{
    arg_order::arrange,
    arguments::*,
    error::{Exit, Failure},
    form::{FormPage, ReportForm},
    name::{harmless, quoted},
    report,
    reports::{
        coalesce::CoalesceReport,
        csum::{FixReport, VerifyReport},
        decap::DecapReport,
        encap::EncapReport,
        explain::ExplainReport,
        fragment::FragmentReport,
        inspect::InspectReport,
        reassemble::ReassembleReport,
        segment::SegmentReport,
        whatif::WhatifReport,
        wire::WireReport,
    },
    session::Session,
    style::When,
    talk::Talk,
    usage,
};
#[cfg(target_os = "linux")]
use crate::{device, needs::Needs, tunnel::report::Tunnels};

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

/// Declares the commands: their arguments, help texts, functions, modules, operating systems, cargo features,
/// capabilities, and schema pages. Without `mod`, the function is in a module that several commands share. Without
/// `needs`, a command needs no capabilities, or only one that its error messages name.
macro_rules! commands {
    ($(
        $(#[$attribute:meta])*
        $variant:ident($arguments:ty), $about:literal,
        $run:path $(, mod $module:ident)? $(, on $platform:meta)? $(, with $feature:literal)? $(, needs $needs:path)?
        => $pages:expr;
    )*) => {
        $(module! { [$($module)?] [$($platform)?] [$($feature)?] })*

        /// Command of the program.
        #[derive(Debug, Subcommand)]
        pub(crate) enum Command {
            $(
                $(#[$attribute])*
                $(#[cfg_attr(
                    not(feature = $feature),
                    command(about = concat!($about, " (not in this build)"), long_about = None)
                )])?
                #[cfg_attr(all($(feature = $feature)?), command(about = $about, long_about = None))]
                $variant($arguments),
            )*
        }

        impl Command {
            /// Returns those of the command's options that other commands have too.
            pub(crate) fn shared_options(&self) -> SharedOptions {
                match self { $(Self::$variant(options) => options.shared_options(),)* }
            }
        }

        fn dispatch(command: &Command, session: &mut Session) -> Result<Exit, Failure> {
            match command {
                $(
                    #[cfg(all($($platform,)? $(feature = $feature)?))]
                    Command::$variant(options) => $run(options, session),
                    #[cfg(not(all($($platform,)? $(feature = $feature)?)))]
                    Command::$variant(_) => {
                        let fits = cfg!(all($($platform)?));
                        Err(absent(&stringify!($variant).to_lowercase(), fits, concat!($($feature)?)))
                    }
                )*
            }
        }

        /// Returns the capabilities needed for all of a command's devices, regardless of the order in which it opens
        /// them.
        #[cfg(target_os = "linux")]
        fn needs(command: &Command) -> Needs {
            match command {
                $($(Command::$variant(options) => $needs(options),)?)*
                _ => Needs::NONE,
            }
        }

        /// Schema pages of all commands in this build.
        const PAGES: &[&[FormPage]] = &[
            $(#[cfg(all($($platform,)? $(feature = $feature)?))] $pages,)*
        ];
    };
}

/// Declares a command's module, unless the command uses a shared one. The module is compiled only on the command's
/// operating systems and with its cargo feature.
macro_rules! module {
    ([] $platform:tt $feature:tt) => {};
    ([$module:ident] [$($platform:meta)?] [$($feature:literal)?]) => {
        #[cfg(all($($platform,)? $(feature = $feature)?))]
        mod $module;
    };
}

commands! {
    #[command(after_long_help = INSPECT_HELP)]
    Inspect(Inspect), "Check whether a capture shows wire packets",
        captures::inspect => &[page(&["inspect"], &[InspectReport::FORM])];
    #[command(after_long_help = COALESCE_HELP)]
    Coalesce(Coalesce), "Merge packets as a receiving host would",
        captures::coalesce => &[page(&["coalesce"], &[CoalesceReport::FORM])];
    #[command(after_long_help = SEGMENT_HELP)]
    Segment(Segment), "Split superframes using their recorded metadata",
        captures::segment => &[page(&["segment"], &[SegmentReport::FORM])];
    #[command(after_long_help = WIRE_HELP)]
    Wire(Wire), "Convert a host capture to wire packets",
        captures::wire => &[page(&["wire"], &[WireReport::FORM])];
    #[command(after_long_help = REASSEMBLE_HELP)]
    Reassemble(Reassemble), "Reassemble IP fragments into datagrams",
        captures::reassemble => &[page(&["reassemble"], &[ReassembleReport::FORM])];
    #[command(after_long_help = DECAP_HELP)]
    Decap(Decap), "Remove tunnel headers from packets",
        captures::decap => &[page(&["decap"], &[DecapReport::FORM])];
    #[command(after_long_help = ENCAP_HELP, override_usage = ENCAP_USAGE)]
    Encap(Encap), "Encapsulate packets using `ip link` syntax",
        captures::encap => &[page(&["encap"], &[EncapReport::FORM])];
    #[command(after_long_help = FRAGMENT_HELP)]
    Fragment(Fragment), "Split long packets into IP fragments",
        captures::fragment => &[page(&["fragment"], &[FragmentReport::FORM])];
    #[command(subcommand)]
    Csum(Csum), "Verify or fix checksums",
        captures::csum => &[page(&["csum verify"], &[VerifyReport::FORM]), page(&["csum fix"], &[FixReport::FORM])];
    #[command(after_long_help = EXPLAIN_HELP)]
    Explain(Explain), "Explain why a packet was merged, or why not",
        captures::explain => &[page(&["explain"], &[ExplainReport::FORM])];
    #[cfg_attr(feature = "parquet", command(after_long_help = EXPORT_HELP))]
    Export(Box<Export>), "Write packets and trains as Parquet tables",
        captures::export, with "parquet" => &[page(&["export", "merge"], &[ExportReport::FORM])];
    #[cfg_attr(feature = "parquet", command(after_long_help = MERGE_HELP))]
    Merge(Merge), "Merge the reports of `export` shards",
        captures::merge, with "parquet" => &[];
    #[command(after_long_help = PROFILES_HELP)]
    Profiles(Profiles), "List the merge profiles",
        profiles::run, mod profiles =>
        &[page(&["profiles"], &[profiles::LIST]), page(&["profiles show"], &[profiles::ONE])];
    #[command(after_long_help = WHATIF_HELP)]
    Whatif(Whatif), "Compare receive offloads on a capture",
        captures::whatif => &[page(&["whatif"], &[WhatifReport::FORM])];
    #[command(after_long_help = CONFORM_HELP)]
    Conform(Conform), "Test another coalescer, rule by rule",
        conform::run, mod conform => &[page(&["conform"], &[ConformReport::FORM])];
    #[command(after_long_help = BRIDGE_HELP)]
    Bridge(Bridge), "Connect two devices with a data path",
        bridge::run, mod bridge, on target_os = "linux", needs bridge::needs =>
        &[page(&["bridge"], &[summary::BRIDGE])];
    #[command(after_long_help = RUN_HELP)]
    Run(Run), "Run the data paths of a configuration file",
        run::run, mod run, on target_os = "linux", needs run::needs => &[page(&["run"], &[summary::RUN])];
    #[command(subcommand, after_long_help = TUNNEL_HELP)]
    Tunnel(Tunnel), "Run userspace tunnels using `ip link` syntax",
        tunnel::run, mod tunnel, on target_os = "linux", needs tunnel::needs =>
        &[page(&["tunnel add", "tunnel del", "tunnel up", "tunnel down", "tunnel show"], &[Tunnels::FORM])];
    #[command(subcommand, after_long_help = CONFIG_HELP)]
    Config(ConfigCommand), "Check or write files for `run`",
        config::run, mod config, on target_os = "linux" =>
        &[page(&["config check"], &[config::CHECKED]), page(&["config esp"], &[config::CONVERTED])];
    #[command(after_long_help = SCHEMA_HELP)]
    Schema(Schema), "Print the JSON Schema of a command's report",
        schema::run, mod schema => schema::PAGES;
    #[command(after_long_help = LAB_HELP)]
    Lab(Lab), "Measure the gain of offloads on this machine",
        lab::run, mod lab, on target_os = "linux", with "lab" => lab::PAGES;
    #[command(after_long_help = DOCTOR_HELP)]
    Doctor(Doctor), "Check which features work on this machine",
        doctor::run, mod doctor, on target_os = "linux" => &[page(&["doctor"], &[doctor::FORM])];
    #[command(after_long_help = CAPTURE_HELP)]
    Capture(Capture), "Record packets with their offload metadata",
        capture::run, mod capture, on target_os = "linux", needs capture::needs =>
        &[page(&["capture"], &capture::FORMS)];
    #[command(after_long_help = EXTCAP_HELP)]
    Extcap(Extcap), "Act as a Wireshark extcap",
        capture::extcap::run, on target_os = "linux", needs capture::extcap::needs => &[];
    #[command(after_long_help = DEV_HELP)]
    Dev(Dev), "Show or set a device's offload features",
        dev::run, mod dev, on target_os = "linux" => &[page(&["dev"], &dev::FORMS)];
    #[command(after_long_help = STATS_HELP)]
    Stats(Stats), "Print the counters of running data paths",
        stats::run, mod stats, on target_os = "linux" => &[page(&["stats"], &stats::FORMS)];
    #[command(after_long_help = MONITOR_HELP)]
    Monitor(Monitor), "Show running data paths in full-screen mode",
        monitor::run, mod monitor, on target_os = "linux", with "monitor" => monitor::PAGES;
}

/// Returns the schema page for `commands`, each of whose reports has one of the `forms`.
const fn page(commands: &'static [&'static str], forms: &'static [ReportForm]) -> FormPage {
    FormPage { commands, forms }
}

/// Returns the failure for a command that this build does not contain, because it requires Linux or a cargo feature.
#[allow(dead_code, reason = "a Linux build with all features has every command")]
fn absent(command: &str, fits: bool, feature: &str) -> Failure {
    if !fits {
        let message = format!("{command} needs Linux (this is {})", std::env::consts::OS);
        let hint =
            "commands that read captures work on this system: grosso inspect, wire, csum, ...";
        return Failure::environment("environment.not_linux", message).hint(hint);
    }
    let message =
        format!("{command}: not included in this build, because the feature {feature} is disabled");
    let hint = format!("cargo install --locked --path crates/grosso-cli --features {feature}");
    Failure::environment("environment.left_out", message).hint(hint)
}

/// Runs the command line `words`, whose first element is the program name.
pub(crate) fn run(words: Vec<OsString>) -> Exit {
    let wants_json = words.iter().any(|word| word == "--json");
    let arguments = match parse(&words) {
        Ok(arguments) => arguments,
        Err(error) => return explain_usage(&error, wants_json),
    };
    let mut session = session(&arguments, &words, interrupts(&arguments.command));
    match guarded(&arguments.command, &mut session) {
        Ok(exit) => exit,
        Err(failure) if failure.exit == Exit::BrokenPipe => Exit::BrokenPipe,
        Err(failure) => {
            #[cfg(target_os = "linux")]
            let failure = device::with_all_needs(failure, || needs(&arguments.command));
            session.talk.fail(&failure);
            failure.exit
        }
    }
}

/// Parses a command line.
fn parse(words: &[OsString]) -> Result<Arguments, clap::Error> {
    let command = Arguments::command().color(help_color(words));
    let parse = |words: &[OsString]| {
        let parsed = command.clone().try_get_matches_from(arrange(&command, words.to_vec()));
        parsed.and_then(|matches| Arguments::from_arg_matches(&matches))
    };
    parse(words).map_err(|error| {
        // Messages quote the user's arguments, which the shell may have expanded from file names.
        let harmless = words.iter().map(|word| harmless(&word.to_string_lossy()).into_owned());
        let harmless: Vec<OsString> = harmless.map(OsString::from).collect();
        parse(&harmless).err().unwrap_or(error)
    })
}

/// Returns the color setting for help. clap prints help before it has parsed `--color`, so the option is read here.
fn help_color(words: &[OsString]) -> ColorChoice {
    let mut words = words.iter().map(|word| word.to_string_lossy());
    let mut when = Color::Auto;
    while let Some(word) = words.next().filter(|word| word != "--") {
        let said = match word.strip_prefix("--color") {
            Some("") => words.next(),
            Some(rest) => rest.strip_prefix('=').map(|said| said.to_owned().into()),
            None => None,
        };
        when = said.and_then(|said| Color::from_str(&said, false).ok()).unwrap_or(when);
    }
    match when {
        Color::Auto => ColorChoice::Auto,
        Color::Always => ColorChoice::Always,
        Color::Never => ColorChoice::Never,
    }
}

/// Runs a command. A panic is converted to a failure.
fn guarded(command: &Command, session: &mut Session) -> Result<Exit, Failure> {
    let ended = panic::catch_unwind(AssertUnwindSafe(|| dispatch(command, session)));
    ended.unwrap_or_else(|_| {
        let message = "internal error: please report it with the lines above";
        Err(Failure::internal(message))
    })
}

/// Returns the flag that is set by Ctrl-C, and also by SIGTERM while captures are read. Commands that work on devices
/// handle SIGTERM themselves.
fn interrupts(command: &Command) -> Arc<AtomicBool> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let ends_reading = command.shared_options().reading.is_some();
    for signal in [Some(SIGINT), ends_reading.then_some(SIGTERM)].into_iter().flatten() {
        // A second signal ends the program immediately. If the handlers cannot be installed, the first signal does so,
        // and the command still works.
        let (code, flag) = (Exit::Interrupted as i32, Arc::clone(&interrupted));
        let _ = signal_hook::flag::register_conditional_shutdown(signal, code, flag);
        let _ = signal_hook::flag::register(signal, Arc::clone(&interrupted));
    }
    interrupted
}

/// Creates the session for a command line. Reading stops early once `interrupted` is set.
fn session(arguments: &Arguments, words: &[OsString], interrupted: Arc<AtomicBool>) -> Session {
    let common = &arguments.common;
    let SharedOptions { reading, naming, strictness, detail } = arguments.command.shared_options();
    let reading = reading.unwrap_or_default();
    let talk = Talk::new(common.json, common.quiet, detail.verbose, common.color.into());
    let reading = Reading {
        forced_link: reading.linktype,
        allow_truncated: reading.allow_truncated,
        names_hash: naming.hash,
        strict: strictness.strict,
        interrupted,
        command_line: quote(words),
        ..Reading::default()
    };
    Session::new(talk, reading)
}

/// Prints a message from clap. Help and version are answers; all other messages report an invalid command line.
fn explain_usage(error: &clap::Error, wants_json: bool) -> Exit {
    let ended = match usage::message(error, &Arguments::command()) {
        Some(message) => Err(Failure::usage("usage", message)),
        None => error.print().map_err(report::unwritten),
    };
    let Err(failure) = ended else {
        return if error.use_stderr() { Exit::Usage } else { Exit::Yes };
    };
    if failure.exit != Exit::BrokenPipe {
        let talk = Talk::new(wants_json, false, false, When::Never);
        talk.fail(&failure);
    }
    failure.exit
}

/// Returns the command line as the user typed it, but without the program's directory.
fn quote(words: &[OsString]) -> String {
    let quoted = words.iter().enumerate().map(|(index, word)| {
        let word = match index {
            0 => Path::new(word).file_name().unwrap_or(word).to_string_lossy(),
            _ => word.to_string_lossy(),
        };
        quoted(&word)
    });
    quoted.collect::<Vec<_>>().join(" ")
}

const FIRST_HELP: &str = "\
Examples:
  grosso send.pcap                         inspect a capture
  grosso wire -r send.pcap -w wire.pcapng  make wire packets
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

Exit codes: 0 success; 1 the command worked, but its check failed; 2 usage error;
3 input damaged or not supported (readable packets were processed); 4 system
error; 5 internal error; 6 a data path thread did not end in time and was
abandoned; 130 interrupted by Ctrl-C or SIGTERM; 141 output pipe closed.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_can_be_typed_again() {
        let words = ["/usr/bin/grosso", "wire", "-r", "a b.pcap", "-w", "it's", ""];
        let words: Vec<OsString> = words.iter().map(Into::into).collect();
        assert_eq!(quote(&words), r"grosso wire -r 'a b.pcap' -w 'it'\''s' ''");
    }
}
