//! Handles a call: takes its options, and runs its command.

use std::{path::PathBuf, sync::Arc};

use serde::Serialize;

use super::{
    Call, Options,
    groups::{bounds, connections, given, ports, rules, sizes, target, text, waiting},
};
use crate::{
    capture::{CaptureCommand, Captures, Files, Session, Target, random_seed},
    convert,
    error::Failure,
    explain::Explain,
    facade::{Capture, observed},
    inspect::Inspect,
    replay::{Batch, HoldTime, Repair},
    report::Envelope,
    reports::profiles,
    values::{CHECKSUMS, JOBS, MTU, choose, parse_link, parse_spacing, whole},
    whatif::Whatif,
};
#[cfg(feature = "tables")]
use crate::{
    export::{Export, merge},
    shard::Shard,
    values::parse_flow_file,
};

/// Call whose options are taken one by one.
pub(super) struct Request {
    command: String,
    files: Vec<PathBuf>,
    options: Options,
    session: Session,
    target: Target,
    verbose: bool,
}

impl Request {
    pub(super) fn of(call: &Call) -> Self {
        let Call { command, files, options, command_line, interrupted } = call;
        let session = Session {
            interrupted: Arc::clone(interrupted),
            command_line: command_line.clone(),
            ..Session::default()
        };
        Self {
            command: command.clone(),
            files: files.clone(),
            options: Options::new(command, options),
            session,
            target: Target::default(),
            verbose: false,
        }
    }

    /// Runs the command, and returns its report as JSON.
    pub(super) fn report(mut self) -> Result<String, Failure> {
        let name = self.command.clone();
        let options = &mut self.options;
        match name.as_str() {
            "inspect" => {
                let command = self.inspect()?;
                self.run(command)
            }
            "coalesce" => {
                let command = self.coalesce()?;
                self.run(command)
            }
            "segment" => {
                let command = convert::Segment { given: given(options)? };
                self.writes()?;
                self.run(command)
            }
            "wire" => {
                let spacing = options.one("ts", parse_spacing)?.unwrap_or_default();
                let command = convert::Wire { given: given(options)?, spacing };
                self.writes()?;
                self.run(command)
            }
            "reassemble" => {
                let (ports, waiting) = (ports(options)?, waiting(options)?);
                self.writes()?;
                self.detail()?;
                let lists_all = self.verbose;
                self.run(convert::Reassemble { ports, waiting, lists_all })
            }
            "decap" => {
                let (given, waiting) = (given(options)?, waiting(options)?);
                let recursive = options.flag("recursive")?;
                self.writes()?;
                self.detail()?;
                let lists_all = self.verbose;
                self.run(convert::Decap { given, waiting, recursive, lists_all })
            }
            "fragment" => {
                let command = convert::Fragment {
                    given: sizes(options)?,
                    ignores_df: options.flag("ignore-df")?,
                    seed: options.one("seed", whole(0..=u64::MAX))?.unwrap_or_else(random_seed),
                    mtu: options
                        .one("mtu", whole(MTU))?
                        .ok_or_else(|| Failure::usage("usage", "fragment: missing --mtu"))?,
                };
                self.writes()?;
                self.run(command)
            }
            "csum fix" => {
                let only = options.one("only", |text| choose(CHECKSUMS, text))?.unwrap_or_default();
                let command = convert::Fix { given: given(options)?, only };
                self.writes()?;
                self.run(command)
            }
            "csum verify" => {
                let given = given(options)?;
                self.hashes()?;
                self.is_strict()?;
                self.detail()?;
                let rows_max = convert::Verify::rows_of_json(self.verbose);
                self.run(convert::Verify { given, rows_max })
            }
            "explain" => {
                let number = options.one("number", whole(1u64..))?;
                let (given, rules) = (given(options)?, rules(options)?);
                let number = match number {
                    Some(number) => number,
                    None => self.split_number()?,
                };
                self.run(Explain { number, given, rules })
            }
            "whatif" => {
                let command = Whatif {
                    profiles: options.list("profile", Whatif::PROFILES, text)?,
                    holds: options.list("hold", Whatif::HOLDS, HoldTime::parse)?,
                    repairs: options.list("reorder", "", Repair::parse)?,
                    batch: options.one_from("batch", Whatif::BATCH, Batch::parse)?,
                    bounds: bounds(options)?,
                    given: given(options)?,
                    jobs: options.one("jobs", whole(JOBS))?.unwrap_or(1),
                    html: options.one("html", text)?.map(Into::into),
                    connections: connections(options)?,
                };
                command.check()?;
                self.hashes()?;
                self.run(command)
            }
            #[cfg(feature = "tables")]
            "export" => {
                let command = Export {
                    parquet: options.one("parquet", text)?.map(Into::into),
                    trains: options.one("trains", text)?.map(Into::into),
                    flows: options.one("flows", parse_flow_file)?,
                    shard: options.one_from("shard", Shard::ONLY, Shard::parse)?,
                    given: given(options)?,
                    rules: rules(options)?,
                };
                self.hashes()?;
                command.check()?;
                self.run(command)
            }
            #[cfg(feature = "tables")]
            "merge" => {
                options.finish()?;
                to_json(&merge(&self.files)?)
            }
            "profiles" => {
                options.finish()?;
                to_json(&Envelope::new(profiles::list(), Vec::new()))
            }
            _ => Err(Failure::usage("usage", format!("no command {name}"))),
        }
    }

