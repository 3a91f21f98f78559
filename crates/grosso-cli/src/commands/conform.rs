//! `grosso conform`: the judgment on a coalescer that is another program.

use std::{io, sync::atomic::Ordering};

use crate::{
    arguments::Conform,
    conform::{Breakdown, Fault, Judged, Law, Vector, judge, vectors},
    error::{Exit, Failure},
    input::Session,
    name::harmless,
    report::{self, Place, Tool},
    reports::conform::{ConformReport, Score},
};

/// Runs the command.
pub(crate) fn run(options: &Conform, session: &mut Session) -> Result<Exit, Failure> {
    let vectors = vectors()?;
    let mut examination =
        Examination { options, session, program: None, breakdowns: 0, score: Score::default() };
    examination.start()?;
    for vector in &vectors {
        examination.try_vector(vector)?;
    }
    examination.finish()?;
    let score = examination.score;
    let words = options.command.iter().map(|word| word.to_string_lossy().into_owned());
    let mut report = ConformReport {
        schema: ConformReport::FORM.name,
        tool: Tool::THIS,
        command: words.collect(),
        score,
        warnings: Vec::new(),
        is_long: session.talk.verbose,
    };
    let is_no = report.score.is_wrong() || (session.strict && !report.score.joins_all());
    report::print(&mut report, &mut session.talk, Place::Standard)?;
    Ok(if is_no { Exit::No } else { Exit::Yes })
}

struct Examination<'a> {
    options: &'a Conform,
    session: &'a Session,
    program: Option<Judged>,
    breakdowns: usize,
    score: Score,
}

impl Examination<'_> {
    fn start(&mut self) -> Result<(), Failure> {
        let words = &self.options.command;
        let program = Judged::start(words, self.options.time());
        self.program =
            Some(program.map_err(|error| cannot_start(&words[0].to_string_lossy(), &error))?);
        Ok(())
    }

    /// Gives the program a vector, after a breakdown a new one.
    fn try_vector(&mut self, vector: &Vector) -> Result<(), Failure> {
        if self.breakdowns == BREAKDOWNS_MAX {
            self.score.leave_out();
            return Ok(());
        }
        if self.program.is_none() {
            self.start()?;
        }
        let interrupted = &self.session.interrupted;
        let is_interrupted = || interrupted.load(Ordering::Relaxed);
        let answer =
            self.program.as_mut().map(|program| program.poll(&vector.frames, is_interrupted));
        let (faults, joins) = match answer {
            Some(Ok(records)) => judge(vector, &records),
            Some(Err(breakdown)) => (vec![self.broke_down(&breakdown)?], 0),
            None => return Ok(()),
        };
        self.score.add(vector, faults, joins);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Failure> {
        let interrupted = &self.session.interrupted;
        let ended = self
            .program
            .take()
            .map(|program| program.finish(|| interrupted.load(Ordering::Relaxed)));
        if let Some(Err(breakdown)) = ended {
            let fault = self.broke_down(&breakdown)?;
            self.score.add_at_the_end(fault);
        }
        Ok(())
    }

    /// Drops a program that broke down.
    fn broke_down(&mut self, breakdown: &Breakdown) -> Result<Fault, Failure> {
        self.program = None;
        if *breakdown == Breakdown::Interrupted {
            return Err(Failure::interrupted("conform: interrupted before the verdict"));
        }
        self.breakdowns += 1;
        Ok(Fault { law: Law::Program, rules: Vec::new(), text: breakdown.to_string() })
    }
}

fn cannot_start(name: &str, error: &io::Error) -> Failure {
    let message = format!("conform: cannot start {}: {error}", harmless(name));
    Failure::environment("environment.start", message)
        .hint("pass the program after --: grosso conform -- ./mine")
}

/// Breakdowns after which no further vector is tried: each may cost the whole time of a poll.
const BREAKDOWNS_MAX: usize = 3;
