//! Opens the captures that a command reads, once or twice: files, directories or pipes.

use std::{
    cell::Cell,
    fs::File,
    io::{self, Cursor, Read, Seek, Write},
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
};

use grosso_capture::{CaptureError, CaptureReader, Merge};
use grosso_sys::path::input;

use super::{
    Session,
    filter::Filter,
    read::{ByteStream, CaptureStream, Feed, Input, Merged, Origin, Pass, name_of},
};
use crate::{error::Failure, name::shown, units};

/// Captures to read as one input, and the filter to apply.
pub struct Captures {
    members: Vec<OneSource>,
    filter: Option<String>,
    command: String,
    /// Whether Ctrl-C stopped reading from a pipe. The packets read by then are still processed.
    is_cut_off: bool,
    /// Whether the captures have already been opened for the first of two passes.
    is_read_before: Cell<bool>,
}

/// Path of a capture, and the bytes to read instead of the file, if any.
struct OneSource {
    path: PathBuf,
    held: Option<HeldBytes>,
}

/// Bytes that are read in place of a file: a copy of a pipe, or data in memory.
enum HeldBytes {
    /// Copy of a pipe, in an unnamed temporary file (ADR 0045).
    Spool(File),
    Memory(Arc<[u8]>),
}

/// Reader of a pipe that copies the bytes to a temporary file as it reads them.
struct Spooled {
    source: CaptureStream,
    spool: File,
}

impl Read for Spooled {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.source.read(buffer)?;
        self.spool.write_all(&buffer[..read])?;
        Ok(read)
    }
}

impl Captures {
    /// Finds the captures that the user named. Captures in a directory are skipped with a note if their compression is
    /// unsupported.
    ///
    /// # Errors
    /// Fails if a capture does not exist, or if there are too many.
    pub fn find(
        paths: &[PathBuf],
        filter: Option<String>,
        command: &str,
        session: &Session,
    ) -> Result<Self, Failure> {
        let (mut found, mut skipped) = (Vec::new(), Vec::new());
        for (index, path) in paths.iter().enumerate() {
            match input::metadata(path) {
                Ok(metadata) if metadata.is_dir() => found.extend(captures_in(path, &mut skipped)?),
                Err(error) if index > 0 && !is_pipe(path) => {
                    let hint = format!(
                        "pass the filter with -f: grosso {command} FILE -f EXPRESSION, or use \
                         grosso {command} -r FILE EXPRESSION"
                    );
                    return Err(io_failure(path, error).hint(hint));
                }
                _ => found.push(path.clone()),
            }
        }
        if found.iter().filter(|path| is_pipe(path)).count() > 1 {
            let message =
                format!("{command}: - is given twice, but standard input can be read only once");
            return Err(Failure::usage("usage.input", message));
        }
        if found.len() > CAPTURES_MAX {
            let message = format!(
                "{command}: too many captures: {}; the limit is {CAPTURES_MAX}",
                found.len()
            );
            let hint = "merge some of them first: mergecap -w ALL.pcapng FILE...";
            return Err(Failure::usage("usage.input", message).hint(hint));
        }
        if let Some(first) = skipped.first() {
            let files = units::count(skipped.len() as u64, "file");
            session.note(format!("{files} skipped: unsupported format, for example {first}"));
        }
        let members = found.into_iter().map(|path| OneSource { path, held: None }).collect();
        Ok(Self {
            members,
            filter,
            command: command.into(),
            is_cut_off: false,
            is_read_before: Cell::new(false),
        })
    }

    /// Creates the input from a capture in memory. Messages and reports refer to it as `name`.
    pub fn from_bytes(name: &str, bytes: impl Into<Arc<[u8]>>) -> Self {
        let held = Some(HeldBytes::Memory(bytes.into()));
        Self {
            members: vec![OneSource { path: name.into(), held }],
            filter: None,
            command: name.into(),
            is_cut_off: false,
            is_read_before: Cell::new(false),
        }
    }

    /// Returns the captures one by one.
    pub(crate) fn split(self) -> impl Iterator<Item = Self> {
        let Self { members, filter, command, .. } = self;
        members.into_iter().map(move |member| Self {
            members: vec![member],
            filter: filter.clone(),
            command: command.clone(),
            is_cut_off: false,
            is_read_before: Cell::new(false),
        })
    }

    /// Returns the path of the first capture.
    pub(crate) fn first_path(&self) -> &Path {
        self.members.first().map_or_else(|| Path::new(""), |first| &first.path)
    }