    /// Takes the options of `inspect`.
    pub(super) fn inspect(&mut self) -> Result<Inspect, Failure> {
        self.hashes()?;
        let options = &mut self.options;
        Ok(Inspect { given: given(options)?, connections: connections(options)? })
    }

    /// Takes the options of `coalesce`.
    pub(super) fn coalesce(&mut self) -> Result<convert::Coalesce, Failure> {
        self.hashes()?;
        self.target = target(&mut self.options)?;
        let options = &mut self.options;
        Ok(convert::Coalesce {
            given: given(options)?,
            rules: rules(options)?,
            connections: connections(options)?,
        })
    }

    /// Takes the options for reading, and finds the captures.
    ///
    /// # Errors
    /// Fails if an option is left over, or if a capture cannot be read.
    pub(super) fn open(mut self) -> Result<Capture, Failure> {
        let options = &mut self.options;
        let filter = options.one("filter", text)?.filter(|text| !text.trim().is_empty());
        self.session.forced_link = options.one("linktype", parse_link)?;
        self.session.allow_truncated = options.flag("allow-truncated")?;
        options.finish()?;
        let (session, notes) = observed(self.session);
        if self.files.is_empty() {
            let message = format!("{}: no input file", self.command);
            return Err(Failure::usage("usage.input", message).hint("pass a capture"));
        }
        let captures = Captures::find(&self.files, filter, &self.command, &session)?;
        Ok(Capture { files: Files { captures, target: self.target }, session, notes })
    }

    fn run<C: CaptureCommand>(self, command: C) -> Result<String, Failure> {
        to_json(&self.open()?.run(command)?)
    }

    /// Takes the options of a command that writes a capture and may guess segment sizes.
    fn writes(&mut self) -> Result<(), Failure> {
        self.target = target(&mut self.options)?;
        self.hashes()?;
        self.is_strict()
    }

    fn hashes(&mut self) -> Result<(), Failure> {
        self.session.names_hash = self.options.flag("hash")?;
        Ok(())
    }

    fn is_strict(&mut self) -> Result<(), Failure> {
        self.session.strict = self.options.flag("strict")?;
        Ok(())
    }

    fn detail(&mut self) -> Result<(), Failure> {
        self.verbose = self.options.flag("verbose")?;
        Ok(())
    }

    /// Removes the packet number, which is the last entry in the list of files.
    fn split_number(&mut self) -> Result<u64, Failure> {
        let last = self.files.pop().and_then(|word| word.to_str()?.parse().ok());
        last.filter(|number| *number > 0).ok_or_else(|| {
            let message = format!("{}: no packet number", self.command);
            Failure::usage("usage.packet", message).hint("packet numbers start at 1")
        })
    }
}

/// Returns a report as JSON.
fn to_json(report: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(report).map_err(|error| Failure::internal(error.to_string()))
}
