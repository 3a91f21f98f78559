//! One module per command, and the function that runs the commands.

mod bridge;
#[cfg(target_os = "linux")]
mod capture;
mod captures;
mod config;
mod conform;
#[cfg(target_os = "linux")]
mod dev;
#[cfg(target_os = "linux")]
mod doctor;
#[cfg(all(target_os = "linux", feature = "lab"))]
mod lab;
#[cfg(all(target_os = "linux", feature = "monitor"))]
mod monitor;
#[cfg(target_os = "linux")]
mod needs;
mod profiles;
mod run;
mod schema;
#[cfg(target_os = "linux")]
mod stats;
#[cfg(target_os = "linux")]
mod summary;
#[cfg(target_os = "linux")]
mod tunnel;

use std::{
    ffi::OsString,
    panic::{self, AssertUnwindSafe},
    path::Path,
    sync::{Arc, atomic::AtomicBool},
};

use clap::{ColorChoice, CommandFactory, FromArgMatches, ValueEnum};
use grosso_analysis::capture::Session as Reading;
use signal_hook::consts::{SIGINT, SIGTERM};

#[cfg(target_os = "linux")]
use crate::device;
use crate::{
    arg_order::arrange,
    arguments::{Arguments, Color, Command, ConfigCommand, Csum, Own},
    error::{Exit, Failure},
    name::{harmless, quoted},
    report,
    session::Session,
    style::When,
    talk::Talk,
    usage,
};

/// Runs the command line `words`; its first element is the name of the program.
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
            let failure = device::with_all_needs(failure, || needs::of(&arguments.command));
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
        // Messages quote the user's arguments, which a shell may have expanded from file names.
        let harmless = words.iter().map(|word| harmless(&word.to_string_lossy()).into_owned());
        let harmless: Vec<OsString> = harmless.map(OsString::from).collect();
        parse(&harmless).err().unwrap_or(error)
    })
}

/// Returns the colour of help, which is printed instead of parsing the other arguments.
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

/// Runs a command; a panic becomes a failure of the command.
fn guarded(command: &Command, session: &mut Session) -> Result<Exit, Failure> {
    let ended = panic::catch_unwind(AssertUnwindSafe(|| dispatch(command, session)));
    ended.unwrap_or_else(|_| {
        let message = "internal error: please report it with the lines above";
        Err(Failure::internal(message))
    })
}

