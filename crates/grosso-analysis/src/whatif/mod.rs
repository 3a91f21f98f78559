//! `grosso whatif`: predicts the effect of profiles, resequencing and hold times on the traffic in a capture.
//!
//! The capture is read once, and each packet goes through one replay per setting. The settings are independent of each
//! other, so the report does not depend on the number of threads. Replays on the same thread do not copy the packets
//! that they hold, but share them.

mod crew;
mod meter;
mod trial;

use std::path::{Path, PathBuf};

use grosso::Profile;
use grosso_capture::Entry;
use grosso_sys::path;

use self::crew::Crew;
use crate::{
    capture::{
        CaptureCommand, End, EndWording, Files, Input, Next, OUTPUT_MODE, Outcome, Session,
        Unparsed, note_others, refuse_input, survey,
    },
    error::Failure,
    evidence::Given,
    name::{Name, quoted, shown},
    replay::{
        Batch, Bounds, FlowReplay, HoldTime, Purpose, Repair, Rules, Seen, Streams,
        note_blind_flows,
    },
    report::Place,
    reports::whatif::{Best, Disorder, NOT_KNOWN, Offered, Setting, WhatifReport},
    slowdown::{Connections, Slowdowns},
    units,
};

/// Options for `grosso whatif`, which compares all combinations of profile, resequencing and hold time on the traffic
/// in a capture.
#[derive(Debug)]
pub struct Whatif {
    /// Names or files of profiles; `all` stands for every built-in profile.
    pub profiles: Vec<String>,
    /// Hold times of trains.
    pub holds: Vec<HoldTime>,
    /// Resequencing settings. If empty, the profiles' settings are used.
    pub repairs: Vec<Repair>,
    /// Rule that ends a poll.
    pub batch: Batch,
    /// Limits that override those of the profiles.
    pub bounds: Bounds,
    /// Assumptions about facts that the capture does not record.
    pub given: Given,
    /// Number of threads that replay the capture, besides the thread that reads it. With 1,
    /// the reading thread also replays, and no other thread is started.
    pub jobs: u16,
    /// File for an HTML page with plots.
    pub html: Option<PathBuf>,
    /// Empty table of TCP connections that already knows which flows to list. Their trains are formed with the first
    /// setting.
    pub connections: Connections,
}

impl Whatif {
    /// Profiles compared by default.
    pub const PROFILES: &str = "linux,linux-8x8,freebsd,rsc-82599";
    /// Hold times compared by default.
    pub const HOLDS: &str = "0,2us,16us,20us,50us,100us,1ms,auto";
    /// Default rule for ending a poll.
    pub const BATCH: &str = "5us";

    /// Checks that there are not too many combinations.
    ///
    /// # Errors
    /// Fails if the combinations exceed the limit.
    pub fn check(&self) -> Result<(), Failure> {
        match settings(self).len() {
            0..=SETTINGS_MAX => Ok(()),
            settings => {
                let message =
                    format!("too many combinations: {settings}; the limit is {SETTINGS_MAX}");
                Err(Failure::usage("usage.settings", message))
            }
        }
    }
}

impl CaptureCommand for Whatif {
    type Report = WhatifReport;

    fn run(mut self, files: Files, session: &Session) -> Result<Outcome<WhatifReport>, Failure> {
        self.check()?;
        let mut streams = Streams::new(std::mem::take(&mut self.connections));
        let options = &self;
        let rules = settings(options);
        let mut flows = match rules.first() {
            Some(first) => FlowReplay::listing(first, &mut streams.connections)?,
            None => None,
        };
        let mut judge = survey(&files.captures, self.given, session)?;
        let mut input = files.input(session)?;
        if let Some(page) = &options.html {
            refuse_input(&input, page, &shown(page))?;
        }
        let mut crew =
            Crew::new(rules.into_iter().chain(ordered(options)).collect(), options.jobs)?;
        let mut offered = Offered::default();
        let mut unparsed = Unparsed::default();
        let links = input.links;
        let ending = input.each(|entry| {
            match entry {
                Entry::Packet(packet) => {
                    let seen = Seen::of(packet, links, Purpose::Looks, &mut judge);
                    offered.count(packet, seen.meta.gso.as_ref());
                    crew.push(&seen);
                    let mark = streams.observe(packet, &seen, &judge);
                    if let Some(flows) = &mut flows {
                        flows.push(&seen, mark, &mut streams.connections);
                    }
                    if seen.link.is_none() {
                        unparsed.count(packet);
                    }
                }
                Entry::Block(block) if block.is_section_header() => {
                    crew.end_section();
                    if let Some(flows) = &mut flows {
                        flows.finish(&mut streams.connections);
                    }
                }
                Entry::Block(_) => {}
            }
            Ok(Next::Go)
        })?;
        if let Some(flows) = &mut flows {
            flows.finish(&mut streams.connections);
        }
        let slowdown = streams.conclude();
        let mut report = report(options, &input, offered, crew.finish()?, slowdown);
        // The report is shown even if the page cannot be written, because processing a long capture takes time.
        let written = options.html.as_deref().map_or(Ok(()), |page| {
            report.html = Some(Name::of(page));
            write_page(&mut report, page, session)
        });
        report.elapsed_s = session.elapsed_s();
        note_superframes(&report, session);
        let blind_flows = report.settings.iter().map(|setting| setting.blind_flows).max();
        note_blind_flows(blind_flows.unwrap_or(0), session);
        let end = End::new(ending, unparsed, input, EndWording::PROCESSED);
        let end = end.bytes(report.input.bytes).failure(written.err());
        Ok(Outcome { report, place: Place::Standard, end })
    }
}

