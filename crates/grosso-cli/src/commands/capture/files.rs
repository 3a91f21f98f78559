//! Writes the files of a capture: a single file, or one file after another.

use std::{
    path::{Path, PathBuf},
    rc::Rc,
};

use grosso_capture::{CaptureWriter, Entry, Format, Interface, Output, PacketMeta, WriterOptions};
use grosso_sys::path;

use grosso_analysis::capture::{OUTPUT_MODE, note_others};

use super::{
    blocks::{self, KernelCounts, Statistics},
    names::{FileRotation, Names},
    now_ns,
    opener::Opener,
    source::CapturedInterface,
};
use crate::{arguments::Capture, error::Failure, name::shown, session::Session};

/// Current output file, and the rotation rule.
pub(super) struct CaptureFiles {
    names: Names,
    /// Thread that opens all files after the first; `None` if there is only one file.
    opener: Option<Rc<Opener>>,
    options: WriterOptions,
    writer: Option<CaptureWriter<Output>>,
    /// Path of the current file.
    pub(super) path: PathBuf,
    /// Name of the current file in messages.
    pub(super) name: String,
    /// Interfaces in the current file, indexed by their position among the devices.
    declared: Vec<Option<Declared>>,
    /// Number of interfaces that the current file describes so far.
    numbers: u32,
    began_ns: u64,
    /// Kernel packet counts at the start of the current file.
    counted: KernelCounts,
    /// Number of files started.
    pub(super) begun: u64,
    /// Number of packets in all files.
    pub(super) packets: u64,
}

/// Interface that is described in the current file.
#[derive(Clone, Copy)]
struct Declared {
    number: u32,
    /// Number of the interface's packets in this file.
    packets: u64,
}

impl CaptureFiles {
    /// Starts the first file.
    pub(super) fn begin(
        options: &Capture,
        path: &Path,
        source: &CapturedInterface,
        opener: Option<Rc<Opener>>,
        session: &mut Session,
    ) -> Result<Self, Failure> {
        let mut writing = WriterOptions::new(options.format());
        if let Some(device) = source.devices.first() {
            writing.interface = device.interface;
        }
        writing.comments.push(session.reading.command_line.clone());
        let now_s = now_ns() / NANOSECONDS_PER_SECOND;
        let mut files = Self {
            names: Names::new(path.as_os_str(), options.turning(), now_s),
            opener,
            options: writing,
            writer: None,
            path: PathBuf::new(),
            name: String::new(),
            declared: Vec::new(),
            numbers: 0,
            began_ns: 0,
            counted: KernelCounts::default(),
            begun: 0,
            packets: 0,
        };
        files.open(source)?;
        note_others(&files.path, &session.reading);
        Ok(files)
    }

    /// Rotates to the file for this packet; returns `false` after the last file.
    pub(super) fn turn(&mut self, source: &mut CapturedInterface) -> Result<bool, Failure> {
        let bytes = self.writer.as_ref().map_or(0, CaptureWriter::bytes);
        match self.names.rotate(|| now_ns() / NANOSECONDS_PER_SECOND, bytes) {
            FileRotation::Same => Ok(true),
            FileRotation::Next => {
                source.count();
                self.close(source)?;
                self.open(source)?;
                Ok(true)
            }
            FileRotation::Over => Ok(false),
        }
    }

    /// Writes a packet from the interface at position `place` among the devices.
    pub(super) fn write(
        &mut self,
        source: &CapturedInterface,
        place: usize,
        meta: &PacketMeta,
        data: &[u8],
    ) -> Result<(), Failure> {
        let meta = PacketMeta { interface: self.declare(source, place)?, ..meta.clone() };
        let Some(writer) = &mut self.writer else { return Ok(()) };
        writer.write_packet(&meta, data).map_err(|error| Failure::capture(&self.name, &error))?;
        if let Some(Some(declared)) = self.declared.get_mut(place) {
            declared.packets += 1;
        }
        self.packets += 1;
        Ok(())
    }

