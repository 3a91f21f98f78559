//! Replays the capture with every setting, on one or more threads.
//!
//! Each thread runs all packets through its share of the settings, so the results do not depend on the number of
//! threads. All threads read the same batches of packets. A slow thread blocks the reader.

use std::{
    panic::resume_unwind,
    sync::{
        Arc,
        mpsc::{SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
};

use super::{meter::Kept, trial::Trial};
use crate::{
    error::Failure,
    replay::{Rules, Seen},
    reports::whatif::Setting,
};

/// Replays of all settings, on one or more threads.
pub(super) enum Crew {
    /// A single thread does all the work.
    Alone(Vec<Trial>),
    Many {
        workers: Vec<Worker>,
        batch: Vec<Step>,
        /// Total length of the packets in the batch, in bytes.
        bytes: usize,
        settings: usize,
    },
}

/// Thread that handles a share of the settings.
pub(super) struct Worker {
    steps: SyncSender<Arc<Vec<Step>>>,
    /// Results, with the indices of their settings.
    thread: JoinHandle<Result<Vec<(usize, Setting)>, Failure>>,
}

/// Input to all replays.
pub(super) enum Step {
    Packet(Kept),
    /// End of a capture section.
    Section,
}

impl Crew {
    /// Creates the replays, and starts at most `jobs` threads in addition to the reader. If `jobs` is 1, no thread is
    /// started.
    ///
    /// # Errors
    /// Fails if a setting is invalid or a thread cannot be started.
    pub(super) fn new(rules: Vec<Rules>, jobs: u16) -> Result<Self, Failure> {
        let jobs = usize::from(jobs).min(rules.len());
        let trials: Result<Vec<Trial>, Failure> = rules.iter().cloned().map(Trial::new).collect();
        let trials = trials?;
        if jobs < 2 {
            return Ok(Self::Alone(trials));
        }
        let settings = rules.len();
        let share = |job: usize| rules.iter().cloned().enumerate().skip(job).step_by(jobs);
        let workers: Result<Vec<Worker>, Failure> =
            (0..jobs).map(|job| Worker::start(share(job).collect())).collect();
        Ok(Self::Many { workers: workers?, batch: Vec::new(), bytes: 0, settings })
    }

    /// Passes a packet to all replays.
    pub(super) fn push(&mut self, seen: &Seen<'_>) {
        match self {
            Self::Alone(trials) => {
                let kept = Kept::of(seen);
                trials.iter_mut().for_each(|trial| trial.push(&kept));
            }
            Self::Many { .. } => self.step(Step::Packet(Kept::of(seen))),
        }
    }

    /// Ends a section of the capture.
    pub(super) fn end_section(&mut self) {
        match self {
            Self::Alone(trials) => trials.iter_mut().for_each(Trial::finish),
            Self::Many { .. } => self.step(Step::Section),
        }
    }

    /// Ends the capture. Returns the results in the order of the settings.
    ///
    /// # Errors
    /// Fails if a setting has become invalid since [`Self::new`], for example because a profile file changed.
    pub(super) fn finish(mut self) -> Result<Vec<Setting>, Failure> {
        self.end_section();
        self.send();
        match self {
            Self::Alone(trials) => Ok(trials.into_iter().map(Trial::result).collect()),
            Self::Many { workers, settings, .. } => {
                let mut results = Vec::with_capacity(settings);
                for Worker { steps, thread } in workers {
                    drop(steps);
                    results.extend(thread.join().unwrap_or_else(|panic| resume_unwind(panic))?);
                }
                results.sort_by_key(|(place, _)| *place);
                Ok(results.into_iter().map(|(_, setting)| setting).collect())
            }
        }
    }

    fn step(&mut self, step: Step) {
        let Self::Many { batch, bytes, .. } = self else { return };
        if let Step::Packet(kept) = &step {
            *bytes += kept.len();
        }
        batch.push(step);
        if batch.len() >= BATCH_STEPS || *bytes >= BATCH_BYTES {
            self.send();
        }
    }

    fn send(&mut self) {
        let Self::Many { workers, batch, bytes, .. } = self else { return };
        *bytes = 0;
        let full = Arc::new(core::mem::take(batch));
        for worker in workers {
            // If a thread has ended, `join` returns the reason.
            let _ = worker.steps.send(Arc::clone(&full));
        }
    }
}

impl Worker {
    fn start(rules: Vec<(usize, Rules)>) -> Result<Self, Failure> {
        let (steps, incoming) = sync_channel::<Arc<Vec<Step>>>(BATCHES);
        let work = move || {
            let mut trials = Vec::with_capacity(rules.len());
            for (place, rules) in rules {
                trials.push((place, Trial::new(rules)?));
            }
            for batch in incoming {
                for step in &*batch {
                    match step {
                        Step::Packet(kept) => {
                            trials.iter_mut().for_each(|(_, trial)| trial.push(kept));
                        }
                        Step::Section => trials.iter_mut().for_each(|(_, trial)| trial.finish()),
                    }
                }
            }
            Ok(trials.into_iter().map(|(place, trial)| (place, trial.result())).collect())
        };
        let thread = thread::Builder::new().name("whatif".into()).spawn(work);
        let thread = thread.map_err(|error| {
            let message = format!("whatif: cannot start the threads for --jobs: {error}");
            Failure::environment("environment.thread", message).hint("--jobs 1 starts no threads")
        })?;
        Ok(Self { steps, thread })
    }
}

/// Maximum number of steps in a batch.
const BATCH_STEPS: usize = 512;
/// Total packet length in bytes at which a batch is full.
const BATCH_BYTES: usize = 1 << 20;
/// Maximum number of batches waiting for a thread.
const BATCHES: usize = 4;