fn dispatch(command: &Command, session: &mut Session) -> Result<Exit, Failure> {
    match command {
        Command::Inspect(options) => captures::inspect(options, session),
        Command::Coalesce(options) => captures::coalesce(options, session),
        Command::Segment(options) => captures::segment(options, session),
        Command::Wire(options) => captures::wire(options, session),
        Command::Reassemble(options) => captures::reassemble(options, session),
        Command::Decap(options) => captures::decap(options, session),
        Command::Encap(options) => captures::encap(options, session),
        Command::Fragment(options) => captures::fragment(options, session),
        Command::Csum(Csum::Verify(options)) => captures::verify(options, session),
        Command::Csum(Csum::Fix(options)) => captures::fix(options, session),
        Command::Explain(options) => captures::explain(options, session),
        #[cfg(feature = "parquet")]
        Command::Export(options) => captures::export(options, session),
        #[cfg(feature = "parquet")]
        Command::Merge(options) => captures::merge(options, session),
        #[cfg(not(feature = "parquet"))]
        Command::Export(_) => Err(left_out("export", "parquet")),
        #[cfg(not(feature = "parquet"))]
        Command::Merge(_) => Err(left_out("merge", "parquet")),
        Command::Profiles(options) => profiles::run(options, session),
        Command::Schema(options) => schema::run(options, session),
        Command::Whatif(options) => captures::whatif(options, session),
        Command::Conform(options) => conform::run(options, session),
        Command::Bridge(options) => bridge::run(options, session),
        Command::Run(options) => run::run(options, session),
        Command::Config(ConfigCommand::Check(options)) => config::check(options, session),
        Command::Config(ConfigCommand::Esp(options)) => config::esp(options, session),
        #[cfg(target_os = "linux")]
        Command::Tunnel(action) => tunnel::run(action, session),
        #[cfg(not(target_os = "linux"))]
        Command::Tunnel(_) => Err(needs_linux("tunnel")),
        #[cfg(all(target_os = "linux", feature = "lab"))]
        Command::Lab(options) => lab::run(options, session),
        #[cfg(all(target_os = "linux", not(feature = "lab")))]
        Command::Lab(_) => Err(left_out("lab", "lab")),
        #[cfg(not(target_os = "linux"))]
        Command::Lab(_) => Err(needs_linux("lab")),
        #[cfg(target_os = "linux")]
        Command::Dev(options) => dev::run(options, session),
        #[cfg(target_os = "linux")]
        Command::Doctor(options) => doctor::run(options, session),
        #[cfg(target_os = "linux")]
        Command::Capture(options) => capture::run(options, session),
        #[cfg(target_os = "linux")]
        Command::Extcap(options) => capture::extcap::run(options, session),
        #[cfg(not(target_os = "linux"))]
        Command::Dev(_) => Err(needs_linux("dev")),
        #[cfg(not(target_os = "linux"))]
        Command::Doctor(_) => Err(needs_linux("doctor")),
        #[cfg(not(target_os = "linux"))]
        Command::Capture(_) => Err(needs_linux("capture")),
        #[cfg(not(target_os = "linux"))]
        Command::Extcap(_) => Err(needs_linux("extcap")),
        #[cfg(target_os = "linux")]
        Command::Stats(options) => stats::run(options, session),
        #[cfg(not(target_os = "linux"))]
        Command::Stats(_) => Err(needs_linux("stats")),
        #[cfg(all(target_os = "linux", feature = "monitor"))]
        Command::Monitor(options) => monitor::run(options, session),
        #[cfg(all(target_os = "linux", not(feature = "monitor")))]
        Command::Monitor(_) => Err(left_out("monitor", "monitor")),
        #[cfg(not(target_os = "linux"))]
        Command::Monitor(_) => Err(needs_linux("monitor")),
    }
}

/// Returns the flag that Ctrl-C sets, and that SIGTERM sets too while captures are read. Commands on devices handle
/// SIGTERM themselves.
fn interrupts(command: &Command) -> Arc<AtomicBool> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let ends_reading = command.own().reading.is_some();
    for signal in [Some(SIGINT), ends_reading.then_some(SIGTERM)].into_iter().flatten() {
        // A second signal ends the program at once. Without handlers the first one does, which is no reason to fail.
        let (code, flag) = (Exit::Interrupted as i32, Arc::clone(&interrupted));
        let _ = signal_hook::flag::register_conditional_shutdown(signal, code, flag);
        let _ = signal_hook::flag::register(signal, Arc::clone(&interrupted));
    }
    interrupted
}

/// Creates the session of a command line; reading ends early once `interrupted` is set.
fn session(arguments: &Arguments, words: &[OsString], interrupted: Arc<AtomicBool>) -> Session {
    let common = &arguments.common;
    let Own { reading, naming, strictness, detail } = arguments.command.own();
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

/// Prints a message of clap: help and version are answers, all others report a wrong command line.
fn explain_usage(error: &clap::Error, wants_json: bool) -> Exit {
    let ended = match usage::message(error) {
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

/// Returns the failure of a command that works on Linux only.
#[cfg(not(target_os = "linux"))]
fn needs_linux(command: &str) -> Failure {
    let message = format!("{command} needs Linux (this is {})", std::env::consts::OS);
    let hint = "commands on captures work here: grosso inspect, wire, csum, ...";
    Failure::environment("environment.not_linux", message).hint(hint)
}

/// Returns the failure of a command that this build lacks, with the cargo feature that adds it.
#[cfg(any(
    not(feature = "parquet"),
    all(target_os = "linux", not(all(feature = "lab", feature = "monitor")))
))]
fn left_out(command: &str, feature: &str) -> Failure {
    let message = format!("{command}: not in this build, which lacks the feature {feature}");
    let hint = format!("cargo install --locked --path crates/grosso-cli --features {feature}");
    Failure::environment("environment.left_out", message).hint(hint)
}

/// Returns the command line as typed, with the program name without its directory.
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
