//! Runs a program on all vectors, one after another, and starts a new process whenever it breaks down.

use core::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use std::{ffi::OsString, io};

use grosso_report::{error::Failure, name::harmless};

use crate::{
    fault::{Fault, Law},
    judge::judge,
    program::{Breakdown, Judged},
    report::Score,
    vectors::{Task, Vector, vectors_of},
};

/// Examines the program with the command line `words`: runs it, passes every vector for the task to it, and judges its
/// output. Each poll may take at most `timeout`. Setting `interrupted` ends the examination.
///
/// # Errors
///
/// Returns a failure if the program cannot be started, or if `interrupted` was set before the verdict.
pub fn examine(
    task: Task,
    words: &[OsString],
    timeout: Duration,
    interrupted: &AtomicBool,
) -> Result<Score, Failure> {
    let vectors = vectors_of(task)?;
    let score = Score::default();
    let mut examination =
        Examination { words, timeout, interrupted, program: None, breakdowns: 0, score };
    examination.start()?;
    for vector in &vectors {
        examination.try_vector(vector)?;
    }
    examination.finish()?;
    Ok(examination.score)
}

struct Examination<'a> {
    /// Command line of the program.
    words: &'a [OsString],
    timeout: Duration,
    interrupted: &'a AtomicBool,
    program: Option<Judged>,
    breakdowns: usize,
    score: Score,
}

impl Examination<'_> {
    fn start(&mut self) -> Result<(), Failure> {
        let words = self.words;
        let program = Judged::start(words, self.timeout);
        self.program = Some(program.map_err(|error| cannot_start(words, &error))?);
        Ok(())
    }

    /// Passes a vector to the program. If the program breaks down, it is restarted for the next vector.
    fn try_vector(&mut self, vector: &Vector) -> Result<(), Failure> {
        if self.breakdowns == BREAKDOWNS_MAX {
            self.score.leave_out();
            return Ok(());
        }
        if self.program.is_none() {
            self.start()?;
        }
        let interrupted = self.interrupted;
        let is_interrupted = || interrupted.load(Ordering::Relaxed);
        let answer = self.program.as_mut().map(|program| program.poll(vector, is_interrupted));
        let (faults, joins) = match answer {
            Some(Ok(records)) => judge(vector, &records),
            Some(Err(breakdown)) => (vec![self.broke_down(&breakdown)?], 0),
            None => return Ok(()),
        };
        self.score.add(vector, faults, joins);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Failure> {
        let interrupted = self.interrupted;
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

    /// Handles a breakdown of the program, so that the next vector starts a new process.
    fn broke_down(&mut self, breakdown: &Breakdown) -> Result<Fault, Failure> {
        self.program = None;
        if *breakdown == Breakdown::Interrupted {
            return Err(Failure::interrupted("conform: interrupted before the verdict"));
        }
        self.breakdowns += 1;
        Ok(Fault { law: Law::Program, rules: Vec::new(), text: breakdown.to_string() })
    }
}

fn cannot_start(words: &[OsString], error: &io::Error) -> Failure {
    let name = words.first().map(|name| name.to_string_lossy()).unwrap_or_default();
    let message = format!("conform: cannot start {}: {error}", harmless(&name));
    Failure::environment("environment.start", message)
        .hint("pass the program after --, for example: grosso conform -- ./mine")
}

/// Number of breakdowns after which no more vectors are tried, because each breakdown may take as long as the timeout.
const BREAKDOWNS_MAX: usize = 3;