    /// Copies every pipe to its end, so that all captures can be read more than once.
    ///
    /// # Errors
    /// Fails if the data in a pipe does not start like a capture, or if the temporary directory is full.
    pub(crate) fn keep(&mut self, session: &Session) -> Result<(), Failure> {
        for member in &mut self.members {
            if member.held.is_some() {
                continue;
            }
            let (stream, bytes) = open_stream(&member.path)?;
            if bytes.is_none() {
                let spool = temporary_file().map_err(spool_failure)?;
                let mut kept = Spooled {
                    source: CaptureStream::new(ByteStream::File(stream), false, session),
                    spool,
                };
                // A pipe that does not contain a capture may never end.
                let first = CaptureReader::new(&mut kept).map(drop);
                first.or_else(|error| match error {
                    CaptureError::Io { source, .. } => Err(spool_failure(source)),
                    other => opened(&member.path, Err(other), session),
                })?;
                io::copy(&mut kept, &mut io::sink()).map_err(spool_failure)?;
                member.held = Some(HeldBytes::Spool(kept.spool));
                self.is_cut_off |= session.interrupted.swap(false, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Returns whether the captures can be read more than once.
    pub(crate) fn can_repeat(&self) -> bool {
        self.members.iter().all(|member| member.held.is_some() || input::is_file(&member.path))
    }

    /// Opens the captures at their start. Only one input can be open at a time. Set `is_hashed` to hash the captures
    /// while reading.
    ///
    /// # Errors
    /// Fails if a file cannot be opened or is not a capture, or if the filter is invalid.
    pub(crate) fn input(&self, is_hashed: bool, session: &Session) -> Result<Input, Failure> {
        let mut origins = Vec::new();
        let mut streams = Vec::new();
        for member in &self.members {
            let (stream, bytes) = member.open()?;
            let source = CaptureStream::new(stream, is_hashed, session);
            origins.push(Origin::of(&member.path, bytes, &source));
            streams.push((&member.path, source));
        }
        let mut input = match <[_; 1]>::try_from(streams) {
            Ok([(path, source)]) if self.filter.is_none() => {
                let reader = CaptureReader::new(Feed::File(Box::new(source)));
                let reader = opened(path, reader, session)?;
                Input::over(reader, origins, None, None, session)
            }
            Ok(alone) => self.merge(alone.into(), origins, session)?,
            Err(several) => self.merge(several, origins, session)?,
        };
        input.is_cut_off = self.is_cut_off;
        if self.is_read_before.get() {
            input.name_pass(Pass::Second);
        }
        Ok(input)
    }

    /// Opens the captures for the first of two passes; [`Self::input`] then opens them for the second.
    ///
    /// # Errors
    /// Fails under the same conditions as [`Self::input`].
    pub(crate) fn first_pass(&self, session: &Session) -> Result<Input, Failure> {
        let mut input = self.input(false, session)?;
        input.name_pass(Pass::First);
        self.is_read_before.set(true);
        Ok(input)
    }

    fn merge(
        &self,
        streams: Vec<(&PathBuf, CaptureStream)>,
        mut origins: Vec<Origin>,
        session: &Session,
    ) -> Result<Input, Failure> {
        let is_batched = streams.iter().all(|(path, _)| input::is_file(path));
        let mut readers = Vec::new();
        for ((path, source), origin) in streams.into_iter().zip(&mut origins) {
            let reader = opened(path, CaptureReader::new(source), session)?;
            origin.learn(&reader);
            readers.push((reader, name_of(path)));
        }
        let filter = self.filter.as_deref();
        let filter = filter.map(|text| Filter::new(text, &self.command, session.forced_link));
        let fault = filter.as_ref().map(Filter::fault).unwrap_or_default();
        let links: Vec<u32> =
            readers.iter().flat_map(|(r, _)| r.interfaces()).map(|i| i.link_type).collect();
        let select = match filter {
            Some(mut filter) => {
                // Report an invalid expression before anything is written.
                links.into_iter().try_for_each(|link| filter.prepare(link))?;
                Some(filter.select())
            }
            None => None,
        };
        let failed = |error| Failure::capture(&self.command, &error);
        let merge = Merge::new(readers, select, is_batched).map_err(failed)?;
        let merged = Merged { outcome: merge.outcome(), fault };
        merged.outcome.borrow_mut().remember_origins();
        let reader = CaptureReader::new(Feed::Merge(Box::new(merge)));
        let reader = reader.map_err(|error| match merged.outcome.borrow_mut().damage.take() {
            _ if merged.fault.borrow().is_some() => {
                merged.fault.borrow_mut().take().unwrap_or_else(|| failed(error))
            }
            Some((index, damage)) => Failure::capture(&origins[index].name, &damage),
            None => failed(error),
        })?;
        Ok(Input::over(reader, origins, Some(merged), self.filter.clone(), session))
    }
}

impl OneSource {
    fn open(&self) -> Result<(ByteStream, Option<u64>), Failure> {
        let spool = match &self.held {
            None => {
                let (file, bytes) = open_stream(&self.path)?;
                return Ok((ByteStream::File(file), bytes));
            }
            Some(HeldBytes::Memory(bytes)) => {
                let len = bytes.len() as u64;
                return Ok((ByteStream::Memory(Cursor::new(Arc::clone(bytes))), Some(len)));
            }
            Some(HeldBytes::Spool(spool)) => spool,
        };
        let rewound = || {
            let mut stream = spool.try_clone()?;
            stream.rewind()?;
            let bytes = stream.metadata()?.len();
            io::Result::Ok((ByteStream::File(stream), Some(bytes)))
        };
        rewound().map_err(|error| io_failure(&self.path, error))
    }
}

/// Returns the captures in a directory. Adds the names of captures with unsupported compression to `skipped`.
fn captures_in(folder: &Path, skipped: &mut Vec<String>) -> Result<Vec<PathBuf>, Failure> {
    let fail = |error| io_failure(folder, error);
    let mut found = Vec::new();
    for path in input::entries(folder).map_err(fail)? {
        if !input::is_file(&path) {
            continue;
        }
        let file = input::open_regular(&path).map_err(|error| io_failure(&path, error))?;
        match CaptureReader::new(file) {
            Err(CaptureError::NotACapture { .. }) => {}
            Err(CaptureError::UnsupportedFormat { .. }) => skipped.push(name_of(&path)),
            Err(CaptureError::Io { source, .. }) => return Err(io_failure(&path, source)),
            // Damage is reported later, when the capture is read.
            _ => found.push(path),
        }
    }
    if found.is_empty() {
        let message = format!("{}: no captures in this directory", shown(folder));
        return Err(Failure::environment("environment.read", message));
    }
    found.sort();
    Ok(found)
}

/// Converts the result of opening a capture. If Ctrl-C is the reason for missing bytes, the error reports the
/// interruption instead of a damaged capture.
fn opened<T>(
    path: &Path,
    reader: Result<T, CaptureError>,
    session: &Session,
) -> Result<T, Failure> {
    reader.map_err(|error| match error {
        CaptureError::Io { source, .. } => io_failure(path, source),
        _ if session.interrupted.load(Ordering::Relaxed) => {
            let message = format!("{}: interrupted before the first packet", name_of(path));
            Failure::interrupted(message)
        }
        other => Failure::capture(&name_of(path), &other),
    })
}

fn is_pipe(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Opens a file or standard input. Returns the stream, and its length in bytes if known.
fn open_stream(path: &Path) -> Result<(File, Option<u64>), Failure> {
    let fail = |source| io_failure(path, source);
    if is_pipe(path) {
        return Ok((standard_input().map_err(fail)?, None));
    }
    let file = input::open(path).map_err(fail)?;
    let metadata = file.metadata().map_err(fail)?;
    Ok((file, metadata.is_file().then_some(metadata.len())))
}

/// Creates the failure for a capture that could not be read.
fn io_failure(path: &Path, source: io::Error) -> Failure {
    let path = if is_pipe(path) { name_of(path) } else { path.display().to_string() };
    Failure::capture(&path.clone(), &CaptureError::Io { path, source })
}

fn spool_failure(error: io::Error) -> Failure {
    let folder = std::env::temp_dir();
    let message = format!("cannot copy the pipe to {}: {error}", folder.display());
    let hint = "set TMPDIR=DIR in the environment to use another directory, or pass a file";
    Failure::environment("environment.spool", message).hint(hint)
}

/// Creates an unnamed temporary file.
#[cfg(not(target_family = "wasm"))]
fn temporary_file() -> io::Result<File> {
    tempfile::tempfile()
}

#[cfg(target_family = "wasm")]
fn temporary_file() -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Returns standard input without a user-space buffer, because `poll` on the descriptor would not see bytes that are
/// already buffered.
#[cfg(unix)]
fn standard_input() -> io::Result<File> {
    use std::os::fd::AsFd;

    Ok(io::stdin().as_fd().try_clone_to_owned()?.into())
}

#[cfg(windows)]
fn standard_input() -> io::Result<File> {
    use std::os::windows::io::AsHandle;

    Ok(io::stdin().as_handle().try_clone_to_owned()?.into())
}

#[cfg(not(any(unix, windows)))]
fn standard_input() -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Maximum number of captures that are read as one: each needs an open file and a 1 MB buffer.
const CAPTURES_MAX: usize = 512;