fn write_page(report: &mut WhatifReport, page: &Path, session: &Session) -> Result<(), Failure> {
    note_others(page, session);
    let text = report.page(&session.command_line);
    path::write(page, text.as_bytes(), OUTPUT_MODE).map_err(|error| {
        report.html = None;
        let message = format!("whatif: {}: {error}", shown(page));
        Failure::environment("environment.write", message)
    })
}

/// Returns the rules for every setting, ordered by profile, then resequencing, then hold time.
fn settings(options: &Whatif) -> Vec<Rules> {
    let is_all = options.profiles.iter().any(|name| name == "all");
    let names: Vec<String> = if is_all {
        Profile::all().iter().map(|profile| profile.name.to_string()).collect()
    } else {
        options.profiles.clone()
    };
    let repairs: Vec<Option<Repair>> = match &options.repairs[..] {
        [] => vec![None],
        repairs => repairs.iter().copied().map(Some).collect(),
    };
    let mut settings = Vec::new();
    for (name, &reorder) in names.iter().flat_map(|name| repairs.iter().map(move |r| (name, r))) {
        settings.extend(options.holds.iter().map(|&hold| Rules {
            profile: name.clone(),
            batch: options.batch,
            hold: Some(hold),
            reorder,
            bounds: options.bounds.clone(),
        }));
    }
    settings
}

/// Returns the rules for an extra trial: the first setting, with resequencing within a poll. The trial shows whether
/// reordering prevents merging.
fn ordered(options: &Whatif) -> Option<Rules> {
    let first = settings(options).into_iter().next()?;
    options.repairs.is_empty().then_some(Rules { reorder: Some(Repair::BATCH), ..first })
}

fn report(
    options: &Whatif,
    input: &Input,
    offered: Offered,
    mut settings: Vec<Setting>,
    slowdown: Slowdowns,
) -> WhatifReport {
    let command = |setting: &Setting| command(options, input, setting);
    let ordered = ordered(options).and_then(|_| settings.pop());
    let disorder = ordered.and_then(|ordered| Disorder::of(settings.first()?, &ordered, command));
    let best = Best::of(&settings, input.reader.packets(), command);
    WhatifReport {
        input: input.facts(offered.bytes),
        offered,
        batch: options.batch.to_string(),
        settings,
        best,
        disorder,
        slowdown,
        not_known: NOT_KNOWN,
        html: None,
        elapsed_s: 0.0,
    }
}

/// Returns the command that applies a setting to the capture.
fn command(options: &Whatif, input: &Input, setting: &Setting) -> String {
    let mut words = ["grosso", "coalesce"].map(String::from).to_vec();
    words.extend(input.typed());
    words.extend(["-w", "gro.pcapng"].map(String::from));
    if setting.profile != Profile::default().name {
        words.extend(["--profile".into(), setting.profile.clone()]);
    }
    words.extend(["--hold".into(), setting.hold.clone()]);
    if !options.repairs.is_empty() || setting.reorder == Repair::BATCH.to_string() {
        words.extend(["--reorder".into(), setting.reorder.clone()]);
    }
    words.extend(["--batch".into(), options.batch.to_string()]);
    words.extend(options.bounds.words());
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

fn note_superframes(report: &WhatifReport, session: &Session) {
    let superframes = report.offered.superframes;
    if superframes == 0 {
        return;
    }
    let superframes = units::count(superframes, "superframe");
    session.note(format!(
        "the capture already has {superframes}: the capturing host merged received packets, or had \
         not yet split its own superframes"
    ));
    let input = report.input.words();
    session.hint(&format!("grosso wire {input} -w - | grosso whatif -r -"));
}

/// Maximum number of settings. Each has tables of several hundred kilobytes.
const SETTINGS_MAX: usize = 256;