    /// Returns the name that the user passed.
    pub(super) fn stem(&self) -> String {
        shown(Path::new(self.names.stem()))
    }

    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        writer.flush().map_err(|error| Failure::capture(&self.name, &error))
    }

    /// Completes the current file.
    pub(super) fn close(&mut self, source: &CapturedInterface) -> Result<(), Failure> {
        if self.options.format == Format::Pcapng {
            self.describe_counts(source)?;
        }
        let Some(writer) = self.writer.take() else { return Ok(()) };
        writer.finish().map_err(|error| Failure::capture(&self.name, &error))?;
        Ok(())
    }

    /// Opens the next file.
    fn open(&mut self, source: &CapturedInterface) -> Result<(), Failure> {
        let (names, options) = (self.names.clone(), self.options.clone());
        let create = move || create(&names, options);
        let opened = match &self.opener {
            // The first file is opened by the calling thread, which is not yet confined and has the user's privileges.
            Some(opener) if self.begun > 0 => opener.ask(create)??,
            _ => create()?,
        };
        let Opened { path, name, mut writer } = opened;
        writer.begin().map_err(|error| Failure::capture(&name, &error))?;
        (self.path, self.name) = (path, name);
        self.writer = Some(writer);
        self.declared.clear();
        self.numbers = 0;
        self.began_ns = now_ns();
        self.counted = source.counted;
        self.begun += 1;
        if !source.is_any() {
            self.declare(source, 0)?;
        }
        // Flush now, so that a reader waiting for the start of the file can begin.
        self.flush()
    }

    /// Returns the number of an interface in this file. The first packet from an interface adds its description.
    fn declare(&mut self, source: &CapturedInterface, place: usize) -> Result<u32, Failure> {
        if let Some(Some(declared)) = self.declared.get(place) {
            return Ok(declared.number);
        }
        let number = self.numbers;
        if let (Format::Pcapng, Some(device)) = (self.options.format, source.devices.get(place)) {
            let interface = device.interface;
            self.copy(blocks::INTERFACE_DESCRIPTION, &device.description, Some(interface))?;
        }
        self.numbers += 1;
        self.declared.resize(self.declared.len().max(place + 1), None);
        self.declared[place] = Some(Declared { number, packets: 0 });
        Ok(number)
    }

    /// Writes each interface's packet counts to this file.
    fn describe_counts(&mut self, source: &CapturedInterface) -> Result<(), Failure> {
        let between = [self.began_ns, now_ns()];
        let kernel = source.counted.since(self.counted);
        let declared: Vec<Declared> = self.declared.iter().flatten().copied().collect();
        for Declared { number, packets } in declared {
            let own = (!source.is_any()).then_some(kernel);
            let counted = Statistics { number, between, kernel: own, written: packets };
            let KernelCounts { seen, drops } = kernel;
            let together = source.is_any() && number == 0;
            let comment = together.then(|| {
                format!(
                    "total of all interfaces: {seen} packets received, {drops} dropped \
                         because the ring was full"
                )
            });
            let raw = blocks::statistics(&counted, comment.as_deref());
            self.copy(blocks::INTERFACE_STATISTICS, &raw, None)?;
        }
        Ok(())
    }

    fn copy(&mut self, kind: u32, raw: &[u8], interface: Option<Interface>) -> Result<(), Failure> {
        let entry = Entry::Block(blocks::copied(kind, raw, interface));
        let Some(writer) = &mut self.writer else { return Ok(()) };
        writer.copy(&entry).map_err(|error| Failure::capture(&self.name, &error))
    }
}

/// File that has been opened.
struct Opened {
    path: PathBuf,
    name: String,
    writer: CaptureWriter<Output>,
}

/// Creates the current file.
fn create(names: &Names, options: WriterOptions) -> Result<Opened, Failure> {
    let path = names.name()?;
    let is_standard = path == Path::new("-");
    let name = if is_standard { "standard output".into() } else { shown(&path) };
    let writer = match is_standard {
        true => CaptureWriter::to_standard_output(options),
        false => {
            let file = path::create(&path, OUTPUT_MODE).map_err(|error| {
                Failure::environment("environment.write", format!("{name}: {error}"))
            })?;
            CaptureWriter::to_file(file, path.display().to_string(), options)
        }
    };
    Ok(Opened { path, name, writer })
}

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;
