//! Interface for programs that analyze captures.

use core::time::Duration;
use std::{cell::RefCell, path::Path, rc::Rc, sync::Arc, time::Instant};

use crate::{
    capture::{CaptureCommand, Captures, Files, Observer, Session, Target},
    convert::Wire,
    error::{Failure, without_numbers},
    evidence::Given,
    inspect::Inspect,
    replay::Rules,
    report::{Envelope, notes},
    reports::{inspect::InspectReport, wire::WireReport},
    tables::{TrainRow, Visit, visit_trains},
};

/// One capture, or several that are read as one.
///
/// ```
/// use grosso_analysis::Capture;
///
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/captures/host.pcap");
/// let report = Capture::open(path)?.classify()?;
/// assert!(!report.verdict.wire_faithful);
/// for size in &report.superframes.mss {
///     println!("segments of {} bytes, by {}", size.bytes, size.source.code());
/// }
/// # Ok::<(), grosso_report::error::Failure>(())
/// ```
pub struct Capture {
    pub(crate) files: Files,
    pub(crate) session: Session,
    pub(crate) notes: Rc<Notes>,
}

/// Notes collected while reading a capture. They become the warnings in the report.
pub(crate) struct Notes {
    texts: RefCell<Vec<String>>,
    /// Time at which the command started; `None` on a target without a clock.
    started: Option<Instant>,
}

impl Observer for Notes {
    fn note(&self, text: String) {
        self.texts.borrow_mut().push(without_numbers(text));
    }

    fn elapsed(&self) -> Duration {
        self.started.map(|started| started.elapsed()).unwrap_or_default()
    }
}

impl Capture {
    /// Finds a capture, or all captures in a directory. The latter are read as one, in order of time.
    ///
    /// # Errors
    /// Fails if the path cannot be read, or is a directory without captures.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Failure> {
        let (session, notes) = observed(Session::default());
        let captures = Captures::find(&[path.as_ref().into()], None, "open", &session)?;
        Ok(Self::of(captures, session, notes))
    }

    /// Creates the input from a capture in memory. Reports refer to it as `name`.
    pub fn from_bytes(name: &str, bytes: impl Into<Arc<[u8]>>) -> Self {
        let (session, notes) = observed(Session::default());
        Self::of(Captures::from_bytes(name, bytes), session, notes)
    }

    /// Finds the captures in a directory, which can then be read one by one. Other files are skipped.
    ///
    /// # Errors
    /// Fails if the directory cannot be read, or has no captures.
    pub fn each_in(directory: impl AsRef<Path>) -> Result<Vec<Self>, Failure> {
        let found = Self::open(directory)?;
        let each = found.files.captures.split().map(|captures| {
            let (session, notes) = observed(Session::default());
            Self::of(captures, session, notes)
        });
        Ok(each.collect())
    }

    /// Sets the file to which a conversion writes. Without it, the conversion only returns its report.
    pub fn write_to(mut self, path: impl AsRef<Path>) -> Self {
        self.files.target = Target { path: Some(path.as_ref().into()), format: None };
        self
    }

    /// Returns the path of the capture, or of the first one if there are several.
    pub fn path(&self) -> &Path {
        self.files.captures.first_path()
    }

    /// Classifies the capture: reports whether it shows the packets as they were on the wire, and the evidence if it
    /// does not.
    ///
    /// # Errors
    /// Fails if the capture cannot be read to its end.
    pub fn classify(self) -> Result<Envelope<InspectReport>, Failure> {
        self.run(Inspect::default())
    }

    /// Converts the capture to the packets as they were on the wire.
    ///
    /// ```
    /// use grosso_analysis::{Capture, convert::Wire};
    ///
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/captures/host.pcap");
    /// let report = Capture::open(path)?.wire(Wire::default())?;
    /// assert!(report.superframes.split > 0);
    /// assert!(report.output.packets > report.input.packets);
    /// # Ok::<(), grosso_report::error::Failure>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the capture cannot be read to its end, or the output cannot be written.
    pub fn wire(self, options: Wire) -> Result<Envelope<WireReport>, Failure> {
        self.run(options)
    }

    /// Visits the trains that a receiving host with this profile would form from the capture. Every packet is in
    /// exactly one train. Reading stops early if `visit` returns `false`.
    ///
    /// ```
    /// use grosso_analysis::Capture;
    ///
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/captures/iperf3.pcapng");
    /// let mut packets = 0;
    /// Capture::open(path)?.trains("linux", |train| {
    ///     packets += train.numbers.len();
    ///     true
    /// })?;
    /// assert!(packets > 0);
    /// # Ok::<(), grosso_report::error::Failure>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the profile does not exist, or if the capture cannot be read to its end.
    pub fn trains(
        self,
        profile: &str,
        visit: impl FnMut(TrainRow<'_>) -> bool,
    ) -> Result<(), Failure> {
        let rules = Rules { profile: profile.into(), ..Rules::default() };
        let (captures, mut visit) = (&self.files.captures, EachTrain(visit));
        visit_trains(captures, Given::default(), &rules, &self.session, &mut visit)
    }

    /// Runs a command on the capture. Notes made while reading become the warnings in the report.
    ///
    /// # Errors
    /// Fails if the command fails, or if the capture is damaged.
    pub fn run<C: CaptureCommand>(self, command: C) -> Result<Envelope<C::Report>, Failure> {
        let outcome = command.run(self.files, &self.session)?;
        let mut warnings = self.notes.texts.take();
        warnings.extend(notes(&outcome.report));
        outcome.end.conclude(&self.session)?;
        Ok(Envelope::new(outcome.report, warnings))
    }

    fn of(captures: Captures, session: Session, notes: Rc<Notes>) -> Self {
        Self { files: Files { captures, target: Target::default() }, session, notes }
    }
}

/// Returns a session whose notes are collected, and the collection.
pub(crate) fn observed(session: Session) -> (Session, Rc<Notes>) {
    // WebAssembly has no clock. Reading the time would panic.
    let started = (!cfg!(target_family = "wasm")).then(Instant::now);
    let notes = Rc::new(Notes { texts: RefCell::default(), started });
    (Session { observer: Rc::<Notes>::clone(&notes), ..session }, notes)
}

/// Visitor that passes trains to a function.
struct EachTrain<F>(F);

impl<'a, F: FnMut(TrainRow<'_>) -> bool> Visit<TrainRow<'a>> for EachTrain<F> {
    fn open(&mut self) -> bool {
        true
    }

    fn row(&mut self, row: TrainRow<'a>) -> bool {
        (self.0)(row)
    }
}
