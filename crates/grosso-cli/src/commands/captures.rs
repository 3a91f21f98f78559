//! Commands that process captures. Each command converts its arguments to library options, and prints the result.

#[cfg(feature = "parquet")]
use grosso_analysis::export;
use grosso_analysis::{
    capture::{CaptureCommand, Files, random_seed},
    convert, explain, inspect, whatif,
};

use crate::{
    arguments as args,
    error::{Exit, Failure},
    report,
    session::Session,
    tunnel::{self, Description},
};

/// Runs a command, prints its report, and returns the exit code.
fn run<C: CaptureCommand>(
    command: C,
    files: Files,
    session: &mut Session,
) -> Result<Exit, Failure> {
    let outcome = command.run(files, &session.reading)?;
    report::print(&outcome.report, &session.talk, outcome.place)?;
    if let Some((packets, bytes)) = outcome.end.work() {
        report::remark_rate(&session.talk, packets, bytes, session.reading.observer.elapsed());
    }
    outcome.end.conclude(&session.reading)
}

pub(super) fn inspect(options: &args::Inspect, session: &mut Session) -> Result<Exit, Failure> {
    let given = options.known.given()?;
    let connections = options.listed.connections(&options.captures)?;
    let files = options.captures.files("inspect", session)?;
    run(inspect::Inspect { given, connections }, files, session)
}

pub(super) fn coalesce(options: &args::Coalesce, session: &mut Session) -> Result<Exit, Failure> {
    let connections = options.listed.connections(&options.files.captures)?;
    let files = options.files.files("coalesce", session)?;
    let (given, rules) = (options.known.given()?, options.rules.rules());
    run(convert::Coalesce { given, rules, connections }, files, session)
}

pub(super) fn segment(options: &args::Segment, session: &mut Session) -> Result<Exit, Failure> {
    let files = options.files.files("segment", session)?;
    run(convert::Segment { given: options.known.given()? }, files, session)
}

pub(super) fn wire(options: &args::Wire, session: &mut Session) -> Result<Exit, Failure> {
    let files = options.files.files("wire", session)?;
    run(convert::Wire { given: options.known.given()?, spacing: options.ts }, files, session)
}

pub(super) fn reassemble(
    options: &args::Reassemble,
    session: &mut Session,
) -> Result<Exit, Failure> {
    let files = options.files.files("reassemble", session)?;
    let command = convert::Reassemble {
        ports: options.tunnels.ports(),
        waiting: (&options.waiting).into(),
        lists_all: session.talk.verbose,
    };
    run(command, files, session)
}

pub(super) fn decap(options: &args::Decap, session: &mut Session) -> Result<Exit, Failure> {
    let files = options.files.files("decap", session)?;
    let command = convert::Decap {
        given: options.known.given()?,
        waiting: (&options.waiting).into(),
        recursive: options.recursive,
        lists_all: session.talk.verbose,
    };
    run(command, files, session)
}

pub(super) fn encap(options: &args::Encap, session: &mut Session) -> Result<Exit, Failure> {
    let (captures, words) = options.files.captures.split_at("type");
    let description = describe(&words)?;
    let files = Files { target: options.files.target(), ..captures.files("encap", session)? };
    let command = convert::Encap {
        given: options.known.given()?,
        summary: description.summary(),
        words: description.to_string(),
        endpoint: description.endpoint,
        seed: options.seed.unwrap_or_else(random_seed),
    };
    run(command, files, session)
}

pub(super) fn fragment(options: &args::Fragment, session: &mut Session) -> Result<Exit, Failure> {
    let files = options.files.files("fragment", session)?;
    let command = convert::Fragment {
        given: options.sizes.given(),
        mtu: options.mtu,
        ignores_df: options.ignore_df,
        seed: options.seed.unwrap_or_else(random_seed),
    };
    run(command, files, session)
}

pub(super) fn csum(command: &args::Csum, session: &mut Session) -> Result<Exit, Failure> {
    match command {
        args::Csum::Verify(options) => verify(options, session),
        args::Csum::Fix(options) => fix(options, session),
    }
}

fn verify(options: &args::CsumVerify, session: &mut Session) -> Result<Exit, Failure> {
    let files = options.captures.files("csum verify", session)?;
    let rows_max = match (session.talk.json, session.talk.verbose) {
        (_, true) => convert::Verify::rows_of_json(true),
        (true, false) => convert::Verify::rows_of_json(false),
        (false, false) => ROWS_TEXT,
    };
    run(convert::Verify { given: options.known.given()?, rows_max }, files, session)
}

fn fix(options: &args::CsumFix, session: &mut Session) -> Result<Exit, Failure> {
    let files = options.files.files("csum fix", session)?;
    run(convert::Fix { given: options.known.given()?, only: options.only }, files, session)
}

pub(super) fn explain(options: &args::Explain, session: &mut Session) -> Result<Exit, Failure> {
    let (files, number) = options.asked(session)?;
    let (given, rules) = (options.known.given()?, options.rules.rules());
    run(explain::Explain { number, given, rules }, files, session)
}

pub(super) fn whatif(options: &args::Whatif, session: &mut Session) -> Result<Exit, Failure> {
    let mut command = whatif::Whatif {
        profiles: options.profile.clone(),
        holds: options.hold.clone(),
        repairs: options.reorder.clone(),
        batch: options.batch,
        bounds: options.bounds.bounds(),
        given: Default::default(),
        jobs: options.jobs,
        html: options.html.clone(),
        connections: options.listed.connections(&options.captures)?,
    };
    command.check()?;
    let files = options.captures.files("whatif", session)?;
    command.given = options.known.given()?;
    run(command, files, session)
}

#[cfg(feature = "parquet")]
pub(super) fn export(options: &args::Export, session: &mut Session) -> Result<Exit, Failure> {
    let mut command = export::Export {
        parquet: options.parquet.clone(),
        trains: options.trains.clone(),
        flows: options.flows.clone(),
        shard: options.shard,
        given: Default::default(),
        rules: options.rules.rules(),
    };
    command.check()?;
    let files = options.captures.files("export", session)?;
    command.given = options.known.given()?;
    run(command, files, session)
}

#[cfg(feature = "parquet")]
pub(super) fn merge(options: &args::Merge, session: &mut Session) -> Result<Exit, Failure> {
    let merged = export::merge(&options.reports)?;
    report::print_bare(&merged, &session.talk, report::Place::Standard)?;
    Ok(Exit::Yes)
}

/// Returns the tunnel described by arguments such as `type vxlan id 42 local ...`.
fn describe(words: &[String]) -> Result<Description, Failure> {
    match words.split_first() {
        Some((_type, words)) => {
            let description = tunnel::describe("encap", words)?;
            match description.forwarding {
                None => Ok(description),
                Some(_) => {
                    let message = "encap: several remotes require a tunnel that learns addresses";
                    let hint = "encap sends all packets to one endpoint: pass one remote";
                    Err(Failure::usage("usage.tunnel", message).hint(hint))
                }
            }
        }
        None => {
            let message = "encap: no tunnel type";
            let hint = "pass a tunnel: type vxlan id 42 local 192.0.2.1 remote 192.0.2.2";
            Err(Failure::usage("usage.tunnel", message).hint(hint))
        }
    }
}

/// Maximum number of checksums that `csum verify` lists in its text report.
const ROWS_TEXT: usize = 20;
